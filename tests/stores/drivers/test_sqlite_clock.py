"""On SQLite and Turso the clock of the machine is the clock of the database: what follows when it is set."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from redrive import clock
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Lost, Snoozed, Succeeded
from redrive.engine.queue import QueueChange, Rate
from redrive.stores.opening import open_store
from redrive.stores.operations import audit, jobs, leases, queues, workers
from redrive.stores.operations.clock import ClockState, difference, instant, keep
from redrive.stores.operations.leases import Ending
from redrive.stores.query import Statements, reads
from redrive.stores.store import Store
from tests.stores.helpers import new, seconds

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOLD = timedelta(minutes=5)
NONE = timedelta(0)


class Machine:
    """A machine with a clock that tests set.

    Args:
        store: that goes by its clock.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.up = timedelta(days=1)
        self.wall = NOON
        self._show()

    def passes(self, span: timedelta) -> None:
        """Let time pass."""
        self.up += span
        self.wall += span
        self._show()

    def set(self, span: timedelta) -> None:
        """Set the clock."""
        self.wall += span
        self._show()

    def boot_time(self) -> tuple[str, int]:
        """Stand in for `redrive.clock.boot_time`."""
        return "boot", self.up // timedelta.resolution

    def _show(self) -> None:
        micros = (self.wall - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta.resolution

        def show(cursor: Any) -> None:
            cursor.execute("DROP VIEW redrive_clock")
            cursor.execute(f"CREATE VIEW redrive_clock AS SELECT {micros} AS now")

        self.store.script(show)

    def time(self) -> datetime:
        """Return the time of the database."""
        return self.store.run(_time())

    def follow(self) -> ClockState:
        """Let a step last, and return the result of the next check."""
        self.store.run(keep())
        self.passes(HOLD)
        return self.store.run(keep())


@reads
def _time() -> Statements[datetime]:
    return (yield from instant(None))


@pytest.fixture(params=["sqlite:///{}/jobs.db?synchronous=normal", "memory://", "turso:///{}/jobs.db"])
def machine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Create a machine with an empty store, which has an anchor."""
    store = open_store(request.param.format(tmp_path))
    made = Machine(store)
    monkeypatch.setattr(clock, "boot_time", made.boot_time)
    store.run(keep())
    yield made
    store.close()


def worker(store: Store) -> int:
    """Register a worker with a lease of 15 s."""
    return store.run(workers.register("w", concurrency=9, lease_for=seconds(15)))


def take(store: Store, worker_id: int) -> list[leases.Claim]:
    """Claim what is due."""
    return [*store.run(leases.claim(worker_id, 9, lease_for=seconds(15))).claims]


@pytest.mark.parametrize("step", [seconds(20), HOUR, -HOUR])
def test_a_step_does_not_change_the_time_of_the_database(machine: Machine, step: timedelta):
    """Statements of the clock do not change the time of the database; the difference is reported until it is gone."""
    machine.passes(seconds(10))
    machine.set(step)
    first = machine.store.run(keep())
    machine.passes(seconds(60))
    during, differs = machine.time(), machine.store.run(difference())
    machine.set(-step)

    assert NOON + seconds(70) == during == machine.time()
    assert (ClockState(step, NONE), ClockState(NONE, NONE)) == (first, machine.store.run(keep()))
    assert (step, NONE) == (differs, machine.store.run(difference()))


def test_a_step_makes_nothing_due_and_takes_no_lease(machine: Machine):
    """After an hour's step a delayed job waits, a cron does not fire, and a running attempt keeps its lease."""
    store = machine.store
    me = worker(store)
    store.run(jobs.enqueue([new(), new(delay=3000)]))
    (running,) = take(store, me)
    machine.set(HOUR)
    swept = store.run(leases.sweep(9))

    assert ((), []) == (swept, take(store, me))
    assert 1 == len(store.run(leases.settle([Ending(running, Succeeded(), 0.0)])).moved)


def test_a_step_back_lets_no_job_wait(machine: Machine):
    """Jobs that were enqueued before the clock was set back are due."""
    store = machine.store
    store.run(jobs.enqueue([new()]))
    machine.set(-HOUR)
    store.run(jobs.enqueue([new()]))

    assert 2 == len(take(store, worker(store)))


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_step_that_lasts_is_followed(machine: Machine, step: timedelta):
    """After five minutes the time of the database is that of the clock, with an entry in the audit log."""
    machine.set(step)
    kept = machine.follow()
    (line,) = machine.store.run(audit.audit())

    assert ClockState(NONE, step) == kept
    assert machine.wall == machine.time()
    assert ("redrive", "clock_followed") == (line.actor, line.action)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_following_a_step_moves_pending_times(machine: Machine, step: timedelta):
    """Following a step keeps the rest of delays, snoozes, hard timeouts and leases; due jobs stay due."""
    store = machine.store
    me = worker(store)
    store.run(jobs.enqueue([new(attempt_timeout="30m"), new(), new(), new(delay=1000)]))
    held, snoozing, lost = take(store, me)
    endings = [Ending(snoozing, Snoozed(seconds(1000), "later"), 0.0), Ending(lost, Lost("gone"), 0.0)]
    store.run(leases.settle(endings))
    store.run(jobs.enqueue([new(), replace(new(), partition="b")]))
    machine.set(step)
    store.run(keep())
    machine.passes(HOLD)
    store.run(workers.beat(me, seconds(15)))
    store.run(keep())
    (alive,) = store.run(workers.workers())
    swept = store.run(leases.sweep(9))
    due = {each.id for each in take(store, me)}
    machine.passes(seconds(699))
    early = take(store, me)
    machine.passes(seconds(1))

    assert () == swept
    assert (machine.wall - seconds(700), seconds(15)) == (alive.heartbeat_at, alive.expires_at - alive.heartbeat_at)
    assert {lost.id, 5, 6} == due
    assert ([], {snoozing.id, 4}) == (early, {each.id for each in take(store, me)})
    assert State.RUNNING is store.run(jobs.get(held.id)).state


def test_a_rate_is_neither_used_up_nor_renewed_by_a_step(machine: Machine):
    """Starts of the last minute count as before when the time is set back by an hour."""
    store = machine.store
    store.run(queues.change("default", QueueChange(rate=Rate(1, seconds(600)))))
    store.run(jobs.enqueue([new(), new()]))
    me = worker(store)
    first = take(store, me)
    machine.set(-HOUR)
    machine.follow()
    second = take(store, me)
    machine.passes(HOLD)

    assert (1, 0, 1) == (len(first), len(second), len(take(store, me)))


def test_after_a_restart_of_the_machine_its_clock_is_used(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    """Anchors of another boot are ignored."""
    monkeypatch.setattr(clock, "boot_time", lambda: ("another boot", 1))
    machine.set(HOUR)
    before = machine.time()
    machine.store.run(keep())

    assert machine.wall == before == machine.time()


def test_without_the_uptime_the_clock_of_the_system_is_used(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    """Without the uptime, which only Linux provides, there is no anchor."""
    monkeypatch.setattr(clock, "boot_time", lambda: None)
    machine.set(HOUR)

    assert (ClockState(NONE, NONE), machine.wall) == (machine.store.run(keep()), machine.time())


def test_a_process_that_starts_during_a_step_has_the_same_time(machine: Machine):
    """New processes read the anchor from the database, not the wrong clock."""
    if not machine.store.url.startswith("sqlite"):
        pytest.skip("one process at a time")
    machine.set(HOUR)
    machine.store.run(keep())
    other = open_store(machine.store.url)
    try:
        assert NOON == other.run(_time())
    finally:
        other.close()
