"""Enqueueing in the user's own transaction on PostgreSQL: the job exists if and only if that one commits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from redrive import App
from redrive.errors import StoreError, StoreMismatch
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, jobs
from redrive.stores.store import Store
from tests import postgres
from tests.stores.helpers import new


@pytest.fixture
def store() -> Iterator[Store]:
    """Open an empty store."""
    with postgres.lent() as url, contextlib.closing(open_store(url)) as opened:
        yield opened


def count(store: Store) -> int:
    """Return the number of jobs that other connections see."""
    return store.run(admin.stats()).unfinished


# ------------------------------------------------------------------------------------------------- synchronous ones


@contextlib.contextmanager
def _psycopg() -> Iterator[tuple[Any, Any]]:
    with postgres.connect(autocommit=False) as connection:
        yield connection, connection


@contextlib.contextmanager
def _alchemy_connection() -> Iterator[tuple[Any, Any]]:
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: postgres.connect(autocommit=False))
    with engine.connect() as connection:
        yield connection, connection
    engine.dispose()


@contextlib.contextmanager
def _alchemy_session() -> Iterator[tuple[Any, Any]]:
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: postgres.connect(autocommit=False))
    with Session(engine) as session:
        yield session, session
    engine.dispose()


SYNC = {"psycopg": _psycopg, "sqlalchemy connection": _alchemy_connection, "sqlalchemy session": _alchemy_session}


@pytest.fixture(params=list(SYNC))
def mine(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return an unused connection of each library, with ``commit`` and ``rollback``."""
    with SYNC[request.param]() as (connection, _):
        yield connection


@pytest.mark.case("D27")
def test_the_job_exists_after_the_commit(store: Store, mine: Any):
    """Other connections see the job after the commit, also if the enqueue was the first statement."""
    store.run(jobs.enqueue([new()]), using=mine)
    before = count(store)
    mine.commit()

    assert (0, 1) == (before, count(store))


@pytest.mark.case("D27")
def test_the_job_does_not_exist_after_a_rollback(store: Store, mine: Any):
    """Enqueues that are rolled back leave no job."""
    store.run(jobs.enqueue([new()]), using=mine)
    mine.rollback()

    assert 0 == count(store)


def test_an_error_leaves_the_transaction_usable(store: Store, mine: Any):
    """If the enqueue is refused, the user's transaction continues with its earlier writes."""
    store.run(jobs.enqueue([new()]), using=mine)
    with pytest.raises(StoreError):
        store.run(jobs.enqueue([new(queue="")]), using=mine)
    store.run(jobs.enqueue([new()]), using=mine)
    mine.commit()

    assert 2 == count(store)


@pytest.mark.parametrize("many", [1, 2])
def test_a_text_that_no_database_stores_is_refused(store: Store, mine: Any, many: int):
    """A lone surrogate is an error of the store, in one statement and in several; the transaction continues."""
    store.run(jobs.enqueue([new()]), using=mine)
    with pytest.raises(StoreError, match="surrogates not allowed"):
        store.run(jobs.enqueue([new("a\ud800")] * many), using=mine)
    mine.commit()

    assert 1 == count(store)


def test_a_connection_in_autocommit_mode_stores_at_once(store: Store):
    """Outside of a transaction the enqueue is one of its own; inside of a block it is a part of that."""
    with postgres.connect() as connection:
        store.run(jobs.enqueue([new()]), using=connection)
        seen = [count(store)]
        with contextlib.suppress(RuntimeError), connection.transaction():
            store.run(jobs.enqueue([new()]), using=connection)
            raise RuntimeError
        seen.append(count(store))

    assert [1, 1] == seen


def test_the_row_factory_of_the_user_is_kept(store: Store):
    """Connections with a row factory and a cursor factory can be used, and keep them."""
    with postgres.connect() as connection:
        connection.row_factory = psycopg.rows.dict_row
        connection.cursor_factory = psycopg.ClientCursor
        placed = store.run(jobs.enqueue([new()]), using=connection)
        row = connection.execute("SELECT 1 AS one").fetchone()

    assert ([1], {"one": 1}) == (placed.ids, row)


def test_another_database_is_refused(store: Store):
    """Connections to a database without these tables, or with those of another app, enqueue no job."""
    with postgres.connect() as connection:
        connection.execute(f"CREATE DATABASE {(name := postgres.fresh())}")
    other = open_store(postgres.url(schema="same", database=name))
    here = open_store(postgres.url(schema="same"))
    with postgres.connect(database=name) as connection:
        with pytest.raises(StoreMismatch, match="using= is a connection to another database than PostgreSQL"):
            here.run(jobs.enqueue([new()]), using=connection)
        with pytest.raises(StoreMismatch, match="using= is a connection to another database than PostgreSQL"):
            store.run(jobs.enqueue([new()]), using=connection)
        other.run(jobs.enqueue([new()]), using=connection)
    counts = [count(each) for each in (here, other)]
    for each in (here, other):
        each.close()

    assert [0, 1] == counts


@pytest.mark.parametrize(("given", "what"), [({}, "builtins.dict"), (object(), "builtins.object")])
def test_an_object_that_is_no_connection_is_refused(store: Store, given: object, what: str):
    """Errors name the type of the argument and the accepted types."""
    with pytest.raises(StoreMismatch, match=f"not a {what}; enqueue takes synchronous connections"):
        store.run(jobs.enqueue([new()]), using=given)
    with pytest.raises(StoreMismatch, match=f"not a {what}; enqueue takes synchronous connections"):
        asyncio.run(store.arun(jobs.enqueue([new()]), using=given))


@pytest.mark.case("D27")
def test_rolled_back_enqueues_notify_no_listener(store: Store):
    """Listeners are notified of committed enqueues only."""
    with postgres.connect() as listener, postgres.connect(autocommit=False) as connection:
        listener.execute(f'LISTEN "redrive.{_schema(store)}"')
        store.run(jobs.enqueue([new()]), using=connection)
        connection.rollback()
        silent = list(listener.notifies(timeout=0, stop_after=1))
        store.run(jobs.enqueue([new()]), using=connection)
        store.run(jobs.enqueue([new()]), using=connection)
        connection.commit()
        received = [each.payload for each in listener.notifies(timeout=5, stop_after=1)]
        received += [each.payload for each in listener.notifies(timeout=0)]

    assert ([], [""]) == (silent, received)


def _schema(store: Store) -> str:
    return store.url.partition("schema=")[2].partition("&")[0]


# ------------------------------------------------------------------------------------------------------------- Django


@pytest.mark.case("D27")
def test_django_s_connection_serves(store: Store):
    """In ``atomic()`` the job is a part of Django's transaction; outside it is stored at once."""
    from django.conf import settings
    from django.db import transaction
    from django.db.utils import ConnectionHandler

    if not settings.configured:
        settings.configure(USE_TZ=False)
    server = {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "postgres"}
    connection = ConnectionHandler({"default": server | {"HOST": postgres.server()}})["default"]
    store.run(jobs.enqueue([new()]), using=connection)
    seen = [count(store)]
    with contextlib.suppress(RuntimeError), _atomic(transaction, connection):
        store.run(jobs.enqueue([new()]), using=connection)
        raise RuntimeError
    seen.append(count(store))
    with _atomic(transaction, connection):
        store.run(jobs.enqueue([new()]), using=connection)
        seen.append(count(store))
    seen.append(count(store))
    connection.close()

    assert [1, 1, 1, 2] == seen


@contextlib.contextmanager
def _atomic(transaction: Any, connection: Any) -> Iterator[None]:
    """``transaction.atomic``, which looks its connection up by name, on this one."""
    block = transaction.Atomic("default", True, False)
    found, transaction.get_connection = transaction.get_connection, lambda _: connection
    try:
        with block:
            yield
    finally:
        transaction.get_connection = found


# ------------------------------------------------------------------------------------------------ asynchronous ones

Block = Callable[[Any], Awaitable[None]]


@contextlib.asynccontextmanager
async def _asyncpg() -> AsyncIterator[Any]:
    connection = await asyncpg.connect(host=postgres.server(), user="postgres", database="postgres")
    begun = connection.transaction()
    await begun.start()
    yield connection, begun.commit, begun.rollback
    await connection.close()


@contextlib.asynccontextmanager
async def _asyncpg_pool() -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(host=postgres.server(), user="postgres", database="postgres", min_size=1) as pool,
        pool.acquire() as connection,
    ):
        begun = connection.transaction()
        await begun.start()
        yield connection, begun.commit, begun.rollback


@contextlib.asynccontextmanager
async def _apsycopg() -> AsyncIterator[Any]:
    where = {"host": postgres.server(), "user": "postgres", "dbname": "postgres"}
    async with await psycopg.AsyncConnection.connect(**where) as connection:
        yield connection, connection.commit, connection.rollback


@contextlib.asynccontextmanager
async def _alchemy(library: str, *, session: bool) -> AsyncIterator[Any]:
    engine = create_async_engine(f"postgresql+{library}://postgres@/postgres?host={postgres.server()}")
    if session:
        async with AsyncSession(engine) as given:
            yield given, given.commit, given.rollback
    else:
        async with engine.connect() as given:
            yield given, given.commit, given.rollback
    await engine.dispose()


ASYNC: dict[str, Callable[[], Any]] = {
    "asyncpg": _asyncpg,
    "asyncpg pool": _asyncpg_pool,
    "psycopg": _apsycopg,
    "sqlalchemy connection on asyncpg": lambda: _alchemy("asyncpg", session=False),
    "sqlalchemy session on asyncpg": lambda: _alchemy("asyncpg", session=True),
    "sqlalchemy session on psycopg": lambda: _alchemy("psycopg", session=True),
}


@pytest.mark.case("D27")
@pytest.mark.parametrize("library", list(ASYNC))
def test_an_asynchronous_connection_serves(store: Store, library: str):
    """Jobs exist after the commit only; an error rolls back only its own enqueue."""
    seen = []

    async def enqueue(*, commit: bool) -> None:
        """Enqueue in a transaction, with a refusal in the middle of it."""
        async with ASYNC[library]() as (connection, committed, rolled_back):
            await store.arun(jobs.enqueue([new()]), using=connection)
            with pytest.raises(StoreError):
                await store.arun(jobs.enqueue([new(queue="")]), using=connection)
            await store.arun(jobs.enqueue([new()]), using=connection)
            seen.append(count(store))
            await (committed if commit else rolled_back)()

    asyncio.run(enqueue(commit=False))
    seen.append(count(store))
    asyncio.run(enqueue(commit=True))
    seen.append(count(store))

    assert [0, 0, 0, 2] == seen


@pytest.mark.parametrize("library", list(ASYNC))
@pytest.mark.parametrize("many", [1, 2])
def test_a_text_that_no_database_stores_is_refused_in_coroutines(store: Store, library: str, many: int):
    """A lone surrogate is an error of the store, in one statement and in several; the transaction continues."""

    async def enqueue() -> None:
        """Enqueue twice in a transaction, and commit it."""
        async with ASYNC[library]() as (connection, committed, _):
            await store.arun(jobs.enqueue([new()]), using=connection)
            with pytest.raises(StoreError, match="surrogates not allowed"):
                await store.arun(jobs.enqueue([new("a\ud800")] * many), using=connection)
            await committed()

    asyncio.run(enqueue())

    assert 1 == count(store)


# ------------------------------------------------------------------------------------------------- two-phase commits


def enqueued(app: App, connection: Any) -> None:
    """Enqueue a job in a transaction."""
    app.task(name="pay")(_nothing).enqueue(using=connection)


def published(app: App, connection: Any) -> None:
    """Publish an event in a transaction."""
    app.topic("payments", int).publish(7, using=connection)


def started(app: App, connection: Any) -> None:
    """Start a run in a transaction."""
    app.task(name="pay")(_nothing).enqueue_many([()] * 2, using=connection)


def updated(app: App, connection: Any) -> None:
    """Refresh an item in a transaction."""
    quotes = app.refresh("Refresh daily at 9 AM", name="quotes")(_nothing)
    quotes.track("a")
    quotes.update("a", using=connection)


def _nothing() -> None:
    """Do nothing."""


def prepare(act: Callable[[App, Any], None], options: str) -> bool:
    """Return True if a transaction in which something was enqueued can be prepared, and leave none behind."""
    app = App(postgres.url() + options)
    app.open()
    try:
        with postgres.connect(autocommit=False) as connection:
            (most,) = connection.execute("SHOW max_prepared_transactions").fetchone() or ("0",)
            if most == "0":
                pytest.skip("the server takes no prepared transactions (max_prepared_transactions = 0)")
            act(app, connection)
            try:
                connection.execute("PREPARE TRANSACTION 'redrive test'")
            except psycopg.errors.FeatureNotSupported as error:
                assert "NOTIFY" in str(error)  # noqa: PT017 - the other way has no error
                return False
        with postgres.connect() as connection:
            connection.execute("COMMIT PREPARED 'redrive test'")
        return True
    finally:
        app.close()


@pytest.mark.parametrize("act", [enqueued, published, started, updated])
def test_a_transaction_with_notify_cannot_be_prepared(act: Callable[[App, Any], None]):
    """PostgreSQL refuses PREPARE TRANSACTION after the NOTIFY that wakes workers; without it the transaction can be."""
    assert not prepare(act, "")
    assert prepare(act, "&notify=off")
