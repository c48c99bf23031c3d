"""A text becomes a policy: its lines are read one by one, and then all is put together."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NoReturn, TypeVar

from redrive.errors import ScheduleError, ScheduleSyntaxError
from redrive.schedule.english.clauses import clause, ended, nested
from redrive.schedule.english.notes import Header, Notes
from redrive.schedule.english.tokens import Reader, TextLine, lines
from redrive.schedule.options import Exhausted, Strategy

P = TypeVar("P")


def parse(text: str, make: Callable[..., P], *, start: datetime | None = None) -> P:
    """Parse a refresh policy; see `redrive.schedule.RefreshPolicy.parse`. ``make`` builds it from its fields."""
    found = lines(text)
    if not found:
        raise ScheduleSyntaxError.at("not understood: there is nothing; write when it is refreshed", 1, 1)
    notes = Notes(start)
    header: Header | None = None
    for line in found:
        if header is not None and line.indent <= header.line.indent:
            header = None
        header = _read(line, notes, header)
    return _together(notes, found[-1], make)


def _read(line: TextLine, notes: Notes, header: Header | None) -> Header | None:
    reader = Reader(line)
    while True:
        if header is not None:
            nested(reader, notes, header)
        else:
            found = clause(reader, notes)
            if found is not None and reader.next is None and line.tokens[-1].text == ":":
                return found
        if ended(reader):
            return header


def _together(notes: Notes, line: TextLine, make: Callable[..., P]) -> P:
    count = len(notes.delays)
    missing = next((each for each in range(1, count + 1) if each not in notes.delays), None)
    if missing is not None:
        _wrong(f"failure {missing} is not described, but failure {max(notes.delays)} is", line)
    if notes.last_failure not in {None, count + 1}:
        _wrong(f"failure {notes.last_failure} ends the retries, but {count} retries are described", line)
    if notes.attempts not in {None, count + 1}:
        _wrong(f"give up after {notes.attempts} attempts, but {count} retries are described", line)
    exhausted = notes.exhausted
    # A last failure that does not wait for anything.
    if exhausted is None and notes.last_failure is not None:
        exhausted = Exhausted.GIVE_UP
    if exhausted is Exhausted.GIVE_UP and notes.further is not None:
        _wrong("two endings: any further failure is retried, but the last retry ends the refresh", line)
    delays = tuple(notes.delays[each] for each in sorted(notes.delays))
    if notes.further is not None:
        delays = (*delays, notes.further)
    given = {
        "timeout": notes.timeout,
        "catch_up": notes.catch_up,
        "jitter": notes.jitter,
        "give_up_after": notes.give_up_after,
    }
    try:
        return make(
            schedule=notes.schedule,
            delays=delays,
            repeat_last=notes.further is not None,
            strategy=notes.strategy or Strategy.ALIGN,
            on_exhausted=exhausted,
            on_give_up=tuple(notes.actions),
            **{name: value for name, value in given.items() if value is not None},
        )
    except ScheduleError as error:
        _wrong(str(error).rpartition("': ")[2], line)


def _wrong(problem: str, line: TextLine) -> NoReturn:
    raise ScheduleSyntaxError.at(problem, line.number, 1)
