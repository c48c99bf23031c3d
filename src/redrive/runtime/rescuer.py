"""A background duty that takes leases from workers without a heartbeat.

Every worker does this; no leader is needed, because a sweep is guarded row by row by the lease ids that it read: of two
concurrent sweeps one finds nothing left to do.
"""

from __future__ import annotations

from redrive.app.app import App
from redrive.engine.transition import Transition
from redrive.observe.logs import logger
from redrive.runtime.supervision import Duty
from redrive.runtime.tracing import report_moved
from redrive.stores.operations import leases, workers

log = logger("redrive.worker")

# Leases of one transaction, so that a claim never waits long for a sweep.
BUDGET = 100


class Rescuer:
    """The background duty that takes leases from dead workers."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._every = app.terms.heartbeat_every.total_seconds()

    @property
    def duty(self) -> Duty:
        """Sweep now and after each heartbeat interval."""
        return Duty("sweeping", self.look, shortest=self._every)

    async def look(self) -> float:
        """Take the expired leases, and return the seconds until the next sweep."""
        await self._free()
        while len(await self._sweep()) == BUDGET:
            pass
        return self._every

    # The duty also ends the database sessions of stopped processes, because their locks would block all workers.
    async def _free(self) -> None:
        if count := await self._app.store.arun(workers.end_stuck()):
            log.warning("sessions of processes that stopped in the middle of a statement were ended: %d", count)

    # A worker cannot write its heartbeat while the database is unreachable. So a sweep counts at most one heartbeat
    # interval of the time since the sweep before it. After an outage each worker has two intervals left to come back.
    # The count is kept in the rows of the workers, so that a restart of this process does not repeat the grace; and
    # since each sweep counts, a dead worker loses its jobs even if the database is unreachable again and again.
    async def _sweep(self) -> tuple[Transition, ...]:
        swept = await self._app.store.arun(
            leases.sweep(BUDGET, every=self._app.terms.heartbeat_every, now=self._app.now())
        )
        report_moved(swept)
        return swept
