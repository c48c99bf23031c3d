"""Sentences about the end: ``Give up after one week without success``, and what is done then."""

from __future__ import annotations

from redrive.schedule.english.notes import Header, Notes
from redrive.schedule.english.retries import failures
from redrive.schedule.english.spans import number, span
from redrive.schedule.english.tokens import Reader
from redrive.schedule.options import Action, Exhausted


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
    gives_up(reader, notes)
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
    _ends(reader, notes, Exhausted.WAIT_NEXT)
    return True


def gives_up(reader: Reader, notes: Notes) -> None:
    """Note that the last failure ends the refresh; raise `ScheduleSyntaxError` if another sentence lets it wait."""
    _ends(reader, notes, Exhausted.GIVE_UP)


def _ends(reader: Reader, notes: Notes, how: Exhausted) -> None:
    """Note what the last failure leads to."""
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
    gives_up(reader, notes)
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
    following = reader.line.tokens[reader.place + 1 : reader.place + 2]
    is_alone = not following or following[0].text == ";"
    token = reader.take_kind("quoted", "a text in quotes") if is_alone else None
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
