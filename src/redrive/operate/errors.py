"""Error groups: which errors occur, how often, and since when; and the dead jobs of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from http import HTTPStatus
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from redrive.app.protocol import Procedure
from redrive.engine.commands import command
from redrive.engine.counters import HOUR, floor
from redrive.engine.lifecycle import State
from redrive.engine.records import Count, Filter
from redrive.operate import job, jobs
from redrive.operate.charts import axes, plots, sparks
from redrive.operate.charts.svg import Picture
from redrive.operate.exchange import MOST_ITEMS, Form, Id, Moved, Page, Refusal, Request, Site, path_to
from redrive.operate.vitals import vitals
from redrive.policy import parse_duration
from redrive.stores.operations import counters
from redrive.stores.operations.counters import ErrorGroup, FailedWithin
from redrive.stores.operations.doctor import Vitals
from redrive.stores.operations.queues import MOST

#: Groups on a page.
SHOWN: Final = 20


Span: TypeAlias = Literal["1h", "24h", "7d"]

#: The spans of which failures are listed by their number.
SPANS: Final[Mapping[Span, timedelta]] = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7)}


class ErrorsQuery(msgspec.Struct, frozen=True, gc=False):
    """The parameters of the list of error groups.

    Attributes:
        task: only groups of this task.
        dead: 1 for groups with dead jobs that were neither caught nor skipped.
        before: where the page begins: the member of this name of the page before it.
        span: 1h, 24h or 7d for the groups that failed within that, those with most failures first.
        limit: of the items of a page, from 1 to 200.
    """

    task: str | None = None
    span: Span | None = None
    dead: Annotated[int, msgspec.Meta(ge=0, le=1)] | None = None
    before: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_ITEMS)] | None = None


class GroupLine(msgspec.Struct, frozen=True, gc=False):
    """An error group.

    Attributes:
        id: its fingerprint; ``other`` has the failures beyond a limit of groups.
        name: the class and the title, for a reader.
        type: the class of the exception; empty if there was none.
        title: the message without what differs from job to job; empty if the arguments of the job are not at hand.
        frame: the place in the code; empty without a traceback.
        dead: its dead jobs that were neither caught nor skipped.
        failures: of the last 24 hours.
        deaths: of these, the failures after which a job gave up.
        hours: the failures of each of these hours, the present one last.
        new_since: when the live workers began, the first of them, if it failed first after that; None if it is older.
        muted: True if it is left out on the overview.
        muted_at: since when.
        muted_until: when that ends; None for its next failure.
        within: in a list of a span: the failures within that.
        deaths_within: of these, the failures after which a job gave up.
    """

    id: str
    name: str
    task: str
    reason: str
    type: str
    title: str
    frame: str
    first_at: datetime
    last_at: datetime
    last_job: Id
    dead: Count
    failures: int
    deaths: int
    hours: tuple[int, ...]
    new_since: datetime | None
    muted: bool
    muted_at: datetime | None
    muted_until: datetime | None
    within: int | None = None
    deaths_within: int | None = None

    @property
    def picture(self) -> Picture:
        """The failures by hour, as a small picture."""
        sentence = f"{self.failures:,} failures in 24 hours, {self.hours[-1]:,} in the present hour"
        return sparks.bars("retried", self.hours, sentence, width=96)


class ErrorList(msgspec.Struct, frozen=True, gc=False):
    """A page of error groups, the latest failure first; with a span those with most failures first.

    Attributes:
        at: when it was read.
        before: the parameter ``before`` of the next page; None on the last page, and with a span.
        span: 1h, 24h or 7d.
        since: the beginning of the failures of a span, which is that of an hour.
    """

    at: datetime
    items: tuple[GroupLine, ...]
    task: str | None
    dead: bool
    before: str | None
    span: str | None = None
    since: datetime | None = None

    def picture(self, zone: tzinfo) -> Picture:
        """Draw the failures of these groups by hour."""
        hours = [sum(each) for each in zip(*(group.hours for group in self.items), strict=True)]
        return _by_hour(hours, self.at, zone)


def _by_hour(hours: Sequence[int], at: datetime, zone: tzinfo) -> Picture:
    first = floor(at, HOUR) - HOUR * (len(hours) - 1)
    starts = [first + HOUR * number for number in range(len(hours))]
    sentence = f"Failures by hour: {sum(hours):,} in 24 hours, {hours[-1]:,} in the present hour"
    axis = axes.times(starts, HOUR, zone)
    return plots.columns(axis, {"failed": hours}, sentence, scale=plots.counts(max(hours), plots.SMALL))


class GroupAction(Form, frozen=True, gc=False):
    """An action on an error group.

    Attributes:
        span: of a mute: for how long, such as ``24h``; without it until the group fails again.
    """

    action: Literal["mute", "unmute"]
    span: str | None = None


class GroupPage(msgspec.Struct, frozen=True, gc=False):
    """An error group with its dead jobs, newest first.

    Attributes:
        at: when it was read.
        failure: the newest failed attempt of the job that failed last, with its traceback; None if it was deleted.
        facets: what its dead jobs have in common, on the first page.
        q: the filter of these jobs.
        before: the parameter ``before`` of the next page of jobs; None on the last page.
    """

    at: datetime
    group: GroupLine
    failure: job.AttemptLine | None
    facets: jobs.Facets | None
    q: str
    jobs: tuple[jobs.JobLine, ...]
    before: str | None

    def picture(self, zone: tzinfo) -> Picture:
        """Draw the failures by hour."""
        return _by_hour(self.group.hours, self.at, zone)

    @property
    def quiet_hours(self) -> int:
        """The full hours before the present one without a failure, at most 23."""
        return next((place for place, each in enumerate(reversed(self.group.hours)) if each), len(self.group.hours))


def error_list(site: Site, request: Request) -> Procedure[Page]:
    """List the error groups."""
    task, dead = request.text("task"), bool(request.number("dead", 0, most=1))
    limit = request.limit(SHOWN)
    place, span = _place(request.text("before")), _span(request.text("span"))
    if place is not None and span is not None:
        raise Refusal(HTTPStatus.BAD_REQUEST, "a list of a span has one page: give limit= for more groups")
    state = yield from vitals(site)
    if span is not None:
        return (yield from _within(site, state, span, limit, task=task, dead=dead))
    found: tuple[ErrorGroup, ...] = yield counters.groups(
        task=task, dead=dead, before=place, limit=limit + 1, now=site.app.now()
    )
    items = tuple(line(each, state) for each in found[:limit])
    last = found[limit - 1] if len(found) > limit else None
    before = None if last is None else last.place
    return Page("Errors", ErrorList(state.now, items, task, dead, before), next={"before": before})


def _within(site: Site, state: Vitals, span: Span, limit: int, *, task: str | None, dead: bool) -> Procedure[Page]:
    found: FailedWithin = yield counters.failed_within(
        SPANS[span], task=task, dead=dead, limit=limit, now=site.app.now()
    )
    items = tuple(
        replace(line(each.group, state), within=each.failures, deaths_within=each.deaths) for each in found.groups
    )
    return Page("Errors", ErrorList(state.now, items, task, dead, None, span, found.since))


def _span(text: str | None) -> Span | None:
    for each in SPANS:
        if text == each:
            return each
    if text:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"span= is one of {', '.join(SPANS)}")
    return None


def _place(text: str | None) -> tuple[datetime, str] | None:
    if text is None:
        return None
    found = counters.read_place(text)
    if found is None:
        raise Refusal(HTTPStatus.BAD_REQUEST, "before= is the place that the page before named as its end")
    return found


def line(found: ErrorGroup, state: Vitals) -> GroupLine:
    """Return a group as a line of a list."""
    began = min((worker.started_at for worker in state.alive), default=None)
    muted = found.is_muted(state.now)
    return GroupLine(
        id=found.fingerprint,
        name=found.name,
        task=found.task,
        reason=found.reason,
        type=found.type,
        title=found.title,
        frame=found.frame,
        first_at=found.first_at,
        last_at=found.last_at,
        last_job=str(found.last_job_id),
        dead=Count(found.dead, found.dead >= MOST),
        failures=found.failures,
        deaths=found.deaths,
        hours=tuple(found.hours),
        new_since=began if began is not None and found.first_at >= began else None,
        muted=muted,
        muted_at=found.muted_at if muted else None,
        muted_until=found.muted_until if muted else None,
    )


def group(site: Site, request: Request) -> Procedure[Page]:
    """Show one group and its dead jobs."""
    name = request.places["group"]
    state = yield from vitals(site)
    found: tuple[ErrorGroup, ...] = yield counters.groups(fingerprint=name, now=state.now)
    if not found:
        raise _unknown(site, name)
    sample = 0 if request.query.get("before") else jobs.SAMPLE
    page = yield from jobs.read(
        site, request, Filter(state=State.DEAD, caught=False, skipped=False, group=name), sample=sample
    )
    failure = yield from job.last_failure(site, found[0].last_job_id)
    shown = line(found[0], state)
    data = GroupPage(state.now, shown, failure, page.facets, page.q, page.items, page.before)
    return Page(f"({shown.dead} dead) {shown.name[:60]}", data, next={"before": page.before})


def act(site: Site, request: Request) -> Procedure[Moved]:
    """Mute a group, or take that back."""
    name, text = request.places["group"], request.form.get("span", "").strip()
    now, actor = site.app.now(), request.actor
    if request.action(("mute", "unmute"), f"group {name[:40]}", status=HTTPStatus.BAD_REQUEST) == "mute":
        span = parse_duration(text) if text else None
        done = yield counters.mute(name, span=span, actor=actor, now=now)
        note = f"is muted {f'for {text}' if text else 'until it fails again'}"
    else:
        done, note = (yield counters.unmute(name, actor=actor, now=now)), "is not muted any more"
    if not done:
        raise _unknown(site, name)
    return Moved(path_to("errors", name), f"group {name} {note}")


def _unknown(site: Site, name: str) -> Refusal:
    listed = command("errors list", site.reference)
    return Refusal(HTTPStatus.NOT_FOUND, f"there is no error group {name[:40]!r}: {listed}")
