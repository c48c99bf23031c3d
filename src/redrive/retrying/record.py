"""The record of a call and its events: one entry for each attempt, and what is made of the entries.

An entry is a tuple in one of two forms, so that a failure that `Plan.quick` decides on costs no more than that tuple.
Its first element is the entry before it: appending to a list would take as long as creating the entry. The record is
made only if the call gives up or its outcome is requested.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeAlias

from redrive.policy import Backoff, Decision, Defer, Failure, GiveUp, Retry
from redrive.policy.duration import ZERO, span
from redrive.policy.failure import names_of_class
from redrive.policy.outcome import Record, Try

_Quick: TypeAlias = "tuple[Entry | None, float, float, type[Exception], str, float]"
"""An attempt decided by `Plan.quick`: entry before, start, end, class and text of the error, seconds to wait."""
_Full: TypeAlias = "tuple[Entry | None, float, float, Failure | None, Decision | None]"
"""An attempt decided by `Policy.decide`: entry before, start, end, failure, decision; the last two None for success."""
Entry: TypeAlias = "_Quick | _Full"
_FULL: Final = 5


def entries_since(known: Entry | None, last: Entry | None) -> list[Entry]:
    """Return the entries after ``known`` (None for all) up to ``last``, in order."""
    entries = []
    entry = last
    while entry is not None and entry is not known:
        entries.append(entry)
        entry = entry[0]
    return entries[::-1]


def failure_in(entry: Entry) -> Failure | None:
    """Return the failure of an attempt; None if it succeeded."""
    return entry[3] if len(entry) == _FULL else Failure(names_of_class(entry[3])[0], entry[4])


def wait_in(entry: Entry) -> timedelta:
    """Return the wait that was decided on after an attempt."""
    if len(entry) == _FULL:
        return entry[4].delay if isinstance(entry[4], Retry) else ZERO
    return span(entry[5])


def timeline(last: Entry | None, started: float, backoff: Backoff) -> tuple[Try, ...]:
    """Return all attempts of a call."""
    return tuple(
        Try(
            number,
            _seconds(entry[1] - started),
            _seconds(entry[2] - entry[1]),
            failure_in(entry),
            entry[4] if len(entry) == _FULL else Retry(span(entry[5]), span(backoff.delay(number) or 0.0), "backoff"),
        )
        for number, entry in enumerate(entries_since(None, last), 1)
    )


def why(ended: GiveUp | Defer | None) -> str:
    """Return the reason for the end of a call as a sentence; None stands for success."""
    if isinstance(ended, GiveUp):
        return ended.why
    return "it succeeded" if ended is None else f"the next attempt is deferred to {ended.at:%Y-%m-%d %H:%M:%S} UTC"


def attach(error: Exception, make: Callable[[Record | None], Record]) -> None:
    """Set the record of a call as ``__retry__`` of its last error, and add a note with its summary."""
    earlier = getattr(error, "__retry__", None)
    notes: list[str] = list(getattr(error, "__notes__", ()))
    inner = None
    # Of an inner call, or of an earlier call if an error object is raised twice.
    if isinstance(earlier, Record):
        notes = [note for note in notes if note != earlier.note]
        inner = earlier if earlier.rule == "nested" else None
    record = make(inner)
    # An exception may refuse attributes (a frozen dataclass does); Python itself sets them in this way.
    BaseException.__setattr__(error, "__retry__", record)
    BaseException.__setattr__(error, "__notes__", [*notes, record.note])


def attach_copies(error: Exception, copies: tuple[Record, ...]) -> None:
    """Add the records of the other copies of a hedged call to the record on its error, if it has one."""
    alone = getattr(error, "__retry__", None)
    if isinstance(alone, Record):
        record = alone._replace(copies=copies)
        notes: list[str] = [record.note if note == alone.note else note for note in getattr(error, "__notes__", ())]
        BaseException.__setattr__(error, "__retry__", record)
        BaseException.__setattr__(error, "__notes__", notes)


def _seconds(seconds: float) -> timedelta:
    return timedelta(0, max(0.0, seconds))
