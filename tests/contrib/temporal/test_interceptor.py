"""The interceptor of Temporal, without a server: what an attempt tells Temporal."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, CancelledError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from redrive import observe
from redrive.clock import SystemClock
from redrive.contrib.temporal import PolicyInterceptor
from redrive.errors import Cancel, ConfigurationError, GiveUp, PolicySyntaxError, RetryAfter, Snooze
from redrive.policy import Backoff, History, Policy, Rule
from redrive.policy import GiveUp as Ends
from redrive.policy import Retry as Again

POLICY = Policy.parse("3 1s 10s")
NOW = SystemClock().now


class _Body(ActivityInboundInterceptor):
    def __init__(self) -> None:
        """Stand where Temporal calls the activity."""

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - as Temporal declares it
        """Call the function."""
        answer = input.fn(*input.args)
        return await answer if asyncio.iscoroutine(answer) else answer


def attempt(
    policy: Policy | str, function: Callable[..., Any], *args: object, number: int = 1, ago: float = 0, limit: int = 0
) -> Any:
    """Run one attempt at an activity ``charge`` that was scheduled so many seconds ago."""
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(
        environment.info,
        activity_type="charge",
        attempt=number,
        scheduled_time=NOW() - timedelta(seconds=ago),
        retry_policy=RetryPolicy(maximum_attempts=limit),
    )
    chain = PolicyInterceptor({"charge": policy}).intercept_activity(_Body())
    call = ExecuteActivityInput(fn=function, args=args, executor=None, headers={})
    return asyncio.run(environment.run(chain.execute_activity, call))


def refusal(policy: Policy | str, error: BaseException, **given: Any) -> ApplicationError:
    """Return what Temporal gets for an attempt that raises this error."""

    def charge() -> None:
        raise error

    with pytest.raises(ApplicationError) as raised:
        attempt(policy, charge, **given)
    return raised.value


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "error", [ConnectionError("down"), RetryAfter("7s", "busy"), GiveUp("stolen card"), KeyError("k")], ids=repr
)
def test_temporal_gets_what_the_policy_decides(error: Exception, number: int):
    """The delay of a retry, or an error that is not retried."""
    policy = POLICY.durable()
    now = NOW()
    decided = policy.decide(History(number, now), policy.classify(error), now, 0.5)

    told = refusal(POLICY, error, number=number)

    assert isinstance(decided, Ends) == told.non_retryable
    assert (decided.delay if isinstance(decided, Again) else None) == told.next_retry_delay
    assert (decided.rule,) == tuple(told.details)
    assert (type(error).__name__, error) == (told.type, told.__cause__)
    assert isinstance(decided, Again) or decided.why in told.message


def test_a_deadline_counts_from_the_first_schedule():
    """A wait that would pass the deadline is not begun."""
    policy = Policy(attempts=None, deadline="10s", backoff=Backoff.constant(4), jitter="none")

    assert timedelta(seconds=4) == refusal(policy, OSError(), ago=3).next_retry_delay
    late = refusal(policy, OSError(), ago=7, number=2)
    assert (True, ("deadline",)) == (late.non_retryable, tuple(late.details))


def test_a_delay_of_zero_is_a_delay():
    """Temporal takes zero for no answer, and would wait as its own policy says."""
    assert (
        timedelta(milliseconds=1)
        == refusal(Policy(backoff=Backoff.constant(0), deadline=None), OSError()).next_retry_delay
    )


def test_a_snooze_is_counted():
    """Temporal counts each attempt, so that a snooze is a retry at the time it asks for."""
    assert timedelta(minutes=5) == refusal(POLICY, Snooze("5m", "closed")).next_retry_delay
    assert refusal(POLICY, Snooze("5m", "closed"), number=4).non_retryable
    assert refusal(POLICY, Cancel("not wanted")).non_retryable


def test_what_the_activity_has_decided_stays():
    """Errors of Temporal with a decision pass; others are decided, and keep their type and details."""
    for error in (
        ApplicationError("no", non_retryable=True),
        ApplicationError("later", next_retry_delay=timedelta(hours=1)),
    ):
        assert error is refusal(POLICY, error)
    own = ApplicationError("busy", 7, type="Busy", category=ApplicationErrorCategory.BENIGN)
    told = refusal(POLICY, own)
    assert (timedelta(seconds=1), "Busy", (7,), "busy") == (
        told.next_retry_delay,
        told.type,
        told.details,
        told.message,
    )
    assert ApplicationErrorCategory.BENIGN is told.category
    assert refusal(POLICY, own, number=4).message.startswith("busy (")
    with pytest.raises(CancelledError):
        attempt(POLICY, lambda: (_ for _ in ()).throw(CancelledError("asked for")))


def test_a_result_can_be_rejected():
    """A policy with `on_result` retries results."""
    policy = Policy(on_result=lambda result: result == "pending", attempts=2, deadline=None)

    assert "paid" == attempt(policy, lambda: "paid")
    with pytest.raises(ApplicationError) as raised:
        attempt(policy, lambda: "pending")
    assert ("RejectedResult", False, None) == (raised.value.type, raised.value.non_retryable, raised.value.__cause__)
    with pytest.raises(ApplicationError, match="pending"):
        attempt(policy, lambda: "pending", number=2)


def test_a_result_that_only_a_part_rejects_may_be_accepted():
    """Of two policies that both have to give up, one that does not match does not count."""
    policy = Policy(on_result=lambda result: result == "pending", on=(), deadline=None) | Policy(
        on=OSError, deadline=None
    )

    with pytest.raises(ApplicationError):
        attempt(policy, lambda: "pending")
    assert 7 == attempt(policy, lambda: 7)


@pytest.mark.parametrize("field", ["on", "on_result"])
def test_a_function_of_a_policy_that_fails_ends_the_activity(field: str):
    """Its error is a defect of the code: Temporal would repeat the activity without a limit."""

    def broken(_: object) -> bool:
        raise ZeroDivisionError("a bug in a function")

    def charge() -> str:
        if field == "on":
            raise ConnectionError("down")
        return "paid"

    with pytest.raises(
        ApplicationError, match=r"the decision about this attempt failed: .*a bug in a function"
    ) as told:
        attempt(Policy(deadline=None, **{field: broken}), charge)
    assert (True, ("permanent",)) == (told.value.non_retryable, tuple(told.value.details))


def test_decisions_are_reported(caplog: pytest.LogCaptureFixture):
    """Hooks and events have the names and rules of redrive; a hook that fails changes nothing."""
    seen: list[tuple[Any, ...]] = []
    events: list[observe.Event] = []

    async def gave_up(details: Any) -> None:
        seen.append((details.function, details.args, details.attempt, details.rule, details.delay))
        raise ValueError("a bug in a hook")

    policy = POLICY.with_(on_retry=lambda details: seen.append((details.delay, str(details.error))), on_give_up=gave_up)
    with observe.only(events.append):
        refusal(policy, OSError("down"))
        refusal(policy, OSError("down"), number=4)

    assert [(timedelta(seconds=1), "down"), ("charge", (), 4, "attempts", None)] == seen
    assert [observe.CallRetryScheduled, observe.CallGaveUp] == [type(each) for each in events]
    assert "charge is retried in 1s (backoff): attempt 1 of 4 failed: OSError: down" == str(events[0])
    assert "activity charge: a hook of its policy failed" in caplog.text


def test_a_limit_of_the_workflow_is_refused():
    """A second limit would end the activity behind the policy's back: nothing is called."""
    called: list[int] = []
    with pytest.raises(ApplicationError, match="maximum_attempts=3, which would end it") as raised:
        attempt(POLICY, called.append, 1, limit=3)
    assert (True, []) == (raised.value.non_retryable, called)


def test_activities_without_a_policy_are_temporals(caplog: pytest.LogCaptureFixture):
    """Their errors are not touched; the log says so once for each name."""
    caplog.set_level(logging.INFO, "redrive.temporal")
    chain = PolicyInterceptor({"refund": POLICY}).intercept_activity(_Body())
    environment = ActivityEnvironment()
    call = ExecuteActivityInput(fn=lambda: 1 // 0, args=[], executor=None, headers={})
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            asyncio.run(environment.run(chain.execute_activity, call))
    assert 1 == caplog.text.count("has no policy of redrive: Temporal retries it")


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("3 1s catch refund", "catch= does not work on Temporal: catch the ActivityError in the workflow"),
        (POLICY.with_(rules=[Rule(OSError, attempts=9)]), "rules= does not work on Temporal"),
        (POLICY.with_(backoff=Backoff.decorrelated("1s", "9s"), jitter=None), "backoff= does not work on Temporal"),
        (POLICY.with_(attempt_timeout="3s"), "attempt_timeout= does not work on Temporal: set start_to_close"),
        (POLICY.with_(deadline="1h", over_deadline="defer"), "over_deadline= does not work on Temporal"),
        (POLICY.with_(idempotent=False), "idempotent= does not work on Temporal: Temporal repeats an activity"),
        (POLICY.with_(budget="shop"), "budget= does not work on Temporal"),
        (POLICY.with_(breaker="shop"), "breaker= does not work on Temporal"),
        (POLICY.with_(on=OSError) | POLICY.with_(idempotent=False, on=KeyError), "idempotent= does not work"),
        (POLICY.take(2) >> POLICY, "this combination of policies counts failures apart"),
        (7, "give a policy or a directive, not 7"),
    ],
)
def test_what_temporal_cannot_carry_is_refused(policy: Any, text: str):
    """The error names the activity, the field, and what to do instead."""
    with pytest.raises(ConfigurationError, match=text) as raised:
        PolicyInterceptor({"charge": policy})
    assert "'charge'" in str(raised.value)


@pytest.mark.parametrize("policies", [{}, "5 1s", {7: "5 1s"}, [("charge", "5 1s")]])
def test_policies_have_the_names_of_activities(policies: Any):
    """Anything else is refused where it is given."""
    with pytest.raises(ConfigurationError, match="'charge'|\"charge\""):
        PolicyInterceptor(policies)


def test_a_directive_that_cannot_be_read_is_refused():
    """At once, with the place."""
    with pytest.raises(PolicySyntaxError):
        PolicyInterceptor({"charge": "5 1parsec"})
