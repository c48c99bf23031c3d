"""An asynchronous standby takes over that lacks the last commits: workers begin again from what it has."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from redrive import App, Flow, observe
from redrive.app.tasks.job import Job
from redrive.engine.records import Filter
from redrive.runtime.worker import Worker
from redrive.stores.operations import checks
from tests import postgres
from tests.acceptance.servers import PostgresServer, Proxy, pair
from tests.runtime.helpers import PATIENCE, until

pytestmark = pytest.mark.acceptance


@pytest.fixture(name="servers")
def _servers() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """Start a primary and a standby."""
    with pair() as made:
        yield made


class Scene:
    """Two workers on one database, of which the first one has handlers that wait for gates.

    Args:
        url: the database.

    Attributes:
        calls: the calls of the handlers.
        replaced: what the workers have emitted about the new server.
        rescued: what they have emitted about jobs of dead workers.
    """

    def __init__(self, url: str) -> None:
        self.apps = [App(url, heartbeat_every="500ms", lease_for="10s") for _ in range(2)]
        self.app = self.apps[0]
        self.calls: list[str] = []
        self.gates = {name: asyncio.Event() for name in ("tail", "end")}
        self.replaced: list[object] = []
        self.rescued: list[object] = []
        self.topic = self.app.topic("ev", int)
        self._declare()
        self._workers = [Worker(each) for each in self.apps]

    def _declare(self) -> None:
        """Declare a subscription, a workflow, and a task that must not run twice."""

        @self.topic.subscribe("log", order="none", retry="5 1s")
        async def log(number: int) -> None:
            if self._called(f"event {number}") > 1:
                return
            await self.gates["tail" if number == 1 else "end"].wait()
            if number == 1:
                raise ValueError("the first delivery fails")

        async def step(gate: str) -> int:
            if self._called(f"step {gate}") == 1:
                await self.gates[gate].wait()
            return 1

        @self.app.workflow()
        async def steps(flow: Flow) -> int:
            return await flow.step(step, "tail") + await flow.step(step, "end")

        @self.app.task(idempotent=False)
        async def pay(gate: str) -> str:
            self._called(f"pay {gate}")
            await self.gates[gate].wait()
            return gate

        self.flow, self.pay = steps, pay

    def _called(self, name: str) -> int:
        self.calls.append(name)
        return self.calls.count(name)

    async def seen(self, *wanted: str) -> None:
        """Wait for calls."""
        await until(lambda: set(wanted) <= set(self.calls))

    def emit(self, event: object) -> None:
        """Note an event."""
        if isinstance(event, observe.WorkerServerReplaced):
            self.replaced.append(event)
        if isinstance(event, observe.JobRescued | observe.JobDied):
            self.rescued.append(event)

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Run the workers."""
        async with asyncio.TaskGroup() as group:
            for each in self._workers:
                group.create_task(each.run())
                await each.registered.wait()
            try:
                yield
            finally:
                for each in (*self._workers, *self._workers):
                    each.stop()


async def lose_the_tail(scene: Scene, primary: PostgresServer, standby: PostgresServer, ended: Job[str]) -> None:
    """Cut the standby off, let the first handlers end, and stop the primary."""
    await until(standby.has_caught_up_with(primary))
    await asyncio.to_thread(standby.set, "primary_conninfo", "''")
    await until(lambda: not standby.ask("SELECT pid FROM pg_stat_wal_receiver"))
    scene.gates["tail"].set()
    await scene.topic.apublish(2)
    await scene.seen("step end", "event 2")
    await ended.aresult(timeout=PATIENCE)
    await until(lambda: bool(scene.app.jobs.select(Filter(task="ev.log"))))
    await asyncio.to_thread(primary.stop)


async def fail_over(scene: Scene, primary: PostgresServer, standby: PostgresServer, proxy: Proxy) -> int:
    """Let the standby take over; return the answer of the run."""
    async with scene.working(), asyncio.timeout(PATIENCE):
        jobs = [await scene.pay.aenqueue(name) for name in scene.gates]
        handle = await scene.flow.astart(id="r")
        await scene.topic.apublish(1)
        await scene.seen("pay tail", "pay end", "step tail", "event 1")
        await lose_the_tail(scene, primary, standby, jobs[0])
        await asyncio.to_thread(standby.promote)
        proxy.target = standby.folder
        await until(lambda: len(scene.replaced) == len(scene.apps))
        scene.gates["end"].set()
        answer = await handle.aresult(f"{PATIENCE}s")
        await until(lambda: scene.calls.count("event 1") > 1)
        for each in jobs:
            await each.aresult(timeout=PATIENCE)
        return answer


def test_nothing_is_skipped_held_or_lost_in_flight(servers: tuple[PostgresServer, PostgresServer]):
    """Deliver again, replay, go on and write again what the standby lacks, and take no living worker for dead."""
    primary, standby = servers
    proxy = Proxy(primary.folder)
    scene = Scene(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?schema={postgres.fresh()}")
    added = observe.add(scene.emit)
    try:
        answer = asyncio.run(fail_over(scene, primary, standby, proxy))
        findings = scene.app.store.run(checks.check()).findings
        paid = scene.app.jobs.select(Filter(task="pay"))
    finally:
        added.remove()
        for each in scene.apps:
            each.close()
        proxy.close()

    assert (2, (), []) == (answer, findings, scene.rescued)
    assert [("succeeded", 0)] * 2 == [(each.state, each.crashes) for each in paid]
    calls = ("pay tail", "pay end", "step tail", "event 1")
    assert [1, 1, 2, 2] == [scene.calls.count(each) for each in calls]
