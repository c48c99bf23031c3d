"""Random bodies of workflows that use asyncio and anyio with named calls; the workers of the tests import it.

A body is made of parts by its seed, which also gives the result that it must have. Each execution of a step writes one
line with a token, and the token is part of the recorded result: so the tests find out if a step was executed again
although its record existed."""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from redrive import App, Flow, GiveUp

HERE = Path(os.environ.get("NAMED_HOME", "."))
app = App(os.environ.get("NAMED_URL", "memory://"), heartbeat_every="200ms", lease_for="3s")

RETRY = "80 50ms 500ms"


def note(*words: object) -> None:
    """Write one line to the ledger."""
    file = os.open(HERE / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (" ".join(map(str, words)) + "\n").encode())
    os.close(file)


class Body:
    """The calls of one body.

    Args:
        flow: of the run.
        seed: of the body.
    """

    def __init__(self, flow: Flow, seed: int) -> None:
        self.flow, self.seed = flow, seed

    async def step(self, name: str, value: int) -> int:
        """Take a step that returns its value, after some failures."""

        async def act() -> list[Any]:
            chance = random.Random()
            await asyncio.sleep(chance.random() * 0.03)
            if chance.random() < 0.2:
                raise OSError("flaky")
            token = uuid.uuid4().hex
            note(self.seed, name, value, os.getpid(), token)
            return [value, token]

        result: list[Any] = await self.flow.named(name, inputs=[value]).step(act, retry=RETRY)
        return int(result[0])


@app.workflow()
async def child(flow: Flow, number: int) -> int:
    """Sleep, and return a number."""
    await flow.sleep("100ms")
    return number


Part = tuple[Callable[[Body], Awaitable[int]], int]
"""A part of a body, and the number that it returns."""


def _gather(name: str, rng: random.Random) -> Part:
    values = [rng.randrange(100) for _ in range(rng.randrange(2, 5))]

    async def run(body: Body) -> int:
        return sum(await asyncio.gather(*[body.step(name, each) for each in values]))

    return run, sum(values)


def _group(name: str, rng: random.Random) -> Part:
    values = [rng.randrange(100) for _ in range(rng.randrange(2, 4))]

    async def run(body: Body) -> int:
        async def one(value: int) -> int:
            first = await body.step(f"{name} a", value)
            # Nested: what it asks for depends on what it was given.
            return await body.step(f"{name} b", first + 1)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(each)) for each in values]
        return sum(each.result() for each in tasks)

    return run, sum(each + 1 for each in values)


def _stream(name: str, rng: random.Random) -> Part:
    counts, size = [rng.randrange(1, 3) for _ in range(rng.randrange(2, 4))], rng.randrange(3)
    values = [[100 * place + each for each in range(count)] for place, count in enumerate(counts)]

    async def run(body: Body) -> int:
        send, receive = anyio.create_memory_object_stream[int](size)
        total: list[int] = []

        async def produce(place: int, stream: Any) -> None:
            async with stream:
                for each in values[place]:
                    await stream.send(await body.step(f"{name} p{place}", each))

        async def consume(stream: Any) -> None:
            async with stream:
                async for each in stream:
                    # The same name for each: which one is the first depends on the order of the ends.
                    total.append(await body.step(f"{name} c", each))  # noqa: PERF401 - one after the other

        async with anyio.create_task_group() as group:
            for place in range(len(values)):
                group.start_soon(produce, place, send.clone())
            for _ in range(2):
                group.start_soon(consume, receive.clone())
            send.close()
            receive.close()
        return sum(total)

    return run, sum(map(sum, values))


def _queue(name: str, rng: random.Random) -> Part:
    values = [rng.randrange(100) for _ in range(rng.randrange(3, 6))]

    async def run(body: Body) -> int:
        todo: asyncio.Queue[int] = asyncio.Queue()
        done: list[int] = []

        async def work() -> None:
            while True:
                done.append(await body.step(name, await todo.get()))
                todo.task_done()

        workers = [asyncio.create_task(work()) for _ in range(2)]
        for each in values:
            todo.put_nowait(each)
        await todo.join()
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        return sum(done)

    return run, sum(values)


def _race(name: str, rng: random.Random) -> Part:
    value = rng.randrange(100)

    async def run(body: Body) -> int:
        slow = asyncio.ensure_future(body.flow.named(f"{name} slow").sleep("1h"))
        fast = asyncio.ensure_future(body.step(name, value))
        done, left = await asyncio.wait({slow, fast}, return_when=asyncio.FIRST_COMPLETED)
        for each in left:
            each.cancel()
        await asyncio.wait(left)
        return sum(each.result() or 0 for each in done)

    return run, value


def _timeout(name: str, rng: random.Random) -> Part:
    value, seconds = rng.randrange(100), rng.choice((0.02, 0.1, 0.3))

    async def run(body: Body) -> int:
        async def slow() -> None:
            await asyncio.sleep(3600)

        try:
            async with asyncio.timeout(seconds):
                await body.flow.named(f"{name} slow").step(slow)
        except TimeoutError:
            return await body.step(name, value)
        return -1

    return run, value


def _shield(name: str, rng: random.Random) -> Part:
    values = [rng.randrange(100) for _ in range(2)]

    async def run(body: Body) -> int:
        async def one(value: int) -> int:
            try:
                return await body.step(name, value)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await asyncio.sleep(0.005)
                raise

        return sum(await asyncio.gather(*map(one, values)))

    return run, sum(values)


def _signal(name: str, rng: random.Random) -> Part:
    value = rng.randrange(100)

    async def run(body: Body) -> int:
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(_awaited(body.flow.named(name).wait_for("number", int)))
            beside = group.create_task(body.step(f"{name} beside", value))
        return asked.result() + beside.result()

    return run, 7 + value


def _event(name: str, rng: random.Random) -> Part:
    value = rng.randrange(100)

    async def run(body: Body) -> int:
        got = body.flow.named(name).wait_for_event("ready", int)
        return sum(await asyncio.gather(_awaited(got), body.step(f"{name} beside", value)))

    return run, 11 + value


def _child(name: str, rng: random.Random) -> Part:
    value = rng.randrange(100)

    async def run(body: Body) -> int:
        called = body.flow.named(name).call(child, value)
        return sum(await asyncio.gather(_awaited(called), body.step(f"{name} beside", value)))

    return run, 2 * value


def _sleep(name: str, rng: random.Random) -> Part:
    spans, value = [rng.choice(("20ms", "200ms", "1500ms")) for _ in range(2)], rng.randrange(100)

    async def run(body: Body) -> int:
        async def one(span: str) -> int:
            await body.flow.named(name, inputs=span).sleep(span)
            return await body.step(f"{name} after", value)

        return sum(await asyncio.gather(*map(one, spans)))

    return run, 2 * value


def _fails(name: str, rng: random.Random) -> Part:
    value = rng.randrange(100)

    async def run(body: Body) -> int:
        async def bad() -> None:
            raise GiveUp("no")

        async def one() -> int:
            with suppress(GiveUp):
                await body.flow.named(f"{name} bad").step(bad)
            return await body.step(name, value)

        return sum(await asyncio.gather(one(), body.step(f"{name} beside", value)))

    return run, 2 * value


def _branches(name: str, rng: random.Random) -> Part:
    values = [rng.randrange(100) for _ in range(2)]

    async def run(body: Body) -> int:
        async def branch(value: int) -> int:
            await body.flow.sleep("20ms")
            return sum(await asyncio.gather(body.step(name, value), body.step(f"{name} too", value)))

        return sum(await body.flow.gather(*map(branch, values)))

    return run, 2 * sum(values)


async def _awaited(call: Awaitable[int]) -> int:
    return await call


PARTS = (
    _gather, _group, _stream, _queue, _race, _timeout, _shield, _signal, _event, _child, _sleep, _fails,
)  # fmt: skip


def made(seed: int) -> tuple[list[Part], bool]:
    """Return the parts of a body, and whether they run at once."""
    rng = random.Random(seed)
    chosen = [rng.choice(PARTS) for _ in range(rng.randrange(1, 4))]
    parts = [make(f"{place} {make.__name__.strip('_')}", rng) for place, make in enumerate(chosen)]
    if rng.random() < 0.3:
        # Branches belong to the body itself.
        parts.append(_branches(f"{len(parts)} branches", rng))
        return parts, False
    return parts, rng.random() < 0.5


@app.workflow()
async def body(flow: Flow, seed: int) -> int:
    """Run the body with this seed."""
    parts, at_once = made(seed)
    this = Body(flow, seed)
    if at_once:
        return sum(await asyncio.gather(*[run(this) for run, _ in parts]))
    return sum([await run(this) for run, _ in parts])


def wanted(seed: int) -> int:
    """Return the result of the body with this seed."""
    return sum(value for _, value in made(seed)[0])
