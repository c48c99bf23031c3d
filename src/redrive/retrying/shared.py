"""Budgets, circuit breakers and hedges that calls share, by key.

A policy is a value without state, so it names the limits that it shares: ``Policy(budget="payments")``. The limit is
registered once in the process::

    redrive.retrying.budget("payments")

All policies with this name charge the same budget, for all functions, threads and tasks. Name the *target*, not the
function: the service must not be overloaded.

Keys are resolved when a call is made, so the order of imports does not matter; an unknown key is an error of the first
call. Registering an equal limit again is allowed (a module may be reloaded), registering another one under the same key
is not. Instead of a key, a policy may hold the object that these functions return.

A call with a budget or a breaker has a `Guard`. The breaker is asked once, before the first attempt, and receives one
result for the whole call. The budget is asked for each retry that the policy has decided on, before its backoff.
However the call ends, its permit and its charge are returned exactly once, at the latest by `Guard.__del__`.

Locks are held for a few additions, never during a wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Generic, TypeVar

from redrive import forks
from redrive.errors import CircuitOpen, PolicyValueError
from redrive.policy import Defer, Failure, GiveUp, Stage, format_duration
from redrive.policy.breaker import NOT_COUNTED, BreakerSettings
from redrive.policy.budget import OWN, Budget, Ledger, TokenBudget
from redrive.policy.classify import refuse_coroutine_function
from redrive.policy.hedge import Hedge
from redrive.retrying.circuit_breaker import CircuitBreaker, Permit
from redrive.retrying.context import present_clock
from redrive.retrying.own import OwnBudget

T = TypeVar("T")


class SharedBudget(forks.Member):
    """A retry budget with its present balance."""

    def __init__(
        self,
        budget: Budget,
        key: str = "",
        *,
        ledger: Ledger | None = None,
        on_balance: Callable[[bool], None] | None = None,
    ) -> None:
        if not isinstance(budget, Budget):
            raise PolicyValueError(
                f"{budget!r} is not a budget: give a TokenBudget(...) or another of redrive.retrying"
            )
        self.budget = budget
        self.key = key
        #: For each call that was collected as garbage, whether a retry was in flight and whether it had begun.
        self.abandoned: deque[tuple[bool, bool]] = deque()
        self._ledger = ledger or budget.open()
        self._full = self._ledger.left(0.0)
        # Called under the lock, with True if tokens are missing.
        self._on_balance = on_balance
        self._lock = Lock()
        forks.register(self)

    def after_fork_in_child(self) -> None:
        """Keep the balance, without the lock and the calls of threads that do not exist in the child."""
        self._lock = Lock()
        self.abandoned.clear()
        self._ledger.forget_calls()

    @property
    def left(self) -> float:
        """The present balance: tokens, or retries."""
        now = present_clock().monotonic()
        with self._lock:
            return self._current(now).left(now)

    def _current(self, now: float) -> Ledger:
        """Return the ledger after settling the abandoned calls."""
        while self.abandoned:
            release, end = self.abandoned.popleft()
            if release:
                self._ledger.release(now)
            if end:
                self._ledger.end(now)
        return self._ledger

    def begin(self, now: float) -> None:
        """Record the begin of a call; `redrive.policy.budget` describes the effect of this and the next two."""
        with self._lock:
            self._current(now).begin(now)

    def spend(self, now: float, failure: Failure | None, *, release: bool) -> float | None:
        """Charge a retry and return its price, None if it is refused; ``release`` ends the retry before it."""
        with self._lock:
            ledger = self._current(now)
            if release:
                ledger.release(now)
            price = ledger.spend(now, failure)
            self._report(ledger, now)
            return price

    def succeed(self, *, alone: bool) -> None:
        """Record a call that has succeeded at once, or after retries without a charge; it did not begin here."""
        price = self.budget.cost if alone and isinstance(self.budget, TokenBudget) else None
        self.settle(present_clock().monotonic(), ok=True, price=price, release=False, end=False)

    def _report(self, ledger: Ledger, now: float) -> None:
        if self._on_balance is not None:
            self._on_balance(ledger.left(now) < self._full)

    def settle(self, now: float, *, ok: bool | None, price: float | None, release: bool, end: bool) -> None:
        """Record the end of a call, or of one copy of it."""
        # `ok` is None if the success is unknown or counted already; `release` is True if a retry was in flight;
        # `end` is True for the copy that began the call.
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
            self._report(ledger, now)

    def __repr__(self) -> str:
        return f"SharedBudget({self.budget!r}, {self.key!r})"


def opened(own: OwnBudget) -> SharedBudget:
    """Return the ledger of a budget without a name; the first call that retries beside another one opens it."""
    shared = own.shared
    if not isinstance(shared, SharedBudget):
        # The retry without a charge is that of the call that is alone.
        shared = own.shared = SharedBudget(OWN.with_(floor=0), on_balance=own.balance)
    return shared


class SharedBreaker:
    """A circuit breaker of calls, which refuses all calls while too many fail.

    Args:
        settings: when it opens and how it recovers.
        key: the name, for messages.
        counts: returns True for errors that are failures of the target; by default those that the policy would retry.
    """

    def __init__(
        self,
        settings: BreakerSettings | None = None,
        key: str = "",
        *,
        counts: Callable[[BaseException], bool] | None = None,
    ) -> None:
        self.settings: BreakerSettings = settings or BreakerSettings()
        if self.settings.canary != "request":
            raise PolicyValueError("a breaker of calls has no probe of its own: canary='request'")
        refuse_coroutine_function(counts, "counts")
        self.key = key
        self.counts = counts
        self.circuit: CircuitBreaker = CircuitBreaker(self.settings, clock=_PresentClock())

    def __repr__(self) -> str:
        return f"SharedBreaker({self.settings!r}, {self.key!r})"


class _PresentClock:
    """The clock of the present scope: one breaker serves many scopes."""

    def now(self) -> datetime:
        return present_clock().now()

    def monotonic(self) -> float:
        return present_clock().monotonic()

    def sleep(self, seconds: float) -> None:
        present_clock().sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        await present_clock().asleep(seconds)


class SharedRegistry(forks.Member, Generic[T]):
    """The registered limits of one kind, by key."""

    def __init__(self, kind: str, type: type[T]) -> None:  # noqa: A002 - the parameter is a type
        self.kind = kind
        self._type = type
        self._found: dict[str, tuple[object, T]] = {}
        self._lock = Lock()
        forks.register(self)

    def after_fork_in_child(self) -> None:
        """Replace the lock: the thread that held it does not exist in the child."""
        self._lock = Lock()

    def register(self, key: str, given: object, make: Callable[[], T]) -> T:
        """Return the limit under a key; create it if the key is new. Equal settings may be registered twice."""
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
        """Return the limit of a policy field; None if the field is None."""
        if value is None or isinstance(value, self._type):
            return value
        if not isinstance(value, str):
            raise PolicyValueError(
                f"{name}: {self.kind}={value!r} is no {self.kind}: give a key, or the result of "
                f"redrive.retrying.{self.kind}(). The policy is {policy!r}"
            )
        found = self._found.get(value)
        if found is None:
            keys = ", ".join(repr(key) for key in sorted(self._found)) or "none"
            raise PolicyValueError(
                f"{name}: {self.kind}={value!r} is not registered (known: {keys}); register it with "
                f"redrive.retrying.{self.kind}({value!r}, ...). The policy is {policy!r}"
            )
        return found[1]

    def swap(self, found: dict[str, tuple[object, T]]) -> dict[str, tuple[object, T]]:
        """Replace the contents and return the former ones."""
        with self._lock:
            before, self._found = self._found, found
            return before


_BUDGETS = SharedRegistry("budget", SharedBudget)
_BREAKERS = SharedRegistry("breaker", SharedBreaker)
_HEDGES = SharedRegistry("hedge", Hedge)
_ALL: tuple[SharedRegistry[Any], ...] = (_BUDGETS, _BREAKERS, _HEDGES)


def budget(key: str, budget: Budget | None = None) -> SharedBudget:
    """Register a retry budget for the whole process.

    Args:
        key: the name by which policies share it: ``Policy(budget="payments")``.
        budget: its kind and numbers; by default ``TokenBudget()``, with which a full target recovers from an overload.

    Returns:
        The shared budget; ``left`` is its balance.

    Raises:
        PolicyValueError: the key names another budget already, or ``budget`` is not a budget.
    """
    given = TokenBudget() if budget is None else budget
    return _BUDGETS.register(key, given, lambda: SharedBudget(given, key))


def breaker(
    key: str, settings: BreakerSettings | None = None, *, counts: Callable[[BaseException], bool] | None = None
) -> SharedBreaker:
    """Register a circuit breaker for the whole process. It counts calls, not attempts.

    Args:
        key: the name by which policies share it: ``Policy(breaker="payments")``.
        settings: when it opens and how it recovers.
        counts: returns True for errors that are failures of the target; by default those that the policy would retry.

    Returns:
        The shared breaker; ``circuit.status`` is its present state, ``circuit.reset()`` closes it.

    Raises:
        PolicyValueError: the key names another breaker already, or an argument is of another type.
    """
    settings = settings or BreakerSettings()
    if not isinstance(settings, BreakerSettings):
        raise PolicyValueError(f"{settings!r} is not the settings of a breaker: give a BreakerSettings(...)")
    if counts is not None and not callable(counts):
        raise PolicyValueError(f"counts={counts!r} is no function: give one that returns True for errors that count")
    return _BREAKERS.register(key, (settings, counts), lambda: SharedBreaker(settings, key, counts=counts))


def hedge(key: str, hedge: Hedge) -> Hedge:
    """Register a hedge for the whole process, so that a stored policy can name it.

    Args:
        key: the name: ``Policy(hedge="reads")``.
        hedge: the delays. A hedge has no state; a policy may also hold it itself.

    Raises:
        PolicyValueError: the key names another hedge already, or ``hedge`` is not a `Hedge`.
    """
    if not isinstance(hedge, Hedge):
        raise PolicyValueError(f"{hedge!r} is not a hedge: give a Hedge(...)")
    return _HEDGES.register(key, hedge, lambda: hedge)


def resolve(policy: Any, name: str) -> tuple[SharedBudget | None, SharedBreaker | None]:
    """Return the budget and the breaker of a policy; raise `PolicyValueError` if a key is not registered."""
    return _BUDGETS.resolve(policy.budget, policy, name), _BREAKERS.resolve(policy.breaker, policy, name)


def resolve_hedge(policy: Any, name: str) -> Hedge | None:
    """Return the hedge of a policy; raise `PolicyValueError` if the key is not registered."""
    return _HEDGES.resolve(policy.hedge, policy, name)


@contextmanager
def isolated() -> Iterator[None]:
    """Clear the registered limits inside a ``with`` block and restore them after it; for tests.

    The change applies to the whole process, so tests that run in parallel threads cannot use it.
    """
    before = [registry.swap({}) for registry in _ALL]
    try:
        yield
    finally:
        for registry, found in zip(_ALL, before, strict=True):
            registry.swap(found)


def _refused(key: str) -> str:
    if key:
        return f"the retry budget {key!r} is used up"
    return (
        "its own retry budget is used up, by calls that retry at the same time: too few of them succeed "
        "(budget=None removes it, budget= names another one)"
    )


class Guard:
    """The part of one call, or of one hedged copy of it, in its budget and its breaker."""

    def __init__(self, policy: object, name: str, monotonic: Callable[[], float], *, hedging: bool = False) -> None:
        self._begun = False
        self._budget: SharedBudget | None = None
        self._breaker: SharedBreaker | None = None
        self._budget, self._breaker = resolve(policy, name)
        self._name = name
        self._monotonic = monotonic
        self._permit: Permit | None = None
        self._price: float | None = None
        # False for a further copy of a call that has begun, which `afford` charges.
        self._is_first = not hedging
        # A retry that the budget has granted is in progress.
        self._in_flight = False
        # The budget has counted the latest failure.
        self._asked = False
        self._retry_after: timedelta | None = None

    @property
    def hold_back(self) -> bool:
        """True if the error of a refused retry is raised only after its backoff."""
        return self._budget is not None and self._budget.budget.hold_back

    def afford(self) -> bool:
        """Charge the budget for a hedge; return False if it refuses."""
        if self._budget is None:
            return True
        self._price = self._budget.spend(self._monotonic(), None, release=False)
        self._in_flight = self._begun = self._price is not None
        return self._begun

    def admit(self) -> GiveUp | None:
        """Begin the call; return the decision if the breaker refuses it. Further calls, one per attempt, do nothing."""
        if self._permit is None and self._breaker is not None:
            try:
                self._permit = self._breaker.circuit.admit()
            except CircuitOpen as refused:
                wait = self._retry_after = refused.retry_after
                again = "" if wait is None else f", for {format_duration(wait)} at least"
                self.drop()
                return GiveUp(f"the circuit breaker {self._breaker.key!r} is open{again}", "breaker")
        if not self._begun:
            self._begun = True
            if self._budget is not None:
                self._budget.begin(self._monotonic())
        return None

    def refusal(self, why: str) -> CircuitOpen:
        """Return the error of a call that was not admitted."""
        return CircuitOpen(f"{self._name} was not called: {why}", retry_after=self._retry_after)

    def use(self, own: SharedBudget) -> None:
        """Charge a budget of the caller's own from now on, if the policy has none; the call has begun."""
        if self._budget is None:
            self._budget, self._begun = own, True

    def retry(self, failure: Failure) -> GiveUp | None:
        """Charge the budget for a retry; return the decision to give up if the budget refuses it."""
        if self._budget is None:
            return None
        price = self._budget.spend(self._monotonic(), failure, release=self._in_flight)
        self._in_flight = price is not None
        self._asked = price is None
        if price is None:
            return GiveUp(_refused(self._budget.key), "budget")
        self._price = price
        return None

    def finish(
        self, ended: GiveUp | Defer | None, error: BaseException | None = None, *, stage: Stage = Stage.ANSWERED
    ) -> None:
        """Report the end of the call to the breaker and the budget.

        Args:
            ended: the decision; None if the call succeeded.
            error: the last error.
            stage: how far its attempt got. One that was not answered never counts as a success of the target.
        """
        passed = ended is None or ended.rule in NOT_COUNTED
        if self._permit is not None and self._breaker is not None:
            counts = self._breaker.counts
            failed = not passed if counts is None or error is None else counts(error)
            self._permit.report(failed=failed, answered=stage is Stage.ANSWERED)
        ok = True if ended is None else None if passed or self._asked else False
        self._settle(ok=ok)

    def drop(self) -> None:
        """Return permit and charge of a call with an unknown result; do nothing if it is over already."""
        if self._permit is not None:
            self._permit.dropped()
        self._settle(ok=None)

    def _settle(self, *, ok: bool | None) -> None:
        if self._begun and self._budget is not None:
            self._begun = False
            self._budget.settle(
                self._monotonic(), ok=ok, price=self._price, release=self._in_flight, end=self._is_first
            )
            self._in_flight = False

    def __del__(self) -> None:
        # Garbage is collected anywhere, also while this thread holds the budget's lock, so nothing may be locked here.
        # (A lost canary counts as failed after its timeout.)
        if self._begun and self._budget is not None:
            self._budget.abandoned.append((self._in_flight, self._is_first))
