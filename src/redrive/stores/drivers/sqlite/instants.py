"""The instant of a transaction, by the time of the database.

It is the clock of the machine, unless that was set a short while ago: see `redrive.engine.anchor`.
"""

from __future__ import annotations

import sqlite3

from redrive import clock
from redrive.engine import anchor as anchors

__all__ = ["boot_time", "present"]

_READ = "SELECT now, (SELECT value FROM redrive_meta WHERE key = 'clock') FROM redrive_clock"


def present(cursor: sqlite3.Cursor) -> int:
    """Tell the time.

    Args:
        cursor: in a transaction.

    Returns:
        The present instant, in microseconds since 1970.
    """
    wall, text = cursor.execute(_READ).fetchone()
    anchor = anchors.read(text)
    return wall if anchor is None else anchors.corrected(anchor, boot_time(), wall)


def boot_time() -> tuple[str, int] | None:
    """Return the present boot of this machine, and the microseconds since then; see `redrive.clock.boot_time`."""
    return clock.boot_time()
