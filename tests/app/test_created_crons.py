"""Crons that are created at run time: their options, their jobs, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redrive import App, Context
from redrive.errors import (
    CatchDefinitionError,
    ConfigurationError,
    PayloadError,
    ScheduleError,
    ScheduleNotFound,
    TaskDefinitionError,
)
from redrive.testing import VirtualClock, drain

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

HOURLY = "0 * * * *"


@pytest.fixture
def app() -> Iterator[App]:
    """Return an app in memory with a task and a refresh."""
    made = App("memory://", clock=VirtualClock(NOON + timedelta(seconds=30)))

    @made.task(queue="mail", priority=5, retry="3 1s")
    def report(context: Context, tenant: int) -> None:
        seen.append((tenant, context.occurs_at))

    @made.refresh("Refresh every 2 hours; retry after 1 minute")
    def prices() -> None:
        """Do nothing."""

    @made.cron("30 3 * * *")
    def nightly() -> None:
        """Do nothing."""

    seen: list[tuple[int, datetime | None]] = []
    made.seen = seen  # type: ignore[attr-defined]
    yield made
    made.close()


def test_a_created_cron_runs_its_task_with_its_arguments(app: App):
    """Each occurrence is a job of the task, with the arguments of the cron and the instant of the occurrence."""
    app.schedules.create("acme", HOURLY, "report", arguments={"tenant": 7})
    drain(app, within="2h")

    assert [(7, NOON + timedelta(hours=hour)) for hour in (1, 2)] == app.seen  # type: ignore[attr-defined]


def test_jobs_of_a_created_cron_have_the_options_of_the_task(app: App):
    """Queue, priority and retries are those of the task, unless the cron gives others."""
    plain = app.schedules.create("plain", HOURLY, app.tasks["report"], arguments={"tenant": 1}).definition
    other = app.schedules.create(
        "other", HOURLY, "report", arguments={"tenant": 1}, queue="slow", priority=9, retry="7 2s", tz="Europe/Kyiv"
    ).definition

    assert [("mail", 5, 4), ("slow", 9, 8)] == [
        (each.job.queue, each.job.priority, each.job.policy.policy.attempts)  # type: ignore[union-attr]
        for each in (plain, other)
    ]


def test_a_created_cron_can_be_operated_as_any(app: App):
    """Trigger, pause and resume work on a created cron."""
    app.schedules.create("acme", HOURLY, "report", arguments={"tenant": 7})
    app.schedules.trigger("acme")
    app.schedules.pause("acme")
    drain(app, within="2h")

    assert [7] == [tenant for tenant, _ in app.seen]  # type: ignore[attr-defined]
    assert None is app.schedules.resume("acme").paused_at


def test_a_deleted_cron_makes_no_further_job(app: App):
    """Deletion ends the occurrences; an unknown name is an error."""
    app.schedules.create("acme", HOURLY, "report", arguments={"tenant": 7})
    app.schedules.delete("acme")
    drain(app, within="2h")

    assert [] == app.seen  # type: ignore[attr-defined]
    with pytest.raises(ScheduleNotFound, match="acme"):
        app.schedules.delete("acme")


def test_crons_are_created_and_deleted_asynchronously(app: App):
    """The asynchronous forms do the same."""

    async def work() -> None:
        row = await app.schedules.acreate("acme", HOURLY, "report", arguments={"tenant": 7})
        assert row == await app.schedules.aget("acme")
        await app.schedules.adelete("acme", actor="amy")

    asyncio.run(work())
    assert [("amy", "delete")] == [(each.actor, each.action) for each in app.database.audit()][:1]


def test_a_drain_with_a_created_cron_needs_an_end(app: App):
    """Created crons never end, so `drain` asks for a limit."""
    bare = App("memory://", clock=VirtualClock(NOON))
    bare.schedules.create("acme", HOURLY, "elsewhere")
    with pytest.raises(ConfigurationError, match="limit it by within="):
        drain(bare)
    bare.close()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"name": "nightly"}, ScheduleError, "cron 'nightly': the code declares a schedule of this name"),
        ({"name": "a/b"}, ScheduleError, "cron 'a/b': a slash separates the name of a schedule from the key"),
        ({"name": ""}, ConfigurationError, "the name of a cron must be a text that is not empty"),
        ({"name": None}, ConfigurationError, "the name of a cron must be a text that is not empty"),
        ({"when": "61 * * * *"}, ScheduleError, "cron 'acme': "),
        ({"when": 5}, ScheduleError, "cron 'acme': a pattern is a text such as "),
        ({"when": "0 0 12 1 1 * 2020"}, ScheduleError, "cron 'acme': .* does not occur again"),
        ({"tz": "Mars/Olympus"}, ScheduleError, "cron 'acme': "),
        ({"window": "5 fortnights"}, ScheduleError, "cron 'acme': there is no unit 'fortnights'"),
        ({"overlap": "maybe"}, ScheduleError, "overlap is 'skip', 'queue', 'cancel', 'allow', not 'maybe'"),
        ({"catch_up": "all"}, TaskDefinitionError, "catch_up='all' starts several occurrences at once"),
        ({"task": "prices"}, ScheduleError, "cron 'acme': 'prices' is a refresh"),
        ({"task": 7}, ScheduleError, "cron 'acme': task is a task or the name of one, got 7"),
        ({"task": " "}, ConfigurationError, "takes the name of a task, got ' '"),
        ({"arguments": [7]}, ScheduleError, "cron 'acme': arguments are given by name, as {'cents': 7}, got"),
        ({"arguments": {}}, PayloadError, "tenant"),
        ({"arguments": {"tenant": "x"}}, PayloadError, "tenant"),
        ({"queue": ""}, ConfigurationError, "queue"),
        ({"priority": "high"}, ConfigurationError, "priority"),
        ({"retry": "2 1s catch nowhere"}, CatchDefinitionError, "there is no such task"),
    ],
)
def test_wrong_values_are_refused(app: App, changes: dict[str, Any], error: type[Exception], message: str):
    """Nothing is stored, and the message has what was wrong."""
    given = {"name": "acme", "when": HOURLY, "task": "report", "arguments": {"tenant": 7}} | changes
    with pytest.raises(error, match=message):
        app.schedules.create(**given)

    assert () == app.schedules.select()
