"""A background duty that writes the sums of ended attempts, and once a minute the depths of the queues.

The sums are for charts. A job costs the worker an addition in memory; an idle worker writes no sums.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from redrive.app.app import App
from redrive.engine.outcome import Transition
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.supervision import Duty

if TYPE_CHECKING:
    from redrive.engine.counters import Tally

# Seconds between two writes: what a worker that is killed loses.
EVERY = 10.0

# Seconds after the beginning of a minute within which workers check whether its depths are written, each at its own
# second, so that they do not all read the queues at once.
SPREAD = 30


class Counting:
    """The background duty that writes what a worker has counted."""

    def __init__(self, app: App, registration: WorkerRegistration) -> None:
        self._app = app
        self._registration = registration
        self._tally: Tally | None = None
        # Seconds until the depths are due. A worker that ends sooner writes none.
        self._left = EVERY
        self.duty = Duty("counting", self._step, shortest=EVERY)

    def add(self, moved: Iterable[Transition]) -> None:
        """Count attempts of which the ends were written."""
        if self._tally is None:
            # A worker does not wait for this module before its first job.
            from redrive.engine.counters import Tally

            self._tally = Tally()
        self._tally.add(moved, self._registration.id)

    async def write(self) -> None:
        """Write the sums, if there are new ones."""
        tally = self._tally
        if tally is None or not tally.changed:
            return
        from redrive.stores.operations import counters

        rows = tally.rows()
        try:
            await self._app.store.arun(counters.write_counters(rows))
        except BaseException:
            tally.changed = True
            raise
        tally.written()

    async def _step(self) -> float:
        await self.write()
        if self._left <= 0:
            from redrive.stores.operations import counters

            left = await self._app.store.arun(counters.note_depths(now=self._app.now()))
            self._left = left.total_seconds() + self._registration.id * 7 % SPREAD
        rest = min(EVERY, self._left)
        self._left -= rest
        return rest
