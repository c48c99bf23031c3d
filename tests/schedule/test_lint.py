"""Warnings about policies that are valid but questionable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from redrive.schedule import CronExpression, Gap, RecurrenceRule, RefreshPolicy, Schedule
from redrive.schedule.lint import MOST, Gaps, gaps, leaps

NOW = datetime(2026, 11, 22, 4, 0, 7, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def warned(text: str, now: datetime | None = NOW) -> tuple[str, ...]:
    """Return the warnings about a policy in English."""
    return RefreshPolicy.parse(text).lint(now=now)


@pytest.mark.parametrize(
    "text",
    [
        "Refresh every 2 hours; give up after one week",
        "Refresh every 2 hours; allow 30 minutes; retry after 20 minutes",
        "Send a request; retry immediately",
        "Refresh every 2 hours; allow 1 hour; retry after 59 minutes; retry only at scheduled refreshes",
        (
            "Refresh twice per day at 6 AM and 4 PM; allow 1 hour; retry immediately, then after 1 minute, 5 hours; "
            "on the fourth failure, reset attempt_no and wait until the next scheduled refresh; give up after one week"
        ),
    ],
)
def test_a_sound_policy_has_no_warnings(text: str):
    """Retries fit, there is an end to them, and more planned refreshes are to come."""
    assert () == warned(text)


def test_retries_that_never_fit():
    """If two hours are allowed for a refresh every two hours, no retry ever fits."""
    (warning,) = warned("Refresh every 2 hours; allow 2 hours; retry immediately, then after 1 minute")

    assert warning == (
        "No retry can ever be made between two planned refreshes: the shortest delay, 0 seconds, and the timeout, "
        "2 hours, are together no shorter than the gap, 2 hours. Allow less time, or keep retrying until it succeeds."
    )


@pytest.mark.parametrize(
    ("strategy", "consequence"),
    [
        ("Keep refreshes aligned with the schedule", "later retries wait for a planned refresh"),
        ("Retry until the next scheduled refresh", "the next planned refresh counts its attempts anew before"),
        ("Retry or refresh whichever comes first", "some retries are made at a planned refresh, and sooner"),
        (
            "Make retries even when they overlap with scheduled refreshes",
            "planned refreshes are left out until then",
        ),
    ],
)
def test_retries_that_take_longer_than_the_gap(strategy: str, consequence: str):
    """Warnings name the effect on retries that take longer than the gap."""
    first, *_ = warned(f"Refresh every 2 hours; allow 1 hour; retry after 1 minute, 5 minutes; {strategy}")

    assert first.startswith(
        "If each attempt times out, the last one ends after 3 hours and 6 minutes, and planned refreshes lie 2 hours "
        f"apart: {consequence}"
    )


def test_the_shortest_gap_counts_for_the_chain_and_the_longest_for_one_retry():
    """Between 6 AM and 4 PM it is too long; in the night there is room for it."""
    (warning,) = warned("Refresh twice per day at 6 AM and 4 PM; allow 5 hours; retry after 1 hour")

    assert "ends after 11 hours, and planned refreshes lie 10 hours apart" in warning


@pytest.mark.parametrize("span", ["1 day", "23 hours"])
def test_a_window_that_ends_before_the_next_planned_refresh(span: str):
    """At its very instant it is given up before it is tried."""
    (warning,) = warned(f"Refresh daily; give up after {span}")

    assert warning == (
        f"It gives up after {span} without success, and planned refreshes lie up to 1 day apart: it can be given up "
        "before the next one is tried. Wait longer than that."
    )
    assert () == warned("Refresh daily; give up after 25 hours")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Refresh daily; retry after 1 hour; then every 2 hours", "it retries every 2 hours for ever"),
        ("Send a request; retry after 1 hour; then every 2 hours", "it retries every 2 hours for ever"),
        (
            "Refresh daily; retry after 1 hour; on the second failure, wait until the next scheduled refresh",
            "after the last retry it waits for the next planned refresh, and counts anew",
        ),
        (
            "Refresh hourly; allow 20 minutes; retry after 1 minute, 1 minute; retry until the next scheduled refresh",
            "planned refreshes count anew before all retries are used up",
        ),
    ],
)
def test_retries_without_an_end(text: str, why: str):
    """Retries without an end cause a warning, unless there is a limit in time."""
    expected = f'Nothing ends it when nothing succeeds: {why}. Add a limit, such as "Give up after one week".'

    assert expected == warned(text)[-1]
    assert not any(each.startswith("Nothing ends it") for each in warned(f"{text}; give up after 1 week"))


def test_retries_that_are_used_up_before_the_next_planned_refresh_have_an_end():
    """Whatever is to become of those that do not fit."""
    assert () == warned("Refresh daily; retry after 1 minute; retry until the next scheduled refresh")
    assert () == warned("Send a request; retry after 1 minute; retry until the next scheduled refresh")


@pytest.mark.parametrize("text", ["Refresh every 2 hours", "Send a request; allow 1 minute; email ops@example.com"])
def test_a_first_failure_that_is_final(text: str):
    """Without retries and a limit in time, the first failure disables the refresh."""
    assert (
        (
            "The first failure is final: there are no retries, and it is disabled until an update. Add a retry, "
            'such as "On the first failure, retry after 5 minutes", or how long to go on, such as "Give up after one '
            'week".'
        ),
    ) == warned(text)


@pytest.mark.parametrize(
    ("text", "retries", "help_"),
    [
        (
            "Refresh daily; retry after 1 minute; on the second failure, give up; give up after one week",
            "the retries are used up after 2 failures",
            "Wait for the next scheduled refresh after the last one",
        ),
        (
            "Refresh daily; give up after the final unsuccessful retry; give up after one week",
            "there are no retries",
            "Wait for the next scheduled refresh after the last one",
        ),
        (
            "Send a request; retry 3 times with a delay of 1 minute; give up after one week",
            "the retries are used up after 4 failures",
            "Add a schedule",
        ),
    ],
)
def test_two_endings_that_contradict_each_other(text: str, retries: str, help_: str):
    """Retries that give up are used up long before the limit in time."""
    assert (
        (
            f"It has two endings, and the first one counts: {retries}, and then it gives up, although 1 week without "
            f"success are allowed. {help_}, or leave out the limit in time."
        ),
    ) == warned(text)


@pytest.mark.parametrize(
    ("gap", "rules", "crons", "fate"),
    [
        (Gap.SHIFT, ("FREQ=DAILY;BYHOUR=2;BYMINUTE=30",), (), "it comes after the leap"),
        (Gap.SKIP, ("FREQ=DAILY;BYHOUR=2;BYMINUTE=30",), (), "it is left out"),
        (Gap.SKIP, (), ("30 2 * * *",), "it comes after the leap"),
    ],
)
def test_times_in_a_clock_change_gap_are_a_warning(gap: Gap, rules: tuple[str, ...], crons: tuple[str, ...], fate: str):
    """On the night in which summer time begins 02:30 does not exist."""
    schedule = Schedule(
        rules=tuple(map(RecurrenceRule.parse, rules)),
        crons=tuple(map(CronExpression.parse, crons)),
        tz="America/New_York",
        gap=gap,
    )

    (warning,) = RefreshPolicy(schedule=schedule, delays=(MINUTE,)).lint(now=NOW)

    assert warning == (
        "Within 5 years 5 planned refreshes are at times that the clocks of America/New_York leap over, the first on "
        f"2027-03-14 at 02:30: {fate}. Times before 02:00 and from 03:00 on exist each day."
    )


def test_a_single_time_in_a_gap_is_a_warning():
    """On the 29th of March 2026, half an hour past two in Berlin."""
    at = datetime(2026, 3, 29, 2, 30)  # noqa: DTZ001 - naive is the wall clock
    schedule = Schedule(rules=(RecurrenceRule.parse("FREQ=YEARLY"),), times=(at,), tz="Europe/Berlin")
    (warning,) = RefreshPolicy(schedule=schedule, delays=(MINUTE,)).lint(now=datetime(2026, 1, 1, tzinfo=UTC))

    assert warning.startswith(
        "Within 5 years 1 planned refresh is at a time that the clocks of Europe/Berlin leap over"
    )


@pytest.mark.parametrize("text", ["FREQ=HOURLY;INTERVAL=2", "FREQ=MINUTELY;INTERVAL=30;BYHOUR=2"])
def test_schedules_of_elapsed_time_have_no_skipped_times(text: str):
    """Nor has a cron expression with a star in its hours."""
    for schedule in (
        Schedule(rules=(RecurrenceRule.parse(text),), tz="America/New_York"),
        Schedule.cron("30 * * * *", tz="America/New_York"),
    ):
        assert () == RefreshPolicy(schedule=schedule, delays=(MINUTE,)).lint(now=NOW)


def test_a_schedule_that_ends():
    """Soon, or already."""
    text = 'Refresh by rule "FREQ=DAILY;BYHOUR=9;COUNT=3" in Europe/Kyiv starting 2026-11-{}; retry after 1 hour'

    assert (
        "The schedule ends soon: its last planned refresh is on 2026-11-24 at 09:00. Give a later end, or none.",
    ) == warned(text.format(22))
    assert ("The schedule has ended: nothing is planned any more. Give a later end, or none.",) == warned(
        text.format(10)
    )


def test_without_the_time_ends_and_clock_changes_are_not_checked():
    """Without an instant, the end of the schedule and clock changes are not checked."""
    assert () == warned(
        'Refresh by rule "FREQ=DAILY;BYHOUR=2;COUNT=9" in Europe/Berlin starting 2020-03-24; retry after 1 minute', None
    )
    assert 1 == len(warned("Refresh every 2 hours; allow 2 hours; retry immediately", None))


@pytest.mark.parametrize(
    ("schedule", "shortest", "longest"),
    [
        ("Refresh every minute", MINUTE, MINUTE),
        ('Refresh by cron "* 9-16 * * MON-FRI"', MINUTE, 2 * DAY + 16 * HOUR + MINUTE),
        ('Refresh by cron "* 9-16 * 3 MON-FRI"', MINUTE, 335 * DAY + 16 * HOUR + MINUTE),
        ("Refresh twice per day at 6 AM and 4 PM", 10 * HOUR, 14 * HOUR),
        ('Refresh by rule "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=28"', 365 * DAY, 366 * DAY),
        ('Refresh by rule "FREQ=HOURLY;BYMONTH=11" starting 2026-01-01', HOUR, 335 * DAY + HOUR),
    ],
)
def test_gaps_are_computed_without_iteration(schedule: str, shortest: timedelta, longest: timedelta):
    """Gaps of nights, weekends and seasons are found in schedules that occur each minute."""
    found = RefreshPolicy.parse(schedule).schedule

    assert found is not None
    assert Gaps(shortest, longest) == gaps(found, NOW)


def test_a_schedule_that_occurs_once_has_no_gaps():
    """Nor one that has ended while it was looked at."""
    once = Schedule(times=(datetime(2027, 1, 1),))  # noqa: DTZ001 - naive is the wall clock
    ending = Schedule(start=datetime(2026, 11, 22), rules=(RecurrenceRule.parse(f"FREQ=HOURLY;COUNT={MOST + 9}"),))  # noqa: DTZ001

    assert None is gaps(once, NOW)
    assert Gaps(HOUR, HOUR) == gaps(ending, NOW)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("Europe/Kyiv", ("2027-03-28 03:00", "2027-03-28 04:00")),
        ("Australia/Lord_Howe", ("2027-10-03 02:00", "2027-10-03 02:30")),
    ],
)
def test_clock_changes_are_found_to_the_second(place: str, expected: tuple[str, str]):
    """Clock changes are found to the second: one each year, by an hour, or by half of one on Lord Howe Island."""
    found = list(leaps(ZoneInfo(place), NOW, 2))

    assert expected == tuple(f"{each:%Y-%m-%d %H:%M}" for each in found[0])
    assert 2 == len(found)
    assert [] == list(leaps(ZoneInfo("Asia/Tokyo"), NOW, 2))


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("Refresh on the 31st of each month", "Months without a day 31 are left out"),
        ("Refresh on the 29th and 30th", "Months without a day 29 are left out"),
        ("Refresh on the 28th", None),
        ("Refresh on the 15th and 31st", "Months without a day 31 are left out"),
        ("Refresh on the 31st and the last day of the month", None),
        ("Refresh every year on January 31", None),
        (
            'by rule "FREQ=MINUTELY;INTERVAL=50;BYHOUR=9,10"',
            "The times of 'FREQ=MINUTELY;INTERVAL=50",
        ),
        ('by rule "FREQ=HOURLY;INTERVAL=5;BYHOUR=9,10"', "The times of 'FREQ=HOURLY;INTERVAL=5;BYHOUR=9,10' differ"),
        ("Refresh every 50 minutes between 9 AM and 5 PM", None),
        ("Refresh every 15 minutes between 9 AM and 5 PM", None),
    ],
)
def test_times_that_are_left_out(text: str, warning: str | None):
    """Months without a day, and windows with steps that do not divide a day, have fewer times than they seem to."""
    found = [each for each in warned(f"{text}; give up after 5000 days") if "left out" in each or "differ" in each]

    assert [True] * (warning is not None) == [each.startswith(warning or "") for each in found]
