"""The playground: what a policy does, from its text, and two of them side by side. It changes and stores nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec

from redrive.app.protocol import Procedure
from redrive.errors import ConfigurationError, PolicyError, ScheduleSyntaxError
from redrive.operate.charts.svg import Picture
from redrive.operate.exchange import LONGEST, Fault, Page, Refusal, Request, Site
from redrive.stores.operations import clock

# Each command loads the table of views, and most need no drawings: `redrive.plan` is imported where one is asked for.
if TYPE_CHECKING:
    from redrive.plan.rows import Band, Row, Section

#: Retries of a kind of failures, and attempts of a refresh, that are drawn.
SHOWN: Final = 20

#: Planned refreshes that are listed.
NEXT: Final = 5

#: Policies that the page offers as a start.
EXAMPLES: Final = (
    "5 1s catch recover",
    "10 5s 1m catch recover",
    "3 10m",
    "Refresh every 2 hours; retry 3 times every 5 minutes; give up after 1 day without success",
)


class PolicyQuery(msgspec.Struct, frozen=True, gc=False):
    """The policies that are shown.

    Attributes:
        p: a directive, a policy as JSON, or a refresh policy in English.
        p2: a second one.
    """

    p: str | None = None
    p2: str | None = None


class Retry(msgspec.Struct, frozen=True, gc=False):
    """A retry of a policy.

    Attributes:
        wait: before it, as a text: ``4s``, or ``2s-4s`` if it depends on jitter.
        wait_seconds: the shortest wait, the one before jitter, and the longest.
        at: when it comes, from the first failure on, as a text.
        at_seconds: likewise, as numbers.
        in_time: whether it is before the deadline: yes, maybe, no or deferred.
    """

    number: int
    wait: str
    wait_seconds: tuple[float, float, float]
    at: str
    at_seconds: tuple[float, float, float]
    in_time: str


class RetrySection(msgspec.Struct, frozen=True, gc=False):
    """The retries after one kind of failures.

    Attributes:
        name: the kind, and how its attempts are counted.
        rest: what follows the last retry; empty if nothing does.
    """

    name: str
    retries: tuple[Retry, ...]
    rest: str


class RefreshAttempt(msgspec.Struct, frozen=True, gc=False):
    """A simulated attempt of a refresh that times out."""

    name: str
    started_at: datetime
    ended_at: datetime
    result: str


class PolicyView(msgspec.Struct, frozen=True, gc=False):
    """A policy that was read from a text, or why it could not be read.

    Attributes:
        text: as given.
        problem: what is wrong with it; a caret stands below the wrong part.
        kind: ``retry`` or ``refresh``; None if it could not be read.
        title: its directive, or its first sentence.
        sentences: what it does.
        sections: the retries of a retry policy, for each kind of failures.
        attempts: the first attempts of a refresh, if each times out.
        next: the next planned refreshes.
        notes: what the picture cannot show, and warnings.
        picture: an SVG element.
    """

    text: str
    problem: str | None = None
    kind: str | None = None
    title: str = ""
    sentences: tuple[str, ...] = ()
    sections: tuple[RetrySection, ...] = ()
    attempts: tuple[RefreshAttempt, ...] = ()
    next: tuple[datetime, ...] = ()
    notes: tuple[str, ...] = ()
    picture: str = ""

    @property
    def drawing(self) -> Picture:
        """The picture, for a template."""
        return Picture(self.picture)


class Playground(msgspec.Struct, frozen=True, gc=False):
    """The policies of a page.

    Attributes:
        policies: at most two.
        examples: texts to begin with.
    """

    policies: tuple[PolicyView, ...]
    examples: tuple[str, ...] = EXAMPLES


def playground(site: Site, request: Request) -> Procedure[Page]:
    """Show what the policies ``p`` and ``p2`` do."""
    now: datetime = yield clock.present(site.app.now())
    given = {name: text for name in ("p", "p2") if (text := request.query.get(name, "").strip())}
    # It may take some milliseconds, in which the server answers others.
    seen: list[PolicyView] = yield partial(list, map(partial(view_of, now=now), given.values()))
    faults = [Fault(name, each.problem) for name, each in zip(given, seen, strict=True) if each.problem]
    title = seen[0].title or "a policy cannot be read" if seen else "Playground"
    refusal = Refusal(HTTPStatus.BAD_REQUEST, faults[0].message, faults=faults) if faults else None
    return Page(title, Playground(tuple(seen)), refusal)


def view_of(text: str, *, now: datetime) -> PolicyView:
    """Read a policy: a directive, JSON, or a refresh policy in English."""
    from redrive.plan.gantt import is_english

    if len(text) > LONGEST:
        return PolicyView(text[:LONGEST], f"a policy has at most {LONGEST} characters here; `redrive plan` reads files")
    # One line of a form has the sentences of a policy with semicolons, or a text area has lines.
    text = text.replace("\r\n", "\n")
    try:
        return _refresh(text, now) if is_english(text) else _retry(text)
    except ScheduleSyntaxError as error:
        line = [*text.split("\n"), ""][error.line - 1]
        return PolicyView(text, f"{error}\n{line}\n{' ' * (error.column - 1)}^")
    except (ConfigurationError, PolicyError) as error:
        return PolicyView(text, str(error))


def _retry(text: str) -> PolicyView:
    from redrive.plan.layout import catching
    from redrive.plan.read import read_policy
    from redrive.plan.rows import plan_of
    from redrive.plan.svg import as_element

    read = read_policy("", text)
    plan = plan_of(read.policy, title=read.name, retries=SHOWN)
    return PolicyView(
        text,
        kind="retry",
        title=plan.title,
        sentences=tuple(filter(None, (plan.sentence, catching(plan)))),
        sections=tuple(map(_section, plan.sections)),
        notes=plan.notes,
        picture=as_element(plan),
    )


def _section(section: Section) -> RetrySection:
    from redrive.plan.layout import titled

    return RetrySection(titled(section), tuple(map(_row, section.rows)), section.rest)


def _row(row: Row) -> Retry:
    from redrive.plan.layout import figure

    return Retry(row.retry, figure(row.wait), _seconds(row.wait), figure(row.at), _seconds(row.at), row.in_time.value)


def _seconds(band: Band) -> tuple[float, float, float]:
    return (band.low.total_seconds(), band.nominal.total_seconds(), band.high.total_seconds())


def _refresh(text: str, now: datetime) -> PolicyView:
    from redrive.plan import gantt
    from redrive.plan.understood import sentences

    chart = gantt.chart_of(text, answers=None, start=None, most=SHOWN, now=now)
    schedule = chart.policy.schedule
    planned: Iterator[datetime] = iter(()) if schedule is None else schedule.since(chart.begin)
    return PolicyView(
        text,
        kind="refresh",
        title=chart.title,
        sentences=(*sentences(chart.found), gantt.ending(chart)),
        attempts=tuple(
            RefreshAttempt(gantt.name(each), each.began, each.ended, gantt.result(each))
            for each in chart.played.attempts
        ),
        next=tuple(itertools.islice(planned, NEXT)),
        notes=chart.warnings,
        picture=gantt.as_element(chart),
    )
