"""Whether the path of a database still leads to the file that is open.

An open file can be deleted or replaced. Its connections do not notice: they go on writing to a file that has no name
any more, and what they acknowledge is gone with the process. Worse, ``-wal`` may by then belong to another database.
So the path is looked at before each transaction, and once more between a commit and its acknowledgement.
"""

from __future__ import annotations

import os

from redrive.errors import StoreError
from redrive.stores.drivers.sqlite.settings import Settings

__all__ = ["Place"]


class Place:
    """The file at the path of a database.

    Args:
        settings: which database; one in memory is always in its place.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._path = None if settings.path is None else os.fspath(settings.path)
        self._file: tuple[int, int] | None = None

    def remember(self) -> None:
        """Take the file that is at the path now as the one that has been opened."""
        if self._path is not None:
            self._file = self._find()

    def check(self) -> None:
        """Compare the file that is at the path with the one that has been opened.

        Raises:
            StoreError: it was deleted, or another file is in its place.
        """
        if self._path is None:
            return
        if self._find() != self._file:
            raise self._lost("was replaced by another file while it was open")

    def _find(self) -> tuple[int, int]:
        try:
            found = os.stat(self._path or "")  # noqa: PTH116 - a Path costs as much again
        except OSError as error:
            raise self._lost(f"was deleted or moved while it was open ({error.strerror})") from error
        return found.st_dev, found.st_ino

    def _lost(self, happened: str) -> StoreError:
        return StoreError(
            f"{self._settings} {happened}: what is written to the open file would be lost, so nothing is acknowledged "
            "any more. Stop every process that uses it, put the right file there, and start them again"
        )
