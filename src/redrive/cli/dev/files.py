"""The files that start the app again when they change: all ``*.py`` files below a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# Folders of other software. Folders with a name that begins with a dot, and virtual environments, are left out too.
_FOREIGN = frozenset({"__pycache__", "node_modules", "site-packages"})


class Files:
    """The Python files below a folder, with the times of their last changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = dict(self._look())

    def changed(self) -> Path | None:
        """Return a file that was changed, made or removed since the last call; None if there is none."""
        before, self._known = self._known, dict(self._look())
        changed = (path for path in before.keys() | self._known if before.get(path) != self._known.get(path))
        return min((Path(path).relative_to(self._folder) for path in changed), default=None)

    def _look(self) -> Iterator[tuple[str, int]]:
        for folder, inner, names in os.walk(self._folder):
            if "pyvenv.cfg" in names:
                inner.clear()
                continue
            inner[:] = [each for each in inner if each not in _FOREIGN and not each.startswith(".")]
            for name in names:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)  # noqa: PTH118 - thousands of them, four times a second
                    try:
                        yield path, os.stat(path).st_mtime_ns  # noqa: PTH116 - likewise
                    except OSError:
                        # It was removed since.
                        continue
