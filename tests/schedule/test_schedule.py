"""Schedules: the union of their parts as instants, the same from wherever one begins."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from dateutil import rrule as dateutil
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.errors import ScheduleError
from redrive.schedule import Cron, Gap, Rule, Schedule
from redrive.schedule.schedule import MOST

PLACES = ["UTC", "Europe/Kyiv", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo"]
START = datetime(2016, 1, 1)  # noqa: DTZ001 - naive is the wall clock
DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


def first(schedule: Schedule, count: int, at: datetime | None = None) -> list[datetime]:
    """The first occurrences from an instant on."""
    return list(itertools.islice(schedule.since(at or datetime(2000, 1, 1, tzinfo=UTC)), count))


def texts(*, low: int = 1, high: int = 12) -> st.SearchStrategy[str]:
    """Numbers as the parts of rules have them."""
    return st.lists(st.integers(low, high), min_size=1, max_size=3, unique=True).map(
        lambda numbers: ",".join(map(str, numbers))
    )


@st.composite
def slow_rules(draw: st.DrawFn) -> str:
    """Rules that are daily or slower, and occur."""
    freq = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    parts = [f"FREQ={freq}", f"INTERVAL={draw(st.integers(1, 4))}"]
    if draw(st.booleans()):
        parts.append(f"BYDAY={','.join(draw(st.lists(st.sampled_from(DAYS), min_size=1, max_size=3, unique=True)))}")
    if freq != "WEEKLY" and draw(st.booleans()):
        parts.append(f"BYMONTHDAY={draw(st.sampled_from(['1', '15', '28', '-1', '31', '10,20']))}")
    if draw(st.booleans()):
        parts.append(f"BYMONTH={draw(texts())}")
    if draw(st.booleans()):
        parts.append(f"BYHOUR={draw(texts(low=0, high=23))}")
    if freq in {"MONTHLY", "YEARLY"} and len(parts) > 2 and draw(st.booleans()):
        parts.append(f"BYSETPOS={draw(st.sampled_from(['1', '-1']))}")
    return ";".join(parts)


FAST = [
    "FREQ=HOURLY;INTERVAL=5",
    "FREQ=MINUTELY;INTERVAL=7;BYHOUR=3,4",
    "FREQ=MINUTELY;INTERVAL=30;BYDAY=SA,SU",
    "FREQ=HOURLY;BYMINUTE=10,50;BYMONTHDAY=1,-1",
    "FREQ=SECONDLY;INTERVAL=90;BYMINUTE=10;BYHOUR=1",
    "FREQ=MINUTELY;BYMINUTE=5,35;BYSECOND=30",
    "FREQ=SECONDLY;INTERVAL=7;BYSECOND=0,30",
]


@settings(max_examples=40)
@given(slow_rules(), st.integers(0, 4000))
def test_a_rule_walked_from_the_middle_is_the_same_as_from_its_start(text: str, days: int):
    """Re-anchoring changes nothing: python-dateutil, walking all the way, finds the same occurrences."""
    begin = START + timedelta(days=days, hours=5)
    try:
        schedule = Schedule(start=START, rules=(Rule.parse(text),))
    except ScheduleError:
        return  # such as a 31st of February
    walked = dateutil.rrulestr(text, dtstart=START).xafter(begin, inc=True)
    expected = list(itertools.islice(itertools.takewhile(lambda each: each.year < 2060, walked), 5))
    assert expected == [each.replace(tzinfo=None) for each in first(schedule, len(expected), begin.replace(tzinfo=UTC))]


@settings(max_examples=40)
@given(
    st.one_of(slow_rules(), st.sampled_from(FAST)),
    st.sampled_from(PLACES),
    st.sampled_from(list(Gap)),
    st.datetimes(datetime(2016, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001 - made aware below
)
def test_instants_increase_strictly_wherever_they_are_asked_for(text: str, tz: str, gap: Gap, at: datetime):
    """Days in which clocks are changed included, and each answer is the head of the next one."""
    try:
        schedule = Schedule(start=START, rules=(Rule.parse(text),), tz=tz, gap=gap)
    except ScheduleError:
        return
    begin = at.replace(tzinfo=UTC)
    found = first(schedule, 8, begin)

    assert all(earlier < later for earlier, later in itertools.pairwise(found))
    assert all(begin <= each for each in found)
    for place, each in enumerate(found[:3]):
        assert found[place:4] == first(schedule, 4 - place, each)
        assert found[place + 1 : place + 2] == [later for later in [schedule.next(each, after=each)] if later]


def test_parts_are_united_and_each_instant_counts_once():
    """Rules, cron expressions and times that meet are one occurrence; what is excepted is none."""
    schedule = Schedule(
        rules=(Rule.parse("FREQ=DAILY;BYHOUR=6"), Rule.parse("FREQ=DAILY;BYHOUR=6,16")),
        crons=(Cron.parse("0 16 * * *"), Cron.parse("0 18 * * *")),
        times=(datetime(2026, 1, 1, 7), datetime(2026, 1, 1, 6)),  # noqa: DTZ001 - naive is the wall clock
        except_times=frozenset({datetime(2026, 1, 1, 16)}),  # noqa: DTZ001 - the same
    )
    assert [6, 7, 18, 6] == [each.hour for each in first(schedule, 4, datetime(2026, 1, 1, tzinfo=UTC))]


def test_a_time_in_a_gap_is_shifted_or_left_out():
    """02:30 does not exist on the night in which summer time begins; the times around it stay in their order."""
    rule = Rule.parse("FREQ=DAILY;BYHOUR=2,3;BYMINUTE=0,30")
    at = datetime(2026, 3, 8, 5, tzinfo=UTC)
    place = ZoneInfo("America/New_York")

    def clocks(gap: Gap) -> list[str]:
        schedule = Schedule(rules=(rule,), tz="America/New_York", gap=gap)
        return [f"{each.astimezone(place):%d %H:%M}" for each in first(schedule, 3, at)]

    assert ["08 03:00", "08 03:30", "09 02:00"] == clocks(Gap.SHIFT)
    assert ["08 03:00", "08 03:30", "09 02:00"] == clocks(Gap.SKIP)


def test_a_day_that_is_left_out_altogether_has_its_occurrence_a_day_later():
    """Samoa went from the 29th to the 31st of December 2011; what was due on the 30th is due then, once."""
    schedule = Schedule(
        start=datetime(2011, 12, 1),  # noqa: DTZ001 - naive is the wall clock
        rules=(Rule.parse("FREQ=DAILY;BYHOUR=9;UNTIL=20111230T235959"),),
        tz="Pacific/Apia",
    )
    found = first(schedule, 3, datetime(2011, 12, 29, 12, tzinfo=UTC))
    assert ["2011-12-29 09:00", "2011-12-31 09:00"] == [f"{each.astimezone(schedule.place):%F %H:%M}" for each in found]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "needs a rule, a cron expression or a time"),
        ({"rules": ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",)}, "never occurs"),
        ({"rules": ("FREQ=HOURLY;INTERVAL=24;BYHOUR=5",)}, "never occurs"),
        ({"rules": ("FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30",)}, "never occurs"),
        ({"rules": ("FREQ=DAILY;INTERVAL=7;BYDAY=TU",)}, "never occurs"),
        ({"rules": (f"FREQ=MINUTELY;COUNT={MOST + 1}",)}, "more than 100,000 occurrences"),
        ({"rules": ("FREQ=DAILY",), "tz": "Europe/Kiew"}, "'Europe/Kiew' is no time zone"),
        ({"rules": ("FREQ=DAILY",), "tz": "../etc"}, "is no time zone"),
        ({"rules": ("FREQ=DAILY",), "start": datetime(2026, 1, 1, tzinfo=UTC)}, "has a time zone of its own"),
    ],
)
def test_a_schedule_that_means_nothing_is_refused(parts: dict, message: str):
    """It says what is wrong when it is made, and after a bounded search."""
    given_parts = {**parts, "rules": tuple(Rule.parse(each) for each in parts.get("rules", ()))}
    with pytest.raises(ScheduleError, match=message):
        Schedule(**given_parts)


def test_ends_hold_for_fast_rules_too():
    """COUNT is counted from the start, and UNTIL may be an instant or a time on the wall clock."""
    counted = Schedule(start=START, rules=(Rule.parse("FREQ=HOURLY;INTERVAL=2;COUNT=3"),))
    ended = Schedule(start=START, rules=(Rule.parse("FREQ=HOURLY;UNTIL=20160101T010000"),), tz="Europe/Kyiv")

    assert [0, 2, 4] == [each.hour for each in first(counted, 9)]
    assert 2 == len(first(ended, 9))
    assert None is ended.next(datetime(2026, 1, 1, tzinfo=UTC))


def test_positions_choose_among_what_a_fast_rule_gives():
    """BYSETPOS of an hourly rule chooses among its minutes, that of a daily one among its hours."""
    schedule = Schedule(start=START, rules=(Rule.parse("FREQ=HOURLY;BYMINUTE=10,20,50;BYSETPOS=1,-1"),))
    daily = Schedule(start=START, rules=(Rule.parse("FREQ=DAILY;BYDAY=MO;BYHOUR=6,16;BYSETPOS=-1"),))

    assert [10, 50, 10] == [each.minute for each in first(schedule, 3)]
    assert [(0, 16), (0, 16)] == [(each.weekday(), each.hour) for each in first(daily, 2)]


def test_a_schedule_may_be_asked_about_the_beginning_of_time():
    """The year 1 has no margin before it."""
    schedule = Schedule(start=datetime(1, 1, 1), rules=(Rule.parse("FREQ=DAILY;COUNT=1"),))  # noqa: DTZ001 - the same
    assert [datetime(1, 1, 1, tzinfo=UTC)] == first(schedule, 2, datetime(1, 1, 1, tzinfo=UTC))


def test_weeks_by_their_number_have_the_day_of_the_start():
    """RFC 5545 takes from the start what a rule leaves open; python-dateutil would give all seven days."""
    schedule = Schedule(
        start=datetime(2026, 1, 6),  # noqa: DTZ001 - a Tuesday
        rules=(Rule.parse("FREQ=YEARLY;BYWEEKNO=10"),),
    )
    assert ["2026-03-03", "2027-03-09"] == [f"{each:%F}" for each in first(schedule, 2)]
