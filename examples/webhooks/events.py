r"""The webhook events, and a reader for JSONL files.

One broken line must not prevent the delivery of the other 299. `read_events` therefore returns two lists: the events
that it could read and the lines that it could not, each with its number and its text; the caller reports them.

Lines end at ``\n`` only. ``str.splitlines`` would also cut at U+2028 or U+0085, which are ordinary characters inside
a JSON string and occur in text that users paste into chat windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BrokenLine", "Event", "Events", "read_events"]


class Event(msgspec.Struct, frozen=True):
    """An event that a subscriber receives.

    Args:
        id: unique in its file, e.g. ``evt_0042``.
        type: its kind, e.g. ``payment.settled``.
        created_at: when.
        data: any JSON value.
    """

    id: str
    type: str
    created_at: datetime
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A line that is no event.

    Args:
        number: its place in the file, counted from 1.
        text: the line; bytes that are not UTF-8 are shown as U+FFFD.
        why: what is wrong with it.
    """

    number: int
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class Events:
    """What a file held: its events and its broken lines, both in the file's order."""

    good: tuple[Event, ...]
    broken: tuple[BrokenLine, ...]


def read_events(path: Path) -> Events:
    """Read a JSONL file of events; blank lines are skipped.

    Args:
        path: the file, UTF-8, one JSON object in a line.

    Returns:
        Everything that the file holds, readable or not.

    Raises:
        OSError: the file cannot be read.
    """
    decoder = msgspec.json.Decoder(Event)
    good: list[Event] = []
    broken: list[BrokenLine] = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            good.append(decoder.decode(line))
        # A line nested a thousand levels deep is a RecursionError in msgspec, and one more kind of broken line.
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            broken.append(BrokenLine(number, line.decode(errors="replace").strip(), str(error)))
    return Events(tuple(good), tuple(broken))
