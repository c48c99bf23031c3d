"""THE TABLE: every move there is, every move there is not."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.engine.lifecycle import FINAL, TABLE, LifecycleEvent, State, next_state
from redrive.errors import IllegalMove

MOVES = {
    ("ready", "claim"): "running",
    ("ready", "hasten"): "ready",
    ("ready", "cancel"): "cancelled",
    ("running", "succeed"): "succeeded",
    ("running", "retry"): "ready",
    ("running", "snooze"): "ready",
    ("running", "park"): "ready",
    ("running", "release"): "ready",
    ("running", "lose"): "ready",
    ("running", "set_aside"): "running",
    ("waiting", "set_aside"): "waiting",
    ("running", "die"): "dead",
    ("running", "wait"): "waiting",
    ("running", "cancel"): "cancelled",
    ("waiting", "succeed"): "succeeded",
    ("waiting", "retry"): "ready",
    ("waiting", "die"): "dead",
    ("waiting", "cancel"): "cancelled",
    ("dead", "catch"): "dead",
    ("dead", "skip"): "dead",
    ("dead", "redrive"): "ready",
    ("cancelled", "redrive"): "ready",
}
"""The documented moves, written out once more in plain text."""

BY_OPERATORS = {LifecycleEvent.REDRIVE}
"""Actions of operators, as opposed to events."""


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, LifecycleEvent)), ids=str)
def test_each_pair_is_a_documented_move_or_refused(state: State, event: LifecycleEvent):
    """Every pair of state and event leads to the documented state, or is refused."""
    expected = MOVES.get((state.value, event.value))
    try:
        actual = next_state(state, event).value
    except IllegalMove:
        actual = None

    assert expected == actual


def test_the_table_has_a_row_for_every_state():
    """Every state has a row in the table, so that looking one up never fails."""
    assert set(State) == set(TABLE)


def test_the_table_uses_every_event():
    """Every event moves something: none was left behind by a change."""
    assert set(LifecycleEvent) == {event for moves in TABLE.values() for event in moves}


def test_an_illegal_move_names_the_legal_ones():
    """Refusals name the event, the state, and the possible events."""
    with pytest.raises(IllegalMove) as refusal:
        next_state(State.DEAD, LifecycleEvent.CLAIM)

    assert "a dead job cannot claim; possible from here: catch, skip, redrive" == str(refusal.value)


def test_a_succeeded_job_has_no_transition():
    """Succeeded jobs have no transition, and the message of the refusal states this."""
    with pytest.raises(IllegalMove) as refusal:
        next_state(State.SUCCEEDED, LifecycleEvent.REDRIVE)

    assert "a succeeded job cannot run again; only a dead or cancelled job can: enqueue a new one" == str(refusal.value)


def test_final_states_are_those_where_nothing_happens_by_itself():
    """States are final if and only if only operators can lead out of them."""
    kept = {
        state
        for state, moves in TABLE.items()
        if {event for event, target in moves.items() if target is not state} <= BY_OPERATORS
    }

    assert kept == FINAL


@given(st.lists(st.sampled_from(LifecycleEvent), max_size=40))
def test_a_final_state_is_left_only_by_an_operator(events: list[LifecycleEvent]):
    """However events fall, a final state is left by an operator's event only, and a succeeded job never moves again."""
    state = State.READY
    for event in events:
        before = state
        try:
            state = next_state(state, event)
        except IllegalMove:
            continue
        assert before is state or before not in FINAL or event in BY_OPERATORS
        assert before is not State.SUCCEEDED


@given(st.data())
def test_every_reachable_state_can_end(data: st.DataObject):
    """From wherever a walk over the table has come, a final state is at most two moves away."""
    state = State.READY
    for _ in range(data.draw(st.integers(0, 20))):
        if TABLE[state]:
            state = TABLE[state][data.draw(st.sampled_from(list(TABLE[state])))]
    near = {state, *TABLE[state].values()}
    reachable = near | {target for each in near for target in TABLE[each].values()}

    assert reachable & FINAL
