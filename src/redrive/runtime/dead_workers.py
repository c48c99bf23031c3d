"""Sees that other workers have died, sooner than their leases run out.

Two signs are better than silence. A worker on this machine is gone if its process is (`redrive.runtime.process`); of
that one look is enough. A worker with a session in the database, wherever it runs, holds a lock there, which is free
a moment after its process has ended. But a session can also be lost while the process lives, and is back soon: so it
takes two looks in a row, and no heartbeat between them.

What the dead held is taken from them at once. Were a living worker ever buried by mistake, nothing would be lost: what
it still writes is refused, it registers again, and its jobs run again (at least once, as after any crash).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from redrive.app.app import App
from redrive.engine.records import Process, WorkerRecord
from redrive.observe.logs import logger
from redrive.runtime.process import is_gone
from redrive.runtime.supervision import Duty
from redrive.runtime.tracing import report_moved
from redrive.stores.operations import leases, workers

__all__ = ["DeadWorkers"]

log = logger("redrive.worker")

LOOK = 1.0
"""Seconds between two looks."""

BUDGET = 100
"""Leases per transaction, as of the rescuer, who takes what is left."""


class DeadWorkers:
    """Finds dead workers.

    Args:
        app: whose store.
        me: the worker itself, who knows that it lives.
    """

    def __init__(self, app: App, me: Callable[[], int]) -> None:
        self._app = app
        self._me = me
        self._suspects: Mapping[int, datetime] = {}

    @property
    def duty(self) -> Duty:
        """Look every second."""
        return Duty("looking after the others", self._step, shortest=LOOK)

    async def _step(self) -> float:
        try:
            await self.look()
        except BaseException:
            # A worker that was away itself has seen no other one twice.
            self._suspects = {}
            raise
        return LOOK

    async def look(self) -> None:
        """Look once, and bury whom there is to bury.

        Raises:
            StoreError: the database refused.
        """
        others = [each for each in await self._app.store.arun(workers.workers()) if each.id != self._me()]
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
