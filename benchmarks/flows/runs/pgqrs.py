"""pgqrs workflows on PostgreSQL, polled by the runner of the library.

A step is recognised by the name of its function, so five steps need five functions. One poller runs one workflow at a
time; the process has several, as its guide shows.

``python -m benchmarks.flows.runs.pgqrs URL`` is its worker process.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import pgqrs
from pgqrs.decorators import step, workflow

from benchmarks.flows.runs import STEPS
from benchmarks.meter import Meter
from benchmarks.subjects.pgqrs import PgQRS, configure

__all__ = ["PgQRSRuns", "work"]

POLLERS = 10
"""Its best of 5, 10, 20 and 40 on two cores."""

LOOK_EVERY = 10
"""Milliseconds."""

_meters: list[Meter] = []


def _step(number: int) -> Any:
    async def nothing(ctx: Any) -> None:
        del ctx

    nothing.__name__ = f"step_{number}"
    return step(nothing)


_steps = [_step(number) for number in range(STEPS)]


@workflow(name="five_steps")
async def five_steps(ctx: Any, sent_at: float) -> None:
    """Run five steps."""
    if not _meters:
        _meters.append(Meter.given())
    if not sent_at:
        _meters[0].mark()
    for each in _steps:
        began = time.monotonic()
        await each(ctx)
        if sent_at:
            _meters[0].mark(began)


class PgQRSRuns(PgQRS):
    """One worker process."""

    async def _install(self) -> None:
        self._store = await pgqrs.connect_with(configure(self._place.url))
        await pgqrs.admin(self._store).install()
        await pgqrs.workflow().name("five_steps").store(self._store).create()

    async def _enqueue(self, sent_at: float) -> None:
        await pgqrs.workflow().name("five_steps").store(self._store).trigger(sent_at).execute()

    async def _enqueue_many(self, count: int) -> None:
        for _ in range(count):
            await self._enqueue(0.0)

    def worker(self) -> tuple[list[str], dict[str, str]]:
        """Run this module."""
        return [sys.executable, "-m", __name__, self._place.url], {}


async def work(url: str) -> None:
    """Run workflows until killed.

    Args:
        url: of the database.
    """
    store = await pgqrs.connect_with(configure(url))
    consumers = [await store.consumer("five_steps") for _ in range(POLLERS)]
    await asyncio.gather(
        *(
            pgqrs.dequeue().worker(each).batch(1).poll_interval(LOOK_EVERY).handle_workflow(five_steps).poll(store)
            for each in consumers
        )
    )


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
