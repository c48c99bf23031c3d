"""The effect of a failure: a retry, the next planned refresh, or giving up. PURE.

The rules are described in `redrive.schedule.refresh`. The instant is not always the present: a timeout fails at its
deadline.
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from redrive.errors import ScheduleError
from redrive.schedule.options import Exhausted, FunctionStrategy, GiveUpSince, Strategy
from redrive.schedule.policy import RefreshPolicy
from redrive.schedule.schedule import Schedule
from redrive.schedule.state import RefreshEffect, RefreshOutcome, RefreshState, RefreshTransition
from redrive.schedule.timezone import aware

# Reason shown to end users when ``give_up_after`` has passed.
TOO_LONG = "No successful refresh for too long"

# Reason shown to end users when the retries are used up and the schedule has ended.
NO_MORE = "No more refreshes are scheduled, and the last one failed after {}"

_NONE, _HOUR = timedelta(0), timedelta(hours=1)
# Occurrences of an hour that are listed; where there are more, a search is quick.
_LISTED = 20


def next_planned(policy: RefreshPolicy, state: RefreshState, at: datetime) -> datetime | None:
    """Return the first occurrence at an instant or later that is later than the last start; None if there is none."""
    return None if policy.schedule is None else occurrence(policy.schedule, at, state.started_at)


def occurrence(schedule: Schedule, at: datetime, after: datetime | None) -> datetime | None:
    """Return the same as `Schedule.next`, from a list of the occurrences of an hour if there is one."""
    begin = at if after is None or aware("after", after) < at else after + timedelta.resolution
    begin = aware("at", begin).astimezone(UTC)
    listed = _of_hour(schedule, begin.toordinal(), begin.hour)
    place = bisect_left(listed, begin)
    return listed[place] if place < len(listed) else schedule.next(begin)


# Thousands of items share a schedule and are planned within a second, which would be thousands of searches.
@functools.lru_cache(maxsize=1024)
def _of_hour(schedule: Schedule, day: int, hour: int) -> tuple[datetime, ...]:
    """Return the occurrences of an hour in UTC and the first one after it, or only the first `_LISTED` of them."""
    begin = datetime.fromordinal(day).replace(hour=hour, tzinfo=UTC)
    found = []
    for each in itertools.islice(schedule.since(begin), _LISTED):
        found.append(each)
        if each - begin >= _HOUR:
            break
    return tuple(found)


def planned(policy: RefreshPolicy, state: RefreshState, at: datetime, sample: float) -> RefreshState:
    """Return the state waiting for the next planned refresh; completed if the schedule has ended."""
    return _planned_at(policy, state, next_planned(policy, state, at), sample)


def _planned_at(policy: RefreshPolicy, state: RefreshState, following: datetime | None, sample: float) -> RefreshState:
    if following is None:
        return replace(state, refresh_at=None, planned_at=None, completed=policy.schedule is not None)
    return replace(state, refresh_at=following + policy.jitter * sample, planned_at=following)


def failed(
    policy: RefreshPolicy,
    state: RefreshState,
    at: datetime,
    *,
    lasting: bool = False,
    retry_after: timedelta | None = None,
    sample: float,
) -> RefreshTransition:
    """Return the transition for a failure at an instant: RETRY_SCHEDULED, WAITING_NEXT or GAVE_UP."""
    if is_too_long(policy, state, at):
        return given_up(policy, state, at, TOO_LONG)
    idle = replace(state, attempt_uid=None, deadline_at=None)
    on_time = at - state.lag
    # A planned refresh before the end of a hint would be too early, so it is skipped.
    begin = on_time if not retry_after else max(on_time, at + retry_after)
    following = next_planned(policy, state, begin)
    # Without a next planned refresh, a retry is the only chance that the code or the data is corrected meanwhile.
    lasting = lasting and following is not None
    delay = None if lasting else policy.delay(state.attempt_no)
    if delay is None:
        if policy.on_exhausted is Exhausted.GIVE_UP and not lasting:
            return given_up(policy, state, at, f"Cannot refresh after {state.attempt_no} attempt(s)")
        if following is None:
            return given_up(
                policy,
                state,
                at,
                NO_MORE.format("1 attempt" if state.attempt_no == 1 else f"{state.attempt_no} attempts"),
            )
        return RefreshTransition(
            replace(_planned_at(policy, idle, following, sample), attempt_no=0), RefreshOutcome.WAITING_NEXT
        )
    wait = max(delay, retry_after or _NONE)
    try:
        chosen, is_new = aligned(policy, on_time + wait, following, failures=state.attempt_no)
    except ScheduleError as error:
        # As a job with a backoff that raises: asking again would not help.
        return given_up(policy, state, at, str(error))
    if chosen == following:
        idle = _planned_at(policy, idle, following, sample)
    else:
        idle = replace(idle, refresh_at=at + wait, planned_at=following)
    if is_new:
        return RefreshTransition(replace(idle, attempt_no=0), RefreshOutcome.WAITING_NEXT)
    return RefreshTransition(idle, RefreshOutcome.RETRY_SCHEDULED)


def aligned(
    policy: RefreshPolicy, retry_at: datetime, following: datetime | None, *, failures: int
) -> tuple[datetime, bool]:
    """Choose between a retry and the next planned refresh; return True with it if its attempts are counted from 1.

    Raise `ScheduleError` if a function of the user is to choose and does not.
    """
    if following is None:
        return retry_at, False
    strategy = policy.strategy
    if isinstance(strategy, FunctionStrategy):
        strategy = strategy.choose(retry_at, following, failures)
    if strategy is Strategy.UNTIL_SUCCESS:
        return retry_at, False
    if strategy is Strategy.PLANNED_ONLY:
        return following, False
    if strategy is Strategy.WHICHEVER_FIRST:
        return min(retry_at, following), False
    if retry_at + policy.timeout <= following:
        return retry_at, False
    return following, strategy is Strategy.UNTIL_PLANNED


def limit_at(policy: RefreshPolicy, state: RefreshState) -> datetime | None:
    """Return when ``give_up_after`` ends; None without a limit, or if no attempt has failed since the last success."""
    if policy.give_up_after is None or state.failing_since is None:
        return None
    since = state.failing_since
    if policy.give_up_since is GiveUpSince.LAST_SUCCESS and state.succeeded_at is not None:
        # A clock that was set back can make the success the later one.
        since = min(since, state.succeeded_at)
    return since + policy.give_up_after


def is_too_long(policy: RefreshPolicy, state: RefreshState, at: datetime) -> bool:
    """Return True if no attempt has succeeded for ``give_up_after``."""
    limit = limit_at(policy, state)
    return limit is not None and at >= limit


def given_up(policy: RefreshPolicy, state: RefreshState, at: datetime, reason: str) -> RefreshTransition:
    """Return GAVE_UP: disabled until an update, with a reason for end users."""
    stopped = replace(
        state,
        refresh_at=None,
        deadline_at=None,
        attempt_uid=None,
        planned_at=next_planned(policy, state, at),
        disabled_until_update=True,
        disabled_reason=reason,
    )
    return RefreshTransition(stopped, RefreshOutcome.GAVE_UP, (RefreshEffect.DISABLE, RefreshEffect.NOTIFY))
