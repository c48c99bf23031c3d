"""Texts and attributes of exceptions from outside redrive.

The functions never raise, even if a method or a property of the exception does: that error would replace the user's.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, TypeGuard, TypeVar

T = TypeVar("T")

__all__ = [
    "attribute",
    "cause_of",
    "context_of",
    "is_a",
    "mark_of",
    "notes_of",
    "set_attribute",
    "set_context",
    "set_mark",
    "summary",
    "trace",
]


def attribute(error: object, name: str, default: object = None) -> Any:  # noqa: ANN401 - of any class
    """Return an attribute of a foreign object; the default if there is none, or if reading it raises."""
    try:
        return getattr(error, name, default)
    except Exception:  # noqa: BLE001 - whatever a foreign property raises
        return default


def set_attribute(error: BaseException, name: str, value: object) -> None:
    """Set an attribute of a foreign exception, also if its class refuses attributes, as a frozen dataclass does."""
    # A property without a setter refuses it.
    with suppress(Exception):
        BaseException.__setattr__(error, name, value)


def is_a(error: object, kind: type[T] | tuple[type[T], ...]) -> TypeGuard[T]:
    """Return True if an object is an instance of a class; `isinstance` may call methods of a foreign exception."""
    return issubclass(type(error), kind)


# Descriptors of the interpreter, which a class of the user cannot replace.
_CAUSE, _CONTEXT, _OWN = (BaseException.__dict__[name] for name in ("__cause__", "__context__", "__dict__"))


class _MarkedText(str):
    """An argument of a `TimeoutError`, equal to the text that it replaces, that carries the marks of the exception."""

    __slots__ = ("marks",)
    marks: dict[str, Any]

    @classmethod
    def of(cls, text: str, marks: dict[str, Any]) -> _MarkedText:
        made = cls(text)
        made.marks = marks
        return made


def set_mark(error: BaseException, name: str, value: object) -> None:
    """Store a value on an exception, for `mark_of`.

    Where a bare `TimeoutError` goes from a thread to an event loop or back (`asyncio.to_thread`, ``run_in_executor``,
    ``run_coroutine_threadsafe``), asyncio raises a new one with the same arguments. There the mark is carried by the
    first argument that is a text, or by an empty text if there is no argument; no other argument can carry it.
    """
    set_attribute(error, name, value)
    # Where asyncio is loaded, threading is, too.
    if type(error) is not TimeoutError or "asyncio" not in sys.modules or sys.modules["threading"].active_count() == 1:
        return
    args = list(error.args) or [""]
    for at, text in enumerate(args):
        if isinstance(text, str):
            args[at] = _MarkedText.of(text, {**getattr(text, "marks", {}), name: value})
            error.args = tuple(args)
            break


def mark_of(error: BaseException, name: str) -> Any:  # noqa: ANN401 - as it was set
    """Return what `set_mark` has stored on an exception; None if it has stored nothing."""
    found = _OWN.__get__(error).get(name)
    if found is None and type(error) is TimeoutError:
        carried = [text.marks.get(name) for text in error.args if type(text) is _MarkedText]
        return next(iter(carried), None)
    return found


def cause_of(error: BaseException) -> BaseException | None:
    """Return the explicit cause of an exception (``raise ... from cause``)."""
    found: BaseException | None = _CAUSE.__get__(error)
    return found


def context_of(error: BaseException) -> BaseException | None:
    """Return the exception that was handled when this one was raised."""
    found: BaseException | None = _CONTEXT.__get__(error)
    return found


def set_context(error: BaseException, context: BaseException | None) -> None:
    """Set the exception that was handled when this one was raised."""
    _CONTEXT.__set__(error, context)


def notes_of(error: BaseException) -> list[str]:
    """Return the notes of an exception, in a new list; an empty one if they are of another type."""
    notes = attribute(error, "__notes__")
    return list(notes) if isinstance(notes, list | tuple) else []


def summary(error: BaseException) -> str:
    """Return the class and the text of an exception in one line, ``Class: text``."""
    kind = type(error)
    try:
        text = str(error)
    except BaseException as broken:  # noqa: BLE001 - whatever a foreign method raises
        text = f"<no message: {type(broken).__name__} in {kind.__name__}.__str__>"
    return f"{kind.__name__}: {text}" if text else kind.__name__


def trace(error: BaseException) -> str:
    """Return the traceback of an exception as text, with its causes; without them if their formatting raises."""
    import traceback

    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except BaseException:  # noqa: BLE001 - whatever a foreign method raises
        # Read without the attribute look-up of its class, which may be what raises.
        frames = traceback.format_tb(BaseException.__dict__["__traceback__"].__get__(error))
        return "".join(["Traceback (most recent call last):\n", *frames, summary(error)])
