"""redrive itself: runs of a workflow with five steps, by the command that users type."""

from __future__ import annotations

import os
import time
from typing import Any

from benchmarks.flows.runs import STEPS
from benchmarks.meter import Meter
from benchmarks.subjects.redrive import BATCH, URL, Redrive, RedriveOnPostgres, RedriveOnSQLite
from redrive.app.app import App
from redrive.app.flows.flow import Flow
from redrive.app.flows.workflow import Workflow
from redrive.stores.operations.runs import start

__all__ = ["RedriveRunsOnPostgres", "RedriveRunsOnSQLite", "app"]


async def nothing() -> None:
    """Do nothing."""


def define(app: App) -> Workflow[..., Any, Any]:
    """Register the workflow of the benchmark.

    Args:
        app: where.

    Returns:
        The workflow.
    """
    meters: list[Meter] = []

    @app.workflow(name="five")
    async def five(flow: Flow, sent_at: float) -> None:
        if not meters:
            meters.append(Meter.given())
        if not sent_at:
            meters[0].mark()
        for _ in range(STEPS):
            began = time.monotonic()
            await flow.step(nothing)
            if sent_at:
                meters[0].mark(began)

    return five


app = App(os.environ.get(URL, "memory://"))
"""What the worker process loads."""

define(app)


class _Runs(Redrive):
    module = __name__
    kept = "row of the run, row per step, and a line of history"

    def define(self, app: App) -> None:
        """Register what is measured.

        Args:
            app: where.
        """
        self._workflow = define(app)

    def enqueue(self, sent_at: float) -> None:
        """Start one run."""
        self._workflow.start(sent_at)

    def enqueue_many(self, count: int) -> None:
        """Start many runs, a thousand a transaction."""
        payload = self._workflow.signature.write((0.0,), {})
        for begun in range(0, count, BATCH):
            new = [self._workflow.new_run(None, payload)] * min(BATCH, count - begun)
            self._app.store.run(start.start(new))


class RedriveRunsOnSQLite(_Runs, RedriveOnSQLite):
    """On a file."""


class RedriveRunsOnPostgres(_Runs, RedriveOnPostgres):
    """On PostgreSQL."""
