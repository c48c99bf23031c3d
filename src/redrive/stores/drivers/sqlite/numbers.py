"""Numbers of jobs that were handed out in transactions which redrive does not end.

The sequence of the numbers is a row, so a rollback takes back what was drawn: the next job would get a number that a
handle has already, and the handle would name another job. So this process remembers the highest number that it has
handed out in a transaction of a user's, for each file, and goes on from there.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from redrive.stores.drivers import forks

__all__ = ["advance", "remember"]

_READ = "SELECT value FROM redrive_sequences WHERE name = 'job'"
_ADVANCE = "UPDATE redrive_sequences SET value = :number WHERE name = 'job' AND value < :number"

_lock = forks.hold(threading.Lock())
_highest: dict[Path, int] = {}


def remember(cursor: sqlite3.Cursor, path: Path) -> None:
    """Remember the numbers that were handed out in a transaction that may be rolled back.

    Args:
        cursor: in the transaction.
        path: of the database.
    """
    number = int(cursor.execute(_READ).fetchone()[0])
    with _lock:
        _highest[path] = max(number, _highest.get(path, 0))


def advance(cursor: sqlite3.Cursor, path: Path | None) -> None:
    """Let the sequence go on behind the numbers that are remembered.

    Args:
        cursor: in a transaction that writes.
        path: of the database; None where it is in memory, where no transaction is a user's.
    """
    number = _highest.get(path) if path is not None else None
    if number is not None:
        cursor.execute(_ADVANCE, {"number": number})
