"""A server that stops in the middle of calls, where the URL has another one: callers do not wait for the timeout."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive.clock import SystemClock
from redrive.errors import StoreError, StoreOutcomeUnknown, StoreUnreachable
from redrive.stores.drivers.postgres import listener
from redrive.stores.drivers.postgres.liveness import answers
from redrive.stores.drivers.postgres.sync import MigrationCursor
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, jobs
from redrive.stores.query import Query, Statements, writes
from redrive.stores.store import Store
from tests import postgres
from tests.acceptance.servers import PostgresServer, own
from tests.stores.helpers import T0, new

pytestmark = [pytest.mark.acceptance, pytest.mark.realtime]

ENOUGH = 10.0
"""Seconds in which a call gives its server up on a busy machine; without the question it takes thirty."""

SESSIONS = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"

NOWHERE = "/nowhere"
"""A server that is never there."""


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[PostgresServer]:
    """Start a server."""
    with own(Path(tempfile.mkdtemp(prefix="redrive-silent-"))) as made:
        yield made


@pytest.fixture(name="frozen")
def _frozen(server: PostgresServer) -> Iterator[Callable[[], None]]:
    """Return a function that stops the server; it continues after the test."""
    yield server.freeze
    server.thaw()


@pytest.fixture(name="store")
def _store(server: PostgresServer) -> Iterator[Store]:
    """Open a store with two servers, of which one is there."""
    opened = open_store(server.url(host=f"{server.folder},{NOWHERE}", schema=postgres.fresh()))
    yield opened
    opened.close()


@pytest.fixture(name="both", params=["sync", "async"])
def _both(request: pytest.FixtureRequest, store: Store) -> Iterator[Callable[[Any], Any]]:
    """Return what runs an operation, for each colour, always on the same loop."""
    with asyncio.Runner() as runner:
        yield store.run if request.param == "sync" else lambda operation: runner.run(store.arun(operation))
        store.close()


def timed(call: Callable[[], Any], kind: type[StoreError]) -> tuple[float, str]:
    """Return how long a call takes until it raises an error, and its text."""
    began = SystemClock.monotonic()
    with pytest.raises(kind) as failed:
        call()
    return SystemClock.monotonic() - began, str(failed.value)


def test_an_enqueue_in_the_middle_is_of_unknown_outcome(both: Any, frozen: Callable[[], None]):
    """The statement was sent, so the server may have committed it before it stopped."""
    both(admin.stats())
    frozen()
    seconds, text = timed(lambda: both(jobs.enqueue([new()], now=T0)), StoreOutcomeUnknown)

    assert seconds < ENOUGH
    assert "no answer, and none on a new connection within 2.0 s" in text


def test_a_call_that_changes_nothing_is_tried_on_the_other_server(
    both: Any, frozen: Callable[[], None], server: PostgresServer
):
    """Here the other one is not there either, and the error has both; the one that was lost is the last."""
    both(admin.stats())
    frozen()
    seconds, text = timed(lambda: both(admin.stats()), StoreUnreachable)

    assert seconds < ENOUGH + 2
    assert f"({NOWHERE}:5432: No such file or directory; {server.folder}:5432: no answer within 2.0 s)" in text


def test_sessions_of_a_lost_server_are_not_used_again(store: Store, frozen: Callable[[], None], server: PostgresServer):
    """One call finds out for all sessions of the process, those of the other driver and of the listener too."""
    barrier = threading.Barrier(4)

    @writes
    def together() -> Statements[None]:
        yield Query("clock", {"now": None})
        barrier.wait(60)

    threads = [threading.Thread(target=store.run, args=(together(),)) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    async def scene() -> float:
        await store.arun(admin.stats())
        watching = store.watch(SystemClock())
        await anext(watching)
        frozen()
        began = SystemClock.monotonic()
        with pytest.raises(StoreOutcomeUnknown):
            await asyncio.to_thread(store.run, jobs.enqueue([new()], now=T0))
        with pytest.raises(StoreUnreachable, match="listening connection .* is given up, as others were lost"):
            await anext(watching)
        server.thaw()
        await store.arun(jobs.enqueue([new()], now=T0))
        await asyncio.to_thread(store.run, jobs.enqueue([new()], now=T0))
        return SystemClock.monotonic() - began

    assert asyncio.run(scene()) < ENOUGH + 3


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_transaction_of_a_handler_is_given_up(store: Store, frozen: Callable[[], None], colour: str):
    """A statement of the handler on the lent connection too."""

    def sync() -> None:
        loan = store.begin()
        frozen()
        try:
            loan.run(jobs.enqueue([new()], now=T0))
        finally:
            loan.rollback()

    async def coroutine() -> None:
        loan = await store.abegin()
        frozen()
        try:
            await loan.run(jobs.enqueue([new()], now=T0))
        finally:
            await loan.rollback()

    seconds, _ = timed(sync if colour == "sync" else lambda: asyncio.run(coroutine()), StoreUnreachable)
    assert seconds < ENOUGH


def test_a_migration_is_given_up(store: Any, frozen: Callable[[], None]):
    """It has no deadline, but a server that is gone ends it."""
    cursor: MigrationCursor = store.migration_cursor()
    for statement in (*cursor.look, *cursor.lock):
        cursor.execute(statement)
    frozen()
    seconds, _ = timed(lambda: cursor.execute("SELECT 1"), StoreUnreachable)
    cursor.close()

    assert seconds < ENOUGH


def test_a_listener_finds_out_by_itself(store: Store, frozen: Callable[[], None], monkeypatch: pytest.MonkeyPatch):
    """When it is checked and no other session has been used."""
    monkeypatch.setattr(listener, "PING", 1.0)

    async def scene() -> None:
        watching = store.watch(SystemClock())
        await anext(watching)
        frozen()
        await anext(watching)

    seconds, _ = timed(lambda: asyncio.run(scene()), StoreUnreachable)
    assert seconds < ENOUGH + 1


@pytest.mark.night
def test_a_statement_that_takes_long_is_left_alone(store: Store):
    """Its server answers the question, so the wait goes on."""
    loan = store.begin()
    loan.connection.execute("SELECT pg_sleep(5)")
    loan.rollback()

    async def coroutine() -> None:
        loan = await store.abegin()
        await loan.connection.execute("SELECT pg_sleep(5)")
        await loan.rollback()

    asyncio.run(coroutine())


@pytest.mark.night
def test_one_server_process_that_is_stopped_has_the_timeout(server: PostgresServer, both: Any):
    """The server itself answers, so that only the timeout ends the wait: another server would not help."""
    both(admin.stats())
    stopped = [row[0] for row in server.ask(SESSIONS)]
    for number in stopped:
        os.kill(number, signal.SIGSTOP)
    try:
        assert stopped
        began = SystemClock.monotonic()
        answered = threading.Event()
        caught: list[Exception] = []

        def call() -> None:
            try:
                both(jobs.enqueue([new()], now=T0))
            except StoreError as error:
                caught.append(error)
            answered.set()

        thread = threading.Thread(target=call)
        thread.start()
        assert not answered.wait(6)
    finally:
        for number in stopped:
            os.kill(number, signal.SIGCONT)
    thread.join(60)

    assert [] == caught
    assert SystemClock.monotonic() - began < 30


@contextlib.contextmanager
def listening(family: socket.AddressFamily, address: Any, reply: bytes | None) -> Iterator[Any]:
    """Listen, and answer the first message of each connection."""
    with socket.socket(family) as server:
        server.bind(address)
        server.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.recv(8)
                    connection.sendall(reply or b"")

        thread = threading.Thread(target=serve, daemon=True)
        if reply is not None:
            thread.start()
        yield server.getsockname()
        if reply is not None:
            thread.join(60)


@pytest.mark.parametrize(("reply", "expected"), [(b"N", True), (b"S", True), (b"E", True), (b"", False), (None, False)])
@pytest.mark.parametrize("kind", ["IPv4", "IPv6", "a socket in a folder"])
def test_any_answer_is_one(kind: str, reply: bytes | None, expected: bool, tmp_path: Path):
    """One byte is enough, whether it encrypts or not; an end without one is none."""
    family, address = {
        "IPv4": (socket.AF_INET, ("127.0.0.1", 0)),
        "IPv6": (socket.AF_INET6, ("::1", 0)),
        "a socket in a folder": (socket.AF_UNIX, f"{tmp_path}/s"),
    }[kind]
    with listening(family, address, reply) as peer:
        assert expected is answers(peer, 0.2)


def test_a_real_server_answers(server: PostgresServer):
    """Over the socket of its folder; nothing is there elsewhere."""
    assert answers(f"{server.folder}/.s.PGSQL.5432", ENOUGH)
    assert not answers(f"{server.folder}/.s.PGSQL.1", ENOUGH)
