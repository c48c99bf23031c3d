"""Sentences about retries: ``On the second failure, retry after 1 minute``."""

from __future__ import annotations

from datetime import timedelta

from redrive.schedule.english.notes import Notes
from redrive.schedule.english.spans import number, ordinal, some, span
from redrive.schedule.english.tokens import Reader
from redrive.schedule.options import LONGEST

# Retries that can be counted. Each has its delay in the policy; who wants more wants them for ever.
MOST = 10_000

_NOW = ("immediately", "right away", "at once")


def _wait(reader: Reader) -> timedelta | None:
    if reader.take(*_NOW):
        return timedelta(0)
    return span(reader) if reader.take("after", "in") else None


def on_failure(reader: Reader, notes: Notes) -> bool:
    """Parse a delay for some failures by their numbers; return False if the text is another clause."""
    begin = reader.place
    if reader.take("on any further failure"):
        reader.take(",")
        reader.need("retry")
        notes.further = _wait(reader) if notes.further is None else reader.fail("further failures described twice")
        return notes.further is not None or reader.fail()
    if reader.take("then every"):
        notes.further = some(reader)
        return True
    numbers = failures(reader)
    if numbers is None or not (reader.take(",") or True) or not reader.take("retry"):
        reader.place = begin
        return False
    delay = _wait(reader)
    if delay is None:
        reader.fail()
    for each in numbers:
        if each in notes.delays:
            reader.fail(f"failure {each} described twice")
        notes.delays[each] = delay
    return True


def failures(reader: Reader) -> range | None:
    """Parse the failures that a sentence is about; return their numbers, or None."""
    if not reader.take("on the"):
        return None
    begin = reader.place
    if reader.take("first") and (count := number(reader)) is not None:
        first, last = 1, _counted(reader, count)
    else:
        reader.place = begin
        first = ordinal(reader) or 0
        last = (ordinal(reader) or 0) if reader.take("to", "through") else first
    return range(first, last + 1) if first and last and reader.take("failures", "failure") else None


def _counted(reader: Reader, count: float) -> int:
    return int(count) if count <= MOST else reader.fail(f"there are at most {MOST:,} retries")


def retries(reader: Reader, notes: Notes) -> bool:
    """Parse delays as a list, or as many of one kind; return False if the text is another clause."""
    if not reader.take("retry"):
        return False
    if notes.delays:
        reader.fail("retries described twice")
    first = _wait(reader)
    delays = _then(reader, first) if first is not None else _so_many(reader)
    notes.delays = dict(enumerate(delays, 1))
    return True


def _then(reader: Reader, first: timedelta) -> list[timedelta]:
    found = [first]
    while True:
        begin = reader.place
        joined = reader.take(", then", ", and", "and then", "then", "and", ",")
        reader.take("after")
        following = (timedelta(0) if reader.take(*_NOW) else span(reader)) if joined else None
        if following is None:
            reader.place = begin
            return found
        found.append(following)


def _so_many(reader: Reader) -> list[timedelta]:
    reader.take("up to")
    count = number(reader)
    if count is None or not float(count).is_integer():
        reader.fail()
    reader.need("times", "time")
    many = range(_counted(reader, count))
    if reader.take("with a delay of"):
        delay = some(reader)
        return [delay for _ in many]
    if not reader.take("with exponential backoff starting at"):
        return [timedelta(0) for _ in many]
    first = some(reader)
    most = some(reader) if reader.take("up to") else LONGEST
    found = []
    delay = first
    for _ in many:
        found.append(delay)
        delay = most if delay >= most / 2 else delay * 2
    return found
