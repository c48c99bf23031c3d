"""What a call writes down while it runs, and how that becomes a record on its last error.

A line is written for each attempt, in one of two forms, so that the commonest failure costs no more than a tuple of
what is at hand. Only a call that is asked for its story (it gave up, or its outcome was wanted) spells the lines out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeAlias

from redrive.policy import Backoff, Decision, Failure, Retry
from redrive.policy.duration import span
from redrive.policy.failure import names_of_class
from redrive.policy.outcome import Record, Try

__all__ = ["Line", "attach", "spelt_out", "timeline"]

_Quick: TypeAlias = tuple[float, float, type[Exception], str, float]
"""An attempt that `Policy.quick` decided on: start, end, class and text of the error, seconds to wait."""
_Full: TypeAlias = tuple[float, float, Failure | None, Decision | None]
"""An attempt that `Policy.decide` decided on: start, end, failure, decision; or one that succeeded, without the two."""
Line: TypeAlias = _Quick | _Full


def spelt_out(line: Line, number: int, backoff: Backoff) -> tuple[Failure | None, Decision | None]:
    """What went wrong in an attempt and what was decided.

    Args:
        line: what was written down.
        number: of the attempt.
        backoff: the policy's, which tells the nominal delay.
    """
    if len(line) == 4:  # noqa: PLR2004 - see _Full
        return line[2], line[3]
    nominal = backoff.delay(number)
    return Failure(names_of_class(line[2])[0], line[3]), Retry(span(line[4]), span(nominal or 0.0), "backoff")


def timeline(lines: Sequence[Line], started: float, backoff: Backoff) -> tuple[Try, ...]:
    """All attempts of a call.

    Args:
        lines: what was written down, in order.
        started: when the call began, on the clock of the lines.
        backoff: the policy's.
    """
    return tuple(
        Try(number, _after(began - started), _after(ended - began), *spelt_out(line, number, backoff))
        for number, line in enumerate(lines, 1)
        for began, ended, *_ in (line,)
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


def _after(seconds: float) -> timedelta:
    return timedelta(0, max(0.0, seconds))
