"""Texts and attributes of exceptions from outside redrive.

The functions never raise, even if a method or a property of the exception does: that error would replace the user's.
"""

from __future__ import annotations

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
    "summary",
    "trace",
]


def attribute(error: object, name: str, default: Any = None) -> Any:  # noqa: ANN401 - of any class
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


def mark_of(error: BaseException, name: str) -> Any:  # noqa: ANN401 - as it was set
    """Return what `set_attribute` has stored on an exception; None if it has stored nothing."""
    return _OWN.__get__(error).get(name)


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
