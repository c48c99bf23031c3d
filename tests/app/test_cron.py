"""Crons: the options of a declaration, and the jobs of their occurrences."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import App, CatchRequest, Context, Cron
from redrive.engine.lifecycle import State
from redrive.engine.occurrence import OccurrenceDecision
from redrive.engine.origin import Kind
from redrive.errors import (
    CatchDefinitionError,
    ConfigurationError,
    PolicySyntaxError,
    ScheduleError,
    ScheduleNotFound,
    TaskDefinitionError,
)
from redrive.testing import VirtualClock, drain

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

HOURLY = "0 * * * *"


def hours(count: float) -> timedelta:
    """Return a span of hours."""
    return timedelta(hours=count)


def nothing() -> None:
    """Do nothing, without arguments."""


@pytest.fixture
def clock() -> VirtualClock:
    """Return a virtual clock that begins half a minute after noon."""
    return VirtualClock(NOON + timedelta(seconds=30))


@pytest.fixture
def deploy(clock: VirtualClock, tmp_path: Path) -> Iterator[Callable[[], App]]:
    """Gives a new version of the code on the same database, without tasks, at each call."""
    apps = []

    def make() -> App:
        apps.append(App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", clock=clock))
        return apps[-1]

    yield make
    for app in apps:
        app.close()


def decided(cron: Cron[Any, Any, Any]) -> list[tuple[datetime, OccurrenceDecision]]:
    """Return the decisions on occurrences, in order."""
    return [(each.occurs_at, each.decision) for each in reversed(cron.occurrences())]


def started(cron: Cron[Any, Any, Any]) -> list[datetime]:
    """Its occurrences that were started, in order."""
    return [at for at, decision in decided(cron) if decision is OccurrenceDecision.STARTED]


# ------------------------------------------------------------------------------------------------------- declarations


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("61 * * * *", "cron 'nothing': the cron expression '61 * * * *' is not understood: '61' is not"),
        ("* * * *", "it has 4 fields"),
        ("* * 30 2 *", "the cron expression '* * 30 2 *' never occurs"),
        ("@reboot", "of these names there are @hourly"),
        ("90s", "the number lies between 1 and 59"),
    ],
)
def test_an_invalid_pattern_is_refused(app: App, pattern: str, why: str):
    """Invalid patterns are refused by an error that names the cron and the wrong part."""
    with pytest.raises(ScheduleError) as refused:
        app.cron(pattern)(nothing)

    assert str(refused.value).startswith("cron 'nothing': ")
    assert why in str(refused.value)
    assert {} == app.tasks


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tz": "Mars/Base"}, "cron 'nothing': 'Mars/Base' is not a time zone"),
        ({"overlap": "maybe"}, "overlap is 'skip', 'queue', 'cancel', 'allow', not 'maybe'"),
        ({"catch_up": "some"}, "catch_up is 'one', 'all', 'none', not 'some'"),
        ({"catch_up": "all", "overlap": "allow", "window": "soon"}, "cron 'nothing': a duration cannot contain 's'"),
    ],
)
def test_an_invalid_option_is_refused(app: App, options: dict[str, Any], why: str):
    """Invalid options are refused by an error that names the valid ones."""
    with pytest.raises(ScheduleError) as refused:
        app.cron(HOURLY, **options)(nothing)

    assert why in str(refused.value)


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel"])
def test_catch_up_all_needs_an_overlap(app: App, overlap: Any):
    """``catch_up="all"`` needs ``overlap="allow"``, because several occurrences start at once."""
    with pytest.raises(TaskDefinitionError, match=r"cron 'nothing': catch_up='all' .* add overlap='allow'"):
        app.cron(HOURLY, catch_up="all", overlap=overlap)(nothing)


def test_an_invalid_retry_directive_is_refused(app: App):
    """As for any task."""
    with pytest.raises(PolicySyntaxError, match="'bla' is not a minimum backoff"):
        app.cron(HOURLY, retry="bla")(nothing)


def test_a_cron_takes_no_arguments(app: App):
    """Functions with arguments are refused as crons."""
    with pytest.raises(TaskDefinitionError, match="cron 'report' takes day: the clock has no arguments to give"):

        @app.cron(HOURLY)
        def report(day: str) -> None: ...


def test_a_cron_returns_nothing(app: App):
    """Functions with a result are refused as crons."""
    with pytest.raises(TaskDefinitionError, match="cron 'report' returns int, but nothing reads the result"):

        @app.cron(HOURLY)
        def report() -> int:
            return 7


def test_annotations_of_later_names_are_checked_later(app: App):
    """Annotations may name later definitions; `App.check` finds errors in them."""

    def report(day: Later) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - that is the point

    app.cron(HOURLY)(report)
    report.__globals__["Later"] = str
    try:
        with pytest.raises(TaskDefinitionError, match="cron 'report' takes day"):
            app.check()
    finally:
        del report.__globals__["Later"]


def test_a_cron_may_take_a_context_and_have_no_return_annotation(app: App):
    """Neither is an argument, nor a result."""

    @app.cron(HOURLY)
    def report(context: Context):
        return None

    app.check()

    assert [report] == list(app.schedules.declared.values())


def test_names_have_no_slash(app: App):
    """In the origin of a job a slash ends the name."""
    with pytest.raises(TaskDefinitionError, match="the cron 'daily/report' has a slash in its name"):
        app.cron(HOURLY, name="daily/report")(nothing)


def test_a_function_cannot_be_two_crons_or_tasks(app: App):
    """Neither a task becomes a cron, nor a cron a task."""
    with pytest.raises(TaskDefinitionError, match="'nothing' is a task already"):
        app.cron(HOURLY)(app.task(nothing))
    with pytest.raises(TaskDefinitionError):
        app.task(app.cron(HOURLY, name="other")(nothing))


def test_a_cron_has_a_pattern(app: App):
    """Decorators without parentheses are refused, because they would ignore the function."""
    with pytest.raises(TaskDefinitionError, match=r"got the function nothing: write @app.cron\(\"\*/5 \* \* \* \*\"\)"):
        app.cron(nothing)  # type: ignore[arg-type]


def test_a_cron_decorates_a_function(app: App):
    """Objects that are no functions are refused as crons."""
    with pytest.raises(TaskDefinitionError, match="3 is no function; a cron is made by"):
        app.cron(HOURLY)(3)  # type: ignore[call-overload]


def test_a_cron_can_still_be_called_and_enqueued(app: App):
    """Calling runs the function; a job that is enqueued by hand belongs to no occurrence."""
    seen = []

    @app.cron(HOURLY)
    def report(context: Context) -> None:
        seen.append(context.occurs_at)

    report.enqueue()
    drain(app, within="1s")

    assert [None] == seen
    assert () == report.occurrences()


# -------------------------------------------------------------------------------------------------------- occurrences


def test_each_occurrence_makes_one_job(app: App, clock: VirtualClock):
    """Jobs start at the times of the pattern, and their origin names the occurrence."""
    seen = []

    @app.cron("*/20 * * * *", queue="reports", priority=3)
    async def report(context: Context) -> None:
        seen.append((context.occurs_at, clock.now()))

    drained = drain(app, within="1h")
    due = [NOON + timedelta(minutes=20 * each) for each in (1, 2, 3)]

    assert [(at, at) for at in due] == seen
    assert (3, NOON + timedelta(minutes=80)) == (drained.attempts, drained.next_due_at)
    assert [(at, OccurrenceDecision.STARTED) for at in due] == decided(report)
    assert [("reports", 3, "cron:report/2026-03-01T13:00:00Z")] == [
        (job.queue, job.priority, job.origin) for job in app.jobs.select()[:1]
    ]


def test_a_drain_of_crons_is_bounded(app: App):
    """Drains of apps with crons need a bound, because crons do not end."""
    app.cron(HOURLY)(nothing)
    with pytest.raises(ConfigurationError, match="would never end: limit it by within="):
        drain(app)


def test_a_cron_has_no_key(app: App):
    """Contexts have the key of an item, or the occurrence of a cron, or neither."""
    seen = []

    def look(context: Context) -> None:
        seen.append((context.key, context.occurs_at))

    app.cron(HOURLY, name="cron")(look)
    app.task(name="task")(look).enqueue()
    drain(app, within="1h")

    assert [(None, None), (None, NOON + hours(1))] == seen


def test_retries_keep_the_occurrence(app: App, clock: VirtualClock):
    """Each attempt sees the occurrence, however late it is; the next occurrence comes on time."""
    seen = []

    @app.cron(HOURLY, retry="2 10m 10m")
    def report(context: Context) -> None:
        seen.append((context.occurs_at, context.attempt, clock.now()))
        if context.attempt < 3 and clock.now() < NOON + hours(2):
            raise ConnectionError("no route")

    drain(app, within="2h", sample=lambda: 1.0)
    one, two = NOON + hours(1), NOON + hours(2)

    assert [
        (one, 1, one),
        (one, 2, one + timedelta(minutes=10)),
        (one, 3, one + timedelta(minutes=20)),
        (two, 1, two),
    ] == seen


def test_a_failure_is_final_until_the_next_occurrence(app: App):
    """Without a directive the job of a failed occurrence is dead, and the next one starts all the same."""

    @app.cron(HOURLY)
    def report() -> None:
        raise ConnectionError("no route")

    drain(app, within="2h")

    assert [(State.DEAD, 1), (State.DEAD, 1)] == [(job.state, job.failures) for job in app.jobs.select()]


def test_a_catch_task_takes_what_failed(app: App):
    """Catch tasks of crons receive the error, and a request without arguments."""
    caught = []

    @app.cron(HOURLY, retry="1 1s catch alarm")
    def report() -> None:
        raise ConnectionError("no route")

    @app.task
    def alarm(request: CatchRequest[Any]) -> None:
        caught.append((request.error, request.request))

    drain(app, within="1h")

    assert [("no route", {})] == caught


def test_a_catch_task_must_fit_a_cron(app: App):
    """Missing catch tasks of crons are found by the check of the app."""

    @app.cron(HOURLY, retry="1 1s catch alarm")
    def report() -> None: ...

    with pytest.raises(CatchDefinitionError, match="no such task"):
        app.check()


@pytest.mark.parametrize(
    ("pattern", "due"),
    [
        ("30s", [NOON + timedelta(seconds=30), NOON + timedelta(seconds=60)]),
        ("12h", [NOON + hours(12), NOON + hours(24)]),
        ("Mon", [datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 9, tzinfo=UTC)]),
        ("@daily", [datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 3, tzinfo=UTC)]),
        ("*/20 * * * * *", [NOON + timedelta(seconds=40), NOON + timedelta(seconds=60)]),
        ("0 0 12 1 1 * 2027/1", [datetime(2027, 1, 1, 12, tzinfo=UTC), datetime(2028, 1, 1, 12, tzinfo=UTC)]),
    ],
)
def test_the_patterns_of_the_reference_are_accepted(app: App, pattern: str, due: list[datetime]):
    """FTL's shorthands, names, and six or seven fields."""
    cron = app.cron(pattern)(nothing)
    drain(app, within=due[1] - NOON)

    assert due == started(cron)[:2]


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        ("45m", 'an interval is "every 45 minutes", and what 45m means is "0 */45 * * * *"'),
        ("50s", 'an interval is "every 50 seconds", and what 50s means is "*/50 * * * * *"'),
        ("7h", 'an interval is "every 7 hours", and what 7h means is "0 0 */7 * * *"'),
    ],
)
def test_a_short_form_with_intervals_of_two_lengths_is_a_warning(app: App, pattern: str, advice: str):
    """45 minutes as a field of a cron expression are the minutes 0 and 45 of each hour."""
    with pytest.warns(RuntimeWarning, match=rf"^cron 'nothing': {pattern} begins anew after .*: {re.escape(advice)}$"):
        app.cron(pattern)(nothing)


def test_a_schedule_ends_with_its_last_occurrence(app: App):
    """After the last occurrence has started, nothing is planned any more (FTL never starts it)."""
    cron = app.cron("0 0 0 2 3 * 2026")(nothing)
    drained = drain(app, within="365d")

    assert [datetime(2026, 3, 2, tzinfo=UTC)] == started(cron)
    assert (None, None) == (drained.next_due_at, cron.state.next_at)


def test_a_pattern_that_lies_in_the_past_is_declared_and_never_fires(app: App):
    """Deployments after the last occurrence raise no error, but a warning that names the cron."""
    with pytest.warns(RuntimeWarning, match="cron 'nothing' has no occurrence any more"):
        cron = app.cron("0 0 1 1 * 2025")(nothing)
    drain(app, within="365d")

    assert (None, ()) == (cron.state.next_at, cron.occurrences())


# ------------------------------------------------------------------------------------------------ changes of the clock


def test_a_time_in_the_gap_fires_after_it():
    """In Kyiv 03:30 does not exist on 2026-03-29: it fires at 04:00, which is 01:00 UTC, and once."""
    app = App("memory://", clock=VirtualClock(datetime(2026, 3, 28, tzinfo=UTC)))
    cron = app.cron("30 3 * * *", tz="Europe/Kyiv")(nothing)
    drain(app, within="3d")

    assert [
        datetime(2026, 3, 28, 1, 30, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 0, tzinfo=UTC),
        datetime(2026, 3, 30, 0, 30, tzinfo=UTC),
    ] == started(cron)


def test_a_time_that_exists_twice_fires_once():
    """In Kyiv 03:30 exists twice on 2026-10-25: it fires at the first, which is 00:30 UTC."""
    app = App("memory://", clock=VirtualClock(datetime(2026, 10, 24, 12, tzinfo=UTC)))
    cron = app.cron("30 3 * * *", tz="Europe/Kyiv")(nothing)
    drain(app, within="2d")

    assert [datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 26, 1, 30, tzinfo=UTC)] == started(cron)


# -------------------------------------------------------------------------------------------------------- deployments


def test_an_unchanged_pattern_keeps_the_due_occurrence(deploy: Callable[[], App], clock: VirtualClock):
    """Deployments that only change the retries start the occurrences that became due before."""
    drain_of(deploy, HOURLY)
    clock.advance("3h")
    app = deploy()
    seen = []

    @app.cron(HOURLY, retry="3 1s")
    def report(context: Context) -> None:
        seen.append(context.occurs_at)

    drain(app, within="1s")

    assert [NOON + hours(3)] == seen
    assert 4 == app.jobs.select()[0].policy.attempts


def test_a_changed_pattern_replaces_the_due_occurrence(deploy: Callable[[], App], clock: VirtualClock):
    """New patterns count from the deployment on."""
    drain_of(deploy, HOURLY)
    clock.advance("3h")
    app = deploy()
    cron = app.cron("*/30 * * * *", name="report")(nothing)
    drain(app, within="1s")

    assert (NOON + hours(3.5), ()) == (cron.state.next_at, cron.occurrences())


def test_a_changed_time_zone_replaces_the_due_occurrence(deploy: Callable[[], App], clock: VirtualClock):
    """New time zones count from the deployment on."""
    drain_of(deploy, "0 15 * * *")
    app = deploy()
    cron = app.cron("0 15 * * *", tz="Europe/Kyiv", name="report")(nothing)
    drain(app, within="1s")

    assert NOON + hours(1) == cron.state.next_at


def test_a_cron_that_is_no_longer_declared_is_not_fired(deploy: Callable[[], App], clock: VirtualClock):
    """Workers start only crons of their code; others stay listed."""
    drain_of(deploy, HOURLY)
    app = deploy()
    app.cron(HOURLY, name="other")(nothing)
    drain(app, within="3h")

    assert ["other", "report"] == [each.name for each in app.schedules.select()]
    assert {"other"} == {job.task for job in app.jobs.select()}
    assert ["other"] == list(app.schedules.declared)


def test_a_cron_that_is_declared_again_catches_up(deploy: Callable[[], App], clock: VirtualClock):
    """Crons that were removed and added again continue where they were."""
    drain_of(deploy, HOURLY)
    deploy().cron(HOURLY, name="other")(nothing)
    clock.advance("3h")
    cron = drain_of(deploy, HOURLY)

    assert [NOON + hours(3)] == started(cron)


def drain_of(deploy: Callable[[], App], pattern: str) -> Cron[Any, Any, Any]:
    """Deploy a cron of this pattern called ``report``, and let a worker look at it."""
    app = deploy()
    cron = app.cron(pattern, name="report")(nothing)
    drain(app, within="1s")
    return cron


def test_the_document_contains_the_declaration(app: App):
    """Stored documents contain the declaration."""
    cron = app.cron(HOURLY, tz="Europe/Kyiv", overlap="queue", catch_up="none", window="2h")(nothing)
    drain(app, within="1s")

    assert (Kind.CRON, cron.definition) == (cron.state.kind, cron.state.definition)


# -------------------------------------------------------------------------------------------------------------- people


def test_methods_of_an_undeclared_cron_raise_an_error(app: App):
    """Before a worker has declared a cron, its methods raise an error with the cause."""
    cron = app.cron(HOURLY)(nothing)

    for act in (cron.trigger, cron.pause, cron.resume, lambda: cron.backfill(NOON, NOON), lambda: cron.state):
        with pytest.raises(ScheduleNotFound, match="no schedule 'nothing'; a worker creates it when it starts"):
            act()


def test_a_trigger_starts_a_cron_at_once(app: App, clock: VirtualClock):
    """It is an occurrence of its own, at this instant, even in a pause; what is planned stays."""
    cron = app.cron(HOURLY)(nothing)
    drain(app, within="1s")
    cron.pause()
    first, second = cron.trigger(actor="ann"), cron.trigger(actor="ann")
    drain(app, within="1s")

    assert (clock.now(), OccurrenceDecision.STARTED, "triggered by ann") == (
        first.occurs_at,
        first.decision,
        first.note,
    )
    assert clock.now() + timedelta(microseconds=1) == second.occurs_at
    assert [State.SUCCEEDED] * 2 == [app.job(each.job_id or 0).state for each in (first, second)]
    assert NOON + hours(1) == cron.state.next_at


def test_trigger_takes_no_planned_occurrence(app: App, clock: VirtualClock):
    """Triggered occurrences at the instant of a planned one do not replace it."""
    cron = app.cron(HOURLY, overlap="allow")(nothing)
    drain(app, within="1s")
    clock.advance("59m30s")
    cron.trigger()
    drain(app, within="1h")

    assert [
        NOON + hours(1),
        NOON + hours(1) + timedelta(microseconds=1),
        NOON + hours(2),
    ] == started(cron)


def test_a_paused_cron_starts_nothing_and_does_not_flood(app: App, clock: VirtualClock):
    """Occurrences of the time of the pause are left out for good."""
    cron = app.cron(HOURLY, overlap="allow", catch_up="all")(nothing)
    drain(app, within="1h")
    paused_at = cron.pause().paused_at
    drain(app, within="5h")
    resumed_at = clock.advance("5h30m")
    resumed = cron.resume()
    drain(app, within="1h")

    assert NOON + hours(1) == paused_at
    assert (None, resumed_at) == (resumed.paused_at, resumed.resumed_at)
    assert [NOON + hours(1), NOON + hours(7)] == started(cron)


def test_backfill_starts_skipped_occurrences(app: App):
    """All of a span, both ends included, but none twice; and a second time there is nothing to do."""
    cron = app.cron(HOURLY)(nothing)
    drain(app, within="2h")
    filled = cron.backfill(NOON - hours(2), NOON + hours(2), actor="ann")
    drain(app, within="1s")

    assert [NOON - hours(2), NOON - hours(1), NOON] == [each.occurs_at for each in filled]
    assert {"backfilled by ann"} == {each.note for each in filled}
    assert () == cron.backfill(NOON - hours(2), NOON + hours(2))
    assert 5 == app.jobs.stats().succeeded


def test_a_drain_continues_after_backfilled_occurrences(app: App, clock: VirtualClock):
    """Backfilled occurrences that are due now do not prevent later ones."""
    cron = app.cron(HOURLY)(nothing)
    drain(app, within="1s")
    clock.advance("59m30s")
    cron.backfill(clock.now(), clock.now())
    drain(app, within="1h")

    assert [NOON + hours(1), NOON + hours(2)] == started(cron)


@pytest.mark.parametrize(
    ("since", "until", "why"),
    [
        (NOON, NOON + hours(1), "backfill until 2026-03-01 13:00:00+00:00: that is not past"),
        (NOON - timedelta(days=3000), NOON, "there are more than 10,000 occurrences"),
        (NOON.replace(tzinfo=None), NOON, "since=datetime.datetime(2026, 3, 1, 12, 0) has no time zone"),
        (NOON, NOON.replace(tzinfo=None), "until=datetime.datetime(2026, 3, 1, 12, 0) has no time zone"),
    ],
)
def test_an_invalid_backfill_is_refused(app: App, since: datetime, until: datetime, why: str):
    """Invalid spans are refused with the cause, and nothing is started."""
    cron = app.cron(HOURLY)(nothing)
    drain(app, within="1s")
    with pytest.raises(ScheduleError) as refused:
        cron.backfill(since, until)

    assert why in str(refused.value)
    assert () == app.jobs.select()


def test_occurrences_are_read_by_pages(app: App):
    """Pages begin with the latest occurrence; the next one begins before the last of this page."""
    cron = app.cron(HOURLY)(nothing)
    drain(app, within="4h")
    page = cron.occurrences(limit=2)
    rest = cron.occurrences(before=page[-1].occurs_at)

    assert [NOON + hours(each) for each in (4, 3)] == [each.occurs_at for each in page]
    assert [NOON + hours(each) for each in (2, 1)] == [each.occurs_at for each in rest]
    with pytest.raises(ScheduleError, match="before=.* has no time zone"):
        cron.occurrences(before=NOON.replace(tzinfo=None))


def test_all_methods_have_asynchronous_forms(app: App, clock: VirtualClock):
    """Each form with an ``a`` does what the other one does."""
    cron = app.cron(HOURLY)(nothing)
    drain(app, within="1s")

    async def act() -> None:
        assert (await cron.apause(actor="ann")).paused_at == clock.now()
        assert (await cron.astate()).paused_at == clock.now()
        assert (await cron.aresume(actor="ann")).paused_at is None
        filled = await cron.abackfill(NOON - hours(1), NOON, actor="ann")
        assert [NOON - hours(1), NOON] == [each.occurs_at for each in filled]
        triggered = await cron.atrigger(actor="ann")
        assert (triggered,) == await cron.aoccurrences(limit=1)

    asyncio.run(act())

    assert ["trigger", "backfill", "resume", "pause"] == [each.action for each in app.database.audit()]
    assert {"ann"} == {each.actor for each in app.database.audit()}


# ------------------------------------------------------------------------------------------------------------- overlap


def long_one(app: App, clock: VirtualClock, overlap: Any) -> Cron[Any, Any, Any]:
    """Return an hourly cron with a first job that is retried for three and a half hours."""

    @app.cron(HOURLY, overlap=overlap, retry="100 30m 30m")
    def report(context: Context) -> None:
        if context.occurs_at == NOON + hours(1) and clock.now() < NOON + hours(3.5):
            raise ConnectionError("no route")

    drain(app, within="5h", sample=lambda: 1.0)
    return report


@pytest.mark.parametrize(
    ("overlap", "decisions"),
    [
        ("skip", ["started", "skipped", "skipped", "started", "started"]),
        ("queue", ["started", "started", "skipped", "started", "started"]),
        ("cancel", ["started"] * 5),
        ("allow", ["started"] * 5),
    ],
)
def test_an_occurrence_during_its_predecessor_follows_the_overlap(
    app: App, clock: VirtualClock, overlap: str, decisions: list[str]
):
    """It is left out, waits (one at most), takes its place, or runs beside it."""
    cron = long_one(app, clock, overlap)

    assert decisions == [decision for _, decision in decided(cron)]
    assert overlap == cron.definition.overlap


def test_a_skipped_occurrence_names_the_running_job(app: App, clock: VirtualClock):
    """It names the job that was in the way."""
    _, _, _, skipped, first = long_one(app, clock, "skip").occurrences()

    assert f"job {first.job_id} before it had not ended" == skipped.note


def test_a_queued_occurrence_starts_when_its_predecessor_ends(app: App, clock: VirtualClock):
    """Queued occurrences start when the previous job ends, with a note of the time; the next ones are skipped."""
    occurrences = long_one(app, clock, "queue").occurrences()
    _, _, left_out, waited, first = occurrences

    assert "waited 1:30:00 for the one before it" == waited.note
    assert NOON + hours(3.5) == waited.decided_at
    assert f"job {first.job_id} before it had not ended, and 2026-03-01 14:00:00 UTC waits" == left_out.note


def test_a_superseded_job_is_cancelled(app: App, clock: VirtualClock):
    """Superseded jobs end as cancelled, with the reason."""
    cron = long_one(app, clock, "cancel")
    first = app.job(cron.occurrences()[-1].job_id or 0)

    assert (State.CANCELLED, "the next occurrence of report has come") == (first.state, first.record.note)


def test_a_job_that_waits_for_its_jitter_goes_on_in_a_pause(app: App, clock: VirtualClock):
    """A pause is for occurrences: a job that was made before it is no longer one of them."""
    ran: list[datetime] = []
    report = app.cron(HOURLY, jitter="50m", name="report")(lambda: ran.append(clock.now()))
    drain(app, within=NOON + hours(1) - clock.now())
    assert [] == ran
    report.pause()
    drain(app, within="3h")

    assert [report.definition.starts_at(NOON + hours(1))] == ran


def test_a_queued_occurrence_does_not_start_in_a_pause(app: App, clock: VirtualClock):
    """Its turn came while the cron was paused, and that is over."""

    @app.cron(HOURLY, overlap="queue", retry="100 30m 30m")
    def report(context: Context) -> None:
        if context.occurs_at == NOON + hours(1) and clock.now() < NOON + hours(2.5):
            raise ConnectionError("no route")

    drain(app, within="2h", sample=lambda: 1.0)
    report.pause()
    drain(app, within="2h", sample=lambda: 1.0)

    assert ("skipped", "the job before it ended while the cron was paused") == (
        report.occurrences()[0].decision,
        report.occurrences()[0].note,
    )
    assert [NOON + hours(1)] == started(report)


# ------------------------------------------------------------------------------------------------------------ catch up


@pytest.mark.parametrize(
    ("catch_up", "window", "decisions"),
    [
        ("one", "1d", [(3, "started"), (4, "started")]),
        ("none", "1d", [(3, "missed"), (4, "started")]),
        ("all", "1d", [(1, "started"), (2, "started"), (3, "started"), (4, "started")]),
        ("all", "2h", [(1, "missed"), (2, "started"), (3, "started"), (4, "started")]),
    ],
)
def test_missed_occurrences_follow_the_catch_up_setting(
    deploy: Callable[[], App], clock: VirtualClock, catch_up: Any, window: str, decisions: list[tuple[int, str]]
):
    """Of missed occurrences the last is started, none, or all within the window; later ones start normally."""
    options: dict[str, Any] = {"catch_up": catch_up, "window": window, "overlap": "allow", "name": "report"}
    before = deploy()
    before.cron(HOURLY, **options)(nothing)
    drain(before, within="1s")
    clock.advance("3h30m")
    app = deploy()
    cron = app.cron(HOURLY, **options)(nothing)
    drain(app, within="1h")

    assert [(NOON + hours(hour), decision) for hour, decision in decisions] == decided(cron)


def test_an_absence_of_less_than_a_minute_misses_no_occurrence(deploy: Callable[[], App], clock: VirtualClock):
    """With ``catch_up="none"`` an occurrence is started that is at most a minute late: a deployment is no outage."""
    app = deploy()
    cron = app.cron(HOURLY, catch_up="none", name="report")(nothing)
    drain(app, within="1s")
    clock.advance("1h20s")
    drain(app, within="1s")

    assert [(NOON + hours(1), OccurrenceDecision.STARTED)] == decided(cron)


def test_a_cron_has_arguments(app: App):
    """Each job has the arguments of the cron, triggered and backfilled ones too."""
    seen: list[tuple[str, int]] = []

    @app.cron("0 * * * *", arguments={"kind": "daily"})
    def report(kind: str, count: int = 3) -> None:
        seen.append((kind, count))

    drain(app, within="1h")
    report.trigger()
    drain(app, within="1m")

    assert {("daily", 3)} == set(seen)
    assert len(report.occurrences()) == len(seen)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"kind": 5}, "Expected `str`, got `int`"),
        ({"sort": "daily"}, "argument 'sort' is unknown; parameters: kind"),
        ({}, "argument 'kind' is missing"),
    ],
)
def test_arguments_of_a_cron_are_checked_at_import(app: App, arguments: dict[str, object], why: str):
    """Arguments that do not match the annotations are refused with the name of the cron."""
    with pytest.raises(TaskDefinitionError, match="cron 'report': arguments=.*" + why):

        @app.cron("0 9 * * *", arguments=arguments)
        def report(kind: str) -> None:
            """Do nothing."""
