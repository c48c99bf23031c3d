"""A server process that is stopped keeps its connection alive and never answers: each call gives up in time."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redrive import App
from redrive.errors import ResultTimeout, StoreOutcomeUnknown, StoreUnreachable
from redrive.stores.drivers.postgres import PostgresStore, parse_url
from redrive.stores.drivers.postgres.sync import MigrationCursor
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, jobs, workers
from redrive.stores.query import Query, Statements, writes
from redrive.stores.store import Store
from tests import postgres
from tests.stores.helpers import new

pytestmark = pytest.mark.realtime

TIMEOUT = "700ms"
"""What the store gives an answer; psycopg and libpq take at least 2 s to open a connection."""

LONG = 20
"""Seconds after which a call that should have given up counts as one that waits for ever."""

NAME = "stopped"
"""By which the sessions of these tests are found."""


@pytest.fixture(name="halt")
def _halt() -> Iterator[Callable[[str], list[int]]]:
    """Return a function that stops the server processes of a store; they continue after the test."""
    stopped: list[int] = []

    def halt(name: str) -> list[int]:
        with postgres.connect() as connection:
            found = connection.execute("SELECT pid FROM pg_stat_activity WHERE application_name = %s", [name])
            numbers = [row[0] for row in found]
        for number in numbers:
            os.kill(number, signal.SIGSTOP)
        stopped.extend(numbers)
        return numbers

    yield halt
    for number in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGCONT)


def migration(url: str) -> MigrationCursor:
    """Open a cursor for migrations."""
    return PostgresStore(url, parse_url(url)).migration_cursor()


@pytest.fixture(name="store")
def _store() -> Iterator[Store]:
    """Open a store with a recognisable application name."""
    opened = open_store(postgres.url(timeout=TIMEOUT, application_name=NAME))
    yield opened
    opened.close()


@pytest.fixture(name="both", params=["sync", "async"])
def _both(request: pytest.FixtureRequest, store: Store) -> Iterator[Any]:
    """Return functions that run an operation of the store, one for each colour, always on the same loop."""
    with asyncio.Runner() as runner:
        yield store.run if request.param == "sync" else lambda operation: runner.run(store.arun(operation))
        store.close()


def in_time(call: Callable[[], Any]) -> Any:
    """Call something in a thread, and fail where it does not return."""
    answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def work() -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - raised in the test
            answer.set_exception(error)
        else:
            answer.set_result(result)

    threading.Thread(target=work, daemon=True).start()
    return answer.result(LONG)


def test_an_idle_connection_that_does_not_answer_is_given_up(store: Store, both: Any, halt: Any):
    """Calls fail after the timeout and close the connection; the next call has another one."""
    both(admin.stats())
    halted = halt(NAME)
    with pytest.raises(StoreUnreachable, match="no answer"):
        in_time(lambda: both(jobs.enqueue([new(), new()])))

    assert len(halted) == 1
    assert 0 == both(admin.stats()).due


def test_an_enqueue_of_one_statement_without_an_answer_is_of_unknown_outcome(store: Store, both: Any, halt: Any):
    """Single jobs are enqueued by a statement that commits, so the server may carry it out after the timeout."""
    both(admin.stats())
    halt(NAME)
    with pytest.raises(StoreOutcomeUnknown, match="commit of enqueue.*no answer"):
        in_time(lambda: both(jobs.enqueue([new()])))

    assert 0 == both(admin.stats()).due


@writes
def _halted(halt: Callable[[str], list[int]]) -> Statements[None]:
    yield Query("clock", {"now": None})
    halt(NAME)
    yield Query("clock", {"now": None})


def test_a_transaction_on_an_unresponsive_connection_is_given_up(store: Store, both: Any, halt: Any):
    """Nor is there a wait for its rollback."""
    with pytest.raises(StoreUnreachable, match="no answer"):
        in_time(lambda: both(_halted(halt)))

    assert 0 == both(admin.stats()).due


def test_idle_connections_that_do_not_answer_cost_one_timeout_in_all(store: Store, halt: Any):
    """Calls do not try one connection after the other when their time is up."""
    barrier = threading.Barrier(4)

    @writes
    def together() -> Statements[None]:
        yield Query("clock", {"now": None})
        barrier.wait(LONG)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: store.run(together()), range(4)))
    halted = halt(NAME)
    for _ in halted:
        with pytest.raises(StoreUnreachable, match="no answer"):
            in_time(lambda: store.run(admin.stats()))

    assert len(halted) == 4
    assert 0 == store.run(admin.stats()).due


def test_a_call_may_have_less_time_than_the_store(halt: Any):
    """Callers of one operation can shorten the wait."""
    store = open_store(postgres.url(timeout="1h", application_name=f"{NAME} for long"))
    store.run(admin.stats())
    halt(f"{NAME} for long")
    with pytest.raises(StoreUnreachable, match=r"no answer within 0\.1 s"):
        in_time(lambda: store.run(workers.held(1), timeout=0.1))
    store.close()


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_connection_of_a_handler_has_the_same_deadline(store: Store, halt: Any, colour: str):
    """Statements of redrive on a handler's connection have it, including COMMIT and ROLLBACK."""

    def sync() -> None:
        loan = store.begin()
        loan.run(jobs.enqueue([new()]))
        halt(NAME)
        loan.commit()

    async def coroutine() -> None:
        loan = await store.abegin()
        await loan.run(jobs.enqueue([new()]))
        halt(NAME)
        await loan.commit()

    with pytest.raises(StoreOutcomeUnknown, match="no answer"):
        in_time(sync if colour == "sync" else lambda: asyncio.run(coroutine()))


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_timeout_of_a_result_holds_where_the_database_does_not_answer(halt: Any, colour: str):
    """Although the store has a longer one."""
    app = App(postgres.url(timeout="1h", application_name=f"{NAME} {colour}"))
    job = app.task(name="send")(lambda: None).enqueue()

    async def coroutine() -> None:
        await job.arefresh()
        halt(f"{NAME} {colour}")
        await job.aresult(timeout="100ms")

    def sync() -> None:
        job.refresh()
        halt(f"{NAME} {colour}")
        job.result(timeout="100ms")

    with pytest.raises(ResultTimeout, match="did not answer"):
        in_time(sync if colour == "sync" else lambda: asyncio.run(coroutine()))
    app.close()


def test_reading_the_schema_version_has_a_deadline(halt: Any):
    """Otherwise a worker that starts would wait forever."""
    script = migration(postgres.url(timeout=TIMEOUT, application_name=NAME))
    halt(NAME)
    with pytest.raises(StoreUnreachable, match="no answer"):
        in_time(lambda: script.execute(script.look[0]))


def test_a_migration_has_no_deadline():
    """From the statement on that takes its lock, since another process may migrate for long."""
    script = migration(postgres.url(timeout="100ms", application_name=NAME))
    for statement in (*script.look, *script.lock, "SELECT pg_sleep(0.4)", "ROLLBACK"):
        script.execute(statement)
    script.close()
