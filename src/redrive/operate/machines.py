"""State machines with the number of instances in each state, and the instances of one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import urlencode

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.commands import command
from redrive.engine.diagram import as_text, edges
from redrive.engine.machine import InstanceRecord, InstanceStatus
from redrive.engine.records import NEWEST, Count
from redrive.operate.charts import states
from redrive.operate.charts.states import Arrow, Box
from redrive.operate.charts.svg import Picture
from redrive.operate.exchange import Named, Page, Refusal, Request, Site
from redrive.operate.shown import Shown
from redrive.stores.operations import clock
from redrive.stores.operations import jobs as operations
from redrive.stores.operations.jobs import NO_DOCUMENTS, Documents
from redrive.stores.operations.machines import manage
from redrive.stores.operations.machines.manage import EXACT, InstancesFound, StateCount

#: Instances on a page.
SHOWN: Final = 50

#: Instances that are read for a page; a filter that few match is searched further by the next page.
BUDGET: Final = 20_000


class InstancesQuery(Named, frozen=True, gc=False):
    """The parameters of the list of instances.

    Attributes:
        state: only instances in this state of the machine.
        overdue: 1 for instances beyond the ``within=`` of their state only.
    """

    state: str | None = None
    status: InstanceStatus | None = None
    overdue: Annotated[int, msgspec.Meta(ge=0, le=1)] | None = None


class StateLine(msgspec.Struct, frozen=True, gc=False):
    """A state of a machine.

    Attributes:
        name: None for instances before the end of their first transition.
        known: False if the code of this process does not have it, though it has the machine.
        final: True if no state comes after it.
        oldest_seconds: the time since which the first instance is in it.
    """

    name: str | None
    known: bool
    final: bool
    instances: Count
    failed: Count
    oldest_seconds: float | None


class MachineLine(msgspec.Struct, frozen=True, gc=False):
    """A machine.

    Attributes:
        declared: True if the code of this process has it.
    """

    name: str
    declared: bool
    states: tuple[StateLine, ...]


class MachineList(msgspec.Struct, frozen=True, gc=False):
    """All machines, of the code and of the database."""

    at: datetime
    items: tuple[MachineLine, ...]


class Transition(msgspec.Struct, frozen=True, gc=False):
    """A transition of the code; the source is None for a start."""

    source: str | None
    target: str
    event: str


class InstanceLine(msgspec.Struct, frozen=True, gc=False):
    """An instance.

    Attributes:
        state: None before the end of its first transition.
        to_state: the state to which a transition runs, waits or has failed.
        event: the type of the event of that transition.
        job_id: the job of that transition.
        error: of its failed transition.
    """

    key: str
    state: str | None
    status: InstanceStatus
    entered_at: datetime
    moves: int
    to_state: str | None
    event: str | None
    job_id: str | None
    error: str | None


class MachinePage(msgspec.Struct, frozen=True, gc=False):
    """A machine and a page of its instances.

    Attributes:
        drawing: its transitions as lines of text; None if the code does not have the machine.
        transitions: of the code.
        stranded: the instances in states that the code does not have, with advice.
        state: the filters; None if they are not given.
        after: the parameter ``after`` of the next page; None on the last page.
        searched: the number of instances that were read, if larger keys have not been searched.
    """

    at: datetime
    machine: MachineLine
    drawing: str | None
    transitions: tuple[Transition, ...]
    stranded: tuple[str, ...]
    state: str | None
    status: InstanceStatus | None
    instances: tuple[InstanceLine, ...]
    after: str | None
    searched: int | None

    def picture(self, place: str) -> Picture:
        """Draw the states with their numbers, and the transitions; ``place`` is the address of the page."""
        boxes = [_box(each, place) for each in self.machine.states if each.name is not None]
        return states.draw(boxes, [Arrow(each.source, each.target, each.event) for each in self.transitions])


def _box(each: StateLine, place: str) -> Box:
    failed = f", {each.failed} failed" if each.failed.value else ""
    where = {"state": each.name or ""} | ({"status": "failed"} if each.failed.value else {})
    one = "" if each.instances.value == 1 and not each.instances.capped else "s"
    return Box(
        name=each.name or "",
        words=f"{each.instances} instance{one}{failed}" if each.known else f"{each.instances} stranded",
        is_final=each.final,
        is_stuck=bool(each.failed.value) or not each.known,
        path=f"{place}?{urlencode(where)}#instances",
    )


def machine_list(site: Site, _: Request) -> Procedure[Page]:
    """List the machines."""
    counts: tuple[StateCount, ...] = yield manage.by_state()
    at: datetime = yield clock.present(site.app.now())
    names = sorted({each.machine for each in counts} | set(site.app.machines.declared))
    items = tuple(_machine(site, name, [each for each in counts if each.machine == name], at) for name in names)
    return Page(f"{len(items)} machines", MachineList(at, items))


def machine(site: Site, request: Request) -> Procedure[Page]:
    """Show one machine, and a page of its instances."""
    name, after = request.places["machine"], request.query.get("after", "")
    state, status = request.text("state"), request.choice("status", InstanceStatus)
    counts: tuple[StateCount, ...] = yield manage.by_state(name)
    declared = site.app.machines.declared.get(name)
    if declared is None and not counts:
        known = ", ".join(sorted(site.app.machines.declared)) or "none"
        raise Refusal(HTTPStatus.NOT_FOUND, f"there is no machine {name!r} in the code or in the database; {known}")
    at: datetime = yield clock.present(site.app.now())
    limit = request.limit(SHOWN)
    if request.number("overdue", 0, most=1):
        found = InstancesFound((yield from site.app.machines.machine(name).late(limit)), None)
    else:
        found = yield manage.search(
            name, state=state, status=status, after=after, limit=limit + 1, budget=BUDGET if request.via else NEWEST
        )
    shown, is_full = found.instances[:limit], len(found.instances) > limit
    documents: dict[int | None, Documents] = yield operations.documents(
        {each.job_id: None for each in shown if each.job_id is not None}
    )
    line = _machine(site, name, counts, at)
    data = MachinePage(
        at=at,
        machine=line,
        drawing=None if declared is None else as_text(declared.definition, _numbers(counts)),
        transitions=_transitions(site, name),
        stranded=_stranded(site, line),
        state=state,
        status=status,
        instances=tuple(
            instance_line(
                each, Shown.of(site.payloads, each.data, repeated=documents.get(each.job_id, NO_DOCUMENTS).all)
            )
            for each in shown
        ),
        after=shown[-1].key if is_full else found.searched_to,
        searched=BUDGET if found.searched_to is not None and not is_full else None,
    )
    return Page(f"machine {name}", data, next={"after": data.after})


def _machine(site: Site, name: str, counts: Sequence[StateCount], at: datetime) -> MachineLine:
    declared = site.app.machines.declared.get(name)
    by_state = {each.state: each for each in counts}
    names: list[str | None] = [None] if None in by_state else []
    names += [] if declared is None else list(declared.definition.states)
    names += sorted(each for each in by_state if each is not None and each not in names)
    return MachineLine(
        name, declared is not None, tuple(_state(site, name, each, by_state.get(each), at) for each in names)
    )


def _state(site: Site, machine: str, name: str | None, count: StateCount | None, at: datetime) -> StateLine:
    declared = site.app.machines.declared.get(machine)
    is_known = declared is None or name is None or name in declared.definition.states
    return StateLine(
        name=name,
        known=is_known,
        final=declared is not None and name is not None and is_known and declared.definition.is_final(name),
        instances=Count.exact_to(0 if count is None else count.number, EXACT),
        failed=Count(0) if count is None else count.failed_count,
        oldest_seconds=None if count is None or count.since is None else (at - count.since).total_seconds(),
    )


# `manage.stranded` also finds timeouts and events of unknown classes, but reads every instance for it.
def _stranded(site: Site, line: MachineLine) -> tuple[str, ...]:
    advice = f"deploy code that has it, or {command('machines migrate', site.reference, line.name)}"
    return tuple(
        f"{each.instances} in {each.name!r}, which the code does not have: {advice} {each.name}=STATE"
        for each in line.states
        if not each.known
    )


def _numbers(counts: Sequence[StateCount]) -> dict[str | None, int | str]:
    return {each.state: str(Count.exact_to(each.number, EXACT)) for each in counts}


def _transitions(site: Site, name: str) -> tuple[Transition, ...]:
    declared = site.app.machines.declared.get(name)
    found = () if declared is None else edges(declared.definition)
    return tuple(Transition(each.source, each.target, each.label) for each in found)


def instance_line(each: InstanceRecord, shown: Shown) -> InstanceLine:
    """Return an instance as a line of a list, without the values that are not shown."""
    return InstanceLine(
        key=each.key,
        state=each.state,
        status=each.status,
        entered_at=each.entered_at,
        moves=each.moves,
        to_state=each.to_state,
        event=each.event,
        job_id=None if each.job_id is None else str(each.job_id),
        error=shown.clear(each.error),
    )
