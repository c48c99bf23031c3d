"""The loggers of redrive: each record is one entry, also if an error text contains line breaks or escape sequences.

The formatters of a log belong to the program that uses redrive, so a filter on each logger escapes the texts before
they reach a handler (`redrive.visible`). `facts` has the fields of an event for log records of programs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from enum import Enum
from typing import TypeAlias

from redrive.errors.foreign import is_a, trace
from redrive.observe.events import Event
from redrive.policy import Failure
from redrive.visible import hanging, visible

OF_APP: ContextVar[str] = ContextVar("redrive_of_app", default="")
"""The name of the app whose worker runs in this context, in a process with workers of several apps."""


class Block:
    """A text of several lines, such as a traceback, as an argument of a log record: its lines are kept and indented."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return hanging("\n" + self._text.rstrip("\n"))


class EntryFormatter(logging.Formatter):
    """A formatter for the log of the command line, in which other loggers write too.

    Each record becomes one entry: lines after the first are indented, and escape sequences are escaped. The field
    ``of_app`` of the format is the name of the app whose worker logs, with a colon, in a process with workers of
    several apps.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the entry of a record."""
        name = OF_APP.get()
        record.of_app = f"{name}: " if name else ""
        return hanging(super().format(record))


# `logging` refuses extra fields with the name of an attribute of the log record; an event of a user may have some.
TAKEN = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})

# The name of a fact with several lines: the traceback that is stored with an attempt.
TRACEBACK = "traceback"


def logger(name: str) -> logging.Logger:
    """Return a logger of the standard library that escapes the arguments and tracebacks of its records."""
    found = logging.getLogger(name)
    # A filter that is there already is not added again.
    found.addFilter(_escape)
    return found


def levels() -> dict[str, int]:
    """Return the levels of the loggers of this process by name; that of the root under the empty name."""
    known = logging.root.manager.loggerDict.items()
    found = {name: each.level for name, each in known if isinstance(each, logging.Logger) and each.level}
    return {"": logging.root.level} | found


def forward(handler: logging.Handler, at: Mapping[str, int]) -> None:
    """Pass what this process logs, at these levels, to a handler that sends it to another process."""
    logging.getLogger().addHandler(handler)
    for name, level in at.items():
        logging.getLogger(name).setLevel(level)


def replay(record: logging.LogRecord) -> None:
    """Log a record of another process here."""
    found = logging.getLogger(record.name)
    if found.isEnabledFor(record.levelno):
        found.handle(record)


def _escape(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(map(_argument, record.args))
    if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
        record.exc_text = _traceback(record.exc_info[1])
    if name := OF_APP.get():
        record.app = name
    stored = getattr(record, TRACEBACK, None)
    # Formatters write `exc_text` below the message, with or without `exc_info`.
    if isinstance(stored, str) and not record.exc_text:
        record.exc_text = stored
    return True


def _argument(value: object) -> object:
    if isinstance(value, int | float | Block):
        return value
    try:
        return visible(str(value))
    except BaseException as error:  # noqa: BLE001 - whatever a foreign method raises
        return f"<{type(value).__name__} without a text: {type(error).__name__}>"


def _traceback(error: BaseException) -> str:
    return _indented(trace(error))


def _indented(text: str) -> str:
    return hanging("\n" + text.rstrip("\n"))[1:]


Fact: TypeAlias = str | int | float | bool | None

# Fields with these names would collide with attributes of log records.
_OTHER_NAMES = {"name": "call"}


def facts(event: Event) -> Iterator[tuple[str, Fact]]:
    """Yield the fields of an event, as names and plain values.

    Texts are escaped (`redrive.visible`), since a log is read on a terminal. Spans become seconds, instants ISO
    8601, an error its repr; a `Failure` becomes ``reason``, ``error_type`` and ``error``. The ``name`` of a call
    becomes ``call``. The lines of a ``traceback`` are kept and indented. The text that a sink has left with a job is
    left out. In a process with workers of several apps ``app`` is the name of the app.
    """
    if app := OF_APP.get():
        yield "app", app
    for name, value in event.arguments().items():
        if is_a(value, Failure):
            yield from (("reason", value.reason), ("error_type", value.error_type), ("error", _plain(value.message)))
        elif name == TRACEBACK and isinstance(value, str):
            yield name, _indented(value)
        elif not (name == "trace" or (name == "error" and isinstance(value, BaseException))):
            yield _OTHER_NAMES.get(name, name), _plain(value)


def _plain(value: object) -> Fact:
    match value:
        case Enum():
            return value.name
        case str():
            return visible(value)
        case bool() | int() | float() | None:
            return value
        case timedelta():
            return value.total_seconds()
        case datetime():
            return value.isoformat()
        case tuple():
            return visible(", ".join(map(str, value)))
        case _:
            return visible(repr(value))
