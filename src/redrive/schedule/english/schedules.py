"""Sentences about the schedule: ``Refresh the model every 2 hours``, ``At 6 AM every day, refresh BigTable``."""

from __future__ import annotations

from typing import NoReturn

from redrive.schedule.english import places
from redrive.schedule.english.notes import Pieces
from redrive.schedule.english.recurrences import FORMS, Recurrence, phrases
from redrive.schedule.english.tokens import Reader
from redrive.schedule.english.words import NO_NAMES

_STARTS = (
    *(f"{verb} {what}" for verb in ("schedule", "trigger", "perform", "do") for what in ("a refresh", "the refresh")),
    "schedule refreshes", "execute", "auto-refresh", "refreshes", "run the refresh", "start the refresh",
    "start a refresh", "start refresh", "run the refresh", "run a refresh", "run refresh", "start", "refresh", "run",
    "update", "reload", "rebuild", "sync",
)  # fmt: skip
# Verbs of a task without a schedule, such as a request after an edit.
_TASKS = ("send", "make", "create")
_RUNS = (
    "should start", "should run", "should be started", "should be run", "should be refreshed", "should refresh",
    "must start", "must run", "must be refreshed", "is configured to run", "is scheduled to run", "is scheduled",
    "is refreshed", "are refreshed", "is updated", "are updated", "should be updated", "must be updated",
    "is run", "is started", "runs", "starts", "refreshes", "run", "start",
    "will be refreshed", "will run", "happens", "should happen",
)  # fmt: skip
_SUBJECTS = ("refresh", "the refresh", "refreshes", "the refreshes", "it", "auto-refresh", "the schedule")
_SUBJECTS_RUN = tuple(
    f"{subject} {runs}"
    for subject in _SUBJECTS for runs in _RUNS if not (runs == "refreshes" and "refresh" in subject)
)  # fmt: skip
_ARTICLES = ("the", "our", "my", "their", "all", "a", "an")
_PRONOUNS = ("it", "this", "everything")
# Between the words of a name.
_LINKS = frozenset({"of", "for"})
# Names have at most so many words.
_LONGEST = 8
# Words that often follow, with the reason why they are not understood, and forms that work.
_REASONS = {
    **dict.fromkeys(
        ("semiweekly", "semi-weekly"),
        ("it means twice a week", "twice a week on Monday and Thursday", "every 2 weeks on Monday"),
    ),
    **dict.fromkeys(
        ("bimonthly", "bi-monthly", "semimonthly", "semi-monthly"),
        ("it means twice a month or every two months", "every 2 months on the 1st", "on the 1st and 15th of the month"),
    ),
    **dict.fromkeys(
        ("biannually", "biennially", "semiannually", "semi-annually"),
        ("it means twice a year or every two years", "every 6 months on the 1st", "every 2 years on March 1"),
    ),
    **dict.fromkeys(
        ("if", "unless", "when", "whenever", "while", "only", "provided"),
        ("a schedule has no conditions", "every day at 9 AM", "every hour during business hours"),
    ),
    **dict.fromkeys(
        ("about", "around", "approximately", "roughly", "approx", "circa"),
        ("a schedule is exact; a spread is a sentence of its own", "at 9 AM", "Spread starts over 10 minutes"),
    ),
    **dict.fromkeys(
        ("sometimes", "occasionally", "often", "regularly", "frequently", "periodically", "constantly", "continuously"),
        ("it is missing how often", *FORMS),
    ),
    "or": ("a schedule has no alternatives", "every day at 10 AM and 11 AM", "every Monday and Friday at 9 AM"),
    "for": ("a schedule has a last day, not a length", "until 2026-12-31", "until December 31, 2026"),
    "outside": ("a window is the time in which it runs", "from 5 PM to 9 AM", "between 9 AM and 5 PM"),
}


def schedule(reader: Reader, notes: Pieces, *, is_first: bool) -> bool:
    """Take a schedule; return False if the text is another clause.

    Without its verb a recurrence stands only at the beginning of a sentence: in "retry after 5 minutes and every 2
    hours" it would be read as a schedule.
    """
    begin = reader.place
    found = Recurrence(notes)
    label = reader.take("schedule :") if is_first else None
    is_named = _verb(reader, notes, found)
    if not (is_named or is_first):
        reader.place = begin
        return False
    name_before = is_named and reader.place > begin and reader.line.tokens[reader.place - 1].word not in _LAST_WORDS
    phrases(reader, found, name_before=name_before)
    if not is_named and reader.place > begin and not label:
        reader.take(",")
        is_named = _verb(reader, notes, found)
        if not is_named and reader.line.tokens[reader.place - 1].text == ",":
            reader.place -= 1
        phrases(reader, found)
    if found.is_empty and not is_named and not label:
        reader.place = begin
        return False
    if found.is_empty and "task" in notes and (reader.is_ended or reader.word in {",", "and"}):
        return True
    if found.is_empty or (not found.has_when and not found.part):
        lost_phrase(reader)
    notes.put("schedule", found, reader.said(begin))
    return True


_LAST_WORDS = frozenset(word for phrase in (*_STARTS, *_RUNS) for word in phrase.split()[-1:])


def _verb(reader: Reader, notes: Pieces, found: Recurrence) -> bool:
    """Take what is refreshed, and the verb; return False if the text is another clause."""
    begin = reader.place
    reader.take("please")
    reader.take("automatically")
    if reader.take(*_SUBJECTS_RUN):
        return True
    if reader.take(*_STARTS):
        at = reader.place
        if reader.word in _STARTS:
            reader.lost("there are two verbs", "Refresh every 2 hours", "Run every day at 9 AM")
        if _name(reader):
            notes.put("subject", reader.said(at).text, reader.said(at))
        reader.take("automatically")
        return True
    if reader.take(*_TASKS):
        at = reader.place
        if _name(reader) and (not reader.take("to") or _name(reader)):
            notes.put("subject", reader.said(begin).text, reader.said(begin))
            notes.put("task", found, reader.said(begin))
            return True
        reader.place = begin
        return False
    at = reader.place
    if _name(reader):
        place = reader.said(at)
        if reader.take(*_RUNS):
            notes.put("subject", place.text, place)
            return True
    reader.place = begin
    return False


def _name(reader: Reader) -> bool:
    """Take a name: something in quotes, or words that have no meaning of their own; return False if none is next."""
    begin = reader.place
    if reader.take(*_PRONOUNS):
        return True
    reader.take(*_ARTICLES)
    if reader.take_kind("quoted"):
        return True
    at = reader.place
    while reader.place < at + _LONGEST:
        if not (reader.kind == "word" and _is_name(reader)):
            linked = reader.place > at and reader.word in _LINKS
            following = reader.place + 1 + (reader.ahead(1) in _ARTICLES)
            tokens = reader.line.tokens
            if not (
                linked
                and following < len(tokens)
                and tokens[following].kind == "word"
                and tokens[following].word not in NO_NAMES
            ):
                break
            reader.place = following
        reader.place += 1
    if reader.place == at:
        reader.place = begin
        return False
    return True


def _is_name(reader: Reader) -> bool:
    word = reader.word
    if word in NO_NAMES or word in _RUN_WORDS:
        return False
    # An adverb, unless it begins with a capital letter: Italy, Assembly.
    token = reader.next
    return token is not None and (not word.endswith("ly") or token.text[0].isupper() or word in {"supply", "family"})


_RUN_WORDS = frozenset(
    {"is", "are", "should", "must", "will", "runs", "starts", "refreshes", "happens", "can", "could"}
)


def has_reason(word: str) -> bool:
    """Return True if it is known why a word is not understood."""
    return word in _REASONS


def lost_phrase(reader: Reader) -> NoReturn:
    """Raise `ScheduleSyntaxError` for words that belong to no phrase of a recurrence."""
    begin = reader.place
    reader.take(",")
    reader.take("(")
    places.refuse_place(reader)
    reader.place = begin
    reader.take(",", "and", "but", ", and", ", but")
    if reader.is_ended:
        reader.place = begin
        reader.lost("it is missing how often", *FORMS)
    word = reader.word
    if word in _REASONS:
        why, *forms = _REASONS[word]
        reader.lost(why, *forms)
    if word == "on" and reader.line.tokens[min(reader.place + 1, len(reader.line.tokens) - 1)].kind == "date":
        reader.lost("a schedule repeats", "every year on December 24 at 9 AM", 'by time "2026-12-24T09:00:00"')
    if word in _ARTICLES:
        reader.lost(
            "a name has no words that have a meaning of their own; put it into quotes",
            'Refresh "the daily report" every day',
        )
    kinds = [each.kind for each in reader.line.tokens[reader.place : reader.place + 2]]
    if word == "on" and kinds[1:] == ["odd"]:
        reader.lost("a date has its month in words", "on December 25", "on the 25th of the month")
    if kinds[0] == "odd" or (word == "at" and (kinds[1:] == ["odd"] or "." in reader.ahead(1))):
        reader.lost(
            "a time has a colon, a fraction has a point, and a list has blanks after its commas", "14:30", "1.5 hours"
        )
    if word == "at" and reader.ahead(1) in _REASONS:
        why, *forms = _REASONS[reader.ahead(1)]
        reader.lost(why, *forms)
    if word == "at" and reader.ahead(1) not in {"least", "most"}:
        reader.lost('a time of day belongs after "at"', "at 9 AM", "at 16:30")
    _refuse_misspelled(reader)
    reader.lost("it belongs neither to a schedule nor to another clause", *FORMS)


def _refuse_misspelled(reader: Reader) -> None:
    """Refuse a word that is nearly "every": it is taken for a part of a name, and the words behind it are lost."""
    import difflib

    for at, token in enumerate(reader.line.tokens):
        if token.word != "every" and difflib.get_close_matches(token.word, ["every"], 1, 0.85):
            reader.refuse(at, f"not understood: {token.text!r}: did you mean 'every'?")
