"""Sentences about failures: ``On the second failure, retry after 1 minute``, and ``Give up after one week``."""

from __future__ import annotations

from datetime import timedelta

from redrive.schedule.english.notes import Header, Notes
from redrive.schedule.english.spans import number, ordinal, some, span
from redrive.schedule.english.tokens import Reader
from redrive.schedule.options import LONGEST, Action, Exhausted

# The largest number of retries, because each has its delay in the policy; beyond it, retries without end are meant.
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


def terminal(reader: Reader, notes: Notes) -> Header | None:
    """Parse the effect of the last failure; return its header, or None if the text is another clause."""
    begin = reader.place
    numbers = failures(reader)
    if numbers is None or len(numbers) != 1:
        reader.place = begin
        return None
    if notes.last_failure is not None:
        reader.fail("two last failures")
    notes.last_failure = numbers[0]
    header = Header(reader.line, numbers[0])
    if reader.word == ":":
        return header
    reader.take(",")
    if waits(reader, notes) or action(reader, notes):
        return header
    reader.need("give up")
    ends(reader, notes, Exhausted.GIVE_UP)
    return header


def waits(reader: Reader, notes: Notes) -> bool:
    """Parse that the refresh waits for the next planned one; return False if the text is another clause."""
    reset = reader.take("reset attempt_no")
    if reset and reader.next is not None:
        reader.need("and")
    elif reset:
        return True
    if not reader.take("wait until", "wait for"):
        return False
    reader.take("the")
    reader.need("next")
    reader.need("scheduled", "planned")
    reader.need("refresh")
    ends(reader, notes, Exhausted.WAIT_NEXT)
    return True


def ends(reader: Reader, notes: Notes, how: Exhausted) -> None:
    """Note what the last failure leads to; raise `ScheduleSyntaxError` if another sentence differs."""
    if notes.exhausted not in {None, how}:
        reader.fail("two endings: the last failure both gives up and waits for the next scheduled refresh")
    notes.exhausted = how


def giving_up(reader: Reader, notes: Notes) -> Header | None:
    """Parse when the refresh is given up; return its header, or None if the text is another clause."""
    if not reader.take("give up"):
        return None
    header = Header(reader.line, None)
    reader.take("only")
    after = reader.take("after")
    if after and reader.take("the"):
        reader.need("final", "last")
        reader.need("unsuccessful", "failed")
        reader.need("retry")
    elif after:
        begin = reader.place
        found = span(reader)
        if found is not None:
            if notes.give_up_after not in {None, found}:
                reader.fail("two limits in time")
            notes.give_up_after = found
            reader.take("of unsuccessful refresh attempts", "without success")
            return header
        reader.place = begin
        count = number(reader)
        if count is None or not reader.take("attempts", "attempt"):
            reader.fail()
        notes.attempts = int(count)
    ends(reader, notes, Exhausted.GIVE_UP)
    return header


def action(reader: Reader, notes: Notes) -> bool:
    """Parse an action when the refresh is given up; return False if the text is another clause."""
    found = _plain(reader) or _mail(reader) or _mark(reader)
    if found is not None:
        notes.actions.append(found)
    return found is not None


def _plain(reader: Reader) -> Action | None:
    if reader.take("panic"):
        return Action("panic")
    return Action("disable") if reader.take("disable auto-refresh") else None


def _mail(reader: Reader) -> Action | None:
    begin = reader.place
    verb = reader.take("email", "notify", "send")
    if not verb:
        return None
    reader.take("the")
    whom = _name(reader, "whom")
    if not whom or (verb == "send" and not reader.take("an email")):
        reader.place = begin
        return None
    if verb == "send":
        reader.take("notifying them")
    text = _said(reader) if reader.take("that") else None
    return Action("notify" if verb == "notify" else "email", whom, text)


def _said(reader: Reader) -> str:
    """Read a text: in quotes, or all that is left up to a semicolon."""
    token = reader.take_kind("quoted", "a text in quotes") if reader.second in {"", ";"} else None
    return reader.rest() if token is None else reader.unquoted(token)


def _name(reader: Reader, wanted: str) -> str | None:
    """Read a name: a word, or anything in quotes."""
    token = reader.take_kind("word", wanted)
    if token is not None:
        return token.text
    token = reader.take_kind("quoted", f"{wanted}, in quotes")
    return None if token is None else reader.unquoted(token)


def _mark(reader: Reader) -> Action | None:
    if not reader.take("mark the"):
        return None
    what = _name(reader, "what to mark")
    if not what or not reader.take("with", "as"):
        reader.fail()
    text = reader.take_kind("quoted", "a text in quotes")
    if text is None:
        reader.fail()
    return Action("mark", what, reader.unquoted(text) or reader.fail("the text in quotes is empty"))
