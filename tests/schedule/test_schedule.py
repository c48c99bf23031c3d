"""Schedules: the union of their parts as instants, the same from wherever one begins."""

from __future__ import annotations

import itertools
import pickle
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from dateutil import rrule as dateutil
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redrive.engine.recurring import read_pattern
from redrive.errors import ScheduleError
from redrive.schedule import CronExpression, Gap, RecurrenceRule, RefreshPolicy, Schedule
from redrive.schedule.failing import _of_hour, occurrence
from redrive.schedule.schedule import MOST
from tests.schedule.oracle import places, whenever, within

PLACES = ["UTC", "Europe/Kyiv", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo"]
START = datetime(2016, 1, 1)  # noqa: DTZ001 - naive is the wall clock
FAR = 2110
"""Before the horizon of a search from `START` on; one from later on sees farther."""
DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


def first(schedule: Schedule, count: int, at: datetime | None = None) -> list[datetime]:
    """Return the first occurrences from an instant on."""
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
        schedule = Schedule(start=START, rules=(RecurrenceRule.parse(text),))
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
        schedule = Schedule(start=START, rules=(RecurrenceRule.parse(text),), tz=tz, gap=gap)
    except ScheduleError:
        return
    begin = at.replace(tzinfo=UTC)
    found = [each for each in first(schedule, 8, begin) if each.year < FAR]

    assert all(earlier < later for earlier, later in itertools.pairwise(found))
    assert all(begin <= each for each in found)
    for place, each in enumerate(found[:3]):
        assert found[place:4] == [later for later in first(schedule, 4 - place, each) if later.year < FAR]
        following = schedule.next(each, after=each)
        assert found[place + 1 : place + 2] == ([following] if following and following.year < FAR else [])


@settings(max_examples=40)
@given(
    st.one_of(slow_rules(), st.sampled_from(FAST)),
    st.sampled_from(PLACES),
    st.lists(st.datetimes(datetime(2016, 1, 1), datetime(2030, 1, 1)), min_size=1, max_size=4),  # noqa: DTZ001 - as above
    st.lists(st.integers(0, 3 * 86400), min_size=2, max_size=6),
)
def test_cached_answers_equal_computed_ones(text: str, tz: str, around: list[datetime], steps: list[int]):
    """Schedules with cached answers give the same answers as those without."""
    try:
        schedule = Schedule(start=START, rules=(RecurrenceRule.parse(text),), tz=tz)
    except ScheduleError:
        return
    for each, seconds in itertools.product(around, steps):
        at = each.replace(tzinfo=schedule.place) + timedelta(seconds=seconds)
        assert next(schedule.since(at), None) == schedule.next(at)


def test_the_same_hour_that_comes_twice_has_two_answers():
    """At the end of summer time 01:50 comes before 01:40: answers are remembered by the instant, not by the clock."""
    schedule = Schedule.cron("*/30 * * * *", tz="Europe/London")
    second, first_one = (
        datetime(2026, 10, 25, 1, 40 + 10 * (not fold), tzinfo=schedule.place, fold=fold) for fold in (1, 0)
    )

    assert datetime(2026, 10, 25, 2, tzinfo=UTC) == schedule.next(second)
    assert datetime(2026, 10, 25, 1, tzinfo=UTC) == schedule.next(first_one)


def test_earlier_queries_are_no_part_of_the_value():
    """Earlier queries do not change equality, representation or pickling."""
    asked, fresh = Schedule.cron("@daily"), Schedule.cron("@daily")
    asked.next(datetime(2026, 1, 1, tzinfo=UTC))

    assert (fresh, hash(fresh), repr(fresh)) == (asked, hash(asked), repr(asked))
    assert pickle.dumps(fresh) == pickle.dumps(asked)
    assert fresh == pickle.loads(pickle.dumps(asked))


class CountingSource:
    """Counts the searches of a schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self.searches = 0
        self.source, *others = schedule._sources
        schedule.__dict__["_sources"] = (self, *others)

    def __call__(self, at: datetime):
        """Search."""
        self.searches += 1
        return self.source(at)


def test_the_same_question_is_answered_without_a_search():
    """Repeated queries, as for now and for the deadline of each key, are answered without a search."""
    schedule = Schedule.cron("*/30 * * * *")
    asked = CountingSource(schedule)
    at = datetime(2026, 1, 1, 12, 5, tzinfo=UTC)
    _of_hour.cache_clear()
    for second in range(100):
        occurrence(schedule, at + timedelta(seconds=second), None)
        occurrence(schedule, at + timedelta(hours=1, seconds=second), None)

    assert 2 == asked.searches


@pytest.mark.parametrize("text", ["*/30 * * * *", "* * * * * *", "*/7 */5 * * *", "0 0 1 1 * 2027"])
@given(
    st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1)),  # noqa: DTZ001 - as above
    st.none() | st.timedeltas(timedelta(hours=-2), timedelta(hours=2)),
)
def test_what_is_listed_by_the_hour_is_what_a_search_finds(text: str, at: datetime, lag: timedelta | None):
    """Also where an hour has too many occurrences to list, and where none follows."""
    schedule, now = Schedule.cron(text, tz="Europe/Kyiv"), at.replace(tzinfo=UTC)
    after = None if lag is None else now - lag

    assert schedule.next(now, after=after) == occurrence(schedule, now, after)


@settings(max_examples=60)
@given(
    st.one_of(slow_rules(), st.sampled_from(FAST)),
    st.sampled_from(PLACES),
    st.datetimes(datetime(2016, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001 - as above
    st.integers(0, 40),
    st.timedeltas(timedelta(0), timedelta(days=40)),
)
def test_the_last_occurrence_is_that_of_a_walk(text: str, tz: str, at: datetime, number: int, beyond: timedelta):
    """Bisection finds the last of the occurrences between two instants."""
    try:
        schedule = Schedule(start=START, rules=(RecurrenceRule.parse(text),), tz=tz)
    except ScheduleError:
        return
    since = at.replace(tzinfo=UTC)
    walked = first(schedule, number + 1, since)
    until = since + beyond if len(walked) <= number else walked[number]

    expected = None
    for each in schedule.since(since):
        if each > until:
            break
        expected = each
    assert expected == schedule.last(since, until)


@pytest.mark.parametrize("text", ["* * * * * *", "* * * * * MON", "30 4 31 1 *"])
def test_the_last_occurrence_of_a_year_costs_some_dozens_of_searches(text: str):
    """Also of one for each second; a cron that was down for a year is not walked through."""
    schedule = Schedule.cron(text, tz="Europe/Kyiv")
    asked = CountingSource(schedule)
    until = datetime(2026, 1, 31, 12, tzinfo=UTC)
    found = schedule.last(until - timedelta(days=365), until)

    assert next(schedule.since(found), None) == found
    assert until < schedule.next(found, after=found) or found == until
    assert asked.searches < 70


def test_between_two_occurrences_there_is_no_last_one():
    """Both ends belong to what is asked about, also if they are one instant."""
    schedule = Schedule.cron("@daily")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    second = timedelta(seconds=1)

    assert None is schedule.last(at + second, at + 9 * second)
    assert None is schedule.last(at + second, at)
    assert at == schedule.last(at, at)
    assert at == schedule.last(at - second, at)


def test_a_cron_expression_may_be_a_schedule():
    """In the place where it is meant."""
    assert Schedule(crons=(CronExpression.parse("0 9 * * MON"),), tz="Europe/Kyiv") == Schedule.cron(
        "0 9 * * MON", tz="Europe/Kyiv"
    )


def test_parts_are_united_and_each_instant_counts_once():
    """Rules, cron expressions and times that meet are one occurrence; what is excepted is none."""
    schedule = Schedule(
        rules=(RecurrenceRule.parse("FREQ=DAILY;BYHOUR=6"), RecurrenceRule.parse("FREQ=DAILY;BYHOUR=6,16")),
        crons=(CronExpression.parse("0 16 * * *"), CronExpression.parse("0 18 * * *")),
        times=(datetime(2026, 1, 1, 7), datetime(2026, 1, 1, 6)),  # noqa: DTZ001 - naive is the wall clock
        except_times=frozenset({datetime(2026, 1, 1, 16)}),  # noqa: DTZ001 - the same
    )
    assert [6, 7, 18, 6] == [each.hour for each in first(schedule, 4, datetime(2026, 1, 1, tzinfo=UTC))]


def test_a_time_in_a_gap_is_shifted_or_left_out():
    """02:30 does not exist on the night in which summer time begins; the times around it stay in their order."""
    rule = RecurrenceRule.parse("FREQ=DAILY;BYHOUR=2,3;BYMINUTE=0,30")
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
        rules=(RecurrenceRule.parse("FREQ=DAILY;BYHOUR=9;UNTIL=20111230T235959"),),
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
        ({"rules": ("FREQ=MINUTELY;INTERVAL=60;BYMINUTE=5",)}, "never occurs"),
        ({"rules": ("FREQ=YEARLY;INTERVAL=1001",)}, "an interval of more than a thousand years"),
        ({"rules": ("FREQ=SECONDLY;INTERVAL=100000000000",)}, "an interval of more than a thousand years"),
        ({"rules": ("FREQ=SECONDLY;INTERVAL=2;BYSECOND=3",)}, "never occurs"),
        ({"rules": ("FREQ=SECONDLY;INTERVAL=10;BYMINUTE=5;BYSECOND=3",), "tz": "Australia/Lord_Howe"}, "never occurs"),
        ({"rules": (f"FREQ=MINUTELY;COUNT={MOST + 1}",)}, "more than 100,000 occurrences"),
        ({"rules": ("FREQ=DAILY",), "tz": "Europe/Kiew"}, "'Europe/Kiew' is not a time zone"),
        ({"rules": ("FREQ=DAILY",), "tz": "../etc"}, "is not a time zone"),
        ({"rules": ("FREQ=DAILY",), "start": datetime(2026, 1, 1, tzinfo=UTC)}, "has a time zone of its own"),
    ],
)
def test_an_impossible_schedule_is_refused(parts: dict, message: str):
    """Errors are raised when the schedule is made, after a bounded search."""
    given_parts = {**parts, "rules": tuple(RecurrenceRule.parse(each) for each in parts.get("rules", ()))}
    with pytest.raises(ScheduleError, match=message):
        Schedule(**given_parts)


def test_parts_may_be_lists_sets_and_texts():
    """Lists, sets and texts become the same schedule as tuples of rules, so that equal schedules are equal and hash."""
    at = datetime(2026, 1, 5, 6)  # noqa: DTZ001 - naive is the wall clock
    rule, cron = RecurrenceRule.parse("FREQ=DAILY"), CronExpression.parse("0 6 * * *")
    expected = Schedule(rules=(rule,), crons=(cron,), times=(at,), except_times=frozenset([at]))

    given_texts = Schedule(rules=["RRULE:FREQ=DAILY"], crons=["0 6 * * *"], times=[at], except_times=[at])
    assert expected == given_texts
    assert hash(expected) == hash(given_texts)
    assert expected == Schedule(rules=[rule], crons=[cron], times={at}, except_times={at})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"rules": RecurrenceRule.parse("FREQ=DAILY")}, r"is not a list: write rules=\[...\]"),
        ({"rules": "FREQ=DAILY"}, r"rules='FREQ=DAILY' is not a list: write rules=\[...\]"),
        ({"crons": 5}, r"crons=5 is not a list"),
        ({"crons": [5]}, r"crons: 5 is not a CronExpression: write CronExpression.parse\(...\)"),
        ({"times": ["2026-01-05"]}, r"times: '2026-01-05' is not a datetime: write datetime\(2026"),
        ({"rules": ["FREQ=DAILY"], "start": "2026-01-05"}, r"start: '2026-01-05' is not a datetime"),
    ],
)
def test_parts_of_another_type_are_refused(parts: dict, message: str):
    """Parts of wrong types are refused when the schedule is made, with the form that works."""
    with pytest.raises(ScheduleError, match=message):
        Schedule(**parts)


def test_ends_hold_for_fast_rules_too():
    """COUNT is counted from the start, and UNTIL may be an instant or a time on the wall clock."""
    counted = Schedule(start=START, rules=(RecurrenceRule.parse("FREQ=HOURLY;INTERVAL=2;COUNT=3"),))
    ended = Schedule(start=START, rules=(RecurrenceRule.parse("FREQ=HOURLY;UNTIL=20160101T010000"),), tz="Europe/Kyiv")

    assert [0, 2, 4] == [each.hour for each in first(counted, 9)]
    assert 2 == len(first(ended, 9))
    assert None is ended.next(datetime(2026, 1, 1, tzinfo=UTC))


def test_positions_choose_among_what_a_fast_rule_gives():
    """BYSETPOS of an hourly rule chooses among its minutes, that of a daily one among its hours."""
    schedule = Schedule(start=START, rules=(RecurrenceRule.parse("FREQ=HOURLY;BYMINUTE=10,20,50;BYSETPOS=1,-1"),))
    daily = Schedule(start=START, rules=(RecurrenceRule.parse("FREQ=DAILY;BYDAY=MO;BYHOUR=6,16;BYSETPOS=-1"),))

    assert [10, 50, 10] == [each.minute for each in first(schedule, 3)]
    assert [(0, 16), (0, 16)] == [(each.weekday(), each.hour) for each in first(daily, 2)]


def test_a_schedule_accepts_the_earliest_instant():
    """Queries about the year 1 work, although there is no margin before it."""
    schedule = Schedule(start=datetime(1, 1, 1), rules=(RecurrenceRule.parse("FREQ=DAILY;COUNT=1"),))  # noqa: DTZ001 - the same
    assert [datetime(1, 1, 1, tzinfo=UTC)] == first(schedule, 2, datetime(1, 1, 1, tzinfo=UTC))


def test_weeks_by_their_number_have_the_day_of_the_start():
    """RFC 5545 takes from the start what a rule leaves open; python-dateutil would give all seven days."""
    schedule = Schedule(
        start=datetime(2026, 1, 6),  # noqa: DTZ001 - a Tuesday
        rules=(RecurrenceRule.parse("FREQ=YEARLY;BYWEEKNO=10"),),
    )
    assert ["2026-03-03", "2027-03-09"] == [f"{each:%F}" for each in first(schedule, 2)]


@settings(max_examples=60)
@given(
    st.sampled_from(["MINUTELY", "SECONDLY"]),
    st.integers(1, 100),
    st.lists(st.integers(0, 59), min_size=1, max_size=3).map(lambda numbers: ",".join(map(str, numbers))),
    st.sampled_from(["", ";BYHOUR=1,2,3", ";BYSECOND=0,1,2,3,30"]),
    st.sampled_from(
        [
            ("Australia/Lord_Howe", datetime(2027, 4, 3, 13, tzinfo=UTC)),  # back by half an hour at two
            ("Australia/Lord_Howe", datetime(2027, 10, 2, 14, tzinfo=UTC)),
            ("Europe/Kyiv", datetime(2027, 10, 30, 23, tzinfo=UTC)),
            ("UTC", datetime(2027, 1, 1, tzinfo=UTC)),
        ]
    ),
)
def test_a_search_skips_no_allowed_minute(
    freq: str, interval: int, minutes: str, more: str, night: tuple[str, datetime]
):
    """Every period of three hours is looked at, one after the other, in nights in which clocks are changed too."""
    tz, begin = night
    start = begin.astimezone(ZoneInfo(tz)).replace(tzinfo=None) - timedelta(days=1)
    rule = RecurrenceRule.parse(f"FREQ={freq};INTERVAL={interval};BYMINUTE={minutes}{more}")
    try:
        schedule = Schedule(start=start, rules=(rule,), tz=tz)
    except ScheduleError:
        return
    first_period = start.replace(tzinfo=schedule.place).astimezone(UTC)
    step = timedelta(minutes=interval) if freq == "MINUTELY" else timedelta(seconds=interval)
    end = begin + timedelta(hours=3)

    def allowed(at: datetime) -> bool:
        local = at.astimezone(schedule.place)
        hours, seconds = rule.by_hour or (local.hour,), rule.by_second or (local.second,)
        return local.minute in rule.by_minute and local.hour in hours and local.second in seconds

    offsets = [timedelta(seconds=each) for each in rule.by_second or (0,)] if freq == "MINUTELY" else [timedelta(0)]
    numbers = range((begin - first_period) // step, (end - first_period) // step + 1)
    periods = (first_period + number * step for number in numbers)
    expected = [
        at for period in periods for offset in offsets if begin <= (at := period + offset) <= end and allowed(at)
    ]
    assert expected == list(itertools.takewhile(lambda each: each <= end, schedule.since(begin)))


def test_steps_of_more_than_a_day_meet_each_half_of_the_year():
    """Twice a year Lord Howe Island's clocks show another minute; no leap goes past both."""
    start, step = datetime(2026, 1, 1), timedelta(seconds=100_003)  # noqa: DTZ001 - naive is the wall clock
    rule = RecurrenceRule.parse("FREQ=SECONDLY;INTERVAL=100003;BYMINUTE=3,33")
    schedule = Schedule(start=start, rules=(rule,), tz="Australia/Lord_Howe")
    begin = start.replace(tzinfo=schedule.place).astimezone(UTC)
    steps = (begin + number * step for number in range(2000))

    expected = [each for each in steps if each.astimezone(schedule.place).minute in {3, 33}]
    assert expected == first(schedule, len(expected))


def test_minutes_may_come_with_a_change_of_the_clock():
    """Periods that begin at full hours begin at half past after a clock change of half an hour on Lord Howe Island."""
    schedule = Schedule(
        start=datetime(2026, 6, 1),  # noqa: DTZ001 - naive is the wall clock
        rules=(RecurrenceRule.parse("FREQ=MINUTELY;INTERVAL=60;BYMINUTE=30"),),
        tz="Australia/Lord_Howe",
    )
    assert datetime(2026, 10, 3, 15, 30, tzinfo=UTC) == schedule.next(datetime(2026, 6, 1, tzinfo=UTC))


def test_days_of_the_year_choose_among_hours():
    """Counted from its beginning or from its end, in leap years too."""
    schedule = Schedule(start=START, rules=(RecurrenceRule.parse("FREQ=HOURLY;INTERVAL=12;BYYEARDAY=60,-1"),))
    found = first(schedule, 8, datetime(2027, 1, 1, tzinfo=UTC))

    assert ["03-01", "12-31", "02-29", "12-31"] == [f"{each:%m-%d}" for each in found[::2]]


def test_a_daily_rule_may_choose_among_the_times_of_its_days():
    """BYSETPOS counts within a day."""
    schedule = Schedule(start=START, rules=(RecurrenceRule.parse("FREQ=DAILY;BYMONTH=3;BYHOUR=6,16,20;BYSETPOS=2"),))

    assert [(3, 1, 16), (3, 2, 16)] == [(each.month, each.day, each.hour) for each in first(schedule, 2)]


@pytest.mark.parametrize("tz", ["Asia/Colombo", "Asia/Kathmandu", "Australia/Lord_Howe", "Europe/Istanbul"])
def test_an_hourly_refresh_without_a_start_comes_on_the_hour(tz: str):
    """It does so where a place has changed its offset from UTC since the default start, for good or each half-year."""
    policy = RefreshPolicy.parse(f"Refresh every hour in {tz}")
    assert policy.schedule is not None
    for at in (datetime(2026, 1, 15, tzinfo=UTC), datetime(2026, 7, 15, tzinfo=UTC)):
        found = first(policy.schedule, 24, at)
        assert {0} == {each.astimezone(ZoneInfo(tz)).minute for each in found}
        assert {timedelta(hours=1)} == {later - earlier for earlier, later in itertools.pairwise(found)}


@pytest.mark.parametrize(
    ("text", "hours"),
    [("FREQ=HOURLY;INTERVAL=2", {0}), ("FREQ=MINUTELY;INTERVAL=120", {0}), ("FREQ=HOURLY;INTERVAL=6", {0})],
)
def test_hours_without_a_start_are_counted_from_midnight(text: str, hours: set[int]):
    """Also in places that have another offset from UTC now than in the year of the default start."""
    for tz in ("Asia/Colombo", "Europe/Istanbul", "America/New_York"):
        found = first(Schedule(rules=(RecurrenceRule.parse(text),), tz=tz), 24, datetime(2026, 1, 15, tzinfo=UTC))
        assert hours == {each.astimezone(ZoneInfo(tz)).hour % 2 for each in found}


@settings(max_examples=50, deadline=None)
@given(places(), st.sets(st.integers(0, 59), min_size=1, max_size=3), st.sets(st.integers(0, 23), max_size=3))
@example(("Australia/Lord_Howe", datetime(2026, 10, 3, 12, tzinfo=UTC)), {15, 45}, set())
@example(("Australia/Lord_Howe", datetime(2026, 4, 4, 12, tzinfo=UTC)), {15, 45}, {1, 2})
def test_minutes_of_an_hourly_rule_are_those_of_the_clock(where, minutes: set[int], hours: set[int]):
    """Expanding all minutes finds the same occurrences, whatever the start and the offset before."""
    tz, begin = where
    by_hour = f";BYHOUR={','.join(map(str, sorted(hours)))}" if hours else ""
    rule = RecurrenceRule.parse(f"FREQ=HOURLY;BYMINUTE={','.join(map(str, sorted(minutes)))}{by_hour}")
    expected = whenever(tz, begin, lambda local: local.minute in minutes and (not hours or local.hour in hours))
    for start in (datetime(2001, 1, 1), datetime(2001, 7, 1)):  # noqa: DTZ001 - naive is the wall clock
        found = Schedule(rules=(rule,), start=start, tz=tz).since(begin)
        assert expected == within(found, begin)


@pytest.mark.parametrize(
    ("parts", "excluded", "expected"),
    [
        ({"rules": ("03:30",)}, "02:30", ["03:30"]),
        ({"rules": ("02:30",)}, "02:30", []),
        ({"rules": ("02:30", "03:30")}, "02:30", ["03:30"]),
        ({"rules": ("02:30", "03:30")}, "03:30", []),
        ({"rules": ("02:15", "02:30")}, "02:30", ["03:15"]),
        ({"times": ("02:30",)}, "02:30", []),
        ({"times": ("02:30", "03:30")}, "02:30", ["03:30"]),
        ({"crons": ("30 2 * * *",)}, "02:30", []),
        ({"crons": ("15,30 2 * * *",)}, "02:30", ["03:00"]),
        ({"crons": ("*/30 * * * *",)}, "02:30", ["00:00", "00:30", "01:00", "01:30", "03:00", "03:30"]),
    ],
)
def test_an_exception_in_a_gap_excludes_only_its_shifted_occurrence(parts, excluded: str, expected: list[str]):
    """Exceptions in a gap exclude the shifted occurrence, and not the real one at the same instant."""
    night = datetime(2026, 3, 8)  # noqa: DTZ001 - naive is the wall clock

    def local(text: str) -> datetime:
        return datetime.combine(night, datetime.strptime(text, "%H:%M").time())  # noqa: DTZ007 - the same

    rules = [f"FREQ=DAILY;BYHOUR={each[:2]};BYMINUTE={each[3:]}" for each in parts.get("rules", ())]
    schedule = Schedule(
        rules=tuple(RecurrenceRule.parse(each) for each in rules),
        crons=tuple(CronExpression.parse(each) for each in parts.get("crons", ())),
        times=tuple(local(each) for each in parts.get("times", ())),
        except_times=frozenset({local(excluded)}),
        tz="America/New_York",
    )
    begin = night.replace(tzinfo=ZoneInfo("America/New_York"))
    found = itertools.takewhile(lambda each: each < begin + timedelta(hours=4), schedule.since(begin))
    assert expected == [f"{each.astimezone(schedule.place):%H:%M}" for each in found]


def test_a_count_counts_what_is_excluded():
    """Excluded occurrences in a gap count for ``COUNT``."""
    start = datetime(2026, 3, 7, 2, 30)  # noqa: DTZ001 - naive is the wall clock
    gap = start + timedelta(days=1)
    rule = RecurrenceRule.parse("FREQ=DAILY;COUNT=3")
    schedule = Schedule(start=start, rules=(rule,), except_times=frozenset({gap}), tz="America/New_York")
    assert [7, 9] == [each.day for each in schedule.since(datetime(2026, 1, 1, tzinfo=UTC))]


@pytest.mark.parametrize("given", [{"start": "2026-01-01"}, {"times": ("16:30",)}])
def test_text_is_no_time(given: dict[str, object]):
    """Values that are not datetimes are refused by name, with a correct example."""
    with pytest.raises(ScheduleError, match="is not a datetime: write datetime"):
        Schedule(crons=(CronExpression.parse("0 3 * * *"),), **given)


# ------------------------------------------------------------------------------------------------ intervals in English


@pytest.mark.parametrize(
    ("text", "tz", "step"),
    [
        ("every 90 minutes", "UTC", timedelta(minutes=90)),
        ("every 90 minutes", "Europe/Kyiv", timedelta(minutes=90)),
        (" Every 36 hours", "Europe/Kyiv", timedelta(hours=36)),
        ("every 36 hours at :15", "America/New_York", timedelta(hours=36)),
        ("every 90 seconds", "Europe/Kyiv", timedelta(seconds=90)),
    ],
)
def test_intervals_are_elapsed_time_from_a_fixed_instant(text: str, tz: str, step: timedelta):
    """The occurrences of a year have the same distance, and are the same from wherever one begins."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    schedule = read_pattern(text, tz)
    listed = first(schedule, int(timedelta(days=330) / step), begin)

    assert {step} == {after - before for before, after in itertools.pairwise(listed)}
    assert all(first(read_pattern(text, tz), 1, each - timedelta(minutes=1))[0] <= each for each in listed[:50])
    assert listed[7] == first(schedule, 1, listed[6] + timedelta.resolution)[0]


def test_days_in_english_keep_their_time_of_day():
    """Every three days at 9 is 9 on the wall clock, also after a clock change."""
    listed = first(read_pattern("every 3 days at 9 AM", "Europe/Kyiv"), 100, datetime(2026, 1, 1, tzinfo=UTC))

    assert {9} == {each.astimezone(ZoneInfo("Europe/Kyiv")).hour for each in listed}
    assert {7, 6} == {each.hour for each in listed}


def test_intervals_can_have_a_start_of_their_own():
    """A start in the text is the first occurrence, on the clock of the time zone."""
    schedule = read_pattern("every 36 hours starting 2026-01-01", "Europe/Kyiv")

    assert [datetime(2025, 12, 31, 22, tzinfo=UTC), datetime(2026, 1, 2, 10, tzinfo=UTC)] == first(schedule, 2)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("every 90 minutes in UTC", '"in UTC" (line 1, column 18) is given by an option; write tz="Europe/Kyiv"'),
        ("every 90 minutes. Retry 3 times every 5 minutes", "is not about when it occurs"),
        ("every 90 minutes. Spread starts over 10 minutes", "is not about when it occurs"),
        ("every 90 minutes. On the first failure, retry after 5 minutes", "is not about when it occurs"),
        ("every 90 penguins", "not understood"),
        ("every", "not understood"),
        ("every day at 3", "it could be in the morning or in the evening"),
    ],
)
def test_a_cron_in_english_has_only_its_recurrence(text: str, why: str):
    """Anything else in the text is an error that names the words."""
    with pytest.raises(ScheduleError) as error:
        read_pattern(text, "Europe/Kyiv")

    assert why in str(error.value)


def test_an_unknown_time_zone_of_an_interval_is_refused():
    """The time zone is checked as that of a cron expression."""
    with pytest.raises(ScheduleError, match="Europe/Kiew"):
        read_pattern("every 90 minutes", "Europe/Kiew")
