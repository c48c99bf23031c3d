"""A commit on SQLite that the disk does not confirm: the transaction is undone, and may yet be found after a crash."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.errors import OutcomeUnknown, StoreBusy, StoreError, StoreFull
from redrive.stores.drivers.sqlite.errors import translation
from redrive.stores.drivers.sqlite.settings import SQLiteSettings
from redrive.stores.opening import open_store
from redrive.stores.operations import jobs
from redrive.stores.store import Store
from tests.stores.helpers import new


class Unconfirmed(sqlite3.Cursor):
    """A cursor on a disk that refuses to sync the end of a transaction."""

    ends = ("COMMIT", "RELEASE")

    def execute(self, statement: str, *parameters: Any) -> Any:
        """Run a statement, unless it ends a transaction."""
        if statement.startswith(self.ends):
            message = "disk I/O error"
            raise sqlite3.OperationalError(message)
        return super().execute(statement, *parameters)


class UnconfirmedConnection(sqlite3.Connection):
    """A user's connection to the same disk."""

    def cursor(self, *_: Any) -> Any:
        """Make such a cursor."""
        return Unconfirmed(self)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the file."""
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """Open a store on a disk that refuses to sync."""
    opened = open_store(f"sqlite:///{path}")
    writer = opened._writer
    writer._connection.close()
    writer._connection = sqlite3.connect(
        path, factory=UnconfirmedConnection, isolation_level=None, check_same_thread=False
    )
    yield opened
    opened.close()


@pytest.mark.parametrize("count", [1, 3])
def test_a_commit_that_the_disk_does_not_confirm_is_an_unknown_outcome(store: Store, count: int):
    """Every operation of the group is in doubt, in both colours, and the message names the way out."""

    async def enqueue() -> list[Any]:
        """Enqueue at once, so that one transaction carries all."""
        return await asyncio.gather(*(store.arun(jobs.enqueue([new()])) for _ in range(count)), return_exceptions=True)

    errors = asyncio.run(enqueue())
    with pytest.raises(OutcomeUnknown, match="unknown whether it took effect.*idempotency_key=") as caught:
        store.run(jobs.enqueue([new()]))

    assert [OutcomeUnknown] * count == [OutcomeUnknown if isinstance(e, OutcomeUnknown) else type(e) for e in errors]
    assert isinstance(caught.value, StoreError)


def test_an_enqueue_on_a_users_connection_in_autocommit_mode(path: Path):
    """Without a transaction of the user's, the end of redrive's savepoint is a commit."""
    app = App(f"sqlite:///{path}")

    @app.task
    def note() -> None:
        """Do nothing."""

    app.open()
    connection = sqlite3.connect(path, isolation_level=None, factory=UnconfirmedConnection)
    with pytest.raises(OutcomeUnknown):
        note.enqueue(using=connection)
    connection.close()
    app.close()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (sqlite3.OperationalError("database is locked"), StoreBusy),
        (sqlite3.OperationalError("database or disk is full"), StoreFull),
        (sqlite3.IntegrityError("FOREIGN KEY constraint failed"), StoreError),
        (sqlite3.OperationalError("cannot commit: the transaction was rolled back by SQLite"), StoreError),
    ],
)
def test_a_commit_that_sqlite_refuses_is_certain(path: Path, error: sqlite3.Error, expected: type[StoreError]):
    """Commits that SQLite refuses before it writes the end of the transaction have no effect."""
    found = translation(error, SQLiteSettings(path), commits=True)

    assert isinstance(found, expected)
    assert not isinstance(found, OutcomeUnknown)


def test_a_statement_that_the_disk_refuses_is_certain(path: Path):
    """I/O errors before the commit roll back the transaction."""
    found = translation(sqlite3.OperationalError("disk I/O error"), SQLiteSettings(path))

    assert not isinstance(found, OutcomeUnknown)
