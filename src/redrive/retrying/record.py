"""The record of a call and its events: one entry for each attempt, and what is made of the entries.

An entry is a tuple in one of two forms, so that a failure that `Plan.quick` decides on costs no more than that tuple.
Its first element is the entry before it: appending to a list would take as long as creating the entry. The record is
made only if the call gives up or its outcome is requested.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeAlias

from redrive.errors.foreign import attribute, is_a, mark_of, notes_of, set_attribute, set_mark
from redrive.policy import Backoff, Decision, Defer, Failure, GiveUp, Retry
from redrive.policy.duration import ZERO, span
from redrive.policy.failure import names_of_class
from redrive.policy.outcome import Record, Try
from redrive.policy.stage import origins

_Quick: TypeAlias = "tuple[Entry | None, float, float, type[Exception], str, float]"
"""An attempt decided by `Plan.quick`: entry before, start, end, class and text of the error, seconds to wait."""
_Full: TypeAlias = "tuple[Entry | None, float, float, Failure | None, Decision | None]"
"""An attempt decided by `Policy.decide`: entry before, start, end, failure, decision; the last two None for success."""
Entry: TypeAlias = "_Quick | _Full"
FULL: Final = 5
"""The length of the second form."""


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
    if len(entry) == FULL:
        return entry[3]
    types, _, stage = names_of_class(entry[3])
    return Failure(types, entry[4], stage=stage)


def wait_in(entry: Entry) -> timedelta:
    """Return the wait that was decided on after an attempt."""
    if len(entry) == FULL:
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
            entry[4] if len(entry) == FULL else Retry(span(entry[5]), span(backoff.delay(number) or 0.0), "backoff"),
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
    earlier, notes = attribute(error, "__retry__"), notes_of(error)
    inner = None
    # Of an inner call, or of an earlier call if an error object is raised twice.
    if isinstance(earlier, Record):
        notes = [note for note in notes if note != earlier.note]
        inner = earlier if earlier.rule == "nested" else None
    record = make(inner)
    set_attribute(error, "__retry__", record)
    set_attribute(error, "__notes__", [*notes, record.note])


_SPENT = "__redrive_spent__"


def mark_spent(error: Exception, attempts: int, at: float) -> None:
    """Store on an error the attempts of a call that has given up with it, and when; ``at`` is monotonic time."""
    set_mark(error, _SPENT, (at, attempts))


def pass_spent(error: BaseException, response: object) -> None:
    """Store on a response what `mark_spent` has stored on the error that stood for it within a call.

    A client returns the response, or raises another error for it, which has it as its attribute ``response``.
    """
    found = mark_of(error, _SPENT)
    if found is not None:
        setattr(response, _SPENT, found)


def spent_since(failed: object, began: float) -> tuple[float, int]:
    """Return the latest end of a call that has given up with an error or a response, and its attempts.

    A call counts if it has given up with the error, with an origin of it, or with the response of one of these. Calls
    that ended before an instant do not count: one error object may be raised by several calls. If several count, as
    those of an exception group, the attempts are those of the one with most. Without any the result is ``(began, 0)``.
    """
    errors = list(origins(failed)) if is_a(failed, BaseException) else []
    responses = [attribute(error, "response") for error in errors] or [failed]
    marks = [*(mark_of(error, _SPENT) for error in errors), *(_mark_on(response) for response in responses)]
    late = [mark for mark in marks if mark is not None and mark[0] > began]
    return max((at for at, _ in late), default=began), max((attempts for _, attempts in late), default=0)


def _mark_on(response: object) -> tuple[float, int] | None:
    """Return what `pass_spent` has stored on an object of any class; None if it has stored nothing."""
    own = attribute(response, "__dict__")
    return own.get(_SPENT) if isinstance(own, dict) else None


def attach_copies(error: Exception, copies: tuple[Record, ...]) -> None:
    """Add the records of the other copies of a hedged call to the record on its error, if it has one."""
    alone = attribute(error, "__retry__")
    if isinstance(alone, Record):
        record = alone._replace(copies=copies)
        notes = [record.note if note == alone.note else note for note in notes_of(error)]
        set_attribute(error, "__retry__", record)
        set_attribute(error, "__notes__", notes)


def _seconds(seconds: float) -> timedelta:
    return timedelta(0, max(0.0, seconds))
