"""SQLite files that cannot be opened: the errors, and the absence of leftovers."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.errors import SchemaTooNew, StoreBusy, StoreError, StoreOpenError
from redrive.stores import migrate
from redrive.stores.drivers.sqlite import SQLiteSettings, SQLiteStore, errors, store
from redrive.stores.opening import open_store
from redrive.stores.operations import jobs
from tests.stores.helpers import new


def url(path: Path, options: str = "") -> str:
    """Return the URL of a file."""
    return f"sqlite:///{path}{options}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the database."""
    return tmp_path / "jobs.db"


def refusal(path: Path, error: type[StoreError] = StoreOpenError) -> str:
    """Return the error of opening this path."""
    with pytest.raises(error) as refused:
        open_store(url(path)).close()
    return str(refused.value)


def test_a_missing_directory_is_named(tmp_path: Path):
    """Paths in a missing directory are refused with its name, and no file is created."""
    path = tmp_path / "no" / "jobs.db"

    assert f"{path} cannot be opened: the directory {path.parent} does not exist; make it first" == refusal(path)
    assert not path.parent.exists()


def test_a_directory_is_not_a_database(tmp_path: Path):
    """Paths of directories are refused as such."""
    assert f"{tmp_path} cannot be opened: it is a directory; give the path of a file" == refusal(tmp_path)


def test_another_file_is_not_a_database(path: Path):
    """Files that are not SQLite databases are refused and not changed."""
    path.write_text("Dear Sir or Madam, " * 100)

    assert f"{path} exists but is not an SQLite database: give another path" == refusal(path)
    assert path.read_text().startswith("Dear Sir")


def test_an_empty_file_becomes_a_database(path: Path):
    """Empty files, as ``mktemp`` creates them, are databases without tables."""
    path.touch()
    opened = open_store(url(path))

    assert [1] == opened.run(jobs.enqueue([new()])).ids
    opened.close()


def test_a_read_only_file_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch):
    """Databases that SQLite can only read cannot be stores.

    Permissions do not bind the administrator, who may run this test; so SQLite opens the file for reading."""
    sqlite3.connect(path).close()
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda file, **options: connect(f"file:{file}?mode=ro", uri=True, **options)
    )

    assert refusal(path).startswith(f"{path} cannot be written: ")


@pytest.mark.parametrize("exists", [False, True])
def test_a_permission_error_names_the_path(path: Path, exists: bool, monkeypatch: pytest.MonkeyPatch):
    """Without write permission, the message names the file, or the directory of a new one.

    The error is built from SQLite's error and the result of `os.access`, which is faked for the same reason."""
    if exists:
        path.touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    refused = errors.translation(sqlite3.OperationalError("unable to open database file"), SQLiteSettings(path))

    expected = f"{path} cannot be opened: this user may not write to {path if exists else path.parent}"
    assert expected == str(refused)


def test_an_unexplained_refusal_mentions_permissions(path: Path):
    """Errors without a visible cause name the permissions to check."""
    refused = errors.translation(sqlite3.OperationalError("attempt to write a readonly database"), SQLiteSettings(path))

    expected = f"{path} cannot be written: the operating system refused; are the permissions of the directory right?"
    assert expected == str(refused)


def test_a_database_in_memory_can_fail_too():
    """Errors of a database in memory do not mention files."""
    refused = errors.translation(sqlite3.OperationalError("unable to open database file"), SQLiteSettings(None))

    assert "the database in memory cannot be opened: out of memory" == str(refused)


@pytest.mark.parametrize(("opening", "expected"), [(True, StoreOpenError), (False, StoreError)])
def test_other_errors_keep_their_text(opening: bool, expected: type[StoreError]):
    """Unforeseen errors have SQLite's text and the name of the database."""
    error = errors.translation(
        sqlite3.OperationalError("disk I/O error"), SQLiteSettings(Path("a.db")), opening=opening
    )

    assert (expected, "a.db: disk I/O error") == (type(error), str(error))


def test_a_newer_schema_is_not_touched(path: Path):
    """Databases that a newer redrive has migrated are refused and not changed."""
    open_store(url(path)).close()
    newer = migrate.versions("sqlite").latest + 1
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE redrive_meta SET value = ? WHERE key IN ('schema', 'compatible')", (str(newer),))
    connection.close()

    assert refusal(path, SchemaTooNew).startswith(
        f"{path} has schema {newer}, and this redrive supports schemas up to "
    )


@pytest.mark.parametrize("exists", [False, True])
def test_a_file_that_is_locked_for_good_cannot_be_opened(path: Path, exists: bool):
    """If another program holds the lock for longer than the busy timeout, opening raises `StoreBusy`."""
    if exists:
        open_store(url(path)).close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    if exists:  # a store that is up to date is only read: what holds it open is a change of the schema under way
        holder.execute("UPDATE redrive_meta SET value = '0' WHERE key = 'schema'")
        holder.execute("COMMIT")
        holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreBusy) as refused:
        open_store(url(path, "?busy_timeout=30ms"))
    holder.close()

    expected = f"{path} is locked by another process or connection for more than 0.03 s: end what writes to it"
    assert expected == str(refused.value)


def test_a_refused_opening_leaves_no_thread(tmp_path: Path):
    """Stores that cannot be opened leave no thread."""
    before = threading.enumerate()
    for _ in range(3):
        refusal(tmp_path)

    # Others, such as the test runner, may start a thread meanwhile.
    after = [thread.name for thread in threading.enumerate() if thread not in before]
    assert [] == [name for name in after if name.startswith("redrive-")]


def test_an_opening_that_fails_halfway_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch):
    """If one of several connections cannot be opened, the others are closed, and the next call tries again."""
    connect, made = store.connect, []

    def failing(settings: SQLiteSettings) -> sqlite3.Connection:
        if len(made) == 2:
            made.append(None)
            error = "unable to open database file"
            raise sqlite3.OperationalError(error)
        made.append(connect(settings))
        return made[-1]

    monkeypatch.setattr(store, "connect", failing)
    opened = SQLiteStore(f"sqlite:///{path}", SQLiteSettings(path))
    before = set(threading.enumerate())
    with pytest.raises(StoreOpenError):
        opened.version()

    assert set() == set(threading.enumerate()) - before
    for connection in made[:2]:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")
    assert isinstance(opened.version(), int)
    opened.close()


# ---------------------------------------------------------------------------------------------------------- permissions


@pytest.fixture
def lavish() -> Iterator[None]:
    """Set a umask that lets every user read and write new files."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(scheme: str, path: Path) -> dict[str, int]:
    """Return the permissions of the files of an open database."""
    store = open_store(f"{scheme}:///{path}")
    store.run(jobs.enqueue([new()]))
    found = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    store.close()
    return found


FILES = {"sqlite": ["jobs.db", "jobs.db-shm", "jobs.db-wal"], "turso": ["jobs.db", "jobs.db-wal"]}
"""What a database consists of while it is open."""


@pytest.mark.parametrize("scheme", FILES)
@pytest.mark.usefixtures("lavish")
def test_a_new_database_belongs_to_its_owner_alone(path: Path, scheme: str):
    """No other user can read what jobs carry: neither in the database nor in the files beside it."""
    assert dict.fromkeys(FILES[scheme], 0o600) == dict(sorted(modes(scheme, path).items()))


@pytest.mark.parametrize("scheme", FILES)
@pytest.mark.parametrize("mode", [0o660, 0o644])
def test_the_permissions_of_an_existing_file_are_kept(path: Path, scheme: str, mode: int):
    """Existing files keep their permissions, and the files beside them get the same."""
    path.touch()
    path.chmod(mode)

    assert dict.fromkeys(FILES[scheme], mode) == dict(sorted(modes(scheme, path).items()))


@pytest.mark.usefixtures("lavish")
def test_a_link_to_a_file_that_does_not_exist_leads_to_a_private_one(tmp_path: Path):
    """Opening a link creates the file behind it."""
    link, target = tmp_path / "link.db", tmp_path / "target.db"
    link.symlink_to(target)
    open_store(url(link)).close()

    assert 0o600 == stat.S_IMODE(target.stat().st_mode)
