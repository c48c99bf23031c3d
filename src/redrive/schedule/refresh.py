"""Things that must stay fresh: planned refreshes, retries between them, and the decision to give up (seed 004). PURE.

A *refresh* is started at the occurrences of a schedule. If it fails it is tried again between them, after a list of
delays, and when it has failed for too long somebody is told and it stops until its subject is changed. The two plans,
that of the schedule and that of the retries, get in each other's way; how that is settled is the subject of this
module.

One small value holds where a refresh stands (`RefreshState`), another what is to be done (`RefreshPolicy`). Each move
is a function of both and of the present instant, and answers the next state: nothing here waits, stores or sends.
Whoever carries a move out writes the state, and does what `Move.effects` says, in one transaction::

    move = refresh.failure(policy, state, now=now, uid=uid)

===========  =======================================================================================================
move         when
===========  =======================================================================================================
`start`      it is due: nothing else runs, it is neither disabled nor paused
`trigger`    somebody wants it now; a running attempt is superseded
`success`    the attempt has answered
`failure`    the attempt has answered
`sweep`      now and then: an attempt whose deadline has passed has failed, at its deadline
`update`     its subject was changed by a person: it is enabled, and all that was counted is forgotten
`pause`      nothing is started until `resume`
===========  =======================================================================================================

**The attempt's token.** Each start draws a new one; an answer with another one is stale, and changes nothing. So a
running attempt is cancelled by replacing its token, and late, double and superseded answers are one case.

**One rule for slots.** The next planned refresh is the first occurrence at this instant or later that is also later
than the last start: a start uses up what was due until then. With "at or later" alone a refresh that ends in the
second in which it began would begin again; with "later" alone one that ends just at the next occurrence would lose it.

**One rule for timeouts.** Logically a timeout happens at the deadline, however late the sweep comes. And ``refresh_at``
after a start is what such a timeout would give. So a late sweep, a restart or a crash between both changes nothing.

**Retry or planned refresh.** A retry *fits* if it would end, timeout included, by the next planned refresh; ending just
then fits. `Strategy` says what becomes of one that does not.

**Exhausted is a fact, giving up a decision.** When all retries are used up a policy gives up, or waits for the next
planned refresh and counts anew. Beside that it gives up when nothing has succeeded for too long, reckoned from the
first start of the failing streak: a monthly refresh is not given up in its second month before it was tried (a defect
of the original).

At one instant answers come first, then sweeps, then starts. A clock that went back is taken to stand still.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from redrive.schedule.policy import RefreshPolicy
from redrive.schedule.state import Effect, Move, Outcome, RefreshState
from redrive.schedule.terms import Exhausted, Strategy

__all__ = [
    "aligned",
    "failure",
    "is_due",
    "pause",
    "resume",
    "start",
    "success",
    "sweep",
    "trigger",
    "update",
]

_NONE = timedelta(0)


# ------------------------------------------------------------------------------------------------------------- starting


def is_due(state: RefreshState, now: datetime) -> bool:
    """Whether it is to be started; what a query for due rows asks too.

    Args:
        state: where it stands.
        now: the present instant, aware.
    """
    waits = not (state.disabled_until_update or state.paused or state.attempt_uid)
    return waits and state.refresh_at is not None and state.refresh_at <= now


def start(policy: RefreshPolicy, state: RefreshState, *, now: datetime, uid: str, luck: float = 0.0) -> Move:
    """Start what is due.

    Args:
        policy: what is to be done.
        state: where it stands.
        now: the present instant, aware.
        uid: a new token, unlike any before.
        luck: from 0 to 1, for jitter.

    Returns:
        STARTED; or DISABLED, ON_PAUSE, RUNNING or NOT_DUE; MISSED if it is too late for this one; GAVE_UP if nothing
        has succeeded for too long.
    """
    now = _clamped(state, now)
    if state.disabled_until_update:
        return Move(state, Outcome.DISABLED)
    if state.paused:
        return Move(state, Outcome.ON_PAUSE)
    if state.attempt_uid is not None:
        return Move(state, Outcome.RUNNING)
    if not is_due(state, now):
        return Move(state, Outcome.NOT_DUE)
    if _is_too_long(policy, state, now):
        return _given_up(policy, state, now, TOO_LONG)
    if _is_missed(policy, state, now):
        left_out = _planned(policy, state, now, luck)
        return Move(left_out, Outcome.COMPLETED if left_out.completed else Outcome.MISSED, (Effect.MISSED,))
    return _started(policy, state, now, uid, luck)


def trigger(policy: RefreshPolicy, state: RefreshState, *, now: datetime, uid: str, luck: float = 0.0) -> Move:
    """Start because somebody wants it, due or not, paused or not; a running attempt is superseded.

    Args:
        policy: what is to be done.
        state: where it stands.
        now: the present instant, aware.
        uid: a new token, unlike any before.
        luck: from 0 to 1, for jitter.

    Returns:
        STARTED, or DISABLED.
    """
    if state.disabled_until_update:
        return Move(state, Outcome.DISABLED)
    return _started(policy, state, _clamped(state, now), uid, luck)


def _started(policy: RefreshPolicy, state: RefreshState, now: datetime, uid: str, luck: float) -> Move:
    running = replace(
        state,
        attempt_uid=uid,
        attempt_no=state.attempt_no + 1,
        attempts_since_success=state.attempts_since_success + 1,
        started_at=now,
        failing_since=state.failing_since or now,
        deadline_at=now + policy.timeout,
        completed=False,
    )
    projected = _failed(policy, running, now + policy.timeout, luck=luck).state
    return Move(
        replace(running, refresh_at=projected.refresh_at, planned_at=_next(policy, running, now)), Outcome.STARTED
    )


def _is_missed(policy: RefreshPolicy, state: RefreshState, now: datetime) -> bool:
    if policy.catch_up is None or state.attempt_no or state.refresh_at is None or state.planned_at is None:
        return False
    return state.refresh_at >= state.planned_at and now - state.refresh_at > policy.catch_up


# ------------------------------------------------------------------------------------------------------------ answering


def success(policy: RefreshPolicy, state: RefreshState, *, now: datetime, uid: str, luck: float = 0.0) -> Move:
    """The attempt has succeeded.

    Args:
        policy: what is to be done.
        state: where it stands.
        now: the present instant, aware.
        uid: the token of the attempt that answers.
        luck: from 0 to 1, for jitter.

    Returns:
        SUCCEEDED, COMPLETED if nothing is planned any more, or STALE.
    """
    if state.attempt_uid is None or state.attempt_uid != uid:
        return Move(state, Outcome.STALE)
    after = _planned(policy, _cleared(state), _clamped(state, now), luck)
    return Move(after, Outcome.COMPLETED if after.completed else Outcome.SUCCEEDED)


def failure(  # noqa: PLR0913 - what failed, when, and what is known of it
    policy: RefreshPolicy,
    state: RefreshState,
    *,
    now: datetime,
    uid: str,
    permanent: str | None = None,
    retry_after: timedelta | None = None,
    luck: float = 0.0,
) -> Move:
    """The attempt has failed.

    Args:
        policy: what is to be done.
        state: where it stands.
        now: the present instant, aware.
        uid: the token of the attempt that answers.
        permanent: why no further attempt can succeed, for the person whose data it is.
        retry_after: how long the other side wants to be left alone; a retry comes no earlier.
        luck: from 0 to 1, for jitter.

    Returns:
        RETRY_SCHEDULED, WAITING_NEXT, GAVE_UP, or STALE.
    """
    if state.attempt_uid is None or state.attempt_uid != uid:
        return Move(state, Outcome.STALE)
    at = _clamped(state, now)
    if permanent is not None:
        return _given_up(policy, state, at, permanent)
    return _failed(policy, state, at, retry_after=retry_after, luck=luck)


def sweep(policy: RefreshPolicy, state: RefreshState, *, now: datetime, luck: float = 0.0) -> Move:
    """See whether an attempt has timed out, or nothing has succeeded for too long.

    Args:
        policy: what is to be done.
        state: where it stands.
        now: the present instant, aware.
        luck: from 0 to 1, for jitter.

    Returns:
        As `failure` at the deadline; GAVE_UP; or NOTHING.
    """
    if state.attempt_uid is not None:
        if state.deadline_at is None or state.deadline_at > now:
            return Move(state, Outcome.NOTHING)
        return _failed(policy, state, state.deadline_at, luck=luck)
    if state.disabled_until_update or state.paused or not _is_too_long(policy, state, now):
        return Move(state, Outcome.NOTHING)
    return _given_up(policy, state, now, TOO_LONG)


TOO_LONG = "No successful refresh for too long"


def _failed(
    policy: RefreshPolicy, state: RefreshState, at: datetime, *, retry_after: timedelta | None = None, luck: float
) -> Move:
    if _is_too_long(policy, state, at):
        return _given_up(policy, state, at, TOO_LONG)
    idle = replace(state, attempt_uid=None, deadline_at=None)
    planned = _next(policy, state, at)
    delay = policy.delay(state.attempt_no)
    if delay is None:
        if policy.on_exhausted is Exhausted.GIVE_UP or planned is None:
            return _given_up(policy, state, at, f"Cannot refresh after {state.attempt_no} attempt(s)")
        return Move(replace(_planned(policy, idle, at, luck), attempt_no=0), Outcome.WAITING_NEXT)
    retry_at = at + max(delay, retry_after or _NONE)
    refresh_at, is_new = aligned(policy, retry_at, planned)
    if refresh_at == planned:
        idle = _planned(policy, idle, at, luck)
    else:
        idle = replace(idle, refresh_at=refresh_at, planned_at=planned)
    if is_new:
        return Move(replace(idle, attempt_no=0), Outcome.WAITING_NEXT)
    return Move(idle, Outcome.RETRY_SCHEDULED)


def aligned(policy: RefreshPolicy, retry_at: datetime, planned: datetime | None) -> tuple[datetime, bool]:
    """Choose between a retry and the next planned refresh.

    Args:
        policy: its strategy and its timeout count.
        retry_at: when the retry would be due.
        planned: the next planned refresh; None where there is none.

    Returns:
        When it is started, and whether its attempts are counted from the first then.
    """
    if planned is None or policy.strategy is Strategy.UNTIL_SUCCESS:
        return retry_at, False
    if policy.strategy is Strategy.PLANNED_ONLY:
        return planned, False
    if policy.strategy is Strategy.WHICHEVER_FIRST:
        return min(retry_at, planned), False
    if retry_at + policy.timeout <= planned:
        return retry_at, False
    return planned, policy.strategy is Strategy.UNTIL_PLANNED


def _is_too_long(policy: RefreshPolicy, state: RefreshState, at: datetime) -> bool:
    if policy.give_up_after is None or state.failing_since is None:
        return False
    return at - state.failing_since >= policy.give_up_after


def _given_up(policy: RefreshPolicy, state: RefreshState, at: datetime, reason: str) -> Move:
    stopped = replace(
        state,
        refresh_at=None,
        deadline_at=None,
        attempt_uid=None,
        planned_at=_next(policy, state, at),
        disabled_until_update=True,
        disabled_reason=reason,
    )
    return Move(stopped, Outcome.GAVE_UP, (Effect.DISABLE, Effect.NOTIFY))


# --------------------------------------------------------------------------------------------------------------- people


def update(
    policy: RefreshPolicy, state: RefreshState, *, now: datetime, at_once: bool = True, luck: float = 0.0
) -> Move:
    """A person has changed what is refreshed: it is enabled, and begins anew. A running attempt is cancelled.

    Args:
        policy: what is to be done.
        state: where it stands.
        now: the present instant, aware.
        at_once: start now, or at the next planned refresh?
        luck: from 0 to 1, for jitter.

    Returns:
        ENABLED.
    """
    at = _clamped(state, now)
    enabled = replace(_cleared(state), disabled_until_update=False, disabled_reason=None, completed=False)
    planned = _planned(policy, enabled, at, luck)
    return Move(replace(planned, refresh_at=at, completed=False) if at_once else planned, Outcome.ENABLED)


def pause(state: RefreshState) -> Move:
    """Start nothing until `resume`; an attempt that runs may finish.

    Args:
        state: where it stands.

    Returns:
        PAUSED.
    """
    return Move(replace(state, paused=True), Outcome.PAUSED)


def resume(policy: RefreshPolicy, state: RefreshState, *, now: datetime, luck: float = 0.0) -> Move:
    """Go on. Planned refreshes that were missed meanwhile are left out; a retry that became due is made.

    Args:
        policy: what is to be done.
        state: where it stands.
        now: the present instant, aware.
        luck: from 0 to 1, for jitter.

    Returns:
        RESUMED.
    """
    at = _clamped(state, now)
    going = replace(state, paused=False)
    late = state.refresh_at is not None and state.refresh_at < at and state.attempt_uid is None
    is_planned = not state.attempt_no and state.planned_at is not None
    return Move(_planned(policy, going, at, luck) if late and is_planned else going, Outcome.RESUMED)


# --------------------------------------------------------------------------------------------------------------- shared


def _clamped(state: RefreshState, now: datetime) -> datetime:
    return now if state.started_at is None else max(now, state.started_at)


def _next(policy: RefreshPolicy, state: RefreshState, at: datetime) -> datetime | None:
    return None if policy.schedule is None else policy.schedule.next(at, after=state.started_at)


def _cleared(state: RefreshState) -> RefreshState:
    return replace(
        state, attempt_uid=None, deadline_at=None, attempt_no=0, failing_since=None, attempts_since_success=0
    )


def _planned(policy: RefreshPolicy, state: RefreshState, at: datetime, luck: float) -> RefreshState:
    """Wait for the next planned refresh, if there is one."""
    planned = _next(policy, state, at)
    if planned is None:
        return replace(state, refresh_at=None, planned_at=None, completed=policy.schedule is not None)
    return replace(state, refresh_at=planned + policy.jitter * luck, planned_at=planned)
