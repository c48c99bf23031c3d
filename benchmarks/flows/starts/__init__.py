"""Runs that are started, run and awaited by one process: redrive beside Temporal's development server.

Each subject is a module that prints its figures as JSON: ``python -m benchmarks.flows.starts.temporal FOLDER``. Its
client and its worker share the process, 50 runs are on their way at once, and the database is a file.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

__all__ = ["STEPS", "measure"]

STEPS = 5
"""Steps, or activities, of a run."""

AT_ONCE = 50
"""Runs on their way."""

SECONDS = 5.0
"""How long runs are started."""


async def measure(run: Callable[[int], Awaitable[object]]) -> None:
    """Start runs for some seconds, await them, and print the figures.

    Args:
        run: starts a run of a number and awaits its result.
    """
    numbers = iter(range(1_000_000))
    await asyncio.gather(*(run(next(numbers)) for _ in range(AT_ONCE)))  # what is loaded at the first run
    began = time.monotonic()
    done = 0

    async def one_after_another() -> None:
        nonlocal done
        while time.monotonic() - began < SECONDS:
            await run(next(numbers))
            done += 1

    await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))
    print(json.dumps({"runs": done / (time.monotonic() - began)}))
