"""The receiver's record, to be compared with the sender's.

One line of JSON for every request with complete headers, written *before* the answer is sent: a ledger that
is written afterwards would lack exactly the requests that broke. Each line is one
``write`` to a file opened for appending, so it survives a kill of the process (not a power cut; that would need an
``fsync`` for every line, and would prove no more about retries).

A receiver that starts again on an old ledger reads all that it had accepted before. Two receivers on one ledger would
count the same requests twice, so the file is locked while it is open.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections import Counter
from datetime import datetime
from io import FileIO
from typing import TYPE_CHECKING

import msgspec
from plan import Act

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Entry", "Ledger", "LedgerTakenError", "read_ledger"]


class LedgerTakenError(Exception):
    """Another receiver writes this ledger."""


class Entry(msgspec.Struct, frozen=True):
    """One request, as the receiver saw it.

    Args:
        at: when it was answered, or broken off.
        job: the job that the sender runs (``X-Job-Id``); 0 without this header.
        event: id of the event (``X-Event-Id``).
        key: the ``Idempotency-Key``.
        request: its number under this key, from 1; from 2 on it is a repeat.
        act: the planned reaction.
        status: the HTTP status that was sent; ``None`` if no answer was.
        accepted: this request made the receiver take the event; true once a key.
        duplicate: without the key, this request would have made the receiver take the event a second time.
        size: bytes of the body that were read.
        digest: SHA-256 of the body, in hexadecimal; empty if it was not read.
    """

    at: datetime
    job: int
    event: str
    key: str
    request: int
    act: Act
    status: int | None
    accepted: bool
    duplicate: bool
    size: int
    digest: str


def read_ledger(path: Path) -> list[Entry]:
    """All entries of a ledger, oldest first; none if there is no file.

    A last line without its end, the trace of a machine that stopped while writing, is left out.

    Raises:
        OSError: the file cannot be read.
        msgspec.DecodeError: a line is no entry.
    """
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    decoder = msgspec.json.Decoder(Entry)
    return [decoder.decode(line) for line in lines]


class Ledger:
    """The file, with its counts for each key. Any thread may call it.

    Args:
        path: of the file; it is created if it does not exist.

    Raises:
        LedgerTakenError: another process has it open.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._file = _open_alone(path)
        self._lock = threading.Lock()
        entries = read_ledger(path)
        self._requests = Counter(entry.key for entry in entries)
        self._accepted = {entry.key for entry in entries if entry.accepted}

    def count(self, key: str) -> int:
        """Count one more request under this key: the how-manieth is it, from 1?"""
        with self._lock:
            self._requests[key] += 1
            return self._requests[key]

    def accept(self, key: str) -> bool:
        """Take the event of this key, once; false if it had been taken before."""
        with self._lock:
            new = key not in self._accepted
            self._accepted.add(key)
            return new

    def write(self, entry: Entry) -> None:
        """Append the entry; when this returns, the operating system has it."""
        with self._lock:
            self._file.write(msgspec.json.encode(entry) + b"\n")

    def close(self) -> None:
        """Close the file and let others have it."""
        self._file.close()


def _open_alone(path: Path) -> FileIO:
    file = FileIO(path, "a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise LedgerTakenError(f"another receiver writes {path}") from None
    os.truncate(file.fileno(), path.read_bytes().rfind(b"\n") + 1)
    return file
