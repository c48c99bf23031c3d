"""Tracked items of a refresh as the database keeps them, and the effect of the end of an attempt. PURE."""

from __future__ import annotations

import operator
from datetime import datetime

import msgspec
from msgspec.structs import replace

from redrive.engine.origin import OriginResult
from redrive.engine.recurring import RefreshDefinition, read_policy
from redrive.errors import ScheduleError
from redrive.schedule import (
    Action,
    RefreshEffect,
    RefreshOutcome,
    RefreshPolicy,
    RefreshState,
    RefreshTransition,
    refresh,
)

# Placeholder for the token of a new attempt until its job has an id; items with equal states share one transition.
NEW = "new"

# Placeholder for the token of a running attempt that is known to be the current one.
RUNNING = "running"


class TrackedItem(msgspec.Struct, frozen=True, gc=False):
    """An item that a refresh keeps up to date. Fields that are not listed are those of `RefreshState`.

    Attributes:
        payload: the arguments of its attempts, as JSON; None if the query left them out.
        own: its own policy, as JSON; None means that of the refresh.
        timing: digest of the policy by which its times were computed.
        sweep_at: when a sweep has to examine it: at a deadline, or at the end of ``give_up_after``.
        job_id: the job of the running attempt; None if none runs.
    """

    schedule: str
    key: str
    payload: bytes | None
    own: str | None
    timing: str
    tracked_at: datetime
    refresh_at: datetime | None
    deadline_at: datetime | None
    planned_at: datetime | None
    started_at: datetime | None
    due_at: datetime | None
    failing_since: datetime | None
    succeeded_at: datetime | None
    sweep_at: datetime | None
    attempt_no: int
    attempts_since_success: int
    job_id: int | None
    disabled_until_update: bool
    disabled_reason: str | None
    completed: bool
    paused: bool

    @property
    def state(self) -> RefreshState:
        """Return the state."""
        return self._state(None if self.job_id is None else str(self.job_id))

    @property
    def running(self) -> RefreshState:
        """Return the state with `RUNNING` as the token, so that items with equal states compare equal."""
        return self._state(RUNNING)

    def _state(self, uid: str | None) -> RefreshState:
        return RefreshState(
            refresh_at=self.refresh_at,
            deadline_at=self.deadline_at,
            attempt_no=self.attempt_no,
            attempt_uid=uid,
            started_at=self.started_at,
            due_at=self.due_at,
            failing_since=self.failing_since,
            succeeded_at=self.succeeded_at,
            attempts_since_success=self.attempts_since_success,
            planned_at=self.planned_at,
            disabled_until_update=self.disabled_until_update,
            disabled_reason=self.disabled_reason,
            completed=self.completed,
            paused=self.paused,
        )

    def policy(self, definition: RefreshDefinition) -> RefreshPolicy:
        """Return the policy of the item, or that of its refresh; raise `ScheduleError` if it cannot be decoded."""
        return definition.policy if self.own is None else read_policy(self.own)


_STATE = (
    "refresh_at", "deadline_at", "planned_at", "started_at", "due_at", "failing_since", "succeeded_at", "attempt_no",
    "attempts_since_success", "disabled_until_update", "disabled_reason", "completed", "paused",
)  # fmt: skip
_STATE_OF = operator.attrgetter(*_STATE)


def columns(policy: RefreshPolicy, state: RefreshState) -> dict[str, object]:
    """Return the columns that a transition changes, without the job."""
    return {**dict(zip(_STATE, _STATE_OF(state), strict=True)), "sweep_at": sweep_at(policy, state)}


def sweep_at(policy: RefreshPolicy, state: RefreshState) -> datetime | None:
    """Return when a sweep has to examine the item; None if time alone changes nothing."""
    if state.attempt_uid is not None:
        return state.deadline_at
    return None if state.disabled_until_update or state.paused else refresh.limit_at(policy, state)


# A failed attempt leaves a dead job, which is marked as caught: the refresh has handled the failure as a catch task
# would. So it is pruned like a succeeded job, and operators do not redrive it.
def ended(policy: RefreshPolicy, state: RefreshState, result: OriginResult, now: datetime) -> RefreshTransition:
    """Return the transition for the end of an attempt."""
    at, uid = result.at or now, state.attempt_uid or ""
    if result.succeeded:
        return refresh.success(policy, state, now=at, uid=uid, sample=result.sample)
    if result.began_at is not None:
        state = refresh.begun(policy, state, now=result.began_at, uid=uid).state
        if result.at is not None and state.deadline_at is not None:
            # The deadline of the row may have been later than that of the claim.
            at = min(result.at, state.deadline_at)
    return refresh.failure(
        policy,
        state,
        now=at,
        uid=uid,
        permanent=result.permanent,
        lasting=result.lasting,
        retry_after=result.retry_after,
        sample=result.sample,
    )


def unreadable(state: RefreshState, error: ScheduleError) -> RefreshTransition:
    """Return the transition that gives up an item with a policy that cannot be decoded; the error is the reason."""
    state = replace(state, refresh_at=None, deadline_at=None, attempt_uid=None, planned_at=None)
    stopped = replace(state, disabled_until_update=True, disabled_reason=str(error))
    return RefreshTransition(stopped, RefreshOutcome.GAVE_UP, (RefreshEffect.DISABLE, RefreshEffect.NOTIFY))


class Disabled(msgspec.Struct, frozen=True, gc=False):
    """The argument of the task that runs after an item was given up.

    Attributes:
        reason: why it was given up, as a text for end users.
        error: the text of the last error; None if unknown.
        failing_since: the first of them.
        actions: the actions of the policy, such as ``Email the customer``.
    """

    refresh: str
    key: str
    reason: str
    error: str | None
    attempts: int
    failing_since: datetime | None
    actions: tuple[Action, ...] = ()


def disabled(
    definition: RefreshDefinition, key: str, policy: RefreshPolicy, state: RefreshState, error: str | None
) -> bytes:
    """Return the JSON arguments of the task that runs after an item was given up."""
    argument = Disabled(
        refresh=definition.name,
        key=key,
        reason=state.disabled_reason or "",
        error=error,
        attempts=state.attempts_since_success,
        failing_since=state.failing_since,
        actions=policy.on_give_up,
    )
    parameter = definition.on_disabled.parameter if definition.on_disabled is not None else ""
    return msgspec.json.encode({parameter: argument})
