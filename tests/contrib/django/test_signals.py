"""Django's own signals: the times when they are sent, and their contents."""

from __future__ import annotations

import pytest

from redrive.contrib.django.compat import task_enqueued, task_finished, task_started
from tests.contrib.django.project import BACKEND, result_of
from tests.contrib.django.sample import tasks


@pytest.fixture
def heard():
    """Return the received signals in order: the signal, the status, and the number of errors."""
    told = []

    def listener(name):
        def listen(sender, task_result, **_):
            assert BACKEND.rpartition(".")[2] == sender.__name__
            told.append((name, str(task_result.status), len(task_result.errors)))

        return listen

    listeners = {
        signal: listener(name)
        for signal, name in ((task_enqueued, "enqueued"), (task_started, "started"), (task_finished, "finished"))
    }
    for signal, each in listeners.items():
        signal.connect(each)
    yield told
    for signal, each in listeners.items():
        signal.disconnect(each)


@pytest.mark.parametrize("task", [tasks.stumble, tasks.astumble], ids=["def", "async def"])
def test_a_task_has_finished_once(heard, task):
    """Each execution is started; only the end of the last one is the end of the task."""
    tasks.troubles[:] = [ValueError("first")]

    assert "there" == result_of(task.enqueue("there")).return_value
    assert [
        ("enqueued", "READY", 0),
        ("started", "RUNNING", 0),
        ("started", "RUNNING", 1),
        ("finished", "SUCCESSFUL", 1),
    ] == heard


@pytest.mark.parametrize("task", [tasks.stumble, tasks.astumble], ids=["def", "async def"])
def test_a_failure_sends_a_signal_when_it_is_final(heard, task):
    """Failures that are retried send no signal; the last one has all errors."""
    tasks.troubles[:] = [ValueError("again")] * 9

    done = result_of(task.enqueue("there"))

    assert ("finished", "FAILED", done.attempts) == heard[-1]
    assert 1 == [name for name, *_ in heard].count("finished")


def test_a_snooze_is_no_end(heard):
    """Snoozed tasks have not finished."""
    tasks.troubles[:] = [ValueError()]

    result_of(tasks.snooze.enqueue())

    assert ["enqueued", "started", "started", "finished"] == [name for name, *_ in heard]


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
