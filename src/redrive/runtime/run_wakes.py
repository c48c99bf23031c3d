"""A background duty that makes parked runs due when what they wait for has arrived: signals, values, ends of children.

Senders only insert rows, so that a transaction that stays open blocks no run. Every worker with workflows polls for new
rows: after a notification, after ends of its own attempts, and at intervals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from redrive.app.app import App
from redrive.clock import Clock
from redrive.runtime import rng
from redrive.runtime.fleet import Fleet
from redrive.runtime.supervision import Duty, Turn, first
from redrive.stores.operations import managing_runs
from redrive.stores.operations.runs import waits

# The longest rest between two polls of the oldest worker: a row may be pending until another transaction has ended,
# which does not notify.
NET = timedelta(seconds=1)

# The shortest time between two polls, in seconds: a busy worker is notified several hundred times a second.
SHORT = 0.02


def workflows(app: App) -> list[str]:
    """Return the names of the workflows of an app."""
    return sorted(name for name, task in app.tasks.items() if task.is_workflow)


class RunWakes:
    """The background duty that wakes parked runs.

    Args:
        app: the app with the workflows.
        clock: its clock.
        woken: called when runs are due.
        fleet: the place of this worker.
    """

    def __init__(self, app: App, clock: Clock, woken: Callable[[], None], fleet: Fleet | None = None) -> None:
        self._app = app
        self._clock = clock
        self._woken = woken
        self._fleet = fleet or Fleet()
        self._changed = asyncio.Event()
        self._looked_again = False
        #: True once a poll has found nothing to wake.
        self.quiet: bool = False
        self.duty: Duty = Duty("waking runs", self._step)

    def changed(self) -> None:
        """Poll soon, because a transaction was committed."""
        self._changed.set()

    async def _step(self) -> float:
        if not self._looked_again:
            # The code of this worker may fit runs that the code of others did not fit.
            await self._app.store.arun(managing_runs.look_again(workflows(self._app), now=self._app.now()))
            self._looked_again = True
        self._changed.clear()
        if (await turn(self._app)).done:
            self._woken()
            return 0.0
        self.quiet = True
        await self._clock.asleep(SHORT)
        await first(self._changed.wait(), self._clock.asleep(self._fleet.interval(NET.total_seconds())))
        return 0.0


async def turn(app: App, _: Callable[[], float] = rng.sample) -> Turn:
    """Wake runs once."""
    if not await app.store.arun(waits.is_pending()):
        return Turn(0)
    return Turn(len((await app.store.arun(waits.wake(now=app.now()))).runs))
