"""Where a refresh stands, and what a move came to.

Both are made anew by each move, and moves are made a hundred thousand at a time; so they are msgspec's structs, which
take a tenth of the time of dataclasses. They hold nothing that could hold them (``gc=False``).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

__all__ = ["Effect", "RefreshOutcome", "RefreshState", "RefreshTransition"]


class RefreshOutcome(StrEnum):
    """What a move came to."""

    STARTED = "started"
    SUCCEEDED = "succeeded"
    COMPLETED = "completed"
    """It has succeeded, and nothing is planned any more."""

    RETRY_SCHEDULED = "retry_scheduled"
    WAITING_NEXT = "waiting_next"
    """It has failed, and the next planned refresh begins anew."""

    GAVE_UP = "gave_up"
    MISSED = "missed"
    """A planned refresh was not started in time, and is left out."""

    POSTPONED = "postponed"
    """A planned refresh that comes late, as all do after a downtime, starts a little later, so that not all start at
    once."""

    ENABLED = "enabled"
    PAUSED = "paused"
    RESUMED = "resumed"
    REPLANNED = "replanned"
    """Its policy was replaced by another one."""

    STALE = "stale_ignored"
    NOTHING = "nothing_to_time_out"
    NOT_DUE = "refused_not_due"
    DISABLED = "refused_disabled"
    ON_PAUSE = "refused_paused"
    RUNNING = "refused_running"


class Effect(StrEnum):
    """What is to be done beside writing the state, once."""

    DISABLE = "disable"
    NOTIFY = "notify"
    MISSED = "missed"
    """Somebody may want to count refreshes that were left out."""


class RefreshState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a refresh stands.

    Attributes:
        refresh_at: when it is started next, unconditionally: retry or planned, that is decided. While an attempt runs,
            what a timeout would make of it. None: not by itself.
        deadline_at: when the running attempt times out; None if nothing runs.
        attempt_no: attempts started in this cycle; more than 1 means that it is a retry.
        attempt_uid: the token of the running attempt; None if nothing runs.
        started_at: the last start.
        due_at: when that start was due by the plan: ``started_at`` less the delays of this start and of those before it
            in the same chain of retries, if they are small; see `redrive.schedule.refresh`. None before the first one.
        failing_since: the first start since the last success, if that failed or runs.
        attempts_since_success: how many starts that were; unlike ``attempt_no`` only a success clears it, or an update.
        planned_at: the next occurrence of the schedule, for people.
        disabled_until_update: has it given up?
        disabled_reason: why, for the person whose data it is.
        completed: has the schedule come to its end?
        paused: is nothing started for now?
    """

    refresh_at: datetime | None = None
    deadline_at: datetime | None = None
    attempt_no: int = 0
    attempt_uid: str | None = None
    started_at: datetime | None = None
    due_at: datetime | None = None
    failing_since: datetime | None = None
    attempts_since_success: int = 0
    planned_at: datetime | None = None
    disabled_until_update: bool = False
    disabled_reason: str | None = None
    completed: bool = False
    paused: bool = False

    @property
    def lag(self) -> timedelta:
        """How far the last attempt is behind the plan."""
        return timedelta(0) if self.started_at is None or self.due_at is None else self.started_at - self.due_at


class RefreshTransition(msgspec.Struct, frozen=True, gc=False):
    """What became of a refresh.

    Attributes:
        state: the next one.
        outcome: what the move came to.
        effects: what is to be done beside writing the state.
    """

    state: RefreshState
    outcome: RefreshOutcome
    effects: tuple[Effect, ...] = ()
