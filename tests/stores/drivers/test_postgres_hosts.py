"""URLs with several servers, of which the first one is silent, drops packets, refuses or does not write."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redrive.clock import SystemClock
from redrive.errors import StoreOpenError, StoreUnreachable
from redrive.stores.drivers.postgres import parse_url
from redrive.stores.opening import aopen_store, open_store
from redrive.stores.operations import admin, jobs
from redrive.stores.store import Store
from tests import postgres
from tests.stores.helpers import T0, new

ENOUGH = 10.0
"""Seconds within which a caller goes on, on a busy machine: two and a little, and without a limit of its own thirty."""


LITTLE = 1.5
"""Seconds, less than a server has to open a session."""


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """Listen, and never answer, as a server that was stopped."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@contextlib.contextmanager
def silent_folder() -> Iterator[str]:
    """Listen on the socket of a folder, and never answer."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/.s.PGSQL.5432")
        listening.listen()
        yield folder


@contextlib.contextmanager
def dropping() -> Iterator[str]:
    """Drop the packets of new connections, as the kernel does when its queue is full."""
    with contextlib.ExitStack() as held:
        listening = held.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(8):
            each = held.enter_context(socket.socket())
            each.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                each.connect(listening.getsockname())
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@contextlib.contextmanager
def refusing() -> Iterator[str]:
    """Refuse connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


FAULTS = {"silent": silent, "a silent socket": silent_folder, "dropping": dropping, "refusing": refusing}


def url_of(*hosts: str, schema: str | None = None, **options: str) -> str:
    """Return the URL of a store on these servers."""
    return postgres.url(schema, **{"host": ",".join(hosts), "port": "", **options})


@pytest.fixture(name="first", params=FAULTS)
def _first(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the address of a server with a fault."""
    with FAULTS[request.param]() as address:
        yield address


@pytest.fixture(name="schema", scope="module")
def _schema() -> str:
    """Return a schema with tables."""
    name = postgres.fresh()
    open_store(postgres.url(name)).close()
    return name


def both(store: Store) -> dict[str, Callable[[Any], Any]]:
    """Return what runs an operation, for each colour."""
    return {"sync": store.run, "async": lambda operation: asyncio.run(store.arun(operation))}


def elapsed(call: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    began = SystemClock.monotonic()
    call()
    return SystemClock.monotonic() - began


@pytest.mark.realtime
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_next_server_is_reached_in_time(first: str, colour: str, schema: str):
    """Each driver tries it after two seconds, and the good one at once from then on."""
    url = url_of(first, postgres.server(), schema=schema, target_session_attrs="read-write")
    store = open_store(url, migrated=False)
    run = both(store)[colour]

    assert elapsed(lambda: run(jobs.enqueue([new()], now=T0))) < ENOUGH
    # It is the first one of either driver from now on.
    for each in both(store).values():
        assert elapsed(lambda each=each: each(admin.stats())) < ENOUGH / 3
    store.close()


@pytest.mark.realtime
def test_a_store_is_opened_past_a_silent_server(schema: str):
    """The migration, and the check of the schema by a coroutine, reach the next server as well."""
    with silent() as first:
        url = url_of(first, postgres.server(), schema=schema)
        stores: list[Store] = []
        assert elapsed(lambda: stores.append(open_store(url))) < ENOUGH
        assert elapsed(lambda: stores.append(asyncio.run(aopen_store(url)))) < ENOUGH
    for each in stores:
        each.close()


@pytest.mark.realtime
@pytest.mark.parametrize("past", ["", "direct"])
def test_the_listening_connection_reaches_the_next_server(schema: str, past: str):
    """It has a list of its own where the others go through a pool."""
    with silent() as first:
        hosts = [first, postgres.server()]
        options = {"pgbouncer": "on", "direct": ",".join(hosts)} if past else {}
        store = open_store(url_of(*([postgres.server()] if past else hosts), schema=schema, **options), migrated=False)

        async def listen() -> None:
            watching = store.watch(SystemClock(), lock_id=1)
            await anext(watching)
            await watching.aclose()

        assert elapsed(lambda: asyncio.run(listen())) < ENOUGH
        store.close()


@pytest.mark.realtime
def test_the_transaction_of_a_handler_reaches_the_next_server(schema: str):
    """Both drivers open it with the same order of servers."""
    with silent() as first:
        store = open_store(url_of(first, postgres.server(), schema=schema), migrated=False)

        async def coroutine() -> None:
            await (await store.abegin()).rollback()

        assert elapsed(lambda: asyncio.run(coroutine())) < ENOUGH
        # The good server is remembered for both.
        assert elapsed(lambda: store.begin().rollback()) < ENOUGH / 3
        store.close()


@pytest.mark.realtime
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_all_servers_have_the_time_of_the_call_together(colour: str, schema: str):
    """The call gives up after its timeout, and its error has the reason of each server and no password."""
    with silent() as one, silent() as other, refusing() as last:
        hosts = [one, other, last, one]
        url = url_of(*hosts, schema=schema, timeout="3s").replace("postgres@", "postgres:canary@")
        store = open_store(url, migrated=False)
        with pytest.raises(StoreUnreachable) as failed:
            both(store)[colour](admin.stats())
        store.close()

    text = str(failed.value)
    assert f"({one}: no answer within 2.0 s; {other}: no answer within " in text
    assert f"; {last}: not tried, as the time of this call was up; " in text
    assert "canary" not in text


@pytest.mark.realtime
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_callers_with_little_time_reach_the_next_server(colour: str, schema: str):
    """A caller with less time than a server has, such as a heartbeat, leaves the other servers to the next one."""
    with silent() as first:
        store = open_store(url_of(first, postgres.server(), schema=schema), migrated=False)

        async def coroutine() -> None:
            async with asyncio.timeout(LITTLE):
                await store.arun(admin.stats())

        def call() -> None:
            if colour == "sync":
                store.run(admin.stats(), timeout=LITTLE)
            else:
                asyncio.run(coroutine())

        with pytest.raises((StoreUnreachable, TimeoutError)):
            call()
        # On a busy machine the time may be too little for the good server, which is the first one now.
        while not _succeeds(call):
            assert parse_url(url_of(postgres.server())).servers.order[0] == store.settings.servers.order[0]
        store.close()


def _succeeds(call: Callable[[], object]) -> bool:
    with contextlib.suppress(StoreUnreachable, TimeoutError):
        call()
        return True
    return False


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_both_drivers_give_the_same_reasons(colour: str, schema: str):
    """A list of servers that cannot be used is the same whichever library tried them."""
    with refusing() as one, refusing() as other:
        store = open_store(url_of(one, other, "/nowhere", schema=schema), migrated=False)
        with pytest.raises(StoreUnreachable) as failed:
            both(store)[colour](admin.stats())
        store.close()

    assert str(failed.value).endswith(
        f"cannot be reached; this transaction wrote nothing ({one}: Connection refused; {other}: Connection refused; "
        "/nowhere:5432: No such file or directory)"
    )


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_refusal_is_an_error_of_its_own(colour: str):
    """A database that does not exist does not become one that is away."""
    with refusing() as first:
        url = url_of(first, postgres.server()).replace("/postgres?", "/nowhere?")
        store = open_store(url, migrated=False)
        with pytest.raises(StoreOpenError, match=f'{first}: Connection refused; .*database "nowhere" does not exist'):
            both(store)[colour](admin.stats())
        store.close()


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("wanted", ["read-write", "read-only", "primary", "standby", "prefer-standby", "any"])
def test_the_only_server_must_be_of_the_wanted_kind(colour: str, wanted: str, schema: str):
    """The server of the tests is a primary that writes."""
    store = open_store(postgres.url(schema, target_session_attrs=wanted), migrated=False)
    if wanted in {"read-only", "standby"}:
        with pytest.raises(StoreUnreachable, match=f"is a primary, and target_session_attrs={wanted}"):
            both(store)[colour](admin.stats())
    else:
        both(store)[colour](admin.stats())
    store.close()
