"""Fixtures for refreshes in a table: SQLAlchemy on SQLite and on PostgreSQL, and Django's ORM."""

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


class RefreshBase(DeclarativeBase):
    """The declarative base of the tests."""


class BigTableRow(of_sqlalchemy.RefreshColumns, RefreshBase):
    """A model with refreshes."""

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
        """Begin a transaction and yield the moves in it."""
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield of_sqlalchemy.refreshes(session, BigTableRow, policy, clock=self.clock)

    def add(self, plan="") -> int:
        """Add a new row, which is not saved by a user yet."""
        with Session(self.engine) as session, session.begin():
            row = BigTableRow(plan=plan)
            session.add(row)
            session.flush()
            return row.id

    def remove(self, key: int) -> None:
        """Delete a row."""
        with Session(self.engine) as session, session.begin():
            session.delete(session.get(BigTableRow, key))

    def row(self, key: int) -> BigTableRow:
        """Read the row from the database."""
        with Session(self.engine) as session:
            return session.get(BigTableRow, key)


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
        """Begin a transaction and yield the moves in it."""
        from django.db import transaction

        from redrive.contrib.refresh.django import refreshes

        with transaction.atomic():
            yield refreshes(self.model, policy, clock=self.clock)

    def add(self, plan="") -> int:
        """Add a new row, which is not saved by a user yet."""
        return self.model.objects.create(plan=plan).pk

    def remove(self, key: int) -> None:
        """Delete a row."""
        self.model.objects.get(pk=key).delete()

    def row(self, key: int):
        """Read the row from the database."""
        return self.model.objects.get(pk=key)


def sqlite(folder) -> Engine:
    """Return the engine of a new file, with the settings that two pollers need."""
    return quick(create_engine(f"sqlite:///{folder / 'tables.db'}", connect_args={"timeout": 20}))


def quick(engine: Engine) -> Engine:
    """Disable waiting for the disk, because tests need no durability."""
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    return engine


def on_postgres() -> Engine:
    """Return the engine of a new schema."""
    schema = postgres.fresh()
    with postgres.connect() as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    options = {"host": postgres.server(), "options": f"-c search_path={schema}"}
    return create_engine("postgresql+psycopg://postgres@/postgres", connect_args=options)


@pytest.fixture(scope="session")
def engines(tmp_path_factory):
    """Return a function that returns the engine of a database by its name, and creates it at first use."""
    made: dict[str, Engine] = {}

    def engine(name: str) -> Engine:
        if name not in made:
            made[name] = on_postgres() if name == "postgres" else sqlite(tmp_path_factory.mktemp("refresh"))
            RefreshBase.metadata.create_all(made[name])
        with made[name].begin() as connection:
            connection.execute(delete(BigTableRow))
        return made[name]

    yield engine
    for each in made.values():
        each.dispose()


@pytest.fixture(params=["sqlite", "postgres", "django"])
def table(request, engines):
    """Provide the table for each library and database."""
    if request.param != "django":
        yield OfSQLAlchemy(engines(request.param))
        return
    yield OfDjango()
    from django.db import connections

    connections.close_all()


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request, engines):
    """Return the engines of SQLite and PostgreSQL."""
    return engines(request.param)


def saved(table) -> int:
    """Add a row that is due at once."""
    key = table.add()
    with table.within() as moves:
        moves.update(key)
    return key


def started(table) -> tuple[int, str]:
    """Add a row with a running attempt; return its key and token."""
    key = saved(table)
    with table.within() as moves:
        (moved,) = moves.start_due()
    return key, moved.state.attempt_uid


def at(text: str) -> datetime:
    """Return an instant on 1 January 2026, the first day of the clock."""
    return datetime.fromisoformat(f"2026-01-01T{text}:00+00:00")
