"""What redrive commits on PostgreSQL is on the disk when it is acknowledged, whatever the server is configured to."""

# ruff: noqa: S608 - the names of tables are this test's own
from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from redrive.engine.outcome import Succeeded
from redrive.engine.records import KeyUntil
from redrive.errors import ConfigurationError
from redrive.stores.drivers.postgres import parse_url
from redrive.stores.opening import open_store
from redrive.stores.operations import jobs, leases, workers
from redrive.stores.operations.leases import Ending
from redrive.stores.store import Store
from tests import debian, postgres
from tests.debian import needed
from tests.stores.helpers import LONG, T0, new

KEYED = replace(new(), key="k", key_until=KeyUntil.END)

TRIGGER = """
CREATE TABLE "{0}".seen (setting text);
CREATE FUNCTION "{0}".see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO "{0}".seen VALUES (current_setting('synchronous_commit'));
    RETURN NULL;
END $$;
CREATE TRIGGER see AFTER INSERT OR UPDATE ON "{0}".redrive_jobs EXECUTE FUNCTION "{0}".see();
"""
"""Notes how each transaction that writes jobs is going to be committed."""


def pooled(**options: str) -> str:
    """Return the URL of a store behind pgbouncer."""
    program = needed("pgbouncer", lambda: debian.program("pgbouncer"))
    return postgres.url(host=postgres.pool(program), port="6432", pgbouncer="on", **options)


URLS: dict[str, Callable[..., str]] = {"its own sessions": postgres.url, "pgbouncer": pooled}


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Makes the URL of a store."""
    return URLS[request.param]


def seen(schema: str, *, database: str = "postgres") -> list[str]:
    """Return the values of synchronous_commit at the commits."""
    with postgres.connect(database=database) as connection:
        return [row[0] for row in connection.execute(f'SELECT setting FROM "{schema}".seen')]  # type: ignore[call-overload]


def watched(url: str, *, database: str = "postgres") -> tuple[Store, str]:
    """Open a store, and have its commits noted."""
    store = open_store(url)
    schema = url.partition("schema=")[2].partition("&")[0]
    with postgres.connect(database=database) as connection:
        connection.execute(TRIGGER.format(schema))
    return store, schema


def everything(run: Callable[[Any], Any]) -> None:
    """Write in all the ways that there are: single statements, transactions, and those of a worker."""
    worker = run(workers.register("w", concurrency=9, lease_for=LONG, now=T0))
    run(jobs.enqueue([new()], now=T0))
    run(jobs.enqueue([KEYED], now=T0))
    claims = run(leases.claim(worker, 9, lease_for=LONG, now=T0)).claims
    run(leases.settle([Ending(claim, Succeeded(b"1"), 0.0) for claim in claims], now=T0))


@pytest.mark.parametrize(("option", "expected"), [({}, {"on"}), ({"synchronous_commit": "off"}, {"off"})])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_every_commit_waits_for_the_disk(url: Callable[..., str], colour: str, option: dict[str, str], expected: set):
    """Transactions of redrive wait for the disk although the server's default is off, unless the URL turns it off."""
    store, schema = watched(url(**option))
    with asyncio.Runner() as runner:
        everything(store.run if colour == "sync" else lambda operation: runner.run(store.arun(operation)))
        store.close()

    assert expected == set(seen(schema))
    assert 4 <= len(seen(schema))


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_handlers_transaction_waits_for_the_disk(url: Callable[..., str], colour: str):
    """Commits of ``ctx.transaction()`` wait for the disk like a settle."""
    store, schema = watched(url())

    def borrow() -> None:
        """Write on a connection of psycopg."""
        loan = store.begin()
        loan.run(jobs.enqueue([new()], now=T0))
        loan.commit()

    async def aborrow() -> None:
        """Write on a connection of asyncpg."""
        loan = await store.abegin()
        await loan.run(jobs.enqueue([new()], now=T0))
        await loan.commit()

    borrow() if colour == "sync" else asyncio.run(aborrow())
    store.close()

    assert ["on"] == seen(schema)


def test_a_users_transaction_keeps_its_durability_setting():
    """With ``using=`` redrive changes no setting of a session that is not its own."""
    store, schema = watched(postgres.url())
    with postgres.connect(autocommit=False) as connection:
        store.run(jobs.enqueue([new()], now=T0), using=connection)
        (after,) = connection.execute("SHOW synchronous_commit").fetchone() or ()
    store.close()

    assert (["off"], "off") == (seen(schema), after)


@pytest.fixture
def strict() -> Iterator[str]:
    """Create a database in which commits wait for the standbys as well."""
    name = postgres.fresh()
    with postgres.connect() as connection:
        connection.execute(f"CREATE DATABASE {name}")
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = remote_apply")
    yield name
    with postgres.connect() as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_stricter_settings_are_kept(strict: str):
    """Stricter settings of the server are kept."""
    store, schema = watched(postgres.url(database=strict), database=strict)
    everything(store.run)
    store.close()

    assert {"remote_apply"} == set(seen(schema, database=strict))


def test_a_migration_waits_for_the_disk():
    """Migrations are committed like every other operation."""
    url = postgres.url()
    store = open_store(url)
    script = store.migration_cursor()
    for statement in script.look:
        script.execute(statement)
    script.execute("SHOW synchronous_commit")
    found = script.fetchone()
    script.close()
    store.close()

    assert ("on",) == found


def test_the_setting_is_on_or_off():
    """Other values are refused with the valid ones."""
    with pytest.raises(ConfigurationError, match=re.escape("synchronous_commit='local'; settings:")):
        parse_url("postgresql:///d?synchronous_commit=local")
    with pytest.raises(ConfigurationError, match=re.escape("synchronous_commit=on|off")):
        parse_url("postgresql:///d?nothing=on")


def test_the_setting_costs_no_round_trip(monkeypatch: pytest.MonkeyPatch):
    """Open sessions need no further statement for it."""
    store = open_store(postgres.url())
    store.run(jobs.enqueue([new()]))
    statements = []
    execute = psycopg.RawCursor.execute
    monkeypatch.setattr(
        psycopg.RawCursor, "execute", lambda *args, **kw: statements.append(args[1]) or execute(*args, **kw)
    )
    store.run(jobs.enqueue([new()]))
    store.close()

    assert [1, 0] == [len(statements), sum("synchronous_commit" in text for text in statements)]
