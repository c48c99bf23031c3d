"""Diagrams of state machines."""

from __future__ import annotations

from datetime import timedelta

from redrive.engine.diagram import as_mermaid, as_text, edges
from redrive.engine.machine import FAILED, MachineDefinition, MachineState, StateTimeout

STATES = (
    MachineState("created", "Created", start=True),
    MachineState(
        "paid",
        "Paid",
        after=("created",),
        guard=lambda event, data: True,
        timeout=StateTimeout(timedelta(days=3), "Expired", b"{}"),
        failed_to="review",
    ),
    MachineState("expired", "Expired", after=("paid",)),
    MachineState("review", FAILED),
)
PAYMENT = MachineDefinition("payment", {state.name: state for state in STATES})


def test_a_text_has_a_line_for_each_transition():
    """Texts contain the transitions with their events, guards and timeouts, the counts, and the final states."""
    assert (
        "machine payment\n"
        "  (start)      -- Created          -->  created (3)\n"
        "  created (3)  -- Paid [guard]     -->  paid\n"
        "  paid         -- failed           -->  review  (final)\n"
        "  paid         -- Expired after 3d -->  expired  (final)\n"
    ) == as_text(PAYMENT, {"created": 3, None: 1})


def test_a_machine_without_states_is_drawn():
    """Machines without states have a title and no line."""
    assert ("machine empty\n", ()) == (
        as_text(MachineDefinition("empty"), {}),
        edges(MachineDefinition("empty")),
    )


def test_a_mermaid_diagram_names_states_by_ids():
    """Mermaid diagrams give each state an id and a label, so that any name can be drawn."""
    odd = MachineDefinition("odd", {'a"b;c': MachineState('a"b;c', "E:1", start=True)})

    assert (
        "stateDiagram-v2\n"
        '    state "created (3)" as s0\n'
        '    state "paid" as s1\n'
        '    state "expired" as s2\n'
        '    state "review" as s3\n'
        "    [*] --> s0 : Created\n"
        "    s0 --> s1 : Paid [guard]\n"
        "    s1 --> s3 : failed\n"
        "    s1 --> s2 : Expired after 3d\n"
        "    s2 --> [*]\n"
        "    s3 --> [*]\n"
    ) == as_mermaid(PAYMENT, {"created": 3})
    assert '    state "a b c" as s0\n    [*] --> s0 : E 1\n' in as_mermaid(odd, {})
