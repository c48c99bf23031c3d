"""Sessions that handlers use one after the other: round trips, what may be used again, and that no state passes on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import msgspec
import psycopg
import pytest

from redrive.clock import SystemClock
from redrive.errors import StoreClosed, StoreError, StoreOutcomeUnknown, StoreUnreachable
from redrive.stores.drivers.postgres import aio, transactions
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, attempts, jobs
from redrive.stores.store import Store
from tests import postgres
from tests.proxy import FaultKind, Proxy
from tests.stores.helpers import T0, new


class Lending:
    """The transactions of a store in one colour, for code that is a function."""

    def __init__(self, store: Store, colour: str, runner: asyncio.Runner) -> None:
        self.store = store
        self.colour = colour
        self._runner = runner

    def begin(self) -> Any:
        """Begin a transaction."""
        return self.run(self.store.abegin()) if self.colour == "async" else self.store.begin()

    def run(self, given: Any) -> Any:
        """Return the result of a call, or of its coroutine."""

        async def wait() -> Any:
            return await given

        return self._runner.run(wait()) if hasattr(given, "__await__") else given

    def pid(self, loan: Any) -> int:
        """Return the number of the server process of a transaction."""
        connection = loan.connection
        return connection.get_server_pid() if self.colour == "async" else connection.info.backend_pid

    def block(self, *texts: str, end: str = "commit") -> int:
        """Execute statements in a transaction, and return the number of its server process."""
        loan = self.begin()
        pid = self.pid(loan)
        for text in texts:
            self.run(loan.connection.execute(text))
        self.run(getattr(loan, end)())
        return pid

    def value(self, text: str) -> Any:
        """Return a value that a statement reads in the next transaction."""
        loan = self.begin()
        connection = loan.connection
        value = (
            self.run(connection.fetchval(text)) if self.colour == "async" else connection.execute(text).fetchone()[0]
        )
        self.run(loan.commit())
        return value

    def begin_and_end(self) -> bool:
        """Return whether a transaction that asks for nothing is current."""
        loan = self.begin()
        self.run(loan.commit())
        return bool(loan.is_current)

    def turn(self) -> None:
        """Let the event loop of the coroutines do what is due."""
        self._runner.run(SystemClock().asleep(0))


def _wait_until_ended(*pids: int) -> None:
    """Return when the server has ended these sessions."""
    with postgres.connect() as connection:
        question = "SELECT FROM pg_stat_activity, pg_sleep(0.01) WHERE pid = ANY (%s)"
        for _ in range(2000):
            if not connection.execute(question, (list(pids),)).fetchall():
                return
    message = "the sessions have not ended"
    raise AssertionError(message)


@pytest.fixture(params=["sync", "async"])
def lending(request: pytest.FixtureRequest) -> Iterator[Lending]:
    """Lend the connections of a store."""
    with (
        postgres.lent() as url,
        contextlib.closing(open_store(url)) as store,
        asyncio.Runner() as runner,
    ):
        yield Lending(store, request.param, runner)


# ------------------------------------------------------------------------------------------------------ use and re-use


def test_a_session_is_used_again_after_a_commit(lending: Lending):
    """The next block has the session of the one before."""
    assert lending.block("SELECT 1") == lending.block("SELECT 1")


def test_blocks_at_the_same_time_have_sessions_of_their_own(lending: Lending):
    """Each of them is kept."""
    loans = [lending.begin() for _ in range(3)]
    first = {lending.pid(each) for each in loans}
    for each in loans:
        lending.run(each.commit())
    again = [lending.begin() for _ in range(3)]
    second = {lending.pid(each) for each in again}
    for each in again:
        lending.run(each.commit())

    assert (3, first) == (len(first), second)


@pytest.mark.parametrize("end", ["rollback", "an error", "the handler's COMMIT", "close"])
def test_a_session_is_closed_after_any_other_end(lending: Lending, end: str):
    """Whatever happened in it, the next handler gets another one."""
    loan = lending.begin()
    pid = lending.pid(loan)
    if end == "an error":
        with pytest.raises((psycopg.Error, asyncpg.PostgresError)):
            lending.run(loan.connection.execute("SELECT nothing"))
    elif end == "the handler's COMMIT":
        lending.run(loan.connection.execute("COMMIT"))
        with pytest.raises(StoreError, match="ended the transaction"):
            lending.run(loan.run(jobs.enqueue([new()], now=T0)))
    elif end == "close":
        lending.run(loan.connection.close())
    lending.run(loan.rollback())

    assert pid != lending.block("SELECT 1")


def test_a_session_that_the_server_has_ended_is_replaced(lending: Lending):
    """The handler does not notice it."""
    pid = lending.block("SELECT 1")
    with postgres.connect() as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))

    assert pid != lending.block("SELECT 1")


# --------------------------------------------------------------------------------------- what a handler leaves behind

LEFT = {
    "a setting": ("SET search_path TO pg_temp", "SELECT current_setting('search_path')", '"$user", public'),
    "a planner setting": ("SET enable_seqscan TO off", "SELECT current_setting('enable_seqscan')", "on"),
    "an own setting": ("SET shop.tenant TO 'acme'", "SELECT coalesce(current_setting('shop.tenant', true), '')", ""),
    "a role": ("SET ROLE pg_monitor", "SELECT current_user::text", "postgres"),
    "a session user": ("SET SESSION AUTHORIZATION pg_monitor", "SELECT session_user::text", "postgres"),
    "a prepared statement": (
        "PREPARE theirs AS SELECT 1",
        "SELECT count(*)::integer FROM pg_prepared_statements WHERE from_sql",
        0,
    ),
    "a cursor": (
        "DECLARE theirs CURSOR WITH HOLD FOR SELECT 1",
        "SELECT count(*)::integer FROM pg_cursors WHERE name = 'theirs'",
        0,
    ),
    "a channel": ("LISTEN news", "SELECT count(*)::integer FROM pg_listening_channels()", 0),
    "a lock": (
        "SELECT pg_advisory_lock(4711)",
        "SELECT count(*)::integer FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711",
        0,
    ),
    "a temporary table": ("CREATE TEMPORARY TABLE theirs (a int)", "SELECT to_regclass('theirs')::text", None),
}


@pytest.mark.parametrize("left", list(LEFT))
def test_what_a_handler_leaves_in_the_session_ends_with_its_block(lending: Lending, left: str):
    """No later handler sees it, whether it has the same session or another one."""
    text, question, expected = LEFT[left]
    lending.block(text)

    assert expected == lending.value(question)


def test_an_advisory_lock_of_a_handler_is_free_when_its_block_has_ended(lending: Lending):
    """Not only when another handler uses the session."""
    lending.block("SELECT pg_advisory_lock(4712)")

    with postgres.connect() as connection:
        free = connection.execute("SELECT pg_try_advisory_lock(4712)").fetchone()
        connection.execute("SELECT pg_advisory_unlock_all()")
    assert (True,) == free


def test_a_session_with_temporary_tables_is_closed(lending: Lending):
    """To drop them could fail, after the commit."""
    assert lending.block("CREATE TEMPORARY TABLE theirs (a int)") != lending.block("SELECT 1")


def test_a_statement_may_be_prepared_under_the_same_name_by_each_handler(lending: Lending):
    """As in a new session."""
    assert lending.block("PREPARE theirs AS SELECT 1") == lending.block("PREPARE theirs AS SELECT 2", "EXECUTE theirs")


def test_a_handler_may_deallocate_all_statements(lending: Lending):
    """Neither its end nor the next handler relies on prepared statements."""
    for _ in range(4):
        loan = lending.begin()
        for number in range(4):
            lending.run(loan.connection.execute("SELECT 1") if number % 2 else _parameter(lending, loan, number))
        lending.run(loan.connection.execute("DEALLOCATE ALL"))
        lending.run(loan.run(jobs.enqueue([new(), new()], now=T0)))
        lending.run(loan.commit())


def _parameter(lending: Lending, loan: Any, number: int) -> Any:
    """Execute a statement with a parameter, which the libraries prepare sooner or later."""
    if lending.colour == "async":
        return loan.connection.fetch("SELECT $1::bigint", number)
    return loan.connection.execute("SELECT %s::bigint", [number])


def test_a_table_may_change_between_two_blocks(lending: Lending):
    """A prepared statement of an earlier handler would be refused: it returns other columns now."""
    with postgres.connect() as connection:
        connection.execute("CREATE TABLE changing (a int)")
        try:
            first = lending.block(*["SELECT * FROM changing"] * 8)
            connection.execute("ALTER TABLE changing ADD b int")
            second = lending.block(*["SELECT * FROM changing"] * 8)
            rows = _fetched(lending, "SELECT * FROM changing")
        finally:
            connection.execute("DROP TABLE changing")

    assert (True, []) == (first == second, rows)


def _fetched(lending: Lending, text: str) -> list[Any]:
    loan = lending.begin()
    connection = loan.connection
    rows = lending.run(connection.fetch(text)) if lending.colour == "async" else connection.execute(text).fetchall()
    lending.run(loan.commit())
    return list(rows)


def test_what_a_handler_changes_of_the_object_ends_with_its_block(lending: Lending):
    """Factories, adapters and codecs of one handler are not those of the next."""
    loan = lending.begin()
    if lending.colour == "async":
        lending.run(
            loan.connection.set_type_codec("text", schema="pg_catalog", encoder=str, decoder=lambda text: text.upper())
        )
    else:
        loan.connection.row_factory = psycopg.rows.dict_row
        loan.connection.prepare_threshold = None
    lending.run(loan.commit())
    loan = lending.begin()
    if lending.colour == "sync":
        assert (psycopg.rows.tuple_row, 2) == (loan.connection.row_factory, loan.connection.prepare_threshold)
    lending.run(loan.commit())

    assert "small" == lending.value("SELECT 'small'::text")


# ------------------------------------------------------------------------------------ objects that outlive their block


def test_a_connection_cannot_be_used_after_its_block(lending: Lending):
    """Code that has kept it writes into no transaction of another job."""
    loan = lending.begin()
    kept = loan.connection
    lending.run(loan.commit())
    other = lending.begin()
    refused = (psycopg.OperationalError, asyncpg.InterfaceError)
    with pytest.raises(refused):
        lending.run(kept.execute("SELECT 1"))
    with pytest.raises((*refused, psycopg.ProgrammingError)):
        lending.run(kept.commit() if lending.colour == "sync" else kept.fetch("SELECT 1"))
    lending.run(kept.close())
    if lending.colour == "async":
        kept.terminate()
    pid = lending.pid(other)
    lending.run(other.connection.execute("SELECT 1"))
    lending.run(other.commit())

    assert pid == lending.block("SELECT 1")


def test_a_cursor_cannot_be_used_after_its_block(lending: Lending):
    """Nor can a statement that the handler has prepared."""
    loan = lending.begin()
    if lending.colour == "async":
        prepared = lending.run(loan.connection.prepare("SELECT 1"))
        use: Callable[[], Any] = prepared.fetch
    else:
        cursor = loan.connection.cursor()
        cursor.execute("SELECT 1")
        use = lambda: cursor.execute("SELECT 1")  # noqa: E731 - as above
    lending.run(loan.commit())
    other = lending.begin()
    with pytest.raises((psycopg.OperationalError, asyncpg.InterfaceError)):
        lending.run(use())
    lending.run(other.commit())


def test_a_thread_that_still_uses_the_connection_ends_before_the_commit():
    """Its statement is a part of the transaction; the next one is refused."""
    with postgres.lent() as url, contextlib.closing(open_store(url)) as store, postgres.connect() as watching:
        loan = store.begin()
        errors: list[BaseException] = []

        def leak() -> None:
            try:
                for _ in range(2):
                    loan.connection.execute("SELECT pg_advisory_xact_lock(4713)")
            except psycopg.Error as error:
                errors.append(error)

        watching.execute("SELECT pg_advisory_lock(4713)")
        thread = threading.Thread(target=leak)
        thread.start()
        postgres.until_blocked(watching)
        committing = threading.Thread(target=loan.commit)
        committing.start()
        watching.execute("SELECT pg_advisory_unlock(4713)")
        thread.join()
        committing.join()

        assert all("closed" in str(each) for each in errors)
        other = store.begin()
        other.connection.execute("SELECT 1")
        other.commit()


# --------------------------------------------------------------------------------------------------- closing and eras


def test_idle_sessions_are_closed_with_the_store(lending: Lending):
    """Also those of coroutines."""
    pid = lending.block("SELECT 1")
    lending.store.close()
    lending.turn()
    _wait_until_ended(pid)
    with pytest.raises(StoreClosed):
        lending.begin()


def test_a_session_that_is_in_use_is_closed_after_its_block(lending: Lending):
    """The store was closed meanwhile."""
    loan = lending.begin()
    pid = lending.pid(loan)
    lending.store.close()
    lending.run(loan.commit())
    _wait_until_ended(pid)


def test_sessions_of_coroutines_end_with_their_loop():
    """Also if the store is not closed."""

    async def block(store: Store) -> int:
        loan = await store.abegin()
        pid: int = loan.connection.get_server_pid()
        await loan.commit()
        return pid

    with postgres.lent() as url, contextlib.closing(open_store(url)) as store:
        pids = {asyncio.run(block(store)) for _ in range(2)}
        _wait_until_ended(*pids)

    assert 2 == len(pids)


def test_sessions_that_no_handler_uses_are_closed_after_a_while(lending: Lending, monkeypatch: pytest.MonkeyPatch):
    """A call of the store closes those of threads, a timer those of coroutines."""
    monkeypatch.setattr(aio, "IDLE", 0.0)
    pid = lending.block("SELECT 1")
    lending.turn()
    lending.store.run(jobs.enqueue([]))
    lending.turn()
    _wait_until_ended(pid)


def test_a_session_of_an_earlier_era_is_not_used(lending: Lending):
    """Another server has taken over since."""
    pid = lending.block("SELECT 1")
    lending.store._timeline.meet("another server")  # type: ignore[attr-defined]

    assert pid != lending.block("SELECT 1")


def test_a_session_of_a_lost_server_is_not_used(lending: Lending):
    """It has ceased to answer, or to write."""
    pid = lending.block("SELECT 1")
    servers = lending.store.settings.servers  # type: ignore[attr-defined]
    servers.lost(servers.order[0])

    assert pid != lending.block("SELECT 1")


@pytest.mark.parametrize("when", ["before it begins", "before its end"])
def test_a_handler_of_an_earlier_era_completes_nothing(lending: Lending, when: str):
    """The new server may lack what the handler has written before; what the block has written is rolled back."""
    timeline, era = lending.store._timeline, lending.store.era  # type: ignore[attr-defined]
    asked = msgspec.structs.replace(attempts.is_current(1, 2), era=era)
    completion = msgspec.structs.replace(jobs.enqueue([new()], now=T0), era=era)
    if when == "before it begins":
        timeline.meet("another server")
        with pytest.raises(StoreUnreachable, match="another server has taken over"):
            lending.run(lending.store.abegin(asked)) if lending.colour == "async" else lending.store.begin(asked)
    else:
        loan = lending.begin()
        timeline.meet("another server")
        with pytest.raises(StoreUnreachable, match="another server has taken over"):
            lending.run(loan.run(completion))
        lending.run(loan.rollback())

    assert 0 == lending.store.run(admin.stats(now=T0)).due


def test_the_lease_is_asked_for_by_the_message_that_begins(lending: Lending):
    """A lease that is not current is found before the handler does anything."""
    asked = attempts.is_current(1, 2)
    loan = lending.run(lending.store.abegin(asked)) if lending.colour == "async" else lending.store.begin(asked)
    is_current = loan.is_current
    lending.run(loan.rollback())

    assert (False, True) == (is_current, lending.begin_and_end())


@pytest.mark.parametrize("times", [1, 3])
def test_jobs_are_enqueued_on_the_connection_of_a_handler(lending: Lending, times: int):
    """By the connection object of each block, also in a session that was used before."""
    for _ in range(times):
        loan = lending.begin()
        if lending.colour == "async":
            lending.run(lending.store.arun(jobs.enqueue([new()], now=T0), using=loan.connection))
        else:
            lending.store.run(jobs.enqueue([new()], now=T0), using=loan.connection)
        lending.run(loan.commit())

    assert times == lending.store.run(admin.stats(now=T0)).due


def test_a_transaction_of_the_handler_inside_of_its_block_is_a_savepoint(lending: Lending):
    """It may be rolled back without the rest."""
    loan = lending.begin()
    lending.run(_nested(lending, loan))
    lending.run(loan.commit())


async def _anested(connection: Any) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async with connection.transaction():
            await connection.execute("SET LOCAL shop.tenant TO 'acme'")
            raise ZeroDivisionError
    assert not await connection.fetchval("SELECT current_setting('shop.tenant', true)")
    assert connection.is_in_transaction()


def _nested(lending: Lending, loan: Any) -> Any:
    if lending.colour == "async":
        return _anested(loan.connection)
    with contextlib.suppress(ZeroDivisionError), loan.connection.transaction():
        loan.connection.execute("SET LOCAL shop.tenant TO 'acme'")
        raise ZeroDivisionError
    assert ("",) == loan.connection.execute("SELECT current_setting('shop.tenant', true)").fetchone()
    return None


def test_a_task_that_is_cancelled_while_it_begins_leaves_no_session_and_no_place():
    """Neither of a connection that is opened, nor of one that is used again."""

    async def run(store: Store) -> int:
        for turns in [*range(14)] * 2:
            beginning = asyncio.ensure_future(store.abegin())
            for _ in range(turns):
                await SystemClock().asleep(0)
            beginning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await beginning).commit()
        loans = [await store.abegin() for _ in range(store.settings.pool)]  # type: ignore[attr-defined]
        for each in loans:
            await each.commit()
        return len(loans)

    with postgres.lent(pool="3", timeout="5s") as url, contextlib.closing(open_store(url)) as store:
        assert 3 == asyncio.run(run(store))


# ------------------------------------------------------------------------------------------------------------ failures


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Start a proxy."""
    with Proxy(f"{postgres.server()}/.s.PGSQL.5432") as running:
        yield running


@pytest.fixture(params=["sync", "async"])
def distant(request: pytest.FixtureRequest, proxy: Proxy) -> Iterator[Lending]:
    """Lend the connections of a store behind a proxy."""
    with (
        postgres.lent(host=proxy.host, port=str(proxy.port)) as url,
        contextlib.closing(open_store(url)) as store,
        asyncio.Runner() as runner,
    ):
        yield Lending(store, request.param, runner)


def test_a_block_takes_two_round_trips_besides_the_completion(proxy: Proxy, distant: Lending):
    """One to begin, one to commit; what undoes the handler's changes travels with the commit."""
    distant.block("SELECT 1")
    before, connections = len(proxy.requests), proxy.connections
    distant.block("SELECT 1")

    assert (3, connections) == (len(proxy.requests) - before, proxy.connections)


def test_a_kept_session_that_is_cut_at_the_beginning_is_replaced(proxy: Proxy, distant: Lending):
    """Nothing has happened in it."""
    first = distant.block("SELECT 1")
    proxy.on(FaultKind.CUT_AFTER, b"BEGIN")

    assert first != distant.block("SELECT 1")


def test_an_error_of_the_message_that_commits_may_be_of_a_later_statement(
    distant: Lending, monkeypatch: pytest.MonkeyPatch
):
    """If it was cancelled, it is unknown whether the commit took effect."""
    monkeypatch.setattr(
        transactions, "commit_handler", lambda _: "COMMIT; SET statement_timeout TO 1; SELECT pg_sleep(60)"
    )
    with postgres.connect() as connection:
        connection.execute("CREATE TABLE kept (a int)")
        try:
            with pytest.raises(StoreOutcomeUnknown, match=r"commit of ctx.transaction\(\)"):
                distant.block("INSERT INTO kept VALUES (1)")
            rows = connection.execute("SELECT a FROM kept").fetchall()
        finally:
            connection.execute("DROP TABLE kept")

    assert [(1,)] == rows


def test_a_server_that_refuses_connections_begins_no_transaction(proxy: Proxy, distant: Lending):
    """The place in the pool is free again."""
    proxy.refuse()
    for _ in range(12):
        with pytest.raises(StoreUnreachable):
            distant.begin()
    proxy.accept()
    distant.block("SELECT 1")
