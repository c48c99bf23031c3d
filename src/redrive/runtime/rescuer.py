"""A background task that takes leases from workers that fell silent.

Every worker does this; no leader is needed, because a sweep is guarded row by row by the lease ids that it read: of
two that sweep at once one finds nothing left to do.

A worker cannot write its heartbeat while the database is away. So only that silence counts which sweeps have seen: of
the time between two sweeps, one heartbeat at most. After an absence each worker has two heartbeats left to come back.
This is kept in the rows of the workers and not here, so that a restart of this process forgives nothing twice; and as
each sweep counts, a dead worker loses its jobs also where the database is away again and again.

It also ends the sessions of stopped processes, whose locks would keep everybody from their jobs.
"""

from __future__ import annotations

from redrive.app.app import App
from redrive.engine.transition import Transition
from redrive.observe.logs import logger
from redrive.runtime.supervision import Duty
from redrive.runtime.tracing import report_moved
from redrive.stores.operations import leases, workers

__all__ = ["Rescuer"]

log = logger("redrive.worker")

BUDGET = 100
"""Leases per transaction: a claim never waits long behind a sweep."""


class Rescuer:
    """Takes leases from the dead.

    Args:
        app: whose store, and whose lease terms.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._every = app.terms.heartbeat_every.total_seconds()

    @property
    def duty(self) -> Duty:
        """Sweep now and every heartbeat."""
        return Duty("sweeping", self.look, shortest=self._every)

    async def look(self) -> float:
        """Take what there is to take.

        Returns:
            Seconds until the next look.

        Raises:
            StoreError: the database refused.
        """
        await self._free()
        while len(await self._sweep()) == BUDGET:
            pass
        return self._every

    async def _free(self) -> None:
        if count := await self._app.store.arun(workers.free()):
            log.warning("sessions of processes that stopped in the middle of a statement were ended: %d", count)

    async def _sweep(self) -> tuple[Transition, ...]:
        swept = await self._app.store.arun(
            leases.sweep(BUDGET, every=self._app.terms.heartbeat_every, now=self._app.now())
        )
        report_moved(swept)
        return swept
