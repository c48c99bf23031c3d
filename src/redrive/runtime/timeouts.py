"""A background task that ends the attempts whose answer from outside has not come in time.

No worker holds such an attempt, so any worker may end it. Each looks when the first wait is over, as far as it knows,
and at least once a second, because waits begin in other processes too. So an attempt ends within a second of the end of
its wait, whatever the heartbeat is.
"""

from __future__ import annotations

from datetime import timedelta

from redrive.app.app import App
from redrive.runtime import rng
from redrive.runtime.supervision import Duty
from redrive.runtime.tracing import report_moved
from redrive.stores.operations import answers

__all__ = ["LOOK", "Timeouts"]

LOOK = 1.0
"""The longest time between two looks, in seconds."""

SHORT = 0.01
"""The shortest time between two looks, in seconds."""

BUDGET = 100
"""Attempts per transaction: a claim never waits long behind this."""


class Timeouts:
    """The background task.

    Args:
        app: whose jobs.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def duty(self) -> Duty:
        """Look at the end of each wait and at least every second."""
        return Duty("ending waits for answers", self.look, shortest=LOOK)

    async def look(self) -> float:
        """End the attempts whose wait is over.

        Returns:
            Seconds until the next look.

        Raises:
            StoreError: the database refused.
        """
        left = await self._app.store.arun(answers.until_lapse(now=self._app.now()))
        if left is None:
            return LOOK
        if left > timedelta(0):
            return min(max(left.total_seconds(), SHORT), LOOK)
        ended = await self._app.store.arun(answers.lapse(BUDGET, iter(rng.roll, None), now=self._app.now()))
        report_moved(ended)
        return SHORT if ended else LOOK
