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
`replan`     its policy was replaced by another one
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

**Late, all at once.** After a downtime each refresh that was planned meanwhile is due, once, and all of them at the
same instant. `RefreshPolicy.catch_up` says how late is too late. The others are spread over the jitter of their policy,
as they would have been in time: a start that comes later than jitter allows is put off, once. That it was put off can
be seen from ``refresh_at``, which lies later than jitter could have put it.

At one instant answers come first, then sweeps, then starts. A clock that went back is taken to stand still.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from redrive.schedule.failing import TOO_LONG, aligned, failed, given_up, is_too_long, next_planned, planned
from redrive.schedule.policy import RefreshPolicy
from redrive.schedule.state import Effect, Move, Outcome, RefreshState

__all__ = [
    "aligned",
    "failure",
    "is_due",
    "pause",
    "replan",
    "resume",
    "start",
    "success",
    "sweep",
    "trigger",
    "update",
]

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
        STARTED; or DISABLED, ON_PAUSE, RUNNING or NOT_DUE; MISSED if it is too late for this one; POSTPONED if it is
        late, and has to keep apart from the others that are; GAVE_UP if nothing has succeeded for too long.
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
    if is_too_long(policy, state, now):
        return given_up(policy, state, now, TOO_LONG)
    late = _late(policy, state, now)
    if late is Outcome.MISSED:
        left_out = planned(policy, state, now, luck)
        return Move(left_out, Outcome.COMPLETED if left_out.completed else Outcome.MISSED, (Effect.MISSED,))
    if late is Outcome.POSTPONED:
        return Move(replace(state, refresh_at=now + policy.jitter * luck), Outcome.POSTPONED)
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
    return Move(_projected(policy, running, now, luck), Outcome.STARTED)


def _projected(policy: RefreshPolicy, running: RefreshState, now: datetime, luck: float) -> RefreshState:
    """With what a failure at the deadline would give."""
    assert running.deadline_at is not None  # noqa: S101 - it is due
    failing = failed(policy, running, running.deadline_at, luck=luck).state
    return replace(running, refresh_at=failing.refresh_at, planned_at=next_planned(policy, running, now))


def _late(policy: RefreshPolicy, state: RefreshState, now: datetime) -> Outcome | None:
    """What becomes of a planned refresh that comes late; nothing of a retry, or of what a person wants."""
    at = state.refresh_at
    if not _is_planned(state) or at is None or state.planned_at is None:
        return None
    if policy.catch_up is not None and now - at > policy.catch_up:
        return Outcome.MISSED
    latest = state.planned_at + policy.jitter
    return Outcome.POSTPONED if policy.jitter and at <= latest < now else None


def _is_planned(state: RefreshState) -> bool:
    """Whether it waits for a planned refresh, and not for a retry, or because a person wants it."""
    if state.attempt_no or state.refresh_at is None or state.planned_at is None:
        return False
    return state.refresh_at >= state.planned_at


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
    after = planned(policy, _cleared(state), _clamped(state, now), luck)
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
        return given_up(policy, state, at, permanent)
    return failed(policy, state, at, retry_after=retry_after, luck=luck)


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
        return failed(policy, state, state.deadline_at, luck=luck)
    if state.disabled_until_update or state.paused or not is_too_long(policy, state, now):
        return Move(state, Outcome.NOTHING)
    return given_up(policy, state, now, TOO_LONG)


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
    waiting = planned(policy, enabled, at, luck)
    return Move(replace(waiting, refresh_at=at, completed=False) if at_once else waiting, Outcome.ENABLED)


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

    So is what somebody has asked for meanwhile.

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
    return Move(planned(policy, going, at, luck) if late and _is_planned(state) else going, Outcome.RESUMED)


def replan(policy: RefreshPolicy, state: RefreshState, *, now: datetime, luck: float = 0.0) -> Move:
    """The policy was replaced by another one: the program was deployed anew, or a person has chosen another schedule.

    Nothing is cancelled, and nothing that is owed is lost:

    =====================================  =============================================================================
    it                                     and then
    =====================================  =============================================================================
    runs                                   goes on to its deadline, which stays; what a timeout would give is the new
                                           policy's
    waits for a retry, or was asked for    keeps its time: that was decided
    waits for a planned refresh            waits for the next one of the new schedule
    the same, and its time has come        keeps it: a deployment in that minute does not cost a day
    has completed, or had no schedule      is planned again, if the new schedule has something to come
    is disabled, or was never updated      stays so; an update begins by the new policy
    =====================================  =============================================================================

    Args:
        policy: the new one.
        state: where it stands.
        now: the present instant, aware.
        luck: from 0 to 1, for jitter.

    Returns:
        REPLANNED.
    """
    return Move(_replanned(policy, state, _clamped(state, now), luck), Outcome.REPLANNED)


def _replanned(policy: RefreshPolicy, state: RefreshState, now: datetime, luck: float) -> RefreshState:
    if state.attempt_uid is not None:
        return _projected(policy, state, now, luck)
    following = next_planned(policy, state, now)
    if state.disabled_until_update:
        return replace(state, planned_at=following)
    if state.refresh_at is None:
        was_updated = state.completed or state.started_at is not None
        return _awaiting(policy, state, now, luck) if was_updated and following else state
    if not _is_planned(state):
        return replace(state, planned_at=following)
    has_come = state.planned_at is not None and state.planned_at <= now
    return state if has_come else _awaiting(policy, state, now, luck)


def _awaiting(policy: RefreshPolicy, state: RefreshState, now: datetime, luck: float) -> RefreshState:
    """Waiting for the next planned refresh; completed without one, so that a later schedule finds it again."""
    waiting = planned(policy, state, now, luck)
    return replace(waiting, completed=waiting.refresh_at is None)


# --------------------------------------------------------------------------------------------------------------- shared


def _clamped(state: RefreshState, now: datetime) -> datetime:
    return now if state.started_at is None else max(now, state.started_at)


def _cleared(state: RefreshState) -> RefreshState:
    return replace(
        state, attempt_uid=None, deadline_at=None, attempt_no=0, failing_since=None, attempts_since_success=0
    )
