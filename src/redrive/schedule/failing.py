"""What a refresh waits for: the next planned one, a retry before it, or nothing any more. PURE.

The part of `redrive.schedule.refresh` that decides; the rules and their reasons stand there. Its moves ask here what
becomes of a state, at an instant that is not always the present: a timeout fails at its deadline.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from redrive.schedule.options import Exhausted, Strategy
from redrive.schedule.policy import RefreshPolicy
from redrive.schedule.state import Effect, RefreshOutcome, RefreshState, RefreshTransition

__all__ = ["TOO_LONG", "aligned", "failed", "given_up", "is_too_long", "next_planned", "planned"]

TOO_LONG = "No successful refresh for too long"
"""Why a refresh is given up whose time is over; for the person whose data it is."""

NO_MORE = "No more refreshes are scheduled, and the last one failed after {} attempt(s)"
"""Why a refresh is given up that would wait for the next planned one, but the schedule has ended."""

_NONE = timedelta(0)


def next_planned(policy: RefreshPolicy, state: RefreshState, at: datetime) -> datetime | None:
    """The next occurrence of the schedule.

    Args:
        policy: whose schedule.
        state: occurrences until its last start are used up.
        at: an instant; an occurrence at this one counts.

    Returns:
        The instant, or None where there is none any more.
    """
    return None if policy.schedule is None else policy.schedule.next(at, after=state.started_at)


def planned(policy: RefreshPolicy, state: RefreshState, at: datetime, sample: float) -> RefreshState:
    """Wait for the next planned refresh, if there is one.

    Args:
        policy: whose schedule and jitter.
        state: where it stands.
        at: an instant; an occurrence at this one counts.
        sample: from 0 to 1, for jitter.

    Returns:
        The state, completed if the schedule has come to its end.
    """
    following = next_planned(policy, state, at)
    if following is None:
        return replace(state, refresh_at=None, planned_at=None, completed=policy.schedule is not None)
    return replace(state, refresh_at=following + policy.jitter * sample, planned_at=following)


def failed(
    policy: RefreshPolicy, state: RefreshState, at: datetime, *, retry_after: timedelta | None = None, sample: float
) -> RefreshTransition:
    """What a failure leads to.

    Args:
        policy: what is to be done.
        state: of the attempt that has failed.
        at: when.
        retry_after: how long the other side wants to be left alone.
        sample: from 0 to 1, for jitter.

    Returns:
        RETRY_SCHEDULED, WAITING_NEXT or GAVE_UP.
    """
    if is_too_long(policy, state, at):
        return given_up(policy, state, at, TOO_LONG)
    idle = replace(state, attempt_uid=None, deadline_at=None)
    reckoned = at - state.lag
    # A planned refresh before the end of a hint would be too early: it is passed over.
    begin = reckoned if not retry_after else max(reckoned, at + retry_after)
    following = next_planned(policy, state, begin)
    delay = policy.delay(state.attempt_no)
    if delay is None:
        if policy.on_exhausted is Exhausted.GIVE_UP:
            return given_up(policy, state, at, f"Cannot refresh after {state.attempt_no} attempt(s)")
        if following is None:
            return given_up(policy, state, at, NO_MORE.format(state.attempt_no))
        return RefreshTransition(
            replace(planned(policy, idle, begin, sample), attempt_no=0), RefreshOutcome.WAITING_NEXT
        )
    wait = max(delay, retry_after or _NONE)
    chosen, is_new = aligned(policy, reckoned + wait, following)
    if chosen == following:
        idle = planned(policy, idle, begin, sample)
    else:
        idle = replace(idle, refresh_at=at + wait, planned_at=following)
    if is_new:
        return RefreshTransition(replace(idle, attempt_no=0), RefreshOutcome.WAITING_NEXT)
    return RefreshTransition(idle, RefreshOutcome.RETRY_SCHEDULED)


def aligned(policy: RefreshPolicy, retry_at: datetime, following: datetime | None) -> tuple[datetime, bool]:
    """Choose between a retry and the next planned refresh.

    Args:
        policy: its strategy and its timeout count.
        retry_at: when the retry would be due.
        following: the next planned refresh; None where there is none.

    Returns:
        When it is started, and whether its attempts are counted from the first then.
    """
    if following is None or policy.strategy is Strategy.UNTIL_SUCCESS:
        return retry_at, False
    if policy.strategy is Strategy.PLANNED_ONLY:
        return following, False
    if policy.strategy is Strategy.WHICHEVER_FIRST:
        return min(retry_at, following), False
    if retry_at + policy.timeout <= following:
        return retry_at, False
    return following, policy.strategy is Strategy.UNTIL_PLANNED


def is_too_long(policy: RefreshPolicy, state: RefreshState, at: datetime) -> bool:
    """Whether nothing has succeeded for too long.

    Args:
        policy: says how long is too long.
        state: where it stands.
        at: an instant.
    """
    if policy.give_up_after is None or state.failing_since is None:
        return False
    return at - state.failing_since >= policy.give_up_after


def given_up(policy: RefreshPolicy, state: RefreshState, at: datetime, reason: str) -> RefreshTransition:
    """Stop until an update.

    Args:
        policy: whose schedule.
        state: where it stands.
        at: when.
        reason: why, for the person whose data it is.

    Returns:
        GAVE_UP.
    """
    stopped = replace(
        state,
        refresh_at=None,
        deadline_at=None,
        attempt_uid=None,
        planned_at=next_planned(policy, state, at),
        disabled_until_update=True,
        disabled_reason=reason,
    )
    return RefreshTransition(stopped, RefreshOutcome.GAVE_UP, (Effect.DISABLE, Effect.NOTIFY))
