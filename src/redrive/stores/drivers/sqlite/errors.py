"""Translation of SQLite's errors into errors of redrive."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from redrive.errors import StoreBusy, StoreError, StoreFull, StoreOpenError
from redrive.stores.drivers.sqlite.settings import SQLiteSettings
from redrive.stores.store import unknown

# The disk refused to write or to sync the end of a transaction. The transaction is rolled back; but its pages may have
# reached the log, and if no page is written after them, the recovery after a crash carries the transaction out.
_OUTCOME_UNKNOWN = re.compile(r"(?i)i/o error")

# Errors of Python for values that sqlite3 cannot pass on: numbers of more than 64 bits, and lone surrogates.
UNFIT = (OverflowError, UnicodeEncodeError)


@contextlib.contextmanager
def translated(settings: SQLiteSettings, *, opening: bool = False, commits: bool = False) -> Iterator[None]:
    """Translate the errors of sqlite3 within a block; see `translation`."""
    try:
        yield
    except sqlite3.Error as error:
        raise translation(error, settings, opening=opening, commits=commits) from error


def translation(
    error: sqlite3.Error, settings: SQLiteSettings, *, opening: bool = False, commits: bool = False
) -> StoreError:
    """Return the error to raise for an error of sqlite3 while a database was opened, or a transaction committed."""
    text = str(error)
    if getattr(error, "sqlite_errorname", None) == "SQLITE_BUSY_SNAPSHOT":
        return StoreBusy(
            f"{settings} was written after this transaction had begun to read it: repeat it, after BEGIN IMMEDIATE"
        )
    if "locked" in text or "busy" in text:
        return locked(settings)
    if "is full" in text:
        return StoreFull(f"{settings} cannot grow, its disk is full; nothing was written: make room ({text})")
    if "not a database" in text:
        return StoreOpenError(f"{settings} exists but is not an SQLite database: give another path")
    if "unable to open" in text or "readonly" in text:
        what = "written" if "readonly" in text else "opened"
        return StoreOpenError(f"{settings} cannot be {what}: {_reason(settings.path)}")
    if "no such table: redrive" in text or "no such view" in text:
        return StoreOpenError(f"{settings} has no redrive tables; redrive db migrate APP creates them ({text})")
    if commits and _OUTCOME_UNKNOWN.search(text):
        return unknown(settings, None, text)
    return (StoreOpenError if opening else StoreError)(f"{settings}: {text}")


def locked(settings: SQLiteSettings) -> StoreBusy:
    """Return the error for a connection that waited too long for the lock of the file."""
    waited = settings.busy_timeout.total_seconds()
    return StoreBusy(
        f"{settings} is locked by another process or connection for more than {waited:g} s: end what writes to it"
    )


def _reason(path: Path | None) -> str:
    if path is None:
        return "out of memory"
    if path.is_dir():
        return "it is a directory; give the path of a file"
    if not path.parent.exists():
        return f"the directory {path.parent} does not exist; make it first"
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return f"this user may not write to {path if path.exists() else path.parent}"
    return "the operating system refused; are the permissions of the directory right?"
