"""A policy prepared for calls in this process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from math import inf
from typing import Any

from redrive.errors import PolicyValueError
from redrive.policy import History, Policy, Retry
from redrive.policy.classify import is_coroutine_function
from redrive.policy.decider import NO_WAIT, Wait
from redrive.policy.outcome import StopEvent
from redrive.policy.stage import is_lost
from redrive.retrying.own import OwnBudget

# The random sample of the longest delay.
_LONGEST = 1 - 2.0**-53
# More attempts than these, for more seconds than these, are those of a consumer that connects again and again.
_OFTEN, _LONG = 100, 3600.0
# The number of classes of exceptions, and of attempts for each of them, with a kept wait.
CLASSES_KEPT, WAITS_KEPT = 1024, 64

# The attributes of an exception that a decision reads; for the last one see `redrive.retrying.record.mark_spent`.
_READ = frozenset({"hint", "retry_after", "__redrive_spent__"})
# A class with one of these has other ways to them.
_LOOKED_UP = _READ | {"__cause__", "__dict__", "__getattr__", "__getattribute__"}


class _Local(OSError):
    """The class under which the waits of a bare `OSError` are kept that is no failure of the network."""


class Plan:
    """A policy prepared for calls of one function in this process."""

    def __init__(self, given: Policy, name: str, own: OwnBudget | None = None) -> None:
        policy = _in_process(given, name)
        self.given = given
        self.name = name
        #: The policy with the defaults of calls in process.
        self.policy = policy
        #: The deadline in seconds; None without one.
        self.limit: float | None = None if policy.deadline is None else policy.deadline.total_seconds()
        self._room = inf if self.limit is None else self.limit
        # For each class of exceptions, the wait after each number of attempts.
        self._waits: dict[type, dict[int, Wait]] = {}
        #: True if the user gave that deadline. Such a deadline cancels awaited attempts, and code below can read it
        #: from the first attempt on. The default deadline of 45 s only ends the retrying, and costs a successful
        #: call nothing.
        self.has_deadline: bool = given.deadline_given and self.limit is not None
        #: Seconds for one attempt; None for no limit.
        self.timeout: float | None = None if policy.attempt_timeout is None else policy.attempt_timeout.total_seconds()
        #: True if awaited attempts are cut off, by one of the two.
        self.is_bounded: bool = self.has_deadline or self.timeout is not None
        #: True if the policy ever calls again.
        self.retries: bool = policy.attempts != 1 or any(rule.attempts not in (None, 1) for rule in policy.rules)
        #: True if the call leaves a retry to an enclosing call that would make it (``nested="outer"``).
        self.outer_first: bool = policy.nested == "outer"
        #: True if the policy has ``on_result``.
        self.checks_results: bool = any(policy.predicates)
        #: True if the user has declared ``idempotent=False``, which then holds for calls around this one, too.
        self.once: bool = given.idempotent is False
        #: True if a classifier, a predicate or a hook is a coroutine function.
        self.awaits: bool = self._coroutine_function() is not None
        #: True if the policy has a budget or a circuit breaker.
        self.shares: bool = policy.budget is not None or policy.breaker is not None
        #: True if the policy has a hedge.
        self.hedged: bool = policy.hedge is not None
        #: True if the policy has ``on_retry`` or ``on_give_up``.
        self.has_hooks: bool = bool(policy.retry_hooks or policy.give_up_hooks)
        #: True if an awaited call needs more than its attempts: hooks, or a count of the requests for a cancellation.
        self.is_attended: bool = self.has_hooks or self.checks_results or self.awaits
        #: The event that ends the waits of calls; None without one.
        self.stop: StopEvent | None = policy.stop
        #: True if `quick` must not decide: a hook is called, or the event has a listener.
        self.is_slow: bool = self.has_hooks or self.stop is not None
        #: The budget of the function, policy object or transport, which several plans may share; None if the policy has
        #: ``budget``, also ``budget=None``, or never calls again, or as often as a consumer.
        self.own: OwnBudget | None = own or OwnBudget() if self._needs_budget() else None
        indirect = self.is_slow or self.shares or self.hedged or self.checks_results or self.awaits
        #: True if a call needs no preparation; the compiled wrapper then makes the first attempt itself.
        self.direct: bool = not self.is_bounded and not indirect

    def _needs_budget(self) -> bool:
        policy = self.policy
        # A consumer that connects again and again for days succeeds when it ends: nothing is paid back until then, and
        # its lost connections are no burst.
        is_often = policy.attempts is None or policy.attempts > _OFTEN
        is_consumer = is_often and (self.limit is None or self.limit > _LONG)
        return (self.retries or self.hedged) and not policy.budget_given and not is_consumer

    def quick(self, exception: BaseException, attempts: int, elapsed: float, roll: Callable[[], float]) -> float | None:
        """Return the seconds to wait in the common case, without building a history and a decision.

        None leaves the decision to `Policy.decide`.
        """
        try:
            low, spread = self._waits[type(exception)][attempts]
        except Exception:  # noqa: BLE001 - an unknown class, or one that cannot be hashed
            low, spread = self._learn(exception, attempts)
        try:
            own = exception.__dict__
            if exception.__cause__ is not None or (own and any(own[name] is not None for name in _READ & own.keys())):
                return None
        except Exception:  # noqa: BLE001 - whatever a property of the user's exception raises
            return None
        delay = low + roll() * spread if spread else low
        return delay if elapsed + delay < self._room else None

    def _learn(self, exception: BaseException, attempts: int) -> Wait:
        """Ask the policy for a wait, and keep it if it is one of the first."""
        kind = key = type(exception)
        if type(exception) is OSError:
            # Each one is looked at, so that nothing is kept under the class itself.
            if is_lost(exception):
                return NO_WAIT
            key = _Local
            kept = self._waits.get(key, {}).get(attempts)
            if kept is not None:
                return kept
        try:
            is_new = key not in self._waits
        except Exception:  # noqa: BLE001 - whatever its metaclass raises
            return NO_WAIT
        if is_new and len(self._waits) >= CLASSES_KEPT:
            # A program that makes classes on the fly must not fill the memory.
            self._waits.clear()
        wait = self.policy.wait_for(kind, attempts) if _is_plain(kind) else NO_WAIT
        if attempts <= WAITS_KEPT:
            self._waits.setdefault(key, {})[attempts] = wait
        return wait

    def refuse_hedge(self, kind: str) -> None:
        """Raise `PolicyValueError` if the policy has a hedge; ``kind`` describes the callable in the message."""
        if self.hedged:
            hedge = self.policy.hedge
            raise PolicyValueError(f"{self.name}: hedge={hedge!r}: hedging needs a coroutine function, this is {kind}")

    def _coroutine_function(self) -> str | None:
        """Return the first field that is a coroutine function, as ``field=function``."""
        named = [
            ("on", self.policy.on),
            *(("on_result", predicate) for predicate in self.policy.predicates),
            *(("on_retry", hook) for hook in self.policy.retry_hooks),
            *(("on_give_up", hook) for hook in self.policy.give_up_hooks),
        ]
        for field, function in named:
            if callable(function) and is_coroutine_function(function):
                return f"{field}={function!r}"
        return None

    def refuse_await(self, kind: str) -> None:
        """Raise `PolicyValueError` if a function of the policy is a coroutine function; ``kind`` cannot await it."""
        if self.awaits:
            raise PolicyValueError(
                f"{self.name}: {self._coroutine_function()} is a coroutine function, which {kind} cannot await: "
                "use def, or a form that awaits it: an async function under @redrive.retry, policy.acall or "
                "policy.aoutcome"
            )

    def repeats(self, now: datetime, elapsed: float, error: Exception | None, result: object) -> bool:
        """Return True if the policy retries this failure as the first one of its call, also after the longest delay.

        Return False where a classifier or a predicate is a coroutine function or raises.
        """
        if not self.retries or self.awaits:
            return False
        try:
            failure = self.policy.classify_result(result) if error is None else self.policy.classify(error)
        except Exception:  # noqa: BLE001 - the call that owns the policy raises it
            return False
        if failure is None:
            return False
        decision = self.policy.decide(History(1, now - timedelta(0, elapsed)), failure, now, _LONGEST)
        return isinstance(decision, Retry) and decision.rule != "deadline"

    def changed(self, changes: dict[str, Any]) -> Plan:
        """Return the plan of the changed policy; raise `PolicyValueError` if that has no sensible meaning."""
        return Plan(self.given.with_(**changes), self.name, self.own)


def _in_process(given: Policy, name: str) -> Policy:
    """Return a policy with the defaults of calls in process, or raise `PolicyValueError` if it makes no sense there."""
    try:
        policy = given.in_process()
    except PolicyValueError as error:
        raise PolicyValueError(f"{name}: {error}") from None
    if policy.catch is not None:
        why = "a catch task takes over durable jobs; in process, catch the exception"
        raise PolicyValueError(f"{name}: catch={policy.catch!r}: {why}")
    if policy.hedge is not None and not policy.idempotent:
        raise PolicyValueError(f"{name}: hedge={policy.hedge!r}: only a call with idempotent=True may be made twice")
    return policy


def _is_plain(kind: type[BaseException]) -> bool:
    """Return True if only its own dictionary can give an exception of a class the attributes that are read."""
    return all(_LOOKED_UP.isdisjoint(base.__dict__) for base in kind.__mro__[: -len(BaseException.__mro__)])


def name_of(function: Callable[..., Any]) -> str:
    """Return the qualified name of a callable, or its ``repr`` if it has no name."""
    name, module = getattr(function, "__qualname__", None), getattr(function, "__module__", None)
    if name is None:
        return repr(function)
    return f"{module}.{name}" if module else str(name)
