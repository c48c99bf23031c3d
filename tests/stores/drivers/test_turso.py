"""Turso: the traps of pyturso, each one closed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import turso

from redrive.errors import ConfigurationError, StoreBusy, StoreMismatch, StoreOpenError
from redrive.stores.drivers import files
from redrive.stores.drivers.sqlite import SQLiteSettings
from redrive.stores.drivers.sqlite.errors import translation
from redrive.stores.drivers.turso import connection as adapter
from redrive.stores.opening import open_store
from redrive.stores.operations import jobs
from redrive.stores.store import Store
from tests.stores.helpers import new

OPEN = "from redrive.stores.opening import open_store; open_store({url!r}).close(); print('opened')"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a file that does not exist yet."""
    return tmp_path / "jobs.db"


def opened(path: Path) -> Store:
    """Open a Turso store on a file."""
    return open_store(f"turso:///{path}")


def in_another_process(url: str) -> subprocess.CompletedProcess[str]:
    """Open a store and close it again, elsewhere."""
    return subprocess.run([sys.executable, "-c", OPEN.format(url=url)], capture_output=True, text=True, check=False)


def test_unfetched_rows_are_written(path: Path):
    """Statements with RETURNING write all rows, even if no caller fetches them."""
    connection = adapter.connect(SQLiteSettings(path))
    connection.execute("CREATE TABLE t (a INTEGER)")
    connection.execute("INSERT INTO t VALUES (1), (2), (3) RETURNING a")
    with_none_fetched = connection.execute("SELECT count(*) FROM t").fetchone()
    connection.close()

    assert (3,) == with_none_fetched


def test_pyturso_itself_still_loses_unfetched_rows(path: Path):
    """Of itself pyturso writes no row of a RETURNING that is not fetched; once it does, the adapter can be simpler."""
    connection = turso.connect(str(path), isolation_level=None)
    connection.execute("CREATE TABLE t (a INTEGER)")
    connection.execute("INSERT INTO t VALUES (1), (2), (3) RETURNING a").close()

    assert [(0,)] == connection.execute("SELECT count(*) FROM t").fetchall()


class BusySnapshot(Exception):
    """What pyturso raises: an exception of its own, and no ``turso.Error``."""


@pytest.mark.parametrize(
    "error",
    [
        BusySnapshot("database snapshot is stale"),
        turso.OperationalError("Database is busy (Busy)"),
        turso.DatabaseError("Write-write conflict"),
        turso.DatabaseError("File is locked by another process"),
    ],
    ids=str,
)
def test_every_form_of_being_busy_is_store_busy(error: Exception):
    """All errors of pyturso about another writer become `StoreBusy`."""
    seen = adapter.as_sqlite(error)

    assert isinstance(seen, sqlite3.Error)
    assert isinstance(translation(seen, SQLiteSettings(Path("jobs.db"))), StoreBusy)


def test_a_broken_constraint_is_an_integrity_error():
    """Constraint violations are integrity errors."""
    assert isinstance(adapter.as_sqlite(turso.IntegrityError("UNIQUE")), sqlite3.IntegrityError)


def test_other_errors_are_not_translated():
    """Errors that are not the database's are not translated."""
    error = TypeError("not a mapping")

    assert error is adapter.as_sqlite(error)


def test_a_second_process_is_refused_with_the_reason(path: Path):
    """While one process has the file open another one is refused, and learns what to do."""
    store = opened(path)
    tried = in_another_process(f"turso:///{path}")
    store.close()

    assert 0 != tried.returncode
    assert "is open in another process, and a Turso file belongs to one process at a time" in tried.stderr


def test_sqlite_in_another_process_is_refused(path: Path):
    """While Turso has the file open SQLite cannot open it elsewhere: the two would corrupt it."""
    store = opened(path)
    tried = in_another_process(f"sqlite:///{path}?busy_timeout=100ms")
    store.close()

    assert 0 != tried.returncode
    assert "locked" in tried.stderr


@pytest.mark.parametrize("first", ["turso", "sqlite"])
def test_both_libraries_in_one_process_are_refused(path: Path, first: str):
    """Within one process no lock keeps the two apart, so redrive does, whichever came first."""
    second = "sqlite" if first == "turso" else "turso"
    store = open_store(f"{first}:///{path}")
    with pytest.raises(StoreOpenError) as refusal:
        open_store(f"{second}:///{path}")
    store.close()
    open_store(f"{second}:///{path}").close()

    assert "would corrupt the file" in str(refusal.value)


def test_two_turso_stores_on_one_file_are_refused(path: Path):
    """Two Apps on one Turso file are refused; one may follow the other."""
    store = opened(path)
    with pytest.raises(StoreOpenError, match="Use one App for it"):
        opened(path)
    store.close()

    opened(path).close()


def test_closing_frees_the_file_at_once(path: Path):
    """After `close` another process can open the file: pyturso alone keeps its lock until the object is collected."""
    store = opened(path)
    store.run(jobs.enqueue([new()]))
    store.close()

    assert "opened\n" == in_another_process(f"turso:///{path}").stdout


def test_closing_twice_is_allowed(path: Path):
    """Second calls of `close` do not release a file that was opened since."""
    first = opened(path)
    first.close()
    second = opened(path)
    first.close()
    with pytest.raises(StoreOpenError):
        files.register(path, files.SQLITE)
    second.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_the_child_of_a_fork_is_refused(path: Path):
    """Forked children that use their parent's store are refused."""
    store = opened(path)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.run(jobs.enqueue([new()]))
            os.write(write, b"enqueued")
        except StoreOpenError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    output = os.read(read, 1000).decode()
    store.close()

    assert "Turso does not survive a fork" in output


def test_an_enqueue_joins_a_transaction_of_the_user(path: Path):
    """Jobs on a user's connection exist if and only if it commits; no id is given twice."""
    store = opened(path)
    users = turso.connect(str(path))
    users.execute("CREATE TABLE orders (id INTEGER)")
    users.commit()
    users.execute("INSERT INTO orders VALUES (1)")
    (lost,) = store.run(jobs.enqueue([new()]), using=users)
    users.rollback()
    (kept,) = store.run(jobs.enqueue([new()]), using=users)
    users.commit()
    numbers = users.execute("SELECT id FROM redrive_jobs").fetchall()
    users.close()
    store.close()

    assert [(kept,)] == numbers
    assert lost < kept


def test_a_connection_of_another_library_is_refused(path: Path):
    """Connections of sqlite3 do not join Turso's transactions."""
    store = opened(path)
    with pytest.raises(StoreMismatch, match=r"takes a turso\.Connection"):
        store.run(jobs.enqueue([new()]), using=sqlite3.connect(":memory:"))
    store.close()


def test_a_connection_to_another_file_is_refused(path: Path, tmp_path: Path):
    """Connections to another file are refused."""
    store = opened(path)
    with pytest.raises(StoreMismatch, match="only a connection to the same file"):
        store.run(jobs.enqueue([new()]), using=turso.connect(str(tmp_path / "other.db"), isolation_level=None))
    store.close()


def test_transactional_completion_is_refused(path: Path):
    """Transactional completion needs a second writer, and is refused with the reason."""
    store = opened(path)
    with pytest.raises(ConfigurationError, match="needs a second writer"):
        store.begin()
    store.close()


def test_a_closed_connection_raises(path: Path):
    """Closed connections raise the same error as those of sqlite3."""
    connection = adapter.connect(SQLiteSettings(path))
    connection.close()
    connection.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connection.execute("SELECT 1")
