"""Limited queues with real workers: no busy loops, no late starts, and the clock of the database decides."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from redrive import App, Policy
from redrive.app.tasks.job import Job
from redrive.clock import SystemClock
from redrive.engine.lifecycle import FINAL, State
from redrive.stores.operations import leases
from tests.runtime.helpers import PATIENCE, came, ended, until, working


class Skewed(SystemClock):
    """A clock that is wrong by a fixed offset."""

    def __init__(self, seconds: float) -> None:
        self._skew = timedelta(seconds=seconds)

    def now(self) -> datetime:
        """Return a wrong instant."""
        return super().now() + self._skew


@pytest.mark.case("D36")
def test_a_rate_holds_for_workers_with_wrong_clocks(filed: App):
    """With 5 starts per 180 ms, three workers with clocks off by 10 s start 15 jobs, the first five at once,
    and never six in a window."""

    @filed.task
    async def work() -> None: ...

    filed.queue("default").limit(rate="5/0.18s")
    jobs = work.enqueue_many([()] * 15)

    async def run() -> None:
        """Work with three workers until all have ended."""
        async with (
            working(filed, clock=Skewed(-10)),
            working(filed, clock=Skewed(0)),
            working(filed, clock=Skewed(10)),
        ):
            await ended(*jobs)

    asyncio.run(run())
    begun = sorted(job.attempts[0].started_at for job in jobs)

    assert all(later - earlier >= timedelta(milliseconds=180) for earlier, later in zip(begun, begun[5:], strict=False))
    assert begun[4] - begun[0] < timedelta(milliseconds=180)


def test_a_rate_per_partition_holds_in_each_for_several_workers(filed: App):
    """Three workers start two jobs of each partition at once, and sleep until the next ones may start."""

    @filed.task
    async def work() -> None: ...

    filed.queue("default").limit(rate_per_partition="2/0.3s")
    jobs = {name: work.options(partition=name).enqueue_many([()] * 6) for name in ("a", "b")}

    async def run() -> None:
        """Work with three workers until all have ended."""
        async with working(filed), working(filed), working(filed, clock=Skewed(10)):
            await ended(*jobs["a"], *jobs["b"])

    asyncio.run(run())
    for each in jobs.values():
        begun = sorted(job.attempts[0].started_at for job in each)
        assert all(
            later - earlier >= timedelta(milliseconds=300) for earlier, later in zip(begun, begun[2:], strict=False)
        )


@pytest.mark.case("D32")
def test_a_cancelled_handler_that_still_runs_holds_its_slot(filed: App):
    """After a cancel in a queue with one slot, the next job starts only when the handler of the first has stopped."""
    peak = _peak(filed, lambda first: first.cancel())

    assert 1 == peak
    assert State.CANCELLED is filed.job(1).state


def test_a_thread_past_its_timeout_holds_its_slot(filed: App):
    """Attempts end at their timeout, but the next job starts only when the thread of the last one has ended."""
    peak = _peak(filed, lambda first: None, attempt_timeout="100ms")

    assert 1 == peak
    assert ["TIMEOUT"] == [each.reason for each in filed.job(1).attempts]


def _peak(filed: App, disturb: Callable[[Job], None], **policy: Any) -> int:
    """Run a handler that ignores that it should stop, beside others of a queue with one place: how many run at once?"""
    inside, leave = threading.Event(), threading.Event()
    at_once: list[int] = []
    running: set[str] = set()

    @filed.task(retry=Policy.parse("0").with_(**policy))
    def stubborn() -> None:
        """Ignore everything until it may leave."""
        running.add("stubborn")
        inside.set()
        leave.wait(PATIENCE)
        running.discard("stubborn")

    @filed.task
    def follows() -> None:
        """Note what runs."""
        running.add("follows")
        at_once.append(len(running))
        running.discard("follows")

    filed.queue("default").limit(concurrency=1)
    first, following = stubborn.enqueue(), follows.enqueue()

    async def run() -> None:
        """End the attempt of the first while its handler runs."""
        async with working(filed):
            await came(inside)
            disturb(first)
            await until(lambda: first.refresh().state in FINAL)
            # Several passes of the claimer, each of which would find a free place.
            await until(lambda: "limit 1/1 held by job 1" in following.refresh().why)
            leave.set()
            await ended(following)

    asyncio.run(run())
    assert State.SUCCEEDED is following.refresh().state
    return max(at_once)


def test_a_worker_does_not_spin_while_a_queue_is_saturated(filed: App, monkeypatch: pytest.MonkeyPatch):
    """While the only place of a queue is taken, a worker polls after writes and not in a busy loop; when the
    place is free again, the next job starts."""
    looks = 0
    claim = leases.claim

    def counted(*args, **kwargs):
        """Claim, and count it."""
        nonlocal looks
        looks += 1
        return claim(*args, **kwargs)

    monkeypatch.setattr(leases, "claim", counted)
    inside, leave = asyncio.Event(), asyncio.Event()

    @filed.task
    async def holds() -> None:
        """Hold the place until it may leave."""
        inside.set()
        await leave.wait()

    filed.queue("default").limit(concurrency=1)
    jobs = holds.enqueue_many([()] * 3)
    seen = []

    async def run() -> None:
        """Count the polls during ten sweeps."""
        async with working(filed):
            await inside.wait()
            versions = {filed.store.version()}

            def ten_changes() -> bool:
                """Return True if the database has changed ten times since."""
                versions.add(filed.store.version())
                return len(versions) > 10

            before = looks
            await until(ten_changes)
            seen.append(looks - before)
            leave.set()
            await ended(*jobs)

    asyncio.run(run())

    assert seen[0] <= 40


def test_a_queue_is_paused_and_resumed_under_a_worker(filed: App):
    """Jobs that are enqueued while their queue is paused start when it is resumed, without another notification."""
    ran = threading.Event()

    @filed.task
    def work() -> None:
        """Record that it runs."""
        ran.set()

    queue = filed.queue("default")
    queue.pause()
    job = work.enqueue()

    async def run() -> None:
        """Resume while the worker rests."""
        async with working(filed):
            await until(lambda: bool(filed.workers.select()))
            waiting = (await job.arefresh()).state
            assert State.READY is waiting
            queue.resume()
            await ended(job)

    asyncio.run(run())

    assert ran.is_set()


def test_declared_limits_are_applied_when_a_worker_starts(filed: App):
    """Workers apply the limits that the code declares."""
    queue = filed.queue("default", concurrency=3)

    async def run() -> None:
        """Start a worker and stop it."""
        async with working(filed):
            await until(lambda: bool(filed.workers.select()))

    asyncio.run(run())

    assert 3 == queue.settings.concurrency
