"""What calls share: budgets, circuit breakers and hedging plans, by key.

A policy is a value and holds no state, so it names what it shares: ``Policy(budget="payments")``. What stands behind
the name is registered once in the process::

    redrive.retrying.budget("payments", RatioBudget(0.1))

All policies that name it draw on the same budget, whatever functions they sit on and whatever threads and tasks call
them. Name the *target*, not the function: what must not be overwhelmed is the service behind it.

The keys are looked up when a call is made, not when a function is decorated, so that the order of imports does not
matter; a key that nobody registered is an error of the first call. Registering the same thing twice is fine (a module
may be reloaded), registering another under the same key is not. Instead of a key a policy may hold what these
functions return.

Everything here is guarded by locks that are held for a few additions and never while something waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import Lock
from typing import Any, Generic, TypeVar

from redrive.clock import Clock
from redrive.errors import PolicyValueError
from redrive.policy import Failure
from redrive.policy.breaker import BreakerSettings
from redrive.policy.budget import Budget, Ledger
from redrive.policy.classify import refuse_coroutine_function
from redrive.retrying.circuit_breaker import CircuitBreaker
from redrive.retrying.context import SCOPE, SYSTEM
from redrive.retrying.hedging import Hedge

__all__ = ["SharedBreaker", "SharedBudget", "breaker", "budget", "hedge", "isolated", "resolve"]

T = TypeVar("T")


class SharedBudget:
    """A budget and what its callers have seen of it so far.

    Args:
        budget: its numbers.
        key: its name, for messages.
        ledger: where it begins; by default it has seen nothing.

    Attributes:
        abandoned: of calls that were left without a word, whether a retry was in flight and whether they had begun.
    """

    def __init__(self, budget: Budget, key: str = "", *, ledger: Ledger | None = None) -> None:
        if not isinstance(budget, Budget):
            raise PolicyValueError(
                f"{budget!r} is not a budget: give a RatioBudget(...) or another of redrive.retrying"
            )
        self.budget = budget
        self.key = key
        self.abandoned: deque[tuple[bool, bool]] = deque()
        self._ledger = ledger or budget.open()
        self._lock = Lock()

    @property
    def left(self) -> float:
        """How much there is now: tokens, or retries."""
        now = _now()
        with self._lock:
            return self._current(now).left(now)

    def _current(self, now: float) -> Ledger:
        """The ledger, after those calls that were left without a word."""
        while self.abandoned:
            release, end = self.abandoned.popleft()
            if release:
                self._ledger.release(now)
            if end:
                self._ledger.end(now)
        return self._ledger

    def begin(self, now: float) -> None:
        """A call begins; see `redrive.policy.budget`, for the others too."""
        with self._lock:
            self._current(now).begin(now)

    def spend(self, now: float, failure: Failure | None, *, release: bool) -> float | None:
        """A retry is wanted; ``release`` says that the one before has ended."""
        with self._lock:
            ledger = self._current(now)
            if release:
                ledger.release(now)
            return ledger.spend(now, failure)

    def settle(self, now: float, *, ok: bool | None, price: float | None, release: bool, end: bool) -> None:
        """A call, or one copy of it, is over.

        Args:
            now: the present instant.
            ok: whether it succeeded; None if that is not known or was counted already.
            price: of its last retry, if it had one.
            release: whether a retry of it was in flight.
            end: whether it was the copy that began the call.
        """
        with self._lock:
            ledger = self._current(now)
            if release:
                ledger.release(now)
            if ok is True:
                ledger.succeed(now, price)
            elif ok is False:
                ledger.fail(now)
            if end:
                ledger.end(now)

    def __repr__(self) -> str:
        return f"SharedBudget({self.budget!r}, {self.key!r})"


class SharedBreaker:
    """A circuit breaker of calls: it refuses them all while too many fail.

    Args:
        settings: when it opens and how it recovers.
        key: its name, for messages.
        counts: which errors are failures of the target; by default those that the policy would retry.
    """

    def __init__(
        self,
        settings: BreakerSettings | None = None,
        key: str = "",
        *,
        counts: Callable[[BaseException], bool] | None = None,
    ) -> None:
        self.settings = settings or BreakerSettings()
        if self.settings.canary != "request":
            raise PolicyValueError("a breaker of calls has no probe of its own: canary='request'")
        refuse_coroutine_function(counts, "counts")
        self.key = key
        self.counts = counts
        self.circuit = CircuitBreaker(self.settings, clock=_InForce())

    def __repr__(self) -> str:
        return f"SharedBreaker({self.settings!r}, {self.key!r})"


class _InForce:
    """The clock of whoever asks: a breaker is made once, and tests bring their own time."""

    def now(self) -> datetime:
        return _clock().now()

    def monotonic(self) -> float:
        return _clock().monotonic()

    def sleep(self, seconds: float) -> None:
        _clock().sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        await _clock().asleep(seconds)


def _clock() -> Clock:
    scope = SCOPE.get()
    return SYSTEM if scope is None else scope.clock


def _now() -> float:
    return _clock().monotonic()


# ------------------------------------------------------------------------------------------------------------ registry


class Registry(Generic[T]):
    """Things of one kind, by key.

    Args:
        kind: the field of a policy that names them, which is also the function that registers them.
        type: of the things.
    """

    def __init__(self, kind: str, type: type[T]) -> None:  # noqa: A002 - it is one
        self.kind = kind
        self._type = type
        self._found: dict[str, tuple[object, T]] = {}
        self._lock = Lock()

    def register(self, key: str, given: object, make: Callable[[], T]) -> T:
        """Put something under a key, or find it there.

        Args:
            key: its name.
            given: what it is made from; equal things may be registered twice.
            make: makes it.

        Raises:
            PolicyValueError: the key is no text, or it names something else.
        """
        if not isinstance(key, str) or not key:
            raise PolicyValueError(f"{key!r} is no key: the name of a {self.kind} is a text")
        with self._lock:
            if key not in self._found:
                self._found[key] = (given, make())
            known, found = self._found[key]
        if known != given:
            raise PolicyValueError(f"the {self.kind} {key!r} is registered already, as {known!r}")
        return found

    def resolve(self, value: object, policy: object, name: str) -> T | None:
        """What the field of a policy stands for.

        Args:
            value: of the field.
            policy: the policy, for messages.
            name: of the function that is called, for messages.

        Raises:
            PolicyValueError: nothing is registered under the key, or the value is neither key nor thing.
        """
        if value is None or isinstance(value, self._type):
            return value
        found = self._found.get(value) if isinstance(value, str) else None
        if found is None:
            keys = ", ".join(repr(key) for key in sorted(self._found)) or "none"
            raise PolicyValueError(
                f"{name}: {self.kind}={value!r} is not registered (known: {keys}); register it with "
                f"redrive.retrying.{self.kind}({value!r}, ...). The policy is {policy!r}"
            )
        return found[1]

    def swap(self, found: dict[str, tuple[object, T]]) -> dict[str, tuple[object, T]]:
        """Put other contents in place, and return those that were there."""
        with self._lock:
            before, self._found = self._found, found
            return before


_BUDGETS = Registry("budget", SharedBudget)
_BREAKERS = Registry("breaker", SharedBreaker)
_HEDGES = Registry("hedge", Hedge)
_ALL: tuple[Registry[Any], ...] = (_BUDGETS, _BREAKERS, _HEDGES)


def budget(key: str, budget: Budget) -> SharedBudget:
    """Register a retry budget for the whole process.

    Args:
        key: the name by which policies share it: ``Policy(budget="payments")``.
        budget: its numbers, such as ``RatioBudget(0.1)``.

    Returns:
        The shared budget, whose ``left`` says how much there is.

    Raises:
        PolicyValueError: the key names another budget already, or this is no budget.
    """
    return _BUDGETS.register(key, budget, lambda: SharedBudget(budget, key))


def breaker(
    key: str, settings: BreakerSettings | None = None, *, counts: Callable[[BaseException], bool] | None = None
) -> SharedBreaker:
    """Register a circuit breaker for the whole process. It counts calls, not attempts.

    Args:
        key: the name by which policies share it: ``Policy(breaker="payments")``.
        settings: when it opens and how it recovers.
        counts: which errors are failures of the target; by default those that the policy would retry.

    Returns:
        The shared breaker; ``circuit.status`` is what it does with callers now, ``circuit.reset()`` begins anew.

    Raises:
        PolicyValueError: the key names another breaker already.
    """
    settings = settings or BreakerSettings()
    return _BREAKERS.register(key, (settings, counts), lambda: SharedBreaker(settings, key, counts=counts))


def hedge(key: str, hedge: Hedge) -> Hedge:
    """Register a hedging plan for the whole process, so that a policy that is stored can name it.

    Args:
        key: the name: ``Policy(hedge="reads")``.
        hedge: the plan. It has no state, and a policy may also hold it itself.

    Raises:
        PolicyValueError: the key names another plan already, or this is none.
    """
    if not isinstance(hedge, Hedge):
        raise PolicyValueError(f"{hedge!r} is no hedging plan: give a Hedge(...)")
    return _HEDGES.register(key, hedge, lambda: hedge)


def resolve(policy: Any, name: str) -> tuple[SharedBudget | None, SharedBreaker | None]:
    """The budget and the breaker of a policy.

    Raises:
        PolicyValueError: a key that nobody registered; the message names the function, the policy and the known keys.
    """
    return _BUDGETS.resolve(policy.budget, policy, name), _BREAKERS.resolve(policy.breaker, policy, name)


def resolve_hedge(policy: Any, name: str) -> Hedge | None:
    """The hedging plan of a policy.

    Raises:
        PolicyValueError: see `resolve`.
    """
    return _HEDGES.resolve(policy.hedge, policy, name)


@contextmanager
def isolated() -> Iterator[None]:
    """Begin with nothing registered inside a ``with`` block, and put everything back behind it; for tests.

    It is in force in the whole process, since budgets are: not for tests that run side by side in threads.
    """
    before = [registry.swap({}) for registry in _ALL]
    try:
        yield
    finally:
        for registry, found in zip(_ALL, before, strict=True):
            registry.swap(found)
