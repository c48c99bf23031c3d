"""Things that must stay fresh: planned refreshes, retries between them, and the decision to give up (seed 004). PURE.

A *refresh* is started at the occurrences of a schedule. If it fails it is tried again between them, after a list of
delays, and when it has failed for too long somebody is told and it stops until its subject is changed. The two plans,
that of the schedule and that of the retries, get in each other's way; how that is settled is the subject of this
module.

One small value holds where a refresh stands (`RefreshState`), another what is to be done (`RefreshPolicy`). Each move
is a function of both and of the present instant, and answers the next state: nothing here waits, stores or sends.
Whoever carries a move out writes the state, and does what `RefreshTransition.effects` says, in one transaction::

    move = refresh.failure(policy, state, now=now, uid=uid)

===========  =======================================================================================================
move         when
===========  =======================================================================================================
`start`      it is due: nothing else runs, it is neither disabled nor paused
`trigger`    somebody wants it now; a running attempt is superseded, and the new one takes its number
`begun`      a worker has taken the attempt from a queue: the time allowed counts from now
`wait`       the deadline has come, and no worker has taken the attempt yet
`success`    the attempt has answered
`failure`    the attempt has answered
`sweep`      now and then: an attempt whose deadline has passed has failed, at its deadline
`update`     its subject was changed by a person: it is enabled, and all that was counted is forgotten
`pause`      nothing is started until `resume`
`replan`     its policy was replaced by another one
`set_back`   the clock was set back: what was reckoned from instants that are to come again is reckoned anew
===========  =======================================================================================================

**The attempt's token.** Each start draws a new one; an answer with another one is stale, and changes nothing. So a
running attempt is cancelled by replacing its token, and late, double and superseded answers are one case.

**One rule for slots.** The next planned refresh is the first occurrence at this instant or later that is also later
than the last start: a start uses up what was due until then. With "at or later" alone a refresh that ends in the
second in which it began would begin again; with "later" alone one that ends just at the next occurrence would lose it.

**One rule for timeouts.** Logically a timeout happens at the deadline, however late the sweep comes. And ``refresh_at``
after a start is what such a timeout would give. So a late sweep, a restart or a crash between both changes nothing. A
failure without a hint that is answered up to `TOLERANCE` after the deadline is such a timeout too.

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

**Reckoned from the due time.** Attempts start a little later than they are due: a look for due ones takes up to a
second, and a queue takes time. If that counted, a retry that fits to the second in the plan would not fit in practice,
and a timeout would pass the planned refresh that it should meet. So what follows from a failure is reckoned as if each
start had been on time, as long as a chain of attempts is no more than `TOLERANCE` behind (and its jitter, if it has
any), and no other planned refresh has passed. Beyond that it is reckoned from the real start. Nothing is started
earlier for this: a delay counts from the real failure. A success is reckoned from its real end.

**Queued, and begun.** Where a queue lies between the start and the work, the time allowed counts from the moment at
which a worker begins (`begun`); until then no deadline applies (`wait`).

At one instant answers come first, then sweeps, then starts. A clock that went back is taken to stand still within one
move; `set_back` says what becomes of a state that waits for an instant far ahead because of it.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from redrive.policy.duration import Duration
from redrive.schedule.failing import TOO_LONG, aligned, failed, given_up, is_too_long, next_planned, planned
from redrive.schedule.options import read_span
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

# ------------------------------------------------------------------------------------------------------------ answering


def success(
    policy: RefreshPolicy, state: RefreshState, *, now: datetime, uid: str, sample: float = 0.0
) -> RefreshTransition:
    """The attempt has succeeded.

    Args:
        policy: what is to be done.
        state: where it stands.
        now: the present instant, aware.
        uid: the token of the attempt that answers.
        sample: from 0 to 1, for jitter.

    Returns:
        SUCCEEDED, COMPLETED if nothing is planned any more, or STALE.
    """
    check(now, sample)
    if state.attempt_uid is None or state.attempt_uid != uid:
        return RefreshTransition(state, RefreshOutcome.STALE)
    after = planned(policy, _cleared(state), clamped(state, now), sample)
    return RefreshTransition(after, RefreshOutcome.COMPLETED if after.completed else RefreshOutcome.SUCCEEDED)


def failure(  # noqa: PLR0913 - what failed, when, and what is known of it
    policy: RefreshPolicy,
    state: RefreshState,
    *,
    now: datetime,
    uid: str,
    permanent: str | None = None,
    retry_after: Duration | None = None,
    sample: float = 0.0,
) -> RefreshTransition:
    """The attempt has failed.

    Args:
        policy: what is to be done.
        state: where it stands.
        now: the present instant, aware.
        uid: the token of the attempt that answers.
        permanent: why no further attempt can succeed, for the person whose data it is.
        retry_after: how long the other side wants to be left alone; a retry comes no earlier.
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
        # The answer of a worker that has timed out by itself: it is a timeout, which happens at the deadline.
        at = min(at, state.deadline_at)
    return failed(policy, state, at, retry_after=hint, sample=sample)


def sweep(policy: RefreshPolicy, state: RefreshState, *, now: datetime, sample: float = 0.0) -> RefreshTransition:
    """See whether an attempt has timed out, or nothing has succeeded for too long.

    Args:
        policy: what is to be done.
        state: where it stands.
        now: the present instant, aware.
        sample: from 0 to 1, for jitter.

    Returns:
        As `failure` at the deadline; GAVE_UP; or NOTHING.
    """
    check(now, sample)
    if state.attempt_uid is not None:
        if state.deadline_at is None or state.deadline_at > now:
            return RefreshTransition(state, RefreshOutcome.NOTHING)
        return failed(policy, state, state.deadline_at, sample=sample)
    if state.disabled_until_update or state.paused or not is_too_long(policy, state, now):
        return RefreshTransition(state, RefreshOutcome.NOTHING)
    return given_up(policy, state, now, TOO_LONG)


# --------------------------------------------------------------------------------------------------------------- people


def update(
    policy: RefreshPolicy, state: RefreshState, *, now: datetime, at_once: bool = True, sample: float = 0.0
) -> RefreshTransition:
    """A person has changed what is refreshed: it is enabled, and begins anew. A running attempt is cancelled.

    Args:
        policy: what is to be done.
        state: where it stands.
        now: the present instant, aware.
        at_once: start now, or at the next planned refresh?
        sample: from 0 to 1, for jitter.

    Returns:
        ENABLED.
    """
    check(now, sample)
    at = clamped(state, now)
    enabled = replace(_cleared(state), disabled_until_update=False, disabled_reason=None, completed=False)
    waiting = planned(policy, enabled, at, sample)
    return RefreshTransition(
        replace(waiting, refresh_at=at, completed=False) if at_once else waiting, RefreshOutcome.ENABLED
    )


def pause(state: RefreshState) -> RefreshTransition:
    """Start nothing until `resume`; an attempt that runs may finish.

    Args:
        state: where it stands.

    Returns:
        PAUSED.
    """
    return RefreshTransition(replace(state, paused=True), RefreshOutcome.PAUSED)


def resume(policy: RefreshPolicy, state: RefreshState, *, now: datetime, sample: float = 0.0) -> RefreshTransition:
    """Go on. Planned refreshes that were missed meanwhile are left out; a retry that became due is made.

    So is what somebody has asked for meanwhile.

    Args:
        policy: what is to be done.
        state: where it stands.
        now: the present instant, aware.
        sample: from 0 to 1, for jitter.

    Returns:
        RESUMED.
    """
    check(now, sample)
    at = clamped(state, now)
    going = replace(state, paused=False)
    late = state.refresh_at is not None and state.refresh_at < at and state.attempt_uid is None
    return RefreshTransition(
        planned(policy, going, at, sample) if late and is_planned(state) else going, RefreshOutcome.RESUMED
    )


def replan(policy: RefreshPolicy, state: RefreshState, *, now: datetime, sample: float = 0.0) -> RefreshTransition:
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
        sample: from 0 to 1, for jitter.

    Returns:
        REPLANNED.
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


def set_back(policy: RefreshPolicy, state: RefreshState, *, now: datetime, sample: float = 0.0) -> RefreshTransition:
    """Reckon anew what the clock has left ahead of itself when it was set back.

    Otherwise it would wait until the clock has caught up, perhaps for years. What happened in the meantime is taken to
    have happened just now; a planned refresh is the next one from now on.

    Args:
        policy: what is to be done.
        state: where it stands.
        now: the present instant, aware, by the clock that was set back.
        sample: from 0 to 1, for jitter.

    Returns:
        REPLANNED, or NOTHING.
    """
    after = _not_ahead(state, now)
    latest = wait(policy, state, now=now).state.deadline_at
    if after.deadline_at is not None and latest is not None:  # an attempt in a queue has one without a late start
        after = replace(after, deadline_at=min(after.deadline_at, latest + TOLERANCE))
    if after is not state or not state.attempts_since_success:  # else it may heed a hint, which is a lower bound
        after = _set_back(policy, after, now, sample)
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


def _not_ahead(state: RefreshState, now: datetime) -> RefreshState:
    """Return a state whose last start was no later than now; what follows from it is as much earlier."""
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
    """Waiting for the next planned refresh; completed without one, so that a later schedule finds it again."""
    waiting = planned(policy, state, now, sample)
    return replace(waiting, completed=waiting.refresh_at is None)


# --------------------------------------------------------------------------------------------------------------- shared


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
