"""A dry run of a refresh policy: the transitions of `redrive.schedule.refresh` in sequence, in virtual time. PURE."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
from msgspec.structs import force_setattr

from redrive.schedule import refresh
from redrive.schedule.policy import RefreshPolicy
from redrive.schedule.state import RefreshOutcome, RefreshState, RefreshTransition
from redrive.schedule.timezone import member

# Maximum number of occurrences in a result, besides the first.
MOST = 200


class AttemptEnd(StrEnum):
    """The end of a simulated attempt."""

    SUCCESS = "success"
    FAILURE = "failure"
    TIMEOUT = "timeout"


class SimulatedAnswer(msgspec.Struct, frozen=True):
    """The end of an attempt, and its time after the start; one after the deadline becomes a timeout."""

    ending: AttemptEnd
    after: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        force_setattr(self, "ending", member(AttemptEnd, "ending", self.ending))


class SimulatedAttempt(msgspec.Struct, frozen=True):
    """A simulated attempt."""

    # In its cycle, from 1.
    number: int
    # True if it started at an occurrence of the schedule.
    is_planned: bool
    began: datetime
    ended: datetime
    ending: AttemptEnd
    outcome: RefreshOutcome


class DryRun(msgspec.Struct, frozen=True):
    """The result of a dry run."""

    attempts: tuple[SimulatedAttempt, ...]
    # The occurrences of the schedule from the first attempt to the end.
    slots: tuple[datetime, ...]
    state: RefreshState


def dry_run(
    policy: RefreshPolicy, answers: Iterable[SimulatedAnswer], *, start: datetime, state: RefreshState | None = None
) -> DryRun:
    """Simulate a policy.

    Args:
        policy: the policy.
        answers: the end of each attempt in turn. The run ends with them, or when no attempt starts any more.
        start: the beginning, aware: the first attempt is at the first occurrence from then on, or at once if there is
            no schedule.
        state: that of an item without a running attempt; its next attempt is then the first one; by default that of
            a new item.
    """
    if state is None:
        state = refresh.update(policy, RefreshState(), now=start, at_once=policy.schedule is None).state
    attempts: list[SimulatedAttempt] = []
    for number, answer in enumerate(answers, 1):
        due = state.refresh_at
        if due is None:
            break
        begin = max(due, start)
        began = refresh.start(policy, state, now=begin, uid=str(number))
        if began.outcome is not RefreshOutcome.STARTED:
            state = began.state
            break
        is_planned = due == state.planned_at
        move, ended, ending = _answered(policy, began.state, answer)
        attempts.append(SimulatedAttempt(began.state.attempt_no, is_planned, begin, ended, ending, move.outcome))
        state = move.state
    return DryRun(tuple(attempts), _slots(policy, attempts, state), state)


def _answered(
    policy: RefreshPolicy, state: RefreshState, answer: SimulatedAnswer
) -> tuple[RefreshTransition, datetime, AttemptEnd]:
    assert state.started_at is not None  # it was started
    assert state.attempt_uid is not None
    if answer.ending is AttemptEnd.TIMEOUT or answer.after >= policy.timeout:
        at = state.started_at + policy.timeout
        return refresh.sweep(policy, state, now=at), at, AttemptEnd.TIMEOUT
    at = state.started_at + answer.after
    how = refresh.success if answer.ending is AttemptEnd.SUCCESS else refresh.failure
    return how(policy, state, now=at, uid=state.attempt_uid), at, answer.ending


def _slots(policy: RefreshPolicy, attempts: list[SimulatedAttempt], state: RefreshState) -> tuple[datetime, ...]:
    if policy.schedule is None or not attempts:
        return ()
    end = max(attempts[-1].ended, state.refresh_at or attempts[-1].ended)
    planned = itertools.islice(policy.schedule.since(attempts[0].began), MOST + 1)
    return tuple(itertools.takewhile(lambda each: each <= end, planned))
