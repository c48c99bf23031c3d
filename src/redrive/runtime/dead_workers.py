"""Two background duties that take leases from dead workers: from silent ones, and from ended processes.

If a living worker is taken for dead by mistake, nothing is lost: its writes are refused, it registers again, and its
jobs run again, as after any crash. Every worker does this; no leader is needed, because a sweep is guarded row by row
by the lease ids that it read: of two concurrent sweeps one finds nothing left to do. Younger workers poll less often
(`redrive.runtime.fleet`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from redrive.app.app import App
from redrive.clock import SystemClock
from redrive.engine.outcome import Settlement
from redrive.engine.records import Process, WorkerRecord
from redrive.runtime import log
from redrive.runtime.fleet import Fleet
from redrive.runtime.registration import WorkerRegistration, is_gone
from redrive.runtime.supervision import Duty
from redrive.runtime.tracing import report_moved, uncounted
from redrive.stores.operations import leases, workers

# Seconds between two polls of the oldest workers, and of one that suspects another.
LOOK = 1.0

# Leases of one transaction, so that a claim never waits long for a sweep.
BUDGET = 100


class DeadWorkers:
    """The background duty that takes the leases of dead workers at once, before they run out."""

    def __init__(
        self,
        app: App,
        registration: WorkerRegistration,
        fleet: Fleet | None = None,
        counted: Callable[[Sequence[Settlement]], None] = uncounted,
        session: Callable[[], float] = lambda: float("-inf"),
    ) -> None:
        self._app = app
        self._counted = counted
        self._registration = registration
        self._session = session
        self._lease = app.terms.lease_for.total_seconds()
        self._trusted_at = float("-inf")
        self._fleet = fleet or Fleet()
        self._suspects: Mapping[int, datetime] = {}
        self.duty: Duty = Duty("detecting dead workers", self._step, shortest=LOOK)

    async def _step(self) -> float:
        try:
            await self.look()
        except BaseException:
            # A poll that failed does not count as one of two in a row.
            self._suspects = {}
            raise
        return LOOK if self._suspects else self._fleet.interval(LOOK)

    # A worker on this machine is dead if its process is gone (`is_gone`); one poll is enough. A worker
    # with a session in the database holds a lock there, which is free a moment after its process has ended. A session
    # can also be lost while the process lives, and is soon back, so that takes two polls in a row without a heartbeat
    # between them.
    #
    # When a server is restarted or replaced, or a proxy in front of it, all locks vanish together. So a missing lock is
    # no sign if it was taken in another life of the server (the query answers None then), nor if the session of this
    # worker has begun less than a lease ago. Then only the heartbeat decides.
    async def look(self) -> None:
        """Read the heartbeats once, and take the leases of dead workers."""
        found = await self._app.store.arun(workers.workers())
        self._fleet.see(self._registration.id, found)
        others = [each for each in found if each.id != self._registration.id]
        gone = {each.id: "its process is gone" for each in others if _process_is_gone(each)}
        if self._trusts_locks(found):
            gone |= dict.fromkeys(self._unlocked_twice(others), "its session in the database is gone")
        else:
            self._suspects = {}
        if not gone:
            return
        for number, why in gone.items():
            log.warning("worker %d is dead: %s", number, why)
        swept = await self._app.store.arun(
            leases.sweep(BUDGET, every=self._app.terms.heartbeat_every, gone=gone, now=self._app.now())
        )
        report_moved(self._app, swept, self._counted)

    def _trusts_locks(self, found: Sequence[WorkerRecord]) -> bool:
        """Return True if the session of this worker has lasted for a lease."""
        now = SystemClock.monotonic()
        if any(each.id == self._registration.id and each.locked is False for each in found):
            self._trusted_at = now + self._lease
        return now >= max(self._trusted_at, self._session() + self._lease)

    def _unlocked_twice(self, others: Sequence[WorkerRecord]) -> list[int]:
        unlocked = {each.id: each.heartbeat_at for each in others if each.locked is False}
        twice = [number for number, beat in unlocked.items() if self._suspects.get(number) == beat]
        self._suspects = unlocked
        return twice


def _process_is_gone(worker: WorkerRecord) -> bool:
    if worker.host is None or worker.pid is None:
        return False
    return is_gone(Process(worker.host, worker.pid, worker.birth))


class Rescuer:
    """The background duty that takes leases from workers without a heartbeat."""

    def __init__(
        self, app: App, fleet: Fleet | None = None, counted: Callable[[Sequence[Settlement]], None] = uncounted
    ) -> None:
        self._app = app
        self._fleet = fleet or Fleet()
        self._counted = counted
        self._every = app.terms.heartbeat_every.total_seconds()
        self._waits_until = float("-inf")
        self.duty: Duty = Duty("sweeping", self.look, shortest=self._every)

    def wait(self) -> None:
        """Take no lease for the time of one, because another server has taken over: workers have to register again."""
        self._waits_until = SystemClock.monotonic() + self._app.terms.lease_for.total_seconds()

    async def look(self) -> float:
        """Take the expired leases, and return the seconds until the next sweep."""
        await self._free()
        if SystemClock.monotonic() < self._waits_until:
            return self._every
        while len(await self._sweep()) == BUDGET:
            pass
        return self._fleet.interval(self._every)

    # The duty also ends the database sessions of stopped processes, because their locks would block all workers.
    async def _free(self) -> None:
        if count := await self._app.store.arun(workers.end_stuck()):
            log.warning("sessions of processes that stopped in the middle of a statement were ended: %d", count)

    # A worker cannot write its heartbeat while the database is unreachable. So a sweep counts at most one heartbeat
    # interval of the time since the sweep before it. After an outage each worker has two intervals left to come back.
    # The count is kept in the rows of the workers, so that a restart of this process does not repeat the grace; and
    # since each sweep counts, a dead worker loses its jobs even if the database is unreachable again and again.
    async def _sweep(self) -> tuple[Settlement, ...]:
        swept = await self._app.store.arun(
            leases.sweep(BUDGET, every=self._app.terms.heartbeat_every, now=self._app.now())
        )
        report_moved(self._app, swept, self._counted)
        return swept
