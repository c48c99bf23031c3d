"""Heartbeats: a stale handler's progress is refused, and which operations extend a lease.

redrive has no checkpoints yet; the progress that a handler last stored stands for one here. A lease belongs to its
worker: a beat extends it, and so does a claim.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from redrive.app.attempts.context import Context, Stop
from redrive.errors import LeaseLost
from redrive.runtime.executor import Executor
from redrive.stores.operations import workers
from tests.conformance.scenarios.manual_workers import ManualWorker, execute, sweep
from tests.conformance.scenarios.test_rescue import worker_row


@pytest.mark.case("D16")
def test_a_stale_heartbeat_is_refused_and_stops_the_handler(app, clock):
    """After B has reclaimed the job and stored 'B', A's progress is refused, 'B' stays, and A's handler must stop."""
    seen = {}

    @app.task
    async def work(context: Context) -> None:
        """Run as A at first: lose the job, send progress all the same, and read whether to continue."""
        if context.attempt == 2:
            await context.aheartbeat("B")
            return
        clock.advance("2s")
        sweep(app)
        second = living.take()
        assert second.attempt == 2
        await Executor(app, None).run(second)
        before = everything_given(app)
        for _ in range(2):
            with pytest.raises(LeaseLost):
                await context.aheartbeat("A")
        seen["unchanged"] = before == everything_given(app)
        seen["told"] = context.should_stop, context.stop_reason

    job = work.enqueue()
    silent = ManualWorker(app, "A", lease_for="1s")
    living = ManualWorker(app, "B")
    claim = silent.take()
    asyncio.run(Executor(app, None).run(claim))

    assert {"unchanged": True, "told": (True, Stop.LOST)} == seen
    assert '"B"' == job.progress.details


def everything_given(app) -> list[tuple[object, ...]]:
    """Return all progress that handlers have stored."""
    return execute(app, "SELECT * FROM redrive_progress")


@pytest.mark.case("D17")
def test_a_lease_is_extended_and_never_shortened(app, clock):
    """Leases of 60 s end 60 s after a claim at 30 s or a beat at 50 s; shorter or bad extensions change nothing."""
    began = clock.now()
    app.task(name="work")(lambda: None).enqueue_many([()] * 2)
    manual_worker = ManualWorker(app, "A", lease_for="60s")
    manual_worker.take()

    def expiry() -> timedelta:
        return worker_row(app, manual_worker.id)[0] - began

    seen = [expiry()]
    clock.advance("30s")
    manual_worker.take()
    seen.append(expiry())
    clock.advance("20s")
    manual_worker.beat()
    seen.append(expiry())
    for bad in (0, -5):
        with pytest.raises(ValueError, match="must extend the lease by more than nothing"):
            app.store.run(workers.beat(manual_worker.id, timedelta(seconds=bad), now=app.now()))
        seen.append(expiry())
    app.store.run(workers.beat(manual_worker.id, timedelta(seconds=1), now=app.now()))
    seen.append(expiry())

    assert [60, 90, 110, 110, 110, 110] == [span.total_seconds() for span in seen]


@pytest.mark.case("queue-03")
def test_only_the_owner_extends(app, clock):
    """Beats of B do nothing for the lease of A, and do not count it among B's; a beat of A extends it."""
    began = clock.now()
    app.task(name="work")(lambda: None).enqueue()
    owner, other = ManualWorker(app, "A", lease_for="5s"), ManualWorker(app, "B", lease_for="10s")
    claim = owner.take()
    clock.advance("1s")
    others = other.beat().leases
    before = worker_row(app, owner.id)[0] - began
    owners = owner.beat().leases

    assert (frozenset(), frozenset({claim.lease_id})) == (others, owners)
    assert (5, 6) == (before.total_seconds(), (worker_row(app, owner.id)[0] - began).total_seconds())


@pytest.mark.case("queue-04")
def test_an_extended_lease_outlasts_its_first_end(app, clock):
    """Leases of 1 s that are extended by 3 s end 3 s from now, and 1.5 s later no worker has taken the job."""
    app.task(name="work")(lambda: None).enqueue()
    manual_worker = ManualWorker(app, "A", lease_for="1s")
    claim = manual_worker.take()
    app.store.run(workers.beat(manual_worker.id, timedelta(seconds=3), now=app.now()))
    ahead = worker_row(app, manual_worker.id)[0] - clock.now()
    clock.advance("1s500ms")

    assert (3, ()) == (ahead.total_seconds(), sweep(app))
    assert manual_worker.end(claim).lease_id == claim.lease_id
