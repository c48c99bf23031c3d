"""Tracked items of a refresh as the database keeps them, and the effect of the end of an attempt. PURE."""

from __future__ import annotations

import operator
from datetime import datetime

import msgspec
from msgspec.structs import replace

from redrive.engine.origin import OriginResult, read_origin
from redrive.engine.outcome import Cancelled, Failed, Lost, Outcome, Released, Unreadable
from redrive.engine.records import Claim, JobRecord
from redrive.engine.recurring import RefreshDefinition, read_policy
from redrive.errors import ScheduleError
from redrive.schedule import Action, Effect, RefreshOutcome, RefreshPolicy, RefreshState, RefreshTransition, refresh

# Placeholder for the token of a new attempt until its job has an id; items with equal states share one transition.
NEW = "new"

# Placeholder for the token of a running attempt that is known to be the current one.
RUNNING = "running"

# The golden ratio: the fractional parts of its multiples are spread evenly. `spread` serves jobs that end without a
# process that could draw a sample.
_GOLDEN = 0.6180339887498949

# Reasons of permanent failures that are defects of the program; an item is not given up for them.
TECHNICAL = frozenset({"BAD_PAYLOAD", "BAD_POLICY", "BAD_RESULT"})


def succeeded(claim: Claim, sample: float) -> OriginResult | None:
    """Return the result of a succeeded job; None if no known schedule made it."""
    origin = read_origin(claim.origin)
    return None if origin is None else OriginResult(origin, claim.id, True, sample=sample)  # noqa: FBT003 - for speed


# Each attempt is a job of its own with a single attempt: the `RefreshPolicy` decides about its failure, not the policy
# of the job. The id of the job is the token of the attempt. Ids never repeat, so a superseded job ends under an id that
# the row no longer has, and changes nothing.
def report(claim: Claim, outcome: Outcome, sample: float, *, dead: bool) -> OriginResult | None:
    """Return the result of a job that ended without success; None if no known schedule made it."""
    origin = read_origin(claim.origin)
    if origin is None:
        return None
    match outcome:
        case Failed(failure):
            final = None if failure.reason in TECHNICAL else failure.permanent
            why, hint = failure.message, failure.hint
        case Lost(why):
            final = hint = None
            sample = spread(claim.id)
        case Cancelled(why) | Unreadable(why) | Released(why, started=True):
            final = hint = None
        case _:
            why, final, hint = "it could not start in time", None, None
    return OriginResult(origin, claim.id, False, dead, why, final, hint, sample, began_at=began_at(claim))  # noqa: FBT003 - positional for speed


def began_at(job: Claim | JobRecord) -> datetime | None:
    """Return when the time limit of an attempt began to count; None while the job waits in its queue."""
    # A snooze belongs to the same attempt, which began with its first claim.
    if job.snoozes:
        return job.started_at
    return None if job.lease_id is None else job.claimed_at


def spread(job_id: int) -> float:
    """Return a sample for jitter in [0, 1), computed from a job id."""
    return job_id * _GOLDEN % 1.0


class TrackedItem(msgspec.Struct, frozen=True, gc=False):
    """An item that a refresh keeps up to date. Fields that are not listed are those of `RefreshState`.

    Attributes:
        payload: the arguments of its attempts, as JSON; None if the query left them out.
        own: its own policy, as JSON; None means that of the refresh.
        timing: digest of the policy by which its times were computed.
        sweep_at: when a sweep has to look at it: at a deadline, or at the end of ``give_up_after``.
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
    "refresh_at", "deadline_at", "planned_at", "started_at", "due_at", "failing_since", "attempt_no",
    "attempts_since_success", "disabled_until_update", "disabled_reason", "completed", "paused",
)  # fmt: skip
_STATE_OF = operator.attrgetter(*_STATE)


def columns(policy: RefreshPolicy, state: RefreshState) -> dict[str, object]:
    """Return the columns that a transition changes, without the job."""
    return {**dict(zip(_STATE, _STATE_OF(state), strict=True)), "sweep_at": sweep_at(policy, state)}


def sweep_at(policy: RefreshPolicy, state: RefreshState) -> datetime | None:
    """Return when a sweep has to look at the item; None if time alone changes nothing."""
    if state.attempt_uid is not None:
        return state.deadline_at
    if state.disabled_until_update or state.paused or policy.give_up_after is None or state.failing_since is None:
        return None
    return state.failing_since + policy.give_up_after


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
        policy, state, now=at, uid=uid, permanent=result.permanent, retry_after=result.retry_after, sample=result.sample
    )


def unreadable(state: RefreshState, error: ScheduleError) -> RefreshTransition:
    """Return the transition that gives up an item with a policy that cannot be decoded; the error is the reason."""
    state = replace(state, refresh_at=None, deadline_at=None, attempt_uid=None, planned_at=None)
    stopped = replace(state, disabled_until_update=True, disabled_reason=str(error))
    return RefreshTransition(stopped, RefreshOutcome.GAVE_UP, (Effect.DISABLE, Effect.NOTIFY))


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
