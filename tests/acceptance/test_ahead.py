"""Worker processes that have claimed jobs ahead: others get those that do not start, and a crash loses none."""

from __future__ import annotations

import signal

import pytest

from tests.acceptance.processes import LONG, Deployment

# tests/runtime/test_ahead.py has each rule, and the crossings kill workers at each moment.
pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.night]

SHORT_ONES, HELD = 300, 20


@pytest.mark.parametrize("task", ["hold", "hold_in_thread"])
def test_an_idle_worker_gets_what_another_one_cannot_start(stage: Deployment, task: str):
    """After short jobs, a worker with one slot keeps one long job; an idle one runs the others, no attempt spent."""
    stage.lease_for = LONG
    stage.module.quick.enqueue_many(range(SHORT_ONES))
    held = getattr(stage.module, task).enqueue_many(range(HELD))
    stage.ready_worker("--concurrency", "1")
    stage.until(lambda: len(stage.executions) > SHORT_ONES)
    stage.ready_worker("--concurrency", str(HELD))
    stage.until(lambda: len(stage.executions) == SHORT_ONES + HELD)
    stage.go()
    stage.all_ended()

    assert SHORT_ONES + HELD == len(stage.executions)
    assert {(1, 0)} == {(job.record.attempt, job.record.failures) for job in held}


def test_a_killed_worker_loses_no_job_that_it_claimed_ahead(stage: Deployment):
    """Jobs that a killed worker had claimed run elsewhere: at most one crash each, and no failure."""
    stage.module.quick.enqueue_many(range(SHORT_ONES))
    stage.module.hog.enqueue(1)
    stage.module.quick.enqueue_many(range(SHORT_ONES))
    killed = stage.worker("--concurrency", "1")
    stage.until(lambda: len(stage.executions) > SHORT_ONES)
    killed.send(signal.SIGKILL)
    killed.ended()
    stage.ready_worker()
    stage.all_ended()
    jobs = stage.jobs()

    assert {"succeeded"} == {job.state for job in jobs}
    assert {0} == {job.failures for job in jobs}
    assert {job.attempt for job in jobs} <= {1, 2}
