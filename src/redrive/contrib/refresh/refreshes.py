"""The moves, made on rows of a table; see `redrive.contrib.refresh`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Generic, TypeAlias, TypeVar

from redrive.clock import Clock, SystemClock
from redrive.contrib.refresh.rows import Moved, Rows
from redrive.engine.items import sweep_at, unreadable
from redrive.errors import ScheduleError
from redrive.retrying.rng import roll, unique
from redrive.schedule import RefreshOutcome, RefreshPolicy, RefreshState, RefreshTransition, refresh

__all__ = ["Refreshes"]

R = TypeVar("R")
How: TypeAlias = Callable[[RefreshPolicy, RefreshState, datetime], RefreshTransition]

_TRIES = 20
"""Each lost race is somebody else's progress. So many in a row mean that this transaction does not see what others have
written, and never will."""


class Refreshes(Generic[R]):
    """The refreshes of a table, within one transaction.

    Args:
        rows: the table.
        policy: what is to be done; or what says so for each row, as where people have written it into a column.
        clock: the time; by default this machine's.
    """

    def __init__(
        self,
        rows: Rows[R],
        policy: RefreshPolicy | Callable[[R], RefreshPolicy],
        *,
        clock: Clock | None = None,
    ) -> None:
        self._rows = rows
        self._policy = policy
        self._clock = clock or SystemClock()

    def start_due(self, limit: int = 100) -> list[Moved[R]]:
        """Start what is due. Commit, and then send those that are STARTED to whoever does the work.

        Args:
            limit: how many rows at most.

        Returns:
            Those that moved. They are STARTED; MISSED or COMPLETED where it is too late for this one; POSTPONED where
            many are late and the policy spreads starts; GAVE_UP where nothing has succeeded for too long. Rows that
            another process was faster with are not among them.
        """
        now = self._clock.now()
        return self._all(self._rows.due(now, limit), now, _anew(refresh.start))

    def sweep(self, limit: int = 100) -> list[Moved[R]]:
        """Let attempts fail whose deadlines have passed, and give up what has failed for too long. Call it often.

        Args:
            limit: how many rows at most.

        Returns:
            Those that moved, as by a failure at the deadline.
        """
        now = self._clock.now()
        return self._all(self._rows.overdue(now, limit), now, _with(refresh.sweep))

    def success(self, key: Any, *, uid: str | None) -> Moved[R] | None:  # noqa: ANN401 - as the table is keyed
        """An attempt has succeeded.

        Args:
            key: of the row.
            uid: the token of the attempt, as it was sent.

        Returns:
            What became of the row. None if the answer is stale, since another attempt runs, or none, or if the row is
            gone: nothing was written then.
        """
        return self._answered(key, uid, _with(refresh.success, uid=uid))

    def failure(
        self,
        key: Any,  # noqa: ANN401 - as the table is keyed
        *,
        uid: str | None,
        permanent: str | None = None,
        retry_after: timedelta | None = None,
    ) -> Moved[R] | None:
        """An attempt has failed.

        Args:
            key: of the row.
            uid: the token of the attempt, as it was sent.
            permanent: why no further attempt can succeed, for the person whose data it is.
            retry_after: how long the other side wants to be left alone.

        Returns:
            What became of the row, or None if the answer is stale.
        """
        failed = _with(refresh.failure, uid=uid, permanent=permanent, retry_after=retry_after)
        return self._answered(key, uid, failed)

    def update(self, key: Any, *, at_once: bool = True) -> Moved[R] | None:  # noqa: ANN401 - as the table is keyed
        """A person has made or changed the row: it is enabled and begins anew. A new row is never due before this.

        Args:
            key: of the row.
            at_once: start now, or at the next planned refresh?

        Returns:
            What became of the row, or None if it is gone.

        Raises:
            ScheduleError: its policy cannot be read.
        """
        return self._moved(key, _with(refresh.update, at_once=at_once))

    def trigger(self, key: Any) -> Moved[R] | None:  # noqa: ANN401 - as the table is keyed
        """Start a row because somebody wants it; a running attempt is superseded. Commit, and then send it.

        Args:
            key: of the row.

        Returns:
            STARTED or DISABLED; None if the row is gone.

        Raises:
            ScheduleError: its policy cannot be read.
        """
        return self._moved(key, _anew(refresh.trigger))

    def pause(self, key: Any) -> Moved[R] | None:  # noqa: ANN401 - as the table is keyed
        """Start nothing until `resume`; an attempt that runs may finish.

        Args:
            key: of the row.

        Returns:
            What became of the row, or None if it is gone.

        Raises:
            ScheduleError: its policy cannot be read.
        """
        return self._moved(key, lambda _policy, state, _now: refresh.pause(state))

    def resume(self, key: Any) -> Moved[R] | None:  # noqa: ANN401 - as the table is keyed
        """Go on; planned refreshes that were missed meanwhile are left out.

        Args:
            key: of the row.

        Returns:
            What became of the row, or None if it is gone.

        Raises:
            ScheduleError: its policy cannot be read.
        """
        return self._moved(key, _with(refresh.resume))

    def replan(self, key: Any) -> Moved[R] | None:  # noqa: ANN401 - as the table is keyed
        """The policy of a row was replaced: what runs goes on, and what waits for the schedule waits for the new one.

        Args:
            key: of the row.

        Returns:
            What became of the row, or None if it is gone.

        Raises:
            ScheduleError: its policy cannot be read.
        """
        return self._moved(key, _with(refresh.replan))

    def _all(self, rows: Iterable[R], now: datetime, how: How) -> list[Moved[R]]:
        tried = (self._forgiving(row, now, how) for row in rows)
        return [each for each in tried if each is not None and each.outcome is not RefreshOutcome.NOTHING]

    def _answered(self, key: Any, uid: str | None, how: How) -> Moved[R] | None:  # noqa: ANN401 - as above
        if uid is None:  # or it would be the token of a row that does nothing
            return None
        return self._again(key, lambda row, now: self._forgiving(row, now, how), lambda state: state.attempt_uid == uid)

    def _moved(self, key: Any, how: How) -> Moved[R] | None:  # noqa: ANN401 - as above
        return self._again(key, lambda row, now: self._try(row, now, how), lambda _: True)

    def _again(
        self,
        key: Any,  # noqa: ANN401 - as above
        attempt: Callable[[R, datetime], Moved[R] | None],
        concerned: Callable[[RefreshState], bool],
    ) -> Moved[R] | None:
        """Move a row until nobody comes in between."""
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

    def _forgiving(self, row: R, now: datetime, how: How) -> Moved[R] | None:
        try:
            return self._try(row, now, how)
        except ScheduleError as error:
            before = self._rows.state(row)
            return self._write(row, before, unreadable(before, error), None)

    def _try(self, row: R, now: datetime, how: How) -> Moved[R] | None:
        """Move a row, or answer None if somebody else came in between."""
        policy = self._policy if isinstance(self._policy, RefreshPolicy) else self._policy(row)
        before = self._rows.state(row)
        move = how(policy, before, now)
        return self._write(row, before, move, sweep_at(policy, move.state))

    def _write(self, row: R, before: RefreshState, move: RefreshTransition, sweep: datetime | None) -> Moved[R] | None:
        return Moved(row, move) if self._rows.swap(row, before, move.state, sweep) else None


def _with(how: Callable[..., RefreshTransition], **said: Any) -> How:  # noqa: ANN401 - what the move takes
    """A move, with what is known of it and with luck."""
    return lambda policy, state, now: how(policy, state, now=now, sample=roll(), **said)


def _anew(how: Callable[..., RefreshTransition]) -> How:
    """A move that begins an attempt, with a token for each row."""
    return lambda policy, state, now: how(policy, state, now=now, sample=roll(), uid=unique())
