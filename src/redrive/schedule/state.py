"""The state of a refresh, and the result of a transition. PURE."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

# Structs, because transitions create a hundred thousand of them at a time: a dataclass takes ten times as long. They
# contain no cycles, hence gc=False.


class RefreshOutcome(StrEnum):
    """The result of a transition."""

    STARTED = "started"
    SUCCEEDED = "succeeded"
    COMPLETED = "completed"
    """The attempt succeeded, and the schedule has ended."""

    RETRY_SCHEDULED = "retry_scheduled"
    WAITING_NEXT = "waiting_next"
    """The attempt failed, and the next planned refresh counts its attempts from 1."""

    GAVE_UP = "gave_up"
    MISSED = "missed"
    """A planned refresh was not started in time and is skipped."""

    POSTPONED = "postponed"
    """A late planned refresh starts a little later, so that after a downtime not all start at once."""

    ENABLED = "enabled"
    PAUSED = "paused"
    RESUMED = "resumed"
    REPLANNED = "replanned"
    """The policy was replaced."""

    STALE = "stale_ignored"
    NOTHING = "nothing_to_time_out"
    NOT_DUE = "refused_not_due"
    DISABLED = "refused_disabled"
    ON_PAUSE = "refused_paused"
    RUNNING = "refused_running"


class RefreshEffect(StrEnum):
    """A side effect to carry out once, together with writing the state."""

    DISABLE = "disable"
    NOTIFY = "notify"
    MISSED = "missed"
    """Count a refresh that was skipped."""


class RefreshState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The state of a refresh.

    Attributes:
        refresh_at: when the next attempt starts, planned or retry. While an attempt runs, what its timeout would lead
            to.
        deadline_at: when the running attempt times out; None if none runs.
        attempt_no: attempts started in this cycle; more than 1 means a retry.
        attempt_uid: the token of the running attempt; None if none runs.
        started_at: the last start.
        due_at: when that start was due: ``started_at`` less the lag of this start and of those before it in the same
            chain of retries, if it is within `redrive.schedule.refresh.TOLERANCE`.
        failing_since: the first start since the last success, if that attempt failed or runs.
        succeeded_at: the end of the last attempt that succeeded, if its policy counts from it
            (`GiveUpSince.LAST_SUCCESS`); None otherwise, and after an update.
        attempts_since_success: attempts since the last success or update.
        planned_at: the next occurrence of the schedule.
        disabled_until_update: True once it was given up.
        disabled_reason: why, as a text for end users.
        completed: True once the schedule has ended.
    """

    refresh_at: datetime | None = None
    deadline_at: datetime | None = None
    attempt_no: int = 0
    attempt_uid: str | None = None
    started_at: datetime | None = None
    due_at: datetime | None = None
    failing_since: datetime | None = None
    succeeded_at: datetime | None = None
    attempts_since_success: int = 0
    planned_at: datetime | None = None
    disabled_until_update: bool = False
    disabled_reason: str | None = None
    completed: bool = False
    paused: bool = False

    @property
    def lag(self) -> timedelta:
        """Return how far the last start is behind the plan."""
        return timedelta(0) if self.started_at is None or self.due_at is None else self.started_at - self.due_at


class RefreshTransition(msgspec.Struct, frozen=True, gc=False):
    """The next state, the outcome, and the side effects to carry out once."""

    state: RefreshState
    outcome: RefreshOutcome
    effects: tuple[RefreshEffect, ...] = ()
