"""Jobs that are claimed ahead wait for a slot, and are given back if none becomes free in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from redrive import App
from redrive.clock import SystemClock
from redrive.engine.pace import PATIENCE
from redrive.engine.records import Claim
from redrive.runtime.ahead import may_wait
from redrive.runtime.attempts import Attempts
from redrive.runtime.threads import ThreadPool
from redrive.testing import VirtualClock
from tests.runtime.helpers import LONG, Registered, register, repeat, take

SOON = 10
"""Seconds after which a test fails."""


class Bench:
    """The attempts of a worker with one slot, in which a handler waits for the test."""

    def __init__(self, app: App) -> None:
        self.app, self.clock, self.begun = app, VirtualClock(), list[int]()
        self.go = asyncio.Event()
        registration = Registered(app, register(app, lease_for=LONG))
        self.attempts = Attempts(app, self.clock, registration, concurrency=1, pool=ThreadPool(1, "test"))

        async def hold(number: int) -> None:
            self.begun.append(number)
            await self.go.wait()

        self.task = app.task(name="hold")(hold)

    async def start(self, count: int) -> list[Claim]:
        """Enqueue, claim and start jobs; return those that were refused."""
        await asyncio.to_thread(self.task.enqueue_many, range(count))
        claims = await asyncio.to_thread(lambda: take(self.app, count, worker=1))
        back = self.attempts.start(claims, {})
        await VirtualClock().asleep(0)
        return back


def on(app: App, scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario."""

    async def run() -> None:
        bench = Bench(app)
        try:
            async with asyncio.timeout(SOON):
                await scenario(bench)
        finally:
            bench.attempts.cancel_all()

    asyncio.run(run())


def test_a_job_without_a_slot_waits(filed: App):
    """Handlers never exceed the slots: further claimed jobs wait, in order, and are held by the worker."""

    async def scenario(bench: Bench) -> None:
        assert [] == await bench.start(3)
        assert ([0], 3, 3) == (bench.begun, bench.attempts.count, len(bench.attempts.held()))
        assert (0, 0) == (bench.attempts.free, bench.attempts.room_ahead)
        bench.go.set()
        while len(bench.begun) < 2:
            await VirtualClock().asleep(0)
        assert [0, 1] == bench.begun[:2]

    on(filed, scenario)


def test_a_worker_that_stops_starts_no_waiting_job(filed: App):
    """After the stop no job that was claimed ahead starts; it is given back with no attempt spent."""

    async def scenario(bench: Bench) -> None:
        await bench.start(2)
        bench.attempts.close()
        bench.go.set()
        for _ in range(9):
            await VirtualClock().asleep(0)
        await bench.attempts.ahead.give_back_all()
        assert [0] == bench.begun
        record = filed.job(2).record
        assert ("ready", 0, "worker 1 shut down") == (record.state, record.attempt, record.note)

    on(filed, scenario)


def test_a_job_that_waits_too_long_is_given_back(filed: App):
    """Give back the jobs that have waited for the patience, and no others."""

    async def scenario(bench: Bench) -> None:
        await bench.start(2)
        bench.clock.advance(timedelta(seconds=PATIENCE))
        bench.attempts.ahead.put(*late(filed))
        running = asyncio.create_task(repeat(bench.attempts.ahead.duty, bench.clock))
        while filed.job(2).record.state != "ready":
            await SystemClock().asleep(0.001)
        running.cancel()
        note = filed.job(2).record.note
        assert "no slot of worker 1 became free in time" == note
        assert (0, [0]) == (bench.attempts.ahead.size, bench.begun)

    on(filed, scenario)


def late(app: App) -> tuple[Claim, None]:
    """Return one more claimed job."""
    app.tasks["hold"].enqueue(9)
    (claim,) = take(app, worker=1)
    return claim, None


def test_a_blocked_event_loop_keeps_no_waiting_job(filed: App):
    """The thread of the heartbeat gives back what waits while a handler blocks the event loop."""

    async def scenario(bench: Bench) -> None:
        await bench.start(2)
        bench.attempts.ahead.give_back_from_thread(1.0)
        assert "running" == filed.job(2).record.state
        bench.clock.advance(timedelta(seconds=PATIENCE))
        await asyncio.to_thread(bench.attempts.ahead.give_back_from_thread, 1.0)
        record = filed.job(2).record
        assert ("ready", 0, "a handler keeps the event loop of worker 1 busy") == (
            record.state,
            record.attempt,
            record.note,
        )

    on(filed, scenario)


@pytest.mark.parametrize("expires", [False, True], ids=["lost", "expired"])
def test_a_waiting_job_that_has_lost_its_lease_never_starts(filed: App, *, expires: bool):
    """Cancelled before its start, or with a lease that ends, a job is dropped."""

    async def scenario(bench: Bench) -> None:
        await bench.start(2)
        (lease,) = bench.attempts.ahead.leases()
        if expires:
            bench.attempts.expired()
        else:
            bench.attempts.lost(frozenset({lease}))
        for _ in range(9):
            await VirtualClock().asleep(0)
        bench.go.set()
        for _ in range(9):
            await VirtualClock().asleep(0)
        assert ([0], False) == (bench.begun, lease in bench.attempts.held())

    on(filed, scenario)


def test_jobs_that_may_not_run_twice_do_not_wait(app: App):
    """Jobs declared not idempotent and jobs that have crashed wait for no slot; others do."""
    app.task(name="once", idempotent=False)(lambda: None).enqueue()
    app.task(name="often")(lambda: None).enqueue()
    once, often = take(app, 2)

    assert [False, True, False] == [may_wait(claim) for claim in (once, often, replace(often, crashes=1))]


def test_a_job_that_may_not_wait_is_refused(filed: App):
    """Without a slot such a job is not started and not kept."""

    async def scenario(bench: Bench) -> None:
        await bench.start(1)
        await asyncio.to_thread(filed.task(name="once", idempotent=False)(lambda: None).enqueue)
        (claim,) = await asyncio.to_thread(lambda: take(filed, worker=1))
        assert ([claim], 1) == (bench.attempts.start([claim], {}), len(bench.attempts.held()))

    on(filed, scenario)
