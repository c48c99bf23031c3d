r"""What is delivered: webhook events, and how they are read from a JSONL file.

One broken line must not cost the other 299. `read_events` therefore returns two lists: the events it could read and
the lines it could not, each with its number and its text, and leaves it to the caller to say so.

Lines end at ``\n`` and nowhere else. ``str.splitlines`` would also cut at U+2028 or U+0085, which are ordinary
characters inside a JSON string and do turn up in what people paste into chat windows.
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
    """Something that happened and that a subscriber wants to hear of.

    Args:
        id: unique in its file, e.g. ``evt_0042``.
        type: what happened, e.g. ``payment.settled``.
        created_at: when.
        data: anything that JSON can say.
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
