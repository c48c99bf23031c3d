"""Properties of the SQLAlchemy mixin only: indexes, instants, and pollers on two connections."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from threading import Thread

import pytest
from sqlalchemy import String, UniqueConstraint, inspect, select, text
from sqlalchemy.exc import StatementError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from redrive.contrib.refresh.sqlalchemy import RefreshColumns, UtcDateTime, due, overdue, refresh_indexes, refreshes
from redrive.schedule import RefreshOutcome, RefreshState
from redrive.testing import VirtualClock
from tests import postgres
from tests.contrib.refresh.conftest import EVERY_TWO_HOURS, BigTableRow

ROWS = 24


def _filled(engine, rows=ROWS):
    with Session(engine) as session, session.begin():
        session.add_all(BigTableRow(id=key) for key in range(1, rows + 1))
        session.flush()
        for key in range(1, rows + 1):
            refreshes(session, BigTableRow, EVERY_TWO_HOURS, clock=VirtualClock()).update(key)


@pytest.mark.parametrize(("criterion", "index"), [(due, "ix_big_tables_due"), (overdue, "ix_big_tables_overdue")])
def test_due_rows_are_found_by_an_index(engine, criterion, index):
    """Criteria for due rows match the partial indexes, in the dialect of each database."""
    column = BigTableRow.refresh_at if criterion is due else BigTableRow.sweep_at
    statement = select(BigTableRow.id).where(criterion(BigTableRow, datetime.now(UTC))).order_by(column)  # noqa: TID251
    asked = statement.compile(engine, compile_kwargs={"literal_binds": True})
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"

    with engine.connect() as connection:
        if engine.dialect.name != "sqlite":
            for other in ("seqscan", "bitmapscan"):  # which are as good for so few rows
                connection.execute(text(f"SET LOCAL enable_{other} = off"))
        plan = str(connection.execute(text(f"{explain} {asked}")).all())

    assert index in plan
    assert "SORT" not in plan.upper()
    assert "B-TREE" not in plan.upper()


def test_a_fleet_starts_each_row_once(engine):
    """Two concurrent pollers with separate transactions start every row exactly once."""
    _filled(engine)
    started = []

    def poll():
        for _ in range(ROWS):
            with Session(engine) as session, session.begin():
                found = refreshes(session, BigTableRow, EVERY_TWO_HOURS, clock=VirtualClock()).start_due(limit=2)
                uids = [each.state.attempt_uid for each in found]
            started.extend(uids)

    pollers = [Thread(target=poll) for _ in range(2)]
    for each in pollers:
        each.start()
    for each in pollers:
        each.join()

    with Session(engine) as session:
        rows = session.scalars(select(BigTableRow)).all()
    assert sorted(started) == sorted(each.attempt_uid for each in rows)
    assert {1} == {each.attempt_no for each in rows}


def test_a_poller_does_not_wait_for_the_rows_of_another(engines):
    """On PostgreSQL rows that another transaction is starting are skipped."""
    engine = engines("postgres")
    _filled(engine, 3)
    with Session(engine) as one, Session(engine) as other, one.begin(), other.begin():
        first = refreshes(one, BigTableRow, EVERY_TWO_HOURS, clock=VirtualClock()).start_due(limit=2)
        second = refreshes(other, BigTableRow, EVERY_TWO_HOURS, clock=VirtualClock()).start_due()
        assert {1, 2, 3} == {each.row.id for each in first} | {each.row.id for each in second}
        assert 1 == len(second)


def test_a_rollback_starts_nothing(engine):
    """Starts that were not committed have no effect."""
    _filled(engine, 1)
    with Session(engine) as session:
        refreshes(session, BigTableRow, EVERY_TWO_HOURS, clock=VirtualClock()).start_due()
        session.rollback()

        assert session.get(BigTableRow, 1).attempt_uid is None


def test_the_object_is_current_after_a_move(engine):
    """Sessions that have read a row before another session's move apply their move to its present state."""
    _filled(engine, 1)
    with Session(engine) as session:
        row = session.get(BigTableRow, 1)
        session.commit()
        assert row.attempt_no == 0
        session.commit()
        with Session(engine) as another, another.begin():
            (moved,) = refreshes(another, BigTableRow, EVERY_TWO_HOURS, clock=VirtualClock()).start_due()
        refreshes(session, BigTableRow, EVERY_TWO_HOURS, clock=VirtualClock()).failure(1, uid=moved.state.attempt_uid)

        assert (1, None) == (row.attempt_no, row.attempt_uid)
        assert row not in session.dirty


def test_an_instant_without_a_zone_is_refused(engine):
    """Naive times are refused."""
    with Session(engine) as session, pytest.raises(StatementError, match="has no time zone; an instant needs one"):
        session.scalars(select(BigTableRow).where(due(BigTableRow, datetime(2026, 1, 1)))).all()  # noqa: DTZ001 - meant


def test_a_model_may_have_its_own_arguments_and_names():
    """Tables with a ``started_at`` and constraints of their own also get the columns and the indexes."""

    class Base(DeclarativeBase):
        """The declarative base of this test."""

    class Feed(RefreshColumns, Base):
        """A model with its own table arguments and a ``started_at``."""

        __tablename__ = "feeds"
        id: Mapped[int] = mapped_column(primary_key=True)
        url: Mapped[str] = mapped_column(String)
        deadline: Mapped[str] = mapped_column("deadline_at", String)
        deadline_at: Mapped[datetime | None] = mapped_column("refresh_deadline_at")
        __table_args__ = (*refresh_indexes("feeds"), UniqueConstraint("url"))

    assert {"deadline_at", "refresh_deadline_at"} <= set(Feed.__table__.columns.keys())
    assert {"ix_feeds_due", "ix_feeds_overdue"} == {each.name for each in Feed.__table__.indexes}


def test_renamed_columns_keep_their_indexes(engine):
    """The indexes of the mixin and of `refresh_indexes` name the columns that the model has."""

    def conditions(indexes):
        return {each.name: str(each.dialect_options["sqlite"]["where"]) for each in indexes}

    class Base(DeclarativeBase):
        """The declarative base of this test."""

    class Renamed(RefreshColumns, Base):
        """A model with the names of the refresh-with-retry-policy document."""

        __tablename__ = "renamed_tables"
        id: Mapped[int] = mapped_column(primary_key=True)
        attempt_uid: Mapped[str | None] = mapped_column("refresh_attempt_uid", String(32))
        disabled_until_update: Mapped[bool] = mapped_column("refresh_Disabled", default=False)
        sweep_at: Mapped[datetime | None] = mapped_column("refresh_sweep_at", UtcDateTime)

    own = refresh_indexes(
        "renamed_tables",
        attempt_uid="refresh_attempt_uid",
        disabled_until_update="refresh_Disabled",
        sweep_at="refresh_sweep_at",
    )
    Base.metadata.create_all(engine)
    try:
        found = {each["name"]: each["column_names"] for each in inspect(engine).get_indexes("renamed_tables")}
        with Session(engine) as session, session.begin():
            session.add(Renamed())
            session.flush()
            moves = refreshes(session, Renamed, EVERY_TWO_HOURS, clock=VirtualClock())
            moves.update(1)
            assert [1] == [each.state.attempt_no for each in moves.start_due()]
    finally:
        Base.metadata.drop_all(engine)

    assert {"ix_renamed_tables_due": ["refresh_at"], "ix_renamed_tables_overdue": ["refresh_sweep_at"]} == found
    assert conditions(own) == conditions(Renamed.__table__.indexes)


def test_indexes_have_no_other_columns():
    """Names of attributes that are in no index are refused."""
    with pytest.raises(TypeError, match="no index has 'url'; there are refresh_at, attempt_uid"):
        refresh_indexes("feeds", url="u")


def test_pending_changes_of_other_columns_are_kept(engine):
    """Pending changes of the user's own columns are written with a move."""
    _filled(engine, 1)
    with Session(engine) as session, session.begin():
        session.get(BigTableRow, 1).plan = "another"
        refreshes(session, BigTableRow, EVERY_TWO_HOURS, clock=VirtualClock()).pause(1)

    with Session(engine) as session:
        assert ("another", True) == (session.get(BigTableRow, 1).plan, session.get(BigTableRow, 1).paused)


def test_asynchronous_sessions_move_rows_too(engines):
    """In an asynchronous session run_sync runs the moves."""
    there = engines("postgres")
    _filled(there, 1)
    with there.connect() as connection:
        schema = connection.scalar(text("SELECT current_schema()"))

    async def start():
        options = {"host": postgres.server(), "server_settings": {"search_path": schema}}
        engine = create_async_engine("postgresql+asyncpg://postgres@/postgres", connect_args=options)
        async with AsyncSession(engine) as session, session.begin():
            found = await session.run_sync(
                lambda sync: refreshes(sync, BigTableRow, EVERY_TWO_HOURS, clock=VirtualClock()).start_due()
            )
        await engine.dispose()
        return [each.outcome for each in found]

    assert [RefreshOutcome.STARTED] == asyncio.run(start())


def test_a_field_is_a_column():
    """Columns are the fields of the state and ``sweep_at``."""
    columns = {each.name for each in BigTableRow.__table__.columns}

    assert columns == set(RefreshState.__struct_fields__) | {"sweep_at", "id", "plan"}
