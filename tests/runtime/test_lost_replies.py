"""Claims that were committed without a reply: no worker knows the leases, and their holder is alive."""

from __future__ import annotations

import asyncio

import pytest

from redrive import App
from redrive.errors import StoreUnreachable
from redrive.stores.store import Store
from tests.runtime.helpers import PATIENCE, working


def lose_a_reply(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Let the reply to the first claim that claims a job be lost; return the list that receives it."""
    lost: list[object] = []
    arun = store.arun

    async def losing(operation, **options):
        result = await arun(operation, **options)
        if getattr(result, "claims", ()) and not lost:
            lost.append(result)
            message = "the connection was lost"
            raise StoreUnreachable(message)
        return result

    monkeypatch.setattr(store, "arun", losing)
    return lost


@pytest.mark.parametrize("slots", [1, 5])
def test_leases_of_a_claim_with_a_lost_reply_are_given_back(filed: App, monkeypatch: pytest.MonkeyPatch, caplog, slots):
    """Workers give back leases that they do not know, and run their jobs; no attempt is spent."""
    lost = lose_a_reply(filed.store, monkeypatch)

    @filed.task
    async def double(number: int) -> int:
        """Double."""
        return 2 * number

    async def run() -> list[int]:
        jobs = await double.aenqueue_many(range(3))
        async with working(filed, concurrency=slots):
            return [await job.aresult(timeout=PATIENCE) for job in jobs]

    assert [0, 2, 4] == asyncio.run(run())
    assert 1 == len(lost)
    assert f"the reply to a claim was lost; {min(slots, 3)} jobs are given back" in caplog.messages
    assert [1, 1, 1] == [len(job.attempts) for job in map(filed.job, (1, 2, 3))]
    assert [(1, 0)] * 3 == [(job.record.attempt, job.record.crashes) for job in map(filed.job, (1, 2, 3))]
