"""A background duty that reports which duties of the worker fail: as events, and in the row of the worker.

Other processes read the row, for example for the list of workers and for the gauges of Prometheus.
"""

from __future__ import annotations

import asyncio

from redrive.app.app import App
from redrive.observe.listeners import LISTENERS
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.supervision import Duty
from redrive.runtime.tracing import emit_duty_failed
from redrive.stores.operations import workers


class Reporter:
    """The background duty that reports failing duties."""

    def __init__(self, app: App, registration: WorkerRegistration) -> None:
        self._app = app
        self._registration = registration
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._defects: str | None = None

    @property
    def duty(self) -> Duty:
        """Write each change."""
        return Duty("reporting", self._step)

    def failed(self, name: str, error: BaseException, failures: int) -> None:
        """Emit an event about a duty that failed so many times in a row. Safe to call from any thread."""
        if LISTENERS:
            emit_duty_failed(self._registration.id, self._registration.queues, name, error, failures)

    def changed(self, defects: str | None) -> None:
        """Have the list of failing duties written. Safe to call from any thread."""
        self._defects = defects
        self._loop.call_soon_threadsafe(self._changed.set)

    def again(self) -> None:
        """Have the list written once more, because the worker has a new row."""
        if self._defects is not None:
            self._changed.set()

    async def _step(self) -> float:
        await self._changed.wait()
        self._changed.clear()
        try:
            await self._app.store.arun(workers.report(self._registration.id, self._defects))
        except BaseException:
            self._changed.set()
            raise
        return 0.0
