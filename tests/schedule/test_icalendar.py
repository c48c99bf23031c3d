"""Schedules as lines of iCalendar."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from redrive.errors import ScheduleError
from redrive.schedule import RecurrenceRule, RefreshPolicy, Schedule

RULE = RecurrenceRule.parse("FREQ=HOURLY;INTERVAL=2")


def test_a_rule_is_read_with_its_start():
    """DTSTART becomes the start of the schedule, also in a refresh policy."""
    text = "DTSTART:20260105T010000Z\nRRULE:FREQ=HOURLY;INTERVAL=2"
    expected = Schedule(start=datetime(2026, 1, 5, 1), rules=[RULE])  # noqa: DTZ001 - naive is the wall clock

    assert expected == Schedule.parse(text)
    assert expected == RefreshPolicy(schedule=text).schedule
    assert datetime(2026, 1, 5, 3, tzinfo=UTC) == expected.next(datetime(2026, 1, 5, 2, tzinfo=UTC))


def test_a_rule_may_stand_alone():
    """The value of one rule, with its name or without, is a schedule."""
    assert Schedule(rules=[RULE]) == Schedule.parse("RRULE:FREQ=HOURLY;INTERVAL=2")
    assert Schedule(rules=[RULE], tz="Europe/Kyiv") == Schedule.parse("FREQ=HOURLY;INTERVAL=2\n", tz="Europe/Kyiv")
    assert Schedule(rules=[RULE]) == RefreshPolicy(schedule="rrule:FREQ=HOURLY;INTERVAL=2").schedule


def test_times_are_those_of_the_time_zone():
    """TZID gives the time zone of the schedule, and times with Z are converted to it; long lines may be folded."""
    text = (
        "DTSTART;TZID=Europe/Kyiv:20260105T090000\r\nRRULE:FREQ=DAILY;\r\n INTERVAL=2\r\nRRULE:FREQ=WEEKLY\r\n"
        "RDATE;VALUE=DATE:20260106,20260107\r\nEXDATE:20260105T070000Z\r\n"
    )

    assert Schedule(
        start=datetime(2026, 1, 5, 9),  # noqa: DTZ001 - naive is the wall clock
        rules=[RecurrenceRule.parse("FREQ=DAILY;INTERVAL=2"), RecurrenceRule.parse("FREQ=WEEKLY")],
        times=[datetime(2026, 1, 6), datetime(2026, 1, 7)],  # noqa: DTZ001 - naive is the wall clock
        except_times=[datetime(2026, 1, 5, 9)],  # noqa: DTZ001 - naive is the wall clock
        tz="Europe/Kyiv",
    ) == Schedule.parse(text)


@pytest.mark.parametrize("tz", ["UTC", "Europe/Kyiv"])
def test_a_start_in_utc_gives_a_schedule_in_utc(tz: str):
    """Occurrences of a rule whose DTSTART ends with Z do not move with summer time, whatever the default zone."""
    text = "DTSTART:20260105T090000Z\nRRULE:FREQ=DAILY\nEXDATE:20260702T090000Z"
    found = Schedule.parse(text, tz=tz)

    assert "UTC" == found.tz
    assert datetime(2026, 7, 1, 9, tzinfo=UTC) == found.next(datetime(2026, 7, 1, tzinfo=UTC))
    assert datetime(2026, 7, 3, 9, tzinfo=UTC) == found.next(datetime(2026, 7, 2, tzinfo=UTC))


def test_a_time_in_utc_beside_the_start_gives_no_time_zone():
    """RDATE with Z is an instant; the rule counts in the zone of the start, or in the default zone."""
    found = Schedule.parse("DTSTART:20260105T090000\nRRULE:FREQ=DAILY\nRDATE:20260701T090000Z", tz="Europe/Kyiv")

    assert ("Europe/Kyiv", (datetime(2026, 7, 1, 12),)) == (found.tz, found.times)  # noqa: DTZ001 - naive is the wall clock


def test_parameters_may_be_quoted():
    """The values of parameters may be in quotes (RFC 5545, 3.2)."""
    plain = "DTSTART;TZID=Europe/Kyiv;VALUE=DATE:20260105\nFREQ=DAILY"
    quoted = 'DTSTART;TZID="Europe/Kyiv";VALUE="DATE":20260105\nFREQ=DAILY'

    assert Schedule.parse(plain) == Schedule.parse(quoted)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a schedule needs a rule"),
        (5, "is parsed from a text, not from 5"),
        ("EXRULE:FREQ=DAILY", "the line 'EXRULE:FREQ=DAILY' is not understood: write DTSTART:"),
        ("every day", "the recurrence rule 'every day' is not understood"),
        ("RRULE;TZID=UTC:FREQ=DAILY", "a parameter that is not understood: 'TZID=UTC'"),
        ("DTSTART;X=1:20260105\nFREQ=DAILY", "a parameter that is not understood: 'X=1'"),
        ("DTSTART:20260105\nDTSTART:20260105\nFREQ=DAILY", "DTSTART is there twice"),
        ("DTSTART:tomorrow\nFREQ=DAILY", "'tomorrow' is not a time of iCalendar"),
        ("DTSTART;TZID=Europe/Kiew:20260105Z\nFREQ=DAILY", "'Europe/Kiew' is not a time zone"),
        ("DTSTART;TZID=Asia/Tokyo:20260105\nRDATE;TZID=UTC:20260105", "these lines have Asia/Tokyo and UTC"),
        ("DTSTART;TZID=Asia/Tokyo:20260105T000000Z\nFREQ=DAILY", "these lines have Asia/Tokyo and UTC"),
        ("DTSTART:20260105T000000Z\nRDATE;TZID=Asia/Tokyo:20260105", "these lines have Asia/Tokyo and UTC"),
    ],
)
def test_other_lines_are_refused(text: str, message: str):
    """Lines without a meaning are refused, and the message names them."""
    with pytest.raises(ScheduleError, match=message):
        Schedule.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "RDATE:20260105T090000Z",
        "INTERVAL=2;FREQ=HOURLY",
        "EXDATE:20260105T090000Z\nRRULE:FREQ=HOURLY",
        "  \nFREQ=HOURLY",
        "dtstart:20260105T090000Z\nRRULE:FREQ=DAILY",
    ],
)
def test_a_refresh_policy_reads_what_a_schedule_reads(text: str):
    """Texts of a refresh policy are read by the same reader."""
    assert Schedule.parse(text) == RefreshPolicy(schedule=text).schedule


@pytest.mark.parametrize(
    ("text", "cause"),
    [("", "a schedule needs a rule"), ("every hour", "not understood"), ("FREQ=DAILY;BYHOUR=30", "from 0 to 23")],
)
def test_an_unreadable_schedule_names_both_readers(text: str, cause: str):
    """The error of a refresh policy says which texts are read where, and what is wrong with an iCalendar text."""
    with pytest.raises(ScheduleError, match=f"RefreshPolicy.parse reads English, and Schedule.parse reads .*{cause}"):
        RefreshPolicy(schedule=text)
