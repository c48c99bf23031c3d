"""Escaping of foreign text for display. PURE.

Names, keys, error texts and notes come from handlers, servers and other programs. On a terminal, an escape sequence can
set the clipboard or rewrite the screen; in a log, a newline can forge a line. Terminal, log and JSON output use
`visible`; the database and the Python API keep texts unchanged.
"""

from __future__ import annotations

import re

__all__ = ["hanging", "visible"]

_UNSAFE = re.compile(
    "["
    # Control characters: C0, DEL, C1.
    "\\x00-\\x1f\\x7f-\\x9f"
    # Line and paragraph separator.
    "\\u2028\\u2029"
    # Bidirectional controls.
    "\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069"
    # No characters: a stream in UTF-8, or XML, cannot hold them.
    "\\ud800-\\udfff\\ufffe\\uffff"
    "]"
)

_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}

_MARGIN = "    "


def visible(text: str) -> str:
    r"""Write the control, separator and bidirectional characters of a text as escapes, on one line.

    The escapes are those of JSON (``\n``, ``\u001b``), so the text of a JSON document without insignificant whitespace
    remains the same document. Backslashes stay as they are: the function is idempotent.
    """
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_escape, text)


def hanging(text: str) -> str:
    """Escape each line of a text and indent all lines but the first, so that no line can pass for another entry.

    Lines after the first that are indented already are not indented further.
    """
    first, *rest = map(visible, text.split("\n"))
    margin = "" if all(not line or line.startswith(_MARGIN) for line in rest) else _MARGIN
    return "\n".join([first, *(line and margin + line for line in rest)])


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    return _SHORT.get(char) or f"\\u{ord(char):04x}"
