"""A state machine with the number of instances in each state, from left to right. PURE.

The happy path, which is the longest way from a start without failures, is one line; other states are below it in the
column of their distance from a start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

import msgspec

from redrive.operate.charts import svg
from redrive.operate.charts.svg import Picture
from redrive.visible import visible

_LEAST: Final = 1080
_LEFT: Final = 64
_GAP: Final = 96
_TALL: Final = 50
_LANE: Final = 108
_CHANNEL: Final = 15
_CHARACTER: Final = 7.2
_FAILED: Final = "failed"


class Box(msgspec.Struct, frozen=True, gc=False):
    """A state.

    Attributes:
        words: below its name: the number of its instances.
        is_stuck: True for a state with instances that do not go on.
        path: where it leads.
    """

    name: str
    words: str
    is_final: bool
    is_stuck: bool
    path: str


class Arrow(msgspec.Struct, frozen=True, gc=False):
    """A transition; the source is None for a start."""

    source: str | None
    target: str
    label: str


def draw(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> Picture:
    """Draw states and the transitions between them, all of which have known states."""
    sheet = _Sheet(boxes, arrows)
    drawn = [part for each in arrows for part in sheet.arrow(each)]
    shown = [sheet.box(each) for each in boxes]
    sentence = "; ".join(f"{each.source or 'start'} to {each.target} on {each.label}" for each in arrows)
    # A group, because an image has no links.
    box = f"0 0 {svg.short(sheet.width)} {svg.short(sheet.height)}"
    return Picture(
        svg.element(
            "svg", *drawn, *shown, *sheet.labels,
            viewBox=box, role="group", aria_label=visible(sentence) or "no transitions", class_="states",
        )
    )  # fmt: skip


class _Sheet:
    """Places the states, and draws them and the arrows."""

    def __init__(self, boxes: Sequence[Box], arrows: Sequence[Arrow]) -> None:
        self._columns = _columns([each.name for each in boxes], arrows)
        self._place = {
            name: (number, lane) for number, names in enumerate(self._columns) for lane, name in enumerate(names)
        }
        longest = max((len(text) for each in boxes for text in (each.name, each.words)), default=0)
        self._wide = min(max(140.0, _CHARACTER * longest + 28), 260.0)
        number = max(len(self._columns), 1)
        self.width = max(float(_LEAST), _LEFT + number * (self._wide + _GAP))
        self._pitch = (self.width - _LEFT - self._wide - 8) / max(number - 1, 1)
        self._channels = 0
        self._ends: Counter[str] = Counter()
        self.labels: list[str] = []

    @property
    def height(self) -> float:
        """The height, with the channels below the last lane."""
        lanes = max((len(names) for names in self._columns), default=0)
        return 36 + max(lanes - 1, 0) * _LANE + _TALL + 24 + self._channels * _CHANNEL

    def _at(self, name: str) -> tuple[float, float]:
        """Return the left edge and the middle of a state."""
        column, lane = self._place[name]
        return _LEFT + column * self._pitch, 36 + lane * _LANE + _TALL / 2

    def box(self, each: Box) -> str:
        """Draw a state."""
        x, y = self._at(each.name)
        kind = " ".join(("state", *(("final",) if each.is_final else ()), *(("stuck",) if each.is_stuck else ())))
        most = int((self._wide - 20) / _CHARACTER)
        name = visible(each.name if len(each.name) <= most else f"{each.name[: most - 1]}…")
        parts = (
            svg.rectangle(x, y - _TALL / 2, self._wide, _TALL, visible(each.name), class_=kind, rx=8),
            svg.text(name, x + 14, y - 3, class_="name"),
            svg.text(each.words, x + 14, y + 15, class_="count"),
        )
        return f'<a href="{escape(each.path)}">{"".join(parts)}</a>'

    def arrow(self, each: Arrow) -> list[str]:
        """Draw a transition."""
        kind = "arrow failure" if each.label == _FAILED else "arrow"
        x2, y2 = self._at(each.target)
        if each.source is None:
            self._label(each, x2 - 38, y2 - 8, "middle")
            dot = svg.element("circle", cx=svg.short(x2 - _LEFT + 10), cy=svg.short(y2), r=5, class_="start")
            return [dot, *_line(kind, f"M{x2 - _LEFT + 15:.0f} {y2:.0f}H{x2 - 8:.0f}", x2, y2, "right")]
        x1, y1 = self._at(each.source)
        (column, lane), (to, other) = self._place[each.source], self._place[each.target]
        right = x1 + self._wide
        if to > column and lane == other and self._is_free(lane, column, to):
            self._label(each, (right + x2) / 2, y1 - 8, "middle")
            return _line(kind, f"M{right:.0f} {y1:.0f}H{x2 - 8:.0f}", x2, y2, "right")
        if to == column and abs(lane - other) == 1:
            return self._straight(each, kind)
        if to == column + 1:
            return self._elbow(each, kind)
        return self._below(each, kind)

    def _is_free(self, lane: int, first: int, last: int) -> bool:
        return all(len(names) <= lane for names in self._columns[first + 1 : last])

    def _straight(self, each: Arrow, kind: str) -> list[str]:
        """Draw a line to the state above or below."""
        (x1, y1), (_, y2) = self._at(each.source or ""), self._at(each.target)
        shift = 24 * self._next(each.target)
        x, down = x1 + self._wide / 2 + shift, y2 > y1
        begin, end = (y1 + _TALL / 2, y2 - _TALL / 2) if down else (y1 - _TALL / 2, y2 + _TALL / 2)
        self._label(each, x + 8, (begin + end) / 2 + 4, "start")
        return _line(kind, f"M{x:.0f} {begin:.0f}V{end - 8 if down else end + 8:.0f}", x, end, "down" if down else "up")

    def _elbow(self, each: Arrow, kind: str) -> list[str]:
        """Draw a line through the gap to the next column."""
        (x1, y1), (x2, y2) = self._at(each.source or ""), self._at(each.target)
        right, shift = x1 + self._wide, 10 * self._next(each.target)
        x, y = right + 22 + shift, y2 + shift
        self._label(each, x + 6, (y1 + 10 + y) / 2 + 4, "start")
        return _line(kind, f"M{right:.0f} {y1 + 10:.0f}H{x:.0f}V{y:.0f}H{x2 - 8:.0f}", x2, y, "right")

    def _below(self, each: Arrow, kind: str) -> list[str]:
        """Draw a line in a channel below both states, for what leads back or passes states."""
        (x1, y1), (x2, y2) = self._at(each.source or ""), self._at(each.target)
        self._channels += 1
        shift = 12 * self._channels
        begin, end = x1 + min(20 + shift, self._wide - 10), x2 + min(30 + 10 * self._next(each.target), self._wide - 10)
        y = max(y1, y2) + _TALL / 2 + 12 + _CHANNEL * self._channels
        self._label(each, (begin + end) / 2, y - 5, "middle")
        path = f"M{begin:.0f} {y1 + _TALL / 2:.0f}V{y:.0f}H{end:.0f}V{y2 + _TALL / 2 + 8:.0f}"
        return _line(kind, path, end, y2 + _TALL / 2, "up")

    def _next(self, target: str) -> int:
        """Return how many lines have come to a state before."""
        self._ends[target] += 1
        return self._ends[target] - 1

    def _label(self, each: Arrow, x: float, y: float, anchor: str) -> None:
        self.labels.append(svg.text(visible(each.label), x, y, text_anchor=anchor, class_="label"))


_HEADS: Final[Mapping[str, str]] = {
    "right": "l-9 -5v10z",
    "down": "l-5 -9h10z",
    "up": "l-5 9h10z",
}


def _line(kind: str, path: str, x: float, y: float, to: str) -> list[str]:
    return [
        svg.element("path", d=path, class_=kind),
        svg.element("path", d=f"M{x:.0f} {y:.0f}{_HEADS[to]}", class_=f"{kind} head"),
    ]


def _columns(names: Sequence[str], arrows: Sequence[Arrow]) -> list[list[str]]:
    """Return the states by their distance from a start, the happy path first; the rest is in the last column."""
    following: dict[str | None, list[str]] = {}
    for each in arrows:
        if each.label != _FAILED:
            following.setdefault(each.source, []).append(each.target)
    happy = set(_longest(following))
    # A state that only failures lead to stands one further than what failed.
    for each in arrows:
        if each.label == _FAILED:
            following.setdefault(each.source, []).append(each.target)
    columns: list[list[str]] = []
    placed: set[str] = set()
    row = list(dict.fromkeys(following.get(None, ())))
    while row:
        columns.append(sorted(row, key=lambda name: name not in happy))
        placed.update(row)
        row = [
            each for each in dict.fromkeys(to for name in row for to in following.get(name, ())) if each not in placed
        ]
    rest = [name for name in names if name not in placed]
    if rest and columns:
        columns[-1] += rest
    return columns or ([rest] if rest else [])


def _longest(following: Mapping[str | None, Sequence[str]]) -> list[str]:
    """Return the way from a start that the distances allow to be longest: the first of the next column at each step."""
    distance: dict[str, int] = {}
    row, number = list(dict.fromkeys(following.get(None, ()))), 0
    while row:
        distance.update(dict.fromkeys(row, number))
        row = [
            each for each in dict.fromkeys(to for name in row for to in following.get(name, ())) if each not in distance
        ]
        number += 1
    if not distance:
        return []
    # Backwards from the farthest state, so that the line ends where the machine ends.
    at = next(name for name, far in distance.items() if far == number - 1)
    way = [at]
    while distance[at]:
        at = next(name for name in distance if distance[name] == distance[at] - 1 and at in following.get(name, ()))
        way.append(at)
    return way
