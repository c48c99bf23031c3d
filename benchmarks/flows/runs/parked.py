"""Five-step runs among many runs of the same workflow that wait for a signal."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from benchmarks.flows.runs import STEPS
from benchmarks.flows.runs.redrive import RedriveRunsOnPostgres, RedriveRunsOnSQLite, nothing
from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects.redrive import BATCH, CONCURRENCY, URL
from redrive.app.app import App
from redrive.app.flows.flow import Flow
from redrive.app.flows.workflow import Workflow
from redrive.runtime.worker import Worker
from redrive.stores.operations.runs import start

__all__ = ["PARKED", "AmongParkedOnPostgres", "AmongParkedOnSQLite", "app"]

PARKED = 50_000
WAITS = -1.0
"""The argument of a run that waits."""


def define(app: App) -> Workflow[..., Any, Any]:
    """Register the workflow.

    Args:
        app: where.

    Returns:
        The workflow.
    """
    meters: list[Meter] = []

    @app.workflow(name="five")
    async def five(flow: Flow, sent_at: float) -> None:
        if sent_at == WAITS:
            await flow.wait_for("never")
        if not meters:
            meters.append(Meter.given())
        meters[0].mark()
        for _ in range(STEPS):
            await flow.step(nothing)

    return five


app = App(os.environ.get(URL, "memory://"))
"""What the worker process loads."""

define(app)


class _AmongParked:
    """One worker process.

    Args:
        parked: how many runs wait.
    """

    module = __name__
    _app: App
    _workflow: Workflow[..., Any, Any]

    def __init__(self, parked: int = PARKED) -> None:
        self._parked = parked

    def define(self, app: App) -> None:
        """Register the workflow."""
        self._workflow = define(app)

    def create(self, place: Place) -> None:
        """Make the database, and park the runs, as a worker does it."""
        super().create(place)  # type: ignore[misc] # of the store
        payload = self._workflow.signature.write((WAITS,), {})
        for begun in range(0, self._parked, BATCH):
            new = [self._workflow.new_run(None, payload)] * min(BATCH, self._parked - begun)
            self._app.store.run(start.start(new))
        if self._parked:
            asyncio.run(Worker(self._app, concurrency=CONCURRENCY, until_empty=True).run())


class AmongParkedOnSQLite(_AmongParked, RedriveRunsOnSQLite):
    """On a file."""


class AmongParkedOnPostgres(_AmongParked, RedriveRunsOnPostgres):
    """On PostgreSQL."""
