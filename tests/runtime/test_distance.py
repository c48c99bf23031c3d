"""Round trips and connections of a worker on PostgreSQL, counted on the wire by a proxy.

A distant database makes each round trip of a job, and of a start, as long as the way there and back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import pytest

from redrive import App, Context
from redrive.runtime.worker import Worker
from redrive.stores.drivers.postgres import aio
from redrive.testing import VirtualClock, adrain
from tests import postgres
from tests.proxy import Proxy
from tests.runtime.helpers import PATIENCE, until

#: Jobs after which the libraries have prepared the statements, and have opened their connections.
WARM = 4


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Start a proxy that records what clients send."""
    with Proxy(f"{postgres.server()}/.s.PGSQL.5432") as running:
        yield running


@pytest.fixture
def url(proxy: Proxy) -> Iterator[str]:
    """Lend an empty store behind the proxy."""
    with postgres.lent(host=proxy.host, port=str(proxy.port)) as lent:
        yield lent


def trips(proxy: Proxy, call: Callable[[], object]) -> int:
    """Return the number of messages that clients send during a call, each of which waits for its answer."""
    before = len(proxy.requests)
    call()
    return len(proxy.requests) - before


@pytest.mark.parametrize("colour", ["def", "async"])
def test_a_transaction_of_a_handler_takes_three_round_trips(proxy: Proxy, url: str, colour: str):
    """The worker saves two, because it does not settle the attempt; the fourth is the statement of the handler."""
    with contextlib.closing(App(url, clock=VirtualClock())) as app:

        @app.task
        async def plain(number: int) -> None:
            """Do nothing."""

        @app.task
        def transacted(context: Context, number: int) -> None:
            """Execute a statement."""
            with context.transaction() as connection:
                connection.execute(f"SELECT {number}")
                context.set_result(None)

        @app.task
        async def awaited(context: Context, number: int) -> None:
            """Execute a statement in a coroutine."""
            async with context.transaction() as connection:
                await connection.execute(f"SELECT {number}")

        def one(task: Callable[[int], object]) -> int:
            """Return the round trips of a drain with one job."""
            task(0)
            return trips(proxy, lambda: runner.run(adrain(app)))

        with asyncio.Runner() as runner:
            chosen = transacted.enqueue if colour == "def" else awaited.enqueue
            for _ in range(WARM):
                one(plain.enqueue)
                one(chosen)
            connections = proxy.connections
            taken = one(chosen) - one(plain.enqueue)

    assert (2, connections) == (taken, proxy.connections)


def working(app: App) -> None:
    """Declare a task, a queue and a topic, as an app has them."""

    @app.task(name="noop")
    async def noop(number: int) -> None:
        """Do nothing."""

    app.queue("mail", concurrency=2)
    topic = app.topic("events", int)

    @topic.subscribe("log", order="none")
    async def log(number: int) -> None:
        """Read an event."""


@pytest.mark.parametrize("declares", ["a task", "queues and topics"])
def test_a_worker_starts_within_twenty_round_trips(proxy: Proxy, url: str, declares: str):
    """They are three connections, the registration and a claim; queues and topics that are declared are only read.

    A claim of a feeder is one of a limited queue, so it is not counted.
    """

    async def run() -> int:
        """Return the round trips of a start, until a handler runs, or the worker is registered."""
        begun, app = asyncio.Event(), App(url)

        @app.task
        async def first() -> None:
            """Note that it runs."""
            begun.set()

        if declares == "queues and topics":
            working(app)
        await first.aenqueue()
        app.close()
        before = len(proxy.requests)
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(PATIENCE):
            await (begun if declares == "a task" else worker.registered).wait()
        taken = len(proxy.requests) - before
        worker.stop()
        await running
        app.close()
        return taken

    asyncio.run(run())

    assert asyncio.run(run()) <= 20


def test_an_idle_worker_has_three_connections(proxy: Proxy, url: str, monkeypatch: pytest.MonkeyPatch):
    """One listens, one writes the heartbeat, and the polls share one."""
    monkeypatch.setattr(aio, "_WAIT", PATIENCE)

    async def run() -> None:
        """Run a worker until each poll has been made several times."""
        with contextlib.closing(App(url)) as app:
            working(app)
            worker = Worker(app)
            running = asyncio.create_task(worker.run())
            await until(lambda: len(proxy.requests) > 200)
            worker.stop()
            await running

    asyncio.run(run())

    assert 3 == proxy.connections - 1  # the first one has migrated the database
