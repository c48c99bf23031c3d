"""Sentences about when: ``every weekday at 9:30 AM in Europe/Kyiv``.

A recurrence consists of phrases in any order, each of which takes all of its words. Two recurrences joined with "and"
are two parts of one schedule; the time zone, the start and the end belong to the whole of it.
"""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, datetime, time

from redrive.errors import ScheduleError, ScheduleSyntaxError
from redrive.schedule.cron import CronExpression
from redrive.schedule.english import days, frequencies, places, times
from redrive.schedule.english.notes import Pieces, wrong
from redrive.schedule.english.tokens import Place, Reader
from redrive.schedule.rule import RecurrenceRule
from redrive.schedule.timezone import Gap

# Pieces that begin another part of the schedule if the present one has them.
_WHEN = ("often", "days", "month_days", "count")
_EXCEPT = ("except for", "except", "excluding", "but not", "other than", "apart from", "not")
FORMS = ("every day at 9 AM", "every 2 hours")


class Recurrence:
    """The parts of a recurrence, and the pieces that belong to all of them."""

    def __init__(self, whole: Pieces) -> None:
        self.whole = whole
        self.parts: list[Pieces] = [Pieces()]
        self.rules: list[RecurrenceRule] = []
        self.crons: list[CronExpression] = []
        self.times: list[datetime] = []
        self.except_times: dict[datetime, None] = {}
        self.except_days: dict[datetime, Place] = {}

    @property
    def part(self) -> Pieces:
        """Return the part that is being read."""
        return self.parts[-1]

    @property
    def has_when(self) -> bool:
        """Return True if it is clear how often the present part occurs."""
        return bool(self.rules or self.crons or self.times) or any(each in self.part for each in _WHEN)

    @property
    def is_empty(self) -> bool:
        """Return True if no phrase was taken."""
        return len(self.parts) == 1 and not (self.part or self.rules or self.crons or self.times)


def phrases(reader: Reader, found: Recurrence, *, name_before: bool = False) -> None:
    """Take all phrases that follow; raise `ScheduleSyntaxError` if one of them is there twice.

    After a name a phrase begins with a preposition or the like, because "alternate Mondays" is not a name and Mondays.
    """
    if name_before and (reader.kind == "clock" or days_begin(reader)):
        reader.lost(
            "after a name, a word such as on, at or every belongs before it",
            f"on {reader.next.text}" if reader.next and reader.kind == "word" else "at 9 AM",
            'Refresh "the name" every day',
        )
    while not reader.is_ended:
        begin = reader.place
        if phrase(reader, found):
            continue
        reader.take(",")
        if reader.place > begin and phrase(reader, found, after_comma=True):
            continue
        reader.place = begin
        if reader.take("and", ", and", "plus", "as well as", ", plus") and _further(reader, found, begin):
            continue
        reader.place = begin
        return


def days_begin(reader: Reader) -> bool:
    """Return True if one day of the week or one month is next, without a preposition."""
    begin = reader.place
    found = days.week_days(reader) is not None or days.months(reader) is not None
    is_range = reader.place > begin + 1
    reader.place = begin
    return found and not is_range


def _further(reader: Reader, found: Recurrence, begin: int) -> bool:
    """Take the first phrase of a further part after "and"; return False if none follows."""
    present = found.part
    if not found.has_when:
        return False
    found.parts.append(Pieces())
    if not phrase(reader, found) or not found.part:
        found.parts.pop()
        reader.place = begin
        return False
    for name in ("months", "except_days", "except_months"):
        if name in present:
            wrong(
                present.place(name),
                f"it is not clear whether {present.place(name)} is about both recurrences or one of them",
                "one of the recurrences only",
            )
    if any(name in found.whole for name in ("start", "until")):
        place = found.whole.place("start", "until")
        wrong(
            place,
            f"it is not clear whether {place} is about both recurrences: say it at the end",
            "every Monday at 9 AM and every Friday at 5 PM until 2026-12-31",
        )
    return True


def phrase(reader: Reader, found: Recurrence, *, after_comma: bool = False) -> bool:
    """Take one phrase; return False if none is next."""
    begin = reader.place
    if reader.take("("):
        return _inside(reader, found, begin)
    if reader.kind == "word" and reader.word == "only":
        return _only(reader, found)
    for read in (_exactly, _except, _start, _until, _gap):
        if read(reader, found):
            return True
    if places.zone_phrase(reader, found.whole):
        return True
    if _minutes(reader, found) or _window(reader, found):
        return True
    return _when(reader, found, begin, after_comma=after_comma)


def _inside(reader: Reader, found: Recurrence, begin: int) -> bool:
    """Take phrases up to the end of a parenthesis; return False if it has another text."""
    if reader.word == "(" or not phrase(reader, found):
        reader.place = begin
        return False
    while not reader.take(")"):
        at = reader.place
        reader.take(",")
        if reader.word == "(" or not phrase(reader, found):
            reader.lost("a parenthesis is not closed", "every day at 9 AM (Europe/Kyiv)", FORMS[0], at=max(at - 1, 0))
    return True


def _only(reader: Reader, found: Recurrence) -> bool:
    begin = reader.place
    reader.take("only")
    if reader.word in {"on", "in", "during", "between", "from"} and phrase(reader, found):
        return True
    reader.place = begin
    return False


def _when(reader: Reader, found: Recurrence, begin: int, *, after_comma: bool) -> bool:
    """Take a phrase about how often, on which days, or at what times."""
    pieces = Pieces()
    if not frequencies.take(reader, pieces):
        reader.place = begin
        clocks = times.clocks(reader)
        if clocks is None:
            reader.place = begin
            return False
        # "9 AM Mondays, 10 AM Tuesdays" has two parts.
        if after_comma and "clocks" in found.part and found.has_when:
            found.parts.append(Pieces())
        found.part.put("clocks", clocks, reader.said(begin))
        return True
    # "Mondays at 9 AM, Tuesdays at 10 AM" has two parts, too.
    if after_comma and found.has_when and "clocks" in found.part and any(each in found.part for each in pieces):
        found.parts.append(Pieces())
    pieces.into(found.part)
    return True


def _minutes(reader: Reader, found: Recurrence) -> bool:
    begin = reader.place
    value = times.minutes(reader)
    if value is None:
        return False
    found.part.put("minutes", value, reader.said(begin))
    # "At 15 minutes past every hour" names the interval, too.
    if reader.line.tokens[reader.place - 1].word == "hour" and reader.ahead(-2) in {"every", "each"}:
        found.part.put("often", ("hour", 1), reader.said(begin))
    return True


def _window(reader: Reader, found: Recurrence) -> bool:
    begin = reader.place
    value = times.window(reader)
    if value is None:
        return False
    found.part.put("window", value, reader.said(begin))
    return True


def _except(reader: Reader, found: Recurrence) -> bool:
    begin = reader.place
    if not reader.take(*_EXCEPT):
        return False
    reader.take("on", "in", "during")
    at = reader.place
    if reader.take("the holidays", "public holidays", "bank holidays", "holidays"):
        reader.lost("there is no calendar of holidays; name each date", "except 2026-12-25", "except Sundays", at=at)
    if (week := days.listed(reader, days.week_days, "on")) is not None:
        found.part.put("except_days", frozenset(week), reader.said(begin))
        return True
    day = days.date(reader)
    if day is not None:
        _except_dates(reader, found, day, at)
        return True
    if (months := days.month_list(reader)) is not None:
        found.part.put("except_months", frozenset(months), reader.said(begin))
        return True
    reader.place = begin
    if reader.word == "not":
        return False
    reader.take(*_EXCEPT)
    return reader.lost("days of the week, months or dates can be left out", "except Sundays", "except 2026-12-25")


def _except_dates(reader: Reader, found: Recurrence, day: datetime, at: int) -> None:
    """Take the dates of an exception; those in quotes are instants."""
    while True:
        token = reader.line.tokens[reader.place - 1]
        place = reader.said(at)
        if day in found.except_times or day in found.except_days:
            wrong(place, f"{place} is left out twice", "each date once")
        if token.kind == "quoted" or day.time() != time.min or "T" in token.text:
            found.except_times[day] = None
        else:
            found.except_days[day] = place
        before = reader.place
        following = days.date(reader) if reader.take(",", "and", ", and") and (at := reader.place) else None
        if following is None:
            reader.place = before
            return
        day = following


def _start(reader: Reader, found: Recurrence) -> bool:
    begin = reader.place
    opened = reader.take(
        "starting on", "starting from", "starting", "beginning on", "beginning", "as of", "from", "since"
    )
    if not opened:
        return False
    day = days.date(reader)
    if day is None:
        if opened == "from":
            reader.place = begin
            return False
        reader.lost("a start is a date with its year", "starting 2026-01-31", "starting January 31, 2026")
    found.whole.put("start", day, reader.said(begin))
    at = reader.place
    if reader.take("to", "through", "-"):
        last = days.date(reader)
        if last is None:
            reader.place = at
            return True
        found.whole.put("until", _whole_day(reader, last), reader.said(at))
    return True


def _whole_day(reader: Reader, day: datetime) -> datetime:
    """Return the last second of a day that was written without a time."""
    if day.time() == time.min and reader.line.tokens[reader.place - 1].kind != "quoted":
        return day.replace(hour=23, minute=59, second=59)
    return day


def _until(reader: Reader, found: Recurrence) -> bool:
    begin = reader.place
    opened = reader.take("until", "till", "through", "ending on", "ending", "up until", "up to")
    if not opened:
        return False
    is_end = reader.take("the end of") is not None
    at = reader.place
    day = _year_end(reader) if is_end else days.date(reader)
    if day is None:
        if opened == "up to" or reader.sees(*_SUCCESSES):
            reader.place = begin
            return False
        reader.lost("an end is a date with its year", "until 2026-12-31", "until December 31, 2026", at=at)
    found.whole.put("until", _whole_day(reader, day), reader.said(begin))
    return True


_SUCCESSES = ("it succeeds", "success", "the next scheduled refresh", "the next planned refresh")


def _year_end(reader: Reader) -> datetime | None:
    begin = reader.place
    month = days.months(reader)
    token = reader.take_kind("number")
    if token is None or not token.text.isdecimal() or not MINYEAR < int(token.text) < MAXYEAR:
        reader.place = begin
        return None
    return days.last_day(int(token.text), 12 if month is None else month[-1])


def _gap(reader: Reader, found: Recurrence) -> bool:
    begin = reader.place
    if not reader.take("leaving out times that do not exist"):
        return False
    found.whole.put("gap", Gap.SKIP, reader.said(begin))
    return True


def _exactly(reader: Reader, found: Recurrence) -> bool:
    """Take rules, cron expressions and times in quotes."""
    begin = reader.place
    if not reader.take("by"):
        return False
    kind = reader.take("rule", "cron", "time")
    if kind is None or found.rules or found.crons or found.times:
        reader.place = begin
        return False
    while kind is not None:
        _exact(reader, found, kind)
        before = reader.place
        kind = reader.take("rule", "cron", "time") if reader.take("and") else None
        if kind is None:
            reader.place = before
    found.part.put("exact", "exact", reader.said(begin))
    return True


def _exact(reader: Reader, found: Recurrence, kind: str) -> None:
    at = reader.place
    token = reader.take_kind("quoted")
    if token is None:
        reader.lost("something in quotes belongs here", 'by rule "FREQ=DAILY;BYHOUR=6"', 'by cron "0 6 * * *"')
    text = reader.unquoted(token)
    try:
        if kind == "rule":
            found.rules.append(RecurrenceRule.parse(text))
        elif kind == "cron":
            found.crons.append(CronExpression.parse(text))
        else:
            reader.place = at
            day = days.date(reader)
            assert day is not None  # it is in quotes
            found.times.append(day)
    except ScheduleSyntaxError:
        raise
    except ScheduleError as error:
        reader.refuse(at, str(error), 'by rule "FREQ=DAILY;BYHOUR=6"', 'by cron "0 6 * * *"')
