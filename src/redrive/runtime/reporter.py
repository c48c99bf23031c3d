"""A background task that reports which duties of the worker fail: as events, and in the worker's row.

Other processes read the row: `redrive.App.workers`, and what is built on it, such as the gauges for Prometheus.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from redrive.app.app import App
from redrive.observe.listeners import LISTENERS
from redrive.runtime.supervision import Duty
from redrive.runtime.tracing import emit_duty_failed
from redrive.stores.operations import workers

__all__ = ["Reporter"]


class Reporter:
    """The background task.

    Args:
        app: whose store.
        worker_id: of this worker.
        queues: the queues that it serves; None means all.
    """

    def __init__(self, app: App, worker_id: Callable[[], int], queues: Sequence[str] | None) -> None:
        self._app = app
        self._worker_id = worker_id
        self._queues = queues
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._trouble: str | None = None

    @property
    def duty(self) -> Duty:
        """Write what has changed."""
        return Duty("reporting", self._step)

    def failed(self, name: str, error: BaseException, failures: int) -> None:
        """Emit an event. From any thread.

        Args:
            name: of the duty.
            error: what it raised.
            failures: how often it has failed in a row.
        """
        if LISTENERS:
            emit_duty_failed(self._worker_id(), self._queues, name, error, failures)

    def changed(self, trouble: str | None) -> None:
        """Have it written which duties fail. From any thread.

        Args:
            trouble: which, and why; None where none does.
        """
        self._trouble = trouble
        self._loop.call_soon_threadsafe(self._news.set)

    def again(self) -> None:
        """Have it written once more, because the worker has a new row."""
        if self._trouble is not None:
            self._news.set()

    async def _step(self) -> float:
        await self._news.wait()
        self._news.clear()
        try:
            await self._app.store.arun(workers.report(self._worker_id(), self._trouble))
        except BaseException:
            self._news.set()
            raise
        return 0.0
