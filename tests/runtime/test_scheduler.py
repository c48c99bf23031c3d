"""The scheduler: declaration of schedules, start of occurrences, and rests between two passes."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Context
from redrive.engine.occurrence import OccurrenceDecision
from redrive.errors import StoreBusy
from redrive.runtime import scheduler as module
from redrive.runtime.fleet import Fleet
from redrive.runtime.scheduler import BUSY, NET, Scheduler, Turn, turn
from redrive.stores.operations import schedules
from redrive.stores.query import Query, Statements, writes
from redrive.testing import VirtualClock
from tests.runtime.helpers import app_on, came, ended, repeat, take, until, working

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

SECOND = "* * * * * *"


def nothing() -> None:
    """Do nothing, as the function of a cron."""


@writes
def forget(name: str) -> Statements[None]:
    """Delete the row of a schedule."""
    yield Query("schedule_delete", {"name": name})


class SettableClock:
    """A clock that a test sets, also backward, and that records how long the scheduler wants to rest."""

    def __init__(self) -> None:
        self.at = BEGIN + timedelta(milliseconds=500)
        self.rests: list[float] = []

    def now(self) -> datetime:
        """Return the present instant."""
        return self.at

    def monotonic(self) -> float:
        """Return the seconds since its start."""
        return (self.at - BEGIN).total_seconds()

    def sleep(self, seconds: float) -> None:
        """Fail, since no test sleeps."""
        raise NotImplementedError

    async def asleep(self, seconds: float) -> None:
        """Note it, and let others run."""
        self.rests.append(seconds)
        await VirtualClock().asleep(0)


@pytest.fixture
def clock() -> SettableClock:
    """Return the clock of the test."""
    return SettableClock()


@pytest.fixture
def app(clock: SettableClock) -> Iterator[App]:
    """Return an app in memory."""
    app = App("memory://", clock=clock)
    yield app
    app.close()


def look(app: App) -> Turn:
    """Run one pass."""
    return asyncio.run(turn(app, lambda: 0.5))


def declared(app: App) -> None:
    """Declare the schedules of the code."""
    asyncio.run(module.declare(app))


def rested(app: App, clock: SettableClock, count: int) -> list[float]:
    """Run a scheduler until it has rested this often; return the rests."""

    async def run() -> None:
        running = asyncio.create_task(repeat(Scheduler(app).duty, clock))
        await until(lambda: len(clock.rests) >= count)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(run())
    return clock.rests[:count]


# --------------------------------------------------------------------------------------------------------------- turns


def test_without_schedules_the_scheduler_is_idle(app: App):
    """Without schedules a pass starts no job and has no next time."""
    assert Turn(0, None) == look(app)


def test_a_pass_returns_the_time_of_the_next_occurrence(app: App, clock: SettableClock):
    """Return the earliest of the next occurrences."""
    app.cron("0 * * * *", name="hourly")(nothing)
    app.cron(SECOND, name="often")(nothing)
    declared(app)

    assert Turn(0, timedelta(milliseconds=500)) == look(app)


def test_a_pass_starts_due_crons(app: App, clock: SettableClock):
    """Start each cron separately; a second pass starts no job."""
    one, two = (app.cron(SECOND, name=name)(nothing) for name in ("one", "two"))
    declared(app)
    clock.at += timedelta(seconds=1)

    assert 2 == look(app).done
    assert Turn(0, timedelta(milliseconds=500)) == look(app)
    assert [BEGIN + timedelta(seconds=1)] * 2 == [each.occurs_at for cron in (one, two) for each in cron.occurrences()]


def test_undeclared_crons_are_not_started(app: App, clock: SettableClock):
    """Crons of another version of the code are neither started nor waited for."""
    app.cron(SECOND, name="lost")(nothing)
    declared(app)
    app.tasks.pop("lost")
    clock.at += timedelta(minutes=1)

    assert Turn(0, None) == look(app)
    assert () == app.jobs.select()


def test_schedules_that_the_database_has_lost_are_declared_again(app: App, clock: SettableClock):
    """Declare the crons again that are missing, as after the takeover of a standby that nothing shows."""
    app.cron(SECOND, name="tick")(nothing)
    scheduler = Scheduler(app)
    asyncio.run(scheduler.duty.step())
    app.store.run(forget("tick"))
    asyncio.run(scheduler.duty.step())
    clock.at += timedelta(seconds=1)
    asyncio.run(scheduler.duty.step())

    assert ["tick"] == [job.record.task for job in map(app.job, (1,))]


def test_a_clock_that_jumps_changes_nothing(app: App, clock: SettableClock):
    """After a step back of an hour no cron starts early, and no occurrence starts twice."""
    cron = app.cron("0 */4 * * *")(nothing)
    declared(app)
    due = BEGIN + timedelta(hours=4)
    clock.at = due + timedelta(seconds=1)
    fired = look(app).done
    turns = []
    for minutes in (-60, -1, 0, 30, -90, 60, 239):
        clock.at = due + timedelta(minutes=minutes)
        turns.append(look(app))

    assert (1, [due]) == (fired, [each.occurs_at for each in cron.occurrences()])
    assert [(0, timedelta(hours=4, minutes=-minutes)) for minutes in (-60, -1, 0, 30, -90, 60, 239)] == [
        (each.done, each.rest_for) for each in turns
    ]


def test_a_clock_that_was_set_back_does_not_stop_a_cron(
    app: App, clock: SettableClock, caplog: pytest.LogCaptureFixture
):
    """Set back by ten hours, it waits for the next occurrence by the new time, and starts none a second time."""
    cron = app.cron("0 */4 * * *", overlap="cancel")(nothing)
    clock.at = BEGIN + timedelta(hours=11)
    declared(app)
    clock.at = BEGIN + timedelta(hours=12)
    look(app)
    clock.at = BEGIN + timedelta(hours=2)
    with caplog.at_level(logging.WARNING, "redrive.worker"):
        asyncio.run(module.repair(app, lambda: 0.5, seen=True))
    turns = []
    for hour in (2, 4, 8, 12, 16):
        clock.at = BEGIN + timedelta(hours=hour)
        turns.append(look(app).done)

    assert ["cron nothing: the clock was set back; the next occurrence is 12:00:00 earlier"] == [
        each.getMessage() for each in caplog.records
    ]
    assert [0, 1, 1, 0, 1] == turns
    assert [4, 8, 12, 16] == sorted(each.occurs_at.hour for each in cron.occurrences())
    ((action, actor),) = [(each.action, each.actor) for each in app.database.audit()]
    assert ("clock_set_back", "redrive") == (action, actor)


def test_a_clock_that_was_set_back_does_not_stop_a_refresh(
    app: App, clock: SettableClock, caplog: pytest.LogCaptureFixture
):
    """If the present instant is before the last one, waiting, running and failed items are planned anew."""
    table = app.refresh("Refresh every 2 hours; allow 10 minutes; retry after 1 minute; spread starts over 1 minute")(
        nothing
    )
    table.keeping(at_once=False).track_many([(str(number),) for number in range(3)])
    table.track("runs")
    clock.at = BEGIN + timedelta(hours=100)

    async def run() -> None:
        running = asyncio.create_task(repeat(Scheduler(app).duty, clock))
        await until(lambda: len(clock.rests) >= 3)
        clock.at = BEGIN + timedelta(hours=1)
        seen = len(clock.rests)
        await until(lambda: len(clock.rests) >= seen + 3)
        running.cancel()
        await asyncio.wait([running])

    with caplog.at_level(logging.WARNING, "redrive.worker"):
        asyncio.run(run())

    assert "the clock of the database was set back by 4 days, 3:00:00" in [each.getMessage() for each in caplog.records]
    latest = BEGIN + timedelta(hours=1)
    for each in table.tracked():
        assert (each.started_at or latest) <= latest
        assert (each.refresh_at or latest) <= BEGIN + timedelta(hours=2, minutes=1)
        assert (each.deadline_at or latest) <= latest + timedelta(minutes=11)


@pytest.mark.parametrize("restarted", [True, False])
def test_a_worker_that_starts_sees_that_the_clock_was_set_back(app: App, clock: SettableClock, restarted: bool):
    """If no process saw the clock change, a wait longer than the refresh interval reveals it."""
    table = app.refresh("Refresh every 2 hours; retry after 1 minute")(nothing)
    clock.at = BEGIN + timedelta(days=999, minutes=30)
    table.keeping(at_once=False).track("k")
    clock.at = BEGIN + timedelta(minutes=30) if restarted else clock.at + timedelta(minutes=29)
    rested(app, clock, 1)

    assert BEGIN + timedelta(days=0 if restarted else 999, hours=2) == table.get("k").refresh_at


def test_outcomes_of_occurrences_are_logged(app: App, clock: SettableClock, caplog: pytest.LogCaptureFixture):
    """Starts are logged as information, skipped occurrences as warnings."""
    app.cron(SECOND, name="tick")(nothing)
    declared(app)
    with caplog.at_level(logging.INFO, "redrive.schedules"):
        for _ in range(2):
            clock.at += timedelta(seconds=1)
            look(app)

    assert [
        ("INFO", "the occurrence of tick at 2026-01-01 00:00:01 UTC is started as job 1"),
        (
            "WARNING",
            "the occurrence of tick at 2026-01-01 00:00:02 UTC is skipped: job 1 before it had not ended",
        ),
    ] == [(each.levelname, each.getMessage()) for each in caplog.records]


# --------------------------------------------------------------------------------------------------------------- rests


def test_the_scheduler_waits_until_the_next_due_time(app: App, clock: SettableClock):
    """To the instant of the next occurrence."""
    app.cron("0 * * * *")(nothing)
    clock.at = BEGIN + timedelta(minutes=59, seconds=59, milliseconds=800)

    assert [0.2] == rested(app, clock, 1)


def test_the_scheduler_waits_at_most_a_second(app: App, clock: SettableClock):
    """Rest a second at most: another process may have added a tracked item, or set a clock."""
    app.cron("0 * * * *")(nothing)

    assert [NET.total_seconds()] == rested(app, clock, 1)
    assert NET.total_seconds() == module._seconds(Turn(0, None), NET, Fleet())


def test_the_scheduler_continues_at_once_after_work(app: App, clock: SettableClock):
    """After the work of a turn there may be more."""
    cron = app.cron(SECOND, overlap="allow", catch_up="all")(nothing)
    declared(app)
    clock.at += timedelta(seconds=250)
    rested(app, clock, 1)

    assert 250 == len(cron.occurrences(limit=1000))


def test_the_scheduler_pauses_if_due_rows_cannot_be_started(
    app: App, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
):
    """Such as what a newer redrive has declared."""
    app.cron(SECOND)(nothing)
    declared(app)
    app.store.script(lambda cursor: cursor.execute("UPDATE redrive_schedules SET document = '{}'"))
    clock.at += timedelta(seconds=1)
    monkeypatch.setattr(module, "declare", declare_nothing)

    assert [BUSY.total_seconds()] * 3 == rested(app, clock, 3)
    assert () == app.jobs.select()


async def declare_nothing(app: App) -> None:
    """Leave the database as it is."""


def test_the_scheduler_survives_an_unreachable_database(
    app: App, clock: SettableClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """If the database is unreachable, the scheduler rests longer and longer, logs it once, and later continues."""
    app.cron("0 0 1 1 *")(nothing)
    failures = iter([StoreBusy("locked")] * 3)
    declare = module.declare

    async def declare_late(app: App) -> None:
        """Fail three times."""
        for error in failures:
            raise error
        await declare(app)

    monkeypatch.setattr(module, "declare", declare_late)
    with caplog.at_level(logging.WARNING, "redrive.worker"):
        rests = rested(app, clock, 4)

    assert [0.1, 0.2, 0.4, 1.0] == rests
    assert ["scheduling waits: locked"] == [each.getMessage() for each in caplog.records]
    assert ["nothing"] == [each.name for each in app.schedules.select()]


# -------------------------------------------------------------------------------------------------------------- worker


def test_a_worker_fires_crons(tmp_path: Path):
    """Workers start a cron of each second by the time of the machine."""
    app = app_on(tmp_path)
    ran = threading.Event()

    @app.cron(SECOND)
    def tick() -> None:
        ran.set()

    async def work() -> None:
        async with working(app):
            await came(ran)

    asyncio.run(work())

    assert OccurrenceDecision.STARTED is tick.occurrences()[-1].decision
    app.close()


def test_a_worker_without_schedules_declares_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Workers without crons and refreshes write nothing for them, and only look for crons that were created."""
    written: list[object] = []
    monkeypatch.setattr(schedules, "declare", written.append)
    app = app_on(tmp_path)
    looks = count_looks(app, monkeypatch)
    job = app.task(nothing).enqueue()

    async def work() -> None:
        async with working(app):
            await ended(job)
            await until(lambda: len(looks) >= LOOKS_AT_START)

    asyncio.run(work())

    assert ([], LOOKS_AT_START) == (written, len(looks))
    app.close()


LOOKS_AT_START = 2
"""One that repairs what a clock has moved, and the first one for due occurrences."""


def count_looks(app: App, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Record the queries for the due times of schedules."""
    looks: list[object] = []
    status = schedules.status

    def counted(**options: Any) -> Any:
        looks.append(options)
        return status(**options)

    monkeypatch.setattr(schedules, "status", counted)
    return looks


# ---------------------------------------------------------------------------------------------- created at run time


def test_created_crons_are_started_without_code(app: App, clock: SettableClock):
    """Crons that were created at run time are started by processes without code of them, also without the task."""
    app.schedules.create("acme", SECOND, "unheard", arguments={"tenant": 7})
    clock.at += timedelta(seconds=1)

    assert Turn(1, timedelta(milliseconds=-500)) == look(app)
    assert Turn(0, timedelta(milliseconds=500)) == look(app)
    (claim,) = take(app)
    assert ("unheard", b'{"tenant":7}') == (claim.task, claim.payload)


def test_a_process_without_schedules_looks_every_five_seconds(app: App, clock: SettableClock):
    """Rest for five seconds if the code has no schedule, and until the next occurrence if that is earlier."""
    assert [5.0] * 2 == rested(app, clock, 2)
    app.schedules.create("acme", "* * * * *", "unheard")
    clock.at = BEGIN + timedelta(seconds=58)
    clock.rests.clear()
    assert [2.0] == rested(app, clock, 1)


def test_a_cron_that_is_deleted_after_the_look_is_left_alone(
    app: App, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
):
    """Deletion between the look and the start is no error of the scheduler."""
    app.schedules.create("acme", SECOND, "unheard")
    clock.at += timedelta(seconds=1)
    status = asyncio.run(app.store.arun(schedules.status(now=app.now())))
    app.schedules.delete("acme")

    assert 0 == asyncio.run(module._fire(app, status[0]))
    assert () == app.jobs.select()


def test_a_declared_cron_replaces_a_created_one(app: App, clock: SettableClock, caplog: pytest.LogCaptureFixture):
    """Declaration of the name by a deployment wins, with a warning."""
    app.schedules.create("nightly", SECOND, "unheard")
    app.cron("0 3 * * *", name="nightly")(nothing)
    with caplog.at_level(logging.WARNING, "redrive.worker"):
        declared(app)

    assert ["the code declares the schedule nightly, which was created at run time: the code replaces it"] == [
        each.getMessage() for each in caplog.records
    ]
    assert False is app.schedules.get("nightly").created


def test_a_created_cron_follows_a_clock_that_was_set_back(app: App, clock: SettableClock):
    """Set back by ten hours, it waits for the next occurrence by the new time."""
    app.schedules.create("acme", "0 */4 * * *", "unheard")
    clock.at = BEGIN - timedelta(hours=10)
    asyncio.run(module.repair(app, lambda: 0.5, seen=True))

    assert BEGIN - timedelta(hours=8) == app.schedules.get("acme").next_at


def test_workers_that_run_already_start_a_cron_that_is_created(tmp_path: Path):
    """Two workers that started before the creation start each occurrence once, in the time that is documented."""
    app, other = app_on(tmp_path), app_on(tmp_path)
    ran: list[datetime | None] = []

    def tick(context: Context, tenant: int) -> None:
        ran.append(context.occurs_at)

    for each in (app, other):
        each.task(tick)

    async def work() -> None:
        async with working(app), working(other):
            await app.schedules.acreate("acme", SECOND, "tick", arguments={"tenant": 7}, overlap="allow")
            await until(lambda: len(ran) >= 3)
            await app.schedules.adelete("acme")

    asyncio.run(work())

    assert sorted(set(ran)) == sorted(ran)
    app.close()
    other.close()
