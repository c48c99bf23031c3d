"""State machines and their instances as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from redrive.cli.screen import Grid, say, say_lines, utc
from redrive.cli.text.jobs import as_json
from redrive.engine.explain import span
from redrive.engine.machine import InstanceStatus
from redrive.operate.instance import InstancePage, MoveLine
from redrive.operate.machines import InstanceLine, MachineList, MachinePage, StateLine

# Events of an instance, and instances in trouble, that are shown.
SHOWN = 20


def machines(view: MachineList, more: Mapping[tuple[str, str | None], tuple[int, int]] | None) -> None:
    """Print a row for each state of each machine.

    Args:
        view: the machines.
        more: for each state of a machine, the instances that run, and those with a transition; None if only a database
            at hand has them, because they are counted over all instances.
    """
    counted = () if more is None else ("running", "busy")
    table = Grid("machine", "state", "instances", *counted, "failed", "oldest")
    for machine in view.items:
        for state in machine.states:
            oldest = "-" if state.oldest_seconds is None else span(timedelta(seconds=state.oldest_seconds))
            numbers = () if more is None else map(str, more.get((machine.name, state.name), (0, 0)))
            table.add(machine.name, _shown(state), str(state.instances), *numbers, str(state.failed), oldest)
    table.show()


def _shown(state: StateLine) -> str:
    if state.name is None:
        return "(new)"
    return state.name if state.known else f"{state.name} (stranded)"


def instances(view: MachinePage) -> None:
    """Print a list of instances."""
    table = Grid("key", "state", "status", "since", "transition", wide=("transition",))
    for each in view.instances:
        table.add(each.key, each.state or "(new)", each.status, span(view.at - each.entered_at), _transition(each))
    table.show()


def machine(view: MachinePage, stranded: Iterable[str]) -> None:
    """Print a machine: its transitions with the numbers of instances, and the instances that have failed."""
    if view.drawing is None:
        say(f"machine {view.machine.name}: only the database has it; this code does not declare it")
    else:
        say_lines(view.drawing)
    for each in stranded:
        say(f"stranded: {each}", err=True)
    for failed in view.instances:
        say(f"failed: {failed.key}: {_transition(failed)}")


def instance(view: InstancePage) -> None:
    """Print an instance with its transition and its history."""
    found = view.instance
    place = f"{view.machine}/{found.key}"
    say(f"  {found.state or '(new)'}, {found.status}, since {span(view.at - found.entered_at)}", head=place)
    say(f"created {utc(view.created_at)}, {found.moves} move{'' if found.moves == 1 else 's'}")
    waits = _waits_for(view)
    if waits:
        say(f"waits for: {waits}")
    if view.timeout_at is not None:
        say(f"timeout: {view.timeout_event} at {utc(view.timeout_at)}{_left(view, view.timeout_at - view.at)}")
    if found.job_id is not None:
        _say_transition(view)
    if view.data is not None:
        say(f"data: {as_json(view.data)}")
    for each in view.history:
        say(f"  {_described(each)}", head=utc(each.sent_at))
    if len(view.history) == SHOWN:
        say(f"... the latest {SHOWN} events", err=True)


def headline(view: InstancePage) -> None:
    """Print the state of an instance in a line."""
    found = view.instance
    transition = "" if found.job_id is None else f"; {_transition(found)}"
    say(f"{view.machine}/{found.key}: {found.state or '(new)'}, {found.status}{transition}")


def _say_transition(view: InstancePage) -> None:
    why = "its job was deleted: skip it, or reset the instance" if view.transition is None else view.transition.why
    say(f"transition: {_transition(view.instance)}: {why}")
    if view.instance.status is InstanceStatus.FAILED:
        say("it goes on by redrive machines retry (unless it was caught), skip or reset")
    elif not view.instance.error and view.last_error:
        say(f"last error: {view.last_error}")


def _transition(instance: InstanceLine) -> str:
    """Return the transition of an instance that runs, waits or has failed."""
    if instance.job_id is None:
        return "-"
    failed = f": {instance.error}" if instance.error else ""
    return f"to {instance.to_state} on {instance.event}, job {instance.job_id}{failed}"


def _waits_for(view: InstancePage) -> str:
    """Return the classes of events that an idle instance takes."""
    found = view.instance
    if not view.declared or found.job_id is not None:
        return ""
    if found.state is not None and found.state not in view.states:
        return "nothing: the code does not have its state; move it by redrive machines migrate"
    return ", ".join(f"{event} (to {state})" for event, state in view.waits_for)


def _left(view: InstancePage, left: timedelta) -> str:
    if view.instance.job_id is not None:
        return ", waits for the transition"
    return f", in {span(left)}" if left > timedelta(0) else ", due"


def _described(move: MoveLine) -> str:
    moved = f"  {move.from_state or '(new)'} -> {move.to_state}" if move.to_state else ""
    if not moved and move.from_state is not None:
        moved = f"  in {move.from_state}"
    parts = {
        f"on {move.event}": move.event,
        f"by {move.source}": move.source,
        f"key {move.event_key}": move.event_key,
        f"actor {move.actor}": move.actor,
        f"{move.attempts} attempts": move.attempts > 1,
        f"error: {move.error}": move.error,
    }
    return ", ".join([f"{move.status}{moved}", *(text for text, given in parts.items() if given)])
