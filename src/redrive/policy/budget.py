"""Retry budgets: limits for the retries that all callers of one target make together.

===================  ==============================  ========================================================
budget               source of its tokens            refuses a retry when
===================  ==============================  ========================================================
`TokenBudget`        successes (AWS SDKs)            fewer tokens are left than the retry costs
`RatioBudget`        calls (Finagle)                 retries would exceed a share of the recent calls
`ConcurrencyBudget`  calls in flight (Envoy)         retries in flight exceed a share of the calls in flight
`ThrottleBudget`     successes (gRPC, proposal A6)   half of the tokens are gone
===================  ==============================  ========================================================

A budget is an immutable set of numbers. Its mutable state is the `Ledger` that ``budget.open()`` returns. A ledger has
no lock and no clock; its owner has both (`redrive.retrying.shared`). Instants are seconds on a monotonic clock.

Order of the calls to a ledger, for one call under a policy::

    begin                                        the call begins
      spend(failure)  -> price, or None: refused  a retry has been *decided*, not sent: see `ConcurrencyBudget`
      release                                     that retry has ended
      ...
      succeed(price of the last retry) | fail     the call's result; neither of them if it is unknown
    end                                           the call is over
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import timedelta
from math import floor

from redrive.errors import PolicyValueError
from redrive.policy.classify import names_of
from redrive.policy.duration import Duration, parse_duration
from redrive.policy.failure import Failure
from redrive.policy.value import Value, freeze, number, whole

_SLICES = 10


class SlidingCounts:
    """Two counters over a sliding window of ten slices. Counts are whole numbers, so that no rounding errors add up."""

    __slots__ = ("_size", "_slices", "first", "second")

    def __init__(self, seconds: float) -> None:
        self.first: int = 0
        self.second: int = 0
        self._size = seconds / _SLICES
        # Number of the slice, first, second.
        self._slices: deque[list[int]] = deque()

    def add(self, now: float, *, first: int = 0, second: int = 0) -> None:
        """Add to the counters. An instant before the latest slice counts in the latest slice."""
        self.forget(now)
        number = floor(now / self._size)
        if not self._slices or self._slices[-1][0] < number:
            self._slices.append([number, 0, 0])
        here = self._slices[-1]
        here[1] += first
        here[2] += second
        self.first += first
        self.second += second

    def forget(self, now: float) -> None:
        """Remove the slices that are older than the window."""
        oldest = floor(now / self._size) - _SLICES
        while self._slices and self._slices[0][0] <= oldest:
            _, first, second = self._slices.popleft()
            self.first -= first
            self.second -= second


class Ledger:
    """The mutable state of a budget. It has no lock; its owner has one."""

    __slots__ = ()

    def begin(self, now: float) -> None:
        """Count a call that begins."""

    def spend(self, now: float, failure: Failure | None) -> float | None:
        """Take the price of a retry; return None if it is refused. ``failure`` is None for a hedge."""
        raise NotImplementedError

    def release(self, now: float) -> None:
        """Count the end of a retry that was granted."""

    def succeed(self, now: float, price: float | None) -> None:
        """Count a call that succeeded, with the price of its last retry."""

    def fail(self, now: float) -> None:
        """Count a call with a failure that its policy would retry, but for which no retry was requested."""

    def end(self, now: float) -> None:
        """Count the end of a call that began."""

    def forget_calls(self) -> None:
        """Forget the calls in flight: in the child of a fork, those of other threads will not end."""

    def left(self, now: float) -> float:
        """Return what is left: tokens, or retries."""
        raise NotImplementedError


class Budget(Value):
    """The base of all budgets."""

    hold_back: bool

    def open(self) -> Ledger:
        """Return an empty ledger."""
        raise NotImplementedError


class TokenBudget(Budget):
    """A bucket of tokens: a retry takes tokens, a success returns some. The retry quota of the AWS SDKs.

    A call that succeeds after retries returns the cost of its *last* retry; a call without retries returns
    ``increment``. After an outage the bucket therefore refills slowly.

    Args:
        capacity: tokens at the start and at most.
        cost: of a retry.
        timeout_cost: of a retry after a timeout; by default ``cost``. (Version 2.0 of the AWS rules had 5 and 10.)
        throttle_cost: of a retry after a throttling error.
        increment: tokens for a call that succeeded at once.
        throttles: failures that are throttling errors: exception types, their names, or reasons.
        floor: retries in flight that are always granted, without a charge. A call that succeeds after such a retry
            returns its cost nevertheless. With 1 a caller that makes one call after another is never refused.
        hold_back: surface a refused retry only after its backoff, for callers that would call again at once (long
            polling).

    Raises:
        PolicyValueError: a number is negative, the capacity is zero, or ``floor`` is not whole.
    """

    _fields = ("capacity", "cost", "timeout_cost", "throttle_cost", "increment", "throttles", "floor", "hold_back")
    capacity: float
    cost: float
    timeout_cost: float
    throttle_cost: float
    increment: float
    throttles: tuple[str, ...]
    floor: int

    def __init__(
        self,
        *,
        capacity: float = 500,
        cost: float = 14,
        timeout_cost: float | None = None,
        throttle_cost: float = 5,
        increment: float = 1,
        throttles: type[BaseException] | str | Iterable[type[BaseException] | str] = ("THROTTLED", "RETRY_AFTER"),
        floor: int = 0,
        hold_back: bool = False,
    ) -> None:
        freeze(self, "capacity", number("capacity", capacity, above=0))
        freeze(self, "cost", number("cost", cost))
        freeze(self, "timeout_cost", number("timeout_cost", cost if timeout_cost is None else timeout_cost))
        freeze(self, "throttle_cost", number("throttle_cost", throttle_cost))
        freeze(self, "increment", number("increment", increment))
        freeze(self, "throttles", names_of(throttles, "throttles"))
        freeze(self, "floor", whole("floor", floor))
        freeze(self, "hold_back", hold_back)

    def price(self, failure: Failure | None) -> float:
        """Return the cost of a retry after this failure; a hedge (None) costs as much as a retry."""
        if failure is None:
            return self.cost
        if failure.reason in self.throttles or not set(self.throttles).isdisjoint(failure.types):
            return self.throttle_cost
        is_timeout = failure.reason == "TIMEOUT" or "builtins.TimeoutError" in failure.types
        return self.timeout_cost if is_timeout else self.cost

    def open(self, tokens: float | None = None) -> TokenLedger:
        """Return a ledger with ``tokens``; by default with ``capacity``."""
        return TokenLedger(self, self.capacity if tokens is None else tokens)


class TokenLedger(Ledger):
    """The ledger of a `TokenBudget`."""

    __slots__ = ("_budget", "_retries", "_tokens")

    def __init__(self, budget: TokenBudget, tokens: float) -> None:
        self._budget = budget
        self._tokens = min(tokens, budget.capacity)
        # In flight.
        self._retries = 0

    def spend(self, now: float, failure: Failure | None) -> float | None:
        """See `Ledger.spend`."""
        price = self._budget.price(failure)
        charge = price if self._retries >= self._budget.floor else 0
        if charge > self._tokens:
            return None
        self._tokens -= charge
        self._retries += 1
        return price

    def release(self, now: float) -> None:
        """See `Ledger.release`."""
        self._retries = max(0, self._retries - 1)

    def forget_calls(self) -> None:
        """See `Ledger.forget_calls`."""
        self._retries = 0

    def succeed(self, now: float, price: float | None) -> None:
        """See `Ledger.succeed`."""
        self.give_back(self._budget.increment if price is None else price)

    def give_back(self, tokens: float) -> None:
        """Return tokens to the bucket, up to the capacity."""
        self._tokens = min(self._tokens + tokens, self._budget.capacity)

    def left(self, now: float) -> float:
        """See `Ledger.left`."""
        return self._tokens


#: The budget of a function, a policy or a transport that names none: a hundred retries side by side, then one retry for
#: seven successes, and always one that is alone.
OWN = TokenBudget(capacity=1400, increment=2, floor=1)

_MOST_TOKENS = 1000


class ThrottleBudget(Budget):
    """gRPC's retry throttling: each failure takes a token, each success returns a part of one.

    Retries are granted while more than half of the tokens are left: a target that fails more often than ``ratio``
    permits gets first attempts only.

    Args:
        max_tokens: tokens at the start and at most; above 0, up to 1000.
        ratio: tokens for a success; digits after the third are dropped (gRFC A6).
        free: failures that take no token and are always retried, because the target has not seen the call: exception
            types, their names, or reasons.
        hold_back: see `TokenBudget`.

    Raises:
        PolicyValueError: a number is outside of its range.
    """

    _fields = ("max_tokens", "ratio", "free", "hold_back")
    max_tokens: float
    ratio: float
    free: tuple[str, ...]

    def __init__(
        self,
        max_tokens: float = 10,
        *,
        ratio: float = 0.1,
        free: type[BaseException] | str | Iterable[type[BaseException] | str] = (),
        hold_back: bool = False,
    ) -> None:
        freeze(self, "max_tokens", number("max_tokens", max_tokens, above=0))
        freeze(self, "ratio", floor(number("ratio", ratio) * 1000 + 1e-6) / 1000)
        freeze(self, "free", () if free == () else names_of(free, "free"))
        freeze(self, "hold_back", hold_back)
        if self.max_tokens > _MOST_TOKENS:
            raise PolicyValueError(f"max_tokens={max_tokens!r}: at most {_MOST_TOKENS}")
        if not self.ratio:
            raise PolicyValueError(f"ratio={ratio!r}: at least 0.001, otherwise no token is ever returned")

    def open(self, tokens: float | None = None) -> ThrottleLedger:
        """Return a ledger with ``tokens``; by default with all."""
        return ThrottleLedger(self, self.max_tokens if tokens is None else tokens)


class ThrottleLedger(Ledger):
    """The ledger of a `ThrottleBudget`, counted in thousandths of a token."""

    __slots__ = ("_free", "_full", "_gain", "_tokens")

    def __init__(self, budget: ThrottleBudget, tokens: float) -> None:
        self._free = frozenset(budget.free)
        self._full = round(budget.max_tokens * 1000)
        self._gain = round(budget.ratio * 1000)
        self._tokens = min(round(tokens * 1000), self._full)

    @property
    def allows(self) -> bool:
        """True if a retry would be granted now."""
        return 2 * self._tokens > self._full

    def spend(self, now: float, failure: Failure | None) -> float | None:
        """See `Ledger.spend`. A failure takes its token even if the retry is refused; a hedge takes none."""
        if failure is not None:
            if failure.reason in self._free or not self._free.isdisjoint(failure.types):
                return 0
            self.fail(now)
        return 0 if self.allows else None

    def fail(self, now: float) -> None:
        """See `Ledger.fail`."""
        self._tokens = max(0, self._tokens - 1000)

    def succeed(self, now: float, price: float | None) -> None:
        """See `Ledger.succeed`."""
        self._tokens = min(self._full, self._tokens + self._gain)

    def left(self, now: float) -> float:
        """See `Ledger.left`."""
        return self._tokens / 1000


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
        self._lately = SlidingCounts(budget.ttl.total_seconds())

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

    def forget_calls(self) -> None:
        """See `Ledger.forget_calls`."""
        self._calls = self._retries = 0

    def left(self, now: float) -> float:
        """See `Ledger.left`."""
        return max(0, self._budget.limit(self._calls) - self._retries)
