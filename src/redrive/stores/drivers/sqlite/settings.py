"""How to open an SQLite database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How to open an SQLite database.

    Attributes:
        path: the file; None means in memory.
        synchronous: ``FULL`` (an acknowledged enqueue survives a power cut) or ``NORMAL``.
        busy_timeout: how long to wait for another process that writes.
    """

    path: Path | None
    synchronous: str = "FULL"
    busy_timeout: timedelta = timedelta(seconds=10)

    def __str__(self) -> str:
        """The name of the database in messages."""
        return str(self.path) if self.path else "the database in memory"
