"""The transitions of a refresh that begin an attempt: start, trigger, and the claim by a worker. PURE.

The rules are described in `redrive.schedule.refresh`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from redrive.errors import ScheduleError
from redrive.schedule.failing import TOO_LONG, failed, given_up, is_too_long, next_planned, occurrence, planned
from redrive.schedule.policy import RefreshPolicy
from redrive.schedule.state import RefreshEffect, RefreshOutcome, RefreshState, RefreshTransition
from redrive.schedule.timezone import aware

# Lag up to which a chain of attempts counts as on time.
TOLERANCE = timedelta(minutes=1)

# Minimum time between two sweeps of an attempt that waits in a queue.
QUEUE_LOOK = timedelta(minutes=1)


def is_due(state: RefreshState, now: datetime) -> bool:
    """Return True if the refresh is to be started now; the query for due rows has the same condition."""
    aware("now", now)
    waits = not (state.disabled_until_update or state.paused or state.attempt_uid)
    return waits and state.refresh_at is not None and state.refresh_at <= now


def start(
    policy: RefreshPolicy, state: RefreshState, *, now: datetime, uid: str, sample: float = 0.0
) -> RefreshTransition:
    """Start a refresh that is due.

    Args:
        policy: of the refresh.
        state: present state.
        now: the present instant, aware.
        uid: a new token, never used before.
        sample: from 0 to 1, for jitter.

    Returns: STARTED; DISABLED, ON_PAUSE, RUNNING or NOT_DUE; MISSED if it is too late for this occurrence; POSTPONED if
    it is late and has to be spread; GAVE_UP if no attempt has succeeded for too long.
    """
    check(now, sample)
    now = clamped(state, now)
    if state.disabled_until_update:
        return RefreshTransition(state, RefreshOutcome.DISABLED)
    if state.paused:
        return RefreshTransition(state, RefreshOutcome.ON_PAUSE)
    if state.attempt_uid is not None:
        return RefreshTransition(state, RefreshOutcome.RUNNING)
    if not is_due(state, now):
        return RefreshTransition(state, RefreshOutcome.NOT_DUE)
    if is_too_long(policy, state, now):
        return given_up(policy, state, now, TOO_LONG)
    late = _late(policy, state, now)
    if late is RefreshOutcome.MISSED:
        left_out = planned(policy, state, now, sample)
        return RefreshTransition(
            left_out, RefreshOutcome.COMPLETED if left_out.completed else RefreshOutcome.MISSED, (RefreshEffect.MISSED,)
        )
    if late is RefreshOutcome.POSTPONED:
        return RefreshTransition(replace(state, refresh_at=now + policy.jitter * sample), RefreshOutcome.POSTPONED)
    return _started(policy, state, now, uid, sample, due_at=_due_at(policy, state, now))


# A running attempt is superseded. It has neither succeeded nor failed, so the new attempt takes its number.
def trigger(
    policy: RefreshPolicy, state: RefreshState, *, now: datetime, uid: str, sample: float = 0.0
) -> RefreshTransition:
    """Start a refresh now, due or not, paused or not; return STARTED, or DISABLED."""
    check(now, sample)
    if state.disabled_until_update:
        return RefreshTransition(state, RefreshOutcome.DISABLED)
    at = clamped(state, now)
    return _started(policy, state, at, uid, sample, due_at=at)


def begun(
    policy: RefreshPolicy, state: RefreshState, *, now: datetime, uid: str, sample: float = 0.0
) -> RefreshTransition:
    """Return STARTED or STALE: a worker has claimed the attempt, and its time limit counts from now."""
    check(now, sample)
    if state.attempt_uid is None or state.attempt_uid != uid:
        return RefreshTransition(state, RefreshOutcome.STALE)
    at = clamped(state, now)
    is_first = state.attempts_since_success == 1
    running = replace(
        state,
        started_at=at,
        due_at=_tolerated(policy, state.due_at or at, at),
        failing_since=at if is_first else state.failing_since,
        deadline_at=at + policy.timeout,
    )
    return RefreshTransition(projected(policy, running, at, sample), RefreshOutcome.STARTED)


def wait(policy: RefreshPolicy, state: RefreshState, *, now: datetime) -> RefreshTransition:
    """Return NOTHING with a later deadline, for an attempt that still waits in a queue."""
    aware("now", now)
    return RefreshTransition(replace(state, deadline_at=now + max(policy.timeout, QUEUE_LOOK)), RefreshOutcome.NOTHING)


def _due_at(policy: RefreshPolicy, state: RefreshState, now: datetime) -> datetime:
    """Return when a start that happens now was due by the plan."""
    at, planned_at = state.refresh_at or now, state.planned_at
    if planned_at is not None and planned_at <= at <= planned_at + policy.jitter:
        return _tolerated(policy, planned_at, now)
    return _tolerated(policy, at - state.lag, now)


def _tolerated(policy: RefreshPolicy, due_at: datetime, now: datetime) -> datetime:
    """Return the due time, or now if the start is too late to count as on time."""
    if now - due_at > TOLERANCE + policy.jitter:
        return now
    following = None if policy.schedule is None else occurrence(policy.schedule, due_at, due_at)
    return due_at if following is None or following > now else now


def _started(
    policy: RefreshPolicy, state: RefreshState, now: datetime, uid: str, sample: float, *, due_at: datetime
) -> RefreshTransition:
    # A superseded attempt does not count, unless its time was over: then it has failed, although no sweep has seen it.
    is_new = state.attempt_uid is None or (state.deadline_at is not None and state.deadline_at <= now)
    running = replace(
        state,
        attempt_uid=uid,
        attempt_no=state.attempt_no + is_new,
        attempts_since_success=state.attempts_since_success + is_new,
        started_at=now,
        due_at=due_at,
        failing_since=state.failing_since or now,
        deadline_at=now + policy.timeout,
        completed=False,
    )
    return RefreshTransition(projected(policy, running, now, sample), RefreshOutcome.STARTED)


def projected(policy: RefreshPolicy, running: RefreshState, now: datetime, sample: float) -> RefreshState:
    """Return a state with a running attempt, with the ``refresh_at`` that its timeout would lead to."""
    assert running.deadline_at is not None  # it is due
    failing = failed(policy, running, running.deadline_at, sample=sample).state
    return replace(running, refresh_at=failing.refresh_at, planned_at=next_planned(policy, running, now))


def _late(policy: RefreshPolicy, state: RefreshState, now: datetime) -> RefreshOutcome | None:
    """Return MISSED or POSTPONED for a planned refresh that is late; None for others."""
    at = state.refresh_at
    if not is_planned(state) or at is None or state.planned_at is None:
        return None
    if policy.catch_up is not None and now - at > policy.catch_up:
        return RefreshOutcome.MISSED
    latest = state.planned_at + policy.jitter
    # Polling takes time: a start at the very end of the jitter is not postponed again for that.
    grace = min(policy.jitter, TOLERANCE)
    return RefreshOutcome.POSTPONED if policy.jitter and at <= latest < now - grace else None


def is_planned(state: RefreshState) -> bool:
    """Return True if the state waits for a planned refresh, not for a retry or a trigger."""
    if state.attempt_no or state.refresh_at is None or state.planned_at is None:
        return False
    return state.refresh_at >= state.planned_at


def check(now: datetime, sample: float) -> None:
    """Raise ScheduleError if an instant has no time zone or a sample lies outside of 0 to 1."""
    aware("now", now)
    if not isinstance(sample, int | float) or not 0 <= sample <= 1:
        raise ScheduleError(f"sample={sample!r}: a sample lies between 0 and 1")


def clamped(state: RefreshState, now: datetime) -> datetime:
    """Return the present instant, or the last start if the clock was set back behind it."""
    return now if state.started_at is None else max(now, state.started_at)
