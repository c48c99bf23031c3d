"""A background duty that detects dead workers before their leases run out.

The leases of a dead worker are taken at once. If a living worker is taken for dead by mistake, nothing is lost: its
writes are refused, it registers again, and its jobs run again, as after any crash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from redrive.app.app import App
from redrive.engine.records import Process, WorkerRecord
from redrive.observe.logs import logger
from redrive.runtime.process import is_gone
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.supervision import Duty
from redrive.runtime.tracing import report_moved
from redrive.stores.operations import leases, workers

log = logger("redrive.worker")

# Seconds between two looks.
LOOK = 1.0

# Leases of one transaction; the rescuer takes the rest.
BUDGET = 100


class DeadWorkers:
    """The background duty that detects dead workers other than its own."""

    def __init__(self, app: App, registration: WorkerRegistration) -> None:
        self._app = app
        self._registration = registration
        self._suspects: Mapping[int, datetime] = {}

    @property
    def duty(self) -> Duty:
        """Look every second."""
        return Duty("detecting dead workers", self._step, shortest=LOOK)

    async def _step(self) -> float:
        try:
            await self.look()
        except BaseException:
            # A look that failed does not count as one of two in a row.
            self._suspects = {}
            raise
        return LOOK

    # A worker on this machine is dead if its process is gone (`redrive.runtime.process`); one look is enough. A worker
    # with a session in the database holds a lock there, which is free a moment after its process has ended. A session
    # can also be lost while the process lives, and is soon back, so that takes two looks in a row without a heartbeat
    # between them.
    async def look(self) -> None:
        """Look once, and take the leases of dead workers."""
        others = [each for each in await self._app.store.arun(workers.workers()) if each.id != self._registration.id]
        gone = {each.id: "its process is gone" for each in others if _process_is_gone(each)}
        gone |= dict.fromkeys(self._unlocked_twice(others), "its session in the database is gone")
        if not gone:
            return
        for number, why in gone.items():
            log.warning("worker %d is dead: %s", number, why)
        swept = await self._app.store.arun(
            leases.sweep(BUDGET, every=self._app.terms.heartbeat_every, gone=gone, now=self._app.now())
        )
        report_moved(swept)

    def _unlocked_twice(self, others: Sequence[WorkerRecord]) -> list[int]:
        unlocked = {each.id: each.heartbeat_at for each in others if each.locked is False}
        twice = [number for number, beat in unlocked.items() if self._suspects.get(number) == beat]
        self._suspects = unlocked
        return twice


def _process_is_gone(worker: WorkerRecord) -> bool:
    if worker.host is None or worker.pid is None:
        return False
    return is_gone(Process(worker.host, worker.pid, worker.birth))
