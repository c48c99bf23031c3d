"""Sentences about the end: ``Give up after one week``, ``On the third failure, give up``."""

from __future__ import annotations

from redrive.schedule.english import actions
from redrive.schedule.english.failures import MOST, failures
from redrive.schedule.english.notes import Header, Limit, Pieces, wrong
from redrive.schedule.english.spans import number, ordinal, span, whole
from redrive.schedule.english.tokens import Place, Reader
from redrive.schedule.options import Exhausted, GiveUpSince

_WAITS = tuple(
    f"wait {until} {the}next {planned} refresh"
    for until in ("until", "for") for the in ("", "the ") for planned in ("scheduled", "planned")
)  # fmt: skip
_LAST_RETRY = tuple(
    f"{the}{last} {failed}{retry}"
    for the in ("the ", "") for last in ("final", "last") for failed in ("unsuccessful ", "failed ", "")
    for retry in ("retry", "attempt")
)  # fmt: skip
_FAILED = (
    "failures in a row", "consecutive failures", "failures", "failure", "failed attempts", "unsuccessful attempts",
    "attempts", "attempt", "tries",
)  # fmt: skip
_RETRIES = ("failed retries", "retries", "unsuccessful retries", "retry", "failed retry")
_SINCE_SUCCESS = tuple(
    f"{since} {the} last success{more}"
    for since in ("since", "after", "from") for the in ("the", "its") for more in ("ful refresh", "ful attempt", "")
)  # fmt: skip
_TAILS = (
    "of unsuccessful refresh attempts", "without success", "of unsuccessful attempts", "of failures", "of failing",
    "of retrying", "without a success", "without a successful refresh",
)  # fmt: skip


def terminal(reader: Reader, notes: Pieces) -> Header | None:
    """Take the effect of the last failure; return its header, or None if the text is another clause."""
    begin = reader.place
    numbers = failures(reader)
    if numbers is None or len(numbers) != 1:
        reader.place = begin
        return None
    place = reader.said(begin)
    header = Header(reader.line, numbers[0])
    if not (reader.word == ":" and reader.ahead(1) == ""):
        reader.take(",", ":")
        if not (waits(reader, notes) or actions.action(reader, notes)):
            if not reader.take("give up"):
                reader.lost(
                    "what is done after this failure belongs here",
                    "On the first failure, retry after 5 minutes",
                    "On the third failure, give up",
                )
            ends(notes, Exhausted.GIVE_UP, reader.said(begin))
    notes.put("last_failure", numbers[0], place)
    return header


def waits(reader: Reader, notes: Pieces) -> bool:
    """Take that the refresh waits for the next planned one; return False if the text is another clause."""
    begin = reader.place
    reset = reader.take("reset attempt_no")
    if reset:
        notes.put("reset", reset, reader.said(begin))
    if reset and (reader.is_ended or not reader.take("and", ", and", ",")):
        return True
    if reader.take(*_WAITS):
        ends(notes, Exhausted.WAIT_NEXT, reader.said(begin))
        return True
    if reset or reader.take("wait until", "wait for the", "wait for next"):
        reader.lost("a wait is for the next scheduled refresh", "wait until the next scheduled refresh", "give up")
    return False


def ends(notes: Pieces, how: Exhausted, place: Place) -> None:
    """Note what the last failure leads to; raise `ScheduleSyntaxError` if another sentence differs."""
    if "exhausted" not in notes:
        notes.put("exhausted", how, place)
    elif notes.get("exhausted") is not how:
        wrong(
            place,
            "two endings: the last failure both gives up and waits for the next scheduled refresh: "
            f"{notes.place('exhausted')} and {place}",
            "one of them only",
        )


def giving_up(reader: Reader, notes: Pieces) -> Header | None:
    """Take when the refresh is given up; return its header, or None if the text is another clause."""
    begin = reader.place
    header = Header(reader.line, None)
    if reader.take("after"):
        return header if _after(reader, notes, begin) else None
    if not reader.take("give up"):
        return None
    reader.take("only")
    if _time(reader, notes, begin, is_bare=True):
        return header
    kind = _limit(reader, notes, begin) if reader.take("after", "on") else "last"
    if kind == "last":
        notes.put("gives_up", kind, reader.said(begin))
    if kind != "time":
        ends(notes, Exhausted.GIVE_UP, reader.said(begin))
    return header


def _time(reader: Reader, notes: Pieces, begin: int, *, is_bare: bool = False) -> bool:
    """Take a limit in time; return False if the text is another clause.

    With `is_bare` no "after" comes before it, so it counts from the last success: ``one week after the last success``.
    """
    at = reader.place
    found = span(reader)
    since = GiveUpSince.FIRST_FAILURE if reader.take(*_SINCE_SUCCESS) is None else GiveUpSince.LAST_SUCCESS
    if found is None or (is_bare and since is GiveUpSince.FIRST_FAILURE):
        reader.place = at
        return False
    if not found:
        reader.refuse(at, "the time must be positive", "Give up after one week", "Do not retry")
    if since is GiveUpSince.FIRST_FAILURE:
        reader.take(*_TAILS)
    notes.put("give_up_after", found, reader.said(begin))
    notes.put("give_up_since", since, reader.said(begin))
    return True


def _after(reader: Reader, notes: Pieces, begin: int) -> bool:
    """Take ``after 3 failures, give up``; return False if the text is another clause."""
    at = reader.place
    is_limit = span(reader) is not None
    reader.take(*_TAILS, *_SINCE_SUCCESS)
    if not is_limit:
        is_limit = (number(reader) is not None or ordinal(reader) is not None) and reader.take(*_FAILED) is not None
    reader.take(",")
    if not (is_limit and reader.take("give up")):
        reader.place = begin
        return False
    end = reader.place
    reader.place = at
    if _limit(reader, notes, begin) == "attempts":
        ends(notes, Exhausted.GIVE_UP, reader.said(begin))
    reader.place = end
    return True


def never(reader: Reader, notes: Pieces) -> bool:
    """Take that it never gives up; return False if the text is another clause."""
    begin = reader.place
    if not reader.take("never give up", "do not give up", "don't give up"):
        return False
    notes.put("never", "never", reader.said(begin))
    return True


def _limit(reader: Reader, notes: Pieces, begin: int) -> str:
    """Take after what it gives up; return which kind of limit it is."""
    if reader.take(*_LAST_RETRY):
        return "last"
    at = reader.place
    reader.take("the")
    nth = ordinal(reader)
    if nth and reader.take("failure", "failed attempt", "attempt"):
        notes.put("attempts", Limit(nth), reader.said(begin))
        return "attempts"
    reader.place = at
    if _time(reader, notes, begin):
        return "time"
    count = whole(reader, MOST)
    for nouns, more in ((_FAILED, 0), (_RETRIES, 1)):
        if count is not None and count + more > 0 and reader.take(*nouns):
            notes.put("attempts", Limit(count + more), reader.said(begin))
            return "attempts"
    return reader.lost(
        "a limit is a time or a number of attempts", "Give up after one week", "Give up after 3 attempts", at=at
    )
