"""One job: what it is doing, why, and what happens next; and actions on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final, Literal

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.error_groups import Frame, frames
from redrive.engine.explain import Circumstances, Obstacle, obstacle
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.origin import read_origin
from redrive.engine.records import AttemptOutcome, AttemptRecord, Count, Hold, JobRecord
from redrive.engine.runs import is_far
from redrive.engine.search import tags_of_all
from redrive.errors import JobNotFound, PolicyError
from redrive.operate import audit
from redrive.operate.charts import waterfall
from redrive.operate.charts.axes import took
from redrive.operate.charts.waterfall import Bar, Waterfall
from redrive.operate.exchange import Form, Moved, Page, Payloads, Request, Site, path_to
from redrive.operate.jobs import JobLine, line
from redrive.operate.origins import page_of
from redrive.operate.shown import Shown
from redrive.policy import Policy, Stage
from redrive.stores.operations import admin, jobs, queues, redriving
from redrive.stores.operations.jobs import Documents, JobDetails
from redrive.stores.operations.queues import MOST

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

    @property
    def what(self) -> str:
        """What happened, in words."""
        ran = took(self.took_seconds)
        if self.reason == "TIMEOUT":
            return f"Timed out after {ran}"
        return f"{_WHAT.get(self.outcome, self.outcome.capitalize())} after {ran}"

    @property
    def mark(self) -> str:
        """The state of a job whose colour it has."""
        if self.outcome == AttemptOutcome.FAILED:
            return "dead" if self.waits_seconds is None else "retrying"
        return {"succeeded": "succeeded", "lost": "waiting"}.get(self.outcome, "scheduled")

    @property
    def kind(self) -> str:
        """The class of the error, without its module."""
        return (self.error_type or self.reason or "").rpartition(".")[2]

    @property
    def frames(self) -> tuple[tuple[Frame, ...], ...]:
        """The frames of the traceback, the innermost first: each of the own code alone, those of libraries together."""
        found: list[list[Frame]] = []
        for each in frames(self.traceback or ""):
            if each.own or not found or found[-1][0].own:
                found.append([])
            found[-1].append(each)
        return tuple(map(tuple, found))


# What happened in an attempt, by its outcome.
_WHAT: Final = {"snoozed": "Asked for a later time", "lost": "Lost with its worker", "released": "Given back"}

# The colours of attempts in the picture.
_COLOURS: Final = {"retrying": "retried", "scheduled": "other", "waiting": "lost"}


class JobPage(msgspec.Struct, frozen=True, gc=False):
    """A job.

    Attributes:
        at: when it was read, by the clock of the database.
        title: what became of it, or what happens next, as a short sentence. It ends where the time of `JobLine.due_at`
            follows, if it has one.
        unsure: why its last attempt may have taken effect although it failed; None if that is not known.
        same: the dead jobs of its error group, itself included; None without an error.
        running_since: when the attempt that runs was claimed.
        worker: that runs it.
        scheduled_at: when it is or was due; None if it waits without a time limit.
        token: with which it is completed, while it waits for that; only for users who may operate.
        held_by: the jobs that keep it from running, at most 20.
        hold: the reason for which it waits since it was given back or failed, as a word; None if there is none.
        remedy: the command that lets it run, or shows what to do; None if none does.
        remedy_at: the path of the page where that can be done.
        belongs_to: what it was created for, as a sentence.
        belongs_at: the path of the page of that.
        attempts: the first and the latest ones.
        left_out: attempts between them that are not shown.
        directive: the policy as a directive; None if one cannot express it.
        trace: the context of its trace, as the tracer has written it.
        acts: what operators did with this job, alone or among others, newest first. Of others the newest 1,000 entries
            of the audit log are read.
        payload: the arguments, without secret values; None if they are hidden.
        result: likewise.
        actions: what may be done with it.
    """

    at: datetime
    job: JobLine
    title: str
    unsure: str | None
    same: Count | None
    running_since: datetime | None
    worker: str | None
    priority: int
    partition: str | None
    key: str | None
    parent: str | None
    expires_at: datetime | None
    scheduled_at: datetime | None
    token: str | None
    held_by: tuple[str, ...]
    hold: Hold | None
    remedy: str | None
    remedy_at: str | None
    belongs_to: str | None
    belongs_at: str | None
    policy: str
    directive: str | None
    trace: str | None
    tags: tuple[str, ...]
    attempts: tuple[AttemptLine, ...]
    left_out: int
    payload: Any
    result: Any
    progress: Any
    progress_at: datetime | None
    acts: tuple[audit.AuditLine, ...]
    actions: tuple[str, ...]

    def timeline(self, zone: tzinfo) -> Waterfall:
        """Draw the attempts and the waits between them, with times in a zone."""
        bars = attempt_bars(self.attempts, self.running_since or self.job.due_at)
        words = [each.tip for each in bars if each.shape == "bar"]
        bars += self._next()
        sentence = "; ".join([*words, *(each.tip for each in bars[-1:] if each.shape == "next")])
        return waterfall.draw([waterfall.Row(tuple(bars), sentence or "no attempt yet")], self.at, zone)

    def _next(self) -> Iterator[Bar]:
        """Yield the attempt that runs, or the next one, and the time before the first one."""
        if self.running_since is not None:
            yield Bar("bar", "running", self.running_since, None, f"attempt {self.job.attempts} runs")
        elif (due_at := self.job.due_at) is not None:
            if not self.attempts:
                yield Bar("line", "", self.job.enqueued_at, due_at, "waits for its time", is_idle=True)
            last, since = max(due_at, self.at), self.attempts[-1].finished_at if self.attempts else self.job.enqueued_at
            wide = max([_MOMENT, *(timedelta(seconds=each.took_seconds) for each in self.attempts)])
            if last - since < waterfall.IDLE or not self.attempts:
                wide = max(wide, (last - since) / 40)
            when = "is due now" if due_at <= self.at else f"is due in {took((due_at - self.at).total_seconds())}"
            yield Bar("next", "next", last, last + wide, f"the next attempt {when}")


_MOMENT: Final = timedelta(milliseconds=1)


def attempt_bars(attempts: Sequence[AttemptLine], until: datetime | None = None) -> list[Bar]:
    """Return the attempts of a job and the waits between them, and behind the last one up to an instant."""
    bars = []
    for place, each in enumerate(attempts):
        what = f"attempt {each.number} ran {took(each.took_seconds)}: {each.outcome}"
        tip = f"{what}, {each.reason}" if each.reason else what
        name = _COLOURS.get(each.mark, each.mark)
        bars.append(Bar("bar", name, each.started_at, each.finished_at, tip, label=str(each.number)))
        later = attempts[place + 1].started_at if place + 1 < len(attempts) else until
        if later is not None and later > each.finished_at:
            bars.append(Bar("line", "", each.finished_at, later, _waited(each, later), is_idle=True))
    return bars


def _waited(each: AttemptLine, until: datetime) -> str:
    waited = took((until - each.finished_at).total_seconds())
    if each.waits_seconds is None:
        return f"waited {waited}"
    return f"delay {took(each.waits_seconds)}{f', chosen by {each.rule}' if each.rule else ''}; waited {waited}"


def job(site: Site, request: Request) -> Procedure[Page]:
    """Show one job."""
    number = request.id
    found: JobDetails = yield jobs.details(number, acts=audit.LATEST, most=MOST)
    record, progress = found.job, found.progress
    around = (yield queues.circumstances([record], now=site.app.now()))[number]
    documents: Documents = (yield jobs.documents({number: record.parent_id}))[number]
    result = documents.result if record.state is State.SUCCEEDED else None
    details = None if progress is None else progress.details.encode()
    shown = Shown.of(site.payloads, documents.payload, result, details, repeated=documents.all)
    lines = [attempt_line(each, shown) for each in found.attempts]
    left_out = max(0, len(lines) - FIRST - LATEST) if request.via else 0
    origin = read_origin(record.origin)
    held_up = obstacle(record, around)
    data = JobPage(
        at=around.now,
        job=line(record, around, shown),
        title=_title(record, lines, held_up, around),
        unsure=_unsure(record, lines),
        same=None if record.fingerprint is None else Count(found.alike, found.alike >= MOST),
        running_since=record.claimed_at if record.state is State.RUNNING and not around.is_ahead else None,
        worker=str(record.worker_id) if record.state is State.RUNNING else None,
        priority=record.priority,
        partition=record.partition,
        key=record.key,
        parent=None if record.parent_id is None else str(record.parent_id),
        expires_at=record.expires_at,
        scheduled_at=None if is_far(record.scheduled_at) else record.scheduled_at,
        token=f"{number}.{record.lease_id}" if record.state is State.WAITING and request.user.may_operate else None,
        held_by=() if held_up is None else tuple(map(str, held_up.jobs[:HOLDERS])),
        hold=record.hold,
        remedy=None if held_up is None else held_up.advice(site.reference),
        remedy_at=None if held_up is None else _page_of(held_up, record),
        belongs_to=None if origin is None else origin.described,
        belongs_at=None if origin is None else page_of(origin),
        policy=str(record.policy.explain()),
        directive=_directive(record.policy),
        trace=found.trace,
        tags=tuple(_tags(site, found.tags, documents.payload, shown)),
        attempts=tuple(lines if not left_out else lines[:FIRST] + lines[-LATEST:]),
        left_out=left_out,
        payload=shown.payload,
        result=shown.result,
        progress=shown.progress,
        progress_at=None if progress is None else progress.at,
        acts=tuple(map(audit.line, found.acts)),
        actions=_actions(record.state),
    )
    return Page(f"{data.job.standing}: job {number}, {record.task}", data)


def last_failure(site: Site, number: int) -> Procedure[AttemptLine | None]:
    """Return the newest failed attempt of a job; None if the job was deleted."""
    try:
        record: JobRecord = yield jobs.get(number)
    except JobNotFound:
        return None
    history: tuple[AttemptRecord, ...] = yield jobs.history(number)
    failed = [each for each in history if each.error_type or each.error]
    if not failed:
        return None
    documents: Documents = (yield jobs.documents({number: record.parent_id}))[number]
    return attempt_line(failed[-1], Shown.of(site.payloads, repeated=documents.all))


def _tags(site: Site, tags: Iterable[str], payload: bytes | None, shown: Shown) -> Iterator[str]:
    """Yield the tags of a job without values that are not shown."""
    values = tags_of_all(payload) if site.payloads is Payloads.HIDDEN else frozenset[str]()
    for each in tags:
        if each not in values:
            yield shown.clear(each) or ""


def _directive(policy: Policy) -> str | None:
    try:
        # That of a job is idempotent, which a directive does not say.
        return policy.with_(idempotent=None).directive()
    except PolicyError:
        return None


def _title(record: JobRecord, lines: Sequence[AttemptLine], held_up: Obstacle | None, around: Circumstances) -> str:
    """Return what became of a job, or what happens next."""
    made = f"{record.attempt} attempt{'' if record.attempt == 1 else 's'}"
    match record.state:
        case State.SUCCEEDED:
            return f"It succeeded{f' at attempt {record.attempt}' if record.attempt > 1 else ''}{_in(record, lines)}"
        case State.DEAD:
            ended = ", and was caught," if record.caught_at else ", and was skipped," if record.is_skipped else ""
            return f"It gave up{ended} after {made}{_in(record, lines)}"
        case State.CANCELLED:
            return f"It was cancelled after {made}" if record.attempt else "It was cancelled before it started"
        case State.WAITING:
            return "It waits for an answer from outside"
        case State.RUNNING:
            return "It is claimed, and has not started" if around.is_ahead else f"Attempt {record.attempt} runs"
        case State.READY:  # pragma: no branch - the last one; mypy proves that all are here
            return _coming(record, held_up, around.now)


def _coming(record: JobRecord, held_up: Obstacle | None, now: datetime) -> str:
    if is_far(record.scheduled_at):
        return "It waits, and holds no worker"
    if record.scheduled_at <= now:
        return "It is due, and cannot start" if held_up is not None else "It is due, and next in its turn"
    return f"Attempt {record.attempt + 1} starts" if record.attempt else "It starts"


def _in(record: JobRecord, lines: Sequence[AttemptLine]) -> str:
    if record.finished_at is None or not lines:
        return ""
    return f", in {took(max(0.0, (record.finished_at - lines[0].started_at).total_seconds()))}"


def _unsure(record: JobRecord, lines: Sequence[AttemptLine]) -> str | None:
    """Return why the last attempt of a job that has failed may have taken effect."""
    if not lines or record.state is State.SUCCEEDED:
        return None
    last = lines[-1]
    if last.outcome == AttemptOutcome.LOST:
        return f"attempt {last.number} was lost with its worker"
    if last.stage == Stage.IN_FLIGHT.value:
        return f"attempt {last.number} failed after its request was sent, before an answer came"
    return None


def _page_of(held_up: Obstacle, job: JobRecord) -> str | None:
    """Return the path of the page on which an obstacle can be cleared; None for the page of the job itself."""
    if held_up.is_queue:
        return path_to("queues", job.queue)
    if held_up.jobs:
        return f"/jobs/{held_up.jobs[0]}"
    return "/workers" if held_up.command in {"worker", "workers list"} else None


def attempt_line(each: AttemptRecord, values: Shown) -> AttemptLine:
    """Return an attempt as a line of a page, without the values that are not shown."""
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
