"""Sentences about when: ``every weekday at 9:30 AM in Europe/Kyiv``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from redrive.errors import ScheduleError, ScheduleSyntaxError
from redrive.schedule.cron import CronExpression
from redrive.schedule.english import meaning
from redrive.schedule.english.meaning import FREQS, Heard
from redrive.schedule.english.spans import UNITS, is_number, number, ordinal
from redrive.schedule.english.tokens import Reader, Token
from redrive.schedule.rule import RecurrenceRule, WeekDay
from redrive.schedule.schedule import ANCHOR, Schedule
from redrive.schedule.timezone import ABBREVIATIONS, Gap, zone

T = TypeVar("T")

DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DAYS = {name.lower(): place for place, name in enumerate(DAY_NAMES)}
_DAYS |= {f"{name}s": place for name, place in _DAYS.items()} | {name[:3]: place for name, place in _DAYS.items()}
_SETS = {"weekday": range(5), "weekdays": range(5), "weekend": range(5, 7), "weekends": range(5, 7)}
_ADVERBS = {"hourly": "hour", "daily": "day", "weekly": "week", "monthly": "month"}
_TIMES = {"twice": 2, "once": 1}
_EVERY = ("every", "each", "once every")
_FINER = {"week": ("day", 7), "day": ("hour", 24), "hour": ("minute", 60), "minute": ("second", 60)}
_NOON, _DAY = 12, 24


def begins(reader: Reader) -> bool:
    """Return True if a recurrence begins here."""
    word = reader.word
    if word in {"every", "each", "once", "twice", "by", *_ADVERBS, *_SETS, *_DAYS}:
        return True
    if word == "on":
        return reader.second in {*_SETS, *_DAYS}
    return reader.next is not None and is_number(reader.next) and reader.second == "times"


def recurrence(reader: Reader, start: datetime | None) -> Schedule:
    """Parse a recurrence; ``start`` is the start of one that does not name its own, naive."""
    heard = Heard(start=ANCHOR if start is None else start)
    is_exact = reader.take("by") is not None
    sentences = (_exceptions,) if is_exact else (_clocks, _month_days, _week_days, _window)
    try:
        if is_exact:
            _exactly(reader, heard)
        else:
            _frequency(reader, heard)
        while any(read(reader, heard) for read in (*sentences, _zone, _gap, _start)):
            """Whatever comes, in whatever order."""
        if reader.word not in {"", ";", ","}:
            reader.fail()
        rules = tuple(heard.rules) if is_exact else meaning.rules(reader, heard)
        return Schedule(
            start=heard.start,
            rules=rules,
            crons=tuple(heard.crons),
            times=tuple(heard.times),
            except_times=frozenset(heard.exceptions),
            tz=heard.tz,
            gap=heard.gap,
        )
    except ScheduleSyntaxError:
        raise
    except ScheduleError as error:
        reader.fail(str(error))


def _exactly(reader: Reader, heard: Heard) -> None:
    while True:
        kind = reader.need("rule", "cron", "time")
        quoted = _quoted(reader)
        if kind == "rule":
            heard.rules.append(RecurrenceRule.parse(quoted))
        elif kind == "cron":
            heard.crons.append(CronExpression.parse(quoted))
        else:
            heard.times.append(_time(reader, quoted))
        begin = reader.place
        if not reader.take("and"):
            reader.place = begin
            return


def _exceptions(reader: Reader, heard: Heard) -> bool:
    if not reader.take("except"):
        return False
    heard.exceptions.append(_time(reader, _quoted(reader)))
    return True


def _quoted(reader: Reader) -> str:
    token = reader.take_kind("quoted", "something in quotes") or reader.fail()
    return reader.unquoted(token)


def _time(reader: Reader, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        reader.fail(f"{text!r} is not a time; write it as 2026-01-31T16:30:00")


def _frequency(reader: Reader, heard: Heard) -> None:
    adverb = reader.take(*_ADVERBS)
    if adverb:
        heard.unit = _ADVERBS[adverb]
        return
    if reader.take("once a", "once per"):
        heard.unit = _unit(reader)
        return
    if reader.take(*_EVERY):
        _every(reader, heard)
        return
    begin = reader.place
    counted = reader.take(*_TIMES)
    count = _TIMES[counted] if counted else number(reader)
    if count is not None and (counted or reader.take("times")) and reader.take("a day", "per day", "every day"):
        heard.unit, heard.times_a_day = "day", int(count)
        return
    reader.place = begin
    if not _week_days(reader, heard):
        reader.fail()


def _every(reader: Reader, heard: Heard) -> None:
    if reader.word in _DAYS or reader.word in _SETS:
        _week_days(reader, heard)
        return
    if reader.take("other"):
        heard.interval, heard.unit = 2, _unit(reader)
        return
    if reader.word == "second" and reader.second in UNITS:
        reader.place += 1
        heard.interval, heard.unit = 2, _unit(reader)
        return
    count = number(reader)
    heard.unit = _unit(reader)
    if count is None:
        return
    if count < 1 and count.is_integer():
        reader.fail("the interval must be at least 1")
    while not float(count).is_integer() and heard.unit in _FINER:
        heard.unit, size = _FINER[heard.unit]
        count *= size
    if not float(count).is_integer() or count < 1:
        reader.fail("the interval is not a whole number of seconds")
    heard.interval = int(count)


def _unit(reader: Reader) -> str:
    unit = UNITS.get(reader.word)
    if unit is None or unit not in FREQS:
        reader.expect("seconds, minutes, hours, days, weeks or months")
        reader.fail()
    reader.place += 1
    return unit


def _listed(reader: Reader, first: T, read: Callable[[Reader], T | None]) -> list[T]:
    """Parse items separated by commas and "and"; the position is restored if a further one fails."""
    found = [first]
    while True:
        begin = reader.place
        reader.take(",")
        reader.take("and")
        reader.take("at")
        following = read(reader) if reader.place > begin else None
        if following is None:
            reader.place = begin
            return found
        found.append(following)


# What is read becomes rules of RFC 5545. Hours and minutes of one rule multiply, so times with different minutes become
# several rules: "at 6:30 AM and 4 PM" is two.
def _clocks(reader: Reader, heard: Heard) -> bool:
    if not reader.take("at"):
        return False
    first = _clock(reader) or reader.fail()
    heard.clocks += _listed(reader, first, _clock)
    return True


def _clock(reader: Reader) -> tuple[int, int] | None:
    named = reader.take("noon", "midnight")
    if named:
        return (_NOON if named == "noon" else 0, 0)
    token = reader.take_kind("clock", "a time such as 6 AM or 16:30") or reader.take_kind("number", "noon")
    if token is None:
        return None
    hour, _, minute = token.text.partition(":")
    half = reader.take("am", "a.m", "pm", "p.m")
    clock = _of_day(token, hour, minute, half)
    if clock is None:
        reader.fail(f"not understood: {token.text!r} is not a time of day; write 6 AM, 6:30 PM or 16:30")
    return clock


def _of_day(token: Token, hour: str, minute: str, half: str | None) -> tuple[int, int] | None:
    if not hour.isdecimal() or int(minute or 0) > 59:  # noqa: PLR2004 - minutes of an hour
        return None
    if half is None:
        return (int(hour), int(minute)) if token.kind == "clock" and int(hour) < _DAY else None
    if not 1 <= int(hour) <= _NOON:
        return None
    return int(hour) % _NOON + (_NOON if half.startswith("p") else 0), int(minute or 0)


def _week_days(reader: Reader, heard: Heard) -> bool:
    begin = reader.place
    reader.take("on", "every")
    first = _day_set(reader)
    if first is None:
        reader.place = begin
        return False
    for found in _listed(reader, first, _day_set):
        heard.days.update(found)
    return True


def _day_set(reader: Reader) -> tuple[int, ...] | None:
    word = reader.word
    if word in _SETS:
        reader.place += 1
        return tuple(_SETS[word])
    if word not in _DAYS:
        reader.expect("a day of the week")
        return None
    reader.place += 1
    first = _DAYS[word]
    begin = reader.place
    if reader.take("to", "through", "-") and reader.word in _DAYS:
        last = _DAYS[reader.word]
        reader.place += 1
        return tuple((first + step) % 7 for step in range((last - first) % 7 + 1))
    reader.place = begin
    return (first,)


def _month_days(reader: Reader, heard: Heard) -> bool:
    begin = reader.place
    if not reader.take("on the"):
        return False
    first = _month_day(reader)
    if first is None:
        reader.place = begin
        return False
    for found in _listed(reader, first, _month_day):
        if isinstance(found, WeekDay):
            heard.month_week_days.append(found)
        else:
            heard.month_days.append(found)
    if reader.take("of"):
        reader.need("the month", "each month", "every month")
        heard.unit = heard.unit or "month"
    return True


def _month_day(reader: Reader) -> int | WeekDay | None:
    begin = reader.place
    reader.take("the")
    if reader.take("last day"):
        return -1
    nth = -1 if reader.take("last") else ordinal(reader)
    if nth is not None and reader.word in _DAYS:
        reader.place += 1
        return WeekDay(_DAYS[reader.line.tokens[reader.place - 1].word], nth)
    if nth is None or nth < 0:
        reader.place = begin
        return None
    if nth > 31:  # noqa: PLR2004 - days of a month
        reader.fail(f"a month has no day {nth}")
    return nth


# "Between 9 AM and 5 PM" leaves out 17:00: the hours from nine up to, and not with, five. A daily refresh without a
# time is at midnight.
def _window(reader: Reader, heard: Heard) -> bool:
    opened = reader.take("between", "from")
    if not opened:
        return False
    begin, _ = _clock(reader) or reader.fail()
    reader.need("and" if opened == "between" else "to")
    end, minute = _clock(reader) or reader.fail()
    if minute:
        reader.fail("a window has whole hours")
    heard.hours = tuple(sorted((begin + step) % _DAY for step in range((end - begin - 1) % _DAY + 1)))
    return True


def _zone(reader: Reader, heard: Heard) -> bool:
    begin = reader.place
    is_named = reader.take("in", "(") is not None
    token = reader.next
    if is_named and token is not None and (place := ABBREVIATIONS.get(token.text.upper())):
        reader.place += 1
        reader.fail(f"{token.text!r} is not the name of a time zone, but of an offset; write in {place}")
    if token is None or token.kind != "word" or not ("/" in token.text or token.word == "utc"):
        reader.expect("a zone such as Europe/Kyiv or UTC")
        reader.place = begin
        return False
    reader.place += 1
    heard.tz = "UTC" if token.word == "utc" else token.text
    try:
        zone(heard.tz)
    except ScheduleError as error:
        reader.fail(str(error))
    reader.take(")")
    return True


def _gap(reader: Reader, heard: Heard) -> bool:
    if not reader.take("leaving out times that do not exist"):
        return False
    heard.gap = Gap.SKIP
    return True


def _start(reader: Reader, heard: Heard) -> bool:
    if not reader.take("starting on", "starting"):
        return False
    day = reader.take_kind("date", "a date such as 2026-01-31")
    heard.start = _time(reader, _quoted(reader) if day is None else day.text)
    return True
