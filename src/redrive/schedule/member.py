"""Members of an enumeration by their values, checked. PURE."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from redrive.errors import ScheduleError

__all__ = ["member"]

E = TypeVar("E", bound=StrEnum)


def member(kind: type[E], field: str, value: str) -> E:
    """Return the member of an enumeration that a caller has passed, as itself or as its text.

    A text compares equal to the member with ``==`` but not with ``is``, so it is converted before it is kept.

    Args:
        kind: the enumeration.
        field: name of the argument, for the message.
        value: a member, or its value.

    Returns:
        The member.

    Raises:
        ScheduleError: there is no such member; the message lists the values.
    """
    try:
        return kind(value)
    except ValueError as error:
        message = f"{field} is {', '.join(repr(each.value) for each in kind)}, not {value!r}"
        raise ScheduleError(message) from error
