"""One table in three guises: SQLAlchemy on SQLite and on PostgreSQL, and Django's ORM."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime

import pytest
from sqlalchemy import Engine, create_engine, delete, event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from redrive.contrib.refresh import sqlalchemy as of_sqlalchemy
from redrive.schedule import RefreshPolicy
from redrive.testing import VirtualClock
from tests import postgres
from tests.contrib.django import project

EVERY_TWO_HOURS = RefreshPolicy.parse("""
    - Refresh the model every 2 hours
    - Allow 30 minutes to complete
    - On the first failure, retry immediately
    - On the second failure, retry after 5 minutes
    - Give up after one week of unsuccessful refresh attempts
    - Give up after the final unsuccessful retry
""")


class Base(DeclarativeBase):
    """What the tests keep."""


class BigTable(of_sqlalchemy.RefreshColumns, Base):
    """Something to be kept fresh."""

    __tablename__ = "big_tables"
    id: Mapped[int] = mapped_column(primary_key=True)
    plan: Mapped[str] = mapped_column(default="")


class OfSQLAlchemy:
    """Rows of a model of SQLAlchemy."""

    def __init__(self, engine: Engine) -> None:
        self.clock = VirtualClock()
        self.engine = engine

    @contextmanager
    def within(self, policy=EVERY_TWO_HOURS):
        """A transaction, and the moves in it."""
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield of_sqlalchemy.refreshes(session, BigTable, policy, clock=self.clock)

    def add(self, plan="") -> int:
        """A new row that nobody has saved yet."""
        with Session(self.engine) as session, session.begin():
            row = BigTable(plan=plan)
            session.add(row)
            session.flush()
            return row.id

    def remove(self, key: int) -> None:
        """Delete a row."""
        with Session(self.engine) as session, session.begin():
            session.delete(session.get(BigTable, key))

    def row(self, key: int) -> BigTable:
        """The row as the database has it."""
        with Session(self.engine) as session:
            return session.get(BigTable, key)


class OfDjango:
    """Rows of a model of Django."""

    def __init__(self) -> None:
        project.ready()
        from tests.contrib.refresh import models

        self.clock = VirtualClock()
        self.model = models.made()
        self.model.objects.all().delete()

    @contextmanager
    def within(self, policy=EVERY_TWO_HOURS):
        """A transaction, and the moves in it."""
        from django.db import transaction

        from redrive.contrib.refresh.django import refreshes

        with transaction.atomic():
            yield refreshes(self.model, policy, clock=self.clock)

    def add(self, plan="") -> int:
        """A new row that nobody has saved yet."""
        return self.model.objects.create(plan=plan).pk

    def remove(self, key: int) -> None:
        """Delete a row."""
        self.model.objects.get(pk=key).delete()

    def row(self, key: int):
        """The row as the database has it."""
        return self.model.objects.get(pk=key)


def sqlite(folder) -> Engine:
    """A database in a file, as two pollers have it."""
    return quick(create_engine(f"sqlite:///{folder / 'tables.db'}", connect_args={"timeout": 20}))


def quick(engine: Engine) -> Engine:
    """Without waiting for the disk: nothing here is to survive a power cut."""
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    return engine


def on_postgres() -> Engine:
    """A schema of the test's own."""
    schema = postgres.fresh()
    with postgres.connect() as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    options = {"host": postgres.server(), "options": f"-c search_path={schema}"}
    return create_engine("postgresql+psycopg://postgres@/postgres", connect_args=options)


@pytest.fixture(scope="session")
def engines(tmp_path_factory):
    """Databases by name, each made when it is first asked for."""
    made: dict[str, Engine] = {}

    def engine(name: str) -> Engine:
        if name not in made:
            made[name] = on_postgres() if name == "postgres" else sqlite(tmp_path_factory.mktemp("refresh"))
            Base.metadata.create_all(made[name])
        with made[name].begin() as connection:
            connection.execute(delete(BigTable))
        return made[name]

    yield engine
    for each in made.values():
        each.dispose()


@pytest.fixture(params=["sqlite", "postgres", "django"])
def table(request, engines):
    """A table, thrice."""
    if request.param != "django":
        yield OfSQLAlchemy(engines(request.param))
        return
    yield OfDjango()
    from django.db import connections

    connections.close_all()


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request, engines):
    """A database with the table, twice."""
    return engines(request.param)


def saved(table) -> int:
    """A row that is due at once."""
    key = table.add()
    with table.within() as moves:
        moves.update(key)
    return key


def started(table) -> tuple[int, str]:
    """A row with an attempt that runs, and its token."""
    key = saved(table)
    with table.within() as moves:
        (moved,) = moves.start_due()
    return key, moved.state.attempt_uid


def at(text: str) -> datetime:
    """An instant on the first of January 2026, where the clock begins."""
    return datetime.fromisoformat(f"2026-01-01T{text}:00+00:00")
