"""Delays before retries: ``after 1 minute, then after 5 minutes``, ``every 5 minutes``, ``5 minutes apart``."""

from __future__ import annotations

import itertools
from datetime import timedelta

import msgspec

from redrive.schedule.english.spans import SIZES, number, some, span, written
from redrive.schedule.english.tokens import Reader
from redrive.schedule.english.words import UNITS
from redrive.schedule.options import LONGEST

FORMS = ("Retry after 5 minutes", "Retry 3 times every 5 minutes")

AGAIN = ("retry it", "retry", "try again", "try it again")
BEFORE = tuple(
    f"before {each}" for each in ("retrying", "trying again", "a retry", "the retry", "the next attempt", "retrying it")
)
BETWEEN = (
    *(f"between {each}" for each in ("retries", "attempts", "tries", "the retries", "the attempts", "them")),
    *(f"between each {each}" for each in ("retry", "attempt")),
    *(f"before {each} retry" for each in ("each", "every")),
    *(f"after {each} failure" for each in ("each", "every")),
)
THEN = ("and then", "and", ", then", ", and then", ", and", "then", ",")
_NOW = ("immediately", "right away", "at once", "straight away", "without delay")
_SPACED = (
    "every", "each", "once every", "at intervals of", "in intervals of", "with a delay of", "with a pause of",
    "with an interval of", "with intervals of",
)  # fmt: skip
_BACKOFF = ("with exponential backoff starting at", "with exponential backoff from", "with exponential backoff")
_BACKOFF_FORM = "Retry 5 times with exponential backoff starting at 1 minute up to 10 minutes"


class Delay(msgspec.Struct, frozen=True):
    """A delay of a list."""

    # None for a number alone, which takes the unit of a later one: 1, 5 and 15 minutes.
    length: timedelta | None
    count: float = 0
    # The unit at its end.
    unit: str = ""
    # True for "1 hour and 30 minutes", which in a list could be two delays.
    is_combined: bool = False


def one_wait(reader: Reader) -> timedelta:
    """Take one delay: ``immediately``, ``after 5 minutes``, ``in 5 minutes``, ``5 minutes later``."""
    if reader.take(*_NOW):
        return timedelta(0)
    opened = reader.take("after", "in")
    found = span(reader, commas=False)
    if found is None or (opened is None and not reader.take("later")):
        reader.lost("a delay belongs here", "retry immediately", "retry after 5 minutes")
    return found


def waited(reader: Reader) -> timedelta:
    """Take ``wait 5 minutes and try again``."""
    reader.take("wait")
    reader.take("for")
    delay = some(reader, "wait 5 minutes and try again", "wait 5 minutes before retrying")
    if not reader.take(*BEFORE) and not (reader.take(*THEN) and reader.take(*AGAIN)):
        reader.lost("what is done after the wait belongs here", "wait 5 minutes and try again", "retry after 5 minutes")
    return delay


def waits_a_span(reader: Reader) -> bool:
    """Return True if a wait for a span of time is next."""
    begin = reader.place
    found = reader.take("wait for", "wait") is not None and span(reader) is not None
    reader.place = begin
    return found


def is_endless(reader: Reader, begin: int) -> bool:
    """Return True if a delay that begins at a position is one for each retry, however many there are."""
    first = reader.line.tokens[begin].word
    return (reader.line.tokens[begin + 1].word if first in {",", "("} else first) in {"every", "each", "once"}


def spacing(reader: Reader) -> timedelta | None:
    """Take the delay between retries: ``every 5 minutes``, ``5 minutes apart``; return None if none is next."""
    begin = reader.place
    opened = reader.take(*_SPACED, "with", "waiting")
    found = span(reader, commas=False)
    if found is None and opened in {"every", "each", "once every"}:
        found = unit_alone(reader)
    if found is not None:
        is_between = reader.take(*BETWEEN, *(("apart",) if opened is None else ())) is not None
        if is_between or opened in _SPACED:
            return found
    reader.place = begin
    return None


def unit_alone(reader: Reader) -> timedelta | None:
    """Take a unit, as in ``every hour``."""
    found = SIZES.get(reader.word) if reader.kind == "word" else None
    reader.place += found is not None
    return found


def backoff(reader: Reader) -> tuple[timedelta, timedelta] | None:
    """Take the first and the longest delay of an exponential backoff; return None if none is next."""
    if not reader.take(*_BACKOFF):
        return None
    first = some(reader, _BACKOFF_FORM, FORMS[1])
    longest = some(reader, "up to 10 minutes", "up to 1 hour") if reader.take("up to", "to", ", up to") else LONGEST
    return first, longest


def doubled(first: timedelta, longest: timedelta, count: int) -> tuple[timedelta, ...]:
    """Return delays of which each is twice the one before it, up to the longest."""
    found = []
    delay = min(first, longest)
    for _ in range(count):
        found.append(delay)
        delay = longest if delay >= longest / 2 else delay * 2
    return tuple(found)


def delays(reader: Reader) -> tuple[timedelta, ...] | None:
    """Take delays in a list: ``after 1 minute, 5 minutes and 1 hour``, ``after 1, 5 and 15 minutes``."""
    begin = reader.place
    is_open = reader.take("after", "in") is not None
    if not is_open and not reader.sees(*_NOW):
        later = span(reader, commas=False)
        if later is not None and reader.take("later"):
            return (later,)
        reader.place = begin
        return None
    return _list(reader, begin)


def listed(reader: Reader) -> tuple[timedelta, ...] | None:
    """Take delays that are a whole clause: ``0, 1 minute, 5 minutes``; return None if it is not clear that they are."""
    begin = reader.place
    first = _delay(reader)
    is_list = first is not None and (first.length is not None or not first.count) and _linked(reader) is not None
    reader.place = begin
    found = _list(reader, begin) if is_list else None
    if found is None or not reader.is_ended:
        reader.place = begin
        return None
    return found


def _list(reader: Reader, begin: int) -> tuple[timedelta, ...]:
    """Take the delays of a list."""
    first = _delay(reader)
    if first is None:
        reader.lost("a delay belongs here", *FORMS)
    found, links = [first], []
    while (following := _linked(reader)) is not None:
        links.append(following[0])
        found.append(following[1])
    if found[-1].length is None:
        reader.lost("a unit of time belongs to each delay", *FORMS, at=begin)
    lengths = _sized(found)
    _check_list(reader, begin, found, lengths, links)
    return lengths


def _linked(reader: Reader) -> tuple[str, Delay] | None:
    """Take a further delay and the words before it; return None if none is next."""
    begin = reader.place
    link = reader.take(*THEN)
    if link is not None:
        reader.take("after", "in")
        found = _delay(reader)
        if found is not None:
            return link, found
    reader.place = begin
    return None


def _delay(reader: Reader) -> Delay | None:
    begin = reader.place
    if reader.take(*_NOW):
        return Delay(timedelta(0))
    length = span(reader, commas=False)
    if length is not None:
        words = [each.word for each in reader.line.tokens[begin : reader.place]]
        return Delay(length, unit=UNITS.get(words[-1], ""), is_combined="and" in words and words[-1] in UNITS)
    count = number(reader)
    if count is None or reader.word not in {",", "and"}:
        reader.place = begin
        return None
    return Delay(None, count)


def _sized(found: list[Delay]) -> tuple[timedelta, ...]:
    """Return the lengths of delays; a number alone takes the unit of the next one that has it."""
    lengths: list[timedelta] = []
    unit = ""
    for each in reversed(found):
        unit = each.unit or unit
        lengths.append(each.count * SIZES[unit] if each.length is None else each.length)
    return tuple(reversed(lengths))


def _check_list(
    reader: Reader, begin: int, found: list[Delay], lengths: tuple[timedelta, ...], links: list[str]
) -> None:
    """Refuse a list of which it is not clear where one delay ends and the next one begins."""
    if len(found) == 1 or all("then" in each for each in links):
        return
    said = reader.said(begin)
    if any(each.is_combined for each in found):
        reader.refuse(
            begin,
            f"it is not clear which delays {said} has",
            f"Retry after {', then after '.join(map(written, lengths))}",
            "Retry after 2 hours, then after 90 minutes",
        )
    units = [SIZES[each.unit] if each.unit else timedelta(0) for each in found]
    if all(one > two > timedelta(0) for one, two in itertools.pairwise(units)):
        reader.refuse(
            begin,
            f"it is not clear whether {said} is one delay or several",
            f"Retry after {' and '.join(map(written, lengths))}",
            f"Retry after {', then after '.join(map(written, lengths))}",
        )
