"""Diagrams of state machines, as text and for Mermaid. PURE."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import msgspec

from redrive.engine.machine import MachineDefinition, MachineState
from redrive.policy import format_duration
from redrive.visible import visible


class Edge(msgspec.Struct, frozen=True):
    """A transition in a diagram; the source is None for a start."""

    source: str | None
    target: str
    label: str


def edges(definition: MachineDefinition) -> tuple[Edge, ...]:
    """Return the transitions in the order of the code: of events, with their guards and timeouts, and of failures."""
    return tuple(itertools.chain.from_iterable(_edges(definition, state) for state in definition.states.values()))


def _edges(definition: MachineDefinition, state: MachineState) -> Iterator[Edge]:
    for source in (*((None,) if state.start else ()), *state.after):
        yield Edge(source, state.name, _label(definition, source, state))
    if state.failed_to is not None:
        yield Edge(state.name, state.failed_to, "failed")


def _label(definition: MachineDefinition, source: str | None, state: MachineState) -> str:
    label = state.event if state.guard is None else f"{state.event} [guard]"
    origin = definition.states.get(source) if source is not None else None
    if origin is not None and origin.timeout is not None and origin.timeout.event == state.event:
        return f"{label} after {format_duration(origin.timeout.after)}"
    return label


def counted(name: str, counts: Mapping[str | None, int | str]) -> str:
    """Return the name of a state with the number of instances in it, if there are any."""
    number = counts.get(name, 0)
    return f"{name} ({number})" if number else name


def as_text(definition: MachineDefinition, counts: Mapping[str | None, int | str]) -> str:
    """Return a machine as lines of text, one for each transition, with a line break at the end."""
    rows = [
        (
            counted(edge.source, counts) if edge.source is not None else "(start)",
            edge.label,
            counted(edge.target, counts),
        )
        for edge in edges(definition)
    ]
    left = max((len(row[0]) for row in rows), default=0)
    middle = max((len(row[1]) for row in rows), default=0)
    final = set(definition.final)
    lines = [f"machine {definition.name}"]
    for (source, label, target), edge in zip(rows, edges(definition), strict=True):
        ending = "  (final)" if edge.target in final else ""
        lines.append(f"  {source:<{left}}  -- {label:<{middle}} -->  {target}{ending}")
    return "\n".join([*map(visible, lines), ""])


def as_mermaid(definition: MachineDefinition, counts: Mapping[str | None, int | str]) -> str:
    """Return a machine as a Mermaid ``stateDiagram-v2``, with a line break at the end."""
    return "\n".join(["stateDiagram-v2", *_mermaid(definition, counts), ""])


# States have ids of their own, because a name may contain characters that end it.
def _mermaid(definition: MachineDefinition, counts: Mapping[str | None, int | str]) -> Iterator[str]:
    ids = {name: f"s{place}" for place, name in enumerate(definition.states)}
    for name, short in ids.items():
        yield f'    state "{_plain(counted(name, counts))}" as {short}'
    for edge in edges(definition):
        source = "[*]" if edge.source is None else ids[edge.source]
        yield f"    {source} --> {ids[edge.target]} : {_plain(edge.label)}"
    for name in definition.final:
        yield f"    {ids[name]} --> [*]"


def _plain(text: str) -> str:
    """Return a text without the characters that end a label."""
    return " ".join(visible(text).translate(str.maketrans('":;#', "    ")).split())
