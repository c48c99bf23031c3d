"""``redrive machines``: show state machines and their instances, act on them, and draw them.

The commands read the instances of the database and the machines of the code: one without instances is listed, and so is
one that only another version of the code has.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from redrive.app.app import App
from redrive.cli.loading import Actor, AsJson, Target, load_app, load_existing
from redrive.cli.local import Desk, ask, check
from redrive.cli.local import show as show_view
from redrive.cli.screen import print_document, say, say_lines, write_drawing
from redrive.cli.text import machines as text
from redrive.engine import diagram as drawing
from redrive.engine.machine import InstanceStatus
from redrive.errors import IllegalMove, InstanceNotFound, MachineDefinitionError
from redrive.operate.machines import MachinePage
from redrive.stores.operations.machines import manage
from redrive.stores.operations.machines.manage import InstanceCount
from redrive.stores.urls import redacted

machines: typer.Typer = typer.Typer(
    help="Look at state machines and their instances, and act on them.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="MACHINE", help="Name of the machine.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="Key of the instance.")]
State = Annotated[str, typer.Argument(metavar="STATE", help="Name of a state.")]
OrKey = Annotated[str | None, typer.Argument(metavar="[KEY]", help="Key of an instance.")]


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
    if machine is None:
        show_view(app, "machines list", lambda view: text.machines(view, _busy(app)), json=json)
        return
    check(app, _check_known, machine)
    if state is not None:
        check(app, _check_state, machine, state)
    view: MachinePage = show_view(
        app,
        "machines list",
        text.instances,
        json=json,
        machine=machine,
        state=state,
        status=status,
        overdue=int(overdue) or None,
        after=after or None,
        limit=limit,
    )
    if not json and len(view.instances) == limit:
        after = shlex.quote(view.instances[-1].key)
        say(f"... the first {limit}; --after {after} or --limit shows more", err=True)


def _busy(app: Desk) -> Mapping[tuple[str, str | None], tuple[int, int]] | None:
    """Return the instances that run, and those with a transition, of each state; those that have failed are neither."""
    if not isinstance(app, str):
        return None
    found: dict[tuple[str, str | None], tuple[int, int]] = {}
    for each in load_existing(app).machines.counts():
        running, busy = found.get((each.machine, each.state), (0, 0))
        is_running, is_failed = each.status is InstanceStatus.RUNNING, each.status is InstanceStatus.FAILED
        busy += each.busy - each.number * is_failed
        found[each.machine, each.state] = running + each.number * is_running, busy
    return found


@machines.command()
def show(app: Target, machine: Name, key: OrKey = None, *, json: AsJson = False) -> None:
    """Show a machine with its transitions and counts; or an instance with its transition and its history."""
    check(app, _check_known, machine)
    if key is not None:
        place = {"machine": machine, "key": key, "limit": text.SHOWN}
        show_view(app, "machines show", text.instance, json=json, **place)
        return
    # The failed ones are those that a text shows.
    only = {} if json else {"status": InstanceStatus.FAILED, "limit": text.SHOWN}
    show_view(
        app, "machines show", lambda view: text.machine(view, _stranded(app, view)), json=json, machine=machine, **only
    )


def _stranded(app: Desk, view: MachinePage) -> Iterable[str]:
    """Return what the code does not have; a database at hand also shows timeouts and events of unknown classes."""
    if not isinstance(app, str):
        return view.stranded
    loaded = load_existing(app)
    declared = loaded.machines.declared.get(view.machine.name)
    rows = () if declared is None else loaded.store.run(manage.stranded(declared.known))
    return [f"{row.text}, which the code does not have: {row.advice(app)}" for row in rows]


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
    check(app, _check_known, machine)
    place = {"machine": machine, "key": key}
    try:
        ask(app, "machines retry", actor=actor, **place)
    except IllegalMove as error:
        if ask(app, "machines show", **place).instance.status is not InstanceStatus.FAILED:
            raise
        # Such as a transition that its catch task has dealt with.
        raise IllegalMove(f"{error}; redrive machines skip or reset lets {key!r} go on") from error
    text.headline(ask(app, "machines show", **place))


@machines.command()
def skip(app: Target, machine: Name, key: Key, *, actor: Actor = None) -> None:
    """Drop the event of a failed transition; the instance takes events in its state again."""
    check(app, _check_known, machine)
    ask(app, "machines skip", actor=actor, machine=machine, key=key)
    text.headline(ask(app, "machines show", machine=machine, key=key))


@machines.command()
def reset(app: Target, machine: Name, key: Key, state: State, *, actor: Actor = None) -> None:
    """Put an instance into a state; no handler runs, and a failed transition is dropped."""
    ask(app, "machines reset", actor=actor, machine=machine, key=key, to=state)
    text.headline(ask(app, "machines show", machine=machine, key=key))


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
    declared = app.machines.declared.get(machine)
    known = [] if declared is None else list(declared.definition.states)
    own = {each.state for each in app.machines.machine(machine).counts()}
    known += sorted(each for each in own if each is not None and each not in known)
    if state not in known:
        listed = ", ".join(known) or "none"
        raise MachineDefinitionError(f"machine {machine!r} has no state {state!r}; known states: {listed}")


def _numbers(counts: tuple[InstanceCount, ...]) -> dict[str | None, int]:
    found: dict[str | None, int] = {}
    for each in counts:
        found[each.state] = found.get(each.state, 0) + each.number
    return found
