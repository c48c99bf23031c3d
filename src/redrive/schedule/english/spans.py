"""Numbers, ordinals and spans of time in words."""

from __future__ import annotations

import re
from datetime import timedelta

from redrive.policy.duration import iso_milliseconds
from redrive.schedule.english.tokens import Reader
from redrive.schedule.english.words import NUMBERS, ORDINAL_VALUES, ORDINALS, UNITS
from redrive.schedule.options import LONGEST

_LONG = {
    "week": timedelta(weeks=1),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
}
# The length of a unit by its spellings.
SIZES = {spelling: _LONG[unit] for spelling, unit in UNITS.items() if unit in _LONG}
_HALVES = {
    "half an hour": timedelta(minutes=30),
    "half hour": timedelta(minutes=30),
    "a half hour": timedelta(minutes=30),
    "half a day": timedelta(hours=12),
    "half a minute": timedelta(seconds=30),
    "a quarter of an hour": timedelta(minutes=15),
    "three quarters of an hour": timedelta(minutes=45),
}
_COMPACT = re.compile(r"(\d+(?:\.\d+)?)([a-z]+)")


def number(reader: Reader) -> float | None:
    """Take a number, in digits or in words; return None if there is none."""
    token = reader.next
    if token is None or token.kind not in {"number", "word"} or (token.kind == "word" and token.word not in NUMBERS):
        return None
    reader.place += 1
    if token.kind == "number":
        return float(token.text.replace(",", ""))
    value = float(NUMBERS[token.word])
    # "Twenty five" in two words.
    ones = NUMBERS.get(reader.word, 0)
    if value >= 20 and value % 10 == 0 and 1 <= ones <= 9:  # noqa: PLR2004 - tens and ones
        reader.place += 1
        return value + ones
    return value


def whole(reader: Reader, most: int) -> int | None:
    """Take a whole number up to a limit; return None if there is no number. Raise `ScheduleSyntaxError` for others."""
    begin = reader.place
    value = number(reader)
    if value is None:
        return None
    if not value.is_integer():
        reader.lost("it is not a whole number", f"Retry {int(value) + 1} times", "Retry every 5 minutes", at=begin)
    if value > most:
        reader.refuse(
            begin, f"there are at most {most:,} retries", f"Retry {most:,} times", "Keep retrying until it succeeds"
        )
    return int(value)


def ordinal(reader: Reader) -> int | None:
    """Take an ordinal such as ``first`` or ``2nd``; return None if there is none."""
    token = reader.take_kind("ordinal")
    if token is not None:
        value = int(token.text[:-2])
        right = suffix(value)
        if token.text[-2:].lower() != right:
            reader.place -= 1
            reader.lost("its ending does not belong to the number", f"{value}{right}")
        return value
    if reader.word in ORDINAL_VALUES and reader.kind == "word":
        reader.place += 1
        return ORDINAL_VALUES[reader.line.tokens[reader.place - 1].word]
    return None


def span(reader: Reader, *, commas: bool = True) -> timedelta | None:
    """Take a span of time, or return None: ``1 hour and 30 minutes``, ``1h30m``, ``half an hour``, ``PT90S``.

    In a list of spans a comma separates two of them, so ``commas`` is False there. Raise `ScheduleSyntaxError` if it
    contains a month or a year, or is longer than a hundred years.
    """
    token = reader.next
    iso = iso_milliseconds(token.text) if token is not None and token.kind == "word" else None
    if iso is not None:
        reader.place += 1
        return _sum(reader, [(iso, timedelta(milliseconds=1))], reader.place - 1)
    half = reader.take(*_HALVES)
    if half:
        return _HALVES[half]
    total: timedelta | None = None
    smallest: timedelta | None = None
    while True:
        begin = reader.place
        if total is not None and smallest is not None:
            if reader.take("and a half"):
                return total + smallest / 2
            if commas:
                reader.take(",")
            reader.take("and")
        part = _part(reader)
        if part is None or (smallest is not None and part[0] >= smallest):
            reader.place = begin
            return total
        smallest = part[1]
        total = _sum(reader, [(1, (total or timedelta(0)) + part[2])], begin)


def _part(reader: Reader) -> tuple[timedelta, timedelta, timedelta] | None:
    """Take a number and a unit; return the largest unit, the smallest one, and the length."""
    begin = reader.place
    compact = reader.take_kind("span")
    if compact is not None:
        pairs = [(float(count), _LONG[UNITS[unit]]) for count, unit in _COMPACT.findall(compact.word)]
        sizes = [size for _, size in pairs]
        if sorted(set(sizes), reverse=True) != sizes:
            reader.lost("its units are not in order", "1h30m", "90 minutes", at=begin)
        return sizes[0], sizes[-1], _sum(reader, pairs, begin)
    count = 1.0 if reader.take("a", "an") else number(reader)
    if count is None:
        return None
    if reader.take("and a half"):
        count += 0.5
    unit = UNITS.get(reader.word)
    if unit is None or reader.kind != "word":
        reader.place = begin
        return None
    reader.place += 1
    if unit == "fortnight":
        unit, count = "week", 2 * count
    if unit not in _LONG:
        reader.refuse(reader.place - 1, f"{unit} is not a fixed length: write a number of days", "30 days", "4 weeks")
    return _LONG[unit], _LONG[unit], _sum(reader, [(count, _LONG[unit])], begin)


def _sum(reader: Reader, parts: list[tuple[float, timedelta]], at: int) -> timedelta:
    if any(count > LONGEST / max(size, timedelta(microseconds=1)) for count, size in parts):
        reader.refuse(at, "longer than a hundred years", "1 week", "30 days")
    return sum((count * size for count, size in parts), timedelta(0))


def some(reader: Reader, *forms: str) -> timedelta:
    """Take a span of time; raise `ScheduleSyntaxError` with forms that would work if there is none. See `span`."""
    found = span(reader)
    if found is None:
        reader.lost("a span of time belongs here, such as 5 minutes or 1 hour and 30 minutes", *forms)
    return found


def written(length: timedelta) -> str:
    """Format a span of time, such as ``1 hour and 30 minutes``."""
    parts = []
    left = length
    for unit, size in _LONG.items():
        count, left = divmod(left, size)
        if unit == "second":
            exact = f"{count + left / size:.6f}".rstrip("0").rstrip(".")
            if exact != "0":
                parts.append(f"{exact} {unit}{'' if exact == '1' else 's'}")
        elif count:
            parts.append(f"{count} {unit}{'' if count == 1 else 's'}")
    return " and ".join(parts) or "0 seconds"


def written_ordinal(value: int) -> str:
    """Format an ordinal from 1 on, such as ``first`` or ``21st``."""
    if value <= len(ORDINALS):
        return ORDINALS[value - 1]
    return f"{value}{suffix(value)}"


def suffix(value: int) -> str:
    """Return the ending of an ordinal in digits."""
    teen = value // 10 % 10 == 1
    return "th" if teen else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
