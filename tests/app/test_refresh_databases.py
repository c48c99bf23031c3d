"""Tracking within the user's own transaction, on connections of every library; and other versions of a program."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sqlite3

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from redrive import App, Context, Pending
from redrive.errors import NotTracked, StoreMismatch
from redrive.testing import VirtualClock, drain
from tests import postgres

EVERY = "Refresh every 2 hours; allow 10 minutes; on the first failure, retry after 1 minute"


def fetch(url: str) -> None:
    """Fetch a page."""


# --------------------------------------------------------------------------------------------- synchronous connections


@pytest.fixture(params=["sqlite3", "psycopg", "SQLAlchemy on SQLite", "SQLAlchemy on PostgreSQL"])
def mine(request, tmp_path):
    """Yield an app with a refresh and a table of the user, and the user's connection to its database."""
    library = request.param
    on_file = library in {"sqlite3", "SQLAlchemy on SQLite"}
    app = App(f"sqlite:///{tmp_path}/shop.db?synchronous=normal" if on_file else postgres.url())
    app.refresh(EVERY)(fetch)
    app.open()
    with contextlib.closing(app), _connection(library, tmp_path / "shop.db") as connection:
        _run(connection, "CREATE TEMPORARY TABLE shops (name TEXT)")
        connection.commit()
        yield app, connection


def lent(connection):
    """Return the argument for using=: on SQLite the connection of sqlite3."""
    on_file = isinstance(connection, Session) and connection.connection().dialect.name == "sqlite"
    return connection.connection().connection.driver_connection if on_file else connection


@contextlib.contextmanager
def _connection(library, file):
    if library == "sqlite3":
        with contextlib.closing(sqlite3.connect(file)) as connection:
            yield connection
    elif library == "psycopg":
        with postgres.connect(autocommit=False) as connection:
            yield connection
    else:
        engine = (
            sqlalchemy.create_engine(f"sqlite:///{file}")
            if library == "SQLAlchemy on SQLite"
            else sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: postgres.connect(autocommit=False))
        )
        with Session(engine) as session:
            yield session
        engine.dispose()


def _run(connection, statement):
    return connection.execute(sqlalchemy.text(statement) if isinstance(connection, Session) else statement)


def shops(connection) -> int:
    """Return the number of rows of the user's table."""
    return _run(connection, "SELECT count(*) FROM shops").fetchone()[0]


def test_an_item_is_tracked_if_the_users_transaction_commits(mine):
    """After a commit the user's row, the item and the job of its first attempt exist."""
    app, connection = mine
    _run(connection, "INSERT INTO shops VALUES ('ours')")
    new = app.tasks["fetch"].keeping(using=lent(connection)).track("k", "a")
    with pytest.raises(NotTracked):
        app.tasks["fetch"].get("k")
    assert 0 == app.jobs.stats().due
    connection.commit()

    assert (True, 1, 1, 1) == (new, app.tasks["fetch"].get("k").attempt_no, app.jobs.stats().due, shops(connection))


def test_a_rollback_of_the_users_transaction_untracks_the_item(mine):
    """After a rollback neither row nor item nor job exists."""
    app, connection = mine
    _run(connection, "INSERT INTO shops VALUES ('ours')")
    app.tasks["fetch"].keeping(using=lent(connection), at_once=False).track_many([("k", "a"), ("m", "b")])
    connection.rollback()

    assert ((), 0, 0) == (app.tasks["fetch"].tracked(), app.jobs.stats().due, shops(connection))


def test_an_update_is_a_part_of_the_users_transaction(mine):
    """After a rollback of an update nothing is enabled or cancelled."""
    app, connection = mine
    app.tasks["fetch"].track("k", "a")
    first = app.tasks["fetch"].get("k").job_id
    app.tasks["fetch"].update("k", using=lent(connection))
    connection.rollback()
    assert (first, "ready") == (app.tasks["fetch"].get("k").job_id, app.job(first).state)

    app.tasks["fetch"].update("k", using=lent(connection))
    connection.commit()
    assert "cancelled" == app.job(first).state


def test_untracking_is_a_part_of_the_users_transaction(mine):
    """Untracking is a part of the user's transaction."""
    app, connection = mine
    app.tasks["fetch"].track("k", "a")
    app.tasks["fetch"].untrack("k", using=lent(connection))
    connection.rollback()
    assert 1 == len(app.tasks["fetch"].tracked())

    assert app.tasks["fetch"].untrack("k", using=lent(connection))
    connection.commit()
    assert () == app.tasks["fetch"].tracked()


def test_the_longest_key_fits_into_every_database(mine):
    """Two thousand bytes that cannot be packed, under a name that is not short either."""
    app, _ = mine
    key = "".join(hashlib.sha256(bytes([number])).hexdigest() for number in range(32))[:2000]
    table = app.refresh(EVERY, name="of_a_name_that_is_not_short")(fetch)
    table.track(key, "a")

    assert [key] == [each.key for each in table.tracked()]


def test_a_connection_to_another_database_is_refused(tmp_path):
    """Connections to another file are refused, because the item would never start."""
    with contextlib.closing(App(f"sqlite:///{tmp_path}/shop.db")) as app:
        fetching = app.refresh(EVERY)(fetch)
        app.open()
        with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as other, pytest.raises(StoreMismatch):
            fetching.keeping(using=other).track("k", "a")


# -------------------------------------------------------------------------------------------- asynchronous connections


@contextlib.asynccontextmanager
async def _psycopg():
    async with await psycopg.AsyncConnection.connect(
        host=postgres.server(), user="postgres", dbname="postgres"
    ) as connection:
        yield connection, connection.commit, connection.rollback


@contextlib.asynccontextmanager
async def _asyncpg():
    connection = await asyncpg.connect(host=postgres.server(), user="postgres", database="postgres")
    transaction = connection.transaction()
    await transaction.start()
    yield connection, transaction.commit, transaction.rollback
    await connection.close()


@contextlib.asynccontextmanager
async def _alchemy():
    engine = create_async_engine("postgresql+psycopg://postgres@/postgres", connect_args={"host": postgres.server()})
    async with engine.connect() as connection:
        yield connection, connection.commit, connection.rollback
    await engine.dispose()


@pytest.mark.parametrize("library", [_psycopg, _asyncpg, _alchemy], ids=["psycopg", "asyncpg", "SQLAlchemy"])
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
def test_coroutines_track_within_their_own_transactions(library, commits):
    """On PostgreSQL the ``a`` methods take asynchronous connections."""

    async def track() -> None:
        """Track, update and untrack in one transaction."""
        async with library() as (connection, commit, rollback):
            await fetching.keeping(using=connection).atrack("k", "a")
            await fetching.keeping(using=connection).atrack_many([("m", "b"), ("n", "c")])
            await fetching.aupdate("m", at_once=False, using=connection)
            assert await fetching.auntrack("n", using=connection)
            await (commit if commits else rollback)()

    with contextlib.closing(App(postgres.url())) as app:
        fetching = app.refresh(EVERY)(fetch)
        app.open()
        asyncio.run(track())
        assert (["k", "m"] if commits else []) == [each.key for each in fetching.tracked()]


# ----------------------------------------------------------------------------------------------------- other programs


@pytest.fixture
def clock():
    """Return a virtual clock."""
    return VirtualClock()


@pytest.fixture
def program(tmp_path, clock):
    """Another program, or another version of one, on the same database."""
    made = []

    def program() -> App:
        """Start a new program."""
        made.append(App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", clock=clock))
        return made[-1]

    yield program
    for each in made:
        each.close()


def test_stored_arguments_that_no_longer_match_disable_no_item(program, clock):
    """Arguments that do not match any more are an ordinary failure, and their text is no reason for customers."""

    def newer(url: int) -> None:
        """Take another type."""

    program().refresh(EVERY)(fetch).track("k", "a")
    app = program()
    table = app.refresh(EVERY, name="fetch")(newer)
    drain(app, within="10s")

    assert (False, 1) == (table.get("k").disabled_until_update, table.get("k").attempt_no)
    assert "BAD_PAYLOAD" == app.jobs.select()[0].reason
    assert 60 == (table.get("k").refresh_at - clock.now()).total_seconds()


def test_a_newer_deployment_plans_items_of_an_older_one(program, clock):
    """New schedules count from the deployment on; items with their own policies keep them."""
    old = program().refresh(EVERY)(fetch)
    old.keeping(at_once=False).track("k", "a")
    old.keeping(at_once=False, policy="Refresh every 3 hours").track("own", "a")
    app = program()
    table = app.refresh("Refresh every 30 minutes", name="fetch")(fetch)
    drain(app, within="1s")

    assert [(0, 30), (3, 0)] == [(each.refresh_at.hour, each.refresh_at.minute) for each in table.tracked()]


def test_a_program_that_does_not_have_the_refresh_starts_nothing_of_it(program, clock):
    """Programs without the refresh start none of its items."""
    ran = []

    def note(ctx: Context) -> None:
        """Note the key."""
        ran.append(ctx.key)

    program().refresh(EVERY, name="fetch")(note).keeping(at_once=False).track("k")
    other = program()
    other.cron("@yearly", name="unused")(lambda: None)
    drain(other, within="4h")
    assert [] == ran

    clock.advance("4h")
    app = program()
    app.refresh(EVERY, name="fetch")(note)
    drain(app, within="1s")
    assert ["k"] == ran


def test_a_program_that_does_not_have_the_refresh_sees_deadlines_pass(program, clock):
    """It decides by the policy in the database; the retry waits for a program with the code."""

    def order() -> Pending:
        """Order it elsewhere."""
        return Pending("1h")

    app = program()
    table = app.refresh(EVERY)(order)
    table.track("k")
    drain(app, within="1s")
    other = program()
    other.cron("@yearly", name="unused")(lambda: None)
    drain(other, within="1h")

    item = table.get("k")
    assert (None, 1, "00:11") == (item.job_id, item.attempt_no, f"{item.refresh_at:%H:%M}")
    assert "dead" == table.app.job(1).state


def test_a_program_that_does_not_have_the_refresh_takes_answers(program, clock):
    """Programs without the refresh can complete its attempts."""
    tokens = []

    def order(ctx: Context) -> Pending:
        """Order it elsewhere."""
        tokens.append(ctx.attempt_uid)
        return Pending("1h")

    app = program()
    table = app.refresh(EVERY, name="order")(order)
    table.track("k")
    drain(app, within="1s")

    assert program().complete(tokens[0])
    assert (0, None) == (table.get("k").attempt_no, table.get("k").job_id)


def test_an_older_program_disables_an_item_with_an_unreadable_policy(program, clock):
    """Items with an unreadable policy are given up with the message, and block no others."""
    app = program()
    table = app.refresh(EVERY)(fetch)
    table.keeping(at_once=False).track_many([("k", "a"), ("m", "b")])
    with contextlib.closing(sqlite3.connect(app.url.removeprefix("sqlite:///").partition("?")[0])) as connection:
        connection.execute("UPDATE redrive_refreshes SET own = '{}' WHERE key = 'k'")
        connection.commit()
    drain(app, within="3h")

    assert [True, False] == [each.disabled_until_update for each in table.tracked()]
    assert "policy: Object missing required field `version`" in (table.get("k").disabled_reason or "")
    assert table.get("m").started_at is not None
