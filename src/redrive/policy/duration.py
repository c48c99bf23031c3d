"""Spans of time as users write them: ``timedelta``, seconds as a number, or text such as ``"1h30m"``.

A text has one of three forms: FTL's (``1h30m``: ``d``, ``h``, ``m``, ``s``, largest first, each at most once) plus
``ms``, words (``1 hour and 30 minutes``), and ISO 8601 (``PT1H30M``). Directives have the first one only. Longer spans
than `LONGEST` are cut to it, so that ``now + delay`` stays a valid date.
"""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from math import inf, isfinite
from typing import TypeAlias

from redrive.errors import PolicySyntaxError, PolicyValueError

Duration: TypeAlias = timedelta | float | int | str

ZERO = timedelta(0)
# The longest span that redrive computes with (a thousand years); longer ones are cut to it.
LONGEST = timedelta(days=365_250)

# The longest wait that may be asked for (fifty years): a longer one is a mistake, such as a time since 1970 as a delay.
LONGEST_WAIT = timedelta(days=18_263)

_syntax_error = PolicySyntaxError.with_caret
_LONGEST_SECONDS = LONGEST.total_seconds()
# In milliseconds, largest first.
_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_NAMES = tuple(_UNITS)
# Units in words: the unit of the short form, and how many of it.
_SPOKEN = {
    spelling: (unit, size)
    for unit, size, spellings in (
        ("d", 7, "w week weeks"),
        ("d", 1, "d day days"),
        ("h", 1, "h hour hours hr hrs"),
        ("m", 1, "m minute minutes min mins"),
        ("s", 1, "s second seconds sec secs"),
        ("ms", 1, "ms millisecond milliseconds msec msecs"),
    )
    for spelling in spellings.split()
}
_SHORT = 2
# Compiled at their first use: a program that only decorates functions starts in the time that this takes. The module
# `string` would compile a pattern of its own.
_FLAGS = re.ASCII | re.IGNORECASE
_SPOKEN_PART = r"(\d+)\s*([a-z]+)(?:(?:\s*,\s*(?:and\s+)?|\s+(?:and\s+)?)?(?=\d)|$)"
# ISO 8601: weeks, days, hours, minutes and seconds. Years and months have no fixed length.
_ISO = r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:[.,]\d{1,9})?)S)?)?"
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ISO_SIZES = (7 * _UNITS["d"], _UNITS["d"], _UNITS["h"], _UNITS["m"], _UNITS["s"])
_VALID = "write whole numbers with the units d, h, m, s, ms, largest first, for example 1h30m or 500ms"


def parse_duration(value: Duration) -> timedelta:
    """Read a span of time.

    Args:
        value: a ``timedelta``, seconds as a number, or text: ``"1h30m"`` or ``"500ms"`` (integers with the units d, h,
            m, s, ms, largest first, each at most once), ``"1 hour and 30 minutes"`` (also weeks), or ``"PT1H30M"``
            (ISO 8601, without years and months).

    Returns:
        The span, not negative, at most `LONGEST`.

    Raises:
        PolicySyntaxError: the text cannot be read; the message points at the fault.
        PolicyValueError: the value is negative, NaN, infinite or not a duration.
    """
    return span(seconds(value))


def parse_wait(value: Duration) -> timedelta:
    """Read the time until something is due, as `parse_duration` does; refuse one that is longer than `LONGEST_WAIT`."""
    found = parse_duration(value)
    if found > LONGEST_WAIT:
        raise PolicyValueError(
            f"{value!r} is more than 50 years, which is the longest wait; a number counts seconds from now on"
        )
    return found


def seconds(value: Duration) -> float:
    """Read a span of time as `parse_duration` does, in seconds and without rounding to microseconds."""
    if isinstance(value, str):
        return min(_milliseconds(value) / 1000, _LONGEST_SECONDS)
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise PolicyValueError(
            f"{value!r} is not a duration: give a timedelta, seconds as a number, or text such as '1h30m'"
        )
    elif isinstance(value, int):
        # An int may be too large for a float.
        number = float(min(max(value, -1), 10**15))
    else:
        number = value
    if not isfinite(number) or number < 0:
        raise PolicyValueError(f"{value!r} is not a duration: it must be zero or more, and finite")
    return number


# From Python 3.13 on, the C code of `datetime` looks its module up; without this reference a call that is retried while
# the interpreter ends would find it gone.
_KEPT = sys.modules.get("_datetime")


def span(number: float) -> timedelta:
    """Return seconds, already checked, as a ``timedelta``, at most `LONGEST`."""
    return timedelta(0, number) if number < _LONGEST_SECONDS else LONGEST


def read(word: str, text: str, start: int) -> int:
    """Read one duration, in milliseconds, that stands at ``start`` of a longer text; errors point into that text."""
    if not word:
        raise _syntax_error(text, start, "a duration is missing", _VALID)
    total, at, last = 0, 0, -1
    while at < len(word):
        number_end = _skip(word, at, "0123456789")
        if number_end == at:
            raise _no_number(word, at, text, start)
        unit_end = _skip(word, number_end, _LETTERS)
        unit = word[number_end:unit_end]
        if unit not in _UNITS:
            raise _bad_unit(word, word[at:number_end], unit, text, start + number_end)
        rank = _NAMES.index(unit)
        if rank <= last:
            problem = f"the unit {unit!r} comes after {_NAMES[last]!r}"
            raise _syntax_error(text, start + number_end, problem, _VALID)
        total += _count(word[at:number_end]) * _UNITS[unit]
        at, last = unit_end, rank
    return total


def in_units(words: str) -> str | None:
    """Return a duration in words, such as ``5 minutes``, in the form that `read` reads; None if it is another text."""
    counts = _spoken(words)
    return None if counts is None else "".join(f"{count}{unit}" for unit, count in counts.items())


def iso_milliseconds(text: str) -> float | None:
    """Return the milliseconds of an ISO 8601 duration such as ``PT1H30M``; None if it is another text."""
    found = re.fullmatch(_ISO, text, _FLAGS)
    if found is None or not any(found.groups()) or text[-1] in "tT":
        return None
    counts = [min(float((count or "0").replace(",", ".")), 1e15) for count in found.groups()]
    return sum(count * size for count, size in zip(counts, _ISO_SIZES, strict=True))


def _milliseconds(text: str) -> float:
    """Read a duration in any form; raise `PolicySyntaxError` for another text."""
    bare = text.strip()
    counts = _spoken(bare)
    if counts is not None:
        return sum(count * _UNITS[unit] for unit, count in counts.items())
    iso = iso_milliseconds(bare)
    return read(text, text, 0) if iso is None else iso


def _spoken(words: str) -> dict[str, int] | None:
    """Return how many of each unit a duration in words has, largest first; None if it is another text."""
    counts: dict[str, int] = {}
    last, at = inf, 0
    for part in re.finditer(_SPOKEN_PART, words, _FLAGS):
        # Short units have one case: M could be a month.
        unit, size = _SPOKEN.get(part[2] if len(part[2]) <= _SHORT else part[2].lower(), ("", 0))
        length = size * _UNITS.get(unit, 0)
        if part.start() != at or not 0 < length < last:
            return None
        counts[unit] = counts.get(unit, 0) + _count(part[1]) * size
        last, at = length, part.end()
    return counts if counts and at == len(words) else None


def _count(digits: str) -> int:
    """Return the value of decimal digits; long numbers saturate."""
    return min(int(digits.lstrip("0")[:16] or "0"), 10**15)


def _skip(word: str, at: int, alphabet: str) -> int:
    while at < len(word) and word[at] in alphabet:
        at += 1
    return at


def _no_number(word: str, at: int, text: str, start: int) -> PolicySyntaxError:
    if word[at] in "+-":
        return _syntax_error(text, start + at, "a duration has no sign", _VALID)
    if word[at] == ".":
        return _syntax_error(text, start + at, "a duration takes whole numbers only", "write 1500ms for 1.5s")
    if at == 0 and word[0] in "Pp":
        problem = "an ISO 8601 duration has weeks, days, hours, minutes and seconds, and no others"
        return _syntax_error(text, start, problem, "write PT1H30M or P7D, for example")
    spoken = in_units(word)
    valid = f"write {spoken}" if spoken else _VALID
    return _syntax_error(text, start + at, f"a duration cannot contain {word[at]!r} here", valid)


def _bad_unit(word: str, number: str, unit: str, text: str, at: int) -> PolicySyntaxError:
    spoken = in_units(word)
    valid = f"write {spoken}" if spoken else _VALID
    named = unit or _word_after(text, at)
    if named.lower().rstrip("s") in {"month", "year", "mo", "yr", "y"}:
        return _syntax_error(text, at, f"{named} is not a fixed length", "write a number of days, for example 30d")
    if named:
        known = named.lower() in _SPOKEN and not unit
        problem = "these words are not one duration" if known else f"there is no unit {named!r}"
        return _syntax_error(text, at, problem, valid)
    if text[at : at + 1] == ".":
        return _syntax_error(text, at, "a duration takes whole numbers only", "write 1500ms for 1.5s")
    seconds = "second" if number == "1" else "seconds"
    valid = f"write {spoken}" if spoken else f"write {number}s for {number} {seconds}"
    return _syntax_error(text, at, f"the number {number} has no unit", valid)


def _word_after(text: str, at: int) -> str:
    """Return the word after blanks, or an empty text if something else follows."""
    start = _skip(text, at, " ")
    return text[start : _skip(text, start, _LETTERS)]


def format_duration(value: timedelta) -> str:
    """Write a span of time in the form that `parse_duration` reads: the shortest form, ``"0s"`` for zero.

    A part below a millisecond is written as a fraction (``"1.5ms"``), and a negative span with a sign; these two forms
    cannot be read back.
    """
    micros = value // timedelta(microseconds=1)
    if micros == 0:
        return "0s"
    sign, rest = ("-", -micros) if micros < 0 else ("", micros)
    millis, below = divmod(rest, 1000)
    parts = []
    for unit, size in _UNITS.items():
        count, millis = divmod(millis, size)
        if unit == "ms" and below:
            parts.append(f"{count}.{below:03d}".rstrip("0") + unit)
        elif count:
            parts.append(f"{count}{unit}")
    return sign + "".join(parts)
