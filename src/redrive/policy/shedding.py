"""Client-side throttling from Google's SRE book ("Handling Overload").

A client lets through about ``multiple`` times as many calls as the target accepts, and refuses the rest itself, each
call with the same probability (equation 21-1 of the book)::

    max(0, (requests - multiple * accepts) / (requests + 1))

The calls above the accepted number detect the recovery of the target.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from redrive.errors import PolicyValueError
from redrive.policy.answers import THROTTLES, Answers
from redrive.policy.classify import On
from redrive.policy.duration import ZERO, Duration, parse_duration
from redrive.policy.ledger import number
from redrive.policy.value import Value, freeze
from redrive.policy.window import Window

__all__ = ["Shedding", "SheddingLedger"]


class Shedding(Value):
    """Client-side throttling for a limiter: ``Limiter(shed=Shedding())``.

    Args:
        multiple: calls that are let through for each accepted one, from 1; a larger number detects a recovery sooner
            and wastes more calls.
        window: time for which a call counts.
        refusals: failures by which the target refuses a call: exception types, their names, reasons, or a predicate.
        on_result: a predicate for results that are refusals, for targets that answer 503 and raise nothing.

    Raises:
        PolicyValueError: a value is outside of its range; the message names it.
    """

    __slots__ = ("answers", "multiple", "on_result", "refusals", "window")
    _fields = ("multiple", "window", "refusals", "on_result")
    multiple: float
    window: timedelta
    refusals: Any
    on_result: Callable[[Any], bool] | None
    answers: Answers

    def __init__(
        self,
        multiple: float = 2,
        *,
        window: Duration = "2m",
        refusals: On = (*THROTTLES, OSError),
        on_result: Callable[[Any], bool] | None = None,
    ) -> None:
        freeze(self, "multiple", number("multiple", multiple))
        freeze(self, "window", parse_duration(window))
        freeze(self, "answers", Answers(refusals, on_result, "refusals"))
        freeze(self, "refusals", self.answers.named)
        freeze(self, "on_result", on_result)
        if self.multiple < 1:
            raise PolicyValueError(f"multiple={multiple!r}: it is at least 1")
        if self.window == ZERO:
            raise PolicyValueError(f"window={window!r}: it is longer than zero")

    def open(self) -> SheddingLedger:
        """Return an empty ledger."""
        return SheddingLedger(self)


class SheddingLedger:
    """The recent calls to a target. It has no lock; its owner has one. Instants are seconds on one monotonic clock."""

    __slots__ = ("_multiple", "_window")

    def __init__(self, shedding: Shedding) -> None:
        self._multiple = shedding.multiple
        self._window = Window(shedding.window.total_seconds())

    def asked(self, now: float) -> None:
        """Count a call, sent or refused here."""
        self._window.add(now, first=1)

    def accepted(self, now: float) -> None:
        """Count a call that the target has accepted."""
        self._window.add(now, second=1)

    def rejection(self, now: float) -> float:
        """Return the probability with which the next call should be refused here."""
        self._window.forget(now)
        requests, accepts = self._window.first, self._window.second
        return max(0.0, (requests - self._multiple * accepts) / (requests + 1))
