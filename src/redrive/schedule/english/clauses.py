"""The clauses of a refresh policy, one function for each kind; each consumes all of its words.

The reference describes the grammar with examples. It is parsed by recursive descent (ADR 0009 gives the reasons).
"""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn

import msgspec

from redrive.errors import ScheduleError
from redrive.schedule.english import actions, elapsed, endings, failures, places, retries, schedules, times
from redrive.schedule.english.days import listed, month_list, week_days
from redrive.schedule.english.failures import Numbered
from redrive.schedule.english.notes import Header, Pieces, wrong
from redrive.schedule.english.spans import some
from redrive.schedule.english.tokens import Reader
from redrive.schedule.english.words import WORKDAYS
from redrive.schedule.options import Exhausted, Strategy, read_strategy


def definitions(reader: Reader, notes: Pieces) -> bool:
    """Take a sentence about the time zone or the business hours; return False if the text is another clause."""
    begin = reader.place
    if reader.take("the time zone is", "time zone :", "timezone :", "time zone is", "times are", "all times are"):
        reader.take("in") if not reader.sees("in") else None
        if not places.zone_phrase(reader, notes):
            places.refuse_place(reader)
            reader.lost("a time zone belongs here", "Time zone: Europe/Kyiv", "Time zone: UTC")
        return True
    if reader.take("business hours are", "business hours :", "our business hours are", "the business hours are"):
        _business(reader, notes, begin)
        return True
    return _never(reader, notes, begin)


def _never(reader: Reader, notes: Pieces, begin: int) -> bool:
    """Take days or months without refreshes: ``Do not refresh on weekends``."""
    if not reader.take("do not refresh", "don't refresh", "never refresh", "do not run", "don't run", "never run"):
        return False
    reader.take("on", "in", "during")
    week = listed(reader, week_days, "on")
    months = month_list(reader) if week is None else None
    if week is None and months is None:
        reader.lost("days of the week or months belong here", "Do not refresh on weekends", "Do not refresh in August")
    name = "not_except_months" if week is None else "not_except_days"
    notes.put(name, frozenset(week or months or ()), reader.said(begin))
    return True


def _business(reader: Reader, notes: Pieces, begin: int) -> None:
    days: tuple[int, ...] | None = None
    window: times.DayWindow | None = None
    while days is None or window is None:
        at = reader.place
        reader.take(",")
        if window is None and (window := times.window(reader)) is not None:
            continue
        if days is None and (reader.take("on") or True) and (days := listed(reader, week_days)) is not None:
            continue
        reader.place = at
        break
    if window is None or window.begin is None:
        reader.lost(
            "business hours have a beginning and an end",
            "Business hours are Monday to Friday from 9 AM to 5 PM",
            "Business hours are 8:00 to 18:00",
        )
    value = (tuple(sorted(days or WORKDAYS)), elapsed.bounds(window))
    if value[1][0] >= value[1][1]:
        reader.refuse(begin, "business hours end before midnight", "Business hours are 8:00 to 18:00")
    notes.put("business", value, reader.said(begin))


_HEADINGS = ("retry policy :", "retry policy", "retries :", "do retries", "refresh policy :")
_SCHEDULED = tuple(
    f"{the}{planned}" for the in ("", "the ")
    for planned in ("original timing", "schedule", "scheduled refreshes", "planned refreshes")
)  # fmt: skip
# A retry that is ignored, skipped or left out is replaced by the planned refresh, which is the retry then.
_STRATEGIES = {
    **{
        f"keep {what} aligned with {planned}": Strategy.ALIGN
        for what in ("refreshes", "the refresh", "the refreshes") for planned in _SCHEDULED
    },
    **{
        f"{ignore} retries {that} overlap with {planned}": Strategy.ALIGN
        for ignore in ("ignore", "skip", "leave out", "omit", "drop") for that in ("that", "which")
        for planned in _SCHEDULED
    },
    **{
        f"make retries even {when} they overlap with {planned}": Strategy.UNTIL_SUCCESS
        for when in ("when", "if") for planned in _SCHEDULED
    },
    "count attempts anew at scheduled refreshes": Strategy.UNTIL_PLANNED,
    "count attempts anew at each scheduled refresh": Strategy.UNTIL_PLANNED,
    "retry or refresh whichever comes first": Strategy.WHICHEVER_FIRST,
    "retry or refresh , whichever comes first": Strategy.WHICHEVER_FIRST,
}  # fmt: skip
_UP_TO = ("up to", "at most", "no more than", "a maximum of")
_PER = tuple(f"{per} {what}" for per in ("for each", "per", "for every") for what in ("attempt", "refresh", "try"))
_TAILS = (
    "to complete", "to finish", "to respond", "for a response", "for the response", "for completion", "for a refresh",
    "for the refresh", *_PER,
)  # fmt: skip
_LIMITS = tuple(
    f"{the}{limit}{of}"
    for the in ("", "the ", "a ", "with a ", "with the ") for limit in ("timeout", "time limit")
    for of in ("", " for a refresh process", " for a refresh", " for the refresh", " for each attempt", " per attempt")
)  # fmt: skip
_WHAT = ("each attempt", "a refresh", "an attempt", "each refresh", "every refresh", "the refresh", "it")
_TIMES_OUT = ("time out after", "times out after", "timeout after", *(f"{what} times out after" for what in _WHAT))
_MAY_TAKE = tuple(f"{what} may take" for what in _WHAT)
_SPREADS = ("spread over", *(f"spread {the}{what} over" for the in ("", "the ") for what in ("starts", "refreshes")))
_WHEN_GIVEN_UP = (
    "when it gives up", "if it gives up", "after giving up", "when giving up", "on giving up", "when it is given up",
)  # fmt: skip
# The first words of a clause that is not understood, with the reason and forms that work.
_AFTER = {
    "retries": (
        "it does not belong to a sentence about retries",
        "Retry 3 times every 5 minutes",
        "Retry every 5 minutes. Give up after 1 hour.",
    ),
    "action": (
        "an action is carried out when it gives up, and has no other condition",
        "When it gives up, email the customer",
        "Give up after one week",
    ),
    "ending": ("it does not belong to a sentence about the end", "Give up after one week", "Give up after 3 attempts"),
    "link": ("another clause belongs here", "Allow 10 minutes to complete", "Retry 3 times every 5 minutes"),
    "plain": ("it does not belong to this sentence", "Allow 10 minutes to complete", "Refresh every 2 hours"),
}
_FORMS = ("Refresh every 2 hours", "Retry 3 times every 5 minutes")
_KNOWN = {
    "email": ("Email the customer that it was disabled", "Notify ops@example.com"),
    "send": ("Send a request to the service", "Send the customer an email"),
    "give": ("Give up after one week", "Give up after 3 attempts"),
    "stop": ("Give up after one week", "Refresh every hour until 2026-12-31"),
    "allow": ("Allow 10 minutes to complete", "Timeout: 1 hour"),
    "then": ("then every hour", "Retry 3 times every 5 minutes, then give up"),
    "on": ("On the first failure, retry immediately", "On the third failure, give up"),
    "after": ("On the first failure, retry after 5 minutes", "Give up after one week"),
    "wait": ("Wait 5 minutes and try again", "Wait 5 minutes between retries"),
    "retry": ("Retry after 5 minutes", "Retry 3 times every 5 minutes"),
    "disable": ("Disable auto-refresh", "Give up after one week"),
    "cancel": ("Time out after 1 hour", "Give up after one week"),
    "alert": ("Notify ops@example.com", "Email the customer that it was disabled"),
    "if": ("If it fails, retry after 5 minutes", "When it gives up, email the customer"),
    "when": ("When it gives up, email the customer", "If it fails, retry after 5 minutes"),
}


class Before(msgspec.Struct, frozen=True):
    """The clause before a clause."""

    # ``schedule``, ``retries``, ``ending``, ``action``, ``header``, ``nested`` or ``plain``; empty if there is none.
    kind: str
    # The words between them; empty at the beginning of a sentence.
    link: str = ""


START = Before("")


def clause(reader: Reader, notes: Pieces, numbered: Numbered, before: Before) -> Header | str:
    """Take one clause; return its header if lines below can belong to it, and otherwise its kind."""
    begin = reader.place
    if _heading(reader, notes):
        return "header" if reader.line.tokens[reader.place - 1].word == ":" else "plain"
    plain = (definitions, _overlap, _timeout, _lateness, _spread, endings.never)
    if any(read(reader, notes) for read in plain):
        return "plain"
    if failures.on_failure(reader, notes, numbered) or retries.retries(reader, notes):
        return "ending" if reader.line.tokens[reader.place - 1].word == "up" else "retries"
    header = endings.terminal(reader, notes) or endings.giving_up(reader, notes)
    if header is not None:
        return header if reader.take(":") else "ending"
    if reader.take(*_WHEN_GIVEN_UP):
        return _given_up(reader, notes)
    if (before.kind == "retries" or "retry" in notes or "exhausted" in notes) and endings.waits(reader, notes):
        return "ending"
    if actions.action(reader, notes):
        _check_action(reader, before, begin)
        return "action"
    if reader.sees("reset attempt_no", "wait until", "wait for"):
        reader.refuse(
            begin,
            'reset belongs under "On the Nth failure:"',
            "On the third failure, wait until the next scheduled refresh",
            "Retry 3 times, then wait until the next scheduled refresh",
        )
    is_first = not before.link
    return "schedule" if schedules.schedule(reader, notes, is_first=is_first) else _lost(reader, is_first=is_first)


def _check_action(reader: Reader, before: Before, begin: int) -> None:
    """Refuse an action of which it is not clear when it is carried out: "Refresh every hour and email the customer"."""
    if before.link and "then" not in before.link and before.kind not in {"ending", "action"}:
        reader.refuse(
            begin,
            f"it is not clear when {reader.said(begin)} is carried out",
            "When it gives up, email the customer",
            "Retry 3 times every 5 minutes, then email the customer",
        )


def lost_after(reader: Reader, kind: str) -> NoReturn:
    """Raise `ScheduleSyntaxError` for words after a clause that belong neither to it nor to another one."""
    if kind == "schedule":
        schedules.lost_phrase(reader)
    why, *forms = _AFTER.get(kind, _AFTER["plain"])
    reader.lost(why, *forms)


def _given_up(reader: Reader, notes: Pieces) -> Header | str:
    if reader.word == ":" and reader.ahead(1) == "":
        reader.take(":")
        return Header(reader.line, None)
    reader.take(",", ":", "then", ", then")
    if not actions.action(reader, notes):
        reader.lost(
            "what is done when it gives up belongs here",
            "When it gives up, email the customer",
            "When it gives up, disable auto-refresh",
        )
    return "action"


def _lost(reader: Reader, *, is_first: bool) -> str:
    """Raise `ScheduleSyntaxError` for the words of a clause that is not known."""
    if reader.word in _KNOWN:
        reader.lost("such a sentence has another form", *_KNOWN[reader.word])
    if is_first and reader.kind == "word" and not schedules.has_reason(reader.word):
        reader.lost("no sentence of a policy begins so", *_FORMS)
    return schedules.lost_phrase(reader)


def nested(reader: Reader, notes: Pieces, header: Header) -> None:
    """Take a clause below a header."""
    if header.of_failure is not None and endings.waits(reader, notes):
        return
    if actions.action(reader, notes):
        return
    begin = reader.place
    if reader.take("give up"):
        if header.of_failure is not None:
            endings.ends(notes, Exhausted.GIVE_UP, reader.said(begin))
        return
    form = "Wait until the next scheduled refresh" if header.of_failure is not None else "Email the customer"
    reader.lost("below such a line stands what is done when it gives up", "Disable auto-refresh", form)


def _heading(reader: Reader, notes: Pieces) -> bool:
    """Take a heading, which only introduces other lines."""
    begin = reader.place
    found = reader.take(*_HEADINGS)
    if found and found.startswith("retries") and not reader.is_ended:
        reader.place = begin
        return False
    if found:
        notes.put("heading", found.removesuffix(" :"), reader.said(begin))
    return found is not None


def _overlap(reader: Reader, notes: Pieces) -> bool:
    begin = reader.place
    phrase = reader.take(*_STRATEGIES)
    if phrase is not None:
        notes.put("strategy", _STRATEGIES[phrase], reader.said(begin))
    return phrase is not None or _function(reader, notes)


def _function(reader: Reader, notes: Pieces) -> bool:
    """Take ``Use the strategy "name"``, the name of a function."""
    begin = reader.place
    if not reader.take("use the strategy", "use strategy"):
        return False
    token = reader.take_kind("quoted")
    if token is None:
        reader.lost("the name of a strategy belongs here, in quotes", 'Use the strategy "by night"')
    try:
        strategy = read_strategy(reader.unquoted(token))
    except ScheduleError as error:
        wrong(reader.said(begin), str(error))
    notes.put("strategy", strategy, reader.said(begin))
    return True


def _timeout(reader: Reader, notes: Pieces) -> bool:
    begin = reader.place
    if not _limits(reader):
        reader.place = begin
        return False
    found = some(reader, "Allow 10 minutes to complete", "Timeout: 1 hour")
    if found <= timedelta(0):
        reader.refuse(begin, "the timeout must be positive", "Allow 10 minutes to complete", "Timeout: 1 hour")
    reader.take(*_TAILS)
    notes.put("timeout", found, reader.said(begin))
    return True


def _limits(reader: Reader) -> bool:
    """Take the beginning of a sentence about the timeout."""
    if reader.take("allow"):
        limited = reader.take(*_UP_TO)
        return reader.ahead(1) not in {"retries", "retry", "attempts", "attempt"} and (limited is None or True)
    if reader.take(*_TIMES_OUT):
        return True
    if reader.take(*_MAY_TAKE):
        reader.take(*_UP_TO)
        return True
    limit = reader.take(*_LIMITS)
    if limit is None:
        return False
    if limit.startswith(("with", "a ")):
        return reader.take("of") is not None
    reader.take("is set to", "is", ":", "of", "=", ": at most", ": up to")
    return True


def _lateness(reader: Reader, notes: Pieces) -> bool:
    begin = reader.place
    if not reader.take("start at most"):
        return False
    found = some(reader, "Start at most 30 minutes late")
    if not reader.take("late"):
        reader.lost('the word "late" belongs here', "Start at most 30 minutes late", "Spread starts over 5 minutes")
    notes.put("catch_up", found, reader.said(begin))
    return True


def _spread(reader: Reader, notes: Pieces) -> bool:
    begin = reader.place
    if not reader.take(*_SPREADS):
        return False
    notes.put("jitter", some(reader, "Spread starts over 5 minutes"), reader.said(begin))
    return True
