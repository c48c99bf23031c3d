"""A connection for migrations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from redrive.stores.drivers.postgres.errors import translation
from redrive.stores.drivers.postgres.settings import Settings
from redrive.stores.drivers.postgres.statements import compiled, durability
from redrive.stores.drivers.postgres.sync import Connection

__all__ = ["Script"]


class Script:
    """Runs the statements of migrations, as a cursor of any library does.

    They name no schema: in the transaction of a migration it is the only one that is searched. Until a migration takes
    its lock, each answer has the deadline of the connection; from then on none.

    Args:
        connection: in autocommit mode; belongs to this object.
        settings: which database.
    """

    def __init__(self, connection: Connection, settings: Settings) -> None:
        self._connection = connection
        self._settings = settings
        self._cursor = psycopg.RawCursor(connection, row_factory=tuple_row)

    @property
    def look(self) -> tuple[str, ...]:
        """Statements before the version is looked up."""
        return (
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
            f'SET LOCAL search_path TO "{self._settings.schema}"; {durability(self._settings, local=True)}',
        )

    @property
    def lock(self) -> tuple[str, ...]:
        """Statements before anything is changed: of several processes one passes at a time."""
        return (
            f"SELECT pg_advisory_xact_lock(hashtextextended('redrive.{self._settings.schema}', 0))",
            # With IF NOT EXISTS, a role that may not make schemas is refused although there is one.
            f"""DO $$ BEGIN
                IF to_regnamespace('"{self._settings.schema}"') IS NULL THEN
                    CREATE SCHEMA "{self._settings.schema}";
                END IF;
            END $$""",
        )

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> None:
        """Run one statement.

        Args:
            statement: with ``:name`` where it has parameters.
            parameters: by name.

        Raises:
            StoreError: the database refused.
        """
        if statement in self.lock:
            self._connection.patience = math.inf  # others may migrate for long, and so may this one
        try:
            if parameters is None:
                # What a migration says may hold a colon or a dollar of its own.
                self._cursor.execute(statement)
            else:
                wanted = compiled(statement, None)
                self._cursor.execute(wanted.text, [parameters[name] for name in wanted.names])
        except psycopg.Error as error:
            commits = "the migration" if statement == "COMMIT" else None
            raise translation(error, self._settings, opening=True, commits=commits) from error

    def fetchone(self) -> Any:  # noqa: ANN401 - a row
        """Read one row."""
        return self._cursor.fetchone()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
