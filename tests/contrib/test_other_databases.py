"""SQLAlchemy on SQLite and MySQL: which errors are retried, under which name, and which databases are refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import create_engine, exc, text
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.pool import NullPool

from redrive.contrib.other_databases import GENERAL, MYSQL, SQLITE, code_of
from redrive.contrib.sqlalchemy import failure_of, transaction, transactional
from redrive.contrib.sqlstate import condition_of
from redrive.policy import Backoff, Policy, Stage

POLICY = Policy(attempts=3, backoff=Backoff.constant(0))


@pytest.fixture
def engine(tmp_path):
    """An engine of SQLite with a table of one row."""
    made = create_engine(f"sqlite:///{tmp_path}/rows.db", connect_args={"timeout": 0}, poolclass=NullPool)
    with made.begin() as connection:
        connection.execute(text("CREATE TABLE rows (id int PRIMARY KEY, n int NOT NULL CHECK (n < 5))"))
        connection.execute(text("INSERT INTO rows VALUES (1, 0)"))
    return made


def tried(source, statement, policy=POLICY):
    """Return how often a statement was tried, and the reason of its failure."""
    calls = []

    @transactional(source, policy)
    def work(given):
        calls.append(1)
        given.execute(text(statement))

    try:
        work()
    except exc.DBAPIError as error:
        failure = failure_of(error)
        assert failure is not None
        return len(calls), failure.reason
    return len(calls), None


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SELECT * FROM nothing", "SQLSTATE_HY000"),
        ("SELECT nothing FROM rows", "SQLSTATE_HY000"),
        ("SELEC 1", "SQLSTATE_HY000"),
        ("INSERT INTO rows VALUES (1, 1)", "UNIQUE_VIOLATION"),
        ("INSERT INTO rows VALUES (2, NULL)", "NOT_NULL_VIOLATION"),
        ("INSERT INTO rows VALUES (2, 9)", "CHECK_VIOLATION"),
    ],
)
@pytest.mark.parametrize("maker", [lambda engine: engine, sessionmaker])
def test_an_error_of_sqlite_that_would_come_again_is_not_retried(engine, maker, statement, reason):
    """Syntax errors and violated constraints are tried once, although their class is that of a lock."""
    assert (1, reason) == tried(maker(engine), statement)


def test_a_lock_of_sqlite_is_retried(engine):
    """A locked database is tried again until the policy gives up."""
    with closing(sqlite3.connect(engine.url.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert (3, "LOCK_NOT_AVAILABLE") == tried(engine, "INSERT INTO rows VALUES (2, 2)")


def test_a_commit_that_sqlite_refuses_is_an_answer(engine):
    """A reader holds up the COMMIT in SQLite; it is rolled back and repeated."""
    calls = []
    with closing(sqlite3.connect(engine.url.database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM rows").fetchall()

        @transactional(engine, POLICY)
        def work(given):
            if calls:
                reader.execute("COMMIT")
            calls.append(1)
            given.execute(text("INSERT INTO rows VALUES (2, 2)"))

        work()
        assert (2, 2) == (len(calls), reader.execute("SELECT count(*) FROM rows").fetchone()[0])


def test_a_named_violation_is_retried(engine):
    """A reason that is named exactly is retried, as on PostgreSQL."""
    assert (3, "UNIQUE_VIOLATION") == tried(
        engine, "INSERT INTO rows VALUES (1, 1)", POLICY.with_(on="UNIQUE_VIOLATION")
    )


def test_a_deadline_sends_no_setting_of_postgresql(engine):
    """A policy with a deadline sets no limit of statements on another database."""
    assert (1, None) == tried(engine, "INSERT INTO rows VALUES (2, 2)", POLICY.with_(deadline="1h"))


class Base(DeclarativeBase):
    """Of the mapped class below."""


class Row(Base):
    """A row of the table."""

    __tablename__ = "rows"
    id: Mapped[int] = mapped_column(primary_key=True)
    n: Mapped[int]


def choosing(engine):
    """Return a class of sessions that choose their engine."""

    class Choosing(Session):
        def get_bind(self, *args, **options):
            return engine

    return Choosing


SOURCES = {
    "get_bind": lambda engine: sessionmaker(class_=choosing(engine)),
    "binds": lambda engine: sessionmaker(binds={Base: engine}),
    "binds of a connection": lambda engine: sessionmaker(binds={Base: engine.connect()}),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("policy", [POLICY, POLICY.with_(deadline="1h")], ids=["plain", "deadline"])
def test_sessions_that_choose_their_engine(engine, source, policy):
    """Sessions without an engine of their own work in transactions, also under a deadline."""

    @transactional(source(engine), policy)
    def work(session):
        session.add(Row(id=2, n=2))
        with session.begin_nested():
            session.add(Row(id=3, n=3))

    work()

    with engine.connect() as connection:
        assert 3 == connection.scalar(text("SELECT count(*) FROM rows"))


@pytest.mark.parametrize("option", [{"prove": True}, {"isolation": "serializable"}])
def test_options_of_postgresql_are_refused_elsewhere(engine, option):
    """Options that send statements of PostgreSQL are refused where the transaction is made."""
    with pytest.raises(TypeError, match=r"are for PostgreSQL.*create_engine\(\.\.\., isolation_level="):
        transaction(engine, **option)


def test_a_database_with_unknown_codes_is_refused(engine):
    """An engine of another database is refused, with the ones that are known; also behind a maker of sessions."""
    engine.dialect = DefaultDialect()
    engine.dialect.name = "oracle"

    for source in (engine, sessionmaker(engine)):
        with pytest.raises(TypeError, match=r"oracle.*PostgreSQL, SQLite, MySQL and MariaDB"):
            transaction(source)


def test_the_dialect_of_each_source_is_read(engine):
    """A maker of sessions without an engine is taken for one of PostgreSQL; others have that of their engine."""
    remote = create_async_engine("postgresql+asyncpg://")
    for source in (sessionmaker(), async_sessionmaker(remote), remote):
        transaction(source, isolation="serializable")


def driver_error(module, *arguments, **attributes):
    """Return an error of SQLAlchemy for one of a driver."""
    kind = type("OperationalError", (Exception,), {"__module__": module})
    below = kind(*arguments)
    vars(below).update(attributes)
    return exc.OperationalError("SELECT", {}, below)


@pytest.mark.parametrize(
    ("error", "reason", "stage", "retried"),
    [
        (driver_error("pymysql.err", 1213, "Deadlock found"), "DEADLOCK_DETECTED", Stage.ANSWERED, True),
        (driver_error("MySQLdb._exceptions", 1205, "Lock wait"), "LOCK_NOT_AVAILABLE", Stage.ANSWERED, True),
        (driver_error("mysql.connector.errors", "x", errno=1040), "TOO_MANY_CONNECTIONS", Stage.NOT_SENT, True),
        (driver_error("mariadb", "x", errno=2006), "CONNECTION_FAILURE", Stage.IN_FLIGHT, True),
        (
            driver_error("asyncmy.errors", 1054, "column"),
            "SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION",
            Stage.ANSWERED,
            False,
        ),
        (driver_error("pymysql.err", 1062, "Duplicate"), "UNIQUE_VIOLATION", Stage.ANSWERED, False),
        (
            driver_error("pymysql.err", 1290, "the --read-only option"),
            "READ_ONLY_SQL_TRANSACTION",
            Stage.ANSWERED,
            True,
        ),
        (driver_error("pymysql.err", 1290, "--secure-file-priv"), "SQLSTATE_HY000", Stage.ANSWERED, False),
        (driver_error("pymysql.err", 9999, "odd"), "SQLSTATE_HY000", Stage.ANSWERED, False),
        (driver_error("pymysql.err", "odd"), "SQLSTATE_HY000", Stage.ANSWERED, False),
        (driver_error("pymysql.err"), "SQLSTATE_HY000", Stage.ANSWERED, False),
        (driver_error("sqlite3", "odd"), "SQLSTATE_HY000", Stage.ANSWERED, False),
        (driver_error("sqlite3", "odd", sqlite_errorcode=517), "SERIALIZATION_FAILURE", Stage.ANSWERED, True),
        (driver_error("sqlite3", "odd", sqlite_errorcode=261), "LOCK_NOT_AVAILABLE", Stage.ANSWERED, True),
    ],
)
def test_numbers_of_drivers(error, reason, stage, retried):
    """A driver is recognised by the module of its errors; a number without a meaning is not retried."""
    failure = failure_of(error)

    assert failure is not None
    assert (reason, stage, retried) == (failure.reason, failure.stage, failure.lasting is None)


def test_a_connection_that_sqlalchemy_has_invalidated_is_lost():
    """What SQLAlchemy knows of the connection counts for each database."""
    lost, other = driver_error("pymysql.err", 9999, "odd"), driver_error("oracledb", 3113, "end of file")
    lost.connection_invalidated = other.connection_invalidated = True

    assert ["CONNECTION_FAILURE"] * 2 == [(failure_of(each) or 1).reason for each in (lost, other)]


def test_an_unknown_driver_has_no_failures():
    """An error of an unknown driver is no failure of a database, and is not retried."""
    assert failure_of(driver_error("oracledb", 60, "deadlock detected")) is None
    assert code_of(ValueError()) is None


def test_each_number_has_a_condition():
    """Each SQLSTATE in the tables is one of `redrive.contrib.sqlstate`, or of a class there."""
    unknown = [
        code for code in {*SQLITE.values(), *MYSQL.values()} if condition_of(code).reason.startswith("SQLSTATE_")
    ]
    assert ([], "SQLSTATE_HY000") == (unknown, condition_of(GENERAL).reason)
