"""Texts of exceptions from outside redrive. The functions never raise, even if a method of the exception does."""

from __future__ import annotations

__all__ = ["summary", "trace"]


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
