"""Crons and refreshes: when they occur, what became of each occurrence, and trigger, pause and resume."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from http import HTTPStatus
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from redrive.app.protocol import Procedure
from redrive.engine.bulk import BulkAction, BulkOperation, BulkOptions, scoped
from redrive.engine.items import TrackedItem
from redrive.engine.lifecycle import State
from redrive.engine.occurrence import Occurrence, OccurrenceOutcome
from redrive.engine.origin import Kind
from redrive.engine.records import Count, Filter
from redrive.engine.recurring import CronDefinition, RefreshDefinition
from redrive.operate import audit, outcomes
from redrive.operate.audit import AuditLine
from redrive.operate.charts.svg import Picture
from redrive.operate.exchange import Form, Moved, Named, Note, Page, Request, Site, path_to, read_instant
from redrive.operate.filters import write
from redrive.operate.operations import check_confirmed
from redrive.operate.outcomes import Month, MonthMark
from redrive.operate.schedule_view import ScheduleView, standing, view, views
from redrive.operate.shown import Shown
from redrive.operate.tasks import read_json, read_priority
from redrive.schedule.timezone import zone
from redrive.stores.operations import bulk, clock, crons, jobs, schedules
from redrive.stores.operations.bulk import BulkPreview
from redrive.stores.operations.jobs import Documents
from redrive.stores.operations.refresh import items
from redrive.stores.operations.refresh.items import ItemLoad

#: Schedules, occurrences and items on a page.
SHOWN: Final = 50

#: Occurrences to come, in the list and on the page of a cron.
NEXT: Final = 3
AHEAD: Final = 10

#: The largest number of items, and of occurrences that a pause skips, that is counted.
MOST: Final = 10_000
MOST_SKIPPED: Final = 1000

#: The latest occurrences of which the outcomes are summed up, in the list and on the page of a cron.
RECENT: Final = 20
SUMMED: Final = 60


class ScheduleQuery(Named, frozen=True, gc=False):
    """The parameters of a schedule.

    Attributes:
        before: of a cron: the instant before which its occurrences are listed.
        month: of a cron: the month of its calendar, such as ``2026-11``; by default the present one.
        after: of a refresh: the item after which its items are listed.
        troubled_after: of a refresh: the item after which its items in trouble are listed.
    """

    before: str | None = None
    month: str | None = None
    troubled_after: str | None = None


class ScheduleAction(Form, frozen=True, gc=False):
    """An action on a schedule.

    Attributes:
        action: trigger starts a cron now, backfill its occurrences of a span that were not started, stop pauses a
            schedule and cancels its jobs that have not ended, and delete ends one that was created at run time.
        state: the action is refused (409) if the schedule is in the other one.
        since: of a backfill: the first instant.
        until: of a backfill: the last instant, by default now.
        why: of a stop: the reason, shown on the jobs.
        confirm: of a stop of more than 1,000 jobs: their number, give or take a tenth.
    """

    action: Literal["trigger", "pause", "resume", "stop", "backfill", "delete"]
    state: Literal["active", "paused"] | None = None
    since: str | None = None
    until: str | None = None
    why: str | None = None
    confirm: int | None = None


class NewCron(Form, frozen=True, gc=False):
    """A cron that is not in the code.

    Attributes:
        name: unique among the schedules.
        when: its pattern, such as ``30 3 * * *`` or ``every 90 minutes``.
        task: the name of the task of its jobs.
        arguments: of each job, by name.
        tz: the time zone of the pattern.
        retry: a directive, by default of the task.
        overlap: what an occurrence does while a job of the cron runs.
        catch_up: the missed occurrences that are started.
        window: how far back all missed ones are started.
        jitter: the largest delay of a job after its occurrence.
        queue: another queue than that of the task.
        priority: a smaller one runs first.
        replace: True to change an existing cron of this name.
    """

    name: str
    when: str
    task: str
    arguments: dict[str, Any] | None = None
    tz: str | None = None
    retry: str | None = None
    overlap: Literal["skip", "queue", "cancel", "allow"] | None = None
    catch_up: Literal["one", "all", "none"] | None = None
    window: str | None = None
    jitter: str | None = None
    queue: str | None = None
    priority: int | None = None
    replace: bool = False


class OccurrenceLine(msgspec.Struct, frozen=True, gc=False):
    """A decided occurrence of a cron.

    Attributes:
        decision: started, queued, skipped or missed.
        note: why.
        outcome: the state of its job, of a dead one also ``caught``; None without a job, or if that is deleted.
        attempts: the attempts that were made.
        took_seconds: from the first attempt to the end of the job; None before its end.
        reason: of its last failure.
        error: likewise, without the values that are not shown.
        group: the error group of its last failure.
    """

    occurs_at: datetime
    decided_at: datetime
    decision: str
    job: str | None
    note: str | None
    outcome: str | None = None
    attempts: int | None = None
    took_seconds: float | None = None
    reason: str | None = None
    error: str | None = None
    group: str | None = None

    @property
    def word(self) -> str:
        """What became of it in one word; a job that has succeeded after failures is retried."""
        if self.outcome == "succeeded" and (self.attempts or 0) > 1:
            return "retried"
        return self.outcome or self.decision


class Outcomes(msgspec.Struct, frozen=True, gc=False):
    """How the latest occurrences of a cron went, 20 of them in a list and 60 on its page.

    Attributes:
        words: the outcome of each, or its decision without a known job; the latest first.
        ended: the number of those whose jobs have succeeded or given up.
        died: of these, the jobs that have given up, also if that was caught.
        failure_rate: the share of these; None if no job has ended.
        deaths_in_row: the jobs that have given up since the last one that succeeded.
        took_p50_seconds: half of the jobs that succeeded took at most that, from the first attempt to the end.
        took_p95_seconds: likewise of 95 of 100.
    """

    words: tuple[str, ...]
    ended: int
    died: int
    failure_rate: float | None
    deaths_in_row: int
    took_p50_seconds: float | None
    took_p95_seconds: float | None

    @property
    def small(self) -> Picture:
        """The outcomes, for a row of a table."""
        return outcomes.small(self.words)


class ScheduleNote(Note, frozen=True, gc=False, omit_defaults=True):
    """What an action on a schedule did.

    Attributes:
        started: the occurrences that a backfill has started.
        operation: the operation that cancels the jobs of a stop; None if there were none.
        changes: the number of these jobs.
    """

    started: tuple[OccurrenceLine, ...] = ()
    operation: str | None = None
    changes: Count | None = None


class ScheduleLine(msgspec.Struct, frozen=True, gc=False):
    """A schedule in a list.

    Attributes:
        kind: cron or refresh.
        when: its pattern with the time zone, or the first sentence of its policy.
        words: a cron expression in words; None for other schedules, which consist of words.
        due_at: when its next occurrence or item is due; None if nothing is planned, or it is paused.
        paused_by: who has paused it.
        next: the next occurrences of a cron; of a paused one as if it were resumed now.
        remarks: why it may not start anything, besides a pause.
        last: the latest decision about a cron, and what became of its job.
        outcomes: of a cron: how the latest occurrences went; None before the first one.
        tracked: the items of a refresh.
        troubled: those with a failed last attempt, and those that were given up.
    """

    name: str
    kind: str
    when: str
    words: str | None
    due_at: datetime | None
    next: tuple[datetime, ...]
    paused_at: datetime | None
    paused_by: str | None
    remarks: tuple[str, ...]
    created: bool
    last: OccurrenceLine | None = None
    outcomes: Outcomes | None = None
    tracked: Count | None = None
    troubled: Count | None = None

    @property
    def is_failing(self) -> bool:
        """True if the last job of a cron that ended has given up, or items of a refresh are in trouble."""
        if self.outcomes is not None:
            return self.outcomes.deaths_in_row > 0
        return self.troubled is not None and self.troubled.value > 0


class ScheduleList(msgspec.Struct, frozen=True, gc=False):
    """A page of schedules, by name.

    Attributes:
        after: the parameter ``after`` of the next page; None on the last page.
    """

    at: datetime
    items: tuple[ScheduleLine, ...]
    after: str | None


class CronPage(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="cron"):
    """A cron.

    Attributes:
        overlap: what an occurrence does while the job of the one before has not ended.
        catch_up: which missed occurrences are started; for ``all`` the span is named.
        jobs: what it enqueues, and their policy.
        tz: the time zone of its pattern.
        starts: when the jobs of the next occurrences are due, in the order of these: later by the jitter.
        skips: the occurrences that the present pause has skipped so far; None if it is not paused.
        past: the decided occurrences, the latest first.
        latest: those of which the outcomes are summed up, at most 60.
        month: a month of its occurrences; None if this version cannot read its pattern.
        dead_q: the filter of its dead jobs that were neither caught nor skipped.
        acts: what operators last did to it.
        before: the parameter ``before`` of the next page; None on the last page.
        remedy: the command that ends its pause; None if it is not paused.
    """

    at: datetime
    line: ScheduleLine
    declared_at: datetime | None
    overlap: str | None
    catch_up: str | None
    jobs: str | None
    tz: str
    starts: tuple[datetime, ...]
    skips: Count | None
    past: tuple[OccurrenceLine, ...]
    latest: tuple[OccurrenceLine, ...]
    month: Month | None
    before: str | None
    remedy: str | None
    dead_q: str
    acts: tuple[AuditLine, ...]

    def clock(self, at: datetime) -> str:
        """Write the time of an instant in the zone of the cron."""
        local = at.astimezone(zone(self.tz))
        return f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"

    def strip(self, place: tzinfo, icons: str, base: str) -> Picture:
        """Draw the outcomes of the latest occurrences, with times in a zone.

        Args:
            place: the zone.
            icons: the address of the icons.
            base: the place where the dashboard is mounted.
        """
        streak = 0 if self.line.outcomes is None else self.line.outcomes.deaths_in_row
        return outcomes.strip([_mark(each) for each in self.latest], streak, place, icons, base)


class ItemLine(msgspec.Struct, frozen=True, gc=False):
    """An item of a refresh in a list.

    Attributes:
        standing: fresh, running, failing, given up or completed.
        attempt: the number of the attempt in the present cycle, from 0.
        attempts: the attempts since the last success.
        refresh_at: when its next attempt is due.
        reason: why it was given up, as a text for its owner.
        job: the job of the running attempt.
    """

    key: str
    standing: str
    paused: bool
    attempt: int
    attempts: int
    refresh_at: datetime | None
    failing_since: datetime | None
    reason: str | None
    job: str | None


class RefreshPage(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="refresh"):
    """A refresh.

    Attributes:
        policy: its sentences.
        jobs: what its attempts are, and their policy.
        on_disabled: the task of the job that is made after an item was given up.
        on_disabled_queue: the queue of that job.
        in_trouble: items with a failed last attempt, and items that were given up, by key.
        troubled_after: the parameter ``troubled_after`` of the next page of these; None on the last page.
        items: all items, by key.
        after: the parameter ``after`` of the next page of these; None on the last page.
        remedy: the command that ends its pause; None if it is not paused.
        acts: what operators last did to it.
    """

    at: datetime
    line: ScheduleLine
    declared_at: datetime | None
    policy: tuple[str, ...]
    jobs: str | None
    on_disabled: str | None
    on_disabled_queue: str | None
    in_trouble: tuple[ItemLine, ...]
    troubled_after: str | None
    items: tuple[ItemLine, ...]
    after: str | None
    remedy: str | None
    acts: tuple[AuditLine, ...]


def schedule_list(site: Site, request: Request) -> Procedure[Page]:
    """List crons and refreshes."""
    at: datetime = yield clock.present(site.app.now())
    limit = request.limit(SHOWN)
    found: list[ScheduleView] = yield from views(site.app, after=request.query.get("after", ""), limit=limit + 1)
    names = [each.name for each in found[:limit] if each.kind is Kind.CRON]
    recent: dict[str, list[OccurrenceOutcome]] = defaultdict(list)
    if names:
        for each in (yield schedules.outcomes(names, most=RECENT)):
            recent[each.schedule].append(each)
    documents = yield from _documents(lines[0] for lines in recent.values())
    loads: dict[str, ItemLoad] = {each.schedule: each for each in (yield items.loads(MOST))}
    shown = tuple(
        line(each, at, NEXT, went_lines(site, recent[each.name], documents), loads.get(each.name))
        for each in found[:limit]
    )
    data = ScheduleList(at, shown, shown[-1].name if len(found) > limit else None)
    number = sum(each.is_failing for each in shown)
    return Page(f"({number} failing) Schedules" if number else "Schedules", data, next={"after": data.after})


def _documents(found: Iterable[OccurrenceOutcome]) -> Procedure[dict[int, Documents]]:
    """Read the documents of jobs with an error, which may repeat values that are not shown."""
    sources = {each.job_id: None for each in found if each.job_id is not None and each.error is not None}
    read: dict[int, Documents] = yield jobs.documents(sources)
    return read


def line(
    seen: ScheduleView,
    at: datetime,
    ahead: int,
    went: Sequence[OccurrenceLine] = (),
    load: ItemLoad | None = None,
) -> ScheduleLine:
    """Return a schedule as a line of a list; the latest occurrences of a cron come first."""
    return ScheduleLine(
        name=seen.name,
        kind=seen.kind.value,
        when=seen.when,
        words=seen.words,
        due_at=seen.due_at,
        next=tuple(itertools.islice(seen.ahead(at), ahead)),
        paused_at=seen.paused_at,
        paused_by=None if seen.row is None else seen.row.paused_by,
        remarks=seen.remarks,
        created=seen.created,
        last=went[0] if went else None,
        outcomes=summed(went) if went else None,
        tracked=None if load is None else Count(load.tracked, load.tracked >= MOST),
        troubled=None if load is None else Count(load.troubled, load.troubled >= MOST),
    )


def occurrence_line(each: Occurrence) -> OccurrenceLine:
    """Return an occurrence as a line of a list, without what became of its job."""
    job = None if each.job_id is None else str(each.job_id)
    return OccurrenceLine(each.occurs_at, each.decided_at, each.decision.value, job, each.note)


def went_lines(
    site: Site, found: Iterable[OccurrenceOutcome], documents: Mapping[int, Documents]
) -> list[OccurrenceLine]:
    """Return occurrences as lines of a list; the error of a job of which the documents are not read is left out."""
    return [_went(site, each, documents.get(each.job_id or 0)) for each in found]


def _went(site: Site, each: OccurrenceOutcome, documents: Documents | None) -> OccurrenceLine:
    bare = occurrence_line(each)
    if each.state is None:
        return bare
    took = None
    if each.started_at is not None and each.finished_at is not None:
        # Two workers may write the two instants.
        took = max(0.0, (each.finished_at - each.started_at).total_seconds())
    return replace(
        bare,
        outcome="caught" if each.state is State.DEAD and each.caught else each.state.value,
        attempts=each.attempts,
        took_seconds=took,
        reason=each.reason,
        error=None if documents is None else Shown.of(site.payloads, repeated=documents.all).clear(each.error),
        group=each.fingerprint,
    )


_DIED: Final = frozenset({"dead", "caught"})


def summed(went: Sequence[OccurrenceLine]) -> Outcomes:
    """Sum up how occurrences went; the latest one comes first."""
    ended = [each.outcome for each in went if each.outcome in _DIED or each.outcome == "succeeded"]
    died = sum(each in _DIED for each in ended)
    took = sorted(each.took_seconds for each in went if each.outcome == "succeeded" and each.took_seconds is not None)
    return Outcomes(
        words=tuple(each.outcome or each.decision for each in went),
        ended=len(ended),
        died=died,
        failure_rate=died / len(ended) if ended else None,
        deaths_in_row=sum(1 for _ in itertools.takewhile(_DIED.__contains__, ended)),
        took_p50_seconds=_quantile(took, 0.5),
        took_p95_seconds=_quantile(took, 0.95),
    )


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def schedule(site: Site, request: Request) -> Procedure[Page]:
    """Show one schedule."""
    seen: ScheduleView = yield from view(site.app, request.places["name"])
    at: datetime = yield clock.present(site.app.now())
    if seen.kind is Kind.REFRESH:
        return (yield from _refresh(site, seen, request, at))
    return (yield from _cron(site, seen, request, at))


def _cron(site: Site, seen: ScheduleView, request: Request, at: datetime) -> Procedure[Page]:
    text, limit = request.query.get("before", ""), request.limit(SHOWN)
    before = read_instant("before", text) if text else None
    cron = seen.definition if isinstance(seen.definition, CronDefinition) else None
    place = zone("UTC" if cron is None else cron.tz)
    first = outcomes.first_of(request.query.get("month", ""), at.astimezone(place).date())
    latest: tuple[OccurrenceOutcome, ...] = yield schedules.outcomes([seen.name], most=outcomes.MOST)
    found, decided, end = latest, latest, outcomes.bounds(first, place)[1]
    if before is not None:
        found = yield schedules.outcomes([seen.name], before=before, most=limit + 1)
    if end <= at:
        decided = yield schedules.outcomes([seen.name], before=end, most=outcomes.MOST)
    documents = yield from _documents((*latest[:SUMMED], *found[:limit]))
    past, went = (tuple(went_lines(site, each, documents)) for each in (found[:limit], latest[:SUMMED]))
    head = line(seen, at, AHEAD, went)
    data = CronPage(
        at=at,
        line=head,
        declared_at=None if seen.row is None else seen.row.declared_at,
        overlap=None if cron is None else cron.overlap.value,
        catch_up=None if cron is None else cron.started_late,
        jobs=None if cron is None else cron.job.described,
        tz="UTC" if cron is None else cron.tz,
        starts=() if cron is None else tuple(map(cron.starts_at, head.next)),
        skips=None if cron is None else _skips(seen, cron, at),
        past=past,
        latest=went,
        month=None
        if cron is None
        else outcomes.month(
            cron.schedule,
            [_mark(each) for each in went_lines(site, decided, {})],
            first,
            place,
            now=at,
            paused=seen.paused_at is not None,
            read_from=decided[-1].occurs_at if len(decided) == outcomes.MOST else None,
        ),
        before=past[-1].occurs_at.isoformat() if len(found) > limit else None,
        remedy=seen.remedy(site.reference),
        dead_q=write(Filter(state=State.DEAD, caught=False, skipped=False, schedule=seen.name)),
        acts=(yield from audit.latest(f"schedule:{seen.name}")),
    )
    number = data.line.outcomes.deaths_in_row if data.line.outcomes is not None else 0
    title = f"({number} dead in a row) {seen.name}" if number else f"cron {seen.name}"
    return Page(title, data, next={"before": data.before})


def _mark(each: OccurrenceLine) -> MonthMark:
    return MonthMark(each.occurs_at, each.word, each.job, each.took_seconds, each.error or each.note or "")


def _skips(seen: ScheduleView, cron: CronDefinition, at: datetime) -> Count | None:
    """Return how many occurrences the present pause has skipped."""
    if seen.paused_at is None or seen.row is None:
        return None
    begin = max(seen.paused_at, seen.row.next_at or seen.paused_at)
    passed = itertools.takewhile(lambda each: each <= at, cron.schedule.since(begin))
    number = sum(1 for _ in itertools.islice(passed, MOST_SKIPPED))
    return Count(number, number >= MOST_SKIPPED)


def _refresh(site: Site, seen: ScheduleView, request: Request, at: datetime) -> Procedure[Page]:
    after, troubled_after = request.query.get("after", ""), request.query.get("troubled_after", "")
    limit = request.limit(SHOWN)
    troubled: tuple[TrackedItem, ...] = yield items.select(
        seen.name, after=troubled_after, limit=limit + 1, troubled=True
    )
    found: tuple[TrackedItem, ...] = yield items.select(seen.name, after=after, limit=limit + 1)
    loads: tuple[ItemLoad, ...] = yield items.loads(MOST)
    load = next((each for each in loads if each.schedule == seen.name), None)
    kept = seen.definition if isinstance(seen.definition, RefreshDefinition) else None
    data = RefreshPage(
        at=at,
        line=line(seen, at, NEXT, load=load),
        declared_at=None if seen.row is None else seen.row.declared_at,
        policy=() if kept is None else tuple(str(kept.policy).splitlines()),
        jobs=None if kept is None else kept.job.described,
        on_disabled=None if kept is None or kept.on_disabled is None else kept.on_disabled.task,
        on_disabled_queue=None if kept is None or kept.on_disabled is None else kept.on_disabled.queue,
        in_trouble=tuple(map(_item, troubled[:limit])),
        troubled_after=_last(troubled, limit),
        items=tuple(map(_item, found[:limit])),
        after=_last(found, limit),
        remedy=seen.remedy(site.reference),
        acts=(yield from audit.latest(f"schedule:{seen.name}")),
    )
    number = 0 if data.line.troubled is None else data.line.troubled.value
    title = f"({data.line.troubled} in trouble) {seen.name}" if number else f"refresh {seen.name}"
    return Page(title, data, next={"after": data.after})


def _last(found: Iterable[TrackedItem], limit: int) -> str | None:
    keys = [each.key for each in found]
    return keys[limit - 1] if len(keys) > limit else None


def _item(each: TrackedItem) -> ItemLine:
    return ItemLine(
        key=each.key,
        standing=standing(each),
        paused=each.paused,
        attempt=each.attempt_no,
        attempts=each.attempts_since_success,
        refresh_at=each.refresh_at,
        failing_since=each.failing_since,
        reason=each.disabled_reason,
        job=None if each.job_id is None else str(each.job_id),
    )


def act(site: Site, request: Request) -> Procedure[Moved]:
    """Act on a schedule, if it is still paused or active as the page showed."""
    name = request.places["name"]
    row = yield schedules.get(name)
    what, state = f"{row.kind} {name}", "active" if row.paused_at is None else "paused"
    request.demand_state(what, state)
    starts = ("trigger", "backfill") if row.kind is Kind.CRON else ()
    allowed = ("pause" if row.paused_at is None else "resume", "stop", *starts, *(("delete",) if row.created else ()))
    wrong = HTTPStatus.BAD_REQUEST if request.form.get("action") == "trigger" else HTTPStatus.CONFLICT
    action = request.action(allowed, f"{what} is {state}", status=wrong)
    actor, now, started = request.actor, site.app.now(), tuple[Occurrence, ...]()
    match action:
        case "pause":
            yield schedules.pause(name, actor=actor, now=now)
            did = "is paused"
        case "resume":
            yield schedules.resume(name, actor=actor, now=now)
            did = "is resumed"
        case "stop":
            return (yield from _stop(site, request, what, is_paused=row.paused_at is not None))
        case "delete":
            yield crons.delete(name, actor=actor, now=now)
            return Moved("/schedules", f"{what} is deleted")
        case "backfill":
            until, since = request.form.get("until"), read_instant("since", request.form.get("since", ""))
            end: datetime = read_instant("until", until) if until else (yield clock.present(now))
            started = yield crons.backfill(name, since, end, actor=actor, now=now)
            what, did = f"{what}:", f"{len(started)} occurrences were started"
        case _:
            done: Occurrence = yield crons.trigger(name, actor=actor, now=now)
            did = f"was started as job {done.job_id}"
    data = ScheduleNote(f"{what} {did}", started=tuple(map(occurrence_line, started)))
    return Moved(path_to("schedules", name), data.note, data=data)


def _stop(site: Site, request: Request, what: str, *, is_paused: bool) -> Procedure[Moved]:
    """Pause a schedule, and then start to cancel its jobs."""
    name, actor, now = request.places["name"], request.actor, site.app.now()
    wanted = scoped(BulkAction.CANCEL, Filter(schedule=name))
    options = BulkOptions(why=request.form.get("why") or f"{what} is stopped")
    if request.via:
        check_confirmed((yield bulk.preview(BulkAction.CANCEL, wanted, options, now=now)), request)
    if not is_paused:
        yield schedules.pause(name, actor=actor, now=now)
    found: BulkPreview = yield bulk.preview(BulkAction.CANCEL, wanted, options, now=now)
    number, changes = None, Count(found.changes, capped=not found.is_whole)
    note = f"{what} is paused, and has no job to cancel"
    if changes.value or changes.capped:
        begun: BulkOperation = yield bulk.start(found, actor=actor, now=now)
        number = str(begun.id)
        note = f"{what} is paused, and operation {number} cancels its jobs: {changes}"
    return Moved(path_to("schedules", name), note, data=ScheduleNote(note, operation=number, changes=changes))


def create(site: Site, request: Request) -> Procedure[Moved]:
    """Create a cron that is not in the code; all workers start it."""
    form = request.form
    name, when, task = (form.get(each, "") for each in ("name", "when", "task"))
    times = {"tz": "UTC", "overlap": "skip", "catch_up": "one", "window": "1d", "jitter": "0s"}
    times |= {each: form[each] for each in times if form.get(each)}
    job: dict[str, Any] = {"arguments": read_json(request, "arguments", dict), "priority": read_priority(request)}
    job |= {each: form.get(each) or None for each in ("retry", "queue")}
    replace = form.get("replace") == "true"
    yield site.app.schedules.creating(name, when, task, job, times, replace=replace, actor=request.actor)
    return Moved(path_to("schedules", name), f"cron {name} is created", HTTPStatus.CREATED)
