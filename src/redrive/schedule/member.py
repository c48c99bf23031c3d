"""Enumeration members from arguments. PURE."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from redrive.errors import ScheduleError

E = TypeVar("E", bound=StrEnum)


def member(kind: type[E], field: str, value: str) -> E:
    """Return the member that a caller has passed, as itself or as its text; raise `ScheduleError` with the values."""
    # A text equals the member with ``==`` but not with ``is``, so it is converted.
    try:
        return kind(value)
    except ValueError as error:
        message = f"{field} is {', '.join(repr(each.value) for each in kind)}, not {value!r}"
        raise ScheduleError(message) from error
