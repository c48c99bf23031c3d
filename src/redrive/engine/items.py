"""A thing that is kept fresh, as the database keeps it, and what the end of an attempt means for it. PURE.

Each attempt is a job of its own, with one attempt: what the *refresh* does about a failure, its `RefreshPolicy` says,
and not the policy of the job. The number of that job is the token of the attempt: numbers are never handed out twice,
so a job that was superseded reports under a number that the row does not have any more, and changes nothing.

An attempt that fails leaves a dead job behind. Its refresh has taken the failure, as a catch task takes one: so the job
is stamped as caught, is kept no longer than those that succeeded, and nobody redrives it by mistake.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from redrive.engine.origin import Origin, read_origin
from redrive.engine.outcome import Cancelled, Failed, Lost, Outcome, Released, Unreadable
from redrive.engine.records import Claim, JobRecord
from redrive.engine.recurring import RefreshDefinition, read_policy
from redrive.errors import ScheduleError
from redrive.schedule import Action, Effect, RefreshOutcome, RefreshPolicy, RefreshState, RefreshTransition, refresh

__all__ = [
    "NEW",
    "RUNNING",
    "Disabled",
    "OriginResult",
    "TrackedItem",
    "began_at",
    "columns",
    "disabled",
    "ended",
    "report",
    "spread",
    "succeeded",
    "sweep_at",
    "unreadable",
]

NEW = "new"
"""Stands for the token of an attempt that begins, until its job has a number: so many that begin alike move alike."""

RUNNING = "running"
"""Stands for the token of an attempt that runs, where it is known that it is the present one."""

_GOLDEN = 0.6180339887498949
"""The multiples of this ratio, less their integers, are spread evenly."""

TECHNICAL = frozenset({"BAD_PAYLOAD", "BAD_POLICY", "BAD_RESULT"})
"""Reasons of permanent failures that the program is to blame for. They are no reason to give up somebody's data."""


class OriginResult(msgspec.Struct, frozen=True, gc=False):
    """How a job ended that was made by a schedule.

    Attributes:
        origin: what it was for.
        job_id: the job.
        succeeded: did it?
        dead: is it in the state ``dead`` now?
        why: the error, where it has failed.
        permanent: why no further attempt can succeed, for the person whose data it is.
        retry_after: how long the other side wants to be left alone.
        sample: from 0 to 1, for jitter.
        at: when it ended, logically; None means now.
        began_at: when a worker took its last attempt; None where none has.
    """

    origin: Origin
    job_id: int
    succeeded: bool
    dead: bool = False
    why: str | None = None
    permanent: str | None = None
    retry_after: timedelta | None = None
    sample: float = 0.0
    at: datetime | None = None
    began_at: datetime | None = None


def succeeded(claim: Claim, sample: float) -> OriginResult | None:
    """Say that a job has succeeded.

    Args:
        claim: the job.
        sample: from 0 to 1, for the jitter of the next planned refresh.

    Returns:
        The report; None where no schedule that this redrive knows has made the job.
    """
    origin = read_origin(claim.origin)
    if origin is None:
        return None
    return OriginResult(origin, claim.id, True, sample=sample)  # noqa: FBT003 - positional for speed


def report(claim: Claim, outcome: Outcome, sample: float, *, dead: bool) -> OriginResult | None:
    """Say what the schedule that made a job is to be told of its end, which was no success.

    Args:
        claim: the job.
        outcome: how its last attempt ended.
        sample: from 0 to 1, for jitter.
        dead: is it in the state ``dead`` now?

    Returns:
        The report; None where no schedule that this redrive knows has made the job.
    """
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
    """Return when the time allowed for an attempt began to count.

    Args:
        job: of the attempt.

    Returns:
        When a worker took it; the first time, if its handler has snoozed since, because a snooze is a part of the same
        attempt. None if it waits in its queue: no worker has taken it, or one has given it back.
    """
    if job.snoozes:
        return job.started_at
    return None if job.lease_id is None else job.claimed_at


def spread(job_id: int) -> float:
    """Return a sample for jitter by the number of a job.

    It is for jobs that end without a process that could draw one. Numbers that follow one another are spread evenly.

    Args:
        job_id: which.

    Returns:
        A number in [0, 1).
    """
    return job_id * _GOLDEN % 1.0


class TrackedItem(msgspec.Struct, frozen=True, gc=False):
    """A thing that is kept fresh.

    Attributes:
        schedule: name of the refresh.
        key: which of its things.
        payload: the arguments of its attempts, as JSON; None where they were not asked for.
        own: its own policy, as a document of JSON; None means that of the refresh.
        timing: digest of the policy by which its times were reckoned.
        tracked_at: since when it is.
        refresh_at: see `RefreshState`, as for what follows.
        deadline_at: see there.
        planned_at: see there.
        started_at: see there.
        due_at: see there.
        failing_since: see there.
        sweep_at: when time alone makes a difference.
        attempt_no: see there.
        attempts_since_success: see there.
        job_id: the job of the running attempt; None if nothing runs.
        disabled_until_update: see there.
        disabled_reason: see there.
        completed: see there.
        paused: see there.
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
        """Where it stands."""
        return self._state(None if self.job_id is None else str(self.job_id))

    @property
    def running(self) -> RefreshState:
        """Where it stands while an attempt runs, without the name of that: so what runs alike is equal."""
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
        """What is done to keep it fresh.

        Args:
            definition: of its refresh.

        Returns:
            Its own policy, or that of the refresh.

        Raises:
            ScheduleError: its own one cannot be read by this redrive.
        """
        return definition.policy if self.own is None else read_policy(self.own)


def columns(policy: RefreshPolicy, state: RefreshState) -> dict[str, object]:
    """Write where something stands.

    Args:
        policy: what is done to keep it fresh.
        state: where it stands.

    Returns:
        The columns of its row that moves change, without its job.
    """
    return {
        "refresh_at": state.refresh_at,
        "deadline_at": state.deadline_at,
        "planned_at": state.planned_at,
        "started_at": state.started_at,
        "due_at": state.due_at,
        "failing_since": state.failing_since,
        "sweep_at": sweep_at(policy, state),
        "attempt_no": state.attempt_no,
        "attempts_since_success": state.attempts_since_success,
        "disabled_until_update": state.disabled_until_update,
        "disabled_reason": state.disabled_reason,
        "completed": state.completed,
        "paused": state.paused,
    }


def sweep_at(policy: RefreshPolicy, state: RefreshState) -> datetime | None:
    """When time alone makes a difference: at a deadline, or when nothing has succeeded for too long.

    Args:
        policy: what is done to keep it fresh.
        state: where it stands.

    Returns:
        The instant, or None: a sweep has nothing to do here.
    """
    if state.attempt_uid is not None:
        return state.deadline_at
    if state.disabled_until_update or state.paused or policy.give_up_after is None or state.failing_since is None:
        return None
    return state.failing_since + policy.give_up_after


def ended(policy: RefreshPolicy, state: RefreshState, told: OriginResult, now: datetime) -> RefreshTransition:
    """Say what the end of an attempt means.

    Args:
        policy: what is done to keep it fresh.
        state: where it stands, while this attempt runs.
        told: how the attempt ended.
        now: the present instant, aware.

    Returns:
        The move.
    """
    at, uid = told.at or now, state.attempt_uid or ""
    if told.succeeded:
        return refresh.success(policy, state, now=at, uid=uid, sample=told.sample)
    if told.began_at is not None:
        state = refresh.begun(policy, state, now=told.began_at, uid=uid).state
        if (
            told.at is not None and state.deadline_at is not None
        ):  # a sweep comes late where the row's deadline was late
            at = min(told.at, state.deadline_at)
    return refresh.failure(
        policy, state, now=at, uid=uid, permanent=told.permanent, retry_after=told.retry_after, sample=told.sample
    )


def unreadable(state: RefreshState, error: ScheduleError) -> RefreshTransition:
    """Give something up whose policy means nothing.

    Args:
        state: where it stands.
        error: what is wrong with the policy.

    Returns:
        GAVE_UP, with the text of the error as the reason.
    """
    stopped = replace(
        state,
        refresh_at=None,
        deadline_at=None,
        attempt_uid=None,
        planned_at=None,
        disabled_until_update=True,
        disabled_reason=str(error),
    )
    return RefreshTransition(stopped, RefreshOutcome.GAVE_UP, (Effect.DISABLE, Effect.NOTIFY))


class Disabled(msgspec.Struct, frozen=True, gc=False):
    """What is told of something that was given up.

    Attributes:
        refresh: name of the refresh.
        key: which of its things.
        reason: why, for the person whose data it is.
        error: the text of the last error, for the developer; None where none is known.
        attempts: how many there were since the last success.
        failing_since: the first of them.
        actions: what the policy wants done, such as ``Email the customer``.
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
    """Write the arguments of the task that is told of something that was given up.

    Args:
        definition: of the refresh; it names such a task.
        key: which of its things.
        policy: what was done to keep it fresh.
        state: where it stands now.
        error: the text of the last error.

    Returns:
        JSON.
    """
    told = Disabled(
        refresh=definition.name,
        key=key,
        reason=state.disabled_reason or "",
        error=error,
        attempts=state.attempts_since_success,
        failing_since=state.failing_since,
        actions=policy.on_give_up,
    )
    parameter = definition.on_disabled.parameter if definition.on_disabled is not None else ""
    return msgspec.json.encode({parameter: told})
