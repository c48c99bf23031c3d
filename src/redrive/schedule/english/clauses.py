"""The clauses of a refresh policy, one parser function for each kind; the results are collected in `Notes`.

The reference describes the grammar with examples. It is parsed by recursive descent (ADR 0009 gives the reasons).
"""

from __future__ import annotations

from datetime import timedelta

from redrive.schedule.english import recurrences
from redrive.schedule.english.failures import action, ends, giving_up, on_failure, retries, terminal, waits
from redrive.schedule.english.notes import Header, Notes
from redrive.schedule.english.spans import some
from redrive.schedule.english.tokens import Reader
from redrive.schedule.options import Exhausted, Strategy

_START = ("start refresh", "refresh should start", "refresh is configured to run", "refresh", "run")
# What could stand at the beginning of a clause, and after "Refresh": examples, because there are many phrases.
_CLAUSES = (
    '"Refresh every 2 hours"',
    '"Allow 10 minutes"',
    '"On the first failure retry immediately"',
    '"On any further failure retry after 1 hour"',
    '"Give up"',
)
_TIMES = ("every 2 hours", "daily at 9:00", "on Mondays at 9:00", "3 times a day")
_GUARDS = frozenset({"allow", "on", "give", "but", "do", "keep", "ignore", "time", "then"})
_STRATEGIES = {
    "keep refreshes aligned with the schedule": Strategy.ALIGN,
    "ignore retries that overlap with the original timing": Strategy.ALIGN,
    "keep retrying until it succeeds": Strategy.UNTIL_SUCCESS,
    "retry until success": Strategy.UNTIL_SUCCESS,
    "retry until the next scheduled refresh": Strategy.UNTIL_PLANNED,
    "retry or refresh whichever comes first": Strategy.WHICHEVER_FIRST,
    "retry only at scheduled refreshes": Strategy.PLANNED_ONLY,
}


def clause(reader: Reader, notes: Notes) -> Header | None:
    """Parse one clause; return its header if lines below can belong to it."""
    reader.take("but")
    begin = reader.place
    for read in (_heading, _overlap, _timeout, _lateness, _spread, on_failure, retries, _schedule):
        if read(reader, notes):
            return None
    header = terminal(reader, notes) or giving_up(reader, notes)
    if header is not None:
        return header if reader.take(":") else None
    if action(reader, notes) or _task(reader):
        return None
    misplaced = reader.take("reset attempt_no", "wait until", "wait for")
    reader.expect_only(begin, *_CLAUSES)
    return reader.fail('reset belongs under "On the Nth failure:"' if misplaced else None)


def nested(reader: Reader, notes: Notes, header: Header) -> None:
    """Parse a clause below a header."""
    if header.of_failure is not None and waits(reader, notes):
        return
    if action(reader, notes):
        return
    if reader.take("give up"):
        if header.of_failure is not None:
            ends(reader, notes, Exhausted.GIVE_UP)
        return
    reader.fail()


def ended(reader: Reader) -> bool:
    """Go on after a clause, and return True at the end of its line.

    Raise `ScheduleSyntaxError` if another text follows than the beginning of the next clause.
    """
    if reader.next is None or reader.take(";"):
        return reader.next is None
    if reader.word == "," and reader.second in _GUARDS:
        reader.place += 1
        return False
    reader.expect("; and a further sentence", "the end of the line")
    return reader.fail()


def _heading(reader: Reader, notes: Notes) -> bool:
    """Parse a heading, which only introduces other lines."""
    del notes
    return bool(reader.take("retry policy :", "retry policy", "do retries"))


def _overlap(reader: Reader, notes: Notes) -> bool:
    phrase = reader.take(*_STRATEGIES)
    if phrase is None:
        return False
    if notes.strategy is not None:
        reader.fail("two overlap strategies")
    notes.strategy = _STRATEGIES[phrase]
    return True


def _schedule(reader: Reader, notes: Notes) -> bool:
    begin = reader.place
    if reader.take(*_START):
        after = reader.place
        while reader.next is not None and reader.word not in {";", ","} and not recurrences.begins(reader):
            reader.place += 1
        reader.expect_only(after, *_TIMES)
    if reader.next is None or not recurrences.begins(reader):
        reader.place = begin
        return False
    found = recurrences.recurrence(reader, notes.start)
    if notes.schedule is not None:
        reader.fail("two schedules")
    notes.schedule = found
    return True


def _task(reader: Reader) -> bool:
    """Parse the description of the task, which has no effect."""
    if not reader.take("send", "make", "create"):
        return False
    return bool(reader.rest())


def _timeout(reader: Reader, notes: Notes) -> bool:
    begin = reader.place
    reader.take("the")
    if not (
        reader.take("allow", "time out after")
        or (
            reader.take("time limit", "timeout")
            and (reader.take("for a refresh process") or True)
            and reader.take("is set to", "is")
        )
    ):
        reader.place = begin
        return False
    found = some(reader)
    if found <= timedelta(0):
        reader.fail("the timeout must be positive")
    if notes.timeout is not None:
        reader.fail("two timeouts")
    notes.timeout = found
    reader.take("to complete", "to finish", "to respond", "for a response")
    return True


def _lateness(reader: Reader, notes: Notes) -> bool:
    if not reader.take("start at most"):
        return False
    notes.catch_up = some(reader)
    reader.need("late")
    return True


def _spread(reader: Reader, notes: Notes) -> bool:
    if not reader.take("spread starts over"):
        return False
    notes.jitter = some(reader)
    return True
