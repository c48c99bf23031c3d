"""Spans of time as users write them: ``timedelta``, seconds as a number, or text such as ``"1h30m"``.

The text form is FTL's (``d``, ``h``, ``m``, ``s``, largest first, each at most once) plus ``ms``. Longer spans than
`LONGEST` are cut to it, so that ``now + delay`` stays a valid date.
"""

from __future__ import annotations

import re
from datetime import timedelta
from math import isfinite
from typing import TypeAlias

from redrive.errors import PolicySyntaxError, PolicyValueError

Duration: TypeAlias = timedelta | float | int | str

ZERO = timedelta(0)
# The longest span that redrive computes with (a thousand years); longer ones are cut to it.
LONGEST = timedelta(days=365_250)

_syntax_error = PolicySyntaxError.with_caret
_LONGEST_SECONDS = LONGEST.total_seconds()
# In milliseconds, largest first.
_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_NAMES = tuple(_UNITS)
# Units in words, as they stand in a text that is no duration yet: only messages use them.
_SPOKEN = {
    spelling: (unit, size)
    for unit, size, spellings in (
        ("d", 7, "week weeks"),
        ("d", 1, "d day days"),
        ("h", 1, "h hour hours hr hrs"),
        ("m", 1, "m minute minutes min mins"),
        ("s", 1, "s second seconds sec secs"),
        ("ms", 1, "ms millisecond milliseconds msec msecs"),
    )
    for spelling in spellings.split()
}
_SPOKEN_PART = re.compile(r"(\d{1,9})\s*([a-z]+)(?:\s*,\s*and\s+|\s*,\s*|\s+and\s+|\s+|$)", re.ASCII)
_VALID = "write whole numbers with the units d, h, m, s, ms, largest first, for example 1h30m or 500ms"


def parse_duration(value: Duration) -> timedelta:
    """Read a span of time.

    Args:
        value: a ``timedelta``, seconds as a number, or text such as ``"1h30m"`` or ``"500ms"`` (integers with the
            units d, h, m, s, ms, largest first, each at most once).

    Returns:
        The span, not negative, at most `LONGEST`.

    Raises:
        PolicySyntaxError: the text cannot be read; the message points at the fault.
        PolicyValueError: the value is negative, NaN, infinite or not a duration.
    """
    return span(seconds(value))


def seconds(value: Duration) -> float:
    """Read a span of time as `parse_duration` does, in seconds and without rounding to microseconds."""
    if isinstance(value, str):
        return min(read(value, value, 0) / 1000, _LONGEST_SECONDS)
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
        unit_end = _skip(word, number_end, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
        unit = word[number_end:unit_end]
        if unit not in _UNITS:
            raise _bad_unit(word, word[at:number_end], unit, text, start + number_end)
        rank = _NAMES.index(unit)
        if rank <= last:
            problem = f"the unit {unit!r} comes after {_NAMES[last]!r}"
            raise _syntax_error(text, start + number_end, problem, _VALID)
        # Long numbers saturate.
        total += min(int(word[at:number_end].lstrip("0")[:16] or "0"), 10**15) * _UNITS[unit]
        at, last = unit_end, rank
    return total


def in_units(words: str) -> str | None:
    """Return a duration in words, such as ``5 minutes``, in the form that `read` reads; None if it is another text."""
    found, at = [], 0
    for part in _SPOKEN_PART.finditer(words.lower()):
        unit, size = _SPOKEN.get(part[2], ("", 0))
        if part.start() != at or not unit:
            return None
        found.append(f"{int(part[1]) * size}{unit}")
        at = part.end()
    return "".join(found) if found and at == len(words) else None


def wordy(value: Duration) -> Duration:
    """Return a span of time for `parse_duration`, which may be a text in words, such as ``3 days``."""
    return in_units(value) or value if isinstance(value, str) else value


def _skip(word: str, at: int, alphabet: str) -> int:
    while at < len(word) and word[at] in alphabet:
        at += 1
    return at


def _no_number(word: str, at: int, text: str, start: int) -> PolicySyntaxError:
    if word[at] in "+-":
        return _syntax_error(text, start + at, "a duration has no sign", _VALID)
    if word[at] == ".":
        return _syntax_error(text, start + at, "a duration takes whole numbers only", "write 1500ms for 1.5s")
    spoken = in_units(word)
    valid = f"write {spoken}" if spoken else _VALID
    return _syntax_error(text, start + at, f"a duration cannot contain {word[at]!r} here", valid)


def _bad_unit(word: str, number: str, unit: str, text: str, at: int) -> PolicySyntaxError:
    spoken = in_units(word)
    if not unit:
        if text[at : at + 1] == ".":
            return _syntax_error(text, at, "a duration takes whole numbers only", "write 1500ms for 1.5s")
        seconds = "second" if number == "1" else "seconds"
        valid = f"write {spoken}" if spoken else f"write {number}s for {number} {seconds}"
        return _syntax_error(text, at, f"the number {number} has no unit", valid)
    return _syntax_error(text, at, f"there is no unit {unit!r}", f"write {spoken}" if spoken else _VALID)


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
