"""Not to send what would be refused: the client-side throttling of Google's SRE book ("Handling Overload").

To refuse a call costs a target almost as much as to answer it, so that one that refuses enough calls does nothing else.
A client that knows how many of its calls are accepted can do better: it lets through about ``multiple`` times what is
accepted and refuses the rest itself, each call with the same probability (equation 21-1 of the book)::

    max(0, (requests - multiple * accepts) / (requests + 1))

What it lets through above what is accepted is how it learns that the target has recovered.
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
    """Refuse calls here while the target refuses many. Give it to a limiter: ``Limiter(shed=Shedding())``.

    Args:
        multiple: calls that are let through for each one that is accepted, from 1; the larger, the sooner a recovery
            is seen and the more calls are wasted.
        window: how long a call counts.
        refusals: the failures by which the target does not accept a call: exception types, their names, reasons, or a
            function that says it of an exception.
        on_result: says the same of what is returned; for targets that answer 503 and raise nothing.

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
            raise PolicyValueError(f"multiple={multiple!r}: below 1 not even what is accepted would be sent")
        if self.window == ZERO:
            raise PolicyValueError(f"window={window!r}: what is forgotten at once says nothing")

    def open(self) -> SheddingLedger:
        """A ledger that has seen nothing."""
        return SheddingLedger(self)


class SheddingLedger:
    """What callers have seen of a target. It has no lock: its owner has. Instants are seconds on one clock.

    Args:
        shedding: the numbers.
    """

    __slots__ = ("_multiple", "_window")

    def __init__(self, shedding: Shedding) -> None:
        self._multiple = shedding.multiple
        self._window = Window(shedding.window.total_seconds())

    def asked(self, now: float) -> None:
        """Somebody wants to call, whether it is let through or not."""
        self._window.add(now, first=1)

    def accepted(self, now: float) -> None:
        """The target has accepted a call."""
        self._window.add(now, second=1)

    def rejection(self, now: float) -> float:
        """The probability with which the next call should be refused here."""
        self._window.forget(now)
        requests, accepts = self._window.first, self._window.second
        return max(0.0, (requests - self._multiple * accepts) / (requests + 1))
