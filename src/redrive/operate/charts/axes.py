"""The axes of charts: round values on the y axis, instants or names on the x axis. PURE."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Final, TypeAlias

import msgspec

from redrive.engine.explain import span

#: Writes a value of the y axis.
Words: TypeAlias = Callable[[float], str]

#: Marks of changes in one chart; the newest are drawn.
MARKS: Final = 3

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_MINUTE: Final = 60.0
_LONG: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_PARTS: Final = 6
_LABELS: Final = 6


class Axis(msgspec.Struct, frozen=True, gc=False):
    """The x axis of a chart, in columns of the same width.

    Attributes:
        names: of the columns, for tips.
        labels: below the columns: their place as a part of the width, and a text.
        marks: of changes, such as new code: likewise.
        paths: where each column leads; empty for nowhere.
        is_open: True if the last column is not complete, and is drawn faintly.
        is_time: True if labels may be left out where there is no room for all.
    """

    names: tuple[str, ...]
    labels: tuple[tuple[float, str], ...]
    marks: tuple[tuple[float, str], ...] = ()
    paths: tuple[str, ...] = ()
    is_open: bool = False
    is_time: bool = False


def times(
    starts: Sequence[datetime],
    width: timedelta,
    zone: tzinfo,
    *,
    marks: Sequence[tuple[datetime, str]] = (),
    paths: Sequence[str] = (),
) -> Axis:
    """Return the axis of spans of one width, the last of which is not complete."""
    whole = width * len(starts)
    is_long = whole > timedelta(days=7)
    is_short = width < timedelta(minutes=1)
    form = "%d %b" if is_long else "%a %H:%M" if whole > timedelta(days=1) else "%H:%M:%S" if is_short else "%H:%M"
    local = [each.astimezone(zone) for each in starts]
    ends = [(starts[0] + whole * number / _PARTS).astimezone(zone) for number in range(_PARTS + 1)] if starts else []
    labels = [(number / _PARTS, f"{each:{form}}") for number, each in enumerate(ends)]
    tip = "%d %b" if is_long else form
    shown = [((at - starts[0]) / whole, text) for at, text in marks if starts and at > starts[0]]
    names = tuple(f"{each:{tip}}" for each in local)
    return Axis(names, tuple(labels), tuple(shown[-MARKS:]), tuple(paths), is_open=True, is_time=True)


def categories(names: Sequence[str]) -> Axis:
    """Return the axis of columns with a name each, such as the number of an attempt."""
    labels = [((number + 0.5) / len(names), name) for number, name in enumerate(names)]
    return Axis(tuple(names), tuple(labels))


def buckets(names: Sequence[str], edges: Sequence[str]) -> Axis:
    """Return the axis of a histogram, with a label at each edge of a column."""
    step = max(1, -(-len(edges) // (_LABELS + 2)))
    labels = [(number / len(names), edges[number]) for number in range(0, len(edges), step)]
    tips = [f"{first} to {last}" for first, last in zip(edges, names, strict=False)]
    return Axis(tuple(tips), tuple(labels))


def ticks(most: float, *, whole: bool = False) -> tuple[float, ...]:
    """Return round values from zero to at least ``most``: three to five of them.

    Args:
        most: the largest value.
        whole: True for a count, which has no fractions.
    """
    step = _step(max(most, 1 if whole else 1e-9) / 3)
    return _up_to(most, max(step, 1.0) if whole else step)


def spans(most: float) -> tuple[float, ...]:
    """Return round spans from zero to at least ``most``, in seconds."""
    if most <= 3 * _LONG[0]:
        return ticks(most or 1.0)
    long = next((each for each in _LONG if each >= most / 3), None)
    return _up_to(most, float(long) if long else 86_400 * _step(most / 3 / 86_400))


def _step(least: float) -> float:
    size = 10.0 ** math.floor(math.log10(least))
    return next(each * size for each in _STEPS if each * size >= least * (1 - 1e-9))


def _up_to(most: float, step: float) -> tuple[float, ...]:
    number = max(2, math.ceil(most / step - 1e-9))
    return tuple(step * each for each in range(number + 1))


def count(value: float) -> str:
    """Write a number: ``1,200``."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def percent(value: float) -> str:
    """Write a share of 100: ``25 %``."""
    return f"{count(value)}\N{NO-BREAK SPACE}%"


def took(seconds: float) -> str:
    """Write a span: ``4.9 s``, ``14 min 8 s``."""
    if not seconds:
        return "0"
    text = span(timedelta(seconds=seconds))
    return re.sub(
        r"(\d)(ms|[a-z])", lambda found: f"{found[1]}\N{NO-BREAK SPACE}{_UNITS.get(found[2], found[2])}", text
    )


_UNITS: Final = {"m": "min"}
