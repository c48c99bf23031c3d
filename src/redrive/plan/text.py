"""A plan as lines of text: a table, and beside each retry its bar. PURE.

If the terminal is too narrow for both, the bars follow below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from rich.text import Text

from redrive.drawing import BLOCKS, GAP, Bar, Glyphs, text_line
from redrive.plan.layout import Axis, axis_of, catching, columns, figure, legend, titled
from redrive.plan.rows import Band, PolicyPlan, Row, Section
from redrive.plan.words import shown, wrapped
from redrive.policy.duration import ZERO

# The least number of columns for bars; with fewer they show nothing.
_NARROWEST = 24
# Columns that a mark of the axis needs.
_TICK = 8


def as_text(plan: PolicyPlan, *, width: int, glyphs: Glyphs = BLOCKS) -> list[Text]:
    """Return the plan as lines. Bars fill the width; no line is longer unless a figure is."""
    lines = [*_prose(plan.title, width, "bold"), *_prose(plan.sentence, width)]
    for section in plan.sections:
        lines.append(Text())
        if len(plan.sections) > 1 or titled(section) != "any failure":
            lines += _prose(titled(section), width, "bold")
        lines += _Table(plan, section, width, glyphs).lines()
    marks = [f"{glyphs[name]} {meaning}" for name, meaning in legend(plan)]
    lines += [Text(), *_prose(catching(plan), width, "yellow"), *_packed(marks, width)]
    return [*lines, *(line for note in plan.notes for line in _prose(note, width, "dim"))]


def _prose(text: str, width: int, style: str = "") -> Iterator[Text]:
    return (Text(line, style) for line in wrapped(text, width))


def _packed(marks: Iterable[str], width: int) -> Iterator[Text]:
    """Yield lines with as many marks of the legend as fit."""
    line = ""
    for mark in marks:
        if line and len(line) + len(mark) + 3 > width:
            yield from _prose(line, width, "dim")
            line = ""
        line += f"   {mark}" if line else mark
    yield from _prose(line, width, "dim")


class _Table:
    """One section: its columns, and the bars if they fit."""

    def __init__(self, plan: PolicyPlan, section: Section, width: int, glyphs: Glyphs) -> None:
        self._plan = plan
        self._section = section
        self._glyphs = glyphs
        self._width = width
        self._axis = axis_of(section, plan.deadline)
        self._caught = section.ends if plan.catch is not None else None

    def lines(self) -> Iterator[Text]:
        if not self._section.rows:
            return
        found = self._columns()
        room = self._room(found)
        if room >= _NARROWEST:
            yield from self._block(found, room)
        else:
            yield from self._block(found, 0)
            yield Text()
            yield from self._block(found[:1], max(1, self._room(found[:1])))
        if self._section.rest:
            yield from _prose(f"{self._glyphs['more']} {self._section.rest}", self._width, "dim")

    def _room(self, found: list[list[str]]) -> int:
        """Return the number of cells of a bar beside some columns, without the one for its last mark."""
        return self._width - sum(len(column[0]) + len(GAP) for column in found) - 1

    def _columns(self) -> list[list[str]]:
        """Return the cells of each column, all of one width, with the heading first and the catch last."""
        found = columns(self._section)
        if self._caught is not None:
            last = ["catch", "", figure(self._caught), ""]
            found = [[*column, cell] for column, cell in zip(found, last, strict=False)]
        widths = [max(map(len, column)) for column in found]
        return [[cell.rjust(width) for cell in column] for column, width in zip(found, widths, strict=True)]

    def _block(self, found: list[list[str]], room: int) -> Iterator[Text]:
        """Yield the lines of the columns and of bars of this width; no bars if it is 0."""
        heads, *cells = [GAP.join(line) for line in zip(*found, strict=True)]
        yield text_line(heads, self._ruler(room), style="dim")
        previous = Band(ZERO, ZERO, ZERO)
        for row, cell in zip(self._section.rows, cells, strict=False):
            bar = _bar(row, previous.nominal, self._plan, self._axis, room) if room else Bar(0)
            yield text_line(cell, bar.text(self._glyphs), style="dim strike" if row.struck else "")
            previous = row.at
        if self._caught is not None:
            bar = Bar(room)
            if room:
                bar.put("catch", round(self._axis.place(self._caught.nominal, room)))
            yield text_line(cells[-1], bar.text(self._glyphs))

    def _ruler(self, room: int) -> Text:
        line = ""
        for tick in self._axis.ticks(max(2, room // _TICK)) if room else ():
            at, label = round(self._axis.place(tick, room)), shown(tick)
            if at + len(label) <= room and (at > len(line) or not line):
                line = line.ljust(at) + label
        return Text(line, "dim")


def _bar(row: Row, since: timedelta, plan: PolicyPlan, axis: Axis, width: int) -> Bar:
    """Return the bar of one retry."""
    bar = Bar(width)

    # At least one cell, unless the span lies beyond the picture.
    def fill(name: str, start: timedelta, end: timedelta) -> int:
        if start >= axis.end < end:
            return width
        first, last = (round(axis.place(at, width)) for at in (start, end))
        return bar.fill(name, min(first, width - 1), last)

    if row.struck:
        fill("struck", since, row.at.nominal)
    else:
        end = 0 if row.at.certain else fill("band", row.at.low, row.at.high)
        end = max(end, fill("wait" if row.wait.nominal else "none", since, row.at.nominal))
        if plan.hinted:
            bar.put("hint", end, over=bar.cells)
    if plan.deadline is not None and axis.shows(plan.deadline):
        bar.put("deadline", round(axis.place(plan.deadline, width)), over=("", "band", "hint", "struck"))
    return bar
