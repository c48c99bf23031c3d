"""Budgets that are a share of the calls: of the recent ones (Finagle), or of those in flight (Envoy)."""

from __future__ import annotations

from datetime import timedelta
from math import floor

from redrive.errors import PolicyValueError
from redrive.policy.duration import Duration, parse_duration
from redrive.policy.failure import Failure
from redrive.policy.ledger import Budget, Ledger, number, whole
from redrive.policy.value import freeze
from redrive.policy.window import Window

__all__ = ["ConcurrencyBudget", "ConcurrencyLedger", "RatioBudget", "RatioLedger"]


_SHORTEST, _LONGEST = timedelta(seconds=1), timedelta(seconds=60)
_ROUNDING = 1e-9


class RatioBudget(Budget):
    """A limit of retries as a share of the recent calls, with a minimum for rare calls.

    Within any ``ttl`` at most ``ratio * calls + minimum * ttl`` retries are granted. The arithmetic is Finagle's; the
    default ratio is that of Google's SRE book ("Handling Overload"). With the defaults and at least 20 calls a second,
    retries add at most 15 % to the calls.

    Args:
        ratio: retries per call; 0.1 for one in ten.
        minimum: retries per second that are granted in addition.
        ttl: time for which calls and retries count, from 1 s to 60 s.
        hold_back: see `TokenBudget`.

    Raises:
        PolicyValueError: a value is outside of its range; the message names it.
    """

    __slots__ = ("minimum", "ratio", "ttl")
    _fields = ("ratio", "minimum", "ttl", "hold_back")
    ratio: float
    minimum: float
    ttl: timedelta

    def __init__(
        self, ratio: float = 0.1, *, minimum: float = 1, ttl: Duration = "10s", hold_back: bool = False
    ) -> None:
        freeze(self, "ratio", number("ratio", ratio))
        freeze(self, "minimum", number("minimum", minimum))
        freeze(self, "ttl", parse_duration(ttl))
        freeze(self, "hold_back", hold_back)
        if not _SHORTEST <= self.ttl <= _LONGEST:
            raise PolicyValueError(f"ttl={ttl!r}: a ratio budget remembers from 1 s to 60 s")

    @property
    def reserve(self) -> float:
        """Retries within one ``ttl`` that need no calls."""
        return self.minimum * self.ttl.total_seconds()

    def open(self) -> RatioLedger:
        """See `Budget.open`."""
        return RatioLedger(self)


class RatioLedger(Ledger):
    """The recent calls and retries under a `RatioBudget`."""

    __slots__ = ("_budget", "_lately")

    def __init__(self, budget: RatioBudget) -> None:
        self._budget = budget
        self._lately = Window(budget.ttl.total_seconds())

    def begin(self, now: float) -> None:
        """See `Ledger.begin`."""
        self._lately.add(now, first=1)

    def spend(self, now: float, failure: Failure | None) -> float | None:
        """See `Ledger.spend`."""
        if self.left(now) < 1 - _ROUNDING:
            return None
        self._lately.add(now, second=1)
        return 1

    def left(self, now: float) -> float:
        """See `Ledger.left`."""
        self._lately.forget(now)
        budget = self._budget
        return budget.reserve + budget.ratio * self._lately.first - self._lately.second


class ConcurrencyBudget(Budget):
    """A limit of retries in flight as a share of the calls in flight: Envoy's retry budget, and that of failsafe-go.

    A retry is in flight from the moment when it is *decided*, its backoff included: otherwise a thousand calls that
    fail together would all be granted (Envoy issue 30205). As in failsafe-go, one more retry is granted as long as
    those in flight do not exceed the share.

    Args:
        ratio: retries per call in flight.
        floor: retries that are always granted.
        hold_back: see `TokenBudget`.

    Raises:
        PolicyValueError: a number is negative, or ``floor`` is not whole.
    """

    __slots__ = ("floor", "ratio")
    _fields = ("ratio", "floor", "hold_back")
    ratio: float
    floor: int

    def __init__(self, ratio: float = 0.2, *, floor: int = 3, hold_back: bool = False) -> None:
        freeze(self, "ratio", number("ratio", ratio))
        freeze(self, "floor", whole("floor", floor))
        freeze(self, "hold_back", hold_back)

    def limit(self, calls: int) -> int:
        """Return the number of retries in flight that are granted beside ``calls`` calls in flight."""
        return max(self.floor, floor(self.ratio * calls + _ROUNDING))

    def open(self) -> ConcurrencyLedger:
        """See `Budget.open`."""
        return ConcurrencyLedger(self)


class ConcurrencyLedger(Ledger):
    """The calls and retries in flight under a `ConcurrencyBudget`."""

    __slots__ = ("_budget", "_calls", "_retries")

    def __init__(self, budget: ConcurrencyBudget) -> None:
        self._budget = budget
        self._calls = 0
        self._retries = 0

    def begin(self, now: float) -> None:
        """See `Ledger.begin`."""
        self._calls += 1

    def spend(self, now: float, failure: Failure | None) -> float | None:
        """See `Ledger.spend`."""
        if self._retries >= self._budget.floor and self._retries > self._budget.ratio * self._calls + _ROUNDING:
            return None
        self._retries += 1
        return 1

    def release(self, now: float) -> None:
        """See `Ledger.release`."""
        self._retries = max(0, self._retries - 1)

    def end(self, now: float) -> None:
        """See `Ledger.end`."""
        self._calls = max(0, self._calls - 1)

    def left(self, now: float) -> float:
        """See `Ledger.left`."""
        return max(0, self._budget.limit(self._calls) - self._retries)
