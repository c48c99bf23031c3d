"""The calendar of a cron: planned and decided occurrences, clock changes, and dense days."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import redrive
from redrive.operate.charts.calendar import DAYS, MOST, Day, Mark, draw, week
from redrive.schedule import Schedule
from redrive.testing import VirtualClock, drain
from redrive.web import NoAuth, create_app
from tests.web.client import Client

KYIV = ZoneInfo("Europe/Kyiv")
EARLY = datetime(2020, 1, 1, tzinfo=UTC)


def _week(pattern: str, first: date, **given: Any) -> tuple[Day, ...]:
    schedule = Schedule.cron(pattern, tz="Europe/Kyiv")
    return week(schedule, given.pop("decided", ()), first, KYIV, **{"now": EARLY, "paused": False, **given})


def test_a_day_without_an_hour_shows_the_shifted_time():
    """In spring the day has 23 hours and is marked, and the time that does not exist is shifted."""
    days = _week("30 3 * * *", date(2026, 3, 23))

    assert [24.0] * 6 + [23.0] == [each.hours for each in days]
    assert ("clocks go forward: 23 hours", None) == (days[6].change, days[5].change)
    assert ["03:30"] * 6 + ["04:00"] == [f"{each.marks[0].local:%H:%M}" for each in days]


def test_a_day_with_an_hour_twice_shows_both():
    """In autumn the day has 25 hours, and an hourly cron occurs in both of the equal hours."""
    days = _week("0 * * * *", date(2026, 10, 19))

    assert (25.0, "clocks go back: 25 hours") == (days[6].hours, days[6].change)
    assert (24, 25) == (len(days[5].marks), len(days[6].marks))
    assert 2 == len([each for each in days[6].marks if f"{each.local:%H:%M}" == "03:00"])


def test_dense_days_are_a_stripe():
    """Days with more occurrences than can be drawn one by one are one stripe, and their marks are limited."""
    days = _week("* * * * * *", date(2026, 11, 23))

    assert [(True, MOST)] * DAYS == [(each.dense, len(each.marks)) for each in days]
    assert DAYS == draw(days).count('class="stripe"')


def test_a_dense_day_keeps_what_was_not_started():
    """Skipped and missed occurrences of a dense day are shown with their reasons, on the stripe."""
    begin = datetime(2026, 11, 22, 22, tzinfo=UTC)
    times = [begin + timedelta(minutes=each) for each in range(300)]
    states = ["skipped" if each == times[250] else "started" for each in times]
    decided = [Mark(at, at.astimezone(KYIV), state, state) for at, state in zip(times, states, strict=True)]
    first, *_ = _week("* * * * *", date(2026, 11, 23), decided=decided)

    assert (True, MOST, [times[250]]) == (first.dense, len(first.marks), [each.at for each in first.exceptions])
    assert "04:10:00 EET skipped: skipped</title>○" in draw([first])


def test_nothing_is_planned_in_a_pause_or_in_the_past():
    """Occurrences are planned from the present on, and none is during a pause."""
    now = datetime(2026, 11, 25, 12, tzinfo=UTC)
    going = _week("0 3 * * *", date(2026, 11, 23), now=now)

    assert [0, 0, 0, 1, 1, 1, 1] == [len(each.marks) for each in going]
    assert [0] * DAYS == [len(each.marks) for each in _week("0 3 * * *", date(2026, 11, 23), now=now, paused=True)]


@pytest.fixture
def client() -> Iterator[Client]:
    """Return a client of a dashboard with a cron that has occurred for two days."""
    app = redrive.App("memory://", clock=VirtualClock())

    @app.cron("0 3 * * *", tz="Europe/Kyiv")
    def nightly() -> None:
        """Do nothing."""

    @app.refresh("Refresh every hour")
    def table() -> None:
        """Do nothing."""

    app.open()
    drain(app, within=timedelta(days=2))
    yield Client(create_app(app, auth=NoAuth()))
    app.close()


def test_a_week_has_decided_and_planned_occurrences(client: Client):
    """The days begin on Monday; decided occurrences have their decision, later ones are planned."""
    data = client.get("/api/v1/schedules/nightly/calendar").json()

    assert ("2025-12-29", "2025-12-22", "2026-01-05") == (data["week"], data["before"], data["after"])
    assert [[], [], [], ["started"], ["started"], ["planned"], ["planned"]] == [
        [each["state"] for each in day["marks"]] for day in data["days"]
    ]
    assert {"03:00:00"} == {each["local"][11:19] for day in data["days"] for each in day["marks"]}


def test_the_time_zone_can_be_another(client: Client):
    """In another time zone the same instants have other times and days."""
    data = client.get("/api/v1/schedules/nightly/calendar?tz=America/New_York").json()

    assert ["Europe/Kyiv", "UTC", "America/New_York"] == data["zones"]
    assert {"20:00:00"} == {each["local"][11:19] for day in data["days"] for each in day["marks"]}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/schedules/nightly/calendar?week=2026-03-29", 200),
        ("/schedules/nightly/calendar?week=yesterday", 400),
        ("/schedules/nightly/calendar?week=9999-12-31", 400),
        ("/schedules/nightly/calendar?tz=Mars/Base", 400),
        ("/schedules/nightly/calendar?tz=../../etc/passwd", 400),
        ("/schedules/table/calendar", 404),
        ("/schedules/none/calendar", 404),
    ],
)
def test_wrong_weeks_and_zones_are_refused(client: Client, path: str, status: int):
    """Wrong days and time zones are 400 with a sentence, and a refresh has no calendar."""
    response = client.get(path)

    assert status == response.status_code
    assert "</html>" in response.text
