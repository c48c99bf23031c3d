"""What becomes of attempts that wait for an answer from outside."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import LifecycleEvent, State
from redrive.engine.outcome import Cancelled, Failed, Lost, Outcome, Released, Snoozed, Succeeded, Suspended
from redrive.engine.settle import decide
from redrive.errors import IllegalMove
from tests.engine.helpers import CATCHING, LATER, NOW, claim, failure, in_flight, seconds, settled


def test_a_suspended_attempt_is_not_closed():
    """It keeps its number and its failures, has no history line, and its wait ends after the timeout."""
    after = settled(LATER, Suspended(seconds(90)))

    assert (LifecycleEvent.WAIT, State.WAITING, None) == (after.event, after.state, after.closed)
    assert (LATER.attempt, LATER.failures, 0, LATER.snoozes) == (
        after.attempt,
        after.failures,
        after.crashes,
        after.snoozes,
    )
    assert NOW + seconds(90) == after.scheduled_at
    assert "waits for an answer from outside, 1m30s at most" == after.note


@pytest.mark.parametrize(
    ("outcome", "event", "state"),
    [
        (Succeeded(b"1"), LifecycleEvent.SUCCEED, State.SUCCEEDED),
        (Failed(failure()), LifecycleEvent.RETRY, State.READY),
        (Failed(in_flight()), LifecycleEvent.RETRY, State.READY),
        (Failed(failure(permanent="no")), LifecycleEvent.DIE, State.DEAD),
        (Cancelled("enough"), LifecycleEvent.CANCEL, State.CANCELLED),
    ],
)
def test_the_end_of_a_wait_is_decided_like_the_end_of_an_attempt(outcome: Outcome, event: LifecycleEvent, state: State):
    """All that differs from the end of a running attempt is where the job comes from."""
    from_waiting = decide(LATER, outcome, NOW, 0.0, state=State.WAITING)

    assert (event, state, State.WAITING) == (from_waiting.event, from_waiting.state, from_waiting.before)
    assert replace(from_waiting, before=State.RUNNING) == settled(LATER, outcome)


@pytest.mark.parametrize("outcome", [Released("shutdown"), Snoozed(seconds(1)), Lost("gone"), Suspended(seconds(1))])
def test_a_waiting_attempt_cannot_be_lost(outcome: Outcome):
    """Waiting attempts cannot be given back, snoozed, lost or suspended again."""
    with pytest.raises(IllegalMove):
        decide(claim(), outcome, NOW, 0.0, state=State.WAITING)


def test_a_catch_that_fails_from_outside_is_tried_again():
    """Handlers and answers from outside are treated alike, as in FTL's retry design."""
    after = decide(CATCHING, Failed(failure()), NOW, 0.0, state=State.WAITING)

    assert (State.READY, "catch") == (after.state, after.closed and after.closed.rule)
