"""Budgets with tokens that successful calls return: the retry quota of the AWS SDKs and gRPC's retry throttling."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor

from redrive.errors import PolicyValueError
from redrive.policy.classify import names_of
from redrive.policy.failure import Failure
from redrive.policy.ledger import Budget, Ledger, number
from redrive.policy.value import freeze

__all__ = ["ThrottleBudget", "ThrottleLedger", "TokenBudget", "TokenLedger"]


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
        hold_back: surface a refused retry only after its backoff, for callers that would call again at once (long
            polling).

    Raises:
        PolicyValueError: a number is negative, or the capacity is zero.
    """

    __slots__ = ("capacity", "cost", "increment", "throttle_cost", "throttles", "timeout_cost")
    _fields = ("capacity", "cost", "timeout_cost", "throttle_cost", "increment", "throttles", "hold_back")
    capacity: float
    cost: float
    timeout_cost: float
    throttle_cost: float
    increment: float
    throttles: tuple[str, ...]

    def __init__(  # noqa: PLR0913 - one parameter a number of the AWS rules
        self,
        *,
        capacity: float = 500,
        cost: float = 14,
        timeout_cost: float | None = None,
        throttle_cost: float = 5,
        increment: float = 1,
        throttles: type[BaseException] | str | Iterable[type[BaseException] | str] = ("THROTTLED", "RETRY_AFTER"),
        hold_back: bool = False,
    ) -> None:
        freeze(self, "capacity", number("capacity", capacity, above=0))
        freeze(self, "cost", number("cost", cost))
        freeze(self, "timeout_cost", number("timeout_cost", cost if timeout_cost is None else timeout_cost))
        freeze(self, "throttle_cost", number("throttle_cost", throttle_cost))
        freeze(self, "increment", number("increment", increment))
        freeze(self, "throttles", names_of(throttles, "throttles"))
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

    __slots__ = ("_budget", "_tokens")

    def __init__(self, budget: TokenBudget, tokens: float) -> None:
        self._budget = budget
        self._tokens = min(tokens, budget.capacity)

    def spend(self, now: float, failure: Failure | None) -> float | None:
        """See `Ledger.spend`."""
        price = self._budget.price(failure)
        if price > self._tokens:
            return None
        self._tokens -= price
        return price

    def succeed(self, now: float, price: float | None) -> None:
        """See `Ledger.succeed`."""
        self.give_back(self._budget.increment if price is None else price)

    def give_back(self, tokens: float) -> None:
        """Return tokens to the bucket, up to the capacity."""
        self._tokens = min(self._tokens + tokens, self._budget.capacity)

    def left(self, now: float) -> float:
        """See `Ledger.left`."""
        return self._tokens


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

    __slots__ = ("free", "max_tokens", "ratio")
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
