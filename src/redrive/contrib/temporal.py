"""A policy decides on the retries of Temporal's activities; Temporal keeps their state and waits.

::

    worker = Worker(
        client,
        task_queue="shop",
        activities=[charge],
        workflows=[Order],
        interceptors=[PolicyInterceptor({"charge": "5 1s 1m"})],
    )

After a failure Temporal gets an ``ApplicationError`` with the delay that the policy chose, or one that is not retried.
The retry policy of the workflow does not take part: leave it out, or leave its ``maximum_attempts`` at 0.

Nothing is carried from one attempt to the next but its number and the time at which the activity was scheduled. So a
policy that counts or remembers more is refused, and so is what has to act outside of the worker, as a catch.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from redrive.clock import SystemClock
from redrive.contrib import extra
from redrive.errors import ConfigurationError, RetryAfter, Snooze
from redrive.errors.foreign import summary, trace
from redrive.observe import CallGaveUp, CallRetryScheduled, emit
from redrive.observe.logs import Block, logger
from redrive.policy import Decision, Failure, GiveUp, History, Policy, Retry
from redrive.policy.duration import ZERO
from redrive.policy.outcome import Hook, RetryDetails
from redrive.runtime import rng

with extra("temporal"):
    from temporalio import activity
    from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, is_cancelled_exception
    from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

__all__ = ["PolicyInterceptor"]

log = logger("redrive.temporal")

_SHORTEST = timedelta(milliseconds=1)

# What Temporal does itself, or what no attempt can see of the others.
_REFUSED: tuple[tuple[str, Callable[[Policy], bool], str], ...] = (
    ("catch", lambda policy: policy.catch is not None, "catch the ActivityError in the workflow"),
    ("rules", lambda policy: bool(policy.rules), "the failures of each rule cannot be counted apart"),
    ("backoff", lambda policy: policy.backoff.draws, "the delay before is not known: use a backoff with jitter"),
    (
        "attempt_timeout",
        lambda policy: policy.attempt_timeout is not None,
        "set start_to_close_timeout in the workflow",
    ),
    ("over_deadline", lambda policy: policy.over_deadline != "give_up", "leave it out"),
    (
        "idempotent",
        lambda policy: policy.idempotent is False,
        "Temporal repeats an activity whose worker died: set maximum_attempts=1 in the workflow, without a policy",
    ),
    ("budget", lambda policy: policy.budget is not None, "it belongs to calls in this process"),
    ("breaker", lambda policy: policy.breaker is not None, "it belongs to calls in this process"),
    ("hedge", lambda policy: policy.hedge is not None, "it belongs to calls in this process"),
    ("stop", lambda policy: policy.stop is not None, "it belongs to calls in this process"),
)


class PolicyInterceptor(Interceptor):
    """Lets policies decide on the retries of activities; an interceptor of a worker of Temporal.

    Args:
        policies: for the name of each activity its policy, or a directive such as ``"5 1s 1m"``. Activities without
            one are retried as Temporal does it; so is one whose name is misspelt here, because an interceptor is not
            passed the activities of its worker. Its functions (``on``, ``on_result``, ``on_retry``, ``on_give_up``)
            are called in this worker.

    Raises:
        ConfigurationError: a policy needs what Temporal cannot carry, or has no name; the text says which field.
        PolicySyntaxError: a directive cannot be read.
    """

    def __init__(self, policies: Mapping[str, Policy | str]) -> None:
        if not isinstance(policies, Mapping) or not policies:
            raise ConfigurationError(
                'PolicyInterceptor takes the policies by the names of activities: {"charge": "5 1s"}'
            )
        self._policies = {name: _checked(name, given) for name, given in policies.items()}

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - its name
        """Put the policies around the activities of a worker; called by Temporal."""
        return _Activities(next, self._policies)


def _checked(name: object, given: Policy | str) -> Policy:
    if not isinstance(name, str):
        raise ConfigurationError(f"PolicyInterceptor: {name!r} is not the name of an activity, such as 'charge'")
    if not isinstance(given, Policy | str):
        raise ConfigurationError(f"PolicyInterceptor: activity {name!r}: give a policy or a directive, not {given!r}")
    policy = (Policy.parse(given) if isinstance(given, str) else given).durable()
    for part in _parts(policy):
        for field, needs, instead in _REFUSED:
            if needs(part):
                raise ConfigurationError(
                    f"PolicyInterceptor: activity {name!r}: a policy with {field}= does not work on Temporal: {instead}"
                )
    if policy.counters:
        raise ConfigurationError(
            f"PolicyInterceptor: activity {name!r}: this combination of policies counts failures apart, which Temporal "
            "does not carry from one attempt to the next"
        )
    return policy


def _parts(policy: Policy) -> Iterator[Policy]:
    yield policy
    for part in (policy.parts or ())[1:]:
        yield from _parts(part)


class _Activities(ActivityInboundInterceptor):
    """Runs activities, and tells Temporal what their policies decide."""

    def __init__(self, following: ActivityInboundInterceptor, policies: Mapping[str, Policy]) -> None:
        super().__init__(following)
        self._policies = policies
        self._unknown: set[str] = set()

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002, ANN401 - as Temporal declares it
        """Run one attempt at an activity."""
        info = activity.info()
        policy = self._policies.get(info.activity_type)
        if policy is None:
            if info.activity_type not in self._unknown:
                self._unknown.add(info.activity_type)
                log.info("activity %s has no policy of redrive: Temporal retries it", info.activity_type)
            return await super().execute_activity(input)
        limit = 0 if info.retry_policy is None else info.retry_policy.maximum_attempts
        if limit:
            raise ApplicationError(
                f"activity {info.activity_type!r} has a policy of redrive and maximum_attempts={limit}, which would "
                "end it before the policy does: leave maximum_attempts out where the workflow calls it",
                type="ConfigurationError",
                non_retryable=True,
            )
        value = error = None
        try:
            value = await super().execute_activity(input)
        except Exception as raised:
            if _is_decided(raised):
                raise
            error = raised
        now, history = SystemClock().now(), History(info.attempt, info.scheduled_time)
        failure, decision = _decide(policy, history, error, value, now)
        if failure is None or decision is None:
            return value
        details = RetryDetails(
            function=info.activity_type,
            args=tuple(input.args),
            kwargs={},
            attempt=info.attempt,
            error=error,
            value=value,
            failure=failure,
            delay=decision.delay if isinstance(decision, Retry) else None,
            rule=decision.rule,
            why=decision.why if isinstance(decision, GiveUp) else "",
            elapsed=now - info.scheduled_time,
        )
        _report(details, policy.remaining(history, failure) if details.delay is not None else None)
        await _call(policy.give_up_hooks if details.delay is None else policy.retry_hooks, details)
        raise _answer(details, failure) from error


def _decide(
    policy: Policy, history: History, error: Exception | None, value: object, now: datetime
) -> tuple[Failure | None, Decision | None]:
    """Ask a policy about an attempt that ended with an error or a value; None stands for a value that is accepted."""
    try:
        # Temporal counts each attempt, so that one which asks for another time is a failure with a hint.
        asked = RetryAfter(error.delay, str(error)) if isinstance(error, Snooze) else error
        failure = policy.classify_result(value) if asked is None else policy.classify(asked)
        if failure is None:
            return None, None
        decision = policy.decide(history, failure, now, rng.sample())
    except Exception as broken:  # noqa: BLE001 - a function of the user may raise anything
        why = f"the decision about this attempt failed: {summary(broken)}"
        return Failure.of(error or broken)._replace(permanent=why), GiveUp(why, "permanent")
    # A part of a combination may accept a value.
    accepts = error is None and isinstance(decision, GiveUp) and decision.rule == "not_matched"
    return (None, None) if accepts else (failure, decision)


def _is_decided(error: Exception) -> bool:
    """Return True for a cancellation, and for an error with which the activity itself has decided."""
    by_code = isinstance(error, ApplicationError) and (error.non_retryable or error.next_retry_delay is not None)
    return by_code or is_cancelled_exception(error)


def _report(details: RetryDetails, left: int | None) -> None:
    number = details.attempt
    common: dict[str, Any] = {
        "name": details.function,
        "failure": details.failure,
        "rule": details.rule,
        "elapsed": details.elapsed,
        "waited": ZERO,
    }
    if details.delay is None:
        emit(CallGaveUp(attempts=number, why=details.why, error=details.error, **common))
    else:
        most = None if left is None else number + left
        emit(CallRetryScheduled(attempt=number, max_attempts=most, delay=details.delay, **common))


async def _call(hooks: Iterable[Hook], details: RetryDetails) -> None:
    for hook in hooks:
        try:
            plain = not inspect.iscoroutinefunction(hook)
            answer = await asyncio.to_thread(hook, details) if plain else hook(details)
            if inspect.isawaitable(answer):
                await answer
        except Exception as error:  # noqa: BLE001 - the attempt has ended; a hook of the user changes nothing
            log.error("activity %s: a hook of its policy failed%s", details.function, Block(trace(error)))  # noqa: TRY400 - as a block


def _answer(details: RetryDetails, failure: Failure) -> ApplicationError:
    """Return what tells Temporal the decision; an ``ApplicationError`` of the activity keeps its type and details."""
    error, delay = details.error, details.delay
    own = error if isinstance(error, ApplicationError) else None
    text = failure.message if error is None else str(own.message if own else error)
    return ApplicationError(
        text if delay is not None else f"{text} ({details.why})",
        *(own.details if own else (details.rule,)),
        type=(own and own.type) or ("RejectedResult" if error is None else type(error).__name__),
        non_retryable=delay is None,
        # Temporal takes a delay of zero for none.
        next_retry_delay=None if delay is None else max(delay, _SHORTEST),
        category=own.category if own else ApplicationErrorCategory.UNSPECIFIED,
    )
