"""Reads the statements of a dialect from its files, once."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

__all__ = ["Migration", "migrations", "statements"]

_NUMBERED = re.compile(r"(?P<number>\d{4})_(?P<phase>pre|post)_\w+\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema.

    Attributes:
        number: the schema version it leads to.
        name: of its file, without the ending.
        phase: ``pre`` (before the new code is deployed) or ``post`` (after it).
        script: the statements.
    """

    number: int
    name: str
    phase: str
    script: str


@functools.cache
def statements(dialect: str) -> Mapping[str, str]:
    """Read all statements of a dialect.

    Args:
        dialect: the name of its folder.

    Returns:
        The text of each statement by its name.
    """
    folder = resources.files(__package__) / dialect / "queries"
    return {file.name.removesuffix(".sql"): file.read_text() for file in folder.iterdir() if file.name.endswith(".sql")}


@functools.cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """Read all migrations of a dialect.

    Args:
        dialect: the name of its folder.

    Returns:
        The migrations, first to last.
    """
    folder = resources.files(__package__) / dialect / "migrations"
    found = [(match, file) for file in folder.iterdir() if (match := _NUMBERED.fullmatch(file.name))]
    steps = (Migration(int(m["number"]), f.name.removesuffix(".sql"), m["phase"], f.read_text()) for m, f in found)
    return tuple(sorted(steps, key=lambda step: step.number))
