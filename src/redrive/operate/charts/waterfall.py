"""What happened when in a run: a row of bars for each step on one time axis, with idle spans folded. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Final

import msgspec

from redrive.operate.charts import svg
from redrive.operate.charts.axes import took
from redrive.operate.charts.svg import Picture

#: Idle spans longer than this are folded, the longest ones of them.
IDLE: Final = timedelta(seconds=30)
FOLDS: Final = 6

# Seconds between the labels of the axis.
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)

_HEIGHT: Final = 34
_AXIS: Final = 30
_MIDDLE: Final = 17
_FOLD: Final = 0.07
_LEAST: Final = 0.005
_SMALLEST: Final = 0.04

# The part of the width that a label of the axis needs.
_WIDE: Final = 0.075


class Bar(msgspec.Struct, frozen=True, gc=False):
    """A part of a row.

    Attributes:
        shape: ``bar``, ``line`` for a wait of the policy, ``sleep``, ``open`` for a wait of the run, ``thin``, or
            ``next`` for what has not begun.
        name: a class, for its colour.
        end: None up to the present.
        is_idle: True if nothing is executed meanwhile, so that the time may be folded.
        label: within it, or beside it.
    """

    shape: str
    name: str
    begin: datetime
    end: datetime | None
    tip: str
    is_idle: bool = False
    label: str = ""


class Row(msgspec.Struct, frozen=True, gc=False):
    """A row.

    Attributes:
        label: beside its last bar.
    """

    bars: tuple[Bar, ...]
    sentence: str
    label: str = ""


class Part(msgspec.Struct, frozen=True, gc=False):
    """A part of the axis with a scale of its own."""

    begin: datetime
    end: datetime
    left: float
    right: float
    is_fold: bool

    def place(self, at: datetime) -> float:
        """Return the place of an instant, as a part of the width."""
        whole = (self.end - self.begin) / timedelta(seconds=1)
        done = (at - self.begin) / timedelta(seconds=1)
        return self.left + (self.right - self.left) * (done / whole if whole else 0)


class Waterfall(msgspec.Struct, frozen=True, gc=False):
    """The pictures of a run: the axis, the lines behind all rows, and the bars of each row."""

    axis: Picture
    grid: Picture
    rows: tuple[Picture, ...]
    is_folded: bool


def draw(rows: Sequence[Row], now: datetime, zone: tzinfo, *, folded: bool = True) -> Waterfall:
    """Draw rows on one axis.

    Args:
        rows: at least one with at least one bar.
        now: the present instant.
        zone: of the times of the axis.
        folded: False to draw idle spans as long as they were.
    """
    bars = [each for row in rows for each in row.bars]
    begin, end = min(each.begin for each in bars), max(each.end or now for each in bars)
    is_open = any(each.end is None for each in bars)
    parts = _parts(bars, begin, max(end, begin + timedelta(milliseconds=1)), now, folded=folded)
    ticks = [tick for part in parts for tick in _ticks(part, zone)]
    return Waterfall(
        _axis(parts, ticks, is_open=is_open),
        _grid(parts, ticks, is_open=is_open),
        tuple(_row(row, parts, now) for row in rows),
        any(each.is_fold for each in parts),
    )


def _parts(bars: Iterable[Bar], begin: datetime, end: datetime, now: datetime, *, folded: bool) -> list[Part]:
    """Return the parts of the axis from its begin to its end."""
    busy = sorted((each.begin, each.end or now) for each in bars if not each.is_idle)
    gaps, last = [], begin
    for first, until in [*busy, (end, end)]:
        if folded and first - last > IDLE:
            gaps.append((last, first))
        last = max(last, until)
    kept = sorted(sorted(gaps, key=lambda each: each[0] - each[1])[:FOLDS])
    cuts = [begin, *(at for gap in kept for at in gap), end]
    spans = [(cuts[place], cuts[place + 1], place % 2 == 1) for place in range(len(cuts) - 1)]
    spans = [each for each in spans if each[1] > each[0]]
    whole = sum((until - first for first, until, is_fold in spans if not is_fold), timedelta()) or timedelta(seconds=1)
    shares = [1.0 if is_fold else max((until - first) / whole, _SMALLEST) for first, until, is_fold in spans]
    open_for = 1 - _FOLD * sum(is_fold for *_, is_fold in spans)
    plain = sum(share for share, (*_, is_fold) in zip(shares, spans, strict=True) if not is_fold) or 1.0
    found, left = [], 0.0
    for share, (first, until, is_fold) in zip(shares, spans, strict=True):
        right = left + (_FOLD if is_fold else open_for * share / plain)
        found.append(Part(first, until, left, right, is_fold))
        left = right
    # Nothing but folds: they take all of the width.
    return (
        found
        if left > 1 - _FOLD
        else [msgspec.structs.replace(each, left=each.left / left, right=each.right / left) for each in found]
    )


def _ticks(part: Part, zone: tzinfo) -> Iterator[tuple[float, str]]:
    """Yield places in a part that have a label: its begin, and round instants after it."""
    if part.is_fold:
        return
    wide, whole = part.right - part.left, (part.end - part.begin).total_seconds()
    if wide < _WIDE:
        return
    local = part.begin.astimezone(zone)
    is_long = whole > _STEPS[-1] * 2
    yield part.left, f"{local:%d %b %H:%M}" if is_long else f"{local:%H:%M:%S}"
    step = next((each for each in _STEPS if whole / each * _WIDE <= wide), None)
    if step is None:
        return
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    done = (local - midnight).total_seconds()
    at = midnight + timedelta(seconds=(done // step + 1) * step)
    while at < part.end:
        place = part.place(at)
        if place - part.left >= _WIDE and part.right - place > _WIDE / 2:
            yield place, f"{at:%d %b}" if step >= _STEPS[-1] else f"{at:%H:%M}" if step >= 60 else f"{at:{_short(at)}}"  # noqa: PLR2004 - a minute
        at += timedelta(seconds=step)


def _short(at: datetime) -> str:
    return ":%S" if at.second else "%H:%M:%S"


def _axis(parts: Sequence[Part], ticks: Sequence[tuple[float, str]], *, is_open: bool) -> Picture:
    drawn = [_fold(each, _AXIS) for each in parts if each.is_fold]
    for each in parts:
        # "now" stands at the end of a fold that reaches it.
        if each.is_fold and not (is_open and each is parts[-1] and each.right - each.left < 2 * _WIDE):
            span, middle = round((each.end - each.begin).total_seconds()), svg.place((each.left + each.right) / 2)
            drawn.append(svg.text(took(span), middle, 18, text_anchor="middle", class_="value"))
    drawn += [
        svg.text(label, svg.place(place), 18, dx=3, class_="no-phone" if number % 2 else None)
        for number, (place, label) in enumerate(ticks)
        if not (is_open and place > 1 - _WIDE)
    ]
    drawn += [svg.text("now", "100%", 18, dx=-4, text_anchor="end", class_="now")] if is_open else []
    return Picture(svg.element("svg", *drawn, width="100%", height=_AXIS, aria_hidden="true"))


def _grid(parts: Sequence[Part], ticks: Sequence[tuple[float, str]], *, is_open: bool) -> Picture:
    hatch = svg.element(
        "pattern", svg.element("path", d="M0 6 6 0", class_="hatch"),
        id="hatch", width=6, height=6, patternUnits="userSpaceOnUse",
    )  # fmt: skip
    lines = [
        svg.element("line", x1=svg.place(place), x2=svg.place(place), y2="100%", class_="grid")
        for place, _ in ticks
        if place
    ]
    lines += [svg.element("line", x1="100%", x2="100%", y2="100%", class_="now")] if is_open else []
    folds = [_fold(each, "100%") for each in parts if each.is_fold]
    return Picture(
        svg.element("svg", hatch, *folds, *lines, class_="behind", width="100%", height="100%", aria_hidden="true")
    )


def _fold(part: Part, height: float | str) -> str:
    return svg.element(
        "rect", x=svg.place(part.left), width=svg.place(part.right - part.left), height=height, class_="folded"
    )


def _row(row: Row, parts: Sequence[Part], now: datetime) -> Picture:
    drawn, right = [], 0.0
    for each in row.bars:
        left, end = _place(parts, each.begin), _place(parts, each.end or now)
        right = max(right, min(end, 1.0))
        drawn.append(_bar(each, min(left, 1 - _LEAST), max(end - left, _LEAST)))
    if row.label and right < 0.85:  # noqa: PLR2004 - there is room at its right
        drawn.append(svg.text(row.label, svg.place(right), _MIDDLE + 4, dx=8))
    return Picture(svg.element("svg", *drawn, width="100%", height=_HEIGHT, role="img", aria_label=row.sentence))


def _bar(each: Bar, left: float, wide: float) -> str:
    x, end, middle = svg.place(left), svg.place(left + wide), svg.place(left + wide / 2)
    label = ""
    if each.label and wide > 0.012 * len(each.label):
        label = svg.text(each.label, middle, _MIDDLE + 4, text_anchor="middle", class_=f"on-{each.shape}")
    if each.shape in ("line", "sleep"):
        ends = (
            ""
            if each.shape == "line"
            else "".join(
                svg.element("line", x1=at, x2=at, y1=_MIDDLE - 4, y2=_MIDDLE + 4, class_="rest") for at in (x, end)
            )
        )
        line = svg.element("line", x1=x, x2=end, y1=_MIDDLE, y2=_MIDDLE, class_="rest")
        return svg.element("g", svg.title(each.tip), line, ends, label)
    tall = 4 if each.shape == "thin" else 12
    name = each.shape if each.shape in {"open", "next"} else f"f-{each.name}"
    box = svg.element(
        "rect", x=x, width=svg.place(wide), y=_MIDDLE - tall / 2, height=tall, rx=2, class_=name,
    )  # fmt: skip
    return svg.element("g", svg.title(each.tip), box, label)


def _place(parts: Sequence[Part], at: datetime) -> float:
    part = next((each for each in parts if at <= each.end), parts[-1])
    return max(0.0, min(part.place(at), 1.0))
