"""Holding, taking and dropping unique keys."""

from __future__ import annotations

import pytest

from redrive.engine.keys import SUPERSEDED, KeyChange, holds, key_change, superseded
from redrive.engine.lifecycle import LifecycleEvent, State
from redrive.engine.outcome import Failed
from redrive.engine.records import KeyUntil
from tests.engine.helpers import claim, failure, settled

HELD = {
    None: set(),
    KeyUntil.START: {State.READY},
    KeyUntil.END: {State.READY, State.RUNNING, State.WAITING},
}


@pytest.mark.parametrize("until", HELD)
def test_a_key_is_held_according_to_the_table(until: KeyUntil | None):
    """Keys until the start are held while the job is ready, keys until the end while it has not ended."""
    assert HELD[until] == {state for state in State if holds(until, state)}


@pytest.mark.parametrize(
    ("until", "before", "after", "expected"),
    [
        (None, State.RUNNING, State.READY, KeyChange.KEEP),
        (KeyUntil.START, State.READY, State.RUNNING, KeyChange.DROP),
        (KeyUntil.START, State.RUNNING, State.READY, KeyChange.TAKE),
        (KeyUntil.START, State.RUNNING, State.DEAD, KeyChange.KEEP),
        (KeyUntil.START, State.READY, State.CANCELLED, KeyChange.DROP),
        (KeyUntil.END, State.RUNNING, State.READY, KeyChange.KEEP),
        (KeyUntil.END, State.RUNNING, State.WAITING, KeyChange.KEEP),
        (KeyUntil.END, State.WAITING, State.SUCCEEDED, KeyChange.DROP),
        (KeyUntil.END, State.DEAD, State.READY, KeyChange.TAKE),
    ],
)
def test_a_move_takes_or_drops_the_key(until: KeyUntil | None, before: State, after: State, expected: KeyChange):
    """Transitions into a state in which the key is held take it, those out of such a state drop it."""
    assert expected is key_change(until, before, after)


def test_a_job_that_cannot_have_its_key_back_is_cancelled():
    """Superseded jobs are cancelled with a note that names the other job; their attempt is closed unchanged."""
    retry = settled(claim(), Failed(failure()))
    closed = superseded(retry, "u", 9)

    assert (LifecycleEvent.CANCEL, State.CANCELLED, SUPERSEDED) == (closed.event, closed.state, closed.reason)
    assert ("superseded by job 9, which holds its key 'u'", None) == (closed.note, closed.hold)
    assert (retry.closed, retry.error) == (closed.closed, closed.error)
