"""The attempts of a job and the waits between them, in one line. PURE.

The width of a bar or of a gap grows with the logarithm of its span, and each has its span as a label, so that 40 ms and
6 h fit into one picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from redrive.engine.explain import span
from redrive.operate.charts import svg
from redrive.operate.charts.svg import Picture

_HEIGHT: Final = 62
_TOP: Final = 18
_BAR: Final = 18
_LEAST: Final = 44


class Bar(msgspec.Struct, frozen=True, gc=False):
    """An attempt in the picture.

    Attributes:
        delay: that was chosen after it; the wait may have been longer.
    """

    number: int
    started_at: datetime
    finished_at: datetime
    outcome: str
    reason: str | None
    rule: str | None
    delay: timedelta | None = None


def draw(bars: Sequence[Bar], due_at: datetime | None, now: datetime) -> Picture:
    """Draw the attempts.

    Args:
        bars: the attempts, oldest first.
        due_at: when the next attempt is due; None if none is.
        now: the present instant.
    """
    x, parts, words = 0.0, [], []
    for place, bar in enumerate(bars):
        took = bar.finished_at - bar.started_at
        width = _width(took)
        until = bars[place + 1].started_at if place + 1 < len(bars) else due_at
        room = width + (0 if until is None else _width(until - bar.finished_at))
        tip = f"attempt {bar.number} ran {span(took)}: {bar.outcome}{f', {bar.reason}' if bar.reason else ''}"
        parts.append(svg.text(f"{bar.number}", x, _TOP - 6, class_="label"))
        parts.append(svg.rectangle(x, _TOP, width, _BAR, tip, class_=f"bar {bar.outcome}", rx=2))
        parts.append(svg.text(span(took), x, _TOP + _BAR + 13, class_="label"))
        parts.append(svg.text((bar.reason or bar.outcome)[: _fits(room)], x, _TOP + _BAR + 25, class_="label"))
        words.append(tip)
        x += width
        if until is not None:
            x = _gap(parts, x, until - bar.finished_at, bar)
    if due_at is not None:
        label = "due now" if due_at <= now else f"in {span(due_at - now)}"
        parts.append(svg.rectangle(x, _TOP, _LEAST, _BAR, f"the next attempt, {label}", class_="bar next", rx=2))
        parts.append(svg.text(label, x, _TOP + _BAR + 13, class_="label"))
        words.append(f"the next attempt is {label if due_at <= now else f'due {label}'}")
        x += _LEAST + 20
    return svg.picture(max(x, 1), _HEIGHT, "; ".join(words) or "no attempt yet", *parts, class_="timeline")


def _gap(parts: list[str], x: float, length: timedelta, bar: Bar) -> float:
    """Draw a wait, and return where it ends."""
    width = _width(length)
    middle = _TOP + _BAR / 2
    label = span(length if bar.delay is None else bar.delay)
    tip = f"delay {label}{f', chosen by {bar.rule}' if bar.rule else ''}; waited {span(length)}"
    parts.append(svg.rectangle(x, middle - 1, width, 2, tip, class_="wait"))
    parts.append(svg.text(label, x + 4, middle - 4, class_="label"))
    return x + width


def _width(length: timedelta) -> float:
    """Return the width of a span: 44 for nothing, and 14 more for each factor of ten above 10 ms."""
    seconds = max(0.0, length.total_seconds())
    return _LEAST + 14 * math.log10(1 + seconds * 100)


def _fits(width: float) -> int:
    """Return how many small letters fit into a width."""
    return max(3, int(width / 5.6))
