"""The connection for migrations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from redrive.stores.drivers.postgres.errors import translation
from redrive.stores.drivers.postgres.settings import PostgresSettings
from redrive.stores.drivers.postgres.statements import compiled, durability
from redrive.stores.drivers.postgres.sync import Connection


class MigrationCursor:
    """A cursor for the statements of migrations, which name no schema: the transaction searches only one.

    Until a migration takes its lock, each answer has the deadline of the connection; after that none.
    """

    def __init__(self, connection: Connection, settings: PostgresSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._cursor = psycopg.RawCursor(connection, row_factory=tuple_row)

    @property
    def look(self) -> tuple[str, ...]:
        """Return the statements before the version is read."""
        return (
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
            f'SET LOCAL search_path TO "{self._settings.schema}"; {durability(self._settings, local=True)}',
        )

    @property
    def lock(self) -> tuple[str, ...]:
        """Return the statements before the first write: one process migrates at a time."""
        return (
            f"SELECT pg_advisory_xact_lock(hashtextextended('redrive.{self._settings.schema}', 0))",
            # CREATE SCHEMA IF NOT EXISTS fails for a role that may not create schemas even if the schema exists.
            f"""DO $$ BEGIN
                IF to_regnamespace('"{self._settings.schema}"') IS NULL THEN
                    CREATE SCHEMA "{self._settings.schema}";
                END IF;
            END $$""",
        )

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> None:
        """Execute one statement, with ``:name`` where it has parameters; raise `StoreError` if that fails."""
        if statement in self.lock:
            # Other processes may migrate for long, and so may this one.
            self._connection.patience = math.inf
        try:
            if parameters is None:
                # A statement of a migration may contain a colon or a dollar.
                self._cursor.execute(statement)
            else:
                wanted = compiled(statement, None)
                self._cursor.execute(wanted.text, [parameters[name] for name in wanted.names])
        except psycopg.Error as error:
            commits = "the migration" if statement == "COMMIT" else None
            raise translation(error, self._settings, opening=True, commits=commits) from error

    def fetchone(self) -> Any:  # noqa: ANN401 - a row
        """Return one row."""
        return self._cursor.fetchone()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
