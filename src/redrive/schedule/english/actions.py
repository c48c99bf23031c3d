"""Sentences about what is done when it gives up: ``Disable auto-refresh``, ``Email the customer that ...``."""

from __future__ import annotations

from redrive.schedule.english.notes import Pieces
from redrive.schedule.english.tokens import Reader
from redrive.schedule.english.words import NO_NAMES
from redrive.schedule.options import Action

_VERBS = {"email": "email", "e-mail": "email", "mail": "email", "notify": "notify"}
_MAILS = {
    f"{a}{mail}": action
    for mail, action in (("email", "email"), ("e-mail", "email"), ("mail", "email"), ("notification", "notify"))
    for a in ("an ", "a ")
}
_DISABLE = tuple(
    f"{verb} {what}"
    for verb in ("disable", "turn off", "switch off")
    for what in (
        "auto-refresh", "auto refresh", "autorefresh", "automatic refresh",
        "the auto-refresh", "the auto refresh", "it",
    )
)  # fmt: skip
_SAYING = ("that", "saying that", "saying", "notifying them that", "telling them that")
# Words that begin a clause: after a comma or "and", they would be one within a text.
OPENERS = frozenset({
    "retry", "give", "allow", "wait", "refresh", "disable", "email", "e-mail", "notify", "keep", "on", "if", "mark",
    "panic", "never", "do", "don't", "timeout", "start", "spread", "run", "send", "try", "make", "stop", "turn",
    "after", "when", "each", "then", "every",
})  # fmt: skip
_ARTICLES = ("the", "our", "my")
_LONGEST = 4
_FORMS = ("Email the customer that it was disabled", "Notify ops@example.com")


def begins(reader: Reader) -> bool:
    """Return True if an action is next."""
    return reader.word in {*_VERBS, "send", "mark", "panic", "disable", "turn", "switch"}


def action(reader: Reader, notes: Pieces) -> bool:
    """Take an action when the refresh is given up; return False if the text is another clause."""
    begin = reader.place
    found = _plain(reader) or _mail(reader) or _mark(reader)
    if found and "actions" in notes:
        known: dict[Action, None] = notes.get("actions")
        if any(each in known for each in found):
            reader.refuse(begin, f"{reader.said(begin)} is there twice", "each of them once")
        known.update(dict.fromkeys(found))
    elif found:
        notes.put("actions", dict.fromkeys(found), reader.said(begin))
    return bool(found)


def _plain(reader: Reader) -> list[Action]:
    if reader.take("panic"):
        return [Action("panic")]
    return [Action("disable")] if reader.take(*_DISABLE) else []


def _mail(reader: Reader) -> list[Action]:
    begin = reader.place
    verb = reader.take(*_VERBS)
    if verb:
        name, to = _VERBS[verb], _recipients(reader)
        if not to:
            reader.lost("a recipient belongs here", *_FORMS)
    elif reader.take("send"):
        what = reader.take(*_MAILS)
        if what and reader.take("to"):
            to = _recipients(reader)
        else:
            reader.place = begin + 1
            to = _recipients(reader)
            what = reader.take(*_MAILS) if to else None
        if not to or what is None:
            reader.place = begin
            return []
        name = _MAILS[what]
    else:
        return []
    text = _said(reader) if reader.take(*_SAYING) else None
    return [Action(name, each, text) for each in to]


def _recipients(reader: Reader) -> list[str]:
    """Take recipients: each is some words, or anything in quotes."""
    found: dict[str, None] = {}
    while True:
        begin = reader.place
        if found and not reader.take("and", ",", ", and"):
            return list(found)
        name = _recipient(reader)
        if name is None or name in found:
            reader.place = begin
            return list(found)
        found[name] = None


def _recipient(reader: Reader) -> str | None:
    reader.take(*_ARTICLES)
    token = reader.take_kind("quoted")
    if token is not None:
        return reader.unquoted(token) or None
    begin = reader.place
    while reader.kind == "word" and reader.place < begin + _LONGEST and not _ends_name(reader):
        reader.place += 1
    return reader.said(begin).text if reader.place > begin else None


def _ends_name(reader: Reader) -> bool:
    if reader.sees(*_SAYING) or "@" in reader.ahead(-1):
        return True
    return reader.word in NO_NAMES or reader.word in OPENERS or reader.sees("attempt_no")


def _said(reader: Reader) -> str:
    """Take a text: in quotes, or all that is left of the sentence."""
    begin = reader.place
    token = reader.take_kind("quoted")
    if token is not None:
        if reader.is_ended or reader.word in {",", "and", "then"}:
            return reader.unquoted(token)
        reader.place = begin
    if reader.is_ended:
        reader.lost("a text belongs here", *_FORMS)
    while not reader.is_ended:
        if reader.word in {",", "and", "then", "but"} and reader.ahead(1) in OPENERS:
            reader.lost(
                "it could be a part of the text, or a sentence of its own; put the text into quotes, or the sentence "
                "into a line of its own",
                'Email the customer that "it failed"',
            )
        reader.place += 1
    return " ".join(reader.said(begin).text.split())


def _mark(reader: Reader) -> list[Action]:
    if not reader.take("mark the"):
        return []
    forms = ('Mark the banner with "failed"', 'Mark the row as "stale"')
    what = None if reader.word in _ARTICLES else _recipient(reader)
    if not what or not reader.take("with", "as"):
        reader.lost("what is marked, and with which text, belongs here", *forms)
    text = reader.take_kind("quoted")
    if text is None:
        reader.lost("a text in quotes belongs here", *forms)
    said = reader.unquoted(text)
    if not said:
        reader.refuse(reader.place - 1, "the text in quotes is empty", *forms)
    return [Action("mark", what, said)]
