"""Django's own signals: the times when they are sent, and their contents."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta

import pytest

from redrive.contrib.django import signals
from redrive.contrib.django.compat import task_backends, task_enqueued, task_finished, task_started
from redrive.engine.lease import POISON_LIMIT
from redrive.errors import JobDead
from redrive.runtime.tracing import report_moved
from redrive.stores.operations import leases, retention, workers
from tests.contrib.django.project import BACKEND, PATIENCE, number, result_of
from tests.contrib.django.sample import tasks


@pytest.fixture
def received_signals():
    """Return the received signals in order: the signal, the status, and the number of errors."""
    received = []

    def listener(name):
        def listen(sender, task_result, **_):
            assert BACKEND.rpartition(".")[2] == sender.__name__
            received.append((name, str(task_result.status), len(task_result.errors)))

        return listen

    listeners = {
        signal: listener(name)
        for signal, name in ((task_enqueued, "enqueued"), (task_started, "started"), (task_finished, "finished"))
    }
    for signal, each in listeners.items():
        signal.connect(each)
    yield received
    for signal, each in listeners.items():
        signal.disconnect(each)


@pytest.mark.parametrize("task", [tasks.stumble, tasks.astumble], ids=["def", "async def"])
def test_a_task_has_finished_once(received_signals, task):
    """Each execution is started; only the end of the last one is the end of the task."""
    tasks.troubles[:] = [ValueError("first")]

    assert "there" == result_of(task.enqueue("there")).return_value
    assert [
        ("enqueued", "READY", 0),
        ("started", "RUNNING", 0),
        ("started", "RUNNING", 1),
        ("finished", "SUCCESSFUL", 1),
    ] == received_signals


@pytest.mark.parametrize("task", [tasks.stumble, tasks.astumble], ids=["def", "async def"])
def test_a_failure_sends_a_signal_when_it_is_final(received_signals, task):
    """Failures that are retried send no signal; the last one has all errors."""
    tasks.troubles[:] = [ValueError("again")] * 9

    done = result_of(task.enqueue("there"))

    assert ("finished", "FAILED", done.attempts) == received_signals[-1]
    assert 1 == [name for name, *_ in received_signals].count("finished")


def test_a_snooze_is_no_end(received_signals):
    """Snoozed tasks have not finished."""
    tasks.troubles[:] = [ValueError()]

    result_of(tasks.snooze.enqueue())

    assert ["enqueued", "started", "started", "finished"] == [name for name, *_ in received_signals]


@pytest.mark.parametrize("task", [tasks.leave, tasks.aleave], ids=["def", "async def"])
def test_the_end_of_a_task_that_exits_is_told(received_signals, task):
    """`SystemExit` fails the attempt, and the signal is sent when the job is dead."""
    done = result_of(task.enqueue())

    assert ("finished", "FAILED", 1) == received_signals[-1]
    assert [SystemExit] == [each.exception_class for each in done.errors]


def test_a_result_that_cannot_be_stored_is_a_failure(received_signals):
    """The job is dead, so the task was not successful, although its function has returned."""
    done = result_of(tasks.unstorable.enqueue())

    assert ("finished", "FAILED", 1) == received_signals[-1]
    assert "the result cannot be stored" in done.errors[0].traceback


def test_a_task_that_cancels_itself_has_failed(received_signals):
    """The signal has the state that was stored."""
    result_of(tasks.give_up.enqueue())

    assert [("finished", "FAILED", 1)] == [each for each in received_signals if each[0] == "finished"]


@pytest.fixture
def finished():
    """Return the received results of ended tasks, each with the exception that was current then."""
    results = []

    def listen(task_result, **_):
        assert task_result == task_result.task.get_result(task_result.id)
        results.append((task_result, sys.exc_info()[1]))

    task_finished.connect(listen)
    yield results
    task_finished.disconnect(listen)


@pytest.mark.parametrize("task", [tasks.add, tasks.aadd], ids=["def", "async def"])
def test_receivers_get_what_was_stored(finished, task):
    """The result of the signal is that of `get_result`, with its value and times; receivers may use the database."""
    done = result_of(task.enqueue(1, 2))

    ((received, error),) = finished
    assert (done, 3, None) == (received, received.return_value, error)
    assert done.finished_at is not None


@pytest.mark.parametrize(("task", "kind"), [(tasks.once, ValueError), (tasks.aleave, SystemExit)])
def test_receivers_find_the_error_of_the_task(finished, task, kind):
    """As with the backends of Django, the exception is current while receivers run, for error monitoring."""
    result_of(task.enqueue("alas") if task is tasks.once else task.enqueue())

    ((received, error),) = finished
    assert isinstance(error, kind)
    assert received.errors[-1].exception_class is kind


def test_receivers_find_an_error_without_an_exception(finished):
    """If no exception was raised, it is a `JobDead` with the text of the error."""
    result_of(tasks.unstorable.enqueue())

    ((_, error),) = finished
    assert isinstance(error, JobDead)
    assert "the result cannot be stored" in str(error)


def test_the_end_of_a_catch_task_is_told(finished):
    """Catch tasks are tasks, too, with results of their own."""
    result_of(tasks.doomed.enqueue("alas"))

    assert {"doomed": "FAILED", "recover": "SUCCESSFUL"} == {
        received.task.name: str(received.status) for received, _ in finished
    }


def test_a_job_that_another_worker_ends_is_told(finished):
    """Workers that find the jobs of a dead worker, and give them up, send their signal."""
    app, span = task_backends["default"].app, timedelta(hours=1)
    new = tasks.add.enqueue(1, 2)
    later = new.enqueued_at
    for _ in range(POISON_LIMIT):
        dead = app.store.run(workers.register("dead", concurrency=1, lease_for=span, now=later))
        (claim,) = app.store.run(leases.claim(dead, 1, lease_for=span, now=later)).claims
        assert number(new) == claim.id
        for _ in range(3):
            later += span
            report_moved(app, app.store.run(leases.sweep(9, every=span, now=later)))
    app.finished.wait()

    ((received, _),) = finished
    assert (new.id, "FAILED", POISON_LIMIT) == (received.id, str(received.status), len(received.errors))


def test_a_job_that_is_deleted_before_its_signal_is_left_out(finished):
    """There is nothing to tell of a job without a row."""
    app = task_backends["default"].app
    new = tasks.add.enqueue(1, 2)
    app.store.run(retention.empty())
    app.finished.ended(number(new))
    app.finished.wait()

    assert [] == finished


def test_a_receiver_that_hangs_does_not_keep_a_worker(monkeypatch, caplog):
    """Workers that stop wait for receivers, but not forever."""
    held = threading.Event()

    def listen(**_):
        held.wait(PATIENCE)

    monkeypatch.setattr(signals, "PATIENCE", 0.05)
    task_finished.connect(listen)
    try:
        result_of(tasks.add.enqueue(1, 2))
    finally:
        held.set()
        task_finished.disconnect(listen)
    monkeypatch.undo()
    task_backends["default"].app.finished.wait()

    assert "a receiver takes too long" in caplog.text


def test_a_listener_that_fails_fails_no_job(caplog):
    """Exceptions of receivers are logged by Django, and the job succeeds."""

    def listen(**_):
        raise LookupError("the listener's own")

    task_finished.connect(listen)
    try:
        done = result_of(tasks.add.enqueue(1, 2))
    finally:
        task_finished.disconnect(listen)

    assert (3, 1) == (done.return_value, done.attempts)
    assert "the listener's own" in caplog.text
