"""Sentences about retries: ``Retry 3 times every 5 minutes``, ``If it fails, wait 5 minutes and try again``."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from redrive.schedule.english.delays import (
    AGAIN,
    BEFORE,
    BETWEEN,
    FORMS,
    THEN,
    backoff,
    delays,
    doubled,
    is_endless,
    listed,
    spacing,
    waits_a_span,
)
from redrive.schedule.english.endings import ends, waits
from redrive.schedule.english.failures import MOST, need_retry
from redrive.schedule.english.notes import Limit, Pieces, wrong
from redrive.schedule.english.spans import number, some, whole, written
from redrive.schedule.english.tokens import Reader
from redrive.schedule.options import Exhausted, Strategy

_TIMES = {"once": 1, "one time": 1, "twice": 2, "thrice": 3}
_UP_TO = ("up to", "at most", "no more than", "not more than", "a maximum of")
_IF = (
    "if it fails", "if the refresh fails", "if a refresh fails", "if this fails", "on failure", "when it fails",
    "in case of failure", "in case of a failure", "on a failure", "if an attempt fails", "upon failure",
    "after a failure",
)  # fmt: skip
_EACH = (
    *(f"{on} {each} failure" for on in ("on", "after") for each in ("any", "each", "every")),
    *("each time it fails", "every time it fails", "whenever it fails"),
)
_NEVER = (
    "do not retry", "don't retry", "never retry", "no retries", "without retries", "do not try again",
    "with no retries",
)  # fmt: skip
_KEEP = ("keep retrying", "keep trying", "continue retrying", "continue to retry")
_SCHEDULED = tuple(
    f"only at {the}{planned} refreshes" for the in ("", "the ", "the next ") for planned in ("scheduled", "planned")
)
_UNTIL_SUCCESS = ("until it succeeds", "until success", "until it is successful", "until it works")
_UNTIL_PLANNED = tuple(
    f"until {the}next {planned} refresh" for the in ("", "the ") for planned in ("scheduled", "planned")
)
_BACKOFF = "Retry 5 times with exponential backoff starting at 1 minute up to 10 minutes"
_ATTEMPTS = ("attempts in total", "attempts", "attempt", "tries")


class Retries(msgspec.Struct, frozen=True):
    """How often it is retried, and after which delays; at least one of the three is given."""

    # Those that are named one by one.
    delays: tuple[timedelta, ...] = ()
    # The number of retries.
    count: int | None = None
    # The delay before each retry.
    every: timedelta | None = None


def retries(reader: Reader, notes: Pieces) -> bool:
    """Take how often it is retried; return False if the text is another clause."""
    begin = reader.place
    conditional = reader.take(*_IF)
    each = None if conditional else reader.take(*_EACH)
    lead = conditional or each
    if lead:
        reader.take(",", ":", ", then", "then")
    if _none(reader, notes, begin) or (conditional and _ended(reader, notes, begin)):
        return True
    if not lead and (_keeps(reader, notes, begin) or _spaced(reader, notes, begin) or _counted(reader, notes, begin)):
        return True
    clause = Clause(reader, notes, begin)
    if waits_a_span(reader):
        clause.wait_first()
    elif lead:
        need_retry(reader, f"{lead.capitalize()}, retry after 5 minutes")
    elif not reader.take(*AGAIN):
        reader.place = begin
        return False
    clause.finish(repeats=each is not None)
    return True


def _none(reader: Reader, notes: Pieces, begin: int) -> bool:
    if not reader.take(*_NEVER):
        return False
    notes.put("retry", Retries(count=0), reader.said(begin))
    return True


def _ended(reader: Reader, notes: Pieces, begin: int) -> bool:
    """Take that the first failure is the last one."""
    if reader.take("give up"):
        ends(notes, Exhausted.GIVE_UP, reader.said(begin))
    elif not reader.sees("wait until", "wait for the", "wait for next") or not waits(reader, notes):
        return False
    notes.put("retry", Retries(count=0), reader.said(begin))
    return True


def _keeps(reader: Reader, notes: Pieces, begin: int) -> bool:
    """Take that retries go on: ``Keep retrying until it succeeds``."""
    if not reader.take(*_KEEP):
        return False
    every = spacing(reader)
    if not _until(reader, notes, begin):
        reader.lost("it is missing until when", "Keep retrying until it succeeds", "Retry every 5 minutes")
    every = spacing(reader) if every is None else every
    if every is not None:
        notes.put("retry", Retries(every=every), reader.said(begin))
    return True


def _until(reader: Reader, notes: Pieces, begin: int) -> bool:
    """Take until when retries go on."""
    if reader.take(*_UNTIL_SUCCESS):
        notes.put("strategy", Strategy.UNTIL_SUCCESS, reader.said(begin))
        notes.put("keep", "keep", reader.said(begin))
    elif reader.take(*_UNTIL_PLANNED):
        notes.put("strategy", Strategy.UNTIL_PLANNED, reader.said(begin))
    else:
        return False
    notes.put("go_on", "go on", reader.said(begin))
    return True


def _spaced(reader: Reader, notes: Pieces, begin: int) -> bool:
    """Take ``Wait 5 minutes between retries``."""
    if waits_a_span(reader):
        reader.take("wait for", "wait")
        delay = some(reader)
        if reader.take(*BETWEEN):
            if reader.line.tokens[reader.place - 1].word == "failure" and _then_again(reader):
                notes.put("retry", Retries(every=delay), reader.said(begin))
            else:
                notes.put("spacing", delay, reader.said(begin))
            return True
    reader.place = begin
    return False


def _then_again(reader: Reader) -> bool:
    """Take ``, then retry``; return False if another text is next."""
    before = reader.place
    if reader.take(*THEN) and reader.take(*AGAIN):
        return True
    reader.place = before
    return False


def _counted(reader: Reader, notes: Pieces, begin: int) -> bool:
    """Take a number of attempts or of retries: ``Make at most 3 attempts``, ``3 retries``."""
    if reader.take("retries :", "max retries :", "number of retries :"):
        spans = listed(reader)
        if spans is not None:
            notes.put("retry", Retries(spans), reader.said(begin))
            return True
        count = whole(reader, MOST)
        if count is not None:
            Clause(reader, notes, begin, count).finish()
            return True
    reader.place = begin
    reader.take("with", "make", "allow", "max", "maximum")
    reader.take(*_UP_TO)
    if reader.take("try", "attempt", "attempt it", "try it") and (count := _times(reader)) is not None:
        _limit(reader, notes, count, begin)
        return True
    at = reader.place
    if number(reader) is not None and reader.sees("retries", "retry", *_ATTEMPTS):
        reader.place = at
        count = whole(reader, MOST)
        if count is not None and reader.take(*_ATTEMPTS):
            _limit(reader, notes, count, begin)
        else:
            reader.take("retries", "retry")
            Clause(reader, notes, begin, count).finish()
        return True
    reader.place = begin
    return False


def _limit(reader: Reader, notes: Pieces, count: int, begin: int) -> None:
    """Note a number of attempts, and the delay between them if it follows."""
    if count < 1:
        reader.refuse(begin, "there is at least one attempt", "Make at most 3 attempts", "Do not retry")
    notes.put("attempts", Limit(count, is_plan=True), reader.said(begin))
    after = reader.place
    reader.take(",")
    every = spacing(reader)
    if every is None:
        reader.place = after
    else:
        notes.put("spacing", every, reader.said(begin))


def _times(reader: Reader) -> int | None:
    """Take a number of retries: ``twice``, ``up to 3 times``."""
    begin = reader.place
    reader.take(*_UP_TO)
    named = reader.take(*_TIMES)
    if named:
        return _TIMES[named]
    at = reader.place
    if number(reader) is not None and reader.take("times", "time", "more times", "more time"):
        end = reader.place
        reader.place = at
        count = whole(reader, MOST)
        reader.place = end
        return count
    reader.place = begin
    return None


class Clause:
    """A clause about retries: how often, after which delays, and until when, each at most once and in any order."""

    def __init__(self, reader: Reader, notes: Pieces, begin: int, count: int | None = None) -> None:
        self._reader = reader
        self._notes = notes
        self._begin = begin
        self._count = count
        # True if an exact number comes before the delay.
        self._is_count_first = False
        self._delays: tuple[timedelta, ...] = ()
        self._every: timedelta | None = None
        # True for "every 5 minutes", which needs no number of retries; "5 minutes apart" does.
        self._is_endless = True

    def wait_first(self) -> None:
        """Take ``wait 5 minutes and try again``."""
        self._reader.take("wait for", "wait")
        self._delays = (some(self._reader),)
        if not self._reader.take(*BEFORE) and not (self._reader.take(*THEN) and self._reader.take(*AGAIN)):
            self._reader.lost(
                "what is done after the wait belongs here",
                "Wait 5 minutes and try again",
                "Wait 5 minutes between retries",
            )

    def finish(self, *, repeats: bool = False) -> None:
        """Take the rest of the clause; ``repeats`` is True if it is about each failure."""
        while not self._reader.is_ended and self._take():
            """Whatever comes, in whatever order."""
        if repeats and self._count is None and self._delays:
            self._repeat()
        if not self._is_endless and self._count is None and "strategy" not in self._notes:
            self._reader.refuse(self._begin, "it is missing how many retries there are", *FORMS)
        made = self._made()
        if made != Retries():
            self._notes.put("retry", made, self._reader.said(self._begin))
        elif "strategy" not in self._notes:
            self._reader.lost("it is missing how often, or when", *FORMS)

    def _take(self) -> bool:
        """Take a part; return False if none is next."""
        reader, before = self._reader, self._reader.place
        opened = reader.take("(")
        comma = None if opened else reader.take(",")
        if self._count is not None and not (comma or opened or self._delays):
            reader.take(":")
        is_taken = self._take_count(before) or self._take_every(before)
        is_taken = is_taken or (not comma and self._take_delays(before))
        if not (is_taken or self._take_backoff() or self._take_strategy()):
            reader.place = before
            return False
        if opened and not reader.take(")"):
            reader.lost("a parenthesis is not closed", "Retry every 5 minutes (up to 10 times)", FORMS[1])
        return True

    def _take_count(self, before: int) -> bool:
        is_limit = self._reader.sees(*_UP_TO)
        count = _times(self._reader)
        if count is None:
            return False
        if self._count is not None:
            self._twice("numbers of retries", before)
        self._is_count_first = not (is_limit or self._delays or self._every is not None)
        self._count = count
        return True

    def _take_every(self, before: int) -> bool:
        every = spacing(self._reader)
        if every is not None and (self._every is not None or self._delays):
            self._twice("delays", before)
        if every is not None:
            self._every = every
            self._is_endless = is_endless(self._reader, before)
        return every is not None

    def _take_delays(self, before: int) -> bool:
        found = delays(self._reader)
        if found is None:
            return False
        if self._every is not None or self._delays:
            self._twice("delays", before)
        if self._is_count_first and (self._count or 0) > 1 and len(found) == 1 and found[0]:
            self._reader.refuse(
                before,
                "it is not clear whether each retry waits, or only the first one",
                f"Retry {self._count} times every {written(found[0])}",
                f"Retry after {written(found[0])}, then immediately",
            )
        self._delays = found
        return True

    def _take_backoff(self) -> bool:
        at = self._reader.place
        found = backoff(self._reader)
        if found is None:
            return False
        if self._count is None or self._delays or self._every is not None:
            self._reader.refuse(at, "a backoff belongs to a number of retries", _BACKOFF, FORMS[1])
        if found[0] > found[1]:
            self._reader.refuse(at, "the first delay is longer than the longest one", _BACKOFF)
        self._delays = doubled(*found, self._count)
        return True

    def _take_strategy(self) -> bool:
        if self._reader.take(*_SCHEDULED):
            self._notes.put("strategy", Strategy.PLANNED_ONLY, self._reader.said(self._begin))
            return True
        return _until(self._reader, self._notes, self._begin)

    def _twice(self, what: str, before: int) -> None:
        place = self._reader.said(before)
        wrong(place, f"two {what}: {self._reader.said(self._begin)}", *FORMS)

    def _repeat(self) -> None:
        """Turn the delay into one that repeats: it is about each failure."""
        if len(self._delays) > 1:
            forms = ("On each failure, retry after 5 minutes", "Retry after 1 minute, then after 5 minutes")
            self._reader.refuse(self._begin, "each failure has one delay", *forms)
        self._every = self._delays[0]
        self._delays = ()

    def _made(self) -> Retries:
        """Return retries with a number and delays that agree."""
        if self._count == 0 and (self._delays or self._every is not None):
            self._reader.refuse(self._begin, "no retry has a delay", "Do not retry", FORMS[1])
        if self._count is None or not self._delays:
            return Retries(self._delays, self._count, self._every)
        if len(self._delays) == 1:
            return Retries((), self._count, self._delays[0])
        if len(self._delays) != self._count:
            self._reader.refuse(self._begin, f"{self._count} retries, but {len(self._delays)} delays", *FORMS)
        return Retries(self._delays)
