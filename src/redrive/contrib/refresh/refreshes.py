"""Refresh moves on the rows of a table; see `redrive.contrib.refresh`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeAlias, TypeVar

from redrive.clock import Clock, SystemClock
from redrive.engine.items import sweep_at, unreadable
from redrive.errors import ScheduleError
from redrive.retrying.rng import roll, unique
from redrive.schedule import RefreshEffect, RefreshOutcome, RefreshPolicy, RefreshState, RefreshTransition, refresh

R = TypeVar("R")
How: TypeAlias = Callable[[RefreshPolicy, RefreshState, datetime], RefreshTransition]

# Each lost race is the progress of another transaction. So many in a row mean that this transaction does not see the
# rows that the others have written, and never will.
_TRIES = 20


@dataclass(frozen=True, slots=True)
class MovedRow(Generic[R]):
    """A row that has moved."""

    row: R
    move: RefreshTransition

    @property
    def outcome(self) -> RefreshOutcome:
        """The outcome of the move."""
        return self.move.outcome

    @property
    def effects(self) -> tuple[RefreshEffect, ...]:
        """The effects that the caller carries out in the same transaction."""
        return self.move.effects

    @property
    def state(self) -> RefreshState:
        """The state after the move."""
        return self.move.state


class Rows(Protocol[R]):
    """A table, in a transaction that the caller ends."""

    def due(self, now: datetime, limit: int) -> list[R]:
        """Return due rows, the earliest first: see `redrive.schedule.refresh.is_due`."""

    def overdue(self, now: datetime, limit: int) -> list[R]:
        """Return rows with a ``sweep_at`` no later than now, the earliest first."""

    def find(self, key: object) -> R | None:
        """Read a row again; return None if it is gone."""

    def state(self, row: R) -> RefreshState:
        """Return the state of a row as it was read."""

    def swap(self, row: R, before: RefreshState, after: RefreshState, sweep_at: datetime | None) -> bool:
        """Write a state if the row is unchanged since it was read; return True if so, and change the object."""


class TableRefreshes(Generic[R]):
    """The refreshes of a table, within one transaction.

    Args:
        rows: the table.
        policy: the refresh policy; or a function that returns it for a row, for example from a column.
        clock: by default the clock of this machine.
    """

    def __init__(
        self, rows: Rows[R], policy: RefreshPolicy | Callable[[R], RefreshPolicy], *, clock: Clock | None = None
    ) -> None:
        self._rows = rows
        self._policy = policy
        self._clock = clock or SystemClock()

    def start_due(self, limit: int = 100) -> list[MovedRow[R]]:
        """Start at most `limit` due rows. Commit, and then send those that are STARTED.

        Return the rows that moved. They are STARTED; MISSED or COMPLETED if it is too late for this occurrence;
        POSTPONED if many are late and the policy spreads starts; GAVE_UP if the row has failed for too long. Rows that
        another process has moved first are not included.
        """
        now = self._clock.now()
        return self._all(self._rows.due(now, limit), now, _anew(refresh.start))

    def sweep(self, limit: int = 100) -> list[MovedRow[R]]:
        """Fail attempts after their deadlines, and give up rows that have failed for too long. Call it often.

        Return at most `limit` rows that moved, as by a failure at the deadline.
        """
        now = self._clock.now()
        return self._all(self._rows.overdue(now, limit), now, _with(refresh.sweep))

    def success(self, key: object, *, uid: str | None) -> MovedRow[R] | None:
        """Record the success of an attempt by its token, as it was sent, and return the row after the move.

        Return None if nothing was written, because another attempt runs, none runs, or the row is gone.
        """
        return self._answered(key, uid, _with(refresh.success, uid=uid))

    def failure(
        self, key: object, *, uid: str | None, permanent: str | None = None, retry_after: timedelta | None = None
    ) -> MovedRow[R] | None:
        """Record the failure of an attempt by its token; return as `success` does.

        Args:
            key: of the row.
            uid: the token of the attempt, as it was sent.
            permanent: the reason for which no further attempt can succeed, for the owner of the data.
            retry_after: the shortest time until the next attempt, as the other side requires.
        """
        failed = _with(refresh.failure, uid=uid, permanent=permanent, retry_after=retry_after)
        return self._answered(key, uid, failed)

    def update(self, key: object, *, at_once: bool = True) -> MovedRow[R] | None:
        """Enable a row that a user has created or changed, and start over. A new row is never due before this.

        It starts now, or at the next planned refresh if ``at_once`` is False. Return the row after the move; None if it
        is gone. Raise `ScheduleError` if its policy cannot be read, as the methods below do.
        """
        return self._moved(key, _with(refresh.update, at_once=at_once))

    def trigger(self, key: object) -> MovedRow[R] | None:
        """Start a row now; a running attempt is superseded. Commit, and then send it.

        Return the row, STARTED or DISABLED; None if it is gone.
        """
        return self._moved(key, _anew(refresh.trigger))

    def pause(self, key: object) -> MovedRow[R] | None:
        """Start no attempt of a row until `resume`; a running one may finish. Return the row; None if it is gone."""
        return self._moved(key, lambda _policy, state, _now: refresh.pause(state))

    def resume(self, key: object) -> MovedRow[R] | None:
        """Resume a row; planned refreshes during the pause are skipped. Return the row; None if it is gone."""
        return self._moved(key, _with(refresh.resume))

    def replan(self, key: object) -> MovedRow[R] | None:
        """Apply a new policy to a row, and return the row; None if it is gone.

        A running attempt goes on, and a waiting row waits for the new schedule.
        """
        return self._moved(key, _with(refresh.replan))

    def _all(self, rows: Iterable[R], now: datetime, how: How) -> list[MovedRow[R]]:
        tried = (self._forgiving(row, now, how) for row in rows)
        return [each for each in tried if each is not None and each.outcome is not RefreshOutcome.NOTHING]

    def _answered(self, key: object, uid: str | None, how: How) -> MovedRow[R] | None:
        # None is the token of an idle row.
        if uid is None:
            return None
        return self._again(key, lambda row, now: self._forgiving(row, now, how), lambda state: state.attempt_uid == uid)

    def _moved(self, key: object, how: How) -> MovedRow[R] | None:
        return self._again(key, lambda row, now: self._try(row, now, how), lambda _: True)

    # A move is written on condition that the state is as it was read, so of two concurrent moves one writes. A process
    # that loses a start leaves the row alone; a process that loses another move reads the row and decides again.
    def _again(
        self,
        key: object,
        attempt: Callable[[R, datetime], MovedRow[R] | None],
        concerned: Callable[[RefreshState], bool],
    ) -> MovedRow[R] | None:
        """Move a row, and repeat while other processes write in between."""
        for _ in range(_TRIES):
            row = self._rows.find(key)
            if row is None or not concerned(self._rows.state(row)):
                return None
            moved = attempt(row, self._clock.now())
            if moved is not None:
                return moved
        raise RuntimeError(
            f"the row {key!r} is not as this transaction sees it, {_TRIES} times: use READ COMMITTED, "
            "or on SQLite a transaction that begins with the lock (BEGIN IMMEDIATE)"
        )

    # If the policy of a row cannot be read, only that row is given up, with the message as the reason.
    def _forgiving(self, row: R, now: datetime, how: How) -> MovedRow[R] | None:
        try:
            return self._try(row, now, how)
        except ScheduleError as error:
            before = self._rows.state(row)
            return self._write(row, before, unreadable(before, error), None)

    def _try(self, row: R, now: datetime, how: How) -> MovedRow[R] | None:
        """Move a row, or return None if another process wrote in between."""
        policy = self._policy if isinstance(self._policy, RefreshPolicy) else self._policy(row)
        before = self._rows.state(row)
        move = how(policy, before, now)
        return self._write(row, before, move, sweep_at(policy, move.state))

    def _write(
        self, row: R, before: RefreshState, move: RefreshTransition, sweep: datetime | None
    ) -> MovedRow[R] | None:
        return MovedRow(row, move) if self._rows.swap(row, before, move.state, sweep) else None


def _with(how: Callable[..., RefreshTransition], **said: object) -> How:
    """Return a move with its arguments bound, and with a sample for jitter."""
    return lambda policy, state, now: how(policy, state, now=now, sample=roll(), **said)


def _anew(how: Callable[..., RefreshTransition]) -> How:
    """Return a move that begins an attempt, with a new token for each row."""
    return lambda policy, state, now: how(policy, state, now=now, sample=roll(), uid=unique())
