"""Charts with axes, gridlines and tips: columns, areas, lines and strips. PURE.

A chart is a ``<figure>`` of three parts: the values of the y axis, the plot, and the labels of the x axis. A missing
value is a gap, not a zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

import msgspec

from redrive.operate.charts import axes, svg
from redrive.operate.charts.axes import Axis, Words
from redrive.operate.charts.svg import Picture

#: The heights of charts, in pixels.
MAIN: Final = 188
SMALL: Final = 112

_GAP: Final = 0.2
_LEAST: Final = 1.5
_CAP: Final = 2
_FOOT: Final = 18
_UNKNOWN: Final = "\N{EN DASH}"

# The values of one series by column; None where nothing is known.
_Values = Sequence[float | None]


class Scale(msgspec.Struct, frozen=True, gc=False):
    """The y axis.

    Attributes:
        ticks: its values, from zero.
        words: writes a value.
        height: of the plot, in pixels.
    """

    ticks: tuple[float, ...]
    words: Words = axes.count
    height: float = MAIN

    def y(self, value: float) -> float:
        """Return the place of a value: pixels from the top."""
        return self.height - 1 - self.tall(value)

    def tall(self, value: float) -> float:
        """Return the height of a value, in pixels."""
        return value / self.ticks[-1] * (self.height - 2)


def counts(most: float, height: float = MAIN) -> Scale:
    """Return the y axis of counts."""
    return Scale(axes.ticks(most, whole=True), height=height)


def spans(most: float, height: float = SMALL) -> Scale:
    """Return the y axis of spans in seconds."""
    return Scale(axes.spans(most), axes.took, height)


def percents(most: float, height: float = SMALL) -> Scale:
    """Return the y axis of shares."""
    return Scale(axes.ticks(min(most, 100)), axes.percent, height)


def columns(
    axis: Axis,
    series: Mapping[str, Sequence[float]],
    sentence: str,
    *,
    scale: Scale | None = None,
    values: bool = False,
) -> Picture:
    """Draw stacked columns.

    Args:
        axis: the x axis.
        series: the values of each column, from the lowest part of the column to the highest. The name is a class and
            stands in tips. The body of what succeeded is faint, so that the rest is seen.
        sentence: for screen readers.
        scale: the y axis; without it, that of counts.
        values: True to write the sum above each column.
    """
    tops = [sum(each) for each in zip(*series.values(), strict=True)]
    scale = scale or counts(max(tops, default=0))
    parts = list(_bodies(axis, series, scale))
    if values:
        parts += [
            svg.text(
                scale.words(top),
                svg.place((number + 0.5) / len(tops)),
                max(scale.y(top) - 5, 10),
                text_anchor="middle",
                class_="value",
            )
            for number, top in enumerate(tops)
        ]
    tips = [
        ", ".join(
            f"{scale.words(each[number])} {name}" for name, each in series.items() if each[number] or len(series) == 1
        )
        for number in range(len(tops))
    ]
    return _figure(axis, scale, sentence, parts, tips)


def _bodies(axis: Axis, series: Mapping[str, Sequence[float]], scale: Scale) -> Iterator[str]:
    """Yield a path for each series and, of the last column, one more if it is not complete."""
    number = len(axis.names)
    floors = [scale.height - 1.0] * number
    for name, values in series.items():
        # One attempt among thousands is seen.
        tall = [max(scale.tall(value), _LEAST) if value else 0.0 for value in values]
        tops = [floor - each for floor, each in zip(floors, tall, strict=True)]
        boxes = [(place, tops[place], tall[place]) for place in range(number) if tall[place]]
        complete = [each for each in boxes if not axis.is_open or each[0] < number - 1]
        is_soft = name == "succeeded"
        yield _path(complete, number, scale, f"f-{name} f-soft" if is_soft else f"f-{name}")
        if is_soft:
            yield _path([(place, top, min(_CAP, each)) for place, top, each in complete], number, scale, f"f-{name}")
        yield _path(boxes[len(complete) :], number, scale, f"f-{name}", fill_opacity=0.2 if is_soft else 0.5)
        floors = tops


def _path(boxes: Sequence[tuple[int, float, float]], number: int, scale: Scale, class_: str, **more: object) -> str:
    """Return boxes as one element: the column, the top and the height of each."""
    if not boxes:
        return ""
    wide = svg.short(1 - _GAP)
    drawn = "".join(
        f"M{place + _GAP / 2:g} {svg.short(top)}h{wide}v{svg.short(tall)}h-{wide}z" for place, top, tall in boxes
    )
    return svg.stretched(number, scale.height, svg.element("path", d=drawn, class_=class_, **more))


def area(
    axis: Axis, name: str, values: _Values, sentence: str, *, scale: Scale | None = None, limit: float | None = None
) -> Picture:
    """Draw one line with the area below it.

    Args:
        axis: the x axis.
        name: of the series: a class, and in tips.
        values: by column; None is a gap.
        sentence: for screen readers.
        scale: the y axis; without it, that of counts.
        limit: a value at which a dashed line is drawn.
    """
    scale = scale or counts(max((each for each in values if each is not None), default=0), SMALL)
    return _figure(
        axis,
        scale,
        sentence,
        [_line(values, scale, name, wash=True), *_limit(scale, limit)],
        _tips({name: values}, scale),
    )


def lines(
    axis: Axis,
    series: Mapping[str, _Values],
    sentence: str,
    *,
    scale: Scale | None = None,
    limit: float | None = None,
) -> Picture:
    """Draw a line for each series; `area` has the arguments."""
    known = [each for values in series.values() for each in values if each is not None]
    scale = scale or spans(max(known, default=0))
    drawn = [_line(values, scale, name) for name, values in series.items()]
    return _figure(axis, scale, sentence, [*drawn, *_limit(scale, limit)], _tips(series, scale))


def _tips(series: Mapping[str, _Values], scale: Scale) -> list[str]:
    return [
        ", ".join(
            f"{_UNKNOWN if value is None else scale.words(value)} {name}"
            for name, value in zip(series, column, strict=True)
        )
        for column in zip(*series.values(), strict=True)
    ]


def _limit(scale: Scale, limit: float | None) -> Iterator[str]:
    if limit is not None and limit <= scale.ticks[-1]:
        yield svg.element("line", x2="100%", y1=svg.short(scale.y(limit)), y2=svg.short(scale.y(limit)), class_="limit")


def _line(values: _Values, scale: Scale, name: str, *, wash: bool = False) -> str:
    """Return a line through the middle of each column, which ends at gaps, and the area below it."""
    drawn = []
    for run in runs(values):
        points = [f"{svg.short(place + 0.5)} {svg.short(scale.y(value))}" for place, value in run]
        if len(points) == 1:
            points = [
                f"{run[0][0]} {svg.short(scale.y(run[0][1]))}",
                f"{run[0][0] + 1} {svg.short(scale.y(run[0][1]))}",
            ]
        path = "M" + "L".join(points)
        if wash:
            first, last = points[0].partition(" ")[0], points[-1].partition(" ")[0]
            floor = svg.short(scale.height - 1)
            drawn.append(svg.element("path", d=f"{path}L{last} {floor}L{first} {floor}z", class_=f"f-{name} wash"))
        drawn.append(svg.element("path", d=path, class_=f"l l-{name}"))
    return svg.stretched(len(values), scale.height, *drawn) if drawn else ""


def runs(values: _Values) -> list[list[tuple[int, float]]]:
    """Return the parts of a series between gaps, with the column of each value."""
    found: list[list[tuple[int, float]]] = []
    is_gap = True
    for place, value in enumerate(values):
        if value is not None:
            if is_gap:
                found.append([])
            found[-1].append((place, value))
        is_gap = value is None
    return found


class Cell(msgspec.Struct, frozen=True, gc=False):
    """A column of a strip.

    Attributes:
        name: a class: what became of it.
        value: its height; None for no column.
        tip: under the pointer.
        glyph: the name of an icon below it; empty for a plain success.
    """

    name: str
    value: float | None
    tip: str
    glyph: str = ""


def strip(
    axis: Axis, cells: Sequence[Cell], sentence: str, icons: str, *, scale: Scale | None = None, streak: float = 0
) -> Picture:
    """Draw outcomes: a column for each, as high as its value, with an icon below all that did not simply succeed.

    Args:
        axis: the x axis.
        cells: the columns, of which the height is a span by default.
        sentence: for screen readers.
        icons: the address of the icons.
        scale: the y axis.
        streak: the part of the width, at its end, that is tinted.
    """
    scale = scale or spans(max((each.value or 0 for each in cells), default=0))
    names = dict.fromkeys(each.name for each in cells)
    series = {name: [(each.value or 0.0) if each.name == name else 0.0 for each in cells] for name in names}
    marks = [
        svg.element(
            "svg",
            svg.element("use", href=f"{icons}#{each.glyph}", x="-5", width="10", height="10"),
            x=svg.place((number + 0.5) / len(cells)),
            y=svg.short(scale.height + 4),
            overflow="visible",
            class_=each.glyph,
        )
        for number, each in enumerate(cells)
        if each.glyph
    ]
    tint = []
    if streak:
        tint = [
            svg.element(
                "rect",
                x=svg.place(1 - streak),
                width=svg.place(streak),
                height=svg.short(scale.height + _FOOT),
                class_="tint",
            )
        ]
    return _figure(
        axis, scale, sentence, [*tint, *_bodies(axis, series, scale), *marks], [each.tip for each in cells], foot=_FOOT
    )


def _figure(
    axis: Axis, scale: Scale, sentence: str, parts: list[str], tips: Sequence[str], *, foot: float = 0
) -> Picture:
    """Return a chart: the values of the y axis, the plot, and the labels of the x axis."""
    height = scale.height + foot
    grid = [
        svg.element("line", x2="100%", y1=y, y2=y, class_="grid" if number else "base")
        for number, each in enumerate(scale.ticks)
        for y in [svg.short(scale.y(each) + 0.5)]
    ]
    left = [
        svg.text(
            _bare(scale.words(each)) if number < len(scale.ticks) - 1 else scale.words(each),
            "100%",
            min(max(scale.y(each) + 4, 9), scale.height - 1),
            text_anchor="end",
        )
        for number, each in enumerate(scale.ticks)
    ]
    changes = [part for mark in axis.marks for part in _change(*mark, scale)]
    plot = svg.element(
        "svg", *grid, *parts, *changes, _hits(axis, tips, height),
        width="100%", height=svg.short(height), role="group" if any(axis.paths) else "img", aria_label=sentence,
    )  # fmt: skip
    y = svg.element("svg", *left, class_="y", height=svg.short(scale.height), aria_hidden="true")
    kind = "chart" if scale.height >= MAIN else "chart low"
    return Picture(svg.element("figure", y, plot, _labels(axis), class_=kind))


def _change(part: float, label: str, scale: Scale) -> Iterator[str]:
    """Yield the line of a change and its text, on the side with more room."""
    x, is_late = svg.place(part), part > 0.5  # noqa: PLR2004 - the half of the chart
    yield svg.element("line", x1=x, x2=x, y2=svg.short(scale.height), class_="mark-line")
    anchor = "end" if is_late else None
    yield svg.text(label, x, 10, dx=-4 if is_late else 4, text_anchor=anchor, class_="mark-text")


def _bare(words: str) -> str:
    """Return a value without its unit, which stands at the highest value only, unless units differ."""
    return words.removesuffix("\N{NO-BREAK SPACE}%")


def _hits(axis: Axis, tips: Sequence[str], height: float) -> str:
    """Return a column over each place, with its tip and its link."""
    found = []
    for number, tip in enumerate(tips):
        name = axis.names[number]
        shown = svg.title(f"{name}: {tip}" if tip else name)
        box = svg.element("rect", shown, x=number)
        path = axis.paths[number] if axis.paths else ""
        found.append(f'<a href="{escape(path)}" tabindex="-1">{box}</a>' if path else box)
    return svg.stretched(len(tips), height, *found, class_="hit") if found else ""


def _labels(axis: Axis) -> str:
    """Return the labels of the x axis."""
    anchors = {0.0: None, 1.0: "end"}
    texts = [
        svg.text(label, svg.place(part), 12, text_anchor=anchors.get(part, "middle")) for part, label in axis.labels
    ]
    kind = "x times" if axis.is_time else "x"
    return svg.element("svg", *texts, class_=kind, width="100%", height=16, overflow="visible", aria_hidden="true")
