"""The app of `make failover`: workers and producers import it as ``work``.

Each execution writes a line into a file of which the database knows nothing: the kind, the name of what ran, its
number, the time and the process.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from redrive import App, Context, Flow

HERE = Path(__file__).parent
LEDGER = os.open(HERE / "executions.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
# After a failover the attempts are given back; the retries are for handlers that raise the error of their connection.
RETRY = "20 50ms 1s"
EFFECT = "INSERT INTO public.effects VALUES"

app = App(os.environ.get("FAILOVER_URL") or (HERE / "url").read_text())


def note(kind: str, name: str, number: object) -> None:
    """Write one line, whole; it outlives the process and the servers."""
    os.write(LEDGER, f"{kind} {name} {number} {time.time():.3f} {os.getpid()}\n".encode())


@app.task(retry=RETRY)
async def plain(number: int) -> None:
    """Do little."""
    note("ran", "plain", number)
    await asyncio.sleep(0.02)


@app.task(idempotent=False)
async def once(number: int) -> None:
    """Do what must not be done twice."""
    note("ran", "once", number)
    await asyncio.sleep(0.5)


@app.task(retry=RETRY)
async def child(number: int, ctx: Context) -> None:
    """Write a row with the end of the attempt."""
    note("ran", "child", number)
    async with ctx.transaction() as connection:
        await connection.execute(f"{EFFECT} ('child', {number})")


@app.task(retry=RETRY)
def tx(number: int, ctx: Context) -> None:
    """Write a row with the end of the attempt, in a thread, and enqueue a job that exists if it succeeds."""
    note("ran", "tx", number)
    child.enqueue(number)
    with ctx.transaction() as connection:
        connection.execute(f"{EFFECT} ('tx', {number})")


@app.task(retry=RETRY)
async def atx(number: int, ctx: Context) -> None:
    """Write a row with the end of the attempt."""
    note("ran", "atx", number)
    async with ctx.transaction() as connection:
        await connection.execute(f"{EFFECT} ('atx', {number})")


async def part(number: int) -> int:
    """Take a step of a run."""
    note("ran", "part", number)
    await asyncio.sleep(0.2)
    return number


async def end(number: int) -> None:
    """Take the last step."""
    note("ran", "end", number)


@app.workflow(retry=RETRY)
async def flow(run: Flow, number: int) -> None:
    """Take steps for two seconds, with a rest among them."""
    for _ in range(5):
        await run.step(part, number)
    await run.sleep("500ms")
    await run.step(end, await run.step(part, number))


events = app.topic("events", int)


@events.subscribe("strict", retry=RETRY)
async def strict(number: int, ctx: Context) -> None:
    """Write a row with the end of the delivery; deliver in order."""
    note("ran", "strict", number)
    async with ctx.transaction() as connection:
        await connection.execute(f"{EFFECT} ('strict', {number})")


@events.subscribe("batch", batch=50, order="none", retry=RETRY)
async def batch(numbers: list[int]) -> None:
    """Take many events at once."""
    for number in numbers:
        note("ran", "batch", number)


class Wrong(Exception):
    """The error of a handler that does not like its first attempt."""


@events.subscribe("flaky", order="none", retry=RETRY)
async def flaky(number: int, ctx: Context) -> None:
    """Fail at the first attempt to take an event, so that it gets a job."""
    await asyncio.sleep(0.1)
    if ctx.attempt == 1:
        raise Wrong
    note("ran", "flaky", number)


@app.cron("* * * * * *", overlap="allow", catch_up="all", window="1h", retry=RETRY)
async def tick(ctx: Context) -> None:
    """Run each second."""
    assert ctx.occurs_at is not None
    note("ran", "tick", int(ctx.occurs_at.timestamp()))


@app.refresh("Refresh every 3 seconds; allow 20 seconds; on the first failure, retry after 1 second")
async def fresh(ctx: Context) -> None:
    """Keep an item fresh."""
    note("ran", "fresh", ctx.key)
