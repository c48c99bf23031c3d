"""The gate of single steps: which caller executes a step, and when it is tried again."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from redrive import App, RetryAfter
from redrive.app.flows.steps import Done, Execute, StepGuard
from redrive.errors import (
    ConfigurationError,
    JobNotFound,
    LeaseLost,
    PolicyError,
    StepBusy,
    StepExhausted,
    StepNotReady,
)
from redrive.testing import VirtualClock


@pytest.fixture
def job(app: App) -> int:
    """Return the id of a job."""
    return app.task(name="run")(lambda: None).enqueue().id


def given(app: App, job: int, name: str = "charge", **how: object) -> StepGuard:
    """Return the guard of a step."""
    answer = app.steps.acquire(job, name, **how)
    assert isinstance(answer, Execute)
    return answer.guard


def test_a_step_is_executed_once(app: App, job: int):
    """Steps that have succeeded answer their result, in both colours."""
    guard = given(app, job)
    guard.succeed({"receipt": [1, None]})

    assert "<the right to execute step 'charge' of job 1>" == repr(guard)
    assert Done({"receipt": [1, None]}) == app.steps.acquire(app.job(job), "charge")
    assert Done({"receipt": [1, None]}) == asyncio.run(app.steps.aacquire(job, "charge"))


def test_a_step_without_a_result_is_done(app: App, job: int):
    """Steps that return nothing have None as their result."""
    given(app, job).succeed()

    assert Done(None) == app.steps.acquire(job, "charge")


def test_a_failed_step_is_tried_again_by_its_policy(app: App, job: int, clock: VirtualClock):
    """Failed tries are repeated by the policy of the step, and the error names the next try."""
    due = given(app, job, policy="2 10s").fail(ConnectionError("reset"))
    with pytest.raises(StepNotReady, match="after 1 failed: reset") as early:
        app.steps.acquire(job, "charge", policy="2 10s")
    clock.advance(timedelta(seconds=20))
    again = given(app, job, policy="2 10s")

    assert (due, 1) == (early.value.retry_at, early.value.retry_count)
    assert (1, "charge", job) == (again.retry_count, again.name, again.job_id)


def test_the_present_time_can_be_given(app: App, job: int, clock: VirtualClock):
    """Times that are given replace those of the clock, for the due time and for the lease."""
    later = clock.now() + timedelta(days=3)
    guard = given(app, job, now=later, lease="1m", policy="3 1s")

    assert later + timedelta(minutes=1) == guard.lease_until
    assert later + timedelta(seconds=60 + 5) == guard.fail(RetryAfter("5s"), now=later + timedelta(minutes=1))


def test_a_report_counts_from_the_acquire_at_least(app: App, job: int, clock: VirtualClock):
    """A time before the acquire, as of a clock that is behind, stores no try that is due in the past."""
    before, minute = clock.now() - timedelta(hours=1), timedelta(minutes=1)
    guard = given(app, job, policy="3 1m 1m")
    guard.extend("1m", now=before)

    assert clock.now() + minute == guard.lease_until
    assert clock.now() + minute == guard.fail(OSError("reset"), now=before)
    with pytest.raises(StepNotReady) as early:
        app.steps.acquire(job, "charge")
    assert clock.now() + minute == early.value.retry_at


@pytest.mark.case("probe-12")
@pytest.mark.parametrize("seconds", [0.9, 1.9, 0.0])
def test_a_given_delay_is_kept_to_the_microsecond(app: App, job: int, clock: VirtualClock, seconds: float):
    """Delays that an error asks for are not rounded."""
    assert clock.now() + timedelta(seconds=seconds) == given(app, job, policy="3 1s").fail(RetryAfter(seconds))


def test_a_step_fails_for_good(app: App, job: int):
    """Without a policy the first failure is final, and a text always is."""
    last = given(app, job).fail(ValueError("no such card"))
    text = given(app, job, "ship", policy="9 1s").fail("no such address")

    assert (None, None) == (last, text)
    for name, error in (("charge", "no such card"), ("ship", "no such address")):
        with pytest.raises(StepExhausted, match=error):
            app.steps.acquire(job, name)


def test_a_caller_that_lost_its_step_changes_nothing(app: App, job: int, clock: VirtualClock):
    """Reports of a caller with a lease that has ended are refused once another caller has the step."""
    slow = given(app, job, lease="10s")
    with pytest.raises(StepBusy):
        app.steps.acquire(job, "charge")
    slow.extend("20s")
    clock.advance(timedelta(seconds=21))
    fast = given(app, job)

    for report in (lambda: slow.succeed(1), lambda: slow.fail("late"), slow.extend):
        with pytest.raises(LeaseLost):
            report()
    fast.succeed(2)
    assert Done(2) == app.steps.acquire(job, "charge")


def test_coroutines_report_in_their_own_colour(app: App, job: int):
    """Coroutines acquire, extend, fail and succeed without blocking their event loop."""

    async def use() -> object:
        first = await app.steps.aacquire(job, "charge", policy="3 0s")
        assert isinstance(first, Execute)
        await first.guard.aextend("1m")
        await first.guard.afail(ConnectionError("reset"))
        second = await app.steps.aacquire(job, "charge", policy="3 0s")
        assert isinstance(second, Execute)
        await second.guard.asucceed(7)
        return await app.steps.aacquire(job, "charge")

    assert Done(7) == asyncio.run(use())


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ({"job": "1"}, ConfigurationError, "a step belongs to a job or its id, got '1'"),
        ({"job": True}, ConfigurationError, "a step belongs to a job or its id, got True"),
        ({"job": 99}, JobNotFound, "there is no job 99"),
        ({"name": "3"}, ConfigurationError, "a step cannot be named '3'"),
        ({"lease": 0}, ConfigurationError, "lease is a time above zero"),
        ({"now": datetime(2026, 1, 1)}, ConfigurationError, "now is a datetime with a time zone"),  # noqa: DTZ001
        ({"policy": "often"}, PolicyError, "step 'charge'"),
    ],
)
def test_wrong_arguments_are_refused(app: App, job: int, how: dict[str, object], error: type[Exception], text: str):
    """Wrong arguments are one clear error, before anything is written."""
    arguments = {"job": job, "name": "charge"} | how
    with pytest.raises(error, match=text):
        app.steps.acquire(**arguments)

    assert 0 == given(app, job, "charge").retry_count


def test_only_an_exception_or_a_text_is_a_failure(app: App, job: int):
    """Other values are no failures."""
    with pytest.raises(ConfigurationError, match="an exception or a text, got 7"):
        given(app, job).fail(7)
