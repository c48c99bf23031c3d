"""Workers on one file, and workers that are stopped or suspended."""

from __future__ import annotations

import signal
from datetime import timedelta

import pytest

from tests.acceptance.processes import LONG, Deployment, uid

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


def test_two_workers_share_the_work(stage: Deployment):
    """Five hundred jobs, two processes: each job is executed once, and both have done some."""
    stage.lease_for = LONG
    stage.ready_worker("--concurrency", "5")
    stage.ready_worker("--concurrency", "5")
    jobs = stage.module.quick.enqueue_many(range(500))
    stage.all_ended()
    attempts = [job.attempts for job in jobs]

    assert {1} == {len(each) for each in attempts}
    assert {uid(each) for (each,) in attempts} == set(stage.executions)
    assert 500 == len(stage.executions)
    assert {1, 2} == {each.worker_id for (each,) in attempts}


def test_an_idle_worker_is_woken(stage: Deployment):
    """Jobs of another process are claimed long before the next poll of an idle worker, after a second."""
    stage.lease_for = LONG
    stage.ready_worker()
    waits = []
    for number in range(8):
        job = stage.module.quick.enqueue(number)
        stage.all_ended()
        record = job.record
        waits.append(record.claimed_at - record.enqueued_at)

    assert [] == [wait for wait in waits if wait >= timedelta(milliseconds=500)]


def test_a_worker_that_was_declared_dead_changes_nothing(stage: Deployment):
    """After its lease the suspended worker wakes up: its outcomes are refused, and its handlers are stopped."""
    held = stage.module.hold.enqueue(1)
    sleeper = stage.worker()
    stage.until(lambda: len(stage.executions) == 1)
    # Last, because it lets no other handler begin.
    hogged = stage.module.hog.enqueue(2)
    stage.until(lambda: len(stage.executions) == 2)
    stage.stop(sleeper)
    living = stage.worker()
    stage.until(lambda: hogged.refresh().state == held.refresh().state == "succeeded")
    before = stage.jobs()
    stage.go()
    sleeper.send(signal.SIGCONT)
    stage.until(lambda: sleeper.logged(f"job {hogged.id} .*: its lease was lost"))
    sleeper.send(signal.SIGTERM)
    living.send(signal.SIGTERM)

    assert (0, 0) == (sleeper.ended(), living.ended())
    assert ["execution 2"] * 2 == [held.result(), hogged.result()]
    assert before == stage.jobs()
    assert [["lost", "succeeded"]] * 2 == [[each.outcome for each in job.attempts] for job in (held, hogged)]


def test_the_handlers_of_a_worker_that_was_declared_dead_are_stopped(stage: Deployment):
    """After a suspension the worker learns at its first heartbeat which attempts it has lost."""
    job = stage.module.hold.enqueue(1)
    sleeper = stage.worker()
    stage.until(lambda: len(stage.executions) == 1)
    stage.stop(sleeper)
    stage.worker()
    stage.until(lambda: job.refresh().state == "succeeded")
    sleeper.send(signal.SIGCONT)
    stage.until(lambda: bool(stage.noted("stopped")))

    assert [uid(job.attempts[0])] == stage.noted("stopped")
    assert "execution 2" == job.result()


def test_one_signal_drains(stage: Deployment):
    """After SIGTERM running jobs finish, waiting ones are left, and the status is 0."""
    stage.lease_for = LONG
    job = stage.module.hold.enqueue(1)
    worker = stage.worker("--concurrency", "1")
    stage.until(lambda: len(stage.executions) == 1)
    waiting = stage.module.quick.enqueue(2)
    worker.send(signal.SIGTERM)
    stage.until(lambda: worker.logged("finishes 1 running job"))
    stage.go()

    assert (0, "execution 1") == (worker.ended(), job.result())
    assert ("ready", 0, ()) == (waiting.state, waiting.record.attempt, stage.app.workers.select())


# How a handler in a thread is interrupted, tests/runtime shows; what its worker does then is the same.
@pytest.mark.parametrize("task", ["hold", pytest.param("hold_in_thread", marks=pytest.mark.night)])
def test_two_signals_give_back(stage: Deployment, task: str):
    """After two SIGINT the handlers are interrupted with no attempt spent, and a later worker runs the jobs."""
    stage.lease_for = LONG
    jobs = stage.module.app.tasks[task].enqueue_many(range(5))
    worker = stage.worker()
    stage.until(lambda: len(stage.executions) == 5)
    worker.send(signal.SIGINT)
    stage.until(lambda: worker.logged("finishes 5 running jobs"))
    worker.send(signal.SIGINT)
    status = worker.ended()
    between = stage.jobs()
    stage.go()
    stage.worker()
    stage.all_ended()

    assert 0 == status
    assert [("ready", 0, 0, 0, "release")] * 5 == [
        (job.state, job.attempt, job.failures, job.crashes, job.hold) for job in between
    ]
    assert ["execution 1"] * 5 == [job.result() for job in jobs]
    assert [["released", "succeeded"]] * 5 == [[each.outcome for each in job.attempts] for job in jobs]
    assert 10 == len(set(stage.executions))
