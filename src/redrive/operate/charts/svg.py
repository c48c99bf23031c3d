"""The elements of SVG pictures, with escaped texts. PURE."""

from __future__ import annotations

from html import escape

__all__ = ["Picture", "element", "picture", "text"]


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


def text(value: str, x: float, y: float, **attributes: object) -> str:
    """Return a text at a place."""
    return element("text", escape(value), x=_short(x), y=_short(y), **attributes)


def rectangle(x: float, y: float, width: float, height: float, tip: str = "", **attributes: object) -> str:
    """Return a rectangle, with a tip that browsers show under the pointer."""
    title = (element("title", escape(tip)),) if tip else ()
    size = {"x": _short(x), "y": _short(y), "width": _short(width), "height": _short(height)}
    return element("rect", *title, **size, **attributes)


def picture(width: float, height: float, sentence: str, *children: str, class_: str) -> Picture:
    """Return a picture that screen readers read as one sentence."""
    box = f"0 0 {_short(width)} {_short(height)}"
    return Picture(
        element(
            "svg",
            *children,
            viewBox=box,
            role="img",
            aria_label=sentence,
            class_=class_,
            preserveAspectRatio="xMinYMin meet",
        )
    )


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
