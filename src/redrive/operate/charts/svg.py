"""The elements of SVG pictures, with escaped texts. PURE."""

from __future__ import annotations

from html import escape

__all__ = ["Picture", "element", "picture", "place", "rectangle", "short", "stretched", "text", "title"]


class Picture(str):
    """An element of SVG. Its texts are escaped, so that a template writes it as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return it, by the protocol of template engines for texts that need no further escaping."""
        return self


def element(name: str, *children: str, **attributes: object) -> str:
    """Return an element; underscores in the names of attributes are written as hyphens, ``class_`` as ``class``."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{''.join(children)}</{name}>" if children else f"<{name}{given}/>"


def text(value: str, x: float | str, y: float, **attributes: object) -> str:
    """Return a text at a place; ``x`` may be a percentage."""
    return element("text", escape(value), x=x if isinstance(x, str) else short(x), y=short(y), **attributes)


def title(tip: str) -> str:
    """Return a tip that browsers show under the pointer."""
    return element("title", escape(tip))


def rectangle(x: float, y: float, width: float, height: float, tip: str = "", **attributes: object) -> str:
    """Return a rectangle with a tip."""
    size = {"x": short(x), "y": short(y), "width": short(width), "height": short(height)}
    return element("rect", *([title(tip)] if tip else []), **size, **attributes)


def picture(width: float, height: float, sentence: str, *children: str, class_: str) -> Picture:
    """Return a picture that screen readers read as one sentence."""
    box = f"0 0 {short(width)} {short(height)}"
    kept = "xMinYMin meet"
    return Picture(
        element("svg", *children, viewBox=box, role="img", aria_label=sentence, class_=class_, preserveAspectRatio=kept)
    )


def stretched(width: float, height: float, *children: str, **attributes: object) -> str:
    """Return a part that is stretched to the width of its picture, and keeps its height in pixels."""
    box = f"0 0 {short(width)} {short(height)}"
    return element(
        "svg", *children, width="100%", height=short(height), viewBox=box, preserveAspectRatio="none", **attributes
    )


def place(part: float) -> str:
    """Return a part of the width as a percentage."""
    return f"{100 * part:.2f}%"


def short(number: float) -> str:
    """Write a number with at most one digit behind the point."""
    return f"{number:.1f}".removesuffix(".0")
