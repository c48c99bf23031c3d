"""One run: why it is not running, and what has happened in it; and actions on it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, tzinfo
from http import HTTPStatus
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from redrive.app.flows.run import Run
from redrive.app.flows.run_events import RunEvent, RunEventKind, events_of
from redrive.app.protocol import Procedure
from redrive.engine.explain import obstacle
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.runs import RunRecord, StepKind, StepOutcome
from redrive.operate.charts import waterfall
from redrive.operate.charts.axes import took
from redrive.operate.charts.waterfall import Bar, Row, Waterfall
from redrive.operate.exchange import Form, Moved, Page, Refusal, Request, Site, path_to
from redrive.operate.jobs import due_at, standing
from redrive.operate.run_lanes import Lane, LaneSpan, lanes_of
from redrive.operate.runs import RunLine, run_line
from redrive.operate.shown import Shown
from redrive.stores.operations import jobs, managing_runs, queues, redriving
from redrive.stores.operations.jobs import Documents
from redrive.stores.operations.managing_runs import RunView, Timeline
from redrive.visible import visible

#: Steps and signals that are shown, the latest ones.
LATEST: Final = 200


class RunAction(Form, frozen=True, gc=False):
    """An action on one run.

    Attributes:
        state: the action is refused (409) if the job of the run is in another one.
        name: of a signal.
        value: of a signal: any JSON; by default null.
        key: of a signal: a second one with the same key has no effect.
        why: of a pause or a cancel: the reason, shown on the run.
        until: of a pause: when it goes on by itself, an instant with an offset.
        from_step: of a fork: the path or the name of the first step that is executed anew; without it all are.
    """

    action: Literal["signal", "pause", "resume", "cancel", "retry", "fork"]
    state: State | None = None
    name: str | None = None
    value: msgspec.Raw | UnsetType = UNSET
    key: str | None = None
    why: str | None = None
    until: str | None = None
    from_step: str | None = None


class RunEventLine(msgspec.Struct, frozen=True, gc=False):
    """An event of a run.

    Attributes:
        path: of the step; empty for what belongs to no step.
        text: what has happened.
        result: of a step, or the value of a signal; without secret values.
        child: the run that the step has called.
    """

    at: datetime
    kind: RunEventKind
    path: str
    text: str
    failed: bool
    has_result: bool
    result: Any
    child: RunPlace | None


class RunPlace(msgspec.Struct, frozen=True, gc=False):
    """A run in another run's page; without an id of a run it is shown by its job."""

    workflow: str | None
    id: str | None
    job_id: str


class RunPage(msgspec.Struct, frozen=True, gc=False):
    """A run.

    Attributes:
        at: when it was read, by the clock of the database.
        reason: why its last attempt failed.
        error: its last error.
        remedy: the command that lets it run, or shows what to do; None if none does.
        startable: True for an ended one that a retry starts again.
        restarts: how often ``flow.restart`` has begun it anew.
        paused_at: since when it takes no new step.
        cancel_at: when its cancellation was requested.
        unread: the names of the signals that it has not read.
        awaits: the names of the signals that it waits for.
        children: the runs that it has called.
        lanes: the run and its steps with their times, in the order of the calls.
        events: steps, tries, waits, signals and attempts, oldest first.
        left_out: True if older steps are not shown.
        steps: the paths and names of the steps, from which it can be forked.
        values: of ``flow.set``.
        actions: what may be done with it.
    """

    at: datetime
    run: RunLine
    reason: str | None
    error: str | None
    remedy: str | None
    startable: bool
    restarts: int
    due_at: datetime | None
    paused_at: datetime | None
    paused_until: datetime | None
    paused_why: str | None
    cancel_at: datetime | None
    cancel_why: str | None
    parent: str | None
    parent_path: str | None
    forked_from: str | None
    unread: tuple[str, ...]
    awaits: tuple[str, ...]
    children: tuple[RunPlace, ...]
    lanes: tuple[Lane, ...]
    events: tuple[RunEventLine, ...]
    left_out: bool
    steps: tuple[tuple[str, str], ...]
    payload: Any
    values: Any
    result: Any
    actions: tuple[str, ...]

    def waterfall(self, zone: tzinfo, *, folded: bool) -> Waterfall:
        """Draw the lanes, with times in a zone, and with idle spans folded or as long as they were."""
        return waterfall.draw([_row(each, self.at) for each in self.lanes], self.at, zone, folded=folded)

    def lane(self, path: str) -> Lane | None:
        """Return the step at a path; without one, the first that has failed, or waits, or the last one."""
        steps = self.lanes[1:]
        for wanted in ("dead", "retrying", "running", "waiting"):
            if not any(each.path == path for each in steps):
                path = next((each.path for each in steps if each.standing == wanted), path)
        return next((each for each in steps if each.path == path), steps[-1] if steps else None)


# The name of the shape of a part, and whether nothing is executed meanwhile.
_SHAPES: Final[Mapping[str, tuple[str, bool]]] = {
    "run": ("thin", True),
    "child": ("thin", True),
    "backoff": ("line", True),
    "sleeps": ("sleep", True),
    "waits": ("open", True),
}


def _row(lane: Lane, now: datetime) -> Row:
    bars = tuple(_bar(each, now) for each in lane.spans)
    sentence = f"{lane.path} {lane.name}: {'; '.join(each.tip for each in bars)}".strip()
    return Row(bars, visible(sentence), "" if lane.depth == 0 or lane.kind == StepKind.SLEEP else _outcome(lane))


def _outcome(lane: Lane) -> str:
    if lane.standing == "succeeded":
        return f"ok at try {lane.tries}" if lane.tries > 1 else "ok"
    return "gave up" if lane.standing == "dead" and lane.tries else ""


def _bar(each: LaneSpan, now: datetime) -> Bar:
    shape, is_idle = _SHAPES.get(each.kind, ("bar", False))
    # A called run works meanwhile, as far as its caller knows.
    is_idle = is_idle and not (each.kind == "child" and each.ended_at is not None)
    words = {"run": "the run", "child": "the called run", "backoff": "waited for the next try", "waits": "waits"}
    what = f"try {each.number}: {each.kind}" if each.number else words.get(each.kind, each.kind)
    error = f": {each.error.partition(chr(10))[0]}" if each.error else ""
    tip = f"{what}, {took(((each.ended_at or now) - each.began_at).total_seconds())}{error}"
    label = {"lost": "worker lost", "sleeps": "sleeps, holds no slot"}.get(each.kind, "")
    if each.kind == "waits" and each.ended_at is None:
        label = "no signal yet"
    name = "other" if shape == "thin" else each.kind
    return Bar(shape, name, each.began_at, each.ended_at, visible(tip), is_idle, label)


def run(site: Site, request: Request) -> Procedure[Page]:
    """Show one run."""
    latest = LATEST + 1 if request.via else None
    found: Timeline = yield managing_runs.timeline(*_place(request), latest=latest)
    record, job = found.run, found.job
    around = (yield queues.circumstances([job], now=site.app.now()))[job.id]
    documents: Documents = (yield jobs.documents({job.id: None}))[job.id]
    result = documents.result if job.state is State.SUCCEEDED else None
    is_cut = latest is not None and len(found.steps) > LATEST
    held_up = obstacle(job, around)
    events = events_of(found)
    shown = Shown.of(
        site.payloads,
        documents.payload,
        result,
        record.values,
        others=[each.result for each in events],
        repeated=documents.all,
    )
    children = {each.job_id: _child(each) for each in found.children}
    data = RunPage(
        at=around.now,
        run=run_line(RunView(record, job), around, shown),
        reason=job.reason,
        error=shown.clear(job.error),
        remedy=None if held_up is None else held_up.advice(site.reference),
        startable=job.state in (State.DEAD, State.CANCELLED) and held_up is None,
        restarts=record.epoch,
        due_at=None if standing(job, around.now) == "due" else due_at(job),
        paused_at=record.paused_at,
        paused_until=record.paused_until,
        paused_why=record.paused_why,
        cancel_at=record.cancel_at,
        cancel_why=record.cancel_why,
        parent=None if record.parent_id is None else str(record.parent_id),
        parent_path=record.parent_path,
        forked_from=None if record.forked_from is None else str(record.forked_from),
        unread=tuple(each.name for each in found.signals if each.path is None),
        awaits=_awaited(found),
        children=tuple(children.values()),
        lanes=lanes_of(found, standing(job, around.now), around.now, shown),
        events=tuple(_line(each, value, children, shown) for each, value in zip(events, shown.others, strict=True)),
        left_out=is_cut,
        steps=tuple((each.path, each.name) for each in found.steps if each.kind in (StepKind.STEP, StepKind.CALL)),
        payload=shown.payload,
        values=shown.progress,
        result=shown.result,
        actions=_actions(job.state, record),
    )
    return Page(f"{data.run.standing}: run {record.id} of {record.workflow}", data)


def _awaited(found: Timeline) -> tuple[str, ...]:
    """Return the names of the signals that a run waits for, each once."""
    waits = (each for each in found.steps if each.kind is StepKind.WAIT and each.outcome is StepOutcome.WAITING)
    return tuple(dict.fromkeys(each.name for each in waits))


def _place(request: Request) -> tuple[str, str]:
    return request.places["workflow"], request.places["run"]


def _child(record: RunRecord) -> RunPlace:
    return RunPlace(record.workflow, record.id, str(record.job_id))


def _line(event: RunEvent, value: object, children: Mapping[int, RunPlace], shown: Shown) -> RunEventLine:
    child = None if event.child_id is None else RunPlace(None, None, str(event.child_id))
    return RunEventLine(
        at=event.at,
        kind=event.kind,
        path=event.path,
        text=shown.clear(event.text) or "",
        failed=event.failed,
        has_result=event.result is not None,
        result=value,
        child=children.get(event.child_id, child) if event.child_id is not None else None,
    )


def _actions(state: State, record: RunRecord) -> tuple[str, ...]:
    """Return what may be done with a run."""
    if state in FINAL:
        return ("fork",) if state is State.SUCCEEDED else ("retry", "fork")
    return ("signal", "resume" if record.paused_at is not None else "pause", "cancel", "fork")


def act(site: Site, request: Request) -> Procedure[Moved]:
    """Carry out an action on a run, if it is still in the state that the page showed."""
    workflow, id = _place(request)
    found: RunView = yield managing_runs.get(workflow, id)
    if request.form.get("action") != "fork":
        request.demand_state(f"run {id}", found.job.state)
    action = request.action(_actions(found.job.state, found.run), f"run {id} is {found.job.state}")
    handle: Run[Any] = site.app.runs.get(workflow, id)
    form, actor, now = request.form, request.actor, site.app.now()
    here, why = path_to("runs", workflow, id), request.form.get("why") or None
    match action:
        case "fork":
            new: Run[Any] = yield from handle.forking(form.get("from_step", "").strip() or None, None, actor)
            return Moved(path_to("runs", workflow, new.id), f"run {id} is forked as {new.id}")
        case "signal":
            name, value = form.get("name", "").strip(), _value(form.get("value", "").strip() or "null")
            is_new = (yield handle.signalling(name, value, form.get("key") or None, actor)) is not None
            did = f"has received {name}" if is_new else f"had a signal {name} with this key before"
        case "cancel":
            is_done = yield managing_runs.cancel(workflow, id, why=why, actor=actor, now=now)
            state = (yield managing_runs.get(workflow, id)).job.state
            is_ended = "is cancelled" if state is State.CANCELLED else "ends at its next step"
            did = is_ended if is_done else f"had ended before: {state}"
        case "pause":
            until = _until(form.get("until", ""))
            yield handle.pausing(why, until, actor)
            did = "is paused" + ("" if until is None else f" until {until.isoformat()}")
        case "resume":
            is_done = yield managing_runs.resume(workflow, id, actor=actor, now=now)
            did = "goes on" if is_done else "was not paused"
        case _:
            yield redriving.retry(found.job.id, actor=actor, now=now)
            did = "starts again"
    return Moved(here, f"run {id} {did}")


def _value(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        detail = f'the value {text[:100]!r} is no JSON: {error}; a text needs quotes, as in "text"'
        raise Refusal(HTTPStatus.BAD_REQUEST, detail) from error


def _until(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"until={text[:40]!r} is not an instant") from error
