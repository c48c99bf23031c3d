"""The smaller duties: heartbeat, rescuer, notifier, and their rests."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest

from redrive import App
from redrive.engine.outcome import Succeeded
from redrive.errors import StoreBusy, StoreError
from redrive.runtime import dead_workers as rescuer_module
from redrive.runtime import failpoints, rng
from redrive.runtime.dead_workers import Rescuer
from redrive.runtime.heartbeat import Heartbeat
from redrive.runtime.notifier import Notifier
from redrive.runtime.supervision import rest
from redrive.stores.operations import leases
from redrive.stores.operations.leases import Ending
from redrive.testing import VirtualClock
from tests.runtime.helpers import LONG, PATIENCE, Recorded, Registered, app_on, register, repeat, take


def enqueue(app: App, count: int) -> None:
    """Enqueue jobs that no worker runs."""
    app.task(name="send")(lambda number: None).enqueue_many(range(count))


# ------------------------------------------------------------------------------------------------------------ heartbeat


class RecordedHeartbeat:
    """A heartbeat of which every call is recorded."""

    def __init__(self, app: App, worker: int, holding: frozenset[int]) -> None:
        self.attempts = Recorded(holding)
        self.registration = Registered(app, worker)
        self.heartbeat = Heartbeat(app, self.registration, self.attempts)


def test_a_heartbeat_extends_the_lease_of_the_worker(app: App):
    """After a heartbeat the worker is alive for the length of a lease, and has lost no attempt."""
    worker = register(app, lease_for=timedelta(seconds=15))
    app.clock.advance("10s")
    held = RecordedHeartbeat(app, worker, frozenset())
    held.heartbeat._beat()

    assert app.clock.now() + timedelta(seconds=15) == app.workers.select()[0].expires_at
    assert ([], False) == (held.attempts.calls_lost, bool(held.registration.renewals))


def test_a_heartbeat_finds_lost_attempts(app: App):
    """Report each attempt that the worker holds and the store no longer assigns to it, once per heartbeat."""
    worker = register(app)
    enqueue(app, 2)
    first, second = take(app, 2, worker=worker)
    app.job(first.id).cancel()
    held = RecordedHeartbeat(app, worker, frozenset({first.lease_id, second.lease_id}))
    held.heartbeat._beat()

    assert [frozenset({first.lease_id})] == held.attempts.calls_lost


def test_jobs_claimed_during_a_heartbeat_are_not_lost(app: App, monkeypatch: pytest.MonkeyPatch):
    """Take the list of held attempts before the query: later claims may be missing from its result."""
    worker = register(app)
    enqueue(app, 1)
    held = RecordedHeartbeat(app, worker, frozenset())
    run = app.store.run
    monkeypatch.setattr(app.store, "run", lambda operation, **_: _claim_meanwhile(run, held, worker, operation))
    held.heartbeat._beat()

    assert (1, []) == (len(held.attempts.leases), held.attempts.calls_lost)


def _claim_meanwhile(run: Any, held: RecordedHeartbeat, worker: int, operation: Any) -> Any:
    """Send the heartbeat, and claim a job before its reply arrives."""
    answer = run(operation)
    held.attempts.leases = frozenset(claim.lease_id for claim in run(leases.claim(worker, 1, lease_for=LONG)).claims)
    return answer


def test_an_unregistered_worker_is_notified(app: App):
    """Allow the worker to register again."""
    held = RecordedHeartbeat(app, 99, frozenset())
    held.heartbeat._beat()

    assert True is bool(held.registration.renewals)


def test_the_heartbeat_runs_in_a_thread_of_its_own(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """After a failed heartbeat the thread continues; after stop() no heartbeat is sent."""
    app = app_on(tmp_path, heartbeat_every="1ms", lease_for="1h")
    refusals, beats = [StoreBusy(), StoreError(), ValueError("a bug")], threading.Event()
    held = RecordedHeartbeat(app, register(app), frozenset())

    def beat() -> None:
        assert "redrive-heartbeat" == threading.current_thread().name
        if refusals:
            raise refusals.pop()
        beats.set()

    monkeypatch.setattr(held.heartbeat, "_beat", beat)
    held.heartbeat.start()
    seen = beats.wait(PATIENCE)
    held.heartbeat.stop()
    app.close()

    assert (True, False) == (seen, held.heartbeat._thread.is_alive())


# ------------------------------------------------------------------------------------------------------------- rescuer


def until_rested(app: App, rests: int) -> VirtualClock:
    """Run a rescuer until it has rested this often, and advance the time of the store at each rest."""
    clock = app.clock
    until = clock.monotonic() + rests * app.terms.heartbeat_every.total_seconds()

    async def run() -> None:
        """Run it on an event loop."""
        running = asyncio.create_task(repeat(Rescuer(app).duty, clock))
        async with asyncio.timeout(PATIENCE):
            while clock.monotonic() < until:
                await VirtualClock().asleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
    return clock


def test_a_rescuer_that_has_just_begun_waits_for_heartbeats(app: App):
    """After its start the rescuer waits two heartbeats for silent workers: the database may have been away."""
    enqueue(app, 2)
    take(app, 2, lease_for=timedelta(seconds=15))
    app.clock.advance("1h")
    until_rested(app, 2)
    before = app.jobs.stats()
    until_rested(app, 1)

    assert (0, 2) == (before.due, before.running)

    assert (2, 0) == (app.jobs.stats().due, app.jobs.stats().running)
    assert [("lost", "WORKER_LOST")] == [(each.outcome, each.reason) for each in app.job(1).attempts]


def test_jobs_of_live_workers_are_not_swept(app: App):
    """Take no lease before it has expired."""
    enqueue(app, 2)
    take(app, 2, lease_for=timedelta(seconds=15))
    app.clock.advance("14s999ms")
    until_rested(app, 1)

    assert 2 == app.jobs.stats().running


def test_a_large_sweep_runs_in_batches(app: App, monkeypatch: pytest.MonkeyPatch):
    """Each transaction takes a few leases, so that claims do not wait long; all are taken before it rests."""
    monkeypatch.setattr(rescuer_module, "BUDGET", 2)
    enqueue(app, 5)
    take(app, 5, lease_for=timedelta(seconds=15))
    app.clock.advance("15s")
    until_rested(app, 3)

    assert 5 == app.jobs.stats().due


def test_a_sweep_that_fails_is_tried_again(app: App, monkeypatch: pytest.MonkeyPatch, caplog):
    """If the store is unreachable for a while, the rescuer continues."""
    enqueue(app, 1)
    take(app, lease_for=timedelta(seconds=15))
    app.clock.advance("15s")
    refusals, sweep = [StoreBusy("locked")], leases.sweep

    def flaky(*args: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return sweep(*args, **options)

    monkeypatch.setattr(leases, "sweep", flaky)
    until_rested(app, 4)

    assert 1 == app.jobs.stats().due
    assert "sweeping waits: locked" in caplog.messages


# ------------------------------------------------------------------------------------------------------------ notifier


class Changes:
    """A store that reports changes when the test prescribes them."""

    def __init__(self, *news: str | Exception, lasting: bool = False) -> None:
        self.news = list(news)
        self.lasting = lasting
        self.locks: list[int | None] = []
        self.store = self
        self.closed = 0
        self.reported = asyncio.Event()

    async def watch(self, clock: VirtualClock, *, lock_id: int | None, **_: object) -> AsyncGenerator[None, None]:
        """Yield the prescribed changes; after the end of the list none follows."""
        self.locks.append(lock_id)
        try:
            while True:
                if not self.news:
                    self.reported.set()
                    await asyncio.Event().wait()
                news = self.news.pop(0)
                if isinstance(news, Exception):
                    raise news
                yield
        finally:
            self.closed += 1


def watch(store: Changes) -> tuple[int, float]:
    """Let a notifier watch this store; return the number of reported changes and the rests."""
    changes: list[None] = []
    clock = VirtualClock()
    notifier = Notifier(store, clock, lambda: changes.append(None))  # type: ignore[arg-type]

    async def run() -> None:
        """Watch until the end of the list."""
        await _all_reported(notifier, store, clock)

    asyncio.run(run())
    return len(changes), clock.monotonic()


async def _all_reported(notifier: Notifier, store: Changes, clock: VirtualClock) -> None:
    watching = asyncio.create_task(repeat(notifier.duty, clock))
    async with asyncio.timeout(PATIENCE):
        await store.reported.wait()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


def test_each_change_is_reported():
    """Pass on each change that the store reports, without a rest in between."""
    assert (3, 0.0) == watch(Changes("a", "b", "c"))


def test_an_unreachable_store_is_polled_less_often():
    """Limit the warnings, miss no change, and keep the rests short enough that other workers do not declare it dead."""
    store = Changes("a", *[StoreError() for _ in range(5)], StoreBusy(), "b", StoreError(), "c")

    assert (3, pytest.approx(0.1 + 0.2 + 4 * 0.4 + 0.1)) == watch(store)
    assert 8 == store.closed


@pytest.mark.parametrize("lasting", [True, False])
def test_the_lock_of_a_worker_stays_the_same(lasting: bool):
    """After a reconnect the session takes the lock that the worker registered with, if the store has such locks."""
    store = Changes("a", StoreError(), "b", lasting=lasting)
    notifier = Notifier(store, VirtualClock(), lambda: None)  # type: ignore[arg-type]

    async def run() -> None:
        """Watch from the beginning."""
        await notifier.open()
        await _all_reported(notifier, store, VirtualClock())
        await notifier.close()

    asyncio.run(run())

    assert [notifier.lock_id] * 2 == store.locks
    assert lasting == (notifier.lock_id is not None)


def test_a_notifier_that_never_ran_releases_its_waiters():
    """Workers that could not register close their notifier."""
    store = Changes("a")
    notifier = Notifier(store, VirtualClock(), lambda: None)  # type: ignore[arg-type]

    async def run() -> None:
        """Open and close."""
        await notifier.open()
        await notifier.close()

    asyncio.run(run())

    assert 1 == store.closed


# ---------------------------------------------------------------------------------------------------- rests and samples


def test_backoff_delays_grow_up_to_a_maximum():
    """Rests grow from a tenth of a second to five seconds, after any number of failures."""
    assert [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0] == [rest(number) for number in range(1, 13)]
    assert 5.0 == rest(10**9)


def test_random_samples_are_spread():
    """Samples are at least 0 and less than 1, and two are hardly ever equal."""
    samples = {rng.sample() for _ in range(100)}

    assert 90 < len(samples)
    assert all(0 <= sample < 1 for sample in samples)


@pytest.mark.parametrize("point", failpoints.POINTS)
def test_an_armed_failpoint_kills_the_process(monkeypatch: pytest.MonkeyPatch, point):
    """Armed points send SIGKILL to their own process; all others, and all of them in production, do nothing."""
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    for each in failpoints.POINTS:
        failpoints.at(each)
    before = list(killed)
    monkeypatch.setattr(failpoints, "_ARMED", point)
    for each in failpoints.POINTS:
        failpoints.at(each)

    assert ([], [(os.getpid(), signal.SIGKILL)]) == (before, killed)


def test_a_settled_lease_is_not_swept(app: App):
    """Leases that a worker settled before it died stay settled."""
    enqueue(app, 1)
    (claim,) = take(app, lease_for=timedelta(seconds=15))
    app.store.run(leases.settle([Ending(claim, Succeeded(), 0.0)], now=app.now()))
    app.clock.advance("15s")
    until_rested(app, 1)

    assert ("succeeded", 1) == (app.job(1).state, len(app.job(1).attempts))
