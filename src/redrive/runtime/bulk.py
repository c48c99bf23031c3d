"""A background duty that carries out bulk operations, a batch at a time.

Every worker does it; the lock of a bulk operation keeps others from it while a batch is written.
"""

from __future__ import annotations

from redrive.app.app import App
from redrive.runtime.fleet import Fleet
from redrive.runtime.supervision import Duty

# Seconds between two polls of the oldest workers while no bulk operation runs. The process that starts one carries it
# out, so that a worker finds one only if that process has died or needs help.
IDLE = 5.0


class BulkRunner:
    """The background duty that carries out bulk operations."""

    def __init__(self, app: App, fleet: Fleet | None = None) -> None:
        self._app = app
        self._fleet = fleet or Fleet()
        self.duty: Duty = Duty("carrying out bulk operations", self._step)

    async def _step(self) -> float:
        rest = await self._app.operations.aturn()
        return self._fleet.interval(IDLE) if rest is None else rest
