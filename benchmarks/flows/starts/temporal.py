"""Temporal: its development server on a file, and one worker with its default settings.

The server is a process of its own, in Go, which each step crosses twice; what it writes to its file is not synced.
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from benchmarks.flows.starts import STEPS, measure

QUEUE = "five"


@activity.defn
async def nothing() -> None:
    """Do nothing."""


@workflow.defn
class Five:
    """Five activities, one after the other."""

    @workflow.run
    async def run(self) -> None:
        """Call them."""
        for _ in range(STEPS):
            await workflow.execute_activity(nothing, start_to_close_timeout=timedelta(seconds=60))


async def _main(folder: Path) -> None:
    local = WorkflowEnvironment.start_local(
        dev_server_existing_path=str(Path(sys.executable).with_name("temporal")),
        dev_server_database_filename=str(folder / "temporal.db"),
    )
    async with await local as environment:
        client = environment.client

        async def run(number: int) -> None:
            await client.execute_workflow(Five.run, id=f"five-{number}", task_queue=QUEUE)

        async with Worker(client, task_queue=QUEUE, workflows=[Five], activities=[nothing]):
            await measure(run)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
    sys.stdout.flush()
    # The server is down. Threads of the SDK of Temporal end the interpreter by a fatal error now and then.
    os._exit(0)
