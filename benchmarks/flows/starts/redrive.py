"""redrive: a worker with its default settings, on a SQLite file with synced commits."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import redrive
from benchmarks.flows.starts import STEPS, measure
from redrive.runtime.worker import Worker


async def nothing() -> None:
    """Do nothing."""


async def _main(folder: Path) -> None:
    app = redrive.App(f"sqlite:///{folder / 'redrive.db'}")

    @app.workflow()
    async def five(flow: redrive.Flow) -> None:
        for _ in range(STEPS):
            await flow.step(nothing)

    async def run(_number: int) -> None:
        started = await five.astart()
        await started.aresult("60s")

    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    await worker.started.wait()
    await measure(run)
    worker.stop()
    await running
    app.close()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
