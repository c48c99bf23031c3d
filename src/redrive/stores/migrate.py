"""Migrations of a database to the schema of this version of redrive.

Migrations are the numbered files of ``migrations/<dialect>``. Each runs once, in order, all in one transaction that
holds the write lock: of several processes that start at once one migrates and the others find it done. The version is a
row of ``redrive_meta``.

Each migration belongs to a phase of a deployment without downtime. Those of the phase ``pre`` add what new code needs,
and run before it starts. Those of the phase ``post`` remove what only old code needs, and run when it has ended.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from importlib import resources
from typing import Any, Protocol

import msgspec

from redrive.errors import StoreOpenError
from redrive.stores.operations.schema import Schema, Versions, found, mismatch
from redrive.stores.statements import loader

_NUMBERED = re.compile(r"(\d{4})_(pre|post)_\w+\.sql")


class Phase(StrEnum):
    """The migrations that belong to one step of a deployment."""

    PRE = "pre"
    POST = "post"


class Migration(msgspec.Struct, frozen=True):
    """A step of the schema.

    Attributes:
        number: the schema version after it.
        phase: ``pre`` (before the new code is deployed) or ``post`` (after it).
    """

    number: int
    name: str
    phase: str
    script: str


class Cursor(Protocol):
    """The methods of a database cursor that a migration uses."""

    def execute(self, statement: str, parameters: Any = (), /) -> Any:  # noqa: ANN401 - as in DB-API 2.0
        """Execute one statement."""
        ...

    def fetchone(self) -> Any:  # noqa: ANN401 - as in DB-API 2.0
        """Return one row."""
        ...


@functools.cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """Return the migrations of a dialect, first to last."""
    folder = resources.files(__package__) / "migrations" / dialect
    files = [(match, file) for file in folder.iterdir() if (match := _NUMBERED.fullmatch(file.name))]
    steps = (Migration(int(m[1]), f.name.removesuffix(".sql"), m[2], f.read_text()) for m, f in files)
    return tuple(sorted(steps, key=lambda step: step.number))


def versions(dialect: str) -> Versions:
    """Return the schemas that this redrive works with."""
    steps = migrations(dialect)
    return Versions(max(step.number for step in steps if step.phase == Phase.PRE), steps[-1].number)


def compatible(dialect: str, version: int) -> int:
    """Return the oldest code that can work with a schema: the number of its last migration of the phase ``post``."""
    steps = migrations(dialect)
    return max((step.number for step in steps if step.phase == Phase.POST and step.number <= version), default=1)


def pending(dialect: str, version: int, phase: Phase | None) -> list[Migration]:
    """Return the migrations of a phase, or all, that a schema lacks.

    With the phase ``pre`` these are all that this redrive needs, also one of an earlier release's phase ``post``. No
    program uses a new database yet, so that it gets all of them in any phase.

    Raises:
        StoreOpenError: a migration of the phase ``pre`` is missing before those of the phase ``post``.
    """
    needed = versions(dialect).needed
    steps = [step for step in migrations(dialect) if step.number > version]
    if phase is None or not version:
        return steps
    if phase is Phase.PRE:
        return [step for step in steps if step.number <= needed]
    if version < needed:
        raise StoreOpenError(
            f"the schema has version {version}, and the phase post begins at {needed}: run redrive db migrate APP "
            "--phase pre, and deploy the code, before the phase post"
        )
    return steps


def migrate(
    cursor: Cursor,
    dialect: str,
    name: str,
    *,
    phase: Phase | None = None,
    look: Sequence[str] = (),
    lock: Sequence[str] = ("BEGIN IMMEDIATE",),
) -> list[str]:
    """Run the migrations of a phase, or all, that a database lacks.

    Returns:
        The names of the migrations that were run.

    Raises:
        SchemaTooNew: the database was migrated by a newer redrive, and this one cannot work with it.
        StoreOpenError: there is a table ``redrive_meta`` of another program, or the phase is not the next one.
    """
    for statement in look:
        cursor.execute(statement)
    if not pending(dialect, _version(cursor, dialect, name), phase):
        return []
    for statement in lock:
        cursor.execute(statement)
    try:
        steps = pending(dialect, _version(cursor, dialect, name), phase)
        for step in steps:
            for statement in _split(step.script):
                cursor.execute(statement)
        if steps:
            version = steps[-1].number
            values = {"version": str(version), "compatible": str(compatible(dialect, version))}
            cursor.execute(loader.statements(dialect)["schema_put"], values)
        cursor.execute("COMMIT")
    except BaseException:
        # Some errors end the transaction by themselves; then ROLLBACK fails, and the first error is the relevant one.
        with contextlib.suppress(Exception):
            cursor.execute("ROLLBACK")
        raise
    return [step.name for step in steps]


def _version(cursor: Cursor, dialect: str, name: str) -> int:
    queries = loader.statements(dialect)
    cursor.execute(queries["schema_exists"])
    if not cursor.fetchone()[0]:
        return 0
    there, code = _found(cursor, queries["meta"], name), versions(dialect)
    problem = mismatch(there, code, name)
    if problem is not None and there.version > code.latest:
        raise problem
    return there.version


# An SQLite file is migrated when it is opened: it belongs to its app. So is a schema on PostgreSQL, if its role may; if
# the tables belong to another role, that role opens the app once. A database of a *newer* version is never migrated. If
# all migrations that this redrive does not have are of the phase ``pre``, it works with that database as it is;
# otherwise `SchemaTooNew` names the version to install.
def _found(cursor: Cursor, meta: str, name: str) -> Schema:
    values: list[str | None] = []
    for key in ("schema", "compatible"):
        cursor.execute(meta, {"key": key})
        row = cursor.fetchone()
        values.append(None if row is None else row[0])
    try:
        return found(*values)
    except StoreOpenError as error:
        raise StoreOpenError(f"{name} cannot be opened: {error}") from None


# The body of a function stands between two ``$$``, and an inner semicolon does not end the statement.
def _split(script: str) -> Iterator[str]:
    """Split a script into statements: one ends where a line, without its comment, ends with a semicolon."""
    lines: list[str] = []
    for line in script.splitlines():
        lines.append(line)
        whole = sum(each.count("$$") for each in lines) % 2 == 0
        if whole and line.partition("--")[0].rstrip().endswith(";"):
            yield "\n".join(lines)
            lines = []
