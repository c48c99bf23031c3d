"""A background duty that writes the sums of ended attempts, and once a minute the depths of the queues.

The sums are for charts. A job costs the worker an addition in memory; an idle worker writes no sums. The worker that
writes the depths of a minute logs the queues with due jobs that wait for an operator, a worker or a rate.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from redrive.app.app import App
from redrive.engine.outcome import Settlement
from redrive.engine.records import Severity
from redrive.observe.logs import logger
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.supervision import Duty

if TYPE_CHECKING:
    from datetime import datetime

    from redrive.engine.counters import Tally
    from redrive.stores.operations.queues import Depth

log = logger("redrive.worker")

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
        self.duty: Duty = Duty("counting", self._step, shortest=EVERY)

    def add(self, moved: Iterable[Settlement]) -> None:
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

            noted = await self._app.store.arun(counters.note_depths(now=self._app.now()))
            self._left = noted.left.total_seconds() + self._registration.id * 7 % SPREAD
            if any(each.oldest_at is not None for each in noted.depths):
                await self._report(noted.depths, noted.at)
        rest = min(EVERY, self._left)
        self._left -= rest
        return rest

    async def _report(self, depths: Sequence[Depth], at: datetime) -> None:
        """Log why due jobs wait, if it is not for a free slot."""
        # Most workers have no such queue.
        from redrive.stores.operations import doctor

        found = await self._app.store.arun(doctor.waiting(depths, at))
        for each in doctor.queues(found, self._app.reference):
            level = logging.WARNING if each.severity is Severity.PROBLEM else logging.INFO
            log.log(level, "%s: %s", each.text, each.advice)
