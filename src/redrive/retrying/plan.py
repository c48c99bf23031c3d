"""What is known of a retried call before it is made: the policy as it applies in process, and the name to report."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from redrive.errors import PolicyValueError
from redrive.policy import History, Policy, Retry
from redrive.policy.classify import is_coroutine_function

__all__ = ["Plan", "name_of", "thorough"]

_LATEST = 1 - 2.0**-53  # the sample of the longest wait
_DURABLE = {
    "catch": "a catch task takes over durable jobs; in process, catch the exception",
}


class Plan:
    """A policy made ready for calls in process.

    A deadline has two strengths. One that was given is a promise: async attempts are cut off by it, and tasks and
    threads below can read it from the first attempt on. The 45 s that apply where none was given are a net: no retry is
    begun after them, and a call that succeeds pays nothing for them.

    Args:
        given: the policy as the user wrote it.
        name: qualified name of the function, for messages.

    Attributes:
        given: as above; overrides are found by it.
        name: as above.
        policy: the policy with the defaults of a call in process.
        quick: its `Policy.quick`.
        limit: its deadline in seconds, or None.
        promised: whether that deadline was given.
        timeout: seconds for one attempt, or None.
        retries: whether it ever calls again.
        yields: whether it leaves the retrying to a retrying call above.
        judges: whether it judges results.
        awaits: whether a classifier or a predicate of it is a coroutine function.
        shares: whether it names a budget or a breaker.
        hedged: whether it names a hedge.
        direct: whether a call needs no preparation: then the compiled wrapper makes the first attempt itself.

    Raises:
        PolicyValueError: the policy does not say what may be retried, or asks for something that calls in process do
            not have, or for hedges of a call that is not idempotent; the message names the function.
    """

    __slots__ = (
        "awaits",
        "direct",
        "given",
        "hedged",
        "judges",
        "limit",
        "name",
        "policy",
        "promised",
        "quick",
        "retries",
        "shares",
        "timeout",
        "yields",
    )

    def __init__(self, given: Policy, name: str) -> None:
        try:
            policy = given.in_process()
        except PolicyValueError as error:
            raise PolicyValueError(f"{name}: {error}") from None
        for field, why in _DURABLE.items():
            if getattr(policy, field) is not None:
                raise PolicyValueError(f"{name}: {field}={getattr(policy, field)!r}: {why}")
        if policy.hedge is not None and not policy.idempotent:
            raise PolicyValueError(
                f"{name}: hedge={policy.hedge!r}: only a call with idempotent=True may be made twice"
            )
        self.given = given
        self.name = name
        self.policy = policy
        self.quick = policy.quick
        self.limit = None if policy.deadline is None else policy.deadline.total_seconds()
        self.promised = given.deadline_given and self.limit is not None
        self.timeout = None if policy.attempt_timeout is None else policy.attempt_timeout.total_seconds()
        self.retries = policy.attempts != 1 or any(rule.attempts not in (None, 1) for rule in policy.rules)
        self.yields = policy.nested == "outer"
        self.judges = any(policy.predicates)
        self.awaits = self._coroutine_function() is not None
        self.shares = policy.budget is not None or policy.breaker is not None
        self.hedged = policy.hedge is not None
        indirect = self.shares or self.hedged or self.judges or self.awaits
        self.direct = not self.promised and self.timeout is None and not indirect

    def refuse_hedge(self, kind: str) -> None:
        """Fail where hedging means nothing.

        Args:
            kind: what is called, for the message.

        Raises:
            PolicyValueError: the policy has a hedge.
        """
        if self.hedged:
            hedge = self.policy.hedge
            raise PolicyValueError(f"{self.name}: hedge={hedge!r}: hedging needs a coroutine function, this is {kind}")

    def _coroutine_function(self) -> str | None:
        """Return the first field that is a coroutine function, as it was written."""
        named = [("on", self.policy.on), *(("on_result", predicate) for predicate in self.policy.predicates)]
        for field, function in named:
            if callable(function) and is_coroutine_function(function):
                return f"{field}={function!r}"
        return None

    def refuse_await(self, kind: str) -> None:
        """Fail where a classifier or a predicate that is a coroutine function cannot be awaited.

        Args:
            kind: what is called, for the message.

        Raises:
            PolicyValueError: the policy has one.
        """
        if self.awaits:
            raise PolicyValueError(
                f"{self.name}: {self._coroutine_function()} is a coroutine function, which {kind} cannot await: "
                "use def, or a form that awaits it: an async function under @redrive.retry, policy.acall or "
                "policy.aoutcome"
            )

    def repeats(self, now: datetime, elapsed: float, error: Exception | None, result: object) -> bool:
        """Return True if the policy retries a failure that is the first one of its call, however long the wait is.

        A classifier or a predicate that is a coroutine function cannot be asked here: the answer is False then, as it
        is where one of them raises.

        Args:
            now: the present instant.
            elapsed: seconds since the start of the call.
            error: what was raised; None if a result was rejected.
            result: the result, without an error.
        """
        if not self.retries or self.awaits:
            return False
        try:
            failure = self.policy.classify_result(result) if error is None else self.policy.classify(error)
        except Exception:  # noqa: BLE001 - it is raised where the policy is asked by its own call
            return False
        if failure is None:
            return False
        decision = self.policy.decide(History(1, now - timedelta(0, elapsed)), failure, now, _LATEST)
        return isinstance(decision, Retry) and decision.rule != "deadline"

    def changed(self, changes: dict[str, Any]) -> Plan:
        """The same plan under a changed policy.

        Raises:
            PolicyValueError: the changed policy would mean nothing sensible.
        """
        return Plan(self.given.with_(**changes), self.name)


def thorough(*_: object) -> None:
    """In place of `Plan.quick` for a call of which every failure is to be looked at."""


def name_of(function: Callable[..., Any]) -> str:
    """The qualified name of a callable, or what can be said of it."""
    name, module = getattr(function, "__qualname__", None), getattr(function, "__module__", None)
    if name is None:
        return repr(function)
    return f"{module}.{name}" if module else str(name)
