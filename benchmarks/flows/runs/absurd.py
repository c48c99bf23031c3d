"""Absurd tasks with steps on PostgreSQL, measured as `benchmarks.subjects.absurd` measures tasks without steps.

``python -m benchmarks.flows.runs.absurd URL`` is its worker process.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from absurd_sdk import AsyncAbsurd

from benchmarks.flows.runs import STEPS
from benchmarks.meter import Meter
from benchmarks.subjects.absurd import AbsurdTasks, serve

__all__ = ["AbsurdRuns"]


class AbsurdRuns(AbsurdTasks):
    """One worker process for tasks of five steps."""

    kept = "rows of task, run and checkpoints"
    task = "five_steps"
    module = __name__


def _five_steps(app: AsyncAbsurd, meter: Meter) -> None:
    @app.register_task(AbsurdRuns.task)
    async def five_steps(params: Any, ctx: Any) -> None:
        if not params["sent_at"]:
            meter.mark()
        for _ in range(STEPS):
            began = time.monotonic()
            await ctx.step("nothing", _nothing)
            if params["sent_at"]:
                meter.mark(began)


async def _nothing() -> None:
    pass


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], _five_steps))
