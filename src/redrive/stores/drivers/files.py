"""Which database files this process has open, and by which library; and how a file is made.

Between processes a lock on the file keeps Turso and SQLite apart. Within one process that lock does not count, and two
libraries that write one file corrupt it without an error. So whoever opens a file says so here first.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections import Counter
from pathlib import Path

from redrive.errors import StoreOpenError
from redrive.stores.drivers import forks

__all__ = ["let_go", "make", "occupy"]

PRIVATE = 0o600
"""The permissions of a file that is made: its owner reads and writes it. Jobs may carry what is private."""

SQLITE, TURSO = "SQLite", "Turso"

_GATE = forks.hold(threading.Lock())
_OPEN: dict[Path, Counter[str]] = {}


def occupy(path: Path, library: str) -> None:
    """Say that a file is about to be opened.

    Args:
        path: of the file.
        library: ``SQLITE``, which shares a file with itself, or ``TURSO``, which shares it with nobody.

    Raises:
        StoreOpenError: the process has it open in a way that does not go together with this.
    """
    with _GATE:
        here = _OPEN.setdefault(path.resolve(), Counter())
        if here and (library == TURSO or here[TURSO]):
            holder = next(iter(here))
            message = (
                f"{path} is open in this process by {holder} already, and cannot be opened by {library} beside it: "
                "two of these at once would corrupt the file. Use one App for it, or close the other one first"
            )
            raise StoreOpenError(message)
        here[library] += 1


def let_go(path: Path, library: str) -> None:
    """Say that a file has been closed; the counterpart of `occupy`.

    Args:
        path: of the file.
        library: as it was opened.
    """
    with _GATE:
        here = _OPEN[path.resolve()]
        here[library] -= 1
        if not here[library]:
            del here[library]
        if not here:
            del _OPEN[path.resolve()]


def make(path: Path, like: Path | None = None) -> None:
    """Make an empty file if there is none; an existing one is left as it is.

    Where that is impossible, nothing happens: the library that opens the file finds out why.

    Args:
        path: of the file.
        like: has the permissions that it gets; by default only its owner may read and write it.
    """
    with contextlib.suppress(OSError):
        path = path.resolve()  # a link to a file that does not exist yet
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))
        if like is not None:
            path.chmod(stat.S_IMODE(like.stat().st_mode))
