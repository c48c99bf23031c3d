"""One instance of a state machine: its transition and why it does not run, and its history; and actions on it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, Literal

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.lifecycle import State
from redrive.engine.machine import InstanceRecord, InstanceStatus, MoveRecord
from redrive.engine.records import Filter, JobRecord
from redrive.operate.exchange import Form, Moved, Page, Refusal, Request, Site, path_to
from redrive.operate.jobs import JobLine, line
from redrive.operate.machines import InstanceLine, instance_line
from redrive.operate.shown import Shown
from redrive.stores.operations import admin, clock, jobs, queues
from redrive.stores.operations.jobs import Documents
from redrive.stores.operations.machines import manage
from redrive.stores.operations.machines.rows import LAST

#: Events of an instance on a page.
SHOWN: Final = 50


class InstanceAction(Form, frozen=True, gc=False):
    """An action on one instance.

    Attributes:
        action: retry makes its transition due now, skip drops the event of a failed one, reset puts the instance into
            another state.
        status: the action is refused (409) if the instance has another status, and likewise for ``state`` and ``job``.
        job: the id of the job of its transition; empty without one.
        to: the state of a reset.
    """

    action: Literal["retry", "skip", "reset"]
    status: InstanceStatus | None = None
    state: str | None = None
    job: str | None = None
    to: str | None = None


class MoveLine(msgspec.Struct, frozen=True, gc=False):
    """An event of an instance, and the move that it made.

    Attributes:
        id: also the id of the job of its transition.
        event: its type; None for a change of the state by an operator.
        source: what made it, such as ``send``, ``timeout`` or ``reset``.
        to_state: None if the instance did not move.
        attempts: the executions of the handler.
    """

    id: str
    event: str | None
    event_key: str | None
    source: str
    status: str
    from_state: str | None
    to_state: str | None
    sent_at: datetime
    finished_at: datetime | None
    attempts: int
    error: str | None
    actor: str | None


class InstancePage(msgspec.Struct, frozen=True, gc=False):
    """An instance.

    Attributes:
        at: when it was read, by the clock of the database.
        declared: True if the code of this process has the machine.
        waits_for: the types of events that it takes now, each with the state to which it leads.
        transition: the job of its transition; None without one, or if it was deleted.
        last_error: of the transition.
        timeout_at: when the event ``timeout_event`` is sent to it, if it is still in its state.
        data: its data, without secret values.
        history: the latest events first.
        before: the parameter ``before`` of the next page of the history; None on the last one.
        states: to which it can be reset.
        actions: what may be done with it.
    """

    at: datetime
    machine: str
    declared: bool
    instance: InstanceLine
    created_at: datetime
    waits_for: tuple[tuple[str, str], ...]
    transition: JobLine | None
    last_error: str | None
    timeout_at: datetime | None
    timeout_event: str | None
    data: Any
    history: tuple[MoveLine, ...]
    before: str | None
    states: tuple[str, ...]
    actions: tuple[str, ...]


def instance(site: Site, request: Request) -> Procedure[Page]:
    """Show one instance."""
    machine, key = _place(request)
    before = request.number("before", LAST, most=LAST)
    found: InstanceRecord = yield manage.get(machine, key)
    limit = request.limit(SHOWN)
    moves: tuple[MoveRecord, ...] = yield manage.history(machine, key, before=before, limit=limit + 1)
    job = yield from _job(found)
    # An event and the job of its transition have one id.
    numbers = {each.id for each in moves} | ({job.id} if job is not None else set())
    documents: dict[int, Documents] = yield jobs.documents(dict.fromkeys(numbers))
    values = Shown.of(
        site.payloads,
        found.data,
        others=[each.payload for each in moves],
        repeated=[text for each in documents.values() for text in each.all],
    )
    transition = None
    at: datetime
    if job is None:
        at = yield clock.present(site.app.now())
    else:
        around = (yield queues.circumstances([job], now=site.app.now()))[job.id]
        transition, at = line(job, around, values), around.now
    ids = sorted((each.id for each in moves), reverse=True)[:limit]
    data = InstancePage(
        at=at,
        machine=machine,
        declared=machine in site.app.machines.declared,
        instance=instance_line(found, values),
        created_at=found.created_at,
        waits_for=_waits_for(site, found),
        transition=transition,
        last_error=values.clear(found.error or (None if job is None else job.error)),
        timeout_at=found.timeout_at,
        timeout_event=found.timeout_event,
        data=values.payload,
        history=tuple(_move(each, values) for each in moves if each.id in ids),
        before=str(ids[-1]) if len(moves) > limit else None,
        states=_states(site, machine),
        actions=_actions(site, found, None if job is None else job.state),
    )
    return Page(f"{machine}/{key}: {found.state or 'new'}", data, next={"before": data.before})


def _place(request: Request) -> tuple[str, str]:
    return request.places["machine"], request.places["key"]


def _job(found: InstanceRecord) -> Procedure[JobRecord | None]:
    """Return the job of a transition; None without one, or if it was deleted."""
    if found.job_id is None:
        return None
    there: tuple[JobRecord, ...] = yield admin.select(Filter(ids=(found.job_id,)))
    return there[0] if there else None


def _waits_for(site: Site, found: InstanceRecord) -> tuple[tuple[str, str], ...]:
    declared = site.app.machines.declared.get(found.machine)
    if declared is None or found.busy:
        return ()
    return tuple((each.event, each.name) for each in declared.definition.following(found.state))


def _states(site: Site, machine: str) -> tuple[str, ...]:
    declared = site.app.machines.declared.get(machine)
    return () if declared is None else tuple(declared.definition.states)


def _move(each: MoveRecord, values: Shown) -> MoveLine:
    return MoveLine(
        id=str(each.id),
        event=each.event,
        event_key=each.event_key,
        source=each.source.value,
        status=each.status.value,
        from_state=each.from_state,
        to_state=each.to_state,
        sent_at=each.sent_at,
        finished_at=each.finished_at,
        attempts=each.attempts,
        error=values.clear(each.error),
        actor=each.actor,
    )


def _actions(site: Site, found: InstanceRecord, job: State | None) -> tuple[str, ...]:
    """Return what may be done with an instance."""
    reset = ("reset",) if found.machine in site.app.machines.declared else ()
    if found.status is InstanceStatus.FAILED:
        return (*(("retry",) if job is State.DEAD else ()), "skip", *reset)
    if found.busy:
        return ("retry",) if job is State.READY else ()
    return reset


def act(site: Site, request: Request) -> Procedure[Moved]:
    """Retry or skip the transition of an instance, or reset the instance, if it is still as the page showed it."""
    machine, key = _place(request)
    found: InstanceRecord = yield manage.get(machine, key)
    _check_seen(found, request.form)
    job = yield from _job(found)
    action = request.action(_actions(site, found, None if job is None else job.state), f"{key} is {found.status}")
    handle, state, actor = site.app.machines.machine(machine), request.form.get("to", ""), request.actor
    match action:
        case "retry":
            yield from handle.retrying(key, actor)
            did = "its transition is due now"
        case "skip":
            yield manage.skip(machine, key, actor=actor, now=site.app.now())
            did = "its event is dropped"
        case _:
            yield handle.resetting(key, state, actor)
            did = f"it is in {state} now"
    return Moved(path_to("machines", machine, key), f"{machine}/{key}: {did}")


def _check_seen(found: InstanceRecord, form: Mapping[str, str]) -> None:
    """Refuse a form of a page that showed another state, or another transition."""
    now = {"status": found.status.value, "state": found.state or "", "job": str(found.job_id or "")}
    changed = [name for name, value in now.items() if name in form and form[name] != value]
    if changed:
        what = ", ".join(f"{name} {now[name] or 'none'}" for name in changed)
        raise Refusal(HTTPStatus.CONFLICT, f"{found.key} has changed: it has {what} now; look at it again")
