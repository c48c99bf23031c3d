"""A text becomes a policy: its sentences are read one by one, and then all is put together."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from redrive.errors import ScheduleSyntaxError
from redrive.schedule.english.clauses import START, Before, clause, lost_after, nested
from redrive.schedule.english.failures import Numbered
from redrive.schedule.english.notes import Header, Pieces, wrong
from redrive.schedule.english.tokens import Place, Reader, TextLine, lines
from redrive.schedule.english.whole import Whole
from redrive.schedule.schedule import Schedule

P = TypeVar("P")

_LINKS = (", and then", ", and", ", but", ", then", "and then", "and", "but", "then", ",", ", plus")
_NOT_LINKED = ("then every",)
# The pieces of a text that is a recurrence and nothing more.
_WHEN = frozenset({"schedule", "start", "until", "gap", "business"})


class Understood(msgspec.Struct, Generic[P], frozen=True):
    """A policy, and what it refreshes."""

    policy: P
    # As written; None if the text does not name it.
    subject: str | None
    # True if the subject is a task with its verb, such as "Send a request to the service".
    is_task: bool
    # About readings that an author could mistake, such as the end of a window.
    remarks: tuple[str, ...] = ()


def parse(text: str, make: Callable[..., P], *, start: datetime | None = None) -> P:
    """Parse a refresh policy; see `redrive.schedule.RefreshPolicy.parse`. ``make`` builds it from its fields."""
    return understand(text, make, start=start).policy


def understand(text: str, make: Callable[..., P], *, start: datetime | None = None) -> Understood[P]:
    """Parse a refresh policy, and return the name of what it refreshes with it."""
    notes, numbered, last = _pieces(text)
    policy = Whole(notes, numbered, last).build(make, start)
    return Understood(policy, notes.get("subject"), "task" in notes, tuple(notes.remarks))


def recurrence(text: str, tz: str) -> Schedule:
    """Parse a recurrence, such as ``every 90 minutes``, in a time zone; see `redrive.engine.recurring`."""
    notes, numbered, last = _pieces(text)
    other = next((each for each in notes if each not in _WHEN), None)
    if other == "tz":
        wrong(notes.place("tz"), f"{notes.place('tz')} is given by an option", 'tz="Europe/Kyiv"')
    if other is not None or numbered.places:
        place = next(iter(numbered.places.values())) if other is None else notes.place(other)
        wrong(place, f"{place} is not about when it occurs", "every 90 minutes", "every 36 hours")
    notes.put("tz", tz, Place(tz, last.number, 1))
    found = Whole(notes, numbered, last).schedule(None)
    assert found is not None  # a text without a schedule has other pieces, or is not understood
    return found


def _pieces(text: str) -> tuple[Pieces, Numbered, TextLine]:
    """Read the sentences of a text; also return its last line."""
    found = lines(text)
    if not found:
        raise ScheduleSyntaxError.at("not understood: there is nothing; write when it is refreshed", 1, 1)
    notes, numbered = Pieces(), Numbered({}, {})
    header: Header | None = None
    for line in found:
        if header is not None and line.indent <= header.line.indent:
            header = None
        header = _read(line, notes, numbered, header)
    return notes, numbered, found[-1]


def _read(line: TextLine, notes: Pieces, numbered: Numbered, header: Header | None) -> Header | None:
    """Read a line; return the header to which the lines below it belong."""
    reader = Reader(line)
    before = START
    while True:
        if reader.is_ended and before.link.strip(", "):
            lost_after(reader, "link")
        while reader.is_ended and reader.next is not None:
            reader.place += 1
        if reader.next is None:
            return header
        if header is not None:
            nested(reader, notes, header)
            before = Before("nested")
        else:
            found = clause(reader, notes, numbered, _linked(reader, before))
            if isinstance(found, Header) and reader.next is None:
                return found
            before = Before("header" if isinstance(found, Header) else found)
            _inside(reader, notes, numbered)
        before = _ended(reader, before)


def _linked(reader: Reader, before: Before) -> Before:
    """Take a word such as "then" at the beginning of a sentence; return what stands before the next clause."""
    if before.link or reader.sees(*_NOT_LINKED):
        return before
    link = reader.take("but", "then")
    return Before(before.kind, link) if link == "then" else START


def _inside(reader: Reader, notes: Pieces, numbered: Numbered) -> None:
    """Take clauses in parentheses."""
    if reader.is_ended or not reader.take("("):
        return
    while True:
        clause(reader, notes, numbered, Before("plain", "("))
        if reader.take(")"):
            return
        if not reader.take(*_LINKS, ";"):
            lost_after(reader, "plain")


def _ended(reader: Reader, before: Before) -> Before:
    """Go on after a clause; return it, with the words that link it to another clause in the same sentence."""
    if reader.is_ended or before.kind == "header":
        return before
    if reader.sees("with", "without"):
        return Before(before.kind, "with")
    if reader.sees(", then every") and before.kind == "retries":
        return Before(before.kind, str(reader.take(",")))
    is_retry = before.kind == "retries" and reader.sees(*_NOT_LINKED)
    link = "then" if is_retry else reader.take(*_LINKS)
    if link is None or ("then" in link and not is_retry and reader.sees("then")):
        lost_after(reader, before.kind)
    return Before(before.kind, link)
