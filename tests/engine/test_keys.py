"""Who holds a unique key, and when."""

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
def test_a_key_is_held_as_the_table_says(until: KeyUntil | None):
    """A key until the start is held while the job is ready, one until the end while it has not ended."""
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
    """A move into a state in which the key is held takes it, one out of such a state drops it."""
    assert expected is key_change(until, before, after)


def test_a_job_that_cannot_have_its_key_back_is_cancelled():
    """A superseded job is cancelled with a note that names the other one; its attempt is closed as it was."""
    retry = settled(claim(), Failed(failure()))
    closed = superseded(retry, "u", 9)

    assert (LifecycleEvent.CANCEL, State.CANCELLED, SUPERSEDED) == (closed.event, closed.state, closed.reason)
    assert ("superseded by job 9, which holds its key 'u'", None) == (closed.note, closed.hold)
    assert (retry.closed, retry.error) == (closed.closed, closed.error)
