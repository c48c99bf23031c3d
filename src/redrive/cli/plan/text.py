"""A plan as lines of text: a table, and beside each retry its bar. PURE.

If the terminal is too narrow for both, the bars follow below. Styles are `rich`'s and are lost in a file or a pipe, so
each of their meanings is also expressed by a character or a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from datetime import timedelta
from itertools import groupby

from rich.text import Text

from redrive.cli.plan.axis import Axis, axis_of
from redrive.cli.plan.rows import Band, PolicyPlan, Row, Section
from redrive.cli.plan.table import catching, columns, figure, legend, titled
from redrive.cli.plan.words import shown, wrapped
from redrive.policy.duration import ZERO

__all__ = ["ASCII", "BLOCKS", "Glyphs", "as_text", "glyphs_for"]

# Columns that bars need to tell anything.
_NARROWEST = 24
# Columns that a mark of the axis needs.
_TICK = 8
_GAP = "  "


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of a timeline.

    Attributes:
        wait: a wait before jitter.
        band: the range in which a retry may come.
        both: a wait inside the band.
        none: a wait of no length.
        struck: a wait that does not fit before the deadline.
        deadline: the deadline.
        hint: the wait may be longer.
        catch: the catch task is called.
        more: there are more retries.
    """

    wait: str
    band: str
    both: str
    none: str
    struck: str
    deadline: str
    hint: str
    catch: str
    more: str


BLOCKS = Glyphs("█", "░", "▓", "▏", "╌", "┊", "▸", "◆", "…")
ASCII = Glyphs("=", ".", "#", "|", "x", "!", ">", "*", "...")

_STYLES = {"wait": "cyan", "band": "cyan", "both": "cyan", "none": "cyan", "deadline": "red", "catch": "yellow"}


def glyphs_for(encoding: str) -> Glyphs:
    """Return blocks if the encoding has them, otherwise ASCII."""
    try:
        "".join(astuple(BLOCKS)).encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return BLOCKS


def as_text(plan: PolicyPlan, *, width: int, glyphs: Glyphs = BLOCKS) -> list[Text]:
    """Return the plan as lines.

    Args:
        plan: the plan.
        width: columns; bars fill them, and no line is longer unless a figure is.
        glyphs: the characters of the timeline.
    """
    lines = [*_prose(plan.title, width, "bold"), *_prose(plan.sentence, width)]
    for section in plan.sections:
        lines.append(Text())
        if len(plan.sections) > 1 or titled(section) != "any failure":
            lines += _prose(titled(section), width, "bold")
        lines += _Table(plan, section, width, glyphs).lines()
    marks = [f"{getattr(glyphs, name)} {meaning}" for name, meaning in legend(plan)]
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
            yield from _prose(f"{self._glyphs.more} {self._section.rest}", self._width, "dim")

    def _room(self, found: list[list[str]]) -> int:
        """Return the number of cells of a bar beside some columns, without the one for its last mark."""
        return self._width - sum(len(column[0]) + len(_GAP) for column in found) - 1

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
        heads, *cells = [_GAP.join(line) for line in zip(*found, strict=True)]
        yield _stripped(Text(heads + _GAP + self._ruler(room), "dim"))
        previous = Band(ZERO, ZERO, ZERO)
        for row, cell in zip(self._section.rows, cells, strict=False):
            bar = _Bar(self._axis, room, self._glyphs)
            if room:
                bar.draw(row, previous.nominal, self._plan)
            yield _stripped(Text.assemble((cell, "dim strike" if row.struck else ""), _GAP, bar.text()))
            previous = row.at
        if self._caught is not None:
            bar = _Bar(self._axis, room, self._glyphs)
            if room:
                bar.put("catch", self._caught.nominal)
            yield _stripped(Text.assemble(cells[-1], _GAP, bar.text()))

    def _ruler(self, room: int) -> str:
        line = ""
        for tick in self._axis.ticks(max(2, room // _TICK)) if room else ():
            at, label = round(self._axis.place(tick, room)), shown(tick)
            if at + len(label) <= room and (at > len(line) or not line):
                line = line.ljust(at) + label
        return line


class _Bar:
    """The bar of one retry: a row of cells, each with the name of its mark."""

    def __init__(self, axis: Axis, width: int, glyphs: Glyphs) -> None:
        self._axis = axis
        self._width = width
        self._glyphs = glyphs
        # One more, for what follows a bar that goes to the end.
        self._cells = [""] * (width + 1)

    def draw(self, row: Row, since: timedelta, plan: PolicyPlan) -> None:
        if row.struck:
            end = self._fill("struck", since, row.at.nominal)
        else:
            end = 0 if row.at.certain else self._fill("band", row.at.low, row.at.high)
            end = max(end, self._fill("wait" if row.wait.nominal else "none", since, row.at.nominal))
            if plan.hinted:
                self._cells[end] = "hint"
        if plan.deadline is not None and self._axis.shows(plan.deadline):
            self.put("deadline", plan.deadline, over=("", "band", "hint", "struck"))

    def _fill(self, name: str, start: timedelta, end: timedelta) -> int:
        """Draw from one instant to another, at least one cell, unless that lies beyond the picture; give its end."""
        first, last = (round(self._axis.place(at, self._width)) for at in (start, end))
        if start >= self._axis.end < end:
            return self._width
        first = min(first, self._width - 1)
        last = max(last, first + 1)
        for at in range(first, last):
            self._cells[at] = "both" if self._cells[at] == "band" else name
        return last

    def put(self, name: str, at: timedelta, over: Iterable[str] = ("",)) -> None:
        """Draw one mark, where nothing more important stands."""
        place = round(self._axis.place(at, self._width))
        if self._cells[place] in over:
            self._cells[place] = name

    def text(self) -> Text:
        text = Text()
        for name, cells in groupby(self._cells):
            glyph = getattr(self._glyphs, name) if name else " "
            text.append(glyph * len(list(cells)), _STYLES.get(name, "dim") if name else "")
        return text


def _stripped(line: Text) -> Text:
    line.rstrip()
    return line
