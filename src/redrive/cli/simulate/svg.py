"""The result of a scenario as SVG: a column per measure, a line per contender, a bar beside each figure. PURE.

The bars of one column have one scale. It is logarithmic, and labelled so, if its largest figure is more than twenty
times its smallest. An endless duration fills its column and is hatched.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isinf, log10

from redrive.cli.simulate.text import cells, setting
from redrive.drawing import svg, tag
from redrive.plan.words import wrapped
from redrive.simulate import ScenarioResult
from redrive.visible import visible

_EDGE, _ROW, _LINE = 24, 24, 20
# Of a name, at 12 px, in the widest of the usual fonts.
_CHARACTER = 6.6
# The same of the title, at 16 px.
_TITLE = 9.2
_BAR, _GAP = 60, 16
# Of a figure, at 11 px.
_FIGURE = 6.2
# From this ratio on, a logarithmic scale.
_WIDE = 20.0

_LIGHT = {
    ".figure": "font-size: 11px",
    ".own": "fill: #0969da",
    ".other": "fill: #8c959f",
    ".never": "fill: none; stroke: #cf222e; stroke-dasharray: 3 2",
    ".yours": "fill: #9a6700",
}
_DARK = {".own": "fill: #4493f8", ".other": "fill: #6e7681", ".never": "stroke: #ff7b72", ".yours": "fill: #d29922"}


def as_svg(finding: ScenarioResult) -> str:
    """Return the result as an SVG document, with a line break at its end."""
    head, *rows = [[visible(cell) for cell in line] for line in cells(finding)]
    names = 2 * _EDGE + max(len(row[0]) for row in rows) * _CHARACTER
    widths = [_width(list(column)) for column in zip(*[head, *rows], strict=True)][1:]
    width = max(names + sum(widths), 2 * _EDGE + len(finding.scenario.title) * _TITLE)
    lines = wrapped(setting(finding), int((width - 2 * _EDGE) / _CHARACTER))
    top = _EDGE + _LINE * (len(lines) + 2)
    height = top + _ROW * (len(rows) + 1) + _EDGE // 2
    parts = [tag("text", finding.scenario.title, class_="title", x=_EDGE, y=_EDGE + 8)]
    parts += [tag("text", line, class_="faint", x=_EDGE, y=_EDGE + _LINE * n + 10) for n, line in enumerate(lines, 1)]
    parts += [tag("text", row[0], x=_EDGE, y=top + _ROW * n + 16) for n, row in enumerate(rows, 1)]
    x = names
    for number, wide in enumerate(widths):
        parts += _column(finding, number, [row[number + 1] for row in rows], x, top)
        x += wide
    return svg(
        "redrive-simulation",
        finding.scenario.title,
        parts,
        size=(width, height),
        light=_LIGHT,
        dark=_DARK,
        font=12,
        description=setting(finding),
    )


def _width(column: list[str]) -> float:
    heading, *figures = column
    return max(len(heading) * _CHARACTER, _BAR + 6 + max(map(len, figures)) * _FIGURE) + _GAP


def _column(finding: ScenarioResult, number: int, figures: list[str], x: float, top: int) -> Iterator[str]:
    values = [row.figures[number].mean for row in finding.rows]
    finite = [value for value in values if value and not isinf(value)]
    least, most = min(finite, default=1.0), max(finite, default=1.0)
    logarithmic = most > _WIDE * least
    heading = finding.scenario.measures[number].heading
    yield tag("text", heading, class_="faint", x=x, y=top + (4 if logarithmic else 16))
    if logarithmic:
        yield tag("text", "logarithmic", class_="faint figure", x=x, y=top + 17)
    for line, (value, figure) in enumerate(zip(values, figures, strict=True), 1):
        y = top + _ROW * line + 5
        share = _log_share(value, least, most) if logarithmic else value / most
        long = float(_BAR) if value == inf else max(1.0, _BAR * share)
        yield tag("rect", class_=_kind(finding.rows[line - 1].contender, value), x=x, y=y, width=long, height=14, rx=2)
        yield tag("text", figure, class_="figure", x=x + long + 5, y=y + 11)


def _log_share(value: float, least: float, most: float) -> float:
    """Return the length of a bar: the smallest figure is drawn a tenth as long as the largest."""
    return 0.0 if not value else 0.1 + 0.9 * log10(value / least) / log10(most / least) if value != inf else 1.0


def _kind(name: str, value: float) -> str:
    if value == inf:
        return "never"
    return "own" if name.startswith("redrive") else "yours" if name.startswith("yours") else "other"
