"""The renderers that all drawings share: timelines in text, SVG documents, Mermaid diagrams. PURE.

The styles of a text are `rich`'s and are lost in a file or a pipe, so characters and words have each meaning too.
An SVG document is self-contained: no scripts, fonts or links, so that it can stand in a page, a mail or a repository.
Its colours follow the reader's light or dark scheme; shapes and words carry the same information.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from html import escape
from itertools import groupby
from typing import TypeAlias

from rich.text import Text

from redrive.visible import visible

_TEXT, _FAINT, _PAGE = "fill: #1f2328", "fill: #59636e", "fill: #ffffff"
_LIGHT = {"text": _TEXT, ".title": "font-weight: 600", ".faint": _FAINT, ".page": _PAGE}
_DARK = {"text": "fill: #f0f6fc", ".faint": "fill: #9198a1", ".page": "fill: #0d1117"}


# The characters of a timeline by their marks, such as a wait or the deadline.
Glyphs: TypeAlias = Mapping[str, str]

# A mark, its block, its character in ASCII, and its style.
_MARKS = (
    ("wait", "█", "=", "cyan"), ("band", "░", ".", "cyan"), ("both", "▓", "#", "cyan"), ("none", "▏", "|", "cyan"),
    ("struck", "╌", "x", "dim"), ("deadline", "┊", "!", "red"), ("hint", "▸", ">", "dim"), ("more", "…", "...", "dim"),
    ("catch", "◆", "*", "yellow"), ("attempt", "█", "#", ""), ("slot", "│", "|", "dim"), ("", " ", " ", ""),
)  # fmt: skip
BLOCKS: Glyphs = {mark: block for mark, block, _, _ in _MARKS}
ASCII: Glyphs = {mark: plain for mark, _, plain, _ in _MARKS}
_STYLES = {mark: style for mark, *_, style in _MARKS}

# Between two columns of a text.
GAP = "  "


def glyphs_for(encoding: str) -> Glyphs:
    """Return blocks if the encoding has them, otherwise ASCII."""
    try:
        "".join(BLOCKS.values()).encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return BLOCKS


class Bar:
    """A bar of a timeline: a row of cells, each with the name of its mark, or empty."""

    def __init__(self, width: int) -> None:
        # One more, for what follows a bar that goes to the end.
        self.cells = [""] * (width + 1)

    def fill(self, mark: str, first: int, last: int) -> int:
        """Fill the cells from the first up to the last, at least one; return where the bar ends."""
        last = max(last, first + 1)
        for at in range(first, last):
            self.cells[at] = "both" if self.cells[at] == "band" else mark
        return last

    def put(self, mark: str, at: int, over: Collection[str] = ("",)) -> None:
        """Mark one cell, unless it has a mark that is more important than those of ``over``."""
        if self.cells[at] in over:
            self.cells[at] = mark

    def text(self, glyphs: Glyphs) -> Text:
        """Return the bar as text."""
        spans = [(glyphs[mark] * len(list(cells)), _STYLES[mark]) for mark, cells in groupby(self.cells)]
        return Text.assemble(*spans)


def text_line(cells: str, bar: Text, tail: str = "", *, style: str = "") -> Text:
    """Return a line of a timeline: the cells of its columns in a style, the bar, and a text behind it."""
    line = Text.assemble((cells, style), GAP, bar, tail)
    line.rstrip()
    return line


def svg(
    root: str,
    title: str,
    parts: Iterable[str],
    *,
    size: tuple[float, float],
    light: Mapping[str, str],
    dark: Mapping[str, str],
    font: int = 13,
    description: str = "",
) -> str:
    """Return an SVG document, with a line break at its end.

    Args:
        root: the class of the document, which restricts its style rules to it when it is pasted into a page.
        title: like the description, for screen readers.
        parts: its elements.
        size: width and height.
        light: style rules by selector, beside those of text, page, title and faint text.
        dark: the rules that differ for readers with a dark scheme.
        font: in pixels.
        description: may be empty.
    """
    base = _LIGHT | {"text": f"font: {font}px system-ui, sans-serif; {_TEXT}"}
    base[".title"] += f"; font-size: {font + 4}px"
    rules = f"{_rules(root, base | dict(light))}\n@media (prefers-color-scheme: dark) {{\n"
    style = f"<style>\n{rules}{_rules(root, _DARK | dict(dark))}\n}}\n</style>"
    page = tag("rect", class_="page", width="100%", height="100%")
    return embedded(root, title, [style, page, *parts], size=size, description=description)


def embedded(root: str, title: str, parts: Iterable[str], *, size: tuple[float, float], description: str = "") -> str:
    """Return an SVG element for a page with the colours in its style sheet; the arguments are those of `svg`."""
    width, height = (_number(round(each)) for each in size)
    box = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{root}" role="img" {box}>',
        tag("title", title),
        *([tag("desc", description)] if description else []),
    ]
    return "\n".join([*head, *parts, "</svg>", ""])


def _rules(root: str, styles: Mapping[str, str]) -> str:
    return "\n".join(f".{root} {selector} {{ {style}; }}" for selector, style in styles.items())


def tag(name: str, content: str = "", **attributes: object) -> str:
    """Return an element. Characters with a meaning in XML, and those that change the text direction, are escaped.

    In names of attributes ``_`` becomes a hyphen, and is removed at the end; numbers get one decimal place.
    """
    listed = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(visible(_number(value)))}"' for key, value in attributes.items()
    )
    return f"<{name}{listed}>{escape(visible(content))}</{name}>" if content else f"<{name}{listed}/>"


def _number(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def gantt(title: str, head: Iterable[str], tasks: Iterable[str], remarks: Iterable[str]) -> str:
    """Return a Mermaid gantt diagram, with the remarks as comments and a line break at its end."""
    lines = ["gantt", f"    title {gantt_name(title)}", *(f"    {line}" for line in (*head, *tasks))]
    return "\n".join([*(f"%% {visible(remark)}" for remark in remarks), *lines, ""])


def gantt_task(name: str, begin: str, end: str, *tags: str) -> str:
    """Return a bar of a gantt diagram; it is a milestone if it has no length."""
    tagged = [each for each in (*tags, "milestone" if begin == end else "") if each]
    return f"{gantt_name(name)} :{', '.join([*tagged, begin, end])}"


def gantt_name(text: str) -> str:
    """Return a text as a name in a gantt diagram, in which ``#``, ``:`` and ``;`` would end it."""
    return " ".join(visible(text).translate(str.maketrans("#:;", "   ")).split())
