"""Migrations of a database to the schema of this version of redrive.

Migrations are numbered files. Each runs once, in order, all in one transaction that holds the write lock: of several
processes that start at once one migrates and the others find it done. The version is a row of ``redrive_meta``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from redrive.errors import StoreOpenError
from redrive.stores.dialects import loader
from redrive.stores.operations.schema import Schema, found, mismatch


class Cursor(Protocol):
    """The methods of a database cursor that a migration uses."""

    def execute(self, statement: str, parameters: Any = (), /) -> Any:  # noqa: ANN401 - as in DB-API 2.0
        """Execute one statement."""
        ...

    def fetchone(self) -> Any:  # noqa: ANN401 - as in DB-API 2.0
        """Return one row."""
        ...


def latest(dialect: str) -> int:
    """Return the schema version of this redrive: the number of the last migration."""
    return loader.migrations(dialect)[-1].number


# The result is the number of the last migration of the phase ``post``; 1 if there is none.
def compatible(dialect: str) -> int:
    """Return the oldest schema version with code that can work with the schema of this redrive."""
    return max((step.number for step in loader.migrations(dialect) if step.phase == "post"), default=1)


def migrate(
    cursor: Cursor, dialect: str, name: str, *, look: Sequence[str] = (), lock: Sequence[str] = ("BEGIN IMMEDIATE",)
) -> list[str]:
    """Run the migrations that a database lacks.

    Returns:
        The names of the migrations that were run.

    Raises:
        SchemaTooNew: the database was migrated by a newer redrive, and this one cannot work with it.
        StoreOpenError: there is a table ``redrive_meta`` of another program.
    """
    for statement in look:
        cursor.execute(statement)
    if _version(cursor, dialect, name) >= latest(dialect):
        return []
    for statement in lock:
        cursor.execute(statement)
    try:
        version = _version(cursor, dialect, name)
        steps = [step for step in loader.migrations(dialect) if step.number > version]
        for step in steps:
            for statement in _split(step.script):
                cursor.execute(statement)
        if steps:
            values = {"version": str(latest(dialect)), "compatible": str(compatible(dialect))}
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
    there = _found(cursor, queries["meta"], name)
    problem = mismatch(there, latest(dialect), name)
    if problem is not None and there.version > latest(dialect):
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
