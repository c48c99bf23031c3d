"""Tasks as synchronous calls: here and now, under the caller's policy, which does not know what the callee does."""

from __future__ import annotations

import asyncio
import threading

import pytest

from redrive import App, Backoff, Pending, Policy
from redrive.errors import TaskDefinitionError
from redrive.testing import VirtualClock, using

QUICK = Policy(on=ConnectionError, attempts=3, backoff=Backoff.constant(0))
"""Three attempts, without waiting."""


@pytest.fixture
def app():
    """Return an app that stores no jobs."""
    app = App("memory://")
    yield app
    app.close()


def failing(times: int, error: Exception):
    """Return a function that fails a number of times, and the list of its calls."""
    calls: list[int] = []

    def charge(cents: int) -> int:
        calls.append(cents)
        if len(calls) <= times:
            raise error
        return cents

    return charge, calls


def test_a_direct_call_uses_the_callers_policy(app: App):
    """Calls use the caller's policy; that of the task is for its jobs."""
    charge, calls = failing(2, ConnectionError("no route"))
    task = app.task(retry="9 1s")(charge)

    assert 250 == task.call(250, policy=QUICK)
    assert [250] * 3 == calls


def test_the_last_error_is_the_functions_own(app: App):
    """It is raised unchanged, and there is no job."""
    charge, calls = failing(9, ConnectionError("no route"))
    task = app.task(charge)
    with pytest.raises(ConnectionError, match="no route"):
        task.call(250, policy=QUICK)

    assert (3, ()) == (len(calls), app.jobs.select())


def test_a_directive_is_a_policy_too(app: App):
    """Directives retry the exceptions that the policy of the task names."""
    charge, calls = failing(1, ConnectionError("no route"))
    task = app.task(retry=Policy(on=ConnectionError, attempts=9))(charge)
    with using(clock=VirtualClock()):
        assert 250 == task.call(250, policy="1 1s")

    assert 2 == len(calls)


@pytest.mark.parametrize("policy", ["1 1s", Policy(attempts=2)], ids=["directive", "policy"])
def test_every_exception_is_retried_where_neither_the_caller_nor_the_task_names_any(app: App, policy):
    """If neither policy names exceptions, calls retry every Exception, as jobs do."""
    charge, calls = failing(1, ConnectionError("no route"))
    with using(clock=VirtualClock()):
        assert 250 == app.task(charge).call(250, policy=policy)

    assert 2 == len(calls)


def test_a_policy_about_results_does_not_retry_exceptions(app: App):
    """Policies that name only results do not retry exceptions."""
    charge, calls = failing(1, ConnectionError("no route"))
    policy = Policy(attempts=2, backoff=Backoff.constant(0), on_result=lambda result: result is None)
    with pytest.raises(ConnectionError):
        app.task(charge).call(250, policy=policy)

    assert 1 == len(calls)


def test_the_parts_of_a_combined_policy_name_what_may_be_retried(app: App):
    """Combined policies keep the exceptions of their parts."""
    charge, calls = failing(9, ConnectionError("no route"))
    with pytest.raises(ConnectionError):
        app.task(charge).call(250, policy=QUICK & QUICK.take(1))

    assert 2 == len(calls)


def test_a_call_refuses_a_task_that_returns_pending(app: App):
    """Calls of tasks that return `Pending` raise an error, because no job can wait."""

    @app.task
    def charge() -> str | Pending:
        """Return Pending."""
        return Pending("1h")

    @app.task
    async def acharge() -> str | Pending:
        """Return Pending."""
        return Pending("1h")

    with pytest.raises(TaskDefinitionError, match=r"'charge' returned Pending.*enqueue it"):
        charge.call(policy=QUICK)
    with pytest.raises(TaskDefinitionError, match="'acharge' returned Pending"):
        asyncio.run(acharge.acall(policy=QUICK))


def test_a_coroutine_is_called_by_its_own_form(app: App):
    """Coroutine functions are called by acall() under the same policy; call() refuses them."""
    calls = []

    @app.task
    async def charge(cents: int) -> int:
        """Fail at first."""
        calls.append(cents)
        if len(calls) < 3:
            raise ConnectionError("no route")
        return cents

    assert 250 == asyncio.run(charge.acall(250, policy=QUICK))
    with pytest.raises(TaskDefinitionError, match=r"await charge\.acall"):
        charge.call(250, policy=QUICK)


def test_a_plain_function_awaited_runs_in_a_thread(app: App):
    """It does not block the loop."""
    seen = []

    @app.task
    def charge(cents: int) -> int:
        """Return the name of the thread."""
        seen.append(threading.current_thread() is threading.main_thread())
        return cents

    assert (250, [False]) == (asyncio.run(charge.acall(250, policy=QUICK)), seen)


def test_stop_iteration_of_a_plain_function_ends_its_call(app: App):
    """A future cannot carry it, so that its waiter would wait forever."""

    @app.task
    def first() -> int:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="the function raised StopIteration"):
        asyncio.run(first.acall(policy=QUICK))


class Unknown(ConnectionError):
    """An error after which the effect of the call is unknown."""


@pytest.mark.parametrize(
    ("options", "callers", "calls"),
    [
        ({"idempotent": True}, None, 3),
        ({"idempotent": True}, False, 3),
        ({"idempotent": False}, None, 1),
        ({"idempotent": False}, True, 1),
        ({}, None, 1),
        ({}, True, 1),
        ({"retry": Policy(idempotent=True)}, None, 3),
        ({"retry": Policy(idempotent=False)}, True, 1),
    ],
    ids=str,
)
def test_after_an_unknown_outcome_the_tasks_idempotence_decides(app: App, options, callers, calls):
    """After an unknown outcome a call is repeated only if the task is idempotent, whatever the caller allows."""
    policy = Policy(on="TIMEOUT", attempts=3, backoff=Backoff.constant(0), attempt_timeout=0.001, idempotent=callers)
    seen = []

    @app.task(**options)
    async def charge() -> None:
        """Never answer."""
        seen.append(None)
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        asyncio.run(charge.acall(policy=policy))

    assert calls == len(seen)


def test_the_time_limit_of_an_attempt_comes_from_the_task(app: App):
    """Callers that leave the time limit of an attempt open get that of the task."""

    @app.task(timeout="1ms", idempotent=True)
    async def charge() -> None:
        """Never answer."""
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError) as raised:
        asyncio.run(charge.acall(policy=Policy(on="TIMEOUT", attempts=2, backoff=Backoff.constant(0))))

    assert 2 == raised.value.__retry__.attempts


def test_a_parameter_with_the_reserved_name_is_refused(app: App):
    """Functions with a parameter ``policy`` are refused, and the message names the other call."""

    @app.task
    def insure(policy: str) -> str:
        """Take a policy of another kind."""
        return policy

    with pytest.raises(TaskDefinitionError, match="a parameter called 'policy'"):
        insure.call(policy=QUICK)
