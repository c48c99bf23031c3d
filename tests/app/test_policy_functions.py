"""Tests of the functions of durable policies: predicates and hooks that a worker takes from the task."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive import App, Backoff, Context, Policy, RetryDetails
from redrive.clock import SystemClock
from redrive.errors import ConfigurationError
from redrive.policy import Failure
from redrive.testing import VirtualClock, drain

NOW = Backoff.constant("1s")


@pytest.fixture
def app():
    """Return an app in memory with a virtual clock."""
    return App("memory://", clock=VirtualClock())


def test_a_predicate_decides_on_the_exceptions_of_a_job(app):
    """Jobs are retried while the function in `on` returns True for the exception, and die with the first other one."""
    errors = [OSError("busy"), OSError("gone"), OSError("busy")]

    @app.task(retry=Policy(on=lambda error: "busy" in str(error), attempts=9, backoff=NOW, jitter="none"))
    def send() -> None:
        raise errors.pop(0)

    job = send.enqueue()
    drain(app)

    assert "dead" == job.state
    assert ["busy", "gone"] == [each.error for each in job.attempts]
    assert 1 == len(errors)


def test_a_predicate_may_name_the_reason_or_the_failure(app):
    """Functions in `on` may be async and may return a reason, which rules match, or a whole `Failure`."""
    answers = ["BUSY", Failure(("builtins.OSError",), "told", "TOLD", permanent="never")]

    async def read(error: BaseException) -> str | Failure:
        await SystemClock().asleep(0)
        return answers.pop(0)

    @app.task(retry=Policy(on=read, attempts=9, backoff=NOW))
    def send() -> None:
        raise OSError

    job = send.enqueue()
    drain(app)

    assert ["BUSY", "TOLD"] == [each.reason for each in job.attempts]
    assert "dead" == job.state


def test_rejected_results_are_failures_of_a_job(app):
    """Results that `on_result` rejects are retried, and the job succeeds with the first one that it accepts."""
    results = [1, 2, 3]

    @app.task(retry=Policy(on_result=lambda value: value < 3, attempts=9, backoff=NOW))
    def count() -> int:
        return results.pop(0)

    job = count.enqueue()
    drain(app)

    assert 3 == job.result()
    assert ["RESULT", "RESULT", None] == [each.reason for each in job.attempts]


def test_a_job_with_rejected_results_only_dies(app):
    """Jobs with a last result that is still rejected are dead, with the reason RESULT."""

    @app.task(retry=Policy(on=(), on_result=lambda value: True, attempts=2, backoff=NOW))
    def count() -> int:
        return 7

    job = count.enqueue()
    drain(app)

    assert "dead" == job.state
    assert ["result 7", "result 7"] == [each.error for each in job.attempts]


def test_a_broken_predicate_ends_the_job(app):
    """Predicates that raise are no reason to try again: the job dies, and its error names the predicate's."""

    def broken(error: BaseException) -> bool:
        raise LookupError("no table")

    @app.task(retry=Policy(on=broken, attempts=9, backoff=NOW))
    def send() -> None:
        raise OSError

    job = send.enqueue()
    drain(app)

    (attempt,) = job.attempts
    assert "the decision about this attempt failed: LookupError: no table" == attempt.error
    assert "dead" == job.state


def test_hooks_of_a_job_are_called_after_its_end_is_written(app):
    """`on_retry` and `on_give_up` get task, arguments, attempt, error and the delay that was written."""
    seen: list[RetryDetails] = []
    states = []

    async def give_up(details: RetryDetails) -> None:
        states.append(job.state)
        seen.append(details)

    @app.task(
        retry=Policy(
            attempts=2, backoff=Backoff.constant("5s"), jitter="none", on_retry=seen.append, on_give_up=give_up
        )
    )
    def send(ctx: Context, address: str) -> None:
        raise OSError(address)

    job = send.enqueue("a@b")
    drain(app)

    retry, end = seen
    assert ("send", {"address": "a@b"}, 1) == (retry.function, retry.kwargs, retry.attempt)
    assert timedelta(seconds=5) == retry.delay
    assert "a@b" == str(retry.error)
    assert (2, "attempts", "2 of 2 attempts failed", None) == (end.attempt, end.rule, end.why, end.delay)
    assert timedelta(seconds=5) == end.elapsed
    assert ["dead"] == states


def test_a_broken_hook_changes_no_job(app):
    """Exceptions of hooks are logged; the job is retried as its policy decided."""

    def broken(details: RetryDetails) -> None:
        raise LookupError

    @app.task(retry=Policy(attempts=2, backoff=NOW, on_retry=broken))
    def send() -> None:
        raise OSError

    job = send.enqueue()
    drain(app)

    assert 2 == len(job.attempts)


def test_functions_come_from_the_present_task(app):
    """Jobs keep the numbers of their policy and take the functions of the task that the worker has."""
    seen: list[RetryDetails] = []

    @app.task(retry=Policy(attempts=2, backoff=NOW, on_retry=seen.append))
    def send() -> None:
        raise OSError

    job = send.options(retry="3 1s").enqueue()
    drain(app)

    assert 4 == len(job.attempts)
    assert 3 == len(seen)


def test_functions_of_some_jobs_are_refused(app):
    """`options(retry=...)` refuses functions that the task does not have; those of the task may be repeated."""

    @app.task(retry=Policy(on=lambda error: True, attempts=2))
    def send() -> None:
        raise OSError

    send.options(retry=send.policy.with_(attempts=5))
    with pytest.raises(ConfigurationError, match="send: options.retry=.... has a function that the policy of the task"):
        send.options(retry=Policy(on=lambda error: False))


def test_combined_policies_have_their_functions(app):
    """The parts of a combination take the functions of the same parts of the task's policy."""
    seen: list[RetryDetails] = []
    results = [1, 2]

    @app.task(retry=Policy(on_result=lambda value: value < 2, backoff=NOW, on_retry=seen.append) >> Policy(backoff=NOW))
    def count() -> int:
        return results.pop(0)

    job = count.enqueue()
    drain(app)

    assert 2 == job.result()
    assert [1] == [each.value for each in seen]
