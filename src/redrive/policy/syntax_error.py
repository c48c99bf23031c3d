"""Errors that show the text, a caret under the fault, and a valid form."""

from __future__ import annotations

from redrive.errors import PolicySyntaxError, PolicyValueError

__all__ = ["syntax_error", "value_error"]


def _draw(text: str, at: int, problem: str, valid: str) -> str:
    shown = "".join(c if c.isprintable() else " " for c in text)
    return f"{problem}\n    {shown}\n    {' ' * at}^ {valid}"


def syntax_error(text: str, at: int, problem: str, valid: str) -> PolicySyntaxError:
    """Return the error for a text that cannot be read.

    Args:
        text: the whole text, as the user wrote it.
        at: offset of the fault in characters; ``len(text)`` where something is missing at the end.
        problem: the fault, in one sentence without a full stop.
        valid: what would be valid there.
    """
    return PolicySyntaxError(_draw(text, at, problem, valid), text=text, at=at, problem=problem)


def value_error(text: str, at: int, problem: str, valid: str) -> PolicyValueError:
    """Return the error for a text that can be read but has an invalid value; arguments as in `syntax_error`."""
    return PolicyValueError(_draw(text, at, problem, valid), text=text, at=at, problem=problem)
