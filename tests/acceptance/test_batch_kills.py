"""Workers that die while a batch ends: what follows it runs once, and not before the last of its jobs has ended."""

from __future__ import annotations

import signal

import pytest

from tests.acceptance.processes import Deployment

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


@pytest.mark.parametrize("point", ["after_claim", "before_settle", "after_settle"])
def test_a_worker_that_dies_at_a_bad_moment_leaves_one_end(stage: Deployment, point: str):
    """The job that follows is due in the transaction of the last end, whichever worker writes that."""
    quick = stage.module.quick
    batch = stage.app.batch()
    batch.add_many(quick, range(20))
    then = batch.enqueue(quick, 99)
    dead = stage.worker("--concurrency", "10", fault=point)
    status = dead.ended()
    living = stage.worker("--concurrency", "10")
    stage.all_ended()
    living.send(signal.SIGTERM)
    ends = [job.finished_at for job in stage.jobs() if job.id != then.id]
    last = then.attempts[-1]

    assert (-signal.SIGKILL, 0) == (status, living.ended())
    assert (99, 20) == (then.result(), len(ends))
    assert 1 == sum(each.outcome == "succeeded" for each in then.attempts)
    assert all(each is not None and each <= last.started_at for each in ends)
