"""How it is used, and how it must not be."""

from __future__ import annotations

import asyncio
import contextlib
import inspect

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

import redrive
from redrive.contrib import asyncpg as on_asyncpg
from redrive.contrib import psycopg as on_psycopg
from redrive.contrib import sqlalchemy as on_sqlalchemy
from redrive.errors import PolicyError
from redrive.policy import Policy
from tests import postgres
from tests.contrib.transactions.libraries import PATIENT, Library, Once
from tests.proxy import FaultKind


def connect(**options):
    """Open a connection of psycopg."""
    return psycopg.connect(host=postgres.server(), user="postgres", dbname="postgres", **options)


# ---------------------------------------------------------------------------------------------------------- as a block


def test_a_block_is_repeated_as_a_whole(table):
    """Each turn of the loop is another transaction, on another connection."""
    seen = []
    kill = Once(table.kill)
    for attempt in Policy.parse(PATIENT).with_(on=on_psycopg.failure_of):
        with attempt, on_psycopg.transaction(lambda: connect(application_name=table.name)) as connection:
            seen.append(connection.info.backend_pid)
            connection.execute(table.insert)
            kill()
            connection.execute(table.insert)

    assert 2 == len(set(seen))
    assert [1, 1] == table.rows


def test_an_async_block_is_repeated_as_a_whole(table):
    """Repeat an asynchronous block as a whole."""
    kill = Once(table.kill)
    source = Library("asyncpg", postgres.server(), 5432, table.name).source()

    async def work():
        async for attempt in Policy.parse(PATIENT).with_(on=on_asyncpg.failure_of):
            with attempt:
                async with on_asyncpg.transaction(source) as connection:
                    await connection.execute(table.insert)
                    kill()
                    await connection.execute(table.insert)

    asyncio.run(work())
    assert [1, 1] == table.rows


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_user_supplied_connection_stays_open(table, autocommit):
    """Connections of the user stay open after a block."""
    with connect(autocommit=autocommit) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero), on_psycopg.transaction(connection):
            connection.execute(f"{table.insert}; SELECT 1 / 0")
        with on_psycopg.transaction(connection):
            connection.execute(table.insert)

        assert [1] == table.rows
        assert not connection.closed


def test_a_lost_user_supplied_connection_raises(table):
    """There is no way to another one, so that nothing is tried again in vain."""
    attempts = []
    connection = connect(application_name=table.name)

    @redrive.retry(PATIENT, on=on_psycopg.failure_of)
    def work():
        attempts.append(1)
        with on_psycopg.transaction(connection):
            table.kill()
            connection.execute(table.insert)

    with pytest.raises(RuntimeError, match="no way to another"):
        work()

    assert [1, 1] == attempts


def test_an_open_transaction_is_refused_and_left_alone(table):
    """Retries inside an open transaction are refused: they would fail again."""
    with connect() as connection:
        connection.execute(table.insert)
        with pytest.raises(RuntimeError, match="put the retry around the whole transaction"):
            on_psycopg.transaction(connection).__enter__()

    assert [1] == table.rows


def test_an_open_transaction_of_asyncpg_is_refused_and_left_alone(table):
    """Retries inside an open transaction of asyncpg are refused too."""

    async def work():
        connection = await asyncpg.connect(host=postgres.server(), user="postgres", database="postgres")
        async with connection.transaction():
            await connection.execute(table.insert)
            with pytest.raises(RuntimeError, match="put the retry around the whole transaction"):
                await on_asyncpg.transaction(connection).__aenter__()
        await connection.close()

    asyncio.run(work())
    assert [1] == table.rows


def test_a_user_supplied_connection_of_asyncpg_stays_open(table):
    """Connections of asyncpg stay open after a block too."""

    async def work():
        connection = await asyncpg.connect(host=postgres.server(), user="postgres", database="postgres")
        async with on_asyncpg.transaction(connection):
            await connection.execute(table.insert)
        await connection.execute(table.insert)
        await connection.close()
        with pytest.raises(RuntimeError, match="no way to another"):
            await on_asyncpg.transaction(connection).__aenter__()

    asyncio.run(work())
    assert [1, 1] == table.rows


def test_a_rollback_that_was_asked_for_ends_the_block(table):
    """Raising psycopg.Rollback is no failure, as in psycopg's own blocks."""
    with on_psycopg.transaction(connect) as connection:
        connection.execute(table.insert)
        raise psycopg.Rollback

    assert [] == table.rows


def test_a_commit_inside_is_refused(table):
    """With psycopg only the block can end its transaction."""
    with on_psycopg.transaction(connect) as connection:
        connection.execute(table.insert)
        with pytest.raises(psycopg.ProgrammingError, match="forbidden"):
            connection.commit()
        raise psycopg.Rollback

    assert [] == table.rows


def test_a_transaction_is_entered_once():
    """Each attempt needs a new one."""
    block = on_psycopg.transaction(connect)
    with block:
        pass

    with pytest.raises(RuntimeError, match="each attempt needs a new one"):
        block.__enter__()


# --------------------------------------------------------------------------------------------------- single statements


def test_a_single_statement_with_a_lost_reply_is_not_repeated(table, proxy):
    """Without a transaction the outcome of a lost statement is unknown."""
    proxy.on(FaultKind.CUT_AFTER, when=b"INSERT")
    attempts = []

    @redrive.retry(PATIENT, on=on_psycopg.failure_of)
    def insert():
        attempts.append(1)
        with psycopg.connect(host=proxy.host, port=proxy.port, user="postgres", autocommit=True) as connection:
            connection.execute(table.insert)

    with pytest.raises(psycopg.OperationalError) as caught:
        insert()

    assert ([1], [1]) == (attempts, table.rows)
    assert "not_idempotent" == caught.value.__retry__.rule


def test_a_single_statement_that_could_not_be_sent_is_repeated(table, proxy):
    """Refused connections have executed no statement."""
    proxy.on(FaultKind.CUT_BEFORE)

    @redrive.retry(PATIENT, on=on_psycopg.failure_of)
    def insert():
        with psycopg.connect(host=proxy.host, port=proxy.port, user="postgres", autocommit=True) as connection:
            connection.execute(table.insert)

    insert()
    assert [1] == table.rows


def test_a_statement_that_is_repeated_inside_a_failed_transaction_is_given_up(table):
    """Retries of a statement inside a failed transaction end with a message that names the error."""
    with connect() as connection:

        @redrive.retry(PATIENT, on=on_psycopg.failure_of)
        def insert():
            connection.execute("DO $$ BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = '40001'; END $$")

        with pytest.raises(psycopg.errors.InFailedSqlTransaction) as caught:
            insert()
        connection.rollback()

    assert "put the retry around the whole transaction" in caught.value.__retry__.why
    assert 2 == caught.value.__retry__.attempts


# --------------------------------------------------------------------------------------------------------------- pools


class FakePool:
    """As psycopg_pool is seen from outside: connections are kept, and closed ones are replaced."""

    max_size = 3

    def __init__(self, name):
        self.name = name
        self.free = [connect(application_name=name) for _ in range(self.max_size)]

    def getconn(self):
        """Take one."""
        return self.free.pop(0)

    def putconn(self, conn):
        """Give it back."""
        self.free.append(connect(application_name=self.name) if conn.closed else conn)


def test_dead_connections_of_a_pool_cost_no_attempt(table):
    """After a restart of the server every connection of the pool is dead; they are replaced one after the other."""
    pool = FakePool(table.name)
    table.kill()
    attempts = []

    @on_psycopg.transactional(pool, "1 1ms")
    def work(connection):
        attempts.append(1)
        connection.execute(table.insert)

    work()
    assert ([1], [1], 3) == (attempts, table.rows, len(pool.free))
    for each in pool.free:
        each.close()


def test_an_error_of_the_pool_itself_surfaces(table):
    """It is no dead connection, of which another one could be had."""

    class Shut(FakePool):
        def getconn(self):
            raise LookupError("shut")

    pool = Shut(table.name)
    table.kill()

    with pytest.raises(LookupError, match="shut"):
        on_psycopg.transactional(pool, PATIENT)(lambda connection: None)()

    for each in pool.free:
        each.close()


def test_dead_connections_of_an_engine_are_discarded_together(table):
    """SQLAlchemy empties its pool when the first one turns out to be dead: one attempt."""
    address = {"host": postgres.server(), "user": "postgres", "application_name": table.name}
    engine = sqlalchemy.create_engine("postgresql+psycopg://", connect_args=address)
    for each in [engine.connect() for _ in range(3)]:
        each.close()
    table.kill()

    @on_sqlalchemy.transactional(engine, "1 1ms")
    def work(connection):
        connection.execute(sqlalchemy.text(table.insert))

    work()
    engine.dispose()
    assert [1] == table.rows


def test_dead_connections_of_an_asyncpg_pool_are_replaced(table):
    """It is seen by asyncpg itself that they are gone; its pool may be made by the function that is given."""
    options = {"server_settings": {"application_name": table.name}}

    async def work():
        async with asyncpg.create_pool(
            host=postgres.server(), user="postgres", database="postgres", min_size=3, max_size=3, **options
        ) as pool:

            @on_asyncpg.transactional(lambda: pool, "3 1ms")
            async def insert(connection):
                await connection.execute(table.insert)

            table.kill()
            await insert()
            await insert()

    asyncio.run(work())
    assert [1, 1] == table.rows


@pytest.mark.parametrize("library", ["psycopg", "sqlalchemy"])
def test_an_interruption_of_the_end_loses_no_connection(table, monkeypatch, library):
    """The pool has its connection back also if its closing is interrupted, as by a second cancellation."""
    pool = FakePool(table.name)
    address = {"host": postgres.server(), "user": "postgres"}
    engine = sqlalchemy.create_engine("postgresql+psycopg://", connect_args=address)
    closed = psycopg.Connection if library == "psycopg" else sqlalchemy.Connection
    verb = "close" if library == "psycopg" else "invalidate"

    def interrupt(connection):
        raise KeyboardInterrupt

    module, source = (on_psycopg, pool) if library == "psycopg" else (on_sqlalchemy, engine)
    block = module.transaction(source)
    given = block.__enter__()
    monkeypatch.setattr(closed, verb, interrupt)
    with pytest.raises(KeyboardInterrupt):
        block.__exit__(asyncio.CancelledError, asyncio.CancelledError(), None)

    monkeypatch.undo()
    assert (3, 0) == (len(pool.free), engine.pool.checkedout())
    assert given is not None
    engine.dispose()
    for each in pool.free:
        each.close()


# ------------------------------------------------------------------------------------------------------------ sessions


class VersionedBase(DeclarativeBase):
    """Of the mapped class below."""


class Account(VersionedBase):
    """A row with a version, as optimistic locking needs it."""

    __tablename__ = "accounts_of_redrive"
    version: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - as SQLAlchemy wants it
    id: Mapped[int] = mapped_column(primary_key=True)
    cents: Mapped[int]


@pytest.fixture
def maker():
    """Return a sessionmaker on an engine with the table of accounts, and one account in it."""
    address = {"host": postgres.server(), "user": "postgres"}
    engine = sqlalchemy.create_engine("postgresql+psycopg://", connect_args=address)
    VersionedBase.metadata.drop_all(engine)
    VersionedBase.metadata.create_all(engine)
    maker = sessionmaker(engine, expire_on_commit=False)
    with maker.begin() as session:
        session.add(Account(id=1, cents=100))
    yield maker
    engine.dispose()


def test_optimistic_locking_is_retried(maker):
    """After StaleDataError the row is read and written again."""

    def interfere():
        with maker.begin() as session:
            session.get_one(Account, 1).cents += 7

    interfere = Once(interfere)

    @on_sqlalchemy.transactional(maker, PATIENT)
    def deposit(session: Session, cents):
        account = session.get_one(Account, 1)
        interfere()
        account.cents += cents
        return account

    assert 117 == deposit(10).cents


def test_each_attempt_has_a_session_of_its_own(maker):
    """Objects that a failed attempt has added are not added by the next."""
    fail = iter([True, False])

    @on_sqlalchemy.transactional(maker, Policy.parse(PATIENT).with_(on=KeyError))
    def work(session: Session):
        session.add(Account(id=2, cents=1))
        session.flush()
        if next(fail):
            raise KeyError
        return session.scalar(sqlalchemy.select(sqlalchemy.func.count()).select_from(Account))

    assert 2 == work()


def test_sessions_that_choose_postgresql_get_the_limit_of_a_deadline(maker):
    """Where a session chooses an engine of PostgreSQL, a deadline becomes its statement_timeout."""
    engine = maker.kw["bind"]

    class Choosing(Session):
        def get_bind(self, *args, **options):
            return engine

    @on_sqlalchemy.transactional(sessionmaker(class_=Choosing), Policy.parse(PATIENT).with_(deadline="1h"))
    def limit(session):
        return session.scalar(sqlalchemy.text("SELECT current_setting('statement_timeout')"))

    assert "0" != limit()


def swallow(session):
    """Catch the error of a statement inside its transaction."""
    session.add(Account(id=2, cents=1))
    session.flush()
    with contextlib.suppress(sqlalchemy.exc.ProgrammingError):
        session.execute(sqlalchemy.text("SELEC 1"), bind_arguments={"mapper": Account})


async def aswallow(session):
    """Do the same in an asynchronous session."""
    await session.run_sync(swallow)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_that_a_session_without_an_engine_has_swallowed_is_not_committed(maker, is_async):
    """The transaction on each engine that such a session has chosen is looked at before the COMMIT."""

    async def on_async_session():
        address = {"host": postgres.server(), "user": "postgres", "ssl": False}
        remote = create_async_engine("postgresql+asyncpg://", connect_args=address)
        try:
            source = async_sessionmaker(binds={VersionedBase: remote})
            await on_sqlalchemy.transactional(source, PATIENT)(aswallow)()
        finally:
            await remote.dispose()

    on_session = on_sqlalchemy.transactional(sessionmaker(binds={VersionedBase: maker.kw["bind"]}), PATIENT)(swallow)
    run = (lambda: asyncio.run(on_async_session())) if is_async else on_session
    with pytest.raises(RuntimeError, match="its error was caught inside"):
        run()

    with maker() as session:
        assert session.get(Account, 2) is None


def test_a_session_is_refused(maker):
    """It could be used once."""
    with maker() as session, pytest.raises(TypeError, match="neither an engine nor a sessionmaker"):
        on_sqlalchemy.transaction(session)


# -------------------------------------------------------------------------------------------------------------- misuse


def test_a_decorated_function_hides_the_connection():
    """Its signature is that of its callers."""

    @on_psycopg.transactional(connect, PATIENT)
    def move(connection, source: int, *, cents: int) -> None:
        """Move money."""

    assert "(source: int, *, cents: int) -> None" == str(inspect.signature(move)).replace("'", "")
    assert ("move", "Move money.") == (move.__name__, move.__doc__)


def test_a_generator_is_refused():
    """It would go on after its transaction."""
    with pytest.raises(TypeError, match="return a list"):

        @on_psycopg.transactional(connect, PATIENT)
        def work(connection):
            yield 1


def test_a_connection_is_no_source_of_connections():
    """Connections are refused: a broken one could not be replaced."""
    with connect() as connection:
        with pytest.raises(TypeError, match="a pool or a function that connects"):
            on_psycopg.transactional(connection, PATIENT)
        with pytest.raises(TypeError, match="asks on another connection"):
            on_psycopg.transaction(connection, prove=True)


def test_a_connection_of_asyncpg_is_no_source_of_connections():
    """Connections of asyncpg are refused too."""

    async def work():
        connection = await asyncpg.connect(host=postgres.server(), user="postgres", database="postgres")
        with pytest.raises(TypeError, match="a pool or a function that connects"):
            on_asyncpg.transactional(connection, PATIENT)
        await connection.close()

    asyncio.run(work())


@pytest.mark.parametrize("module", [on_psycopg, on_asyncpg, on_sqlalchemy])
def test_objects_that_are_no_sources_are_refused(module):
    """Objects that are no sources are refused at once."""
    with pytest.raises(TypeError, match="42 is neither"):
        module.transactional(42, PATIENT)


def test_asynchronous_libraries_are_refused_in_synchronous_code():
    """Asynchronous libraries cannot be used from synchronous code."""
    source = Library("psycopg async", postgres.server(), 5432, "colour").source()

    @on_psycopg.transactional(source, PATIENT)
    def work(connection):
        raise AssertionError

    with pytest.raises(TypeError, match="async with"):
        work()


def test_an_unknown_isolation_level_is_refused():
    """Unknown levels are refused with the known ones."""
    with pytest.raises(ValueError, match="read committed, repeatable read, serializable"):
        on_psycopg.transaction(connect, isolation="dirty")


def test_a_user_defined_classifier_decides_alone(table):
    """It may ask `failure_of` for what it does not know."""
    fail = iter([True, False])

    @on_psycopg.transactional(connect, Policy.parse(PATIENT).with_(on=lambda error: isinstance(error, KeyError)))
    def work(connection):
        connection.execute(table.insert)
        if next(fail):
            raise KeyError

    work()
    assert [1] == table.rows


def test_a_policy_that_cannot_be_read_is_refused():
    """At import, not in production."""
    with pytest.raises(PolicyError):
        on_psycopg.transactional(connect, "5 parrots")
