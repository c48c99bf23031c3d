"""What a call writes down while it runs, and how that becomes a record on its last error.

A line is written for each attempt, in one of two forms, so that the commonest failure costs no more than a tuple of
what is at hand. Its first element is the line before it: a list to hold them would cost as much as the lines. Only a
call that is asked for its story (it gave up, or its outcome was wanted) spells them out.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeAlias

from redrive.policy import Backoff, Decision, Failure, Retry
from redrive.policy.duration import ZERO, span
from redrive.policy.failure import names_of_class
from redrive.policy.outcome import Record, Try

__all__ = ["Line", "attach", "attach_copies", "failure_in", "lines_since", "timeline", "wait_in"]

_Quick: TypeAlias = "tuple[Line | None, float, float, type[Exception], str, float]"
"""An attempt that `Policy.quick` decided on: line before, start, end, class and text of the error, seconds to wait."""
_Full: TypeAlias = "tuple[Line | None, float, float, Failure | None, Decision | None]"
"""An attempt that `Policy.decide` decided on: line before, start, end, failure, decision; or success, without the
two."""
Line: TypeAlias = "_Quick | _Full"
_FULL: Final = 5


def lines_since(heard: Line | None, last: Line | None) -> list[Line]:
    """What was written down after a line, in order.

    Args:
        heard: that line; None for all.
        last: the last one.
    """
    lines = []
    line = last
    while line is not None and line is not heard:
        lines.append(line)
        line = line[0]
    return lines[::-1]


def failure_in(line: Line) -> Failure | None:
    """What went wrong in an attempt, if anything did."""
    return line[3] if len(line) == _FULL else Failure(names_of_class(line[3])[0], line[4])


def wait_in(line: Line) -> timedelta:
    """The wait that was decided on after an attempt."""
    if len(line) == _FULL:
        return line[4].delay if isinstance(line[4], Retry) else ZERO
    return span(line[5])


def timeline(last: Line | None, started: float, backoff: Backoff) -> tuple[Try, ...]:
    """All attempts of a call.

    Args:
        last: what was written down last.
        started: when the call began, on the clock of the lines.
        backoff: the policy's, which tells the nominal delays.
    """
    return tuple(
        Try(
            number,
            _after(line[1] - started),
            _after(line[2] - line[1]),
            failure_in(line),
            line[4] if len(line) == _FULL else Retry(span(line[5]), span(backoff.delay(number) or 0.0), "backoff"),
        )
        for number, line in enumerate(lines_since(None, last), 1)
    )


def attach(error: Exception, record: Callable[[Record | None], Record]) -> None:
    """Give an error its record as ``__retry__``, and one note that says it.

    Args:
        error: the last one of a call.
        record: makes the record, given that of a call further in which left the retrying to this one.
    """
    earlier = getattr(error, "__retry__", None)
    notes: list[str] = list(getattr(error, "__notes__", ()))
    inner = None
    if isinstance(earlier, Record):  # of a call further in, or of an earlier call if an error is raised twice
        notes = [note for note in notes if note != earlier.note]
        inner = earlier if earlier.rule == "nested" else None
    told = record(inner)
    # An exception may refuse attributes (a frozen dataclass does); this is how Python itself sets them.
    BaseException.__setattr__(error, "__retry__", told)
    BaseException.__setattr__(error, "__notes__", [*notes, told.note])


def attach_copies(error: Exception, copies: tuple[Record, ...]) -> None:
    """Add to the record on an error, if it has one, what became of the other copies of its call."""
    alone = getattr(error, "__retry__", None)
    if isinstance(alone, Record):
        told = alone._replace(copies=copies)
        notes: list[str] = [told.note if note == alone.note else note for note in getattr(error, "__notes__", ())]
        BaseException.__setattr__(error, "__retry__", told)
        BaseException.__setattr__(error, "__notes__", notes)


def _after(seconds: float) -> timedelta:
    return timedelta(0, max(0.0, seconds))
