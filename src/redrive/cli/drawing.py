"""What all SVG drawings of the command line are written with. PURE."""

from __future__ import annotations

from html import escape

from redrive.visible import visible

__all__ = ["rules", "tag"]


def rules(root: str, styles: dict[str, str]) -> str:
    """Rules of a style sheet that touch nothing else, should the drawing be pasted into a page.

    Args:
        root: selects the drawing.
        styles: what holds for which selector inside it.
    """
    return "\n".join(f"{root} {selector} {{ {style}; }}" for selector, style in styles.items())


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element; characters without a meaning in XML, and those that change the direction of writing, are escaped.

    Args:
        name: of the element.
        content: its text.
        **attributes: ``_`` stands for a hyphen, and behind a name for nothing; numbers have one digit after the point.
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(visible(_number(value)))}"' for key, value in attributes.items()
    )
    return f"<{name}{said}>{escape(visible(content))}</{name}>" if content else f"<{name}{said}/>"


def _number(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
