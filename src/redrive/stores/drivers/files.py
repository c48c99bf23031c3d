"""Register of the database files that this process has open, by library; and creation of such files."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections import Counter
from pathlib import Path

from redrive import forks
from redrive.errors import StoreOpenError

# Only the owner reads and writes a new file: jobs may carry private data.
PRIVATE = 0o600

SQLITE, TURSO = "SQLite", "Turso"

_LOCK = forks.hold(threading.Lock())
_OPEN: dict[Path, Counter[str]] = {}


# Between processes a lock on the file keeps Turso and SQLite apart. Within one process that lock has no effect, and two
# libraries that write one file corrupt it without an error. Therefore a store registers its file before it opens it.
def register(path: Path, library: str) -> None:
    """Register a file that is about to be opened; raise `StoreOpenError` if another library, or Turso, has it open."""
    # SQLite may open a file several times in one process; Turso needs it for itself.
    with _LOCK:
        counts = _OPEN.setdefault(path.resolve(), Counter())
        if counts and (library == TURSO or counts[TURSO]):
            holder = next(iter(counts))
            raise StoreOpenError(
                f"{path} is open in this process by {holder} already, and cannot be opened by {library} beside it: "
                "two of these at once would corrupt the file. Use one App for it, or close the other one first"
            )
        counts[library] += 1


def unregister(path: Path, library: str) -> None:
    """Remove a file that has been closed from the register."""
    with _LOCK:
        counts = _OPEN[path.resolve()]
        counts[library] -= 1
        if not counts[library]:
            del counts[library]
        if not counts:
            del _OPEN[path.resolve()]


def create(path: Path, like: Path | None = None) -> None:
    """Create an empty file if it does not exist, with the permissions of the file ``like``, or for its owner only."""
    # Errors are ignored: the library that opens the file reports the reason.
    with contextlib.suppress(OSError):
        # A link to a file that does not exist yet.
        path = path.resolve()
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))
        if like is not None:
            path.chmod(stat.S_IMODE(like.stat().st_mode))
