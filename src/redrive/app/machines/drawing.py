"""A state machine as an SVG drawing: states in rows by their distance from a start, with arrows between them. PURE."""

from __future__ import annotations

from collections.abc import Mapping

from redrive.drawing import svg, tag
from redrive.engine.diagram import Edge, counted, edges
from redrive.engine.machine import MachineDefinition

_ROOT = "redrive-machine"

_EDGE, _ROW, _GAP, _BOX = 30, 100, 60, 34
# Of the labels, at 12 px: the width of a character, and the height of a line.
_CHARACTER, _LINE = 7.0, 16.0

_LIGHT = {
    ".state": "fill: #ddf4ff; stroke: #0969da",
    ".final": "stroke-width: 3",
    ".start": "fill: #1f2328",
    ".arrow": "fill: none; stroke: #59636e",
    ".failure": "stroke: #cf222e; stroke-dasharray: 5 3",
    ".head": "fill: #59636e",
    ".label": "font-size: 12px; fill: #59636e; stroke: #ffffff; stroke-width: 4; paint-order: stroke",
}
_DARK = {
    ".state": "fill: #121d2f; stroke: #4493f8",
    ".start": "fill: #f0f6fc",
    ".arrow": "stroke: #9198a1",
    ".failure": "stroke: #ff7b72",
    ".head": "fill: #9198a1",
    ".label": "fill: #9198a1; stroke: #0d1117",
}


def as_svg(definition: MachineDefinition, counts: Mapping[str | None, int | str]) -> str:
    """Return a machine as an SVG document, with a line break at its end."""
    sheet = _Sheet(definition, counts)
    parts, size = sheet.drawn()
    return svg(_ROOT, sheet.title, parts, size=size, light=_LIGHT, dark=_DARK, description=sheet.sentence)


class _Sheet:
    """Places the states, and draws them and the arrows between them."""

    def __init__(self, definition: MachineDefinition, counts: Mapping[str | None, int | str]) -> None:
        self._definition = definition
        self._texts = {name: counted(name, counts) for name in definition.states}
        self._rows = _rows(definition)
        self._at: dict[str, tuple[float, float]] = {}
        self._wide = 0.0
        for row, names in enumerate(self._rows):
            x = float(_EDGE)
            for name in names:
                width = self._width(name)
                self._at[name] = (x + width / 2, 2 * _EDGE + _ROW * (row + 0.6))
                x += width + _GAP
            self._wide = max(self._wide, x)
        self._parts: list[str] = []

    def _width(self, name: str) -> float:
        return max(80.0, _CHARACTER * len(self._texts[name]) + 30)

    @property
    def title(self) -> str:
        """The name of the machine."""
        return f"machine {self._definition.name}"

    @property
    def sentence(self) -> str:
        """All transitions, for screen readers."""
        found = edges(self._definition)
        return "; ".join(f"{edge.source or 'start'} to {edge.target} on {edge.label}" for edge in found)

    def drawn(self) -> tuple[list[str], tuple[float, float]]:
        """Return the elements, and the width and height."""
        self._parts.append(tag("text", self.title, class_="title", x=_EDGE, y=_EDGE))
        backward = 0
        labels: list[str] = []
        for edge in edges(self._definition):
            backward += self._arrow(edge, backward, labels)
        for name in self._definition.states:
            self._state(name)
        size = (self._wide + 90.0 + 30 * backward, float(2 * _EDGE + _ROW * len(self._rows) + _EDGE))
        return [*self._parts, *labels], size

    def _state(self, name: str) -> None:
        x, y = self._at[name]
        width = self._width(name)
        final = " final" if self._definition.is_final(name) else ""
        left, top = x - width / 2, y - _BOX / 2
        self._parts.append(tag("rect", class_=f"state{final}", x=left, y=top, width=width, height=_BOX, rx=8))
        self._parts.append(tag("text", self._texts[name], text_anchor="middle", x=x, y=y + 4.5))

    def _arrow(self, edge: Edge, backward: int, labels: list[str]) -> int:
        """Draw a transition; return 1 if it leads backwards, beside the states."""
        x2, y2 = self._at[edge.target]
        kind = "arrow failure" if edge.label == "failed" else "arrow"
        if edge.source is None:
            y1 = y2 - _BOX / 2 - 36
            self._parts.append(tag("circle", class_="start", cx=x2, cy=y1, r=6.0))
            self._line(kind, f"M {x2:.0f} {y1:.0f} V {y2 - _BOX / 2 - 7:.0f}", x2, y2 - _BOX / 2, "down")
            labels.append(tag("text", edge.label, class_="label", x=x2 + 10, y=y1 + 16))
            return 0
        x1, y1 = self._at[edge.source]
        if y2 > y1:
            top, bottom = y1 + _BOX / 2, y2 - _BOX / 2
            middle = (top + bottom) / 2
            path = f"M {x1:.0f} {top:.0f} C {x1:.0f} {middle:.0f}, {x2:.0f} {middle:.0f}, {x2:.0f} {bottom - 7:.0f}"
            self._line(kind, path, x2, bottom, "down")
            shift = self._shift(edge)
            x = (x1 + x2) / 2 + (x2 - x1) * shift / (bottom - top)
            labels.append(tag("text", edge.label, class_="label", text_anchor="middle", x=x, y=middle + 4 + shift))
            return 0
        self._beside(kind, edge, backward, labels)
        return 1

    # The labels of transitions that leave one state downwards stand below each other, so that none covers another.
    def _shift(self, edge: Edge) -> float:
        """Return how far the label of a transition is from the middle of its arrow."""
        own = [each for each in edges(self._definition) if each.source == edge.source and self._leads_down(each)]
        return (own.index(edge) - (len(own) - 1) / 2) * min(_LINE, (_ROW - _BOX - 2 * _LINE) / max(1, len(own) - 1))

    def _leads_down(self, edge: Edge) -> bool:
        return edge.source is not None and self._at[edge.target][1] > self._at[edge.source][1]

    def _beside(self, kind: str, edge: Edge, backward: int, labels: list[str]) -> None:
        """Draw a transition that does not lead downwards, to the right of all states."""
        assert edge.source is not None  # a start leads downwards
        (x1, y1), (x2, y2) = self._at[edge.source], self._at[edge.target]
        x = self._wide + 20 + 30 * backward
        left, right = x2 + self._width(edge.target) / 2, x1 + self._width(edge.source) / 2
        path = f"M {right:.0f} {y1 + 6:.0f} H {x:.0f} V {y2 - 6:.0f} H {left + 7:.0f}"
        self._line(kind, path, left, y2 - 6, "left")
        labels.append(tag("text", edge.label, class_="label", x=x + 4, y=(y1 + y2) / 2 + 4))

    def _line(self, kind: str, path: str, x: float, y: float, to: str) -> None:
        self._parts.append(tag("path", class_=kind, d=path))
        head = (
            f"{x:.0f},{y:.0f} {x - 5:.0f},{y - 9:.0f} {x + 5:.0f},{y - 9:.0f}"
            if to == "down"
            else f"{x:.0f},{y:.0f} {x + 9:.0f},{y - 5:.0f} {x + 9:.0f},{y + 5:.0f}"
        )
        self._parts.append(tag("polygon", class_="head", points=head))


def _rows(definition: MachineDefinition) -> list[list[str]]:
    """Return the states by their distance from a start; those that are never entered come last."""
    following: dict[str | None, list[str]] = {}
    for edge in edges(definition):
        following.setdefault(edge.source, []).append(edge.target)
    rows: list[list[str]] = []
    placed: set[str] = set()
    row = list(dict.fromkeys(following.get(None, ())))
    while row:
        rows.append(row)
        placed.update(row)
        more = dict.fromkeys(target for name in row for target in following.get(name, ()))
        row = [name for name in more if name not in placed]
    rest = [name for name in definition.states if name not in placed]
    return [*rows, rest] if rest else rows
