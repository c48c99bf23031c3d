"""A plan as an SVG drawing: a table, and beside each retry its bar. PURE."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from redrive.drawing import embedded, svg, tag
from redrive.plan.layout import Axis, axis_of, catching, columns, legend, titled
from redrive.plan.rows import Band, PolicyPlan, Row, Section
from redrive.plan.words import shown, wrapped
from redrive.policy.duration import ZERO

_WIDTH, _EDGE = 880, 24
_LINE, _ROW, _BAR = 20, 26, 14
# Of the figures, at 12 px in a monospaced font.
_CHARACTER = 7.3
# Characters in a line of prose.
_COLUMNS = 110
_TICKS = 8
_GAP = 20

_LIGHT = {
    ".name": "font-weight: 600",
    ".figure": "font: 12px ui-monospace, monospace",
    ".grid": "stroke: #d1d9e0",
    ".wait": "fill: #0969da",
    ".band": "fill: #0969da; fill-opacity: 0.22",
    ".struck": "fill: none; stroke: #8c959f; stroke-dasharray: 3 3",
    ".strike": "stroke: #59636e",
    ".deadline": "stroke: #cf222e; stroke-width: 2; stroke-dasharray: 6 3",
    ".catch": "fill: #9a6700",
    ".hint": "fill: none; stroke: #59636e; stroke-width: 1.5",
}
_DARK = {
    ".grid": "stroke: #3d444d",
    ".wait": "fill: #4493f8",
    ".band": "fill: #4493f8; fill-opacity: 0.35",
    ".struck": "stroke: #9198a1",
    ".strike": "stroke: #9198a1",
    ".deadline": "stroke: #ff7b72",
    ".catch": "fill: #d29922",
    ".hint": "stroke: #9198a1",
}


def as_svg(plan: PolicyPlan) -> str:
    """Return the plan as an SVG document, with a line break at its end."""
    parts, size = _drawn(plan)
    return svg("redrive-plan", plan.title, parts, size=size, light=_LIGHT, dark=_DARK, description=plan.sentence)


def as_element(plan: PolicyPlan) -> str:
    """Return the plan as an SVG element for a page with the colours in its style sheet."""
    parts, size = _drawn(plan)
    return embedded("redrive-plan", plan.title, parts, size=size, description=plan.sentence)


def _drawn(plan: PolicyPlan) -> tuple[list[str], tuple[int, int]]:
    sheet = _Sheet(plan)
    sheet.draw()
    return sheet.parts, (_WIDTH, sheet.y)


class _Sheet:
    """Draws from top to bottom; ``y`` is where the next line begins."""

    def __init__(self, plan: PolicyPlan) -> None:
        self._plan = plan
        self.parts: list[str] = []
        self.y = _EDGE

    def draw(self) -> None:
        plan = self._plan
        self._text(plan.title, "title", _COLUMNS * 3 // 4)
        self._text(plan.sentence)
        for section in plan.sections:
            self.y += _GAP
            self._text(titled(section), "name")
            if section.rows:
                self._section(section)
        self.y += _GAP
        self._text(catching(plan))
        self._legend()
        for note in plan.notes:
            self._text(note, "faint")
        self.y += _EDGE - _LINE // 2

    def _text(self, text: str, class_: str = "line", columns: int = _COLUMNS) -> None:
        for line in wrapped(text, columns):
            self._put("text", line, class_=class_, x=_EDGE, y=self.y + 14)
            self.y += _LINE

    def _put(self, name: str, content: str = "", **attributes: object) -> None:
        self.parts.append(tag(name, content, **attributes))

    def _section(self, section: Section) -> None:
        found = columns(section)
        rights = list(_rights(found))
        axis = axis_of(section, self._plan.deadline)
        chart = _Chart(axis, rights[-1] + 1.5 * _GAP, _WIDTH - 1.5 * _EDGE)
        top, height = self.y, _ROW * len(section.rows)
        self._ruler(chart, top, height)
        self._cells(found, rights, 0, "figure faint", top)
        self.y += _ROW
        previous = Band(ZERO, ZERO, ZERO)
        for number, row in enumerate(section.rows, 1):
            self.parts += chart.bar(row, previous.nominal, self.y, hinted=self._plan.hinted)
            self._cells(found, rights, number, "figure faint" if row.struck else "figure", self.y)
            if row.struck:
                self._put("line", class_="strike", x1=_EDGE, x2=rights[-1], y1=self.y + _ROW / 2, y2=self.y + _ROW / 2)
            self.y += _ROW
            previous = row.at
        if self._plan.deadline is not None and axis.shows(self._plan.deadline):
            x = chart.x(self._plan.deadline)
            self._put("line", class_="deadline", x1=x, x2=x, y1=top + _ROW, y2=top + _ROW + height)
        self._ending(section, chart)

    def _ruler(self, chart: _Chart, top: int, height: int) -> None:
        for tick in chart.axis.ticks(_TICKS):
            x = chart.x(tick)
            self._put("line", class_="grid", x1=x, x2=x, y1=top + _ROW, y2=top + _ROW + height)
            anchor = "end" if x > _WIDTH - 2 * _EDGE else "middle"
            self._put("text", shown(tick), class_="figure faint", text_anchor=anchor, x=x, y=top + _ROW / 2 + 4)

    def _cells(self, found: list[list[str]], rights: list[float], line: int, class_: str, y: int) -> None:
        for column, x in zip(found, rights, strict=True):
            self._put("text", column[line], class_=class_, text_anchor="end", x=x, y=y + _ROW / 2 + 4)

    def _ending(self, section: Section, chart: _Chart) -> None:
        if section.rest:
            self._text(f"… {section.rest}", "faint")
        elif self._plan.catch is not None and section.ends is not None:
            self._put("path", class_="catch", d=_diamond(chart.x(section.ends.nominal), self.y + _ROW / 2))
            self._put("text", "catch", class_="figure", x=_EDGE, y=self.y + _ROW / 2 + 4)
            self.y += _ROW

    def _legend(self) -> None:
        x: float = _EDGE
        for shape, words in legend(self._plan):
            # Here the wait is drawn upon the band.
            if shape == "both":
                continue
            width = 30 + len(words) * _CHARACTER
            if x + width > _WIDTH - _EDGE:
                x = _EDGE
                self.y += _ROW
            self.parts += _swatch(shape, x, self.y + 13)
            self._put("text", words, class_="faint", x=x + 30, y=self.y + 17)
            x += width + _GAP
        if x > _EDGE:
            self.y += _ROW


class _Chart:
    """The part of a section with the bars."""

    def __init__(self, axis: Axis, left: float, right: float) -> None:
        self.axis = axis
        self._left = left
        self._right = right

    def x(self, at: timedelta) -> float:
        """Return the position of an instant."""
        return self._left + self.axis.place(at, self._right - self._left)

    def bar(self, row: Row, since: timedelta, y: int, *, hinted: bool) -> Iterator[str]:
        """Yield the shapes of one retry, with a row that begins at ``y``."""
        if row.struck:
            yield from self._box("struck", since, row.at.nominal, y)
            return
        if not row.at.certain:
            yield from self._box("band", row.at.low, row.at.high, y)
        yield from self._box("wait", since, row.at.nominal, y, thin=not row.at.certain)
        x = self.x(max(row.at.high, row.at.nominal)) + 4
        if hinted:
            yield tag("path", class_="hint", d=_arrow(x, y + _ROW / 2))

    def _box(self, class_: str, start: timedelta, end: timedelta, y: int, *, thin: bool = False) -> Iterator[str]:
        if start >= self.axis.end < end:
            return
        x, height = self.x(start), _BAR // 2 if thin else _BAR
        width = max(2.0, self.x(end) - x)
        left = min(x, self._right - width)
        top = y + (_ROW - height) / 2
        yield tag("rect", class_=class_, x=left, y=top, width=width, height=height, rx=2)


def _rights(found: list[list[str]]) -> Iterator[float]:
    x: float = _EDGE - _GAP
    for column in found:
        x += max(map(len, column)) * _CHARACTER + _GAP
        yield x


def _swatch(shape: str, x: float, y: float) -> Iterator[str]:
    """Yield a shape of the legend, 24 wide, with its middle at ``y``."""
    if shape == "deadline":
        yield tag("line", class_=shape, x1=x, x2=x + 24, y1=y, y2=y)
    elif shape == "catch":
        yield tag("path", class_=shape, d=_diamond(x + 12, y))
    elif shape == "hint":
        yield tag("path", class_=shape, d=_arrow(x + 10, y))
    else:
        yield tag("rect", class_=shape, x=x, y=y - _BAR / 2, width=24, height=_BAR, rx=2)


def _diamond(x: float, y: float) -> str:
    return f"M{x - 6:.1f} {y:.1f}l6 -6l6 6l-6 6z"


def _arrow(x: float, y: float) -> str:
    return f"M{x:.1f} {y - 4:.1f}l4 4l-4 4"
