"""Stacked bars over time. PURE.

The colours are classes of the page, named like the series. Each bar has its numbers as a tip, and the page has them all
in a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from redrive.operate.charts import svg
from redrive.operate.charts.svg import Picture

_TOP: Final = 14
_BOTTOM: Final = 14
_GAP: Final = 1


def draw(
    labels: Sequence[str],
    series: Mapping[str, Sequence[float]],
    sentence: str,
    *,
    words: Callable[[float], str] = lambda value: f"{value:,.0f}",
    width: float = 600,
    height: float = 90,
    small: bool = False,
) -> Picture:
    """Draw bars.

    Args:
        labels: of the bars, from the first to the last.
        series: the values of each bar, from the lowest part of the bar to the highest.
        sentence: for screen readers.
        words: writes a value.
        width: of the picture, in pixels.
        height: of the picture, in pixels.
        small: True for a picture in a line of text, without labels.
    """
    most = max((sum(values) for values in zip(*series.values(), strict=True)), default=0)
    top, bottom = (0, height) if small else (_TOP, height - _BOTTOM)
    step, scale = width / len(labels), (bottom - top) / (most or 1)
    parts = [svg.rectangle(0, bottom - 0.5, width, 0.5, class_="axis")]
    for place, label in enumerate(labels):
        tip = "" if small else f"{label}: {_tip(series, place, words)}"
        y = bottom
        for name, values in series.items():
            tall = values[place] * scale
            if tall:
                # One attempt among thousands is seen.
                tall = max(tall, 1)
                y -= tall
                parts.append(svg.rectangle(place * step, y, step - _GAP, tall, tip, class_=f"bar {name}"))
    if not small:
        parts.append(svg.text(words(most), 0, _TOP - 4, class_="label"))
        parts.append(svg.text(labels[0], 0, height - 3, class_="label"))
        parts.append(svg.text(labels[-1], width, height - 3, class_="label", text_anchor="end"))
    return svg.picture(width, height, sentence, *parts, class_="bars small" if small else "bars")


def _tip(series: Mapping[str, Sequence[float]], place: int, words: Callable[[float], str]) -> str:
    return ", ".join(f"{words(values[place])} {name}" for name, values in series.items())
