"""Refreshes in a table of SQLAlchemy 2: the columns, the criteria for due rows, and the moves.

The module never commits and names no driver. It is tested on SQLite and PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar, cast

from redrive.clock import Clock
from redrive.contrib import extra
from redrive.contrib.refresh.refreshes import TableRefreshes
from redrive.schedule import RefreshPolicy, RefreshState

with extra("sqlalchemy"):
    import sqlalchemy as sa
    from sqlalchemy.orm import Mapped, Session, declared_attr, mapped_column
    from sqlalchemy.orm.attributes import set_committed_value

__all__ = ["RefreshColumns", "UtcDateTime", "due", "overdue", "refresh_indexes", "refreshes"]

M = TypeVar("M", bound="RefreshColumns")

_FIELDS = RefreshState.__struct_fields__
# Hexadecimal digits.
_UID = 32


class UtcDateTime(sa.TypeDecorator[datetime]):
    """An aware instant, in UTC on the way in and out; also on SQLite, which has no time zones."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        """Convert a value for the database."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone; an instant needs one: datetime.now(UTC)")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        """Convert a value from the database."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# The attributes whose columns are in the indexes.
_INDEXED = ("refresh_at", "attempt_uid", "disabled_until_update", "paused", "sweep_at")


def refresh_indexes(table: str, **columns: str) -> tuple[sa.Index, ...]:
    """Return the indexes for due rows, for a model with a ``__table_args__`` of its own.

    Args:
        table: the beginning of the names of the indexes.
        columns: the names of renamed columns by their attributes, as in
            ``refresh_indexes("feeds", attempt_uid="refresh_attempt_uid")``.

    Raises:
        TypeError: an attribute is in no index.
    """
    unknown = sorted({*columns} - {*_INDEXED})
    if unknown:
        raise TypeError(f"refresh_indexes(): no index has {unknown[0]!r}; there are {', '.join(_INDEXED)}")
    refresh_at, uid, disabled, paused, sweep_at = (columns.get(each, each) for each in _INDEXED)
    waits = sa.and_(sa.column(uid).is_(None), ~sa.column(disabled, sa.Boolean), ~sa.column(paused, sa.Boolean))
    swept = sa.column(sweep_at).is_not(None)
    return (
        sa.Index(f"ix_{table}_due", refresh_at, sqlite_where=waits, postgresql_where=waits),
        sa.Index(f"ix_{table}_overdue", sweep_at, sqlite_where=swept, postgresql_where=swept),
    )


# The moves read the row again and update the object of the session, so it is current until the end of the transaction.
# An assignment to one of these columns has no condition, so application code does not assign to them.
class RefreshColumns:
    """A mixin for declarative models with the refresh state of a row; see `redrive.schedule.RefreshState`."""

    refresh_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    deadline_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    attempt_no: Mapped[int] = mapped_column(default=0, server_default=sa.text("0"))
    attempt_uid: Mapped[str | None] = mapped_column(sa.String(_UID))
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    due_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    failing_since: Mapped[datetime | None] = mapped_column(UtcDateTime)
    succeeded_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    attempts_since_success: Mapped[int] = mapped_column(default=0, server_default=sa.text("0"))
    planned_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    disabled_until_update: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    disabled_reason: Mapped[str | None] = mapped_column(sa.Text)
    completed: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    paused: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    sweep_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    @declared_attr.directive
    def __table_args__(cls) -> Any:  # noqa: ANN401, N805 - whatever a model may have there; SQLAlchemy's own form
        names = {each: getattr(cls, each).column.name or each for each in _INDEXED}
        return refresh_indexes(cls.__tablename__, **names)  # type: ignore[attr-defined] # a model has one

    @property
    def refresh_state(self) -> RefreshState:
        """The state of the refresh, as it was read."""
        return RefreshState(**{each: getattr(self, each) for each in _FIELDS})


def due(model: type[RefreshColumns], now: datetime) -> sa.ColumnElement[bool]:
    """Return a criterion for rows of `model` that are due at `now`, an aware instant."""
    return sa.and_(model.refresh_at <= now, model.attempt_uid.is_(None), ~model.disabled_until_update, ~model.paused)


def overdue(model: type[RefreshColumns], now: datetime) -> sa.ColumnElement[bool]:
    """Return a criterion for rows of `model` that a sweep moves at `now`, an aware instant."""
    return model.sweep_at <= now


def refreshes(
    session: Session,
    model: type[M],
    policy: RefreshPolicy | Callable[[M], RefreshPolicy],
    *,
    clock: Clock | None = None,
) -> TableRefreshes[M]:
    """Return the moves of a model, within the transaction of a session.

    Args:
        session: the caller begins and commits. In async code: ``await session.run_sync(lambda s: refreshes(s, ...))``.
        model: with `RefreshColumns`.
        policy: the refresh policy; or a function that returns it for a row.
        clock: by default the clock of this machine.
    """
    return TableRefreshes(_Table(session, model), policy, clock=clock)


class _Table(Generic[M]):
    """A model within a session; see `redrive.contrib.refresh.Rows`."""

    def __init__(self, session: Session, model: type[M]) -> None:
        self._session = session
        self._model = model

    def due(self, now: datetime, limit: int) -> list[M]:
        return self._first(due(self._model, now), self._model.refresh_at, limit)

    def overdue(self, now: datetime, limit: int) -> list[M]:
        return self._first(overdue(self._model, now), self._model.sweep_at, limit)

    def _first(self, wanted: sa.ColumnElement[bool], order: Any, limit: int) -> list[M]:  # noqa: ANN401 - a column
        found = sa.select(self._model).where(wanted).order_by(order).limit(limit)
        locked = found.with_for_update(of=self._model, skip_locked=True).execution_options(populate_existing=True)
        return list(self._session.scalars(locked))

    def find(self, key: object) -> M | None:
        return self._session.get(self._model, key, populate_existing=True, with_for_update={"of": self._model})

    def state(self, row: M) -> RefreshState:
        return row.refresh_state

    def swap(self, row: M, before: RefreshState, after: RefreshState, sweep_at: datetime | None) -> bool:
        written = {**{each: getattr(after, each) for each in _FIELDS}, "sweep_at": sweep_at}
        key = zip(sa.inspect(self._model).primary_key, sa.inspect(row).identity, strict=True)
        unchanged = (getattr(self._model, each) == getattr(before, each) for each in _FIELDS)
        statement = (
            sa.update(self._model).where(*(column == value for column, value in key), *unchanged).values(written)
        )
        done = self._session.execute(statement, execution_options={"synchronize_session": False})
        if cast("sa.CursorResult[Any]", done).rowcount != 1:
            return False
        for name, value in written.items():
            set_committed_value(row, name, value)
        return True
