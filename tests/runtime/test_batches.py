"""Batches with real workers: the job that follows is noticed at once, by a worker that had nothing to do."""

from __future__ import annotations

import asyncio

from redrive import App
from tests.runtime.helpers import ended, working


def test_the_job_that_follows_runs_on_another_worker(filed: App):
    """Workers of two queues end a batch and run what follows; it runs once."""
    seen: list[int] = []

    @filed.task(queue="many")
    async def member(number: int) -> None:
        seen.append(number)

    @filed.task(queue="last")
    async def then() -> None:
        seen.append(-1)

    batch = filed.batch()
    batch.add_many(member, range(50))
    last = batch.enqueue(then)

    async def run() -> None:
        """Work until the job that follows has ended."""
        async with working(filed, queues=["many"]), working(filed, queues=["last"]), working(filed, queues=["many"]):
            await ended(last)

    asyncio.run(run())

    assert ([*range(50), -1], -1) == (sorted(seen[:-1]) + seen[-1:], seen[-1])
