"""Round trips of an enqueue on PostgreSQL, counted on the wire by a proxy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from redrive.engine.queue import QueueChange
from redrive.engine.records import KeyUntil, NewJob, OnConflict
from redrive.errors import ConfigurationError, DuplicateJob, DuplicateRun
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, jobs, queues
from redrive.stores.operations.runs import start
from redrive.stores.store import Store
from tests import postgres
from tests.proxy import Proxy
from tests.stores.helpers import new
from tests.stores.runs import run

KEYED = replace(new(), key="k", key_until=KeyUntil.END)

#: Enqueues after which every library has prepared the statement.
WARM = 6


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Start a proxy that records what clients send."""
    with Proxy(f"{postgres.server()}/.s.PGSQL.5432") as running:
        yield running


@pytest.fixture
def store(proxy: Proxy) -> Iterator[Store]:
    """Open a store behind the proxy."""
    with postgres.lent(host=proxy.host, port=str(proxy.port)) as url, contextlib.closing(open_store(url)) as opened:
        yield opened


def count(store: Store) -> int:
    """Return the number of jobs that other connections see."""
    return store.run(admin.stats()).unfinished


def trips(proxy: Proxy, call: Callable[[], object]) -> int:
    """Return the number of messages that clients send during a call, each of which waits for its answer."""
    before = len(proxy.requests)
    call()
    return len(proxy.requests) - before


PLAIN = {
    "a job": new(),
    "with a partition": replace(new(), partition="acme"),
    "with tags": replace(new(), tags=("a", "b")),
    "with a delay": new(delay=60),
    "with an expiry": replace(new(), expires=timedelta(hours=1)),
}


@pytest.mark.parametrize("job", PLAIN.values(), ids=list(PLAIN))
def test_one_job_takes_one_round_trip(proxy: Proxy, store: Store, job: NewJob):
    """Jobs without keys are enqueued by one statement, which is its own transaction."""
    with asyncio.Runner() as runner:
        for _ in range(WARM):
            store.run(jobs.enqueue([job]))
            runner.run(store.arun(jobs.enqueue([job])))
        sync = trips(proxy, lambda: store.run(jobs.enqueue([job])))
        aio = trips(proxy, lambda: runner.run(store.arun(jobs.enqueue([job]))))

    assert (1, 1, 2 * WARM + 2) == (sync, aio, count(store))


def test_a_trace_takes_no_further_round_trip(proxy: Proxy, store: Store):
    """Traces are written by the statement that inserts the job."""
    for _ in range(WARM):
        store.run(jobs.enqueue([new()], trace="t"))

    assert 1 == trips(proxy, lambda: store.run(jobs.enqueue([new()], trace="t")))


RUNS = {
    "a run": {},
    "with a partition": {"partition": "acme"},
    "with tags": {"tags": ("a", "b")},
    "with a delay": {"delay": timedelta(seconds=60)},
    "with an expiry": {"expires": timedelta(hours=1)},
}


@pytest.mark.parametrize("options", RUNS.values(), ids=list(RUNS))
def test_the_start_of_a_run_takes_one_round_trip(proxy: Proxy, store: Store, options: dict[str, Any]):
    """Run and job are inserted by one statement; to find the run that has the id takes another one."""
    started = [replace(run(None), job=replace(run().job, **options)) for _ in range(WARM + 1)]
    with asyncio.Runner() as runner:
        for each in started[:-1]:
            store.run(start.start([each], trace="t"))
            runner.run(store.arun(start.start([each])))
        sync = trips(proxy, lambda: store.run(start.start([started[-1]], trace="t")))
        aio = trips(proxy, lambda: runner.run(store.arun(start.start([started[-1]]))))
        for _ in range(WARM):
            store.run(start.start([run("same")]))
        existing = trips(proxy, lambda: store.run(start.start([run("same")])))

    assert (1, 1, 2, 2 * WARM + 3) == (sync, aio, existing, count(store))


# ------------------------------------------------------------------------------------------ connections of the user


@contextlib.contextmanager
def _psycopg(proxy: Proxy, *, autocommit: bool = False) -> Iterator[Any]:
    place = {"host": proxy.host, "port": proxy.port, "user": "postgres", "dbname": "postgres"}
    with psycopg.connect(**place, autocommit=autocommit) as connection:  # type: ignore[arg-type]
        yield connection


@contextlib.contextmanager
def _pipeline(proxy: Proxy) -> Iterator[Any]:
    with _psycopg(proxy) as connection, connection.pipeline():
        yield connection


@contextlib.contextmanager
def _alchemy(proxy: Proxy, *, session: bool) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://postgres@{proxy.host}:{proxy.port}/postgres")
    with Session(engine) if session else engine.connect() as given:
        yield given
    engine.dispose()


SYNC: dict[str, Callable[[Proxy], Any]] = {
    "psycopg": _psycopg,
    "psycopg in autocommit mode": lambda proxy: _psycopg(proxy, autocommit=True),
    "psycopg in a pipeline": _pipeline,
    "sqlalchemy connection": lambda proxy: _alchemy(proxy, session=False),
    "sqlalchemy session": lambda proxy: _alchemy(proxy, session=True),
}


# A pipeline sends its messages when it likes to.
@pytest.mark.parametrize("library", [name for name in SYNC if "pipeline" not in name])
def test_one_job_in_a_transaction_of_the_user_takes_one_round_trip(proxy: Proxy, store: Store, library: str):
    """On a connection of the user the statement also checks the database and notifies the workers."""
    with SYNC[library](proxy) as connection:
        for _ in range(WARM):
            store.run(jobs.enqueue([new()]), using=connection)
        taken = trips(proxy, lambda: store.run(jobs.enqueue([new()]), using=connection))
        before = count(store)
        connection.commit()

    assert (1, 0 if "autocommit" not in library else WARM + 1, WARM + 1) == (taken, before, count(store))


@pytest.mark.parametrize("library", list(SYNC))
def test_a_refused_enqueue_leaves_the_transaction_usable(store: Store, proxy: Proxy, library: str):
    """After a duplicate key, or a job without partition for an ordered queue, earlier writes can be committed."""
    store.run(queues.change("ordered", QueueChange(ordered=True)))
    store.run(jobs.enqueue([KEYED]))
    with SYNC[library](proxy) as connection:
        store.run(jobs.enqueue([new()]), using=connection)
        with pytest.raises(DuplicateJob):
            store.run(jobs.enqueue([KEYED]), using=connection)
        with pytest.raises(ConfigurationError, match="is ordered"):
            store.run(jobs.enqueue([new(queue="ordered")]), using=connection)
        existing = store.run(jobs.enqueue([replace(KEYED, on_conflict=OnConflict.EXISTING)]), using=connection)
        connection.commit()

    assert (frozenset({0}), 2) == (existing.existing, count(store))


@contextlib.asynccontextmanager
async def _asyncpg(proxy: Proxy, *, begun: bool) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(host=proxy.host, port=proxy.port, user="postgres", database="postgres")
    async with connection.transaction() if begun else contextlib.nullcontext():
        yield connection
    await connection.close()


@contextlib.asynccontextmanager
async def _apsycopg(proxy: Proxy) -> AsyncIterator[Any]:
    place = {"host": proxy.host, "port": proxy.port, "user": "postgres", "dbname": "postgres"}
    async with await psycopg.AsyncConnection.connect(**place) as connection:  # type: ignore[arg-type]
        yield connection


@contextlib.asynccontextmanager
async def _aalchemy(proxy: Proxy, library: str) -> AsyncIterator[Any]:
    engine = create_async_engine(f"postgresql+{library}://postgres@{proxy.host}:{proxy.port}/postgres")
    async with AsyncSession(engine) as given:
        yield given
        await given.commit()
    await engine.dispose()


ASYNC: dict[str, Callable[[Proxy], Any]] = {
    "asyncpg": lambda proxy: _asyncpg(proxy, begun=True),
    "asyncpg in autocommit mode": lambda proxy: _asyncpg(proxy, begun=False),
    "psycopg": _apsycopg,
    "sqlalchemy on asyncpg": lambda proxy: _aalchemy(proxy, "asyncpg"),
    "sqlalchemy on psycopg": lambda proxy: _aalchemy(proxy, "psycopg"),
}


@pytest.mark.parametrize("library", list(ASYNC))
def test_one_job_on_an_asynchronous_connection_takes_one_round_trip(proxy: Proxy, store: Store, library: str):
    """Asynchronous connections of the user take one message, too."""

    async def run() -> int:
        """Count the messages of one enqueue."""
        async with ASYNC[library](proxy) as connection:
            for _ in range(WARM):
                await store.arun(jobs.enqueue([new()]), using=connection)
            before = len(proxy.requests)
            await store.arun(jobs.enqueue([new()]), using=connection)
            return len(proxy.requests) - before

    taken = asyncio.run(run())

    assert (1, WARM + 1) == (taken, count(store))


@pytest.mark.parametrize("library", list(SYNC))
def test_a_run_is_started_in_a_transaction_of_the_user(store: Store, proxy: Proxy, library: str):
    """A new one, one that exists, and one that is refused, which leaves the transaction usable."""
    store.run(start.start([run("there")]))
    with SYNC[library](proxy) as connection:
        (new_run,) = store.run(start.start([run("new")]), using=connection)
        (again,) = store.run(start.start([run("new")]), using=connection)
        (there,) = store.run(start.start([run("there")]), using=connection)
        with pytest.raises(DuplicateRun):
            store.run(start.start([run("there", digest=8)]), using=connection)
        connection.commit()

    assert (True, False, False) == (new_run.created, again.created, there.created)
    assert (new_run.job_id, 2) == (again.job_id, count(store))


@pytest.mark.parametrize("library", list(ASYNC))
def test_a_run_is_started_on_an_asynchronous_connection(store: Store, proxy: Proxy, library: str):
    """The same in coroutines."""
    store.run(start.start([run("there")]))

    async def starting() -> list[bool]:
        """Start a run that is new, and two that exist."""
        async with ASYNC[library](proxy) as connection:
            names = ("new", "new", "there")
            return [(await store.arun(start.start([run(name)]), using=connection))[0].created for name in names]

    assert ([True, False, False], 2) == (asyncio.run(starting()), count(store))


def test_a_session_that_the_server_has_ended_is_replaced(store: Store):
    """Idle connections that the server has closed are not used for a statement that commits."""
    with asyncio.Runner() as runner:
        for call in (store.run, lambda operation: runner.run(store.arun(operation))):
            call(jobs.enqueue([new()]))
        with postgres.connect() as other:
            ended = other.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND query LIKE %s",
                [f'%"{_schema(store)}"%'],
            ).fetchall()
        assert [(True,), (True,)] == ended
        for call in (store.run, lambda operation: runner.run(store.arun(operation))):
            call(jobs.enqueue([new()]))

    assert 4 == count(store)


def _schema(store: Store) -> str:
    return store.url.partition("schema=")[2].partition("&")[0]
