"""State machines: definitions, and the choice of a transition."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.engine.machine import (
    FAILED,
    Entered,
    FailedTransition,
    Ignored,
    MachineDefinition,
    MachineState,
    Move,
    StateTimeout,
    entered,
    step,
)
from redrive.errors import MachineDefinitionError, NoTransition

DAY = timedelta(days=1)


def machine(*states: MachineState, name: str = "payment") -> MachineDefinition:
    """Return a machine of these states."""
    return MachineDefinition(name, {state.name: state for state in states})


START = MachineState("created", "Created", start=True)
PAID = MachineState("paid", "Paid", after=("created",), ignore=frozenset({"Paid"}))
DONE = MachineState("completed", "Completed", after=("paid",))
PAYMENT = machine(START, PAID, DONE)


def state(name: str, event: str, *after: str, **changes: Any) -> MachineState:
    """Return a state."""
    return MachineState(name, event, after=after, **changes)


# ---------------------------------------------------------------------------------------------------------------- step


def test_the_state_and_the_event_choose_the_transition():
    """Events lead to the state that comes after the present one and takes their type."""
    assert [Move(START), Move(PAID), Move(DONE)] == [
        step(PAYMENT, None, "Created", None, None),
        step(PAYMENT, "created", "Paid", None, None),
        step(PAYMENT, "paid", "Completed", None, None),
    ]


def test_an_event_without_a_transition_names_the_candidates():
    """Results without a transition have the state, the type and the states that could follow."""
    found = step(PAYMENT, "created", "Completed", None, None)

    assert isinstance(found, NoTransition)
    assert "no transition found from state created for type Completed, candidates are paid (on Paid)" == str(found)
    assert ("created", "Completed", ("paid",)) == (found.state, found.event_type, found.candidates)


@pytest.mark.parametrize(
    ("present", "text"),
    [
        (None, "from state (new) for type Noise, candidates are created (on Created)"),
        ("completed", "from state completed for type Noise, candidates are none"),
        ("gone", "from state gone for type Noise, candidates are none"),
    ],
)
def test_every_state_has_candidates(present: str | None, text: str):
    """New instances, final states and states that the code does not have are named, too."""
    assert text in str(step(PAYMENT, present, "Noise", None, None))


def test_a_state_may_ignore_events():
    """Ignored types of events have no transition and are no error."""
    assert Ignored() == step(PAYMENT, "paid", "Paid", None, None)


def test_a_guard_decides_by_the_event_and_the_data():
    """Guards see the event and the data; the reason names a guard that is false."""
    definition = machine(START, state("large", "Paid", "created", guard=lambda event, data: event > data))

    assert isinstance(step(definition, "created", "Paid", 5, 4), Move)
    assert "the guard of large is false" in str(step(definition, "created", "Paid", 4, 4))


def test_guards_choose_between_two_states():
    """Two states with guards may follow by one type of event; two true guards are an error that names both."""
    definition = machine(
        START,
        state("small", "Paid", "created", guard=lambda event, _: event < 10),
        state("large", "Paid", "created", guard=lambda event, _: event > 5),
    )
    definition.check()

    assert ["small", "large"] == [getattr(step(definition, "created", "Paid", n, None), "to").name for n in (1, 20)]  # noqa: B009
    with pytest.raises(MachineDefinitionError, match="from 'created' the event Paid leads to 'small' and to 'large'"):
        step(definition, "created", "Paid", 7, None)


def test_the_error_of_a_guard_is_raised():
    """Errors of guards reach the caller."""
    definition = machine(START, state("paid", "Paid", "created", guard=lambda event, _: 1 / event))

    with pytest.raises(ZeroDivisionError):
        step(definition, "created", "Paid", 0, None)


FAILURE = FailedTransition("payment", "a", "created", "paid", "Paid", "no", 7)


def test_a_failure_leads_to_the_state_that_the_failed_one_names():
    """Failures lead to the state of `failed_to`, from any state, and nowhere without one."""
    review = MachineState("review", FAILED)
    definition = machine(START, replace_state(PAID, failed_to="review"), review)

    assert Move(review) == step(definition, "created", FAILED, FAILURE, None)
    for other in (replace(FAILURE, to_state="created"), replace(FAILURE, to_state="gone")):
        assert isinstance(step(definition, "created", FAILED, other, None), NoTransition)
    broken = machine(START, replace_state(PAID, failed_to="gone"))
    assert isinstance(step(broken, "created", FAILED, FAILURE, None), NoTransition)


def replace_state(given: MachineState, **changes: Any) -> MachineState:
    """Return a state with changes."""
    fields = {name: getattr(given, name) for name in given.__slots__}
    return MachineState(**fields | changes)


# ---------------------------------------------------------------------------------------------------------- definition


def test_a_complete_definition_has_no_warnings():
    """Definitions in which each state can be entered and left for a final one have no warnings."""
    assert ((), ("completed",)) == (PAYMENT.check(), PAYMENT.final)


def test_final_states_have_no_outgoing_transition():
    """Final states are those that no state comes after, a lonely start included."""
    assert ("created",) == machine(START).final
    assert [False, False, True] == [PAYMENT.is_final(name) for name in PAYMENT.states]


def test_a_machine_needs_a_start():
    """Machines without a start state are refused."""
    with pytest.raises(MachineDefinitionError, match="machine 'payment' has no start states"):
        machine(DONE).check()


@pytest.mark.parametrize(
    "other",
    [state("other", "Paid", "created"), state("other", "Paid", "created", guard=lambda event, data: True)],
)
def test_an_ambiguous_transition_is_refused(other: MachineState):
    """Two states that follow one state by one type of event need guards; the error names both."""
    with pytest.raises(MachineDefinitionError, match="from 'created' the event Paid leads to 'paid' and to 'other'"):
        machine(START, PAID, other).check_added(other)


def test_two_starts_of_one_event_are_ambiguous():
    """Two start states need different types of events."""
    other = MachineState("other", "Created", start=True)

    with pytest.raises(MachineDefinitionError, match="from the start the event Created leads to 'created'"):
        machine(START, other).check_added(other)


def test_distinct_transitions_are_accepted():
    """States that follow by other types, from other states, or by guards are not ambiguous."""
    added = state("more", "Paid", "paid")

    machine(START, PAID, added).check_added(added)
    PAYMENT.check_added(PAID)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            state("paid", "Paid", "nowhere"),
            "'paid' has after='nowhere', but there is no state 'nowhere'; known",
        ),
        (state("paid", "Paid", "created", failed_to="gone"), "has failed_to='gone', but there is no state 'gone'"),
        (
            state("paid", "Paid", "created", failed_to="created"),
            "a failure of 'paid' leads to 'created', which takes Created: annotate its event with redrive.",
        ),
        (
            state("paid", "Paid", "created", timeout=StateTimeout(DAY, "Expired", b"{}")),
            "the timeout of 'paid' sends Expired, but no state that comes after it takes that; possible events: none",
        ),
    ],
)
def test_an_incomplete_definition_is_refused(wrong: MachineState, text: str):
    """States that name unknown states, or events that nothing takes, are refused."""
    with pytest.raises(MachineDefinitionError) as refused:
        machine(START, wrong).check()
    assert text in str(refused.value)


def test_a_timeout_leads_to_a_state_after_its_own():
    """Timeouts are accepted if a following state takes their events."""
    waiting = replace_state(PAID, timeout=StateTimeout(DAY, "Completed", b"{}"))

    assert () == machine(START, waiting, DONE).check()


def test_a_state_that_is_never_entered_is_warned_of():
    """Warnings name the states that no event leads to from a start; the state of a failure is entered."""
    lost, found = state("lost", "Lost", "lost"), state("found", "Found", "review")
    done, review = state("done", "Done", "created", failed_to="review"), MachineState("review", FAILED)
    definition = machine(START, done, review, lost, found)

    assert (
        "machine 'payment': no event leads from a start to 'lost'",
        "machine 'payment': no final state can be reached from 'lost'",
    ) == definition.check()


def test_an_endless_machine_is_warned_of():
    """Warnings name the states from which no final state can be reached."""
    definition = machine(replace_state(START, after=("paid",)), PAID)

    assert ("machine 'payment': no final state can be reached from 'created', 'paid'",) == definition.check()


def test_undefined_states_are_found():
    """Stored states that the code does not have are found."""
    assert ("gone",) == PAYMENT.undefined(["created", "gone"])


def test_the_properties_of_a_state_are_stored_with_a_move():
    """Moves store whether the state is final, its timeout, and the version of the definition."""
    waiting = replace_state(PAID, timeout=StateTimeout(DAY, "Completed", b"{}"))
    definition = machine(START, waiting, DONE)

    assert [Entered(True, "v"), Entered(False, "v", DAY, "Completed", b"{}"), Entered(True, "v")] == [
        entered(definition, name, "v") for name in ("completed", "paid", "gone")
    ]


# --------------------------------------------------------------------------------------------------------------- model

NAMES = st.sampled_from("abcd")


@st.composite
def definitions(draw: st.DrawFn) -> MachineDefinition:
    """Draw machines in which the type of an event determines the state that it leads to."""
    chosen = draw(st.sets(NAMES, min_size=1))
    states = [
        MachineState(name, name.upper(), start=draw(st.booleans()), after=tuple(sorted(draw(st.sets(NAMES)) & chosen)))
        for name in sorted(chosen)
    ]
    return machine(*states)


@given(definitions(), st.lists(NAMES))
def test_a_walk_follows_the_transitions(definition: MachineDefinition, events: list[str]):
    """Walks move exactly along the declared transitions, and end where none is left."""
    present: str | None = None
    for event in events:
        found = step(definition, present, event.upper(), None, None)
        declared = definition.states.get(event)
        possible = declared is not None and (declared.start if present is None else present in declared.after)
        assert possible == isinstance(found, Move)
        if isinstance(found, Move):
            present = found.to.name
        if present is not None and definition.is_final(present):
            assert not any(present in each.after for each in definition.states.values())
