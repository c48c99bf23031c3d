"""The batches of bulk operations that a dashboard writes, also while no worker runs."""

from __future__ import annotations

import asyncio
import contextvars

from redrive.app.app import App
from redrive.clock import SystemClock
from redrive.errors import StoreError
from redrive.observe.logs import logger

log = logger("redrive.web")

#: Seconds until the next try if the database does not answer.
AFTER_ERROR = 5.0


class Carrier:
    """A task that carries out the bulk operations of an App until none runs.

    Args:
        app: the App.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._clock = SystemClock()
        # The task outlives the request that starts it.
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def wake(self) -> None:
        """Start the task, or let it look once more: an operation may have been started."""
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._carry_on(), name="redrive-operations", context=self._context.copy())

    async def _carry_on(self) -> None:
        while self._again:
            self._again = False
            while (rest := await self._turn()) is not None:
                await self._clock.asleep(rest)

    async def _turn(self) -> float | None:
        try:
            return await self._app.operations.aturn()
        except StoreError as error:
            log.warning("a batch of an operation waits: %s", error)
            return AFTER_ERROR
