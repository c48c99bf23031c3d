"""A database file that is deleted or replaced while it is open: nothing is acknowledged any more."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redrive import App
from redrive.errors import StoreError
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, jobs
from redrive.stores.query import Operation, Query
from redrive.stores.store import Store
from tests.runtime.helpers import PATIENCE, until, working
from tests.stores.helpers import new


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the database."""
    return tmp_path / "jobs.db"


@pytest.fixture(params=["sqlite", "turso"])
def store(path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    """Open a store with a job."""
    opened = open_store(f"{request.param}:///{path}")
    opened.run(jobs.enqueue([new()]))
    yield opened
    opened.close()


def delete(path: Path) -> None:
    """Delete the file."""
    path.unlink()


def replace(path: Path) -> None:
    """Put a copy in its place, as the restore of a backup does."""
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").replace(path)


CHANGES = {"was deleted or moved": delete, "was replaced by another file": replace}
"""What may happen to the file, by the text of the error."""


@pytest.mark.parametrize("change", CHANGES)
def test_no_operation_succeeds_after_the_file_was_removed(store: Store, path: Path, change: str):
    """Writing, reading and watching fail with an error that names the cause and the remedy."""
    CHANGES[change](path)
    calls: list[Callable[[], object]] = [
        lambda: store.run(jobs.enqueue([new()])),
        lambda: asyncio.run(store.arun(jobs.enqueue([new()]))),
        lambda: store.run(admin.stats()),
    ]
    if not store.alone:
        calls += [store.version, store.begin, lambda: asyncio.run(store.abegin())]
    for call in calls:
        with pytest.raises(StoreError, match=rf"jobs\.db {change}.*Stop every process"):
            call()


@pytest.mark.parametrize("change", CHANGES)
def test_a_commit_to_a_removed_file_fails(store: Store, path: Path, change: str):
    """Check the file again after the transaction has ended."""
    enqueuing = jobs.enqueue([new()])

    def steps():
        placed = yield from enqueuing.steps
        CHANGES[change](path)
        return placed

    with pytest.raises(StoreError, match=change):
        store.run(Operation("enqueue", steps(), writes=True))


def test_a_handlers_transaction_on_a_removed_file_fails(path: Path):
    """Commits of handlers' transactions fail, and so do operations on the user's connection."""
    store = open_store(f"sqlite:///{path}")
    with contextlib.closing(sqlite3.connect(path)) as own:
        loan = store.begin()
        loan.run(jobs.enqueue([new()]))
        replace(path)
        with pytest.raises(StoreError, match="was replaced"):
            loan.commit()
        with pytest.raises(StoreError, match="was replaced"):
            store.run(jobs.enqueue([new()]), using=own)
    store.close()


def test_a_file_that_is_moved_back_is_used_again(store: Store, path: Path):
    """Files that are moved back are the same files, so refused operations may be repeated."""
    path.rename(path.with_name("elsewhere.db"))
    with pytest.raises(StoreError, match="was deleted or moved"):
        store.run(jobs.enqueue([new()]))
    path.with_name("elsewhere.db").rename(path)

    assert [2] == store.run(jobs.enqueue([new()])).ids


def test_no_empty_database_is_made_in_the_place_of_a_lost_one(path: Path):
    """Connections that are opened again, as after a fork, open no other file."""
    store = open_store(f"sqlite:///{path}")
    for thread in (store._writer, store._reader):
        assert thread.pause(PATIENCE, close=True)
        thread.resume()
    path.unlink()
    with pytest.raises(StoreError, match="was deleted or moved"):
        store.run(jobs.enqueue([new()]))
    with pytest.raises(StoreError, match="was deleted or moved"):
        store.run(Operation("look", iter_of("meta"), writes=False))
    store.close()

    assert not path.exists()


def iter_of(name: str):
    """Run one statement."""
    return (yield Query(name, {"key": "uid"}))


def test_a_worker_logs_that_the_file_was_removed(path: Path, caplog: pytest.LogCaptureFixture):
    """Workers without jobs log the error at their heartbeat and when they end."""
    app = App(f"sqlite:///{path}", heartbeat_every="50ms", lease_for="200ms")
    cause = f"the heartbeat waits: {path} was deleted or moved while it was open"

    async def run() -> None:
        """Delete the file of a running worker, and wait for the line."""
        async with working(app):
            await until(lambda: bool(app.workers.select()))
            delete(path)
            # A busy machine makes a heartbeat late, which is logged too.
            await until(lambda: any(line.startswith(cause) for line in caplog.messages))

    with pytest.raises(StoreError, match="was deleted or moved"):
        asyncio.run(run())
    app.close()
