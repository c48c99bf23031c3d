"""The build of the code that a worker runs: given, or the version of the distribution that has the app.

No process is started for it: a worker has no checkout, and a call of a version control system at each start could hang.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from redrive.app.app import App
from redrive.visible import visible

if TYPE_CHECKING:
    from importlib.metadata import Distribution

#: The environment variable that names the build, if no argument does.
VARIABLE: Final = "REDRIVE_BUILD"

# Characters of a build that are stored.
_LONGEST = 100


def build_of(app: App, given: str | None) -> str | None:
    """Return the build of the code of an app: given, of the environment, or of a distribution; None without any."""
    named = given or os.environ.get(VARIABLE, "").strip()
    if named:
        # A worker starts also with a strange name in its environment.
        return visible(named)[:_LONGEST]
    for module in _modules(app):
        found = _version(module)
        if found is not None:
            return found[:_LONGEST]
    return None


def _modules(app: App) -> Iterator[str]:
    """Yield the top-level modules that may be the package of an app, each once."""
    names = [app.reference.partition(":")[0], *(task.function.__module__ or "" for task in app.tasks.values())]
    tops = dict.fromkeys(name.partition(".")[0] for name in names)
    yield from (top for top in tops if top not in {"", "__main__", "redrive"})


def _version(module: str) -> str | None:
    """Return the version of the distribution that has a top-level module; None if none has it."""
    place = _place(module)
    if place is None:
        return None
    # Not needed by a worker with a build of its own.
    from importlib import metadata

    # Nearly always they have the same name. All others are searched by the files that they list.
    with contextlib.suppress(metadata.PackageNotFoundError):
        same = metadata.distribution(module)
        if _has(same, place):
            return same.version
    for each in metadata.distributions():
        if module in (each.read_text("top_level.txt") or "").split() and _has(each, place):
            return each.version
    return None


def _place(module: str) -> Path | None:
    """Return the folder that has a top-level module which was imported; None if it has no file."""
    found = sys.modules.get(module)
    folders = list(getattr(found, "__path__", ()))
    file = getattr(found, "__file__", None)
    if folders:
        return Path(folders[0]).parent
    return None if file is None else Path(file).parent


def _has(found: Distribution, place: Path) -> bool:
    """Return True if a distribution is installed in a folder, or from one that contains it."""
    if Path(str(found.locate_file(""))).resolve() == place.resolve():
        return True
    source = found.read_text("direct_url.json") or ""
    start = source.find("file://")
    if start < 0:
        return False
    folder = Path(unquote(urlsplit(source[start:].partition('"')[0]).path)).resolve()
    return folder == place.resolve() or folder in place.resolve().parents
