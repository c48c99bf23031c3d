"""Claims that were committed without a reply: no worker has the leases in memory, and their holder is alive."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from redrive import App, Flow
from redrive.errors import StoreOutcomeUnknown, StoreUnreachable
from redrive.stores.store import Store
from tests.runtime.helpers import PATIENCE, working
from tests.stores.helpers import STORES


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


@pytest.mark.parametrize(("idempotent", "calls"), [(False, 1), (None, 2)])
def test_a_lost_end_that_must_not_be_lost_is_written_again(tmp_path: Path, idempotent: bool | None, calls: int):
    """Find the lease of an ended attempt where no other server was seen; write its end again, or give it back."""
    app = App(f"sqlite:///{tmp_path}/jobs.db", heartbeat_every="200ms", lease_for="60s")
    ran: list[int] = []

    @app.task(idempotent=idempotent)
    async def pay() -> str:
        ran.append(1)
        return "paid"

    def lose() -> None:
        transaction = app.store.begin()
        transaction.connection.execute(
            """
            UPDATE redrive_jobs SET state = 'running', lease_id = success_lease_id, worker_id = success_worker_id,
                success_lease_id = NULL, success_worker_id = NULL, finished_at = NULL
            """
        )
        transaction.connection.execute("DELETE FROM redrive_results")
        transaction.commit()

    async def run() -> str:
        job = await pay.aenqueue()
        async with working(app):
            await job.aresult(timeout=PATIENCE)
            await asyncio.to_thread(lose)
            return await job.aresult(timeout=PATIENCE)

    assert ("paid", [1] * calls) == (asyncio.run(run()), ran)
    app.close()


@pytest.mark.case("W3")
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("kind", list(STORES))
def test_a_step_with_a_lost_reply_runs_once(kind: str, tmp_path: Path, monkeypatch, committed: bool):
    """Bodies go on with the value of a step if its commit lost its reply, or was not made; its function runs once."""
    app = App(STORES[kind](tmp_path))
    ran: list[str] = []
    lost: list[bool] = []
    arun = app.store.arun

    async def losing(operation, **options):
        # The first write of the row of a step: its function has run, and the run goes on.
        loses = operation.name == "settle" and ran and not lost
        if loses:
            lost.append(committed)
        if loses and not committed:
            operation.steps.close()
        else:
            result = await arun(operation, **options)
        if loses:
            message = "the connection was lost"
            raise StoreOutcomeUnknown(message)
        return result

    def act(name: str) -> str:
        ran.append(name)
        return f"{name} {len(ran)}"

    @app.workflow()
    async def body(flow: Flow) -> list[str]:
        return [await flow.step(act, "one"), await flow.step(act, "two")]

    async def run() -> list[str]:
        started = await body.astart()
        async with working(app):
            return await started.aresult(timeout=PATIENCE)

    monkeypatch.setattr(app.store, "arun", losing)
    found = asyncio.run(run())
    rows = app.runs.get("body", app.runs.select()[0].id).timeline()
    app.close()

    assert [committed] == lost
    assert ["one", "two"] == ran
    assert ["one 1", "two 2"] == found
    assert [b'"one 1"', b'"two 2"'] == [row.result for row in rows]
