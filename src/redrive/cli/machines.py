"""``redrive machines``: show state machines and their instances, act on them, and draw them.

The commands read the instances of the database and the machines of the code: one without instances is listed, and so is
one that only another version of the code has.
"""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from redrive.app.app import App
from redrive.cli.loading import Actor, AsJson, Target, load_app, load_existing
from redrive.cli.screen import Grid, document, print_document, say, say_lines, utc, write_drawing
from redrive.engine import diagram as drawing
from redrive.engine.explain import span
from redrive.engine.machine import InstanceRecord, InstanceStatus, MoveRecord
from redrive.errors import IllegalMove, InstanceNotFound, JobNotFound, MachineDefinitionError
from redrive.stores.operations import clock
from redrive.stores.operations.machines import manage
from redrive.stores.operations.machines.manage import InstanceCount
from redrive.stores.urls import redacted

machines = typer.Typer(help="Look at state machines and their instances, and act on them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="MACHINE", help="Name of the machine.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="Key of the instance.")]
State = Annotated[str, typer.Argument(metavar="STATE", help="Name of a state.")]
OrKey = Annotated[str | None, typer.Argument(metavar="[KEY]", help="Key of an instance.")]

# Events of an instance, and instances in trouble, that are shown.
SHOWN = 20


@machines.command("list")
def list_(
    app: Target,
    machine: Annotated[str | None, typer.Argument(metavar="[MACHINE]", help="List its instances.")] = None,
    *,
    state: Annotated[str | None, typer.Option(help="Only instances in this state.")] = None,
    status: Annotated[InstanceStatus | None, typer.Option(help="Only instances with this status.")] = None,
    overdue: Annotated[
        bool, typer.Option("--overdue", help="Only instances beyond the within= of their state.")
    ] = False,
    after: Annotated[str, typer.Option(help="Only larger keys, to go on behind a page.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    json: AsJson = False,
) -> None:
    """List the machines with the number of instances in each state; or the instances of one machine."""
    loaded = load_existing(app)
    if machine is None:
        _list_machines(loaded, json=json)
        return
    _check_known(loaded, machine)
    if state is not None:
        _check_state(loaded, machine, state)
    handle = loaded.machines.machine(machine)
    if overdue:
        found = handle.overdue(limit=limit)
    else:
        found = handle.select(state=state, status=status, after=after, limit=limit)
    if json:
        for each in found:
            print_document(_plain(each))
        return
    at = _now(loaded)
    table = Grid("key", "state", "status", "since", "transition", wide=("transition",))
    for each in found:
        table.add(each.key, each.state or "(new)", each.status, span(at - each.entered_at), _transition(each))
    table.show()
    if len(found) == limit:
        say(f"... the first {limit}; --after {shlex.quote(found[-1].key)} or --limit shows more", err=True)


def _list_machines(app: App, *, json: bool) -> None:
    counts = app.machines.counts()
    names = sorted({each.machine for each in counts} | set(app.machines.declared))
    if json:
        for name in names:
            own = [each for each in counts if each.machine == name]
            print_document({"machine": name, "declared": name in app.machines.declared, "states": own})
        return
    table = Grid("machine", "state", "instances", "running", "busy", "failed", "oldest")
    at = _now(app)
    for name in names:
        for state in _states(app, name, counts):
            rows = [each for each in counts if each.machine == name and each.state == state]
            failed = sum(each.number for each in rows if each.status is InstanceStatus.FAILED)
            running = sum(each.number for each in rows if each.status is InstanceStatus.RUNNING)
            busy = sum(each.busy for each in rows) - failed
            oldest = span(at - min(each.since for each in rows)) if rows else "-"
            number = sum(each.number for each in rows)
            shown = _shown(app, name, state)
            table.add(name, shown, str(number), str(running), str(busy), str(failed), oldest)
    table.show()


def _states(app: App, machine: str, counts: tuple[InstanceCount, ...]) -> list[str | None]:
    """Return the states of the code in their order, and then those that only the database has."""
    own = {each.state for each in counts if each.machine == machine}
    known: list[str | None] = [None] if None in own else []
    if machine in app.machines.declared:
        known += app.machines.declared[machine].definition.states
    return [*known, *sorted(state for state in own if state is not None and state not in known)]


def _shown(app: App, machine: str, state: str | None) -> str:
    if state is None:
        return "(new)"
    found = app.machines.declared.get(machine)
    return f"{state} (stranded)" if found is not None and state not in found.definition.states else state


@machines.command()
def show(app: Target, machine: Name, key: OrKey = None, *, json: AsJson = False) -> None:
    """Show a machine with its transitions and counts; or an instance with its transition and its history."""
    loaded = load_existing(app)
    _check_known(loaded, machine)
    if key is None:
        _show_machine(loaded, machine, app, json=json)
        return
    handle = loaded.machines.machine(machine)
    instance, history = handle.record(key), handle.history(key, limit=SHOWN)
    if json:
        print_document(_plain(instance) | {"history": [_plain_move(each) for each in history]})
        return
    at = _now(loaded)
    state = instance.state or "(new)"
    say(f"  {state}, {instance.status}, since {span(at - instance.entered_at)}", head=f"{machine}/{key}")
    say(f"created {utc(instance.created_at)}, {instance.moves} move{'' if instance.moves == 1 else 's'}")
    waits = _waits_for(loaded, instance)
    if waits:
        say(f"waits for: {waits}")
    if instance.timeout_at is not None:
        say(f"timeout: {instance.timeout_event} {_when(instance, at)}")
    if instance.job_id is not None:
        _say_transition(loaded, instance, instance.job_id)
    if instance.data is not None:
        say(f"data: {instance.data.decode(errors='replace')}")
    for each in history:
        say(f"  {_described(each)}", head=utc(each.sent_at))
    if len(history) == SHOWN:
        say(f"... the latest {SHOWN} events", err=True)


def _say_transition(app: App, instance: InstanceRecord, job_id: int) -> None:
    say(f"transition: {_transition(instance)}: {_job(app, job_id)}")
    if instance.status is InstanceStatus.FAILED:
        say("it goes on by redrive machines retry (unless it was caught), skip or reset")
    elif not instance.error and (error := _last_error(app, job_id)):
        say(f"last error: {error}")


def _show_machine(app: App, machine: str, name: str, *, json: bool) -> None:
    counts = app.machines.machine(machine).counts()
    if json:
        found = app.machines.declared.get(machine)
        own = [] if found is None else [_plain_edge(each) for each in drawing.edges(found.definition)]
        print_document({"machine": machine, "declared": found is not None, "transitions": own, "states": counts})
        return
    if machine in app.machines.declared:
        say_lines(drawing.as_text(app.machines.declared[machine].definition, _numbers(counts)))
        stranded = app.store.run(manage.stranded(app.machines.declared[machine].known))
    else:
        say(f"machine {machine}: only the database has it; this code does not declare it")
        stranded = ()
    for row in stranded:
        say(f"stranded: {row.text}, which the code does not have: {row.advice(name)}", err=True)
    failed = app.machines.machine(machine).select(status="failed", limit=SHOWN)
    for each in failed:
        say(f"failed: {each.key}: {_transition(each)}")


@machines.command()
def diagram(
    app: Target,
    machine: Name,
    *,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="For Mermaid, which many editors and pages draw.")] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Also draw it into a file, as SVG.", dir_okay=False)
    ] = None,
    counts: Annotated[bool, typer.Option("--counts/--no-counts", help="With the number of instances.")] = True,
) -> None:
    """Draw a machine of the code, with the number of instances in each state."""
    loaded = load_existing(app) if counts else load_app(app)
    definition = loaded.machines.find(machine).definition
    numbers = _numbers(loaded.machines.machine(machine).counts()) if counts else {}
    if svg is not None:
        from redrive.app.machines.drawing import as_svg

        write_drawing(svg, as_svg(definition, numbers), "the machine")
    say_lines((drawing.as_mermaid if mermaid else drawing.as_text)(definition, numbers))


@machines.command()
def retry(app: Target, machine: Name, key: Key, *, actor: Actor = None) -> None:
    """Run a failed transition of an instance once more, or one that waits for a retry now."""
    loaded = load_existing(app)
    _check_known(loaded, machine)
    handle = loaded.machines.machine(machine)
    try:
        handle.retry(key, actor=actor)
    except IllegalMove as error:
        if handle.record(key).status is not InstanceStatus.FAILED:
            raise
        # Such as a transition that its catch task has dealt with.
        raise IllegalMove(f"{error}; redrive machines skip or reset lets {key!r} go on") from error
    _say(handle.record(key))


@machines.command()
def skip(app: Target, machine: Name, key: Key, *, actor: Actor = None) -> None:
    """Drop the event of a failed transition; the instance takes events in its state again."""
    loaded = load_existing(app)
    _check_known(loaded, machine)
    _say(loaded.machines.machine(machine).skip(key, actor=actor))


@machines.command()
def reset(
    app: Target,
    machine: Name,
    key: Key,
    state: State,
    *,
    actor: Actor = None,
) -> None:
    """Put an instance into a state; no handler runs, and a failed transition is dropped."""
    _say(load_existing(app).machines.machine(machine).reset(key, state, actor=actor))


@machines.command()
def delete(app: Target, machine: Name, key: Key, *, actor: Actor = None) -> None:
    """Delete an instance with its history; its jobs stay. Its next event creates it anew."""
    loaded = load_existing(app)
    _check_known(loaded, machine)
    loaded.machines.machine(machine).delete(key, actor=actor)
    say(f"{machine}/{key} is deleted")


@machines.command()
def rearm(app: Target, machine: Name, state: State) -> None:
    """Compute the timeouts of the instances in a state again, by the present code; those with a transition stay."""
    number = load_existing(app).machines.machine(machine).rearm(state)
    say(f"{machine}: the timeout of {number} instance{'' if number == 1 else 's'} in {state} is computed again")


@machines.command()
def migrate(
    app: Target,
    machine: Name,
    moves: Annotated[list[str], typer.Argument(metavar="OLD=NEW...", help="The new state for each old one.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    actor: Actor = None,
    json: AsJson = False,
) -> None:
    """Move the instances of renamed or dropped states, in batches; those with a transition stay."""
    states = dict(map(_pair, moves))
    result = load_existing(app).machines.machine(machine).migrate(states, dry_run=dry_run, actor=actor)
    if json:
        print_document(result)
        return
    for old, number in result.moved.items():
        what = "would be moved" if dry_run else "moved"
        stay = result.busy.get(old, 0)
        rest = f"; {stay} with a transition stay: repeat this later" if stay else ""
        say(f"{old} to {states[old]}: {number} {what}{rest}")
    for state, number in result.stranded.items():
        say(f"stranded: {number} in {state!r}, which the code does not have", err=True)


def _pair(text: str) -> tuple[str, str]:
    old, sign, new = text.partition("=")
    if not sign or not old or not new:
        raise typer.BadParameter(f"{text!r} is not of the form OLD=NEW, for example waiting=offered")
    return old, new


# ------------------------------------------------------------------------------------------------------------- details


def _check_known(app: App, machine: str) -> None:
    """Raise `InstanceNotFound` if neither the code nor the database has a machine."""
    if machine in app.machines.declared or app.machines.machine(machine).select(limit=1):
        return
    known = ", ".join(sorted({*app.machines.declared, *(each.machine for each in app.machines.counts())}))
    message = (
        f"there is no machine {machine!r} in the code or in {redacted(app.url)}; known machines: {known or 'none'}"
    )
    raise InstanceNotFound(message)


def _check_state(app: App, machine: str, state: str) -> None:
    """Raise `MachineDefinitionError` if a machine has a state neither in the code nor in the database."""
    known = [each for each in _states(app, machine, app.machines.machine(machine).counts()) if each is not None]
    if state not in known:
        listed = ", ".join(known) or "none"
        raise MachineDefinitionError(f"machine {machine!r} has no state {state!r}; known states: {listed}")


def _now(app: App) -> datetime:
    return app.store.run(clock.present(app.now()))


def _numbers(counts: tuple[InstanceCount, ...]) -> dict[str | None, int]:
    found: dict[str | None, int] = {}
    for each in counts:
        found[each.state] = found.get(each.state, 0) + each.number
    return found


def _say(instance: InstanceRecord) -> None:
    where = f"{instance.machine}/{instance.key}"
    say(f"{where}: {instance.state or '(new)'}, {instance.status}{_behind(_transition(instance))}")


def _behind(text: str) -> str:
    return f"; {text}" if text != "-" else ""


def _transition(instance: InstanceRecord) -> str:
    """Return the transition of an instance that runs, waits or has failed."""
    if instance.job_id is None:
        return "-"
    failed = f": {instance.error}" if instance.error else ""
    return f"to {instance.to_state} on {instance.event}, job {instance.job_id}{failed}"


def _job(app: App, number: int) -> str:
    """Return why the job of a transition is not running."""
    try:
        return app.job(number).refresh().why
    except JobNotFound:
        return "its job was deleted: skip it, or reset the instance"


def _last_error(app: App, number: int) -> str | None:
    """Return the error of the last attempt of a transition that waits for a retry."""
    attempts = app.job(number).attempts
    return attempts[-1].error if attempts else None


def _waits_for(app: App, instance: InstanceRecord) -> str:
    """Return the classes of events that an idle instance takes."""
    machine = app.machines.declared.get(instance.machine)
    if machine is None or instance.busy:
        return ""
    if instance.state is not None and instance.state not in machine.definition.states:
        return "nothing: the code does not have its state; move it by redrive machines migrate"
    return ", ".join(f"{each.event} (to {each.name})" for each in machine.definition.following(instance.state))


def _when(instance: InstanceRecord, at: datetime) -> str:
    assert instance.timeout_at is not None  # the caller has checked
    if instance.busy:
        return f"at {utc(instance.timeout_at)}, waits for the transition"
    left: timedelta = instance.timeout_at - at
    return f"at {utc(instance.timeout_at)}" + (f", in {span(left)}" if left > timedelta(0) else ", due")


def _described(move: MoveRecord) -> str:
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


def _plain(instance: InstanceRecord) -> dict[str, object]:
    plain: dict[str, object] = {name: getattr(instance, name) for name in instance.__struct_fields__}
    return plain | {"data": document(instance.data), "timeout_payload": document(instance.timeout_payload)}


def _plain_move(move: MoveRecord) -> dict[str, object]:
    plain: dict[str, object] = {name: getattr(move, name) for name in move.__struct_fields__}
    return plain | {"payload": document(move.payload)}


def _plain_edge(edge: drawing.Edge) -> dict[str, object]:
    return {"from": edge.source, "to": edge.target, "on": edge.label}
