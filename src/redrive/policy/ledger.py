"""What every retry budget is, and the book that it keeps; the kinds are in `redrive.policy.budget`."""

from __future__ import annotations

from typing import Any

from redrive.errors import PolicyValueError
from redrive.policy.failure import Failure
from redrive.policy.value import Value

__all__ = ["Budget", "Ledger", "number", "whole"]


class Ledger:
    """What a budget has seen. It has no lock: its owner has."""

    __slots__ = ()

    def begin(self, now: float) -> None:
        """A call begins."""

    def spend(self, now: float, failure: Failure | None) -> float | None:
        """A retry is wanted.

        Args:
            now: the present instant.
            failure: why; None for a hedge, which nothing has failed for.

        Returns:
            What it cost, or None if it is refused.
        """
        raise NotImplementedError

    def release(self, now: float) -> None:
        """A retry that was granted has ended."""

    def succeed(self, now: float, price: float | None) -> None:
        """A call has succeeded.

        Args:
            now: the present instant.
            price: what its last retry cost; None if it had none.
        """

    def fail(self, now: float) -> None:
        """A call has failed in a way that its policy would retry, and no retry was asked for."""

    def end(self, now: float) -> None:
        """A call that began is over."""

    def left(self, now: float) -> float:
        """How much there is: tokens, or retries."""
        raise NotImplementedError


class Budget(Value):
    """The base of all budgets."""

    __slots__ = ("hold_back",)
    hold_back: bool

    def open(self) -> Ledger:
        """A ledger that has seen nothing."""
        raise NotImplementedError


# -------------------------------------------------------------------------------------------------------------- values


def number(name: str, value: Any, *, above: float | None = None) -> float:  # noqa: ANN401 - checked here
    """A finite number, zero or more, or above a bound.

    Raises:
        PolicyValueError: it is none.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    low = 0 if above is None else above
    if not is_number or not (value > low or (above is None and value == low)) or value == float("inf"):
        wanted = "zero or more" if above is None else f"above {above:g}"
        raise PolicyValueError(f"{name}={value!r}: it is a number, {wanted}")
    found: float = value
    return found


def whole(name: str, value: object) -> int:
    """A whole number, zero or more.

    Raises:
        PolicyValueError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise PolicyValueError(f"{name}={value!r}: it is a whole number, zero or more")
    return value
