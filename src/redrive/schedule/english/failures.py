"""Sentences about failures by their numbers: ``On the second failure, retry after 1 minute``."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from redrive.schedule.english import actions
from redrive.schedule.english.delays import AGAIN, one_wait, unit_alone, waited, waits_a_span
from redrive.schedule.english.notes import Pieces, wrong
from redrive.schedule.english.spans import ordinal, some, whole
from redrive.schedule.english.tokens import Place, Reader

# The largest number of retries, because each has its delay in the policy; beyond it, retries without end are meant.
MOST = 10_000

_FURTHER = tuple(
    f"{on} {each} {further} {failure}"
    for on in ("on", "after") for each in ("any", "each", "every", "all")
    for further in ("further", "other", "later", "subsequent", "following") for failure in ("failure", "failures")
)  # fmt: skip
_FORMS = ("On the first failure, retry immediately", "On the first to third failures, retry after 1 minute")


class Numbered(msgspec.Struct, frozen=True):
    """The delays after failures by their numbers."""

    delays: dict[int, timedelta]
    places: dict[int, Place]


def on_failure(reader: Reader, notes: Pieces, numbered: Numbered) -> bool:
    """Take a delay for some failures by their numbers; return False if the text is another clause."""
    begin = reader.place
    if reader.take(*_FURTHER):
        reader.take(",", ":")
        need_retry(reader, "On any further failure, retry after 1 hour")
        notes.put("further", one_wait(reader), reader.said(begin))
        return True
    if reader.take("then every"):
        every = unit_alone(reader) or some(reader, "then every hour", "then every 30 minutes")
        notes.put("further", every, reader.said(begin))
        return True
    numbers = failures(reader)
    if numbers is None:
        return False
    reader.take(",", ":")
    if waits_a_span(reader):
        delay = waited(reader)
    elif reader.take(*AGAIN):
        delay = one_wait(reader)
    else:
        reader.place = begin
        return False
    _number(numbered, numbers, delay, reader.said(begin))
    return True


def _number(numbered: Numbered, numbers: list[int], delay: timedelta, place: Place) -> None:
    for each in numbers:
        if each in numbered.delays:
            first = numbered.places[each]
            wrong(place, f"failure {each} described twice: {first} and {place}", "one of them only")
        numbered.delays[each] = delay
        numbered.places[each] = place


def need_retry(reader: Reader, form: str) -> None:
    """Take the verb of a retry, which has to be next."""
    if reader.take(*AGAIN):
        return
    if actions.begins(reader):
        reader.lost("actions are carried out when it gives up", "When it gives up, email the customer", form)
    reader.lost("what is done after a failure belongs here", form, "Retry 3 times every 5 minutes")


def failures(reader: Reader) -> list[int] | None:
    """Take the failures that a sentence is about; return their numbers, or None if it is about no failure."""
    begin = reader.place
    opened = reader.take("on the", "after the", "on", "if the")
    at = reader.place
    found = _first(reader) if opened else None
    if found is None and opened:
        reader.place = at
        found = _numbers(reader)
    nouns = ("failure", "failures", "failed attempt", "unsuccessful attempt")
    named = reader.take(*(("attempt fails", "try fails") if opened == "if the" else nouns))
    if not found or named is None:
        reader.place = begin
        return None
    return found


def _first(reader: Reader) -> list[int] | None:
    """Take ``first 3``."""
    count = whole(reader, MOST) if reader.take("first") else None
    return None if count is None else list(range(1, count + 1))


def _numbers(reader: Reader) -> list[int]:
    """Take ordinals in a list, and ranges of them."""
    found: dict[int, None] = {}
    while True:
        begin = reader.place
        if found and not reader.take(",", "and", ", and", "and the"):
            return list(found)
        first = ordinal(reader)
        if first is None:
            reader.place = begin
            return list(found)
        last = ordinal(reader) if reader.take("to", "through", "to the", "-") else first
        if last is None or not 0 < first <= last or first in found:
            reader.lost("failures are counted from the first one up to a later one", *_FORMS, at=begin)
        if last > MOST + 1:
            reader.refuse(begin, f"there are at most {MOST:,} retries", "On any further failure, retry after 1 hour")
        found |= dict.fromkeys(range(first, last + 1))
