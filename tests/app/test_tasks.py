"""Registration of functions as tasks, and its errors at import."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from redrive import App, CatchRequest, Context, Policy, Task
from redrive.errors import ConfigurationError, PolicySyntaxError, PolicyValueError, TaskDefinitionError
from tests.app.samples import Opaque

HERE = __name__


def add(left: int, right: int = 1) -> int:
    """Add."""
    return left + right


def test_a_task_is_still_a_function(app: App):
    """Calling a task runs its function here and now, and makes no job."""
    task = app.task(add)

    assert 5 == task(2, right=3)
    assert () == app.jobs.select()


def test_an_async_task_is_still_a_coroutine_function(app: App):
    """Calling an ``async def`` task gives its coroutine."""

    @app.task
    async def double(number: int) -> int:
        """Double."""
        return 2 * number

    assert 4 == asyncio.run(double(2))


def test_a_task_keeps_the_metadata_of_its_function(app: App):
    """Tasks keep the name, the docstring and the module of their function."""
    task = app.task(add)

    assert ("add", "Add.", add) == (task.__name__, task.__doc__, task.__wrapped__)
    assert "<task add>" == repr(task)


def test_a_task_has_the_name_of_its_function_or_the_given_one(app: App):
    """Jobs name their task by it, so it can be chosen to outlive a renamed function."""
    assert "add" == app.task(add).name
    assert "sum" == app.task(name="sum")(add).name
    assert {"add", "sum"} == set(app.tasks)


def test_two_tasks_of_one_name_are_refused(app: App):
    """Second tasks of a name are refused with both places."""
    app.task(add)

    with pytest.raises(TaskDefinitionError) as refused:
        app.task(name="add")(test_a_task_is_still_a_function)

    expected = (
        f"two tasks are called 'add': {HERE}.add and {HERE}.test_a_task_is_still_a_function. "
        "Give one another name: @app.task(name=...)"
    )
    assert expected == str(refused.value)


def test_a_task_is_found_by_its_earlier_names(app: App):
    """Renamed tasks run the jobs that are stored under their earlier names."""
    task = app.task(name="total", aka=["add", "sum"])(add)

    assert [task, task, task, task, None] == [app.find(name) for name in ("total", "add", "sum", f"{HERE}.sum", "plus")]
    assert {"add", "sum", "total"} == app.served()
    assert {"total", "add", "sum"} == set(app.policies()) == set(app.keeps())


def test_catch_tasks_are_served_under_the_names_that_policies_use(app: App):
    """Catch tasks are served under the name with their module, because policies may use it."""

    def catches(request: CatchRequest[Any]) -> None:
        """Catch."""

    def later(request: NoSuchType) -> None:  # noqa: F821 - the subject
        """Name a type that does not exist."""

    catches.__module__ = "shop.recovery"
    app.task(catches)
    app.task(later)

    assert {"catches", "later", "recovery.catches", "shop.recovery.catches"} == app.served()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"name": "old"}, {"name": "new", "aka": "old"}),
        ({"name": "new", "aka": "old"}, {"name": "old"}),
        ({"name": "new", "aka": "old"}, {"name": "newer", "aka": "old"}),
    ],
    ids=["a task", "a later task", "two earlier names"],
)
def test_an_earlier_name_that_is_taken_is_refused(app: App, first, second):
    """Earlier names that another task has are refused."""
    app.task(**first)(add)

    with pytest.raises(TaskDefinitionError) as refused:
        app.task(**second)(test_a_task_is_still_a_function)

    expected = (
        f"two tasks are called 'old': {HERE}.add and {HERE}.test_a_task_is_still_a_function. "
        "Give one another name: @app.task(name=...), or leave it out of aka="
    )
    assert expected == str(refused.value)


@pytest.mark.parametrize("aka", ["add", "", ["sum", ""], ["sum", "sum"], [7], [None]])
def test_an_invalid_earlier_name_is_refused(app: App, aka):
    """Its own name, no text, and the same name twice are mistakes."""
    with pytest.raises(TaskDefinitionError, match="task 'add': aka= takes earlier names of the task"):
        app.task(aka=aka)(add)


def test_a_parameter_cannot_be_called_using(app: App):
    """``using=`` is what enqueue() takes itself."""
    with pytest.raises(TaskDefinitionError, match="a parameter cannot be called 'using'"):

        @app.task
        def send(using: str) -> None:
            """Collide."""


@pytest.mark.parametrize("candidate", ["5 1s", 7, None.__class__, Opaque()])
def test_only_functions_are_tasks(app: App, candidate):
    """Directives in the place of the function are refused with the right form."""
    with pytest.raises(TaskDefinitionError, match=r"is no function; a task is made by @app.task or @app.task\(retry="):
        app.task(candidate)


def test_without_a_directive_a_failure_is_final(app: App):
    """Tasks without retry= have one attempt, and their jobs may run again after a crash."""
    policy = app.task(add).policy

    assert (1, True, None) == (policy.attempts, policy.idempotent, policy.attempt_timeout)


def test_the_options_of_a_task_are_those_of_its_jobs(app: App):
    """Queue, priority, timeout, idempotence and policy reach the job's row."""
    task = app.task(retry="3 1s", queue="sums", timeout="30s", priority=7, idempotent=False)(add)
    record = task.enqueue(1).record

    assert ("sums", 7) == (record.queue, record.priority)
    assert (4, timedelta(seconds=30), False) == (
        record.policy.attempts,
        record.policy.attempt_timeout,
        record.policy.idempotent,
    )


def test_a_policy_may_be_given_as_a_value(app: App):
    """Policies may be given as values."""
    task = app.task(retry=Policy(attempts=7, on=ConnectionError))(add)

    assert (7, ("builtins.ConnectionError",), True) == (task.policy.attempts, task.policy.on, task.policy.idempotent)


def test_a_policy_keeps_its_own_idempotence(app: App):
    """``idempotent=False`` in the policy is not overruled by the default of the decorator."""
    assert False is app.task(retry=Policy(attempts=2, idempotent=False))(add).policy.idempotent


def test_a_directive_that_cannot_be_read_names_the_function(app: App):
    """Invalid directives are refused with the function, the text and a caret under the error."""
    with pytest.raises(PolicySyntaxError) as refused:
        app.task(retry="5 1parsec")(add)

    first, text, caret, *_ = str(refused.value).splitlines()
    assert first.startswith(f"task {HERE}.add: ")
    assert "    5 1parsec" == text
    assert ("5 1parsec", 3) == (refused.value.text, refused.value.at)
    assert refused.value.problem in first
    assert text.index("parsec") == caret.index("^")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"retry": "0 5s"}, "task .*add: "),
        ({"timeout": 0}, "task .*add: attempt_timeout"),
        ({"timeout": "soon"}, "task .*add: "),
        ({"timeout": -1}, "task .*add: "),
    ],
)
def test_an_invalid_policy_names_the_function(app: App, options, why):
    """Policies with impossible values are refused at import, with the function's name."""
    with pytest.raises((PolicyValueError, PolicySyntaxError), match=why):
        app.task(**options)(add)


def test_a_policy_that_cannot_be_stored_is_refused_at_import(app: App):
    """Policies with a budget that has no key are refused, because a job cannot store it."""
    with pytest.raises(PolicyValueError, match="budget"):
        app.task(retry=Policy(attempts=2, budget=object()))(add)


def test_a_context_is_given_and_not_enqueued(app: App):
    """Parameters annotated with Context are no arguments of enqueue()."""

    @app.task
    def send(number: int, context: Context) -> None:
        """Take a context."""

    assert ("number",) == send.signature.payload
    send.enqueue(7)
    assert 1 == app.jobs.stats().due


def test_the_type_of_a_task_may_leave_out_the_parameters_of_its_plain_call():
    """Types with three parts, evaluated by the program, are those of a task without a context."""
    assert ([int], str, str, [int]) == _parts(Task[[int], str, str])
    assert ([int], str, str, [Context, int]) == _parts(Task[[int], str, str, [Context, int]])


def _parts(kind: Any) -> tuple[Any, ...]:
    return tuple(list(part) if isinstance(part, tuple) else part for part in kind.__args__)


@pytest.mark.parametrize(("heartbeat", "lease"), [("0s", "15s"), ("5s", "9s"), ("5s", "0s")])
def test_lease_terms_that_would_lose_jobs_of_a_live_worker_are_refused(heartbeat, lease):
    """Leases must last at least two heartbeats, and heartbeats must be positive."""
    with pytest.raises(ConfigurationError, match=r"heartbeat_every"):
        App("memory://", heartbeat_every=heartbeat, lease_for=lease)
