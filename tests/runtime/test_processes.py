"""A worker lends its child processes to handlers, and claims jobs for those that are free."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from redrive import App
from redrive.clock import SystemClock
from redrive.engine.outcome import Released
from redrive.engine.records import Claim
from redrive.runtime import processes
from redrive.runtime.attempts import Attempts
from redrive.runtime.executor import Executor
from redrive.runtime.processes import Processes
from redrive.runtime.threads import ThreadPool
from redrive.testing import VirtualClock
from tests.runtime.helpers import Registered, register, take


def compute(number: int) -> int:
    """Return the number."""
    return number


class Lent(Processes):
    """Children that are no processes."""

    async def _child(self) -> Any:
        """Return a stand-in for a child."""
        return type("Stub", (), {"usable": True})()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """Return the clock by which children are measured."""
    virtual = VirtualClock()
    monkeypatch.setattr(SystemClock, "monotonic", virtual.monotonic)
    return virtual


def claimed(app: App, count: int) -> list[Claim]:
    """Declare a task, and claim jobs of it and of another task."""
    app.task(executor="process")(compute).enqueue_many(range(count))
    app.task(name="other")(compute).enqueue_many(range(3))
    return list(take(app, 100))


async def run(children: Processes, clock: VirtualClock, seconds: float, count: int = 1) -> None:
    """Run handlers in a child, one after another."""
    for _ in range(count):
        async with children.lend():
            clock.advance(timedelta(seconds=seconds))


def test_jobs_are_claimed_for_free_children(app: App):
    """Jobs of other tasks, which the worker runs as well, take no child."""
    children = Lent(app, 4)
    claims = claimed(app, 3)

    assert ({"compute"}, 1) == ({name.rpartition(".")[2] for name in children.tasks}, children.room(claims))
    assert 0 == children.room([*claims, *claims])


def test_short_jobs_are_claimed_ahead(app: App, clock: VirtualClock):
    """Claim as many as children start within 100 ms, and none while half as many wait."""
    children = Lent(app, 1)
    claims = [each for each in claimed(app, 20) if each.task in children.tasks]
    asyncio.run(run(children, clock, 0.004, 40))
    rooms = [children.room(claims[:count]) for count in (0, 1, 5, 13, 14, 20)]

    assert [25, 24, 20, 12, 0, 0] == rooms


def test_long_jobs_are_not_claimed_ahead(app: App, clock: VirtualClock):
    """Children with jobs that take longer than 50 ms are given no further ones."""
    children = Lent(app, 1)
    asyncio.run(run(children, clock, 0.1, 9))

    assert 1 == children.room([])


def test_a_job_that_waits_too_long_for_a_child_is_given_back(app: App, monkeypatch: pytest.MonkeyPatch):
    """Give it back with no attempt spent, and claim no more ahead until the pace is measured anew."""
    monkeypatch.setattr(processes, "PATIENCE", 0.001)
    children = Lent(app, 1)
    (claim, *_) = claimed(app, 1)
    executor = Executor(app, None, processes=children)

    async def held() -> Any:
        async with children.lend():
            return await executor.run(claim)

    assert Released("no child process of its worker became free in time") == asyncio.run(held())


def test_a_worker_claims_for_children_no_more_than_it_has_slots(app: App):
    """Slots that other jobs take are not free for jobs of children."""

    async def shares() -> list[Any]:
        pool, registration = ThreadPool(1, "test"), Registered(app, register(app))
        attempts = Attempts(app, VirtualClock(), registration, concurrency=3, pool=pool, processes=Lent(app, 2))
        before = [attempts.apart(room) for room in (1, 2, 3)]
        attempts.start(claims, {})
        after = attempts.apart(2)
        attempts.cancel_all()
        return [*before, after]

    claims = [each for each in claimed(app, 1) if each.task == "other"]
    names = Lent(app, 1).tasks

    assert [None, None, (2, names), (0, names)] == asyncio.run(shares())
