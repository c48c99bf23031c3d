"""Reads the statements and migrations of a dialect from its files, once.

A query file begins with two comment lines: what it does, and the operations that call it. Lines ``-- key: value`` after
them are its headers, which the drivers read:

* ``transaction: none``: the statement may run before the transaction, and twice. It only reads, takes numbers or ends
  sessions.
* ``transaction: own``: what it writes may stay whatever follows; without a transaction it is one by itself.
* ``transaction: last``: nothing follows it; without a transaction it is one by itself.
* ``many: rows``: with `Query.many` each execution returns rows.
* ``many: pairs``: with `Query.many` one execution takes all parameters as a JSON object.
* ``first: NAME.sql``, on SQLite: a statement of the folder ``fragments`` that runs before this one with the same
  parameters. A statement is a function call there, and none can write to two tables.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

_NUMBERED = re.compile(r"(?P<number>\d{4})_(?P<phase>pre|post)_\w+\.sql")
_HEADER = re.compile(r"^-- (transaction|many): (\w+)$", re.MULTILINE)
_FIRST = re.compile(r"^-- first: (\w+\.sql)$", re.MULTILINE)
# A line ``-- include NAME`` is replaced by a file of the folder ``fragments``. The claim and the look for due jobs
# share their common table expressions in this way, and the reads of jobs their columns and the conditions of a filter.
# A view cannot take the parameters, and a function would hide its tables from the planner and tie the statement to a
# version of the schema; an included fragment costs nothing when it runs.
_INCLUDE = re.compile(r"^-- include (\w+\.sql)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    """A step of the schema.

    Attributes:
        number: the schema version after it.
        phase: ``pre`` (before the new code is deployed) or ``post`` (after it).
    """

    number: int
    name: str
    phase: str
    script: str


@functools.cache
def statements(dialect: str) -> Mapping[str, str]:
    """Return the text of each statement of a dialect by its name, which is that of its file."""
    folder = resources.files(__package__) / dialect

    def fragment(match: re.Match[str]) -> str:
        return (folder / "fragments" / match[1]).read_text().rstrip("\n")

    files = (file for file in (folder / "queries").iterdir() if file.name.endswith(".sql"))
    return {file.name.removesuffix(".sql"): _INCLUDE.sub(fragment, file.read_text()) for file in files}


@functools.cache
def preliminaries(dialect: str) -> Mapping[str, tuple[str, ...]]:
    """Return the statements that run before a statement of a dialect, by its name; most have none."""
    fragments = resources.files(__package__) / dialect / "fragments"
    return {
        name: tuple((fragments / first).read_text() for first in _FIRST.findall(text))
        for name, text in statements(dialect).items()
    }


@functools.cache
def headers(dialect: str) -> Mapping[str, Mapping[str, str]]:
    """Return the headers of each statement of a dialect, by its name."""
    return {name: dict(_HEADER.findall(text)) for name, text in statements(dialect).items()}


@functools.cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """Return the migrations of a dialect, first to last."""
    folder = resources.files(__package__) / dialect / "migrations"
    found = [(match, file) for file in folder.iterdir() if (match := _NUMBERED.fullmatch(file.name))]
    steps = (Migration(int(m["number"]), f.name.removesuffix(".sql"), m["phase"], f.read_text()) for m, f in found)
    return tuple(sorted(steps, key=lambda step: step.number))
