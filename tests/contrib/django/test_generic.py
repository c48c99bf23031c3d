"""What Django asks of every backend for tasks, on this backend; the facts are those of the suite of django-tasks.

The distribution of django-tasks has no tests, so they are written here, on its public interface.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from datetime import UTC, datetime, timedelta

import pytest
from django.core.checks import run_checks
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from redrive.contrib.django import RedriveBackend
from redrive.contrib.django.compat import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from tests.contrib.django.project import BACKEND, number, result_of, work
from tests.contrib.django.sample import tasks

try:
    from django.tasks import default_task_backend, task
    from django.tasks.exceptions import InvalidTaskBackendError, InvalidTaskError, TaskResultMismatch
except ModuleNotFoundError:
    from django_tasks import default_task_backend, task
    from django_tasks.exceptions import InvalidTaskBackendError, InvalidTaskError, TaskResultMismatch

LATER = datetime(2031, 5, 6, tzinfo=UTC)


@pytest.fixture(autouse=True)
def emptied():
    """Run what is left to do."""
    yield
    work(task_backends["default"].app)


# ------------------------------------------------------------------------------------------------------------- backends


def test_the_default_backend_is_the_one_of_the_settings():
    """The alias `default` leads to our backend, with its alias and its options."""
    assert isinstance(task_backends["default"], RedriveBackend)
    assert issubclass(RedriveBackend, BaseTaskBackend)
    assert ("default", {}) == (default_task_backend.alias, default_task_backend.options)
    assert task_backends["default"] is task_backends["default"]


def test_an_alias_that_is_not_there_is_refused():
    """Unknown aliases are errors of Django."""
    with pytest.raises(InvalidTaskBackendError):
        _ = task_backends["nowhere"]
    with pytest.raises(InvalidTaskBackendError):
        tasks.add.using(backend="nowhere")


@pytest.mark.parametrize(
    "feature", ["supports_defer", "supports_async_task", "supports_get_result", "supports_priority"]
)
def test_all_features_are_supported(feature):
    """The backend has each feature that a backend may have."""
    assert getattr(task_backends["default"], feature)


def test_the_settings_are_without_fault():
    """Django's check of backends finds nothing."""
    assert [] == [each for each in run_checks() if "task" in (each.id or "")]


# ---------------------------------------------------------------------------------------------------------------- tasks


def test_a_task_describes_itself():
    """Tasks have the name and the path of their function, and remain callable."""
    assert isinstance(tasks.add, Task)
    assert ("add", "tests.contrib.django.sample.tasks.add") == (tasks.add.name, tasks.add.module_path)
    assert (0, "default", "default", None) == (
        tasks.add.priority, tasks.add.queue_name, tasks.add.backend, tasks.add.run_after,
    )  # fmt: skip
    assert 3 == tasks.add.call(1, 2)
    assert 3 == asyncio.run(tasks.add.acall(1, 2))
    assert 3 == tasks.aadd.call(1, 2)


def test_using_makes_a_copy():
    """`using` changes a copy, and leaves the task alone."""
    changed = tasks.add.using(priority=9, queue_name="mail", run_after=LATER)

    assert (9, "mail", LATER) == (changed.priority, changed.queue_name, changed.run_after)
    assert (0, "default", None) == (tasks.add.priority, tasks.add.queue_name, tasks.add.run_after)
    assert changed != tasks.add
    assert changed.using(priority=0, queue_name="default").using() == tasks.add.using(run_after=LATER)


def test_a_task_cannot_be_changed():
    """Tasks and results are frozen."""
    new = tasks.add.enqueue(1, 2)

    with pytest.raises(dataclasses.FrozenInstanceError):
        tasks.add.priority = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        new.id = "other"


@pytest.mark.parametrize(
    "changes",
    [{"priority": -101}, {"priority": 101}, {"priority": 1.5}, {"run_after": LATER.replace(tzinfo=None)}],
    ids=str,
)
def test_changes_that_django_refuses_are_refused(changes):
    """The bounds of priorities, and aware times, are checked where they are given."""
    with pytest.raises(InvalidTaskError):
        tasks.add.using(**changes)


@pytest.mark.parametrize("priority", [-100, 100])
def test_priorities_reach_from_end_to_end(priority):
    """Both ends of the range of priorities are stored."""
    new = tasks.add.using(priority=priority).enqueue(1, 2)

    assert priority == tasks.add.get_result(new.id).task.priority


def test_queues_are_those_of_the_settings():
    """Backends with QUEUES take no others."""
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": ["mail"]}}):
        assert "mail" == tasks.add.using(queue_name="mail").queue_name
        with pytest.raises(InvalidTaskError, match="Queue 'default' is not valid"):
            tasks.add.using(queue_name="default")
        with pytest.raises(InvalidTaskError):
            tasks.add.enqueue(1, 2)


def test_only_functions_of_a_module_are_tasks():
    """Functions inside of other ones, or without a name, are refused: a worker could not find them."""

    def inner():
        """Be out of reach."""

    for function in (inner, lambda: None, int):
        with pytest.raises(InvalidTaskError):
            task(function)


def test_a_context_needs_a_place():
    """Tasks that take a context have it as their first argument, with that name."""
    with pytest.raises(InvalidTaskError):
        task(takes_context=True)(tasks.plain)


# -------------------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("new", [tasks.add, tasks.aadd], ids=["def", "async def"])
def test_an_enqueue_returns_a_result(new):
    """The result is ready, and has neither a start nor an end."""
    result = new.enqueue(1, two=2)

    assert isinstance(result, TaskResult)
    assert (TaskResultStatus.READY, False, 0) == (result.status, result.is_finished, result.attempts)
    assert ([1], {"two": 2}, "default", new) == (result.args, result.kwargs, result.backend, result.task)
    assert (None, None, None) == (result.started_at, result.finished_at, result.last_attempted_at)
    assert ([], []) == (result.errors, result.worker_ids)
    assert timedelta(minutes=1) > timezone.now() - result.enqueued_at
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value


def test_the_asynchronous_interface_is_the_same():
    """`aenqueue`, `aget_result` and `arefresh` do what their namesakes do."""

    async def use():
        result = await tasks.aadd.aenqueue(1, 2)
        assert result == await tasks.aadd.aget_result(result.id)
        assert result == await task_backends["default"].aget_result(result.id)
        await result.arefresh()
        with pytest.raises(TaskResultDoesNotExist):
            await tasks.aadd.aget_result("nothing")
        return result

    assert 3 == result_of(asyncio.run(use())).return_value


def test_a_result_becomes_current_by_refresh():
    """Results show what was; `refresh` reads what is."""
    result = tasks.add.enqueue(1, 2)
    work(task_backends["default"].app)
    assert TaskResultStatus.READY == result.status
    result.refresh()

    assert (TaskResultStatus.SUCCESSFUL, 3, True, 1) == (
        result.status, result.return_value, result.is_finished, result.attempts,
    )  # fmt: skip
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at


def test_a_failure_is_described():
    """Failed tasks have their exception, by class and by traceback, and no value."""
    result = result_of(tasks.once.enqueue("alas"))

    (error,) = result.errors
    assert (TaskResultStatus.FAILED, True, ValueError) == (result.status, result.is_finished, error.exception_class)
    assert "builtins.ValueError" == error.exception_class_path
    assert error.traceback.endswith("ValueError: alas\n")
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_a_result_belongs_to_its_task():
    """Tasks refuse the results of other ones; the backend has both."""
    result = tasks.add.enqueue(1, 2)

    assert result == task_backends["default"].get_result(result.id)
    with pytest.raises(TaskResultMismatch):
        tasks.aadd.get_result(result.id)
    with pytest.raises(TaskResultMismatch):
        asyncio.run(tasks.aadd.aget_result(result.id))


def test_results_are_distinct():
    """Two enqueues of the same call are two results."""
    assert tasks.add.enqueue(1, 2).id != tasks.add.enqueue(1, 2).id


@pytest.mark.parametrize("value", [None, True, 1.5, "ж", [1, [2]], {"a": {"b": None}}, {}], ids=repr)
def test_json_arrives_as_it_was(value):
    """Arguments and values of JSON arrive unchanged."""
    result = result_of(tasks.echo.enqueue(value, named=value))

    assert ([value], {"named": value}) == (result.args, result.kwargs)
    assert [value, value] == result.return_value


@pytest.mark.parametrize(
    ("given", "stored"), [((1, 2), [1, 2]), (b"bytes", "bytes"), ({"a": (1,)}, {"a": [1]})], ids=repr
)
def test_what_is_like_json_becomes_json(given, stored):
    """Tuples become lists, and bytes text, in the result as well as in the task."""
    result = tasks.echo.enqueue(given)

    assert [stored] == result.args
    assert [stored, None] == result_of(result).return_value


@pytest.mark.parametrize("given", [object(), {1, 2}, datetime(2031, 1, 1, tzinfo=UTC)], ids=["object", "set", "time"])
def test_what_is_not_json_is_refused(given):
    """Arguments that JSON cannot hold are refused by the enqueue, and nothing is stored."""
    before = task_backends["default"].app.jobs.stats().unfinished
    with pytest.raises(TypeError):
        tasks.echo.enqueue(given)

    assert before == task_backends["default"].app.jobs.stats().unfinished


def test_a_result_can_be_copied():
    """Copies of results can be changed in their place."""
    result = tasks.add.enqueue(1, 2)

    assert result == copy.deepcopy(result)


def test_a_deferred_task_waits():
    """Tasks with a time in the future are not started before."""
    result = tasks.add.using(run_after=LATER).enqueue(1, 2)
    app = task_backends["default"].app

    assert 1 == app.jobs.stats().unfinished
    assert TaskResultStatus.READY == tasks.add.get_result(result.id).status
    app.job(number(result)).cancel()


def test_a_rollback_leaves_no_result():
    """Jobs of a transaction that is rolled back were never enqueued."""
    with transaction.atomic():
        result = tasks.add.enqueue(1, 2)
        transaction.set_rollback(True)

    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()


# -------------------------------------------------------------------------------------------------------------- signals


def test_the_signals_of_a_task_come_in_order():
    """Each signal is sent once, by the class of the backend, with the result of that moment."""
    seen = []
    signals = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}

    def listener(name):
        def listen(sender, task_result, **_):
            seen.append((name, sender, task_result.id, str(task_result.status), task_result.attempts))

        return listen

    listeners = {name: listener(name) for name in signals}
    for name, each in signals.items():
        each.connect(listeners[name])
    try:
        result = result_of(tasks.add.enqueue(1, 2))
    finally:
        for name, each in signals.items():
            each.disconnect(listeners[name])

    assert [
        ("enqueued", RedriveBackend, result.id, "READY", 0),
        ("started", RedriveBackend, result.id, "RUNNING", 1),
        ("finished", RedriveBackend, result.id, "SUCCESSFUL", 1),
    ] == seen


def test_the_end_of_tasks_is_logged_as_for_every_backend(caplog):
    """Django's own receivers log a failure as an error, with its traceback."""
    with caplog.at_level("INFO"):
        failed = result_of(tasks.once.enqueue("alas"))

    (entry,) = [each for each in caplog.records if each.levelname == "ERROR" and failed.id in each.getMessage()]
    assert ValueError is entry.exc_info[0]
