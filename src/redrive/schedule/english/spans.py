"""Numbers, ordinals and spans of time in words."""

from __future__ import annotations

import re
from datetime import timedelta

from redrive.schedule.english.tokens import Reader, Token
from redrive.schedule.options import LONGEST

_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
]  # fmt: skip
_NUMBERS = {word: value for value, word in enumerate(_SMALL)} | {
    "thirty": 30, "forty": 40, "forty-five": 45, "fifty": 50, "sixty": 60, "ninety": 90, "a": 1, "an": 1,
}  # fmt: skip
_ORDINALS = [
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
    "twentieth",
]  # fmt: skip
_LONG = {
    "week": timedelta(weeks=1),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
}
# The spellings of units of time.
UNITS = {
    spelling: unit
    for unit, spellings in {
        "week": "week weeks",
        "day": "day days",
        "hour": "hour hours hr hrs h",
        "minute": "minute minutes min mins m",
        "second": "second seconds sec secs s",
        "month": "month months",
        "year": "year years",
    }.items()
    for spelling in spellings.split()
}

_ISO = re.compile(r"p(?:(\d+)w)?(?:(\d+)d)?(?:t(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?)?", re.IGNORECASE)


def number(reader: Reader) -> float | None:
    """Take a number, in digits or as a word; return None if there is none."""
    token = reader.next
    if token is None or not is_number(token):
        reader.expect("a number")
        return None
    reader.place += 1
    return float(token.text) if token.kind == "number" else _NUMBERS[token.word]


def is_number(token: Token) -> bool:
    """Return True for a number, in digits or as a word."""
    return token.kind == "number" or token.word in _NUMBERS


def ordinal(reader: Reader) -> int | None:
    """Take an ordinal such as ``first`` or ``2nd``; return None if there is none."""
    token = reader.next
    if token is not None and token.kind == "ordinal":
        reader.place += 1
        return int(token.text[:-2])
    if token is not None and token.word in _ORDINALS:
        reader.place += 1
        return _ORDINALS.index(token.word) + 1
    reader.expect("first, second ...")
    return None


def span(reader: Reader) -> timedelta | None:
    """Take a span of time, or return None: ``1 hour and 30 minutes``, ``half an hour``, ``a week``, ``PT90S``.

    Raise `ScheduleSyntaxError` if it contains a month or a year, or is longer than a hundred years.
    """
    if reader.take("half an hour"):
        return timedelta(minutes=30)
    token = reader.next
    iso = _ISO.fullmatch(token.text) if token is not None and token.kind == "word" else None
    if iso is not None and any(iso.groups()):
        reader.place += 1
        parts = zip(_LONG.values(), iso.groups(), strict=True)
        return sum((_length(reader, int(text or 0), size) for size, text in parts), timedelta(0))
    total: timedelta | None = None
    smallest: timedelta | None = None
    while True:
        begin = reader.place
        if total is not None:
            reader.take(",")
            reader.take("and")
            if smallest is not None and reader.take("a half"):
                return total + smallest / 2
        unit = _part(reader)
        if unit is None or (smallest is not None and unit[1] >= smallest):
            reader.place = begin
            return total
        total = (total or timedelta(0)) + _length(reader, *unit)
        smallest = unit[1]


def _length(reader: Reader, count: float, unit: timedelta) -> timedelta:
    return count * unit if count <= LONGEST / unit else reader.fail("longer than a hundred years")


def some(reader: Reader) -> timedelta:
    """Take a span of time; raise `ScheduleSyntaxError` if there is none. See `span`."""
    found = span(reader)
    return reader.fail() if found is None else found


def _part(reader: Reader) -> tuple[float, timedelta] | None:
    """Parse a number and a unit of a fixed length."""
    begin = reader.place
    count = number(reader)
    unit = UNITS.get(reader.word)
    if count is None or unit is None:
        reader.expect("weeks, days, hours, minutes or seconds")
        reader.place = begin
        return None
    reader.place += 1
    if unit not in _LONG:
        reader.fail(f"{unit} is not a fixed length: write a number of days")
    return count, _LONG[unit]


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
    if value <= len(_ORDINALS):
        return _ORDINALS[value - 1]
    teen = value // 10 % 10 == 1
    return f"{value}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(value % 10, 'th')}"
