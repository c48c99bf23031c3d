"""The loggers of redrive: each record is one entry, whatever an error text contains.

`redrive.visible` says why. The formatters of a log belong to the program that uses redrive, so the texts are escaped
before they reach a handler: by a filter on each logger.
"""

from __future__ import annotations

import logging

from redrive.errors.foreign import trace
from redrive.visible import hanging, visible

__all__ = ["Block", "EntryFormatter", "logger"]


class Block:
    """A text of several lines, as an argument of a log record: its lines are kept and indented.

    Args:
        text: of several lines, such as a traceback.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return hanging("\n" + self._text.rstrip("\n"))


class EntryFormatter(logging.Formatter):
    """Formats records so that each is one entry: lines after the first are indented, and nothing is an escape sequence.

    For the log that the command line itself writes, where other loggers write too.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a record.

        Args:
            record: of any logger.

        Returns:
            The entry.
        """
        return hanging(super().format(record))


def logger(name: str) -> logging.Logger:
    """Return a logger of the standard library that escapes the arguments and tracebacks of its records.

    Args:
        name: of the logger.

    Returns:
        The logger.
    """
    found = logging.getLogger(name)
    found.addFilter(_escape)  # a filter that is there already is not added again
    return found


def _escape(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(map(_argument, record.args))
    if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
        record.exc_text = _traceback(record.exc_info[1])
    return True


def _argument(value: object) -> object:
    if isinstance(value, int | float | Block):
        return value
    try:
        return visible(str(value))
    except BaseException as error:  # noqa: BLE001 - whatever a foreign method raises
        return f"<{type(value).__name__} without a text: {type(error).__name__}>"


def _traceback(error: BaseException) -> str:
    return hanging("\n" + trace(error))[1:]
