"""Times of day: ``6 AM``, ``16:30``, ``7 in the morning``, and windows between two of them."""

from __future__ import annotations

import re

import msgspec

from redrive.schedule.english.notes import wrong
from redrive.schedule.english.spans import number
from redrive.schedule.english.tokens import Place, Reader
from redrive.schedule.english.words import DAY_PARTS, UNITS

_CLOCK = re.compile(r"(\d{1,2})(?::(\d{2}))?h?(?: *([ap])\.? *m\.?)?")
_HALF = re.compile(r"[ap]\.? ?m\.?$", re.IGNORECASE)
_MILITARY = re.compile(r"(\d{2})(\d{2})h")
_NAMED = {
    "noon": 12, "midday": 12, "12 noon": 12, "midnight": 0, "12 midnight": 0, "12:00 noon": 12, "12:00 midnight": 0,
}  # fmt: skip
_PAST = {"half past": 30, "a quarter past": 15, "quarter past": 15, "a quarter to": -15, "quarter to": -15}
_IN_PART = {
    "in the morning": "morning",
    "in the afternoon": "afternoon",
    "in the evening": "evening",
    "at night": "night",
}
_NOON, _DAY, _HOUR = 12, 24, 60
_FORMS = ("6 AM", "16:30")
# Words after a number that is not a time of day.
_COUNTED = frozenset({*UNITS, "times", "time", "retries", "retry", "attempts", "attempt", "failures", "failure"})


class TimeOfDay(msgspec.Struct, frozen=True):
    """A time of day as it was written."""

    hour: int
    minute: int
    # True for "6" and "6:30", of which a part of the day may say that it is in the evening.
    is_open: bool
    # True for a number alone, which is no time of day without a part of the day.
    is_bare: bool
    place: Place


class DayWindow(msgspec.Struct, frozen=True):
    """The hours of a day between two times, the second one excluded; from the business hours if both are None."""

    begin: TimeOfDay | None = None
    end: TimeOfDay | None = None


def clocks(reader: Reader) -> list[TimeOfDay] | None:
    """Take times of day in a list; return None if none is next."""
    begin = reader.place
    opened = reader.take("at")
    first = clock(reader, bare=opened is not None)
    if first is None:
        reader.place = begin
        return None
    found = [first]
    while True:
        begin = reader.place
        if not _joins(reader):
            return found
        opened = reader.take("at") or opened
        following = clock(reader, bare=opened is not None)
        if following is None or _begins_window(reader):
            reader.place = begin
            return found
        found.append(following)


def _begins_window(reader: Reader) -> bool:
    """Return True if the time before is the first one of a window, as in ``9 AM to 5 PM``; not: until 2026-12-31."""
    begin = reader.place
    opened = reader.take("to", "-", "until", "till")
    found = opened is not None and clock(reader, bare=opened in {"to", "-"}) is not None
    reader.place = begin
    return found


def _joins(reader: Reader) -> bool:
    return reader.take(",", "and", ", and") is not None


def clock(reader: Reader, *, bare: bool) -> TimeOfDay | None:
    """Take a time of day; return None if none is next. ``bare`` allows a number alone."""
    begin = reader.place
    found = _clock(reader, bare=bare)
    if found is None:
        reader.place = begin
        return None
    part = reader.take(*_IN_PART)
    made = TimeOfDay(*found, reader.said(begin))
    return (
        made
        if part is None
        else TimeOfDay(*in_part(made, _IN_PART[part]), is_open=False, is_bare=False, place=reader.said(begin))
    )


def _clock(reader: Reader, *, bare: bool) -> tuple[int, int, bool, bool] | None:
    named = reader.take(*_NAMED)
    if named:
        return _NAMED[named], 0, False, False
    past = reader.take(*_PAST)
    if past:
        whole = clock(reader, bare=True)
        if whole is None or whole.minute:
            reader.lost("an hour belongs here", "half past 6 AM", "6:30 AM")
        hour, minute = divmod((whole.hour * _HOUR + _PAST[past]) % (_DAY * _HOUR), _HOUR)
        return hour, minute, whole.is_open, whole.is_bare
    token = reader.next
    if token is not None and token.kind == "span" and (military := _MILITARY.fullmatch(token.word)):
        reader.place += 1
        return *_checked(reader, int(military[1]), int(military[2]), None), False, False
    if token is None or token.kind != "clock":
        return _in_words(reader, bare=bare)
    reader.place += 1
    read = _CLOCK.fullmatch(token.word)
    assert read is not None  # the expression of the token allows nothing more
    hour, minute = _checked(reader, int(read[1]), int(read[2] or 0), read[3])
    if reader.word in {"noon", "midnight", "midday"}:
        reader.lost("it is said twice", *_FORMS)
    return hour, minute, read[3] is None and hour <= _NOON, False


def _in_words(reader: Reader, *, bare: bool) -> tuple[int, int, bool, bool] | None:
    """Take ``six o'clock``, ``six AM``, or a number alone."""
    begin = reader.place
    value = number(reader)
    if value is None or not value.is_integer():
        return None
    said = reader.take("o'clock")
    half = reader.take("am", "pm")
    if half:
        return *_checked(reader, int(value), 0, half[0]), False, False
    if not (bare or said) or reader.word in _COUNTED:
        return None
    if said and _NOON < value < _DAY:
        return int(value), 0, False, False
    if value > _DAY:
        reader.lost("it is not a time of day", *_FORMS, at=begin)
    return int(value), 0, True, True


def _checked(reader: Reader, hour: int, minute: int, half: str | None) -> tuple[int, int]:
    """Return the hour and minute of a day; raise `ScheduleSyntaxError` for those that no day has."""
    if minute >= _HOUR or (hour >= _DAY if half is None else not 1 <= hour <= _NOON):
        if (hour, minute, half) == (_DAY, 0, None):
            reader.lost("a day ends at 0:00", "midnight", "0:00", at=reader.place - 1)
        reader.lost("it is not a time of day", "6 AM", "6:30 PM", "16:30", at=reader.place - 1)
    if half is None:
        return hour, minute
    return hour % _NOON + (_NOON if half == "p" else 0), minute


def in_part(said: TimeOfDay, part: str) -> tuple[int, int]:
    """Return the hour and minute of a time in a part of the day; raise `ScheduleSyntaxError` if it is not in it."""
    hours = [said.hour] if not said.is_open else [said.hour % _DAY, (said.hour + _NOON) % _DAY]
    fitting = [each for each in hours if each in DAY_PARTS[part]]
    # "12 in the morning" could be midnight or noon.
    if not fitting or (part == "morning" and said.is_open and said.hour in {0, _NOON}):
        wrong(said.place, f"not understood: {said.place.text!r}: it is not in the {part}", *_FORMS)
    return fitting[0], said.minute


def sure(said: TimeOfDay, part: str | None) -> tuple[int, int]:
    """Return the hour and minute of a time; raise `ScheduleSyntaxError` if it could be two times."""
    if part is not None:
        return in_part(said, part)
    if said.is_bare:
        hour = said.hour % _NOON or _NOON
        forms = ("noon", "midnight") if hour == _NOON else (f"{hour} AM", f"{hour} PM")
        wrong(said.place, f"not understood: {said.place.text!r}: it could be in the morning or in the evening", *forms)
    return said.hour, said.minute


def check_halves(said: list[TimeOfDay]) -> None:
    """Refuse a time without AM or PM beside times that have it, if it could be in the other half of the day.

    In "3:30 and 4:30 PM" it could be, in "9:30 and 4 PM" it could not: the times would not be in order.
    """
    from redrive.schedule.english.notes import wrong

    explicit = [place for place, each in enumerate(said) if _HALF.search(each.place.text)]
    for place, each in enumerate(said):
        if not each.is_open or each.is_bare or each.hour >= _NOON or each.place.text.startswith("0"):
            continue
        following = next((said[after] for after in explicit if after > place), None)
        later = (each.hour + _NOON, each.minute)
        if (following is not None and later < (following.hour, following.minute)) or min(
            explicit, default=place
        ) < place:
            clock = f"{each.hour}:{each.minute:02}"
            wrong(
                each.place,
                f"not understood: {each.place.text!r}: it could be in the morning or in the evening",
                f"{clock} AM",
                f"{clock} PM",
            )


def window(reader: Reader) -> DayWindow | None:
    """Take a window of hours; return None if none is next."""
    if reader.take(*(f"{word} {what}" for word in ("during", "in", "within") for what in _BUSINESS)):
        return DayWindow()
    if reader.take(*_BUSINESS):
        return DayWindow()
    begin = reader.place
    opened = reader.take("between", "from", "during")
    first = clock(reader, bare=opened is not None)
    if first is None or not reader.take(*(("and",) if opened == "between" else ("to", "until", "till", "-"))):
        if first is not None and opened is not None:
            reader.lost("a window needs its end", "between 9 AM and 5 PM", "from 9:00 to 17:00")
        reader.place = begin
        return None
    end = _end(reader)
    return DayWindow(first, end)


_BUSINESS = tuple(
    f"{article}{each} hours" for article in ("", "the ") for each in ("business", "office", "working", "work")
)


def _end(reader: Reader) -> TimeOfDay:
    begin = reader.place
    if reader.take("24:00"):
        return TimeOfDay(0, 0, is_open=False, is_bare=False, place=reader.said(begin))
    end = clock(reader, bare=True)
    return reader.lost("a time of day belongs here", "5 PM", "17:00") if end is None else end


def minutes(reader: Reader) -> tuple[int, ...] | None:
    """Take minutes of an hour, such as ``at :15``; return None if there are none."""
    begin = reader.place
    if reader.take("on the hour", "at the top of the hour", "on the full hour"):
        return (0,)
    if reader.take("on the half hour"):
        return (30,)
    past = reader.take("at half past", "at a quarter past", "at quarter past")
    if past and (reader.take("the hour", "each hour", "every hour") or reader.is_ended):
        return (30,) if past == "at half past" else (15,)
    reader.place = begin
    opened = reader.take("at minute", "at minutes", "at", "on minute")
    found: list[int] = []
    while (value := _minute(reader, named=opened in {"at minute", "at minutes", "on minute"})) is not None:
        if value in found:
            reader.refuse(reader.place - 1, f"minute {value} twice", "at :15", "at :15 and :45")
        found.append(value)
        after = reader.place
        if not _joins(reader) or not (reader.kind in {"past", "number"} or reader.sees("at")):
            reader.place = after
            break
        reader.take("at")
    if not found:
        reader.place = begin
        return None
    return tuple(sorted(found))


def _minute(reader: Reader, *, named: bool) -> int | None:
    begin = reader.place
    token = reader.take_kind("past")
    if token is not None:
        value: float | None = float(token.text[1:])
        _past(reader)
    else:
        value = number(reader)
        if value is not None and not _past(reader) and not named:
            value = None
    if value is None:
        reader.place = begin
        return None
    if value >= _HOUR or not value.is_integer():
        reader.lost("an hour has the minutes 0 to 59", "at :15", "at :45", at=begin)
    return int(value)


def _past(reader: Reader) -> bool:
    """Take ``past the hour``, and the like; return True if it was there."""
    begin = reader.place
    reader.take("minutes", "minute")
    if reader.take("past the hour", "after the hour", "past each hour", "past every hour", "past"):
        return True
    if reader.take("of the hour", "of each hour", "of every hour"):
        return True
    reader.place = begin
    return False
