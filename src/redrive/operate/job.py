"""One job: what it is doing, why, and what happens next; and actions on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.explain import Obstacle, obstacle
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.origin import read_origin
from redrive.engine.records import AttemptRecord, JobRecord, Progress
from redrive.engine.runs import is_far
from redrive.engine.search import tags_of_all
from redrive.operate.charts.svg import Picture
from redrive.operate.charts.timeline import Bar, draw
from redrive.operate.exchange import Form, Moved, Page, Payloads, Request, Site, path_to
from redrive.operate.jobs import JobLine, line
from redrive.operate.origins import page_of
from redrive.operate.shown import Shown
from redrive.stores.operations import admin, attempts, jobs, queues, redriving
from redrive.stores.operations.jobs import CatchMaterial, Documents

#: Attempts that are shown: the first ones and the latest ones.
FIRST: Final = 5
LATEST: Final = 50

#: Jobs that hold a job up, of which links are shown.
HOLDERS: Final = 20


class JobAction(Form, frozen=True, gc=False):
    """An action on one job.

    Attributes:
        action: retry runs it once more, now; cancel ends it; skip lets the jobs pass that it holds up.
        state: the action is refused (409) if the job is in another one.
        why: of a cancel: the reason, shown on the job.
    """

    action: Literal["retry", "cancel", "skip"]
    state: State | None = None
    why: str | None = None


class AttemptLine(msgspec.Struct, frozen=True, gc=False):
    """An attempt.

    Attributes:
        took_seconds: how long it ran.
        waits_seconds: the delay that was chosen after it; None if none was.
        nominal_seconds: the delay of the policy before jitter and bounds.
        rule: what chose the delay.
        verdict: what was decided, as a sentence.
    """

    number: int
    worker: str
    started_at: datetime
    finished_at: datetime
    took_seconds: float
    outcome: str
    reason: str | None
    stage: str | None
    error_type: str | None
    error: str | None
    traceback: str | None
    waits_seconds: float | None
    nominal_seconds: float | None
    rule: str | None
    verdict: str | None


class JobPage(msgspec.Struct, frozen=True, gc=False):
    """A job.

    Attributes:
        at: when it was read, by the clock of the database.
        scheduled_at: when it is or was due; None if it waits without a time limit.
        token: with which it is completed, while it waits for that; only for users who may operate.
        held_by: the jobs that keep it from running, at most 20.
        remedy: the command that lets it run, or shows what to do; None if none does.
        remedy_at: the path of the page where that can be done.
        belongs_to: what it was created for, as a sentence.
        belongs_at: the path of the page of that.
        attempts: the first and the latest ones.
        left_out: attempts between them that are not shown.
        payload: the arguments, without secret values; None if they are hidden.
        result: likewise.
        actions: what may be done with it.
    """

    at: datetime
    job: JobLine
    priority: int
    partition: str | None
    key: str | None
    parent: str | None
    expires_at: datetime | None
    scheduled_at: datetime | None
    token: str | None
    held_by: tuple[str, ...]
    remedy: str | None
    remedy_at: str | None
    belongs_to: str | None
    belongs_at: str | None
    policy: str
    tags: tuple[str, ...]
    attempts: tuple[AttemptLine, ...]
    left_out: int
    payload: Any
    result: Any
    progress: Any
    progress_at: datetime | None
    actions: tuple[str, ...]

    @property
    def picture(self) -> Picture:
        """The attempts and the waits between them."""
        bars = [
            Bar(each.number, each.started_at, each.finished_at, each.outcome, each.reason, each.rule, _delay(each))
            for each in self.attempts
        ]
        return draw(bars, self.job.due_at, self.at)


def job(site: Site, request: Request) -> Procedure[Page]:
    """Show one job."""
    number = request.id
    material: CatchMaterial = yield jobs.material(number)
    record = material.job
    around = (yield queues.circumstances([record], now=site.app.now()))[number]
    progress: Progress | None = yield attempts.progress(number)
    tags = yield jobs.tags([number])
    documents: Documents = (yield jobs.documents({number: record.parent_id}))[number]
    result = documents.result if record.state is State.SUCCEEDED else None
    details = None if progress is None else progress.details.encode()
    shown = Shown.of(site.payloads, material.payload, result, details, repeated=documents.all)
    lines = [_attempt(each, shown) for each in material.attempts]
    left_out = max(0, len(lines) - FIRST - LATEST) if request.via else 0
    origin = read_origin(record.origin)
    held_up = obstacle(record, around)
    data = JobPage(
        at=around.now,
        job=line(record, around, shown),
        priority=record.priority,
        partition=record.partition,
        key=record.key,
        parent=None if record.parent_id is None else str(record.parent_id),
        expires_at=record.expires_at,
        scheduled_at=None if is_far(record.scheduled_at) else record.scheduled_at,
        token=f"{number}.{record.lease_id}" if record.state is State.WAITING and request.user.may_operate else None,
        held_by=() if held_up is None else tuple(map(str, held_up.jobs[:HOLDERS])),
        remedy=None if held_up is None else held_up.advice(site.reference),
        remedy_at=None if held_up is None else _page_of(held_up, record),
        belongs_to=None if origin is None else origin.described,
        belongs_at=None if origin is None else page_of(origin),
        policy=str(record.policy.explain()),
        tags=tuple(_tags(site, tags.get(number, ()), material.payload, shown)),
        attempts=tuple(lines if not left_out else lines[:FIRST] + lines[-LATEST:]),
        left_out=left_out,
        payload=shown.payload,
        result=shown.result,
        progress=shown.progress,
        progress_at=None if progress is None else progress.at,
        actions=_actions(record.state),
    )
    return Page(f"{data.job.standing}: job {number}, {record.task}", data)


def _tags(site: Site, tags: Iterable[str], payload: bytes | None, shown: Shown) -> Iterator[str]:
    """Yield the tags of a job without values that are not shown."""
    values = tags_of_all(payload) if site.payloads is Payloads.HIDDEN else frozenset[str]()
    for each in tags:
        if each not in values:
            yield shown.clear(each) or ""


def _page_of(held_up: Obstacle, job: JobRecord) -> str | None:
    """Return the path of the page on which an obstacle can be cleared; None for the page of the job itself."""
    if held_up.is_queue:
        return path_to("queues", job.queue)
    if held_up.jobs:
        return f"/jobs/{held_up.jobs[0]}"
    return "/workers" if held_up.command in {"worker", "workers list"} else None


def _attempt(each: AttemptRecord, values: Shown) -> AttemptLine:
    return AttemptLine(
        number=each.number,
        worker=str(each.worker_id),
        started_at=each.started_at,
        finished_at=each.finished_at,
        # Two workers may write the two instants; their clocks differ where the database has no clock of its own.
        took_seconds=max(0.0, (each.finished_at - each.started_at).total_seconds()),
        outcome=each.outcome.value,
        reason=each.reason,
        stage=each.stage,
        error_type=each.error_type,
        error=values.clear(each.error),
        traceback=values.clear(each.traceback),
        waits_seconds=None if each.delay is None else each.delay.total_seconds(),
        nominal_seconds=None if each.nominal is None else each.nominal.total_seconds(),
        rule=each.rule,
        verdict=values.clear(each.verdict),
    )


def _delay(each: AttemptLine) -> timedelta | None:
    return None if each.waits_seconds is None else timedelta(seconds=each.waits_seconds)


def _actions(state: State) -> tuple[str, ...]:
    """Return what may be done with a job in a state."""
    if state is State.SUCCEEDED:
        return ()
    if state in FINAL:
        return ("retry", "skip") if state is State.DEAD else ("retry",)
    return ("retry", "cancel") if state is State.READY else ("cancel",)


def act(site: Site, request: Request) -> Procedure[Moved]:
    """Retry, cancel or skip one job, if it is still in the state that the page showed."""
    number = request.id
    record = yield jobs.get(number)
    request.demand_state(f"job {number}", record.state)
    action = request.action(_actions(record.state), f"job {number} is {record.state}")
    actor, now = request.actor, site.app.now()
    match action:
        case "cancel":
            done = yield from site.app.job(number).cancelling(request.form.get("why") or None, actor)
            did = "is cancelled" if done else f"had ended before: {(yield jobs.get(number)).state}"
        case "skip":
            is_skipped = yield admin.skip(number, actor=actor, now=now)
            did = "blocks no other job any more" if is_skipped else "blocked no other job"
        case _:
            yield redriving.retry(number, actor=actor, now=now)
            did = "is due now"
    return Moved(f"/jobs/{number}", f"job {number} {did}")
