"""Sentences about the end: ``Give up after one week without success``, and what is done then."""

from __future__ import annotations

from redrive.schedule.english.notes import Header, Notes
from redrive.schedule.english.retries import failures
from redrive.schedule.english.spans import number, span
from redrive.schedule.english.tokens import Reader
from redrive.schedule.terms import Action, Exhausted

__all__ = ["action", "giving_up", "terminal", "waits"]


def terminal(reader: Reader, notes: Notes) -> Header | None:
    """Read what the last failure leads to.

    Args:
        reader: where.
        notes: it goes there.

    Returns:
        Its header, below which more may be said; None if it is something else.
    """
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
    if not (waits(reader, notes) or reader.take("give up") or action(reader, notes)):
        reader.fail()
    return header


def waits(reader: Reader, notes: Notes) -> bool:
    """Read that it waits for the next planned refresh.

    Args:
        reader: where.
        notes: it goes there.

    Returns:
        Was it that?
    """
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
    notes.exhausted = Exhausted.WAIT_NEXT
    return True


def giving_up(reader: Reader, notes: Notes) -> Header | None:
    """Read when it gives up.

    Args:
        reader: where.
        notes: it goes there.

    Returns:
        Its header, below which more may be said; None if it is something else.
    """
    if not reader.take("give up"):
        return None
    header = Header(reader.line, None)
    reader.take("only")
    if not reader.take("after"):
        return header
    if reader.take("the"):
        reader.need("final", "last")
        reader.need("unsuccessful", "failed")
        reader.need("retry")
        return header
    begin = reader.place
    found = span(reader)
    if found is not None:
        notes.give_up_after = found
        reader.take("of unsuccessful refresh attempts", "without success")
        return header
    reader.place = begin
    count = number(reader)
    if count is None or not reader.take("attempts", "attempt"):
        reader.fail()
    notes.attempts = int(count)
    return header


def action(reader: Reader, notes: Notes) -> bool:
    """Read what is done when it gives up.

    Args:
        reader: where.
        notes: it goes there.

    Returns:
        Was it that?
    """
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
    whom = reader.take_kind("word", "whom")
    if whom is None or (verb == "send" and not reader.take("an email")):
        reader.place = begin
        return None
    if verb == "send":
        reader.take("notifying them")
    text = reader.rest() if reader.take("that") else None
    return Action("notify" if verb == "notify" else "email", whom.text, text)


def _mark(reader: Reader) -> Action | None:
    if not reader.take("mark the"):
        return None
    what = reader.take_kind("word", "what to mark")
    if what is None or not reader.take("with", "as"):
        reader.fail()
    text = reader.take_kind("quoted", "a text in quotes")
    if text is None:
        reader.fail()
    return Action("mark", what.text, text.text.strip('"').rstrip("."))
