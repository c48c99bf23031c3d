"""SQLite's log: it is cut off when it was large, and a transaction that prevents that is reported."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.stores.drivers.sqlite import connection as driver
from redrive.stores.opening import open_store
from redrive.stores.operations import jobs
from redrive.stores.store import Store
from tests.stores.helpers import new

SMALL = 1_000_000
"""The limit of the log in these tests, in bytes."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the database."""
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Open a store with a log limit of a megabyte."""
    monkeypatch.setattr(driver, "LOG_LIMIT", SMALL)
    monkeypatch.setattr(driver, "LOG_PATIENCE", 1)
    opened = open_store(f"sqlite:///{path}?synchronous=normal")
    yield opened
    opened.close()


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Open a long read transaction of another program, such as a backup."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM redrive_jobs").fetchall()
        yield


def fill(store: Store) -> None:
    """Write six megabytes, in several transactions."""
    for _ in range(6):
        store.run(jobs.enqueue([new(payload=b"x" * 100_000) for _ in range(10)]))


def size(path: Path) -> int:
    """Return the size of the log."""
    return Path(f"{path}-wal").stat().st_size


def trim(store: Store) -> int:
    """Let a worker's duty look once."""
    return asyncio.run(store.trim_log())


def test_a_log_that_starts_again_is_cut_to_its_limit(store: Store, path: Path):
    """Without a worker, writes after a long transaction truncate the log that has grown."""
    with reading(path):
        fill(store)
    grown = size(path)
    for _ in range(2):  # one copies the log into the database, the next one starts it again
        store.run(jobs.enqueue([new()]))

    assert grown > 6 * SMALL
    assert size(path) <= SMALL


def test_a_large_log_is_emptied(store: Store, path: Path):
    """Truncate a large log, and report nothing."""
    with reading(path):
        fill(store)

    assert (0, 0) == (trim(store), size(path))


def test_a_log_that_a_transaction_reads_from_is_reported(store: Store, path: Path):
    """As long as a transaction prevents it, the duty answers how large the log is, and writing goes on."""
    with reading(path):
        fill(store)
        left = trim(store)
        (number,) = store.run(jobs.enqueue([new()])).ids

        assert left > 6 * SMALL
        assert 61 == number
    assert 0 == trim(store)


def test_a_small_log_is_left_alone(store: Store, path: Path):
    """Small logs are not truncated: a commit would have to create them again."""
    store.run(jobs.enqueue([new()]))
    before = size(path)

    assert (0, before) == (trim(store), size(path))
    assert before > 0


def test_a_truncation_restores_the_busy_timeout(store: Store, path: Path):
    """After a truncation the connection has the busy timeout of the URL again."""
    with reading(path):
        fill(store)
        trim(store)

    assert [(10_000,)] == store.script(lambda cursor: cursor.execute("PRAGMA busy_timeout").fetchall())


@pytest.mark.parametrize("scheme", ["memory://", "turso"])
def test_a_store_without_such_a_log_has_nothing_to_trim(path: Path, scheme: str):
    """There is nothing to do, and nothing to report."""
    store = open_store(scheme if "//" in scheme else f"{scheme}:///{path}")
    assert 0 == trim(store)
    store.close()
