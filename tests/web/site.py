"""Dashboards for browsers: an app with hostile texts in a database, and a real `redrive web` process before it."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from redrive.clock import SystemClock
from redrive.web import hash_password
from tests.acceptance.processes import Deployment, WorkerProcess, stage

Answer = TypeVar("Answer")

CANARY = "canary-4242424242"
PASSWORD = "open sesame"

WORK = '''
"""The app of the dashboard's tests; the processes import it as ``work``."""

import asyncio
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import redrive
from redrive.engine.counters import ErrorLine, TallyRows
from redrive.runtime.worker import Worker
from redrive.stores.operations import counters, workers

app = redrive.App(Path(__file__).with_name("url").read_text(), heartbeat_every="200ms", lease_for="15s")
LATE = redrive.Filter(tag="never")
HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>\\"'&\\x1b[31m\\u202e" + "w" * 300
HOSTILE += "\\u05e9\\u05dc\\u05d5\\u05dd\\U0001f98a" * 20


@app.task(retry="0")
def charge(order: int, password: str) -> str:
    """Fail for odd orders, and repeat the secret."""
    if order % 2:
        raise RuntimeError(f"{HOSTILE} cannot pay with {password}")
    return password


@app.task(retry="5 20ms")
def flaky(job: int, context: redrive.Context) -> None:
    """Fail twice, then ask for an hour."""
    if context.attempt == 3:
        raise redrive.RetryAfter("1h", "the server asks for an hour")
    raise TimeoutError(f"attempt {context.attempt} timed out")


@app.task(queue="mail/out", retry="3 1h", name="mail")
def mail(to: str) -> None:
    """Fail."""
    raise RuntimeError(to)


@app.task(queue="soon")
def soon(number: int) -> int:
    """Do nothing."""
    return number


@app.cron("0 3 * * *", tz="Europe/Kyiv")
def nightly() -> None:
    """Do nothing."""


@app.refresh("Refresh every 2 hours; retry 2 times every 5 minutes; then email the customer that it is disabled")
def table(url: str, password: str) -> None:
    """Fail, and repeat the secret."""
    raise RuntimeError(f"{HOSTILE} {url} {password}")


@app.step
def pay(order: int, password: str) -> dict[str, str]:
    """Repeat the secret."""
    return {"token": password, "echo": f"{HOSTILE} {order} {password}", "k" * 300: "v"}


@app.workflow()
async def checkout(flow: redrive.Flow, order: int, password: str) -> str:
    """Pay, and wait for the parcel."""
    await flow.step(pay, order, password)
    return await flow.wait_for(HOSTILE, str)


payment = app.machine("payment", data=dict)


@dataclass
class Created:
    """The first event of a payment."""

    amount: int
    password: str


@payment.start(retry="3 1h")
def created(event: Created, ctx: redrive.Context) -> None:
    """Fail for odd amounts, and repeat the secret."""
    ctx.set_data({"token": event.password, "echo": f"{HOSTILE} {event.password}", "k" * 300: "v"})
    if event.amount % 2:
        raise RuntimeError(f"{HOSTILE} {event.password}")


receipts = app.topic("receipts", dict[str, str])


@receipts.subscribe("send", order="key", retry="3 1h")
def send(event: dict[str, str]) -> None:
    """Fail, and repeat the secret."""
    raise RuntimeError(f"{HOSTILE} {event['password']}")


def fill() -> None:
    """Make jobs in many states, and a worker that serves none of them."""
    app.open()
    app.store.run(workers.register("idle", concurrency=1, lease_for=timedelta(days=1), queues=["none"]))
    for order in range(16):
        charge.enqueue(order, CANARY)
    job = flaky.enqueue(1)
    mail.enqueue(HOSTILE)
    checkout.start(1, CANARY, id="order/1")
    receipts.publish({"password": CANARY}, key=HOSTILE)
    payment.send("card", Created(1, CANARY))
    payment.send("cash/2", Created(2, CANARY))
    table.track("key/1", HOSTILE, CANARY)
    while len(job.attempts) < 3:
        asyncio.run(Worker(app, until_empty=True).run())
    mail.options(delay="1h", tags=["late"]).enqueue("later")
    app.queue("mail/out").pause(actor=HOSTILE)
    app.operations.finish(app.operations.start(app.operations.preview("cancel", LATE), actor=HOSTILE).id)
    at = job.attempts[0].started_at
    error = ErrorLine("other", "charge", "ERROR", HOSTILE, HOSTILE, HOSTILE, at, at, 1)
    app.store.run(counters.write_counters(TallyRows((), (), (error,))))
    charge.options(queue="shelf", delay="1d", tags=["many"]).enqueue_many([(number, "x") for number in range(120)])
    mail.options(queue="q" * 100, delay="1d", tags=["t" * 60], key="k" * 200).enqueue("x" * 400)
    app.close()
'''.replace("CANARY", repr(CANARY))

DEAD = 14
"""A dead job of `fill`; so are the other even ones up to 16."""

FLAKY = 17
"""The job of `fill` with three attempts."""

LONG = 146
"""The job of `fill` with long names."""

USERS = f"""
[ann]
role = "operate"
password = "{hash_password(PASSWORD, salt=bytes(16))}"

[bob]
role = "read"
password = "{hash_password(PASSWORD, salt=bytes(16))}"
"""


@dataclass
class Site:
    """A dashboard in a process of its own."""

    deployment: Deployment
    users: bool
    url: str = ""
    process: WorkerProcess | None = None
    _outside: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def start(self) -> None:
        """Start the server, on the same port as before."""
        port = self.url.rsplit(":", 1)[-1] or str(_free())
        options = ["--users", "users.toml"] if self.users else []
        self.process = self.deployment.run(sys.executable, "-m", "redrive", "web", "work:app", "--port", port, *options)
        self.url = f"http://127.0.0.1:{port}"

    def wait(self) -> None:
        """Wait until the server serves."""
        assert self.process is not None
        log = self.process.log
        self.deployment.until(lambda: "the dashboard is at" in re.sub(r"\s+", " ", log.read_text()))

    def stop(self) -> float:
        """Ask the server to stop, and return the seconds that it took."""
        assert self.process is not None
        before = SystemClock.monotonic()
        self.process.send(signal.SIGTERM)
        assert self.process.ended() in {0, -signal.SIGTERM}  # uvicorn raises the signal again when it has stopped
        return SystemClock.monotonic() - before

    def do(self, work: Callable[[Any], Answer]) -> Answer:
        """Call something with the module of the app, in a thread without an event loop; Playwright has one in ours."""
        return self._outside.submit(work, self.deployment.module).result()

    def close(self) -> None:
        """End the thread."""
        self._outside.shutdown()


def _free() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def sites(folder: Path) -> Iterator[dict[str, Site]]:
    """Start three dashboards: on full databases of both kinds, and on an empty one without users."""
    with contextlib.ExitStack() as stack:
        found = {}
        for name, kind in (("sqlite", "sqlite"), ("postgres", "postgres"), ("empty", "sqlite")):
            (folder / name).mkdir()
            deployment = stack.enter_context(stage(folder / name, kind, work=WORK))
            (folder / name / "users.toml").write_text(USERS)
            call = "app.open()" if name == "empty" else "fill()"
            deployment.run(sys.executable, "-c", f"import work; work.{call}")
            found[name] = Site(deployment, users=name != "empty")
        for each in found.values():
            filled = each.deployment.processes[0]
            assert 0 == filled.ended(), filled.log.read_text()
            each.start()
            if each.users:
                each.deployment.worker("--queue", "soon", "--name", "web & <b>sons</b>")
        for each in found.values():
            each.wait()
            stack.callback(each.close)
        yield found
