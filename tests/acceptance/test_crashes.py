"""Processes that die: no acknowledged job is lost, and the records match the executions."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.acceptance.processes import Deployment

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


def check_history(stage: Deployment) -> None:
    """Check that attempts are numbered without a gap, and that no execution took place twice."""
    for job in stage.jobs():
        numbers = [attempt.number for attempt in stage.app.job(job.id).attempts]
        assert list(range(1, len(numbers) + 1)) == numbers
        assert len(numbers) == job.attempt
    assert len(set(stage.executions)) == len(stage.executions)
    assert set() == set(stage.executions) - stage.leases("succeeded", "lost", "failed", "cancelled")


@pytest.mark.parametrize("point", ["after_claim", "before_settle", "after_settle"])
def test_a_worker_that_dies_at_a_bad_moment_loses_nothing(stage: Deployment, point: str):
    """Another worker brings every job to its end; executions are the leases that started, and no others."""
    jobs = stage.module.quick.enqueue_many(range(20))
    dead = stage.worker("--concurrency", "10", fault=point)
    status = dead.ended()
    living = stage.worker("--concurrency", "10")
    stage.all_ended()
    living.send(signal.SIGTERM)
    lost, succeeded, executed = stage.leases("lost"), stage.leases("succeeded"), set(stage.executions)
    by = {each.worker_id for job in jobs for each in job.attempts if each.outcome == "succeeded"}

    assert (-signal.SIGKILL, 0) == (status, living.ended())
    assert list(range(20)) == [job.result() for job in jobs]
    assert [0] * 20 == [job.failures for job in stage.jobs()]
    assert set() == succeeded - executed
    if point == "after_claim":  # leases were claimed, and no handler had started
        assert (10, set(), {2}) == (len(lost), lost & executed, by)
    elif point == "before_settle":  # handlers had ended and nothing was written
        assert (True, {2}) == (bool(lost & executed), by)
    else:  # the first endings were written
        assert {1, 2} == by
    check_history(stage)


# How a handler in a thread is interrupted, tests/runtime shows; what its worker does then is the same.
@pytest.mark.parametrize("task", ["hold", pytest.param("hold_in_thread", marks=pytest.mark.night)])
def test_handlers_that_are_killed_run_again(stage: Deployment, task: str):
    """SIGKILL in the middle of ten handlers: each runs a second time, and no retry is spent on it."""
    jobs = stage.module.app.tasks[task].enqueue_many(range(10))
    dead = stage.worker()
    stage.until(lambda: len(stage.executions) == 10)
    dead.send(signal.SIGKILL)
    dead.ended()
    stage.worker()
    stage.all_ended()

    assert ["execution 2"] * 10 == [job.result() for job in jobs]
    assert (20, 10, 10) == (len(stage.executions), len(stage.leases("lost")), len(stage.leases("succeeded")))
    assert [("lost", "WORKER_LOST"), ("succeeded", None)] == [(each.outcome, each.reason) for each in jobs[0].attempts]
    assert [0] * 10 == [job.failures for job in stage.jobs()]
    check_history(stage)


# In tests/acceptance/test_process_kills.py a job leaves its process.
@pytest.mark.parametrize("how", ["kill", pytest.param("leave", marks=pytest.mark.night)])
def test_a_job_that_kills_its_worker_three_times_is_dead_and_other_jobs_finish(stage: Deployment, how: str):
    """After three deaths in a row, each with a restart of the worker, the killer is dead, and the others are done.

    This holds if the process is killed, and if its event loop ends by an exception."""
    killer = stage.module.app.tasks[how].enqueue(0)
    neighbours = stage.module.quick.enqueue_many(range(4))
    deaths = 0
    while stage.app.jobs.stats().unfinished:
        worker = stage.worker()
        stage.until(lambda worker=worker: not worker.alive or stage.app.jobs.stats().unfinished == 0)
        deaths += not worker.alive
        assert deaths < 4, killer.why

    assert ("dead", "POISON") == (killer.refresh().state, killer.record.reason)
    # A worker that ends by an exception settles its jobs by itself, so that its own end may come after that.
    assert deaths in ({3} if how == "kill" else {2, 3})
    assert ["lost"] * 3 == [each.outcome for each in killer.attempts]
    assert [0, 1, 2, 3] == [job.result() for job in neighbours]
    assert [0] * 4 == [job.record.failures for job in neighbours]
    check_history(stage)


def test_a_killed_job_that_is_not_idempotent_is_not_repeated(stage: Deployment):
    """``idempotent=False`` and killed in flight: dead with the reason LOST_IN_FLIGHT, and its catch task takes it."""
    job = stage.module.once.enqueue(7)
    dead = stage.worker()
    stage.until(lambda: len(stage.executions) == 1)
    dead.send(signal.SIGKILL)
    dead.ended()
    stage.worker()
    stage.until(lambda: job.refresh().caught_at is not None)

    assert ("dead", "LOST_IN_FLIGHT") == (job.state, job.record.reason)
    assert (1, [f"{job.id} 7"]) == (len(stage.executions), stage.noted("caught"))
    assert [("lost", "in_flight", "not_idempotent")] == [(each.outcome, each.stage, each.rule) for each in job.attempts]


PRODUCER = """
import itertools, work
for number in itertools.count():
    print(work.quick.enqueue(number).id, flush=True)
"""


def test_acknowledged_jobs_are_never_lost(stage: Deployment):
    """Kill a producer while it enqueues: each job with a returned enqueue() comes to its end."""
    producer = stage.run(sys.executable, "-c", PRODUCER, stdout=subprocess.PIPE)
    assert producer.popen.stdout
    acknowledged = [int(producer.popen.stdout.readline()) for _ in range(50)]
    producer.send(signal.SIGKILL)
    acknowledged += [int(line) for line in producer.popen.stdout if line.endswith(b"\n")]
    stage.worker()
    stage.all_ended()

    assert set() == set(acknowledged) - {job.id for job in stage.jobs() if job.state == "succeeded"}
    check_history(stage)
