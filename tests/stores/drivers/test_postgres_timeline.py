"""The server of a store: sessions show when another one has taken over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from redrive.errors import StoreUnreachable
from redrive.stores.drivers.postgres import aio, sync, timeline
from redrive.stores.drivers.postgres.settings import parse_url
from redrive.stores.drivers.postgres.timeline import Timeline
from redrive.stores.opening import open_store
from redrive.stores.operations import workers
from redrive.stores.store import Store
from tests import postgres

NEXT = timeline.SERVER.replace("8) END", "8) || 'next' END")
"""Another server, as a session would report it."""


@pytest.fixture(name="store")
def _store() -> Iterator[Store]:
    """Yield an empty store."""
    with postgres.lent() as url:
        store = open_store(url)
        yield store
        store.close()


def test_an_era_begins_with_each_other_server():
    """Count servers, and no session without one; call the listeners."""
    met, calls = Timeline(), []
    met.listeners.append(lambda: calls.append(met.era))

    assert [0, 0, 0, 1, 1, 2] == [met.meet(each) for each in (None, "1 1", "1 1", "1 2", None, "1 1")]
    assert [1, 2] == calls


def test_only_a_refusal_of_the_functions_ends_the_questions():
    """Ask no more after a refusal, and report other errors."""
    met = Timeline()

    assert (False, True, False) == (met.refused("57P01"), met.refused("42501"), met.refused("42501"))


def outcomes(store: Store, era: int | None = None) -> list[object]:
    """Run a read with each library, perhaps in an era; return the results or the classes of the errors."""
    found: list[object] = []
    for colour in ("sync", "async"):
        operation = replace(workers.workers(), era=era)
        try:
            found.append(store.run(operation) if colour == "sync" else asyncio.run(store.arun(operation)))
        except StoreUnreachable as error:
            found.append(type(error))
    return found


def test_connections_of_an_earlier_server_are_not_used_again(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Replace idle connections when a session has met another server."""
    with asyncio.Runner() as runner:
        runner.run(store.arun(workers.workers()))
        (pool,) = store._aio._pools.values()
        old = pool._idle[0][0]
        monkeypatch.setattr(store._timeline, "server", NEXT)
        store.run(workers.workers())
        runner.run(store.arun(workers.workers()))

        assert (1, True, False) == (store.era, old.is_closed(), pool._idle[0][0] is old)
        monkeypatch.undo()
        assert [(), ()] == outcomes(store)
        assert 2 == store.era


def test_operations_of_an_earlier_era_are_refused(store: Store):
    """Send an operation in its own era only, and one without an era in each."""
    store._timeline.meet("7 00000002")
    before = outcomes(store)
    era = store.era

    assert (1, [(), ()], [(), ()]) == (era, before, outcomes(store, era))
    assert [StoreUnreachable] * 2 == outcomes(store, era - 1)
    assert [(), ()] == outcomes(store, era)


@pytest.fixture(name="role")
def _role() -> Iterator[str]:
    """Yield the URL of a role without rights, in a database of its own."""
    name = postgres.fresh()
    with postgres.connect() as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN")
        connection.execute(f"CREATE DATABASE {name}")
        yield postgres.url(database=name).replace("postgres@", f"{name}@")
        connection.execute(f"DROP DATABASE {name}")
        connection.execute(f"DROP ROLE {name}")


def servers(url: str) -> list[Timeline]:
    """Begin a session with each library, and return what they have met."""
    settings, met = parse_url(url), [Timeline(), Timeline()]
    with sync.connect(settings) as connection:
        sync.begin_session(connection, settings, met[0])

    async def begin() -> None:
        connection = await aio.connect(settings)
        await aio.begin_session(connection, settings, met[1])
        await connection.close()

    asyncio.run(begin())
    return met


def test_an_ordinary_role_may_read_the_server(role: str):
    """Read the server as a role without rights; a role that may not call the functions has sessions and no eras."""
    known = servers(role)
    with postgres.connect(database=parse_url(role).dsn.rpartition("/")[2].partition("?")[0]) as connection:
        connection.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    unknown = servers(role)

    assert known[0].present == known[1].present != None  # noqa: E711 - of a chain
    assert [(None, "NULL")] * 2 == [(each.present, each.server) for each in unknown]


def test_a_pool_in_front_of_the_server_is_asked():
    """Ask through a pool, whose connections do not show the server; no other store asks."""
    with postgres.lent(pgbouncer="on") as url:
        store = open_store(url)
        store.run(workers.workers())
        before = store._timeline.present
        store.look_at_server(5)
        store._timeline.meet("7 00000002")
        store.look_at_server(5)
        era = store.era
        store.close()
        store.look_at_server(5)

    assert (None, 2) == (before, era)
