"""Crons: FTL's cases of its service and, on every store, the durable cases; with a clock that only tests advance."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.app.app import App
from redrive.app.attempts.context import Context
from redrive.app.recurring.cron import Cron
from redrive.engine.lifecycle import State
from redrive.engine.occurrence import Occurrence, OccurrenceDecision
from redrive.errors import TaskDefinitionError
from redrive.stores.operations import crons, schedules
from redrive.testing import VirtualClock, drain
from tests.conformance.scenarios.manual_workers import ManualWorker
from tests.stores.helpers import SHARED, STORES

SECOND = "* * * * * *"

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


def at(text: str) -> datetime:
    """Return an instant of UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.fixture
def clock() -> VirtualClock:
    """Return the clock of the test."""
    return VirtualClock(MIDNIGHT + timedelta(milliseconds=500))


@pytest.fixture(params=STORES)
def nodes(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> Iterator[list[App]]:
    """Yield the apps of three processes on one new store; a store with only one opening has the same app thrice."""
    url = STORES[request.param](tmp_path)
    apps = [App(url, clock=clock) for _ in range(3 if request.param in SHARED else 1)]
    yield apps * (3 // len(apps))
    for each in apps:
        each.close()


def nothing() -> None:
    """Do nothing, for a cron."""


def tick(app: App) -> list[Occurrence]:
    """Act as a scheduler at this instant: declare the crons, and fire the due ones."""
    app.store.run(schedules.declare([each.definition for each in app.schedules.declared.values()], now=app.now()))
    return [each for name in app.schedules.declared for each in fire(app, name)]


def fire(app: App, name: str, now: datetime | None = None) -> tuple[Occurrence, ...]:
    """Fire one cron, by the clock of the app or by another one."""
    return app.store.run(crons.fire(name, now=now or app.now()))


def started(cron: Cron[Any, Any, Any]) -> list[datetime]:
    """Return its occurrences that were started, in order."""
    return [each.occurs_at for each in reversed(cron.occurrences()) if each.decision is OccurrenceDecision.STARTED]


# ---------------------------------------------------------------------------------------------------- ftl, declarations


@pytest.mark.case("ftl.retry_placement_validation: retry on cron verb (not FSM, not subscriber)")
def test_crons_have_retries():
    """Crons take a retry directive; FTL's users asked for that too."""
    app = App("memory://")
    cron = app.cron(SECOND, retry="2 1s 3s")(nothing)

    assert [1.0, 2.0] == cron.policy.delays(2)
    assert cron.policy.durable() == cron.definition.job.policy.policy


@pytest.mark.case("ftl.retry_placement_validation: cron twice on one verb")
def test_a_function_has_one_cron():
    """Functions cannot be declared a cron twice, so no second pattern can contradict the first."""
    app = App("memory://")
    with pytest.raises(TaskDefinitionError, match="'nothing' is a task already"):
        app.cron("12h")(app.cron(SECOND)(nothing))  # type: ignore[call-overload]

    assert [SECOND] == [each.definition.pattern for each in app.schedules.declared.values() if isinstance(each, Cron)]


@pytest.mark.case("ftl.retry_placement_validation: cron verb with a request type")
def test_a_cron_has_no_request():
    """Crons take no arguments."""
    app = App("memory://")
    with pytest.raises(TaskDefinitionError, match="cron 'wrong_input' takes request: the clock has no arguments"):

        @app.cron(SECOND)
        def wrong_input(request: str) -> None: ...


@pytest.mark.case("ftl.retry_placement_validation: cron verb with a response type")
def test_a_cron_has_no_response():
    """Crons return nothing."""
    app = App("memory://")
    with pytest.raises(TaskDefinitionError, match="cron 'wrong_output' returns str"):

        @app.cron(SECOND)
        def wrong_output() -> str:
            return ""


# --------------------------------------------------------------------------------------------------------- ftl, service


@pytest.mark.case('ftl.cron_service: two jobs "* * * * * *" (6 fields = seconds first), mock clock')
def test_two_crons_each_second(app: App, clock: VirtualClock):
    """Each occurrence makes a job for now; where several have passed, one is made; no completion hook is needed."""
    manual_worker = ManualWorker(app, "A")
    for name in ("one", "two"):
        app.cron(SECOND, name=name)(nothing)

    assert [] == tick(app)
    assert {"one": MIDNIGHT + timedelta(seconds=1), "two": MIDNIGHT + timedelta(seconds=1)} == {
        each.name: each.next_at for each in app.schedules.select()
    }

    clock.advance("600ms")
    first, claims = tick(app), manual_worker.claim(5)
    for claim in claims:
        manual_worker.end(claim)

    assert [b"{}"] * 2 == [claim.payload for claim in claims]
    origins = [job.origin for job in reversed(app.jobs.select())]
    assert ["cron:one/2026-01-01T00:00:01Z", "cron:two/2026-01-01T00:00:01Z"] == origins
    assert {MIDNIGHT + timedelta(seconds=2)} == {each.next_at for each in app.schedules.select()}

    clock.advance("3300ms")
    second = tick(app)

    assert [MIDNIGHT + timedelta(seconds=each) for each in (1, 1, 4, 4)] == [each.occurs_at for each in first + second]
    assert {clock.now()} == {app.job(each.job_id or 0).record.scheduled_at for each in second}
    assert (4, 2) == (len(app.jobs.select()), app.jobs.stats().due)


@pytest.mark.case("ftl.cron_service: every-second job runs within 1s of deployment")
def test_a_cron_each_second_runs_within_a_second(app: App):
    """Crons each second have run a second after their deployment."""
    ran = []

    @app.cron(SECOND)
    def cron(context: Context) -> None:
        ran.append(context.occurs_at)

    drain(app, within="1s")

    assert [MIDNIGHT + timedelta(seconds=1)] == ran


@pytest.mark.case("ftl.cron_service: redeploy without the cron directive: old job must not fire again (checked 2s)")
def test_a_cron_that_is_removed_does_not_fire_again(app: App, clock: VirtualClock):
    """No job of a cron is started after the code has removed the cron."""
    cron = app.cron(SECOND)(nothing)
    drain(app, within="1s")
    app.tasks.pop("nothing")
    clock.advance("2s")
    drain(app, within="2s")

    assert [MIDNIGHT + timedelta(seconds=1)] == started(cron)
    assert (1, ["nothing"]) == (len(app.jobs.select()), [each.name for each in app.schedules.select()])


@pytest.mark.case("ftl.cron_service: 0/2 and 1/2 jobs both fire once within 5s")
def test_even_and_odd_seconds(app: App):
    """Steps may begin anywhere: one cron has the even seconds and the other one the odd ones."""
    even, odd = app.cron("0/2 * * * * *", name="even")(nothing), app.cron("1/2 * * * * *", name="odd")(nothing)
    drain(app, within="5s")

    assert ([2, 4], [1, 3, 5]) == tuple([each.second for each in started(cron)] for cron in (even, odd))


@pytest.mark.case("ftl.cron_service: exactly one pending/executing async call per job")
def test_a_cron_has_at_most_one_unfinished_job(app: App, clock: VirtualClock):
    """While the job of an occurrence waits or runs, the next occurrences are skipped."""
    manual_worker = ManualWorker(app, "A")
    app.cron(SECOND)(nothing)
    tick(app)
    decisions = []
    claim = None
    for moment in range(6):
        clock.advance("1s")
        decisions += [each.decision for each in tick(app)]
        claim = manual_worker.take() if moment == 2 else claim

        assert (1, 1) == (app.jobs.stats().unfinished, len(app.jobs.select()))

    manual_worker.end(claim)
    clock.advance("1s")

    assert ["started"] + ["skipped"] * 5 == decisions
    assert [OccurrenceDecision.STARTED] == [each.decision for each in tick(app)]


@pytest.mark.case(
    'ftl.cron_service: schedule whose last occurrence has come (e.g. "0 0 1 1 * 2025" after its only run is next)'
)
def test_the_last_occurrence_is_started(app: App):
    """Start an occurrence that has no successor."""
    cron = app.cron("1/58 0 0 1 1 * 2026")(nothing)
    drain(app, within="90d")

    assert [MIDNIGHT + timedelta(seconds=1), MIDNIGHT + timedelta(seconds=59)] == started(cron)
    assert (State.SUCCEEDED, None) == (app.jobs.select()[0].state, cron.state.next_at)


# -------------------------------------------------------------------------------------------------------------- durable


@pytest.mark.case("D54")
def test_an_occurrence_is_fired_once_with_any_clock(nodes: list[App], clock: VirtualClock):
    """Three schedulers, one with a clock that jumps: nothing before 04:00, then one job, and no second one."""
    app, due = nodes[0], MIDNIGHT + timedelta(hours=4)
    cron = app.cron("0 */4 * * *", name="report")(nothing)
    tick(app)
    jitter = [due - timedelta(seconds=40) + sign * timedelta(seconds=30) for sign in (1, -1) * 5]

    assert [()] * 10 == [fire(app, "report", now) for now in jitter]

    with ThreadPoolExecutor(len(nodes)) as pool:
        race = [*pool.map(lambda node: fire(node, "report", due), nodes)]
    back = [fire(node, "report", now) for node in nodes for now in (due - timedelta(hours=1), due)]

    assert [0, 0, 1] == sorted(len(each) for each in race)
    assert [()] * 6 == back
    assert [due] == started(cron)
    assert ["cron:report/2026-01-01T04:00:00Z"] == [job.origin for job in app.jobs.select()]
    assert due + timedelta(hours=4) == cron.state.next_at


@pytest.mark.case("D55")
@pytest.mark.parametrize(
    ("catch_up", "hours"), [("none", []), ("one", [3]), ("all", [1, 2, 3])], ids=["none", "latest", "all"]
)
def test_missed_occurrences_follow_the_catch_up(nodes: list[App], clock: VirtualClock, catch_up: Any, hours: list[int]):
    """After a downtime from 00:30 to 03:30 an hourly cron catches up; a backfill of that time starts the rest, once."""
    app = nodes[0]
    clock.advance("30m")
    down_at = clock.now()
    cron = app.cron("0 * * * *", catch_up=catch_up, overlap="allow")(nothing)
    tick(app)
    clock.advance("3h")
    tick(app)
    caught_up = started(cron)
    filled = [len(cron.backfill(down_at, clock.now())) for _ in range(2)]

    assert [MIDNIGHT + timedelta(hours=each) for each in hours] == caught_up
    assert [3 - len(hours), 0] == filled
    assert (3, 3) == (len(started(cron)), len(app.jobs.select()))


@pytest.mark.case("D55")
@pytest.mark.parametrize(
    ("pattern", "tz", "days"),
    [
        ("@daily", "UTC", {"2026-01-10": "2026-01-10T00:00", "2026-07-10": "2026-07-10T00:00"}),
        ("@daily", "America/New_York", {"2026-01-10": "2026-01-10T05:00", "2026-07-10": "2026-07-10T04:00"}),
        ("30 2 * * *", "America/New_York", {"2026-03-08": "2026-03-08T07:00"}),
        ("30 1 * * *", "America/New_York", {"2026-11-01": "2026-11-01T05:30"}),
    ],
    ids=["UTC", "midnight", "gap", "twice"],
)
def test_occurrences_are_those_of_the_wall_clock(
    nodes: list[App], clock: VirtualClock, pattern: str, tz: str, days: dict[str, str]
):
    """Midnight moves with the summer; a time in the gap fires once after it, and one that exists twice fires once."""
    app = nodes[0]
    cron = app.cron(pattern, tz=tz, catch_up="none")(nothing)
    tick(app)
    for day in days:
        clock.advance(at(day) - clock.now() - timedelta(seconds=1))
        tick(app)  # what was missed since the day before is left out
        drain(app, within="1d")

    assert [at(due) for due in days.values()] == started(cron)


@pytest.mark.case("D55")
def test_a_pause_does_not_flood(nodes: list[App], clock: VirtualClock):
    """After a pause of a day a cron fires nothing for that day, even with a catch-up of all."""
    app = nodes[0]
    cron = app.cron("0 * * * *", overlap="allow", catch_up="all", window="7d")(nothing)
    tick(app)
    cron.pause()
    clock.advance("1d")
    in_pause = tick(app)
    cron.resume()
    after = tick(app)
    clock.advance("1h")

    assert ([], []) == (in_pause, after)
    assert [MIDNIGHT + timedelta(hours=25)] == [each.occurs_at for each in tick(app)]
