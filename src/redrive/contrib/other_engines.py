"""What the adapters of other engines for tasks have in common: `redrive.contrib.celery`, `redrive.contrib.dramatiq`."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from redrive.errors import ConfigurationError, PolicyError, PolicyValueError
from redrive.errors.foreign import summary, trace
from redrive.observe.logs import Block
from redrive.policy import Decision, Defer, Failure, GiveUp, History, Policy, Retry, Stage
from redrive.policy.breaker import NOT_COUNTED
from redrive.policy.carried import CarriedAttempt
from redrive.policy.classify import described, refuse_coroutine_function
from redrive.policy.duration import ZERO
from redrive.policy.outcome import RetryDetails
from redrive.retrying.circuit_breaker import Permit
from redrive.retrying.shared import SharedBreaker, resolve

__all__ = ["SHORT", "CatchRequest", "Permission", "argument_of", "call_hooks", "decide", "policy_of"]

T = TypeVar("T")

SHORT = timedelta(milliseconds=50)
"""A message that comes this much before it is due waits in its worker, because another one would take as long."""

TEXT = 4_000
"""Characters of the last error in a `CatchRequest`."""

_HOOKS = ("on", "on_result", "on_retry", "on_give_up")
_SHARED = ("budget", "breaker", "hedge")


@dataclass(frozen=True)
class CatchRequest(Generic[T]):
    """The argument of a catch task.

    Attributes:
        task: name of the task that gave up.
        request: its argument; a mapping of names if it takes several.
        error: its last error.
        attempts: the last 20 attempts, oldest first.
        task_id: the id of the task that gave up. The id of the catch task is the same with ``-catch`` behind it.
    """

    task: str
    request: T
    error: str
    attempts: tuple[CarriedAttempt, ...]
    task_id: str

    def to_dict(self) -> dict[str, Any]:
        """Return the request as the argument of a message."""
        return {**vars(self), "attempts": [each.to_list() for each in self.attempts]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CatchRequest[Any]:
        """Build the request from the result of `to_dict`."""
        return cls(**{**data, "attempts": tuple([CarriedAttempt.from_list(each) for each in data["attempts"]])})


def argument_of(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    """Return the argument of a task; a mapping of names if it takes several, or none."""
    try:
        given = dict(signature.bind(*args, **kwargs).arguments)
    except TypeError:  # the task does not take its arguments, which is its failure
        return {"args": list(args), **kwargs}
    return next(iter(given.values())) if len(signature.parameters) == len(given) == 1 else given


def policy_of(given: object, name: str) -> Policy:
    """Return the policy that the option ``retry`` of a task stands for.

    Args:
        given: a policy or a directive.
        name: the task with its kind, such as ``task shop.charge``, for errors.

    Raises:
        PolicySyntaxError: the directive cannot be read.
        PolicyValueError: a function of the policy is a coroutine function, or a shared limit has no key.
        ConfigurationError: it is neither a policy nor a directive.
    """
    if not isinstance(given, str | Policy):
        raise ConfigurationError(f"{name}: retry={given!r} is neither a policy nor a directive such as '5 1s 10m'")
    try:
        policy = (Policy.parse(given) if isinstance(given, str) else given).durable()
        _check(policy)
    except PolicyError as error:
        raise error.within(name) from error
    return policy


def _check(policy: Policy) -> None:
    for part in () if policy.parts is None else policy.parts[1:]:
        _check(part)
    for field in _HOOKS:
        refuse_coroutine_function(getattr(policy, field), field)
    for field in _SHARED:
        value = getattr(policy, field)
        if not isinstance(value, str | None) and (field != "budget" or policy.budget_given):
            raise PolicyValueError(
                f"{field}={value!r} belongs to one process: register it under a key, and name the key"
            )


class Permission:
    """The permission to make an attempt; also that of a policy without a breaker."""

    def __init__(self, breaker: SharedBreaker | None = None, permit: Permit | None = None) -> None:
        self._breaker, self._permit = breaker, permit

    @classmethod
    def of(cls, policy: Policy | None, name: str) -> Permission:
        """Ask the breaker of a policy. Each process has breakers of its own.

        Raises:
            CircuitOpen: it refuses.
            PolicyValueError: no breaker is registered under the key of the policy.
        """
        if policy is None or policy.breaker is None:
            return cls()
        _, breaker = resolve(policy, name)
        assert breaker is not None  # the policy names one
        return cls(breaker, breaker.circuit.admit())

    def succeeded(self) -> None:
        """Report a success."""
        permit = self._take()
        if permit is not None:
            permit.succeeded()

    def failed(self, error: Exception | None, failure: Failure, decision: Decision) -> None:
        """Report a failure. One that the policy would not retry is an answer, as in `redrive.runtime.breakers`."""
        permit = self._take()
        if permit is not None and self._breaker is not None:
            counts = self._breaker.counts
            counted = not (isinstance(decision, GiveUp) and decision.rule in NOT_COUNTED)
            failed = counted if counts is None or error is None else counts(error)
            permit.report(failed=failed, answered=failure.stage is Stage.ANSWERED)

    def close(self) -> None:
        """Report that the attempt has neither succeeded nor failed, unless it has reported already."""
        permit = self._take()
        if permit is not None:
            permit.dropped()

    def _take(self) -> Permit | None:
        permit, self._permit = self._permit, None
        return permit


def decide(
    policy: Policy, history: History, failure: Failure, error: BaseException | None, *, now: datetime, sample: float
) -> tuple[Failure, Retry | GiveUp]:
    """Ask a policy about a failed attempt. Return the failure as its classifier describes it, and the decision.

    Args:
        policy: the policy.
        history: the history that decides about this attempt.
        failure: the failure, as an attempt of a job describes it.
        error: the exception; None if a result was rejected.
        now: the instant of the decision.
        sample: the random sample of the attempt.
    """
    try:
        if error is not None and callable(policy.on) and failure.permanent is None:
            found = described(error, policy.on(error), failure.stage)  # type: ignore[arg-type] # refused if async
            failure = found._replace(reason=failure.reason if found.reason == "ERROR" else found.reason)
        decision = policy.decide(history, failure, now, sample)
    except Exception as broken:  # noqa: BLE001 - a function of the user may raise anything
        why = f"the decision about this attempt failed: {summary(broken)}"
        return failure._replace(permanent=why), GiveUp(why, "permanent")
    if isinstance(decision, Defer):
        decision = Retry(decision.at - now, ZERO, decision.rule)
    return failure, decision


def call_hooks(policy: Policy, details: RetryDetails, task_id: str, log: logging.Logger) -> None:
    """Call the hooks of a policy after a decision; log an error of one."""
    for hook in policy.give_up_hooks if details.delay is None else policy.retry_hooks:
        try:
            hook(details)
        except Exception as broken:  # noqa: BLE001 - the attempt has ended; a hook of the user changes nothing
            why = "%s[%s]: a hook of its policy failed%s"
            log.error(why, details.function, task_id, Block(trace(broken)))  # noqa: TRY400 - each record is one entry
