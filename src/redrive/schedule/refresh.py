"""The transitions of a refresh: planned refreshes, retries between them, and giving up. PURE.

A *refresh* starts at the occurrences of a schedule. A failed attempt is retried between them, after a list of delays.
When it has failed for too long it is given up, the user is notified, and it stays disabled until its item is updated.
This module defines how the two plans, schedule and retries, combine; it follows the refresh-with-retry-policy document.

Each transition is a function of the policy, the state and the present instant, and returns the next state. The caller
writes the state and carries out `RefreshTransition.effects` in one transaction::

    transition = refresh.failure(policy, state, now=now, uid=uid)

===========  =======================================================================================================
transition   when
===========  =======================================================================================================
`start`      the refresh is due, no attempt runs, and it is neither disabled nor paused
`trigger`    a user starts it now; a running attempt is superseded, and the new one takes its number
`begun`      a worker has claimed the attempt: the time limit counts from now
`wait`       the deadline has come, and no worker has claimed the attempt yet
`success`    the attempt succeeded
`failure`    the attempt failed
`sweep`      periodically: an attempt past its deadline has failed, at its deadline
`update`     a user changed the item: it is enabled, and all counters are reset
`pause`      no attempt starts until `resume`
`replan`     the policy was replaced
`set_back`   the clock was set back: times computed from instants that will come again are computed anew
===========  =======================================================================================================

**Token.** Each start draws a new token. A result with another token is stale and changes nothing. Replacing the token
cancels a running attempt, so late, double and superseded results are one case.

**Next planned refresh.** It is the first occurrence at this instant or later that is also later than the last start.
With "at or later" alone, a refresh that ends in the second in which it started would start again; with "later" alone,
one that ends exactly at the next occurrence would skip it.

**Timeout.** Logically a timeout happens at the deadline, however late the sweep is. ``refresh_at`` after a start is
what such a timeout would lead to, so a late sweep or a crash changes nothing. A failure without a hint up to
`TOLERANCE` after the deadline counts as that timeout.

**Retry or planned refresh.** A retry *fits* if it would end, timeout included, by the next planned refresh. `Strategy`
decides about one that does not.

**Lasting failure.** If a retry would fail alike (a programming error, a 404), the next attempt is the next planned
refresh, and the item is not given up: until then the code or the data may have been corrected.

**Giving up.** When all retries are used, a policy gives up or waits for the next planned refresh and counts anew. It
also gives up when no attempt has succeeded for too long, counted from the first start of the failing streak, so that a
monthly refresh is not given up before its second attempt. `GiveUpSince.LAST_SUCCESS` counts from the last success
instead: data is never older than that without notice. The first attempt after a success is always made, and pauses and
downtimes count. The first failing start counts if no attempt has succeeded since the last update, or since the policy
counts from the last success.

**Catch-up.** After a downtime every refresh that was planned in between is due once, all at the same instant.
`RefreshPolicy.catch_up` limits how late it may start. The others are spread over the jitter of their policy: a start
that is later than jitter allows is postponed, once. ``refresh_at`` then lies later than jitter could have put it, which
marks it as postponed.

**Lag.** Attempts start a little later than they are due, because of polling and queues. If that counted, a retry that
fits exactly would not fit in practice. So the consequences of a failure are computed as if each start had been on time,
as long as a chain of attempts is at most `TOLERANCE` (and its jitter) behind and no other planned refresh has passed;
beyond that, from the real start. Delays count from the real failure, and success from its real end, so no attempt
starts early.

**Queue.** If a queue lies between start and work, the time limit counts from the claim (`begun`); until then no
deadline applies (`wait`).
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from redrive.policy.duration import Duration
from redrive.schedule.failing import TOO_LONG, aligned, failed, given_up, is_too_long, limit_at, next_planned, planned
from redrive.schedule.options import GiveUpSince, read_span
from redrive.schedule.policy import RefreshPolicy
from redrive.schedule.starting import (
    TOLERANCE,
    begun,
    check,
    clamped,
    is_due,
    is_planned,
    projected,
    start,
    trigger,
    wait,
)
from redrive.schedule.state import RefreshOutcome, RefreshState, RefreshTransition

__all__ = [
    "TOLERANCE",
    "aligned",
    "begun",
    "failure",
    "is_due",
    "limit_at",
    "pause",
    "replan",
    "resume",
    "set_back",
    "start",
    "success",
    "sweep",
    "trigger",
    "update",
    "wait",
]


def success(
    policy: RefreshPolicy, state: RefreshState, *, now: datetime, uid: str, sample: float = 0.0
) -> RefreshTransition:
    """Return the transition for an attempt that succeeded.

    Args:
        policy: of the refresh.
        state: present state.
        now: the present instant, aware.
        uid: the token of the attempt.
        sample: from 0 to 1, for jitter; likewise in the other transitions.

    Returns:
        SUCCEEDED, COMPLETED if the schedule has ended, or STALE.
    """
    check(now, sample)
    if state.attempt_uid is None or state.attempt_uid != uid:
        return RefreshTransition(state, RefreshOutcome.STALE)
    at = clamped(state, now)
    # Only where it counts: items that have succeeded at different instants cannot share the move of their next start.
    succeeded_at = at if policy.give_up_since is GiveUpSince.LAST_SUCCESS else None
    after = planned(policy, replace(_cleared(state), succeeded_at=succeeded_at), at, sample)
    return RefreshTransition(after, RefreshOutcome.COMPLETED if after.completed else RefreshOutcome.SUCCEEDED)


def failure(
    policy: RefreshPolicy,
    state: RefreshState,
    *,
    now: datetime,
    uid: str,
    permanent: str | None = None,
    lasting: bool = False,
    retry_after: Duration | None = None,
    sample: float = 0.0,
) -> RefreshTransition:
    """Return the transition for an attempt that failed.

    Args:
        policy: of the refresh.
        state: present state.
        now: the present instant, aware.
        uid: the token of the attempt.
        permanent: why no further attempt can succeed, as a text for end users.
        lasting: True if a retry would fail alike: the next attempt is the next planned refresh.
        retry_after: the delay that the other side asked for; a lower bound for the retry.
        sample: from 0 to 1, for jitter.

    Returns:
        RETRY_SCHEDULED, WAITING_NEXT, GAVE_UP, or STALE.
    """
    check(now, sample)
    if state.attempt_uid is None or state.attempt_uid != uid:
        return RefreshTransition(state, RefreshOutcome.STALE)
    at = clamped(state, now)
    if permanent is not None:
        return given_up(policy, state, at, permanent)
    hint = None if retry_after is None else read_span("retry_after", retry_after)
    if state.deadline_at is not None and not hint and at - state.deadline_at <= TOLERANCE:
        # The worker ended the attempt at its time limit: it is a timeout, which happens at the deadline.
        at = min(at, state.deadline_at)
    return failed(policy, state, at, lasting=lasting, retry_after=hint, sample=sample)


def sweep(policy: RefreshPolicy, state: RefreshState, *, now: datetime, sample: float = 0.0) -> RefreshTransition:
    """Return the transition for an attempt past its deadline, or for a refresh that has failed for too long.

    The result is that of `failure` at the deadline, GAVE_UP, or NOTHING.
    """
    check(now, sample)
    if state.attempt_uid is not None:
        if state.deadline_at is None or state.deadline_at > now:
            return RefreshTransition(state, RefreshOutcome.NOTHING)
        return failed(policy, state, state.deadline_at, sample=sample)
    if state.disabled_until_update or state.paused or not is_too_long(policy, state, now):
        return RefreshTransition(state, RefreshOutcome.NOTHING)
    return given_up(policy, state, now, TOO_LONG)


def update(
    policy: RefreshPolicy, state: RefreshState, *, now: datetime, at_once: bool = True, sample: float = 0.0
) -> RefreshTransition:
    """Return ENABLED: the item was changed, so all counters are reset and a running attempt is cancelled.

    Args:
        policy: of the refresh.
        state: present state.
        now: the present instant, aware.
        at_once: True to start now, False to wait for the next planned refresh.
        sample: from 0 to 1, for jitter.
    """
    check(now, sample)
    at = clamped(state, now)
    enabled = replace(
        _cleared(state), succeeded_at=None, disabled_until_update=False, disabled_reason=None, completed=False
    )
    waiting = planned(policy, enabled, at, sample)
    return RefreshTransition(
        replace(waiting, refresh_at=at, completed=False) if at_once else waiting, RefreshOutcome.ENABLED
    )


def pause(state: RefreshState) -> RefreshTransition:
    """Return PAUSED: no attempt starts until `resume`; a running attempt may finish."""
    return RefreshTransition(replace(state, paused=True), RefreshOutcome.PAUSED)


def resume(policy: RefreshPolicy, state: RefreshState, *, now: datetime, sample: float = 0.0) -> RefreshTransition:
    """Return RESUMED: planned refreshes that were missed are skipped; a due retry or trigger starts now."""
    check(now, sample)
    at = clamped(state, now)
    going = replace(state, paused=False)
    late = state.refresh_at is not None and state.refresh_at < at and state.attempt_uid is None
    return RefreshTransition(
        planned(policy, going, at, sample) if late and is_planned(state) else going, RefreshOutcome.RESUMED
    )


def replan(policy: RefreshPolicy, state: RefreshState, *, now: datetime, sample: float = 0.0) -> RefreshTransition:
    """Return REPLANNED: the policy was replaced by a deployment or a user. No attempt and no due start is lost.

    =====================================  =============================================================================
    state                                  effect
    =====================================  =============================================================================
    running                                the attempt keeps its deadline; its timeout is handled by the new policy
    waiting for a retry, or triggered      the time stays
    waiting for a planned refresh          waits for the next one of the new schedule
    the same, and its time has come        the time stays: a deployment in that minute does not cost a day
    completed, or without a schedule       planned again, if the new schedule has an occurrence
    disabled, or never updated             stays; an update begins under the new policy
    =====================================  =============================================================================
    """
    check(now, sample)
    return RefreshTransition(_replanned(policy, state, clamped(state, now), sample), RefreshOutcome.REPLANNED)


def _replanned(policy: RefreshPolicy, state: RefreshState, now: datetime, sample: float) -> RefreshState:
    if state.attempt_uid is not None:
        return projected(policy, state, now, sample)
    following = next_planned(policy, state, now)
    if state.disabled_until_update:
        return replace(state, planned_at=following)
    if state.refresh_at is None:
        was_updated = state.completed or state.started_at is not None
        return _awaiting(policy, state, now, sample) if was_updated and following else state
    if not is_planned(state):
        return replace(state, planned_at=following)
    has_come = state.planned_at is not None and state.planned_at <= now
    return state if has_come else _awaiting(policy, state, now, sample)


# The last start counts as having happened now, and a planned refresh is the next one from now on. Otherwise the refresh
# would wait until the clock has caught up.
def set_back(policy: RefreshPolicy, state: RefreshState, *, now: datetime, sample: float = 0.0) -> RefreshTransition:
    """Return REPLANNED or NOTHING, after the clock was set back: compute anew what lies too far ahead."""
    after = _not_ahead(state, now)
    latest = wait(policy, state, now=now).state.deadline_at
    # An attempt in a queue has one without a late start.
    if after.deadline_at is not None and latest is not None:
        after = replace(after, deadline_at=min(after.deadline_at, latest + TOLERANCE))
    # Otherwise it may follow a hint, which is a lower bound.
    if after is not state or not state.attempts_since_success:
        after = _set_back(policy, after, now, sample)
    if after.succeeded_at is not None and after.succeeded_at > now + TOLERANCE:
        after = replace(after, succeeded_at=now)
    return (
        RefreshTransition(state, RefreshOutcome.NOTHING)
        if after == state
        else RefreshTransition(after, RefreshOutcome.REPLANNED)
    )


def _set_back(policy: RefreshPolicy, state: RefreshState, now: datetime, sample: float) -> RefreshState:
    if state.attempt_uid is not None or state.disabled_until_update:
        return state
    following = next_planned(policy, state, now + TOLERANCE)
    if is_planned(state) or state.completed:
        latest = None if following is None else following + policy.jitter
        too_far = latest is not None and (state.refresh_at is None or state.refresh_at > latest)
        return _awaiting(policy, state, now, sample) if too_far else state
    was_wanted = state.attempt_no == 0 and state.refresh_at is not None and state.refresh_at > now + TOLERANCE
    return replace(state, refresh_at=now) if was_wanted else state


# At one instant results come first, then sweeps, then starts. A clock that went back counts as standing still within
# one transition; `set_back` handles states that wait for an instant far ahead because of it.
def _not_ahead(state: RefreshState, now: datetime) -> RefreshState:
    """Return the state with a last start no later than now, and the times that depend on it as much earlier."""
    if state.started_at is None or state.started_at <= now + TOLERANCE:
        return state
    ahead = state.started_at - now
    earlier = replace(state, started_at=now, due_at=now - state.lag)
    if state.failing_since is not None:
        earlier = replace(earlier, failing_since=min(state.failing_since, now))
    if state.deadline_at is not None:
        earlier = replace(earlier, deadline_at=state.deadline_at - ahead)
    if state.refresh_at is not None and not is_planned(state):
        earlier = replace(earlier, refresh_at=state.refresh_at - ahead)
    return earlier


def _awaiting(policy: RefreshPolicy, state: RefreshState, now: datetime, sample: float) -> RefreshState:
    """Return the state waiting for the next planned refresh, or completed, so that a later schedule plans it again."""
    waiting = planned(policy, state, now, sample)
    return replace(waiting, completed=waiting.refresh_at is None)


def _cleared(state: RefreshState) -> RefreshState:
    return replace(
        state,
        attempt_uid=None,
        deadline_at=None,
        due_at=None,
        attempt_no=0,
        failing_since=None,
        attempts_since_success=0,
    )
