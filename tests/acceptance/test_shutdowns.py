"""Handlers that a shutdown cuts off, and rolling deployments in which not every worker has every task."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.acceptance.chaos import load
from tests.acceptance.processes import LONG, Deployment

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


@pytest.mark.parametrize("twice", [True, False], ids=["second signal", "time is up"])
def test_a_task_that_is_not_idempotent_runs_once_though_a_shutdown_cuts_it_off(stage: Deployment, twice: bool):
    """Attempts that a shutdown cuts off are recorded as lost in flight, and the next worker runs only the catch task;
    idempotent ones are given back."""
    stage.lease_for = LONG
    once, again = stage.module.once.enqueue(1), stage.module.hold.enqueue(2)
    worker = stage.worker("--shutdown-timeout", "30s" if twice else "100ms")
    stage.until(lambda: len(stage.executions) == 2)
    worker.send(signal.SIGTERM)
    if twice:
        stage.until(lambda: worker.logged("finishes 2 running jobs"))
        worker.send(signal.SIGTERM)

    assert 0 == worker.ended()
    assert ("dead", "ready") == (once.refresh().state, again.refresh().state)
    assert [("lost", "LOST_IN_FLIGHT", 1)] == [(each.outcome, each.reason, each.number) for each in once.attempts]
    assert [("released", None, 1)] == [(each.outcome, each.reason, each.number) for each in again.attempts]

    stage.go()
    stage.ready_worker()
    stage.until(lambda: once.refresh().record.caught_at is not None and again.refresh().state == "succeeded")

    assert [f"{once.id} 1"] == stage.noted("caught")
    assert 1 == len([each for each in stage.executions if each.startswith(f"{once.id}.")])


OLD = """
import asyncio

import work
from redrive import App

app = App((work.HERE / "url").read_text(), heartbeat_every="200ms")


@app.task
async def known(number: int) -> None:
    await asyncio.sleep(0)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_workers_of_an_older_deploy_do_not_starve_new_tasks(tmp_path: Path, kind: str):
    """Three workers without a task and one with it: all of its jobs run in the one, and none is deferred."""
    with load(tmp_path, kind) as stage:
        stage.lease_for = LONG
        (tmp_path / "old.py").write_text(OLD)
        old = [stage.run(sys.executable, "-m", "redrive", "worker", "old:app") for _ in range(3)]
        stage.until(lambda: all(each.logged("serves all queues") for each in old))
        stage.ready_worker("--concurrency", "2")
        jobs = stage.module.quick.enqueue_many(range(60))
        stage.all_ended()

        assert {(1, "succeeded")} == {(len(job.attempts), job.state) for job in jobs}
        assert {4} == {each.worker_id for job in jobs for each in job.attempts}
