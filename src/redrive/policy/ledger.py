"""The base classes of retry budgets and of their ledgers; `redrive.policy.budget` has the kinds."""

from __future__ import annotations

from typing import Any

from redrive.errors import PolicyValueError
from redrive.policy.failure import Failure
from redrive.policy.value import Value

__all__ = ["Budget", "Ledger", "number", "whole"]


class Ledger:
    """The mutable state of a budget. It has no lock; its owner has one."""

    __slots__ = ()

    def begin(self, now: float) -> None:
        """Count a call that begins."""

    def spend(self, now: float, failure: Failure | None) -> float | None:
        """Take the price of a retry.

        Args:
            now: the present instant.
            failure: the failure that is retried; None for a hedge.

        Returns:
            The price, or None if the retry is refused.
        """
        raise NotImplementedError

    def release(self, now: float) -> None:
        """Count the end of a retry that was granted."""

    def succeed(self, now: float, price: float | None) -> None:
        """Count a call that succeeded.

        Args:
            now: the present instant.
            price: the price of its last retry; None if it had none.
        """

    def fail(self, now: float) -> None:
        """Count a call whose failure its policy would retry, but for which no retry was requested."""

    def end(self, now: float) -> None:
        """Count the end of a call that began."""

    def left(self, now: float) -> float:
        """Return what is left: tokens, or retries."""
        raise NotImplementedError


class Budget(Value):
    """The base of all budgets."""

    __slots__ = ("hold_back",)
    hold_back: bool

    def open(self) -> Ledger:
        """Return an empty ledger."""
        raise NotImplementedError


# -------------------------------------------------------------------------------------------------------------- values


def number(name: str, value: Any, *, above: float | None = None) -> float:  # noqa: ANN401 - checked here
    """Return a finite number, zero or more, or above a bound.

    Raises:
        PolicyValueError: the value is not such a number.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    low = 0 if above is None else above
    if not is_number or not (value > low or (above is None and value == low)) or value == float("inf"):
        wanted = "zero or more" if above is None else f"above {above:g}"
        raise PolicyValueError(f"{name}={value!r}: it is a number, {wanted}")
    found: float = value
    return found


def whole(name: str, value: object) -> int:
    """Return a whole number, zero or more.

    Raises:
        PolicyValueError: the value is not such a number.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise PolicyValueError(f"{name}={value!r}: it is a whole number, zero or more")
    return value
