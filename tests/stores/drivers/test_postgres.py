"""PostgreSQL stores: connections that die are replaced, and errors name a remedy."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from redrive import App
from redrive.clock import SystemClock
from redrive.engine.frozen import FrozenPolicy
from redrive.engine.lifecycle import State
from redrive.errors import ConfigurationError, StoreBusy, StoreClosed, StoreError, StoreOpenError, StoreUnreachable
from redrive.policy import Policy
from redrive.stores import opening
from redrive.stores.drivers.postgres import PostgresSettings, aio, listener, parse_url, sync
from redrive.stores.drivers.postgres.script import full_script
from redrive.stores.drivers.postgres.servers import Address, Servers
from redrive.stores.drivers.postgres.statements import compiled, prepared
from redrive.stores.opening import aopen_store, open_store
from redrive.stores.operations import admin, clock, jobs, leases, workers
from redrive.stores.query import Operation, Query, reads, writes
from redrive.stores.store import MAY_WAIT, Store
from tests import postgres
from tests.proxy import PATIENCE
from tests.stores.helpers import LONG, T0, new


@pytest.fixture
def store() -> Iterator[Store]:
    """Open an empty store."""
    with postgres.lent() as url, contextlib.closing(open_store(url)) as opened:
        yield opened


@pytest.fixture(params=["sync", "async"])
def both(request: pytest.FixtureRequest, store: Store) -> Iterator[Any]:
    """Return functions that run an operation of the store, one for each colour, always on the same loop."""
    with asyncio.Runner() as runner:
        yield store.run if request.param == "sync" else lambda operation: runner.run(store.arun(operation))
        store.close()


def schema(store: Store) -> str:
    """Return the schema of a store."""
    return store.url.partition("schema=")[2].partition("&")[0]


def kill_sessions() -> None:
    """End all sessions of the server but those of the tests themselves, as a restart of the server does."""
    others = "pid <> pg_backend_pid() AND application_name <> %s"
    with postgres.connect() as connection:
        statement = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}"  # noqa: S608 - made here
        connection.execute(statement, (postgres.ADMINISTRATION,))


# ------------------------------------------------------------------------------------------------------------- opening


def test_a_coroutine_migrates_a_new_database():
    """aopen() creates the tables, or opens the ones that there are."""
    app = App(postgres.url())
    asyncio.run(app.aopen())
    again = App(app.url)
    asyncio.run(again.aopen())

    assert app.uid == again.uid
    app.close()
    again.close()


def test_sessions_speak_utf_8(monkeypatch: pytest.MonkeyPatch):
    """Texts are UTF-8, also if the database or the environment has another encoding, such as SQL_ASCII."""
    monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    with contextlib.closing(sync.connect(parse_url(postgres.url()))) as connection:
        assert "utf-8" == connection.info.encoding
        assert ("ü",) == connection.execute("SELECT 'ü'::text").fetchone()


def test_an_unreachable_server_raises_the_same_error_in_a_coroutine(tmp_path: Path):
    """Opening an app in a coroutine raises the error of open()."""
    app = App(f"postgresql://postgres@/postgres?host={tmp_path}")
    errors = []
    for opens in (app.open, lambda: asyncio.run(app.aopen())):
        with pytest.raises(StoreError) as caught:
            opens()
        errors.append((caught.type, str(caught.value).partition("(")[0]))
        assert "No such file or directory" in str(caught.value)

    assert errors[0] == errors[1]


def test_coroutines_need_no_psycopg(store: Store):
    """Workers start without the import of psycopg, which takes longer than its first claim."""
    program = f"""
import asyncio, sys
from redrive import App

app = App({store.url!r})

@app.task
async def send() -> None:
    pass

async def main() -> None:
    await app.aopen()
    await send.aenqueue()

asyncio.run(main())
assert "asyncpg" in sys.modules
assert "psycopg" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    """The error names what to install."""
    monkeypatch.setattr(opening, "find_spec", lambda name: None if name == "psycopg" else True)
    with pytest.raises(ConfigurationError, match=r'pip install "redrive\[postgres\]" \(missing: psycopg\)'):
        open_store(postgres.url())


# ------------------------------------------------------------------------------------------------------------ settings


def servers(*order: str | tuple[str, int]) -> Servers:
    """Return the servers with these addresses."""
    return Servers(tuple(Address(each) if isinstance(each, str) else Address(*each) for each in order))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "postgresql://u@h/d",
            PostgresSettings("postgresql://u@/d", "PostgreSQL h/d (schema redrive)", servers=servers("h")),
        ),
        (
            "postgres://u:p@h:1,i:2/d",
            PostgresSettings(
                "postgresql://u:p@/d", "PostgreSQL h:1,i:2/d (schema redrive)", servers=servers(("h", 1), ("i", 2))
            ),
        ),
        (
            "postgresql://u@h/d?schema=jobs&sslmode=require",
            PostgresSettings(
                "postgresql://u@/d?sslmode=require", "PostgreSQL h/d (schema jobs)", "jobs", servers=servers("h")
            ),
        ),
        (
            "postgresql:///d?host=%2Frun%2Fpg&notify=off&pool=3&timeout=5s",
            PostgresSettings(
                "postgresql:///d",
                "PostgreSQL /run/pg/d (schema redrive)",
                servers=servers("/run/pg"),
                notify=False,
                pool=3,
                timeout=timedelta(seconds=5),
            ),
        ),
        (
            "postgresql://u@h:6432/d?pgbouncer=on&direct=h:5432",
            PostgresSettings(
                "postgresql://u@/d",
                "PostgreSQL h:6432/d (schema redrive)",
                pgbouncer=True,
                servers=servers(("h", 6432)),
                direct=servers("h"),
            ),
        ),
    ],
)
def test_a_url_names_the_database_and_settings(url: str, expected: PostgresSettings):
    """Our settings are taken out of the URL, those of the libraries stay in it, and no password is in the name."""
    assert expected == parse_url(url)


@pytest.mark.parametrize(
    "setting",
    [
        "schema=a%20b",
        "schema=",
        "schema=pg_x",
        "schema=a;b",
        "notify=yes",
        "pool=0",
        "pool=x",
        "timeout=0s",
        "typo=1",
        "direct=%40",
        "direct=a,,b",
        "connect_timeout=1999ms",
        "connect_timeout=1",
    ],
)
def test_an_unknown_setting_is_refused(setting: str):
    """Unknown settings and invalid values are refused, without the password in the message."""
    with pytest.raises(ConfigurationError, match=r"the store URL of PostgreSQL h/d has a setting") as refused:
        open_store(f"postgresql://u:secret@h/d?{setting}")

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "listens"), [("pgbouncer=on", False), ("pgbouncer=on&direct=h", True), ("notify=off", True)]
)
def test_no_worker_listens_through_a_session_pool(url: str, listens: bool):
    """Sessions that change with every transaction can neither listen nor hold a lock."""
    assert listens == parse_url(f"postgresql://u@h/d?{url}").listens


# ---------------------------------------------------------------------------------------------------------- statements


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1 -- of :what", ("SELECT 1", ())),
        ("SELECT :a::bigint, :b, :a", ("SELECT $1::bigint, $2, $1", ("a", "b"))),
        ("FROM redrive_jobs AS j, redrive_lanes", ('FROM "s".redrive_jobs AS j, "s".redrive_lanes', ())),
        ("nextval('redrive_job_ids'::regclass)", ("nextval('\"s\".redrive_job_ids'::regclass)", ())),
    ],
)
def test_a_statement_is_rewritten_for_its_library(text: str, expected: tuple[str, tuple[str, ...]]):
    """Parameters have numbers, a name its number wherever it stands, and our tables the name of the schema."""
    made = compiled(text, "s")

    assert expected == (made.text, made.names)


# ------------------------------------------------------------------------------------------------------------- opening


def test_an_unreachable_server_is_named():
    """Errors name the database, without its password."""
    with pytest.raises(StoreUnreachable, match="PostgreSQL 127.0.0.1:1/d .* cannot be reached") as refused:
        open_store("postgresql://u:secret@127.0.0.1:1/d")

    assert "secret" not in str(refused.value)


def test_a_missing_database_is_reported():
    """Opening a missing database does not create it."""
    with pytest.raises(StoreOpenError, match='database "nowhere" does not exist'):
        open_store(postgres.url(database="nowhere"))


@pytest.mark.parametrize("migrated", [True, False])
def test_a_role_without_usage_of_the_schema_has_one_error(migrated: bool):
    """However the store is opened, and whatever is done first, the error names the schema and the right that lacks."""
    role, name = postgres.fresh(), postgres.fresh()
    mine = postgres.url(name)
    theirs = mine.replace("postgresql://postgres@", f"postgresql://{role}@")
    open_store(mine).close()
    with postgres.connect() as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
    with (
        pytest.raises(StoreOpenError, match=f"GRANT USAGE ON SCHEMA {name} TO the role"),
        contextlib.closing(open_store(theirs, migrated=migrated)) as store,
    ):
        store.run(admin.stats())
    with pytest.raises(StoreOpenError, match=f"may not use the schema {name}"):
        asyncio.run(aopen_store(theirs))


def test_a_role_without_the_right_to_create_tables_is_refused():
    """Without the right to make a schema the first opening is refused; once the owner has opened it, the role works."""
    role, name = postgres.fresh(), postgres.fresh()
    mine = postgres.url(name)
    theirs = mine.replace("postgresql://postgres@", f"postgresql://{role}@")
    with postgres.connect() as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        with pytest.raises(StoreOpenError, match="this role may not do that: permission denied for database"):
            open_store(theirs)
        open_store(mine).close()
        connection.execute(f"GRANT USAGE ON SCHEMA {name} TO {role}")
        connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name} TO {role}")
        connection.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {name} TO {role}")
    store = open_store(theirs)
    store.run(jobs.enqueue([new()]))
    due = store.run(admin.stats()).due
    store.close()

    assert 1 == due


def test_many_that_open_a_new_schema_at_once_all_succeed():
    """Processes that start at once agree: one creates the tables, and the others find them."""
    url, errors = postgres.url(), []
    start = threading.Barrier(6)

    def run() -> None:
        """Open it together with the others."""
        start.wait()
        try:
            open_store(url).close()
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert [] == errors


def test_two_schemas_are_separate():
    """Apps in different schemas of one database have nothing in common."""
    one, other = open_store(postgres.url()), open_store(postgres.url())
    one.run(jobs.enqueue([new()]))
    uids = {each.run(admin.identify("uid")) for each in (one, other)}
    counts = [each.run(admin.stats()).due for each in (one, other)]
    for each in (one, other):
        each.close()

    assert ([1, 0], 2) == (counts, len(uids))


# ------------------------------------------------------------------------------------------------------------- running


@writes
def _nap(number: int):
    yield Query("hasten", {"id": number, "now": T0})
    message = "the operation itself"
    raise RuntimeError(message)


def test_an_operation_that_raises_is_rolled_back(store: Store, both: Any):
    """Operations that fail are rolled back, and their connections serve the next operation."""
    (number,) = store.run(jobs.enqueue([new(delay=60)], now=T0)).ids
    with pytest.raises(RuntimeError, match="the operation itself"):
        both(_nap(number))

    assert T0 + timedelta(seconds=60) == both(jobs.get(number)).scheduled_at


def test_connections_that_died_while_idle_are_replaced(both: Any):
    """After a restart of the server the next operation works as if nothing had happened."""
    both(jobs.enqueue([new()]))
    kill_sessions()

    assert 1 == both(admin.stats()).due


@reads
def _while(act: Callable[[], object]):
    """Run something while a connection is in use."""
    rows = yield Query("clock", {"now": None}, into=clock.Instant)
    act()
    return rows[0].now


def test_a_value_that_is_refused_costs_one_connection(store: Store):
    """A value that no connection takes is not tried on all idle ones, which would be closed."""
    runner = store._blocking()
    store.run(_while(lambda: store.run(admin.stats())))
    before = len(runner._idle)
    with pytest.raises(StoreError):
        store.run(jobs.enqueue([new(queue="a\ud800")] * 2))

    assert (2, 1) == (before, len(runner._idle))


def test_a_value_that_is_refused_costs_one_connection_of_coroutines(store: Store):
    """A value that no connection takes is not tried on all idle ones, which would be closed."""

    async def run() -> tuple[int, int]:
        """Return the numbers of idle connections before and after."""
        await asyncio.gather(*(store.arun(admin.stats()) for _ in range(2)))
        pool = next(iter(store._aio._pools.values()))
        before = len(pool._idle)
        with pytest.raises(StoreError):
            await store.arun(jobs.enqueue([new(queue="a\ud800")] * 2))
        return before, len(pool._idle)

    assert (2, 1) == asyncio.run(run())


@reads
def _killed():
    rows = yield Query("clock", {"now": None}, into=clock.Instant)
    kill_sessions()
    return (yield Query("clock", {"now": rows[0].now}, into=clock.Instant))


def test_an_operation_that_loses_its_connection_raises(both: Any):
    """Operations that lose their connection are not repeated; the next one has a new connection."""
    with pytest.raises(StoreUnreachable):
        both(_killed())

    assert 0 == both(admin.stats()).due


def stopped(store: Store, number: int, text: str) -> psycopg.Connection:
    """Start a process that has locked a job, and stops after the first half of a statement."""
    connection = psycopg.connect(host=postgres.server(), user="postgres", dbname="postgres")
    connection.execute(f'SELECT FROM "{schema(store)}".redrive_jobs WHERE id = {number} FOR UPDATE')
    connection.pgconn.enter_pipeline_mode()
    connection.pgconn.send_prepare(b"half", text.encode())
    connection.pgconn.send_flush_request()
    connection.pgconn.flush()
    with postgres.connect() as other:
        question = "SELECT FROM pg_stat_activity WHERE pid = %s AND state = 'active' AND wait_event = 'ClientRead'"
        while not other.execute(question, [connection.info.backend_pid]).fetchall():
            SystemClock().sleep(0.002)
    return connection


def lock_of(store: Store, number: int) -> bool:
    """Return True if the row of a job is locked."""
    with postgres.connect() as connection:
        text = f'SELECT FROM "{schema(store)}".redrive_jobs WHERE id = {number} FOR UPDATE SKIP LOCKED'
        return not connection.execute(text).fetchall()


def test_a_process_suspended_during_a_statement_keeps_no_job(store: Store, both: Any):
    """Sessions that the server calls active are ended as well, and their rows are unlocked."""
    (number,) = both(jobs.enqueue([new()])).ids
    with contextlib.closing(stopped(store, number, prepared(schema(store))["settle_succeeded"].text)) as connection:
        assert 0 == both(workers.end_stuck())
        assert lock_of(store, number)
        assert 1 == both(workers.end_stuck(silent_for=timedelta(0)))
        with postgres.connect() as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])

        assert not lock_of(store, number)


def test_a_statement_of_others_is_left_alone(store: Store, both: Any):
    """Sessions of other programs are not ended, whatever they have locked."""
    (number,) = both(jobs.enqueue([new()])).ids
    with contextlib.closing(stopped(store, number, "SELECT 1")):
        assert 0 == both(workers.end_stuck(silent_for=timedelta(0)))


def test_every_statement_names_its_schema_at_the_beginning():
    """Every statement with a table names its schema within the first kilobyte, which PostgreSQL shows of it."""
    texts = {name: each.text for name, each in prepared("jobs").items() if "redrive_" in each.text}
    late = {name for name, text in texts.items() if '"jobs".redrive_' not in text[:1000]}

    assert set() == late


def test_a_text_may_hold_anything(both: Any):
    """Zero bytes, which PostgreSQL cannot store, do not prevent the storage of an error message."""
    (number,) = both(jobs.enqueue([new()])).ids
    both(admin.cancel(number, why="a\0b"))

    assert "a\N{REPLACEMENT CHARACTER}b" == both(jobs.get(number)).note


def test_a_value_out_of_range_raises(both: Any):
    """Numbers that are too large raise an error of the operation, and the connection stays usable."""
    with pytest.raises(StoreError) as refused:
        both(jobs.enqueue([new(priority=2**63)]))

    assert not isinstance(refused.value, StoreUnreachable | StoreBusy)


def test_a_closed_store_is_closed(store: Store):
    """Operations on a closed store fail in both colours, and `close` is idempotent."""
    store.run(admin.stats())
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.run(admin.stats())
    with pytest.raises(StoreClosed):
        asyncio.run(store.arun(admin.stats()))


def test_each_loop_has_its_own_connections(store: Store):
    """Each event loop has its own connections, which are closed with it."""
    for _ in range(3):
        asyncio.run(store.arun(jobs.enqueue([new()])))
    with postgres.connect() as connection:
        others = "pid <> pg_backend_pid() AND application_name <> %s"
        open_ones = f"SELECT count(*) FROM pg_stat_activity WHERE query LIKE %s AND {others}"  # noqa: S608 - made here
        left = connection.execute(open_ones, [f"%{schema(store)}%", postgres.ADMINISTRATION]).fetchone()

    assert (3, (0,)) == (store.run(admin.stats()).due, left)


def test_connections_that_nothing_has_used_are_closed(monkeypatch: pytest.MonkeyPatch):
    """Of the connections that a burst has opened, each later operation closes the one that is idle for longest."""
    store = open_store(postgres.url(application_name="burst"))

    async def run() -> None:
        """Open three, use one twice, and wait until the others have ended."""
        await asyncio.gather(*(store.arun(admin.stats()) for _ in range(3)))
        assert before + 3 == sessions()
        monkeypatch.setattr(aio, "IDLE", 0)
        for left in (before + 2, before + 1, before + 1):
            await store.arun(admin.stats())
            while sessions() > left:  # the server notices the end of a connection by itself
                await SystemClock().asleep(0.01)
            assert left == sessions()

    def sessions() -> int:
        """Return the number of sessions of the store."""
        with postgres.connect() as connection:
            rows = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'burst'")
            return int((rows.fetchone() or (0,))[0])

    before = sessions()
    asyncio.run(run())
    store.close()


@pytest.mark.parametrize(("recent", "same"), [(60.0, True), (0.0, False)])
def test_an_operation_returns_to_its_connection(monkeypatch: pytest.MonkeyPatch, recent: float, *, same: bool):
    """Operations that were run a moment ago take the connection that has planned their statements.

    Later they take the connection that was used last, so that the others can be closed.
    """
    sessions: list[int] = []
    original = aio._Pool.checkout

    async def checkout(self: Any, *arguments: Any) -> Any:
        """Record the session."""
        connection, rows = await original(self, *arguments)
        sessions.append(connection.get_server_pid())
        return connection, rows

    async def run() -> None:
        """Run two operations at once, and then one after the other, the second one first."""
        store = open_store(postgres.url())
        await asyncio.gather(store.arun(admin.stats()), store.arun(workers.workers()))
        for operation in (workers.workers(), admin.stats(), workers.workers()):
            await store.arun(operation)
        store.close()

    monkeypatch.setattr(aio, "_RECENT", recent)
    monkeypatch.setattr(aio._Pool, "checkout", checkout)
    asyncio.run(run())
    pair, later = set(sessions[:2]), sessions[2:]

    assert 2 == len(pair)
    assert set(later) == pair if same else 1 == len(set(later))
    assert not same or later[0] == later[2] != later[1]


def test_a_short_burst_opens_few_connections():
    """Of many operations at once, two open connections, and the others wait for these as long as an opening takes."""
    store = open_store(postgres.url(application_name="short"))
    settled: list[int] = []

    async def run() -> None:
        """Run twenty operations at once, and count the sessions afterwards."""
        with postgres.connect() as connection:
            await store.arun(admin.stats())
            pool = next(iter(store._aio._pools.values()))
            pool._opening = 90.0
            await asyncio.gather(*(store.arun(admin.stats()) for _ in range(20)))
            rows = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'short'")
            settled.append(int((rows.fetchone() or (0,))[0]))
            assert (0, None) == (pool._in_use, pool._given_back)

    asyncio.run(run())
    store.close()

    assert [2] == settled


def test_an_operation_that_is_cancelled_before_its_first_statement_closes_its_connection(
    monkeypatch: pytest.MonkeyPatch,
):
    """An idle connection that was taken for an operation is closed if that is cancelled before it sends anything."""
    store, closed = open_store(postgres.url()), []
    monkeypatch.setattr(aio, "_UNNOTICED", -1.0)

    async def run() -> None:
        """Cancel an operation while it lets the loop notice the ends of sessions."""
        await store.arun(admin.stats())
        pool = next(iter(store._aio._pools.values()))
        ((connection, _),) = pool._idle
        cancelled = asyncio.create_task(store.arun(admin.stats()))
        while pool._idle:
            await SystemClock().asleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        closed.append(connection.is_closed())

    asyncio.run(run())
    store.close()

    assert [True] == closed


def test_operations_that_take_long_open_further_connections():
    """Operations do not wait for connections that stay in use."""
    store = open_store(postgres.url())

    async def run() -> int:
        """Hold three connections at the same time."""
        held = []
        pool = None
        for _ in range(3):
            operation = admin.stats()
            script = full_script(operation, store.settings, bool)
            pool = pool or await store._aio._opened(asyncio.get_running_loop())
            held.append((await pool.checkout(next(script), operation))[0])
        count = len({connection.get_server_pid() for connection in held})
        for connection in held:
            await pool.undo(connection, RuntimeError())
            pool.give_back(connection)
        return count

    count = asyncio.run(run())
    store.close()

    assert 3 == count


def test_polls_wait_for_a_connection_rather_than_open_another_one():
    """Operations of background duties share what is open; other operations do not wait for them."""
    store = open_store(postgres.url())

    async def run() -> tuple[bool, int, int]:
        """Poll while the only connection is in use, and then operate."""
        pool = await store._aio._opened(asyncio.get_running_loop())
        operation = admin.stats()
        held, _ = await pool.checkout(next(full_script(operation, store.settings, bool)), operation)

        async def poll() -> None:
            MAY_WAIT.set(True)
            await store.arun(workers.workers())

        polling = asyncio.create_task(poll())
        await SystemClock().asleep(0)
        await store.arun(workers.workers())
        while not polling.done():
            await SystemClock().asleep(0.001)
        opened = len(pool._idle)
        await pool.undo(held, RuntimeError())
        pool.give_back(held)
        return polling.exception() is None, opened, len(pool._idle)

    assert (True, 1, 2) == asyncio.run(run())
    store.close()


def test_polls_leave_the_connection_of_the_claims_alone():
    """While there is another connection they use that one, and wait for it; a claim finds its plan where it was."""
    store = open_store(postgres.url())

    def claim() -> Operation[leases.Claimed]:
        """Return a claim that finds nothing."""
        return leases.claim(1, 1, lease_for=timedelta(seconds=30))

    async def poll() -> None:
        """Operate as a background duty does."""
        MAY_WAIT.set(True)
        await store.arun(admin.stats())

    async def run() -> tuple[set[str], set[str]]:
        """Poll while both connections are idle, and while the other one is in use; return what each has run."""
        pool = await store._aio._opened(asyncio.get_running_loop())
        first, _ = await pool.checkout(next(full_script(claim(), store.settings, bool)), claim())
        await store.arun(workers.workers())
        pool.give_back(first)
        await asyncio.create_task(poll())
        operation = workers.workers()
        other, _ = await pool.checkout(next(full_script(operation, store.settings, bool)), operation)
        polling = asyncio.create_task(poll())
        await SystemClock().asleep(0)
        pool.give_back(other)
        await polling
        return first.operations, other.operations

    assert ({"claim"}, {"workers", "stats"}) == asyncio.run(run())
    store.close()


def test_an_operation_waits_a_moment_for_a_poll():
    """A new connection would take longer."""
    store = open_store(postgres.url())

    async def run() -> int:
        """Operate while a poll has the only connection; return the number of connections."""
        pool = await store._aio._opened(asyncio.get_running_loop())
        operation = admin.stats()
        async with pool.poll():
            held, _ = await pool.checkout(next(full_script(operation, store.settings, bool)), operation)
            pool._opening = PATIENCE
            operating = asyncio.create_task(store.arun(workers.workers()))
            await SystemClock().asleep(0)
            await pool.undo(held, RuntimeError())
            pool.give_back(held)
        await operating
        return len(pool._idle)

    assert 1 == asyncio.run(run())
    store.close()


def test_polls_take_turns():
    """A duty with many operations does not keep the others waiting."""
    store = open_store(postgres.url())
    order: list[str] = []

    async def poll(name: str, count: int) -> None:
        """Operate as a background duty does."""
        MAY_WAIT.set(True)
        for _ in range(count):
            await store.arun(workers.workers())
            order.append(name)

    async def run() -> int:
        """Run two duties at the same time; return the number of connections."""
        await asyncio.gather(poll("long", 3), poll("short", 1))
        return len(store._aio._pools[asyncio.get_running_loop()]._idle)

    assert (1, ["long", "short", "long", "long"]) == (asyncio.run(run()), order)
    store.close()


def test_connections_of_threads_that_nothing_has_used_are_closed(monkeypatch: pytest.MonkeyPatch):
    """As those of coroutines are; the last one stays."""
    store = open_store(postgres.url())
    runner = store._blocking()
    first = next(full_script(admin.identify("uid"), store.settings, bool))
    taken = [runner._checkout(first, float("inf"), None)[0] for _ in range(3)]
    for connection in taken:
        runner._give_back(connection)
    monkeypatch.setattr(sync, "IDLE", 0)
    left = []
    for _ in range(3):
        store.run(admin.stats())
        left.append(len(runner._idle))
    store.close()

    assert ([2, 1, 1], [True] * 3) == (left, [each.closed for each in taken])


def test_a_signal_handler_may_enqueue_while_a_connection_is_taken():
    """The thread that holds the lock of the pool can take another connection, as code that interrupts it does."""
    store = open_store(postgres.url())
    store.run(admin.stats())
    with store._sync._lock:
        nested = store.run(admin.stats())
    store.close()

    assert 0 == nested.due


def test_an_interrupted_call_leaves_no_connection_taken():
    """An exception of a signal handler right after a connection was counted does not reduce the pool."""
    store = open_store(postgres.url(pool="1", timeout="1s"))
    store.run(admin.stats())
    runner = store._sync
    lock, interrupts = runner._lock, [KeyboardInterrupt()]

    class Interrupted:
        """The lock of the pool, with an interrupt at its first release."""

        def __enter__(self) -> None:
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()
            if interrupts:
                raise interrupts.pop()

    runner._lock = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        store.run(admin.stats())
    due = store.run(admin.stats()).due
    store.close()

    assert 0 == due


def test_no_more_connections_than_the_pool():
    """Operations wait for free connections; after the timeout the error names the setting."""
    store = open_store(postgres.url(pool="1", timeout="1s"))
    held = threading.Event()
    leave = threading.Event()

    @reads
    def long():
        yield Query("clock", {"now": None})
        held.set()
        leave.wait(30)
        return ()

    thread = threading.Thread(target=lambda: store.run(long()))
    thread.start()
    held.wait(30)
    with pytest.raises(StoreBusy, match=r"all 1 connections to PostgreSQL .* are in use: set \?pool= higher"):
        store.run(admin.stats())
    leave.set()
    thread.join()
    due = store.run(admin.stats()).due
    store.close()

    assert 0 == due


def test_after_a_fork_the_child_has_connections_of_its_own(store: Store):
    """Children use and end their own sessions; those of the parent stay open."""
    store.run(jobs.enqueue([new()]))
    child = os.fork()
    if not child:
        status = 1
        with contextlib.suppress(BaseException):
            store.run(jobs.enqueue([new()]))
            store.close()
            status = 0
        os._exit(status)
    _, status = os.waitpid(child, 0)

    assert (0, 2) == (status, store.run(admin.stats()).due)


# ------------------------------------------------------------------------------------------------------------ listening


class Watching:
    """An iteration over `Store.watch`."""

    def __init__(self, store: Store, lock_id: int | None = None, *, again: Callable[[], bool] | None = None) -> None:
        self.news = store.watch(SystemClock(), lock_id=lock_id, again=again)

    async def next(self, seconds: float = 90) -> bool:
        """Return True if the store reports a change within this time; otherwise the iteration ends."""
        try:
            async with asyncio.timeout(seconds):
                await anext(self.news)
        except TimeoutError:
            return False
        return True


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_an_enqueue_notifies_watchers(store: Store, colour: str):
    """Watchers are notified at once of an enqueue by any process, and again shortly after."""

    async def run() -> list[bool]:
        """Watch, and enqueue from elsewhere."""
        watching = Watching(store)
        received = [await watching.next()]
        other = open_store(store.url)
        if colour == "sync":
            await asyncio.to_thread(other.run, jobs.enqueue([new()]))
        else:
            await other.arun(jobs.enqueue([new()]))
        received += [await watching.next(), await watching.next()]
        other.close()
        await watching.news.aclose()
        return received

    assert [True, True, True] == asyncio.run(run())


@pytest.mark.parametrize(("wanted", "reports"), [(False, 1), (True, 2)])
def test_a_second_report_is_made_only_if_it_is_wanted(store: Store, *, wanted: bool, reports: int):
    """At a notification the watcher is asked whether it wants to be told again."""
    asked: list[None] = []

    def again() -> bool:
        asked.append(None)
        return wanted

    async def run() -> list[bool]:
        """Watch, and enqueue from elsewhere."""
        watching = Watching(store, again=again)
        received = [await watching.next()]
        other = open_store(store.url)
        await asyncio.to_thread(other.run, jobs.enqueue([new()]))
        other.close()
        received += [await watching.next() for _ in range(reports)]
        return [*received, await watching.next(10 * listener.AGAIN)]

    assert [True, *[True] * reports, False] == asyncio.run(run())
    assert [None] == asked


def test_a_burst_is_one_notification(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Of the transactions of a process within the window the first one notifies; none does with notify=off."""
    quiet = open_store(store.url + "&notify=off")
    monkeypatch.setattr(listener, "WINDOW", 3600)
    with postgres.connect() as connection:
        connection.execute(f'LISTEN "redrive.{schema(store)}"')
        for _ in range(5):
            quiet.run(jobs.enqueue([new()]))
            store.run(jobs.enqueue([new()]))
            store.run(workers.register("w", concurrency=1, lease_for=LONG))
        received = len(list(connection.notifies(timeout=0.2)))
    quiet.close()

    assert 1 == received


def test_a_lost_listener_raises(store: Store):
    """Watchers get an error at once when the listening connection ends."""

    async def run() -> None:
        """Watch until the connection is lost."""
        watching = Watching(store)
        await watching.next()
        await asyncio.to_thread(kill_sessions)
        with pytest.raises(StoreUnreachable):
            await watching.next()

    asyncio.run(run())


def test_a_silent_listener_is_checked(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Silent listening connections are pinged again and again, without reporting a change."""
    monkeypatch.setattr(listener, "PING", 0.01)
    asked = []
    ask = listener._ping

    async def count(*arguments: Any) -> None:
        """Count the questions, and enqueue after some."""
        await ask(*arguments)
        asked.append(None)
        if len(asked) == 5:
            await store.arun(jobs.enqueue([new()]))

    monkeypatch.setattr(listener, "_ping", count)

    async def run() -> bool:
        """Watch for two news: that it began, and the enqueue."""
        watching = Watching(store)
        await watching.next()
        received = await watching.next()
        await watching.news.aclose()
        return received

    assert (True, True) == (asyncio.run(run()), len(asked) >= 5)


def test_the_lock_is_held_as_long_as_it_is_watched(store: Store):
    """Others see whether the session of a worker lives; of one without a lock they see nothing."""
    store.run(workers.register("a", concurrency=1, lease_for=LONG, lock_id=7))
    store.run(workers.register("b", concurrency=1, lease_for=LONG))

    async def run() -> list[Any]:
        """Look before and while it is watched."""
        seen = [[each.locked for each in store.run(workers.workers())]]
        watching = Watching(store, lock_id=7)
        await watching.next()
        seen.append([each.locked for each in store.run(workers.workers())])
        await watching.news.aclose()
        return seen

    assert [[False, None], [True, None]] == asyncio.run(run())


# -------------------------------------------------------------------------------------------------------------- claims


def test_a_claim_uses_up_no_more_leases_than_it_takes_jobs(store: Store):
    """Numbers of leases come from a sequence, one for each job."""
    worker = store.run(workers.register("h:1", concurrency=400, lease_for=LONG, now=T0))
    store.run(jobs.enqueue([new("b", priority=2), new("a", priority=1)], now=T0))
    first = store.run(leases.claim(worker, 400, lease_for=LONG, now=T0)).claims
    store.run(jobs.enqueue([new("c")], now=T0))
    second = store.run(leases.claim(worker, 400, lease_for=LONG, now=T0)).claims

    assert ["a", "b", "c"] == [claim.task for claim in (*first, *second)]
    assert [{1, 2}, {3}] == [{claim.lease_id >> 20 for claim in claims} for claims in (first, second)]


def test_a_job_that_cannot_be_read_is_released_though_its_claim_is_committed(both: Any):
    """Claims of plain queues are a transaction; the release of an unreadable job is another one."""
    worker = both(workers.register("h:1", concurrency=1, lease_for=LONG, now=T0))
    newer = FrozenPolicy(Policy(), '{"version": 2}', "f00d")
    both(jobs.enqueue([replace(new(), policy=newer)], now=T0))

    assert () == both(leases.claim(worker, 9, lease_for=LONG, now=T0)).claims
    assert State.READY == both(jobs.get(1)).state
