"""A background duty that ends suspended attempts that have not been completed in time, and jobs that have expired.

No worker holds these, so any worker may end them. Each polls when the first known wait is over or the first job
expires, and at intervals, because waits begin in other processes too: the oldest worker once a second, younger ones
less often (`redrive.runtime.fleet`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from redrive.app.app import App
from redrive.app.events import emit_cancelled
from redrive.engine.outcome import Settlement
from redrive.runtime import rng
from redrive.runtime.fleet import Fleet
from redrive.runtime.supervision import Duty, Turn
from redrive.runtime.tracing import report_moved, uncounted
from redrive.stores.operations import attempts

# The longest time between two polls of the oldest worker, in seconds.
LOOK = 1.0

# The shortest time between two polls, in seconds.
SHORT = 0.01

# Attempts or jobs of one transaction, so that a claim never waits long for it.
BUDGET = 100


class Timeouts:
    """The background duty that ends overdue suspended attempts and expired jobs."""

    def __init__(
        self, app: App, fleet: Fleet | None = None, counted: Callable[[Sequence[Settlement]], None] = uncounted
    ) -> None:
        self._app = app
        self._fleet = fleet or Fleet()
        self._counted = counted
        self.duty: Duty = Duty("ending waits for answers", self.look, shortest=LOOK)

    async def look(self) -> float:
        """End the attempts with a wait that is over, and expired jobs; return the seconds until the next poll."""
        made = await turn(self._app, rng.sample, self._counted)
        longest = self._fleet.interval(LOOK)
        if made.rest_for is None:
            return longest
        if made.rest_for > timedelta(0):
            return min(max(made.rest_for.total_seconds(), SHORT) + self._fleet.lag, longest)
        return SHORT if made.done else LOOK


async def turn(
    app: App, sample: Callable[[], float], counted: Callable[[Sequence[Settlement]], None] = uncounted
) -> Turn:
    """End what is over once."""
    left = await app.store.arun(attempts.until_expiry(now=app.now()))
    if left is None or left > timedelta(0):
        return Turn(0, left)
    ended = await app.store.arun(attempts.expire_waits(BUDGET, iter(sample, None), now=app.now()))
    report_moved(app, ended, counted)
    expired = await app.store.arun(attempts.expire(BUDGET, now=app.now()))
    emit_cancelled(expired)
    return Turn(len(ended) + len(expired), timedelta(0))
