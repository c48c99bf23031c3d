"""Small charts without axes, for rows of tables and key figures; the number stands beside them. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from redrive.operate.charts import plots, svg
from redrive.operate.charts.svg import Picture

_LINE: Final = 26
_BARS: Final = 20
_MOST: Final = 24


def squares(names: Sequence[str], sentence: str) -> Picture:
    """Draw a small column for each name, which is its class; what simply succeeded is lower than the rest."""
    parts = [
        svg.rectangle(
            number * 5, 6 if name == "succeeded" else 0, 4, 12 if name == "succeeded" else 18, class_=f"f-{name}"
        )
        for number, name in enumerate(names)
    ]
    return Picture(
        svg.element(
            "svg", *parts, class_="bars", width=5 * max(len(names), 1), height=18, role="img", aria_label=sentence
        )
    )


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
    pooled = _pooled(values)
    most, step = max(pooled, default=0) or 1, width / max(len(pooled), 1)
    wide, floor = svg.short(step - 1), _BARS - 1
    drawn = "".join(
        f"M{svg.short(number * step)} {floor}v-{max(round(each / most * floor), 1)}h{wide}V{floor}z"
        for number, each in enumerate(pooled)
        if each
    )
    parts = [svg.element("path", d=drawn, class_=f"f-{name}")] if drawn else []
    base = svg.element("path", d=f"M0 {_BARS - 0.5}H{svg.short(width)}", class_="base")
    return Picture(
        svg.element(
            "svg", *parts, base, class_="bars", width=svg.short(width), height=_BARS, role="img", aria_label=sentence
        )
    )


def _pooled(values: Sequence[float]) -> list[float]:
    """Return at most `_MOST` sums of neighbours; the first may have fewer."""
    size = -(-len(values) // _MOST) or 1
    first = len(values) % size
    rest = (sum(values[at : at + size]) for at in range(first, len(values), size))
    return [sum(values[:first]), *rest] if first else [*rest]
