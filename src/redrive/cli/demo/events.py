"""The demo's input: as many events as were asked for, and a line of explanation for each that is none. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

__all__ = ["BrokenLine", "complaint", "take"]

_SHOWN = 100  # characters of a broken line; it may have 20,000

E = TypeVar("E", bound=msgspec.Struct)


class BrokenLine(Protocol):
    """What the example says about a line that it could not read."""

    @property
    def number(self) -> int:
        """Its place in the file, from 1."""
        ...

    @property
    def text(self) -> str:
        """The line."""
        ...

    @property
    def why(self) -> str:
        """What is wrong with it."""
        ...


def take(events: Sequence[E], count: int | None) -> list[E]:
    """The first ``count`` events; where there are fewer, the file is gone through again.

    Args:
        events: those of the file; at least one, unless none are wanted.
        count: how many are wanted; None means all.

    Returns:
        The events. In the second round ``evt_7`` is called ``evt_7#2``, so that ids stay unique.
    """
    wanted = len(events) if count is None else count
    rounds = ((number // len(events) + 1, events[number % len(events)]) for number in range(wanted))
    return [event if turn == 1 else _renamed(event, turn) for turn, event in rounds]


def _renamed(event: E, turn: int) -> E:
    return msgspec.structs.replace(event, id=f"{event.id}#{turn}")  # type: ignore[attr-defined]


def complaint(name: str, line: BrokenLine) -> str:
    """One line about a broken line: file, number, reason, text.

    Args:
        name: of the file.
        line: the broken line.
    """
    text = line.text if len(line.text) <= _SHOWN else f"{line.text[:_SHOWN]}... ({len(line.text)} characters)"
    return f"{name}, line {line.number} is no event and is left out ({line.why}): {text}"
