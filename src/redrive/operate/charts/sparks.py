"""Small charts without axes, for rows of tables and key figures; the number stands beside them. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from redrive.operate.charts import plots, svg
from redrive.operate.charts.svg import Picture

_LINE: Final = 26
_BARS: Final = 20


def line(name: str, values: Sequence[float | None]) -> Picture:
    """Draw the course of a key figure, as wide as its box; ``name`` is a class."""
    most = max((each for each in values if each is not None), default=0) or 1
    drawn = []
    for run in plots.runs(values):
        points = [f"{place} {_LINE - 1.5 - each / most * (_LINE - 4):.1f}" for place, each in run]
        path = "M" + "L".join(points)
        drawn.append(
            svg.element("path", d=f"{path}V{_LINE}H{run[0][0]}z", class_=f"f-{name} wash")
            + svg.element("path", d=path, class_=f"l l-{name}")
        )
    return Picture(svg.stretched(max(len(values) - 1, 1), _LINE, *drawn, class_="spark", aria_hidden="true"))


def bars(name: str, values: Sequence[float], sentence: str, *, width: float = 72) -> Picture:
    """Draw small columns; ``name`` is a class, and the sentence is for screen readers."""
    most, step = max(values, default=0) or 1, width / max(len(values), 1)
    wide = svg.short(max(step - 1, 0.8))
    drawn = "".join(
        f"M{number * step:.1f} {_BARS - 1}v-{max(each / most * (_BARS - 1), 1):.1f}h{wide}V{_BARS - 1}z"
        for number, each in enumerate(values)
        if each
    )
    parts = [svg.element("path", d=drawn, class_=f"f-{name}")] if drawn else []
    floor = svg.element("path", d=f"M0 {_BARS - 0.5}H{svg.short(width)}", class_="base")
    return Picture(
        svg.element(
            "svg", *parts, floor, class_="bars", width=svg.short(width), height=_BARS, role="img", aria_label=sentence
        )
    )
