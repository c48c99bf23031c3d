"""Enqueueing in the user's own transaction: the job exists if and only if that transaction commits."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.engine.outcome import Succeeded
from redrive.errors import StoreBusy, StoreError, StoreMismatch
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, jobs, leases
from redrive.stores.store import Store
from tests.stores.helpers import T0, Harness, new

BEGUN = {"deferred": "", "begin": None, "immediate": "IMMEDIATE", "exclusive": "EXCLUSIVE"}
"""How a connection of the user can come to be in a transaction: by itself, or by its own BEGIN."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the database."""
    return tmp_path / "app.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """Open a store beside a table of the user."""
    opened = open_store(f"sqlite:///{path}?synchronous=normal")
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    connection.commit()
    connection.close()
    yield opened
    opened.close()


@pytest.fixture
def connect(path: Path, store: Store):
    """Makes connections of the user's, and closes them."""
    made: list[sqlite3.Connection] = []

    def make(**options) -> sqlite3.Connection:
        made.append(sqlite3.connect(path, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def seen(store: Store) -> tuple[int, int]:
    """Return the numbers of jobs and orders that other connections see."""

    def count(cursor: sqlite3.Cursor) -> int:
        return cursor.execute("SELECT count(*) FROM orders").fetchone()[0]

    return store.run(admin.stats()).due, store.script(count)


@pytest.mark.parametrize(("mode", "outcome"), list(itertools.product(BEGUN, ["commit", "rollback"])))
def test_the_job_is_committed_or_rolled_back_with_the_transaction(store: Store, connect, mode: str, outcome: str):
    """Whatever the isolation level, the order and its job are there together after a commit, and neither otherwise."""
    connection = connect(isolation_level=BEGUN[mode])
    if BEGUN[mode] is None:
        connection.execute("BEGIN")
    connection.execute("INSERT INTO orders VALUES (7)")
    (number,) = store.run(jobs.enqueue([new()]), using=connection)
    assert connection.in_transaction
    getattr(connection, outcome)()

    assert 1 == number
    assert ((1, 1) if outcome == "commit" else (0, 0)) == seen(store)


@pytest.mark.parametrize("mode", BEGUN)
def test_the_job_is_invisible_before_the_commit(store: Store, connect, mode: str):
    """Before the user commits no worker sees the job; where sqlite3 would begin a transaction, we do (D27)."""
    connection = connect(isolation_level=BEGUN[mode])
    if BEGUN[mode] is None:
        connection.execute("BEGIN")
    store.run(jobs.enqueue([new()]), using=connection)

    assert connection.in_transaction
    assert (0, 0) == (store.run(admin.stats()).due, len(store.run(admin.select(admin.Filter()))))
    connection.commit()
    assert 1 == store.run(admin.stats()).due


def test_without_a_transaction_in_autocommit_the_job_exists_at_once(store: Store, connect):
    """On a connection in autocommit mode, outside of a transaction, the enqueue is a transaction of its own."""
    connection = connect(isolation_level=None)
    store.run(jobs.enqueue([new(), new()]), using=connection)

    assert not connection.in_transaction
    assert (2, 0) == seen(store)


def test_the_autocommit_mode_of_python_3_12_is_respected(store: Store, path: Path):
    """With ``autocommit=True``, which makes commit() a no-op, no transaction is left open."""

    class Autocommit(sqlite3.Connection):
        """A connection with the autocommit attribute of Python 3.12."""

        autocommit = True

    connection = sqlite3.connect(path, factory=Autocommit)
    store.run(jobs.enqueue([new()]), using=connection)

    assert not connection.in_transaction
    assert (1, 0) == seen(store)
    connection.close()


def test_a_context_manager_commits_both(store: Store, connect):
    """With sqlite3's own ``with connection`` the order and its job are committed, or rolled back, together."""
    connection = connect()
    with connection:
        connection.execute("INSERT INTO orders VALUES (1)")
        store.run(jobs.enqueue([new()]), using=connection)

    def fails() -> None:
        with connection:
            connection.execute("INSERT INTO orders VALUES (2)")
            store.run(jobs.enqueue([new()]), using=connection)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert (1, 1) == seen(store)


def test_a_rolled_back_id_is_not_reused(store: Store, connect, path: Path):
    """Jobs do not get the id of a job that was rolled back, whichever way either was enqueued."""
    connection = connect()
    beside = open_store(f"sqlite:///{path}")
    given: list[int] = []
    for enqueue in (store.run, beside.run, lambda operation: store.run(operation, using=connection)):
        given += store.run(jobs.enqueue([new(), new()]), using=connection)
        connection.rollback()
        given += enqueue(jobs.enqueue([new()]))
        connection.rollback()
    beside.close()

    assert sorted(set(given)) == given


def test_a_rolled_back_savepoint_removes_the_job(store: Store, connect):
    """Rolling back a nested savepoint removes its job and keeps the earlier ones."""
    connection = connect(isolation_level=None)
    connection.execute("BEGIN")
    store.run(jobs.enqueue([new("first")]), using=connection)
    connection.execute("SAVEPOINT redrive")
    store.run(jobs.enqueue([new("second")]), using=connection)
    connection.execute("ROLLBACK TO redrive")
    connection.execute("RELEASE redrive")
    store.run(jobs.enqueue([new("third")]), using=connection)
    connection.execute("COMMIT")

    assert ["third", "first"] == [job.task for job in store.run(admin.select(admin.Filter()))]


def test_a_refused_enqueue_leaves_the_transaction_usable(store: Store, connect):
    """Failed enqueues roll back only their own writes, and the user's transaction can commit."""
    connection = connect()
    connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(StoreError):
        store.run(jobs.enqueue([new(), new(queue="")]), using=connection)
    connection.execute("INSERT INTO orders VALUES (2)")
    connection.commit()

    assert (0, 2) == seen(store)


@pytest.mark.parametrize(
    "factory",
    [sqlite3.Row, lambda cursor, row: dict(zip([each[0] for each in cursor.description], row, strict=True))],
    ids=["Row", "dict"],
)
def test_the_user_s_row_factory_is_ignored(store: Store, connect, factory):
    """Row factories of the user do not affect an enqueue, and are kept."""
    connection = connect()
    connection.row_factory = factory
    assert [1] == store.run(jobs.enqueue([new()]), using=connection).ids
    connection.commit()

    assert factory is connection.row_factory
    assert 1 == connection.execute("SELECT 1 AS one").fetchone()["one"]


def test_the_user_s_text_factory_is_ignored(store: Store, connect):
    """Connections that read text as bytes can enqueue."""
    connection = connect()
    connection.text_factory = bytes
    assert [1] == store.run(jobs.enqueue([new()]), using=connection).ids
    connection.commit()

    assert (1, 0) == seen(store)


def test_a_settle_can_share_the_user_s_transaction_too(path: Path, connect):
    """Settles can be committed together with the user's rows, or not at all."""
    store = Harness(f"sqlite:///{path}", "sync")
    claim = store.take(new())
    connection = connect()
    fates = []
    for end in (connection.rollback, connection.commit):
        connection.execute("INSERT INTO orders VALUES (1)")
        store.raw.run(leases.settle([leases.Ending(claim, Succeeded(b"1"), 0.0)], now=T0), using=connection)
        end()
        fates.append((store.job(claim.id).state.value, seen(store.raw)[1]))

    assert [("running", 0), ("succeeded", 1)] == fates
    store.close()


# ---------------------------------------------------------------------------------------------------- refused


def refusal(store: Store, connection: object, error: type[StoreError] = StoreMismatch) -> str:
    """Return the error of an enqueue with this connection."""
    with pytest.raises(error) as refused:
        store.run(jobs.enqueue([new()]), using=connection)
    return str(refused.value)


def test_a_connection_to_another_file_is_refused(store: Store, path: Path, tmp_path: Path):
    """Connections to another database are refused with both names, and no transaction begins on them."""
    other = sqlite3.connect(tmp_path / "other.db")
    text = refusal(store, other)

    assert text == (
        f"using= is a connection to {tmp_path / 'other.db'}, but the app's jobs are in {path}: "
        "only a connection to the same file can enqueue in its transaction"
    )
    assert not other.in_transaction
    other.close()


def test_a_connection_to_memory_is_refused(store: Store):
    """Connections to a database in memory are refused."""
    other = sqlite3.connect(":memory:")

    assert refusal(store, other).startswith(
        "using= is a connection to a database in memory, but the app's jobs are in "
    )
    other.close()


def test_a_store_in_memory_has_no_connections_but_its_own(path: Path):
    """Stores in memory refuse every connection of the user."""
    store, other = open_store("memory://"), sqlite3.connect(path)
    text = refusal(store, other)

    assert f"using= is a connection to {path}, but the app's jobs are in the database in memory" in text
    other.close()
    store.close()


def test_a_store_with_a_deleted_file_is_another_database(store: Store, path: Path, tmp_path: Path):
    """After the file of the store was removed, every connection belongs to another database."""
    other = sqlite3.connect(tmp_path / "other.db")
    path.unlink()

    assert refusal(store, other).startswith("using= is a connection to ")
    other.close()


def test_a_link_to_the_file_is_the_file(store: Store, path: Path, tmp_path: Path):
    """Connections by another name of the same file belong to the same database."""
    (tmp_path / "link").symlink_to(path.parent)
    connection = sqlite3.connect(tmp_path / "link" / path.name)
    store.run(jobs.enqueue([new()]), using=connection)
    connection.commit()
    connection.close()

    assert (1, 0) == seen(store)


def test_an_object_that_is_no_connection_is_refused(store: Store, path: Path):
    """Something that is not a connection of sqlite3 is refused, and its type is named."""
    assert f"using= takes a sqlite3.Connection to {path}, not a dict" == refusal(store, {})


def test_a_closed_connection_is_an_error_of_the_store(store: Store, connect):
    """Closed connections raise a `StoreError`."""
    connection = connect()
    connection.close()

    assert "Cannot operate on a closed database" in refusal(store, connection, StoreError)


def test_a_transaction_with_an_old_snapshot_raises_an_error_with_a_remedy(store: Store, connect):
    """If another connection wrote after the user's transaction had begun to read, the message names the remedy."""
    connection = connect(isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM orders").fetchall()
    store.run(jobs.enqueue([new()]))
    text = refusal(store, connection, StoreBusy)

    assert "was written after this transaction had begun to read it: repeat it, after BEGIN IMMEDIATE" in text
    connection.execute("ROLLBACK")
