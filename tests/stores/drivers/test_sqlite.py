"""SQLite: what it promises, how it ends, what it survives."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.engine.records import Filter
from redrive.errors import StoreBusy, StoreClosed, StoreError, StoreOpenError
from redrive.stores.drivers.sqlite import SQLiteSettings, SQLiteStore
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, jobs
from redrive.stores.store import Store
from redrive.testing import VirtualClock
from tests.stores.helpers import T0, Harness, new

ROOT = Path(__file__).parents[3]


def url(path: Path, options: str = "") -> str:
    """Return the URL of a file."""
    return f"sqlite:///{path}{options}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the database."""
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path):
    """Open a store."""
    opened = open_store(url(path))
    yield opened
    opened.close()


@pytest.fixture
def foreign(path: Path, store: Store):
    """Open another connection to the same file, in autocommit mode."""
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


# ---------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(("options", "level"), [("", 2), ("?synchronous=full", 2), ("?synchronous=normal", 1)])
def test_the_promised_durability_is_set(path: Path, options: str, level: int):
    """Writing connections use WAL and the URL's level of ``synchronous``, FULL by default."""
    opened = open_store(url(path, options))
    pragmas = opened.script(lambda cursor: [_pragma(cursor, name) for name in ("synchronous", "journal_mode")])
    opened.close()

    assert [level, "wal"] == pragmas


def _pragma(cursor: sqlite3.Cursor, name: str) -> object:
    return cursor.execute(f"PRAGMA {name}").fetchone()[0]


def test_references_are_enforced(store: Store):
    """Jobs cannot name a missing policy: the writing connection enforces foreign keys."""
    assert 1 == store.script(lambda cursor: _pragma(cursor, "foreign_keys"))


# ---------------------------------------------------------------------------------------------------- closing


def test_a_closed_store_is_named_in_the_error(path: Path, store: Store):
    """Whatever is asked of a closed store is refused, with its name."""
    store.close()
    for use in (
        lambda: store.run(jobs.enqueue([new()])),
        lambda: store.run(admin.stats()),
        store.version,
    ):
        with pytest.raises(StoreClosed) as refused:
            use()
        assert f"{path} has been closed" == str(refused.value)


@pytest.mark.parametrize("where", [Filter(after_id=2**70), Filter(task="a \ud800 surrogate")])
def test_values_that_no_database_stores_are_refused(store: Store, where: Filter):
    """Numbers of more than 64 bits and lone surrogates are errors of the store, and not of Python."""
    with pytest.raises(StoreError, match="a value cannot be stored: "):
        store.run(admin.select(where))


def test_closing_twice_is_allowed(store: Store):
    """Closing a store is idempotent."""
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.version()


def test_a_driver_that_was_never_used_can_be_closed(path: Path):
    """Stores open no connection before their first use, and can be closed without one."""
    unused = SQLiteStore(f"sqlite:///{path}", SQLiteSettings(path))
    unused.close()

    assert not path.exists()


def test_operations_queued_before_the_close_are_finished(store: Store):
    """Closing finishes what was asked before: no acknowledged enqueue is dropped."""
    futures = [store.submit(jobs.enqueue([new()])) for _ in range(50)]
    store.close()

    assert list(range(1, 51)) == [number for future in futures for number in future.result(0)]


def test_calls_during_the_close_are_refused(store: Store):
    """Callers with a reference to a closed connection thread are refused and do not wait forever."""
    writer, _ = store._threads()
    store.close()
    with pytest.raises(StoreClosed):
        writer.submit(jobs.enqueue([new()]))
    with pytest.raises(StoreClosed):
        writer.call(lambda cursor: cursor)


def test_after_the_last_close_there_is_one_file(path: Path, store: Store):
    """Closing the last connection writes the log back, so that one file has all data and can be copied."""
    store.run(jobs.enqueue([new()]))
    store.close()

    assert [path] == list(path.parent.iterdir())


# ---------------------------------------------------------------------------------------------------- others


def test_a_foreign_writer_makes_the_store_busy(path: Path, foreign: sqlite3.Connection):
    """While another program writes for longer than the busy timeout, writes are refused and reads succeed."""
    impatient = open_store(url(path, "?busy_timeout=30ms"))
    foreign.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy) as refused:
        impatient.run(jobs.enqueue([new()]))

    assert f"{path} is locked by another process or connection for more than 0.03 s: end what writes to it" == str(
        refused.value
    )
    assert 0 == impatient.run(admin.stats()).due
    foreign.execute("ROLLBACK")
    assert [1] == impatient.run(jobs.enqueue([new()])).ids
    impatient.close()


def test_dropped_tables_are_named_in_the_error(store: Store, foreign: sqlite3.Connection, path: Path):
    """If redrive's tables were dropped, the error names them."""
    foreign.execute("DROP TABLE redrive_results")
    with pytest.raises(StoreOpenError) as refused:
        store.run(jobs.result(1))

    assert f"{path} has no redrive tables; redrive db migrate APP creates them (no such table: redrive_results)" == str(
        refused.value
    )


def test_every_commit_changes_the_version(store: Store, foreign: sqlite3.Connection):
    """Commits of the store and of other connections change the version."""
    versions = [store.version(), store.version()]
    store.run(jobs.enqueue([new()]))
    versions += [store.version(), store.version()]
    foreign.execute("CREATE TABLE theirs (id)")
    versions += [store.version(), store.version()]

    assert [True, False, True, False, True] == [a == b for a, b in itertools.pairwise(versions)]


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_the_version_stays_when_nothing_changes(path: Path, kind: str):
    """Looking, and a claim that finds nothing, do not change the version: a worker would wake itself for ever."""
    store = Harness(url(path) if kind == "file" else "memory://", "sync")
    store.put(new(delay=60))
    worker = store.me
    before = store.raw.version()
    store.claim(worker=worker)
    store.do(admin.stats())
    store.sweep()

    assert before == store.raw.version()
    store.put()
    assert before != store.raw.version()
    store.close()


def test_the_clock_of_the_database_is_that_of_the_machine(store: Store):
    """Without an injected instant a job is enqueued at the present of the machine, in UTC."""
    (number,) = store.run(jobs.enqueue([new()]))
    enqueued_at = store.run(jobs.get(number)).enqueued_at
    with contextlib.closing(sqlite3.connect(":memory:")) as other:
        (now,) = other.execute("SELECT unixepoch('now')").fetchone()

    assert abs(now - enqueued_at.timestamp()) < 60


FORK = """
import os, sys
from redrive.stores.operations import admin, jobs
from redrive.stores.opening import open_store
from tests.stores.helpers import new

store = open_store(sys.argv[1])
store.run(jobs.enqueue([new("parent")]))
child = os.fork()
if child == 0:
    if sys.argv[2] == "uses it":
        store.run(jobs.enqueue([new("child")]))
        store.version()
    store.close()
    sys.exit(0)
_, status = os.waitpid(child, 0)
store.run(jobs.enqueue([new("parent")]))
print(os.waitstatus_to_exitcode(status), store.run(admin.stats()).due, store.run(admin.stats(task="child")).due)
store.close()
"""


@pytest.mark.parametrize(("child", "output"), [("uses it", "0 3 1\n"), ("only closes it", "0 2 0\n")])
def test_a_forked_child_has_its_own_connections(path: Path, child: str, output: str):
    """After a fork both sides go on enqueueing, and the child's farewell closes nothing of its parent's."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, url(path), child]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert (output, "") == (ended.stdout, ended.stderr)


def test_an_enqueue_survives_a_new_opening(path: Path):
    """Acknowledged jobs exist when the file is opened again, and so does the uid of the database."""
    first = open_store(url(path))
    first.run(jobs.enqueue([new("send")], now=T0))
    uid = first.run(admin.identify("uid"))
    first.close()
    second = open_store(url(path))

    assert ("send", T0) == ((job := second.run(jobs.get(1))).task, job.enqueued_at)
    assert uid == second.run(admin.identify("uid"))
    second.close()


def test_databases_have_different_names(tmp_path: Path):
    """Each database has its own uid, since it is part of every idempotency key."""
    stores = [open_store(url(tmp_path / name)) for name in ("a.db", "b.db")]
    uids = {each.run(admin.identify("uid")) for each in stores}
    for each in stores:
        each.close()

    assert 2 == len(uids)


def test_an_unexpected_error_reaches_its_caller(store: Store):
    """An error in an operation is raised for its caller only."""
    with pytest.raises(AttributeError):
        store.run(jobs.enqueue([None]))

    assert [1] == store.run(jobs.enqueue([new()])).ids


def test_instants_of_all_years_are_kept(store: Store):
    """Instants long before and after our time are kept to the microsecond."""
    early, late = T0.replace(year=1), T0.replace(year=9999, microsecond=999_999)
    store.run(jobs.enqueue([new()], now=early))
    store.run(jobs.enqueue([new()], now=late))

    assert [early, late] == [store.run(jobs.get(number)).scheduled_at for number in (1, 2)]


def test_the_file_is_not_polled_without_a_waiter(tmp_path: Path):
    """Busy workers do not poll; with a free slot they are notified of the changes since then."""
    store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal")
    idle, states = asyncio.Event(), []

    async def run() -> None:
        """Commit while no caller waits, and wait then."""
        news = store.watch(VirtualClock(), idle=idle)
        await anext(news)
        second = asyncio.ensure_future(anext(news))
        for _ in range(3):
            await store.arun(jobs.enqueue([new()]))
        states.append(second.done())
        idle.set()
        await second
        states.append(second.done())
        await news.aclose()

    asyncio.run(run())
    store.close()

    assert [False, True] == states
