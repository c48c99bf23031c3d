"""Cron expressions in all their forms, in all places."""

from __future__ import annotations

import contextlib
import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redrive.errors import ScheduleError
from redrive.schedule import CronExpression, RefreshPolicy, ftl
from redrive.schedule.timezone import zone
from tests.schedule.oracle import once, places, whenever, within

if TYPE_CHECKING:
    from collections.abc import Callable

LORD_HOWE = ("Australia/Lord_Howe", datetime(2026, 10, 3, 12, tzinfo=UTC))
NEW_YORK = zone("America/New_York")


def shown(text: str, at: datetime, count: int = 3) -> list[str]:
    """Return the next occurrences on the wall clock of New York."""
    found = CronExpression.parse(text).since(at, NEW_YORK)
    return [f"{each.astimezone(NEW_YORK):%d %H:%M%z}" for each in itertools.islice(found, count)]


SPRING = datetime(2026, 3, 7, 12, tzinfo=UTC)
AUTUMN = datetime(2026, 11, 1, 4, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("30 2 * * *", SPRING, ["08 03:00-0400", "09 02:30-0400", "10 02:30-0400"]),
        ("15,45 2 * * *", SPRING, ["08 03:00-0400", "09 02:15-0400", "09 02:45-0400"]),
        ("30 1 * * *", AUTUMN, ["01 01:30-0400", "02 01:30-0500", "03 01:30-0500"]),
        ("*/30 1 * * *", AUTUMN, ["01 01:00-0400", "01 01:30-0400", "01 01:00-0500"]),
        ("0 */2 * * *", datetime(2026, 3, 8, 4, tzinfo=UTC), ["08 00:00-0500", "08 04:00-0400", "08 06:00-0400"]),
    ],
)
def test_clock_changes_repeat_and_lose_nothing(text: str, at: datetime, expected: list[str]):
    """Expressions with fixed minutes and hours fire once a day; those with a star there count elapsed time."""
    assert expected == shown(text, at)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("@hourly", "0 * * * *"),
        ("@Daily", "0 0 * * *"),
        ("@weekly", "0 0 * * sun"),
        ("@annually", "0 0 1 jan *"),
        ("12h", "0 0 */12 * * *"),
        ("30s", "*/30 * * * * *"),
        ("Mon", "0 0 * * 1"),
        ("0 0 * * 1/2", "0 0 * * 1,3,5"),
        ("0 0 1 1 * 2027-2030/2,2033", "0 0 1 1 * 2027,2029,2033"),
        ("0 0 0 1 1 * */2", "0 0 1 1 * 1970/2"),
    ],
)
def test_short_forms_are_long_ones(text: str, same: str):
    """Names, shorthands and steps mean what their long forms mean."""
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    one, other = (itertools.islice(CronExpression.parse(each).since(at, NEW_YORK), 4) for each in (text, same))
    assert list(one) == list(other)
    assert text == str(CronExpression.parse(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("* * *", "it has 3 fields"),
        ("@sometimes", "of these names there are @hourly"),
        ("90s", "the number lies between 1 and 59"),
        ("0h", "the number lies between 1 and 23"),
        ("0 25 * * *", "'25' is not a valid hour"),
        ("*/90 * * * *", "a step of 90 is longer than the field: '.*/90' as minute counts anew after 60"),
        ("0 */25 * * *", "a step of 25 is longer than the field: '.*/25' as hour counts anew after 24"),
        ("0 0 32 * *", "'32' is not a valid day of the month"),
        ("0 0 30 2 *", "never occurs"),
        ("0 0 29 2 * 2027", "never occurs"),
        ("0 0 1 1 * 1066", "names no years between 1970 and 2099"),
        ("0 0 0 1 1 * soon", "'soon' is not a valid year"),
        ("0 0 1 1 * 2030-2020", "names no years"),
        ("0 0 1 1 * 2030/0", "is not a valid year"),
    ],
)
def test_an_invalid_expression_is_refused(text: str, message: str):
    """Errors contain the expression, the field, and the valid forms."""
    with pytest.raises(ScheduleError, match=message):
        CronExpression.parse(text)


@pytest.mark.parametrize(
    ("text", "example"),
    [
        ("*/120 * * * * *", "every 120 seconds"),
        ("5/070 * * * *", "every 70 minutes"),
        ("0 */48 * * *", "every 48 hours"),
        ("0 0 */40 * *", "every 40 days"),
        ("0 0 1 */13 *", "every 13 months on the 1st"),
        ("90s", "every 90 seconds"),
        ("90m", "every 90 minutes"),
        ("36h", "every 36 hours"),
    ],
)
def test_a_step_that_is_too_long_is_written_in_english(text: str, example: str):
    """The error has a sentence with the same step, which can be parsed."""
    with pytest.raises(ScheduleError, match=f'; write "{example}"$'):
        CronExpression.parse(text)

    assert RefreshPolicy.parse(f"Refresh {example}").schedule is not None


@pytest.mark.parametrize(("text", "end"), [("0 0 * * */8", "counts anew after 7"), ("0m", "between 1 and 59")])
def test_a_step_that_english_does_not_have_gets_no_example(text: str, end: str):
    """Days of the week have no steps in English, and no step is zero."""
    with pytest.raises(ScheduleError, match=f"{end}$"):
        CronExpression.parse(text)


@settings(max_examples=50)
@given(
    st.sampled_from(
        ["*/7 * * * *", "5 3 * * *", "30 1,2,3 * * 1-5", "0 0 L * *", "0 30 2 * * *", "0 0 29 2 *", "7 */3 * * *"]
    ),
    st.sampled_from(["America/New_York", "Europe/Kyiv", "Australia/Lord_Howe", "UTC"]),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001 - made aware below
)
def test_instants_increase_strictly(text: str, tz: str, at: datetime):
    """In every place, on every day, from every instant."""
    begin = at.replace(tzinfo=UTC)
    found = list(itertools.islice(CronExpression.parse(text).since(begin, zone(tz)), 6))
    assert all(earlier < later for earlier, later in itertools.pairwise([begin, *found][found[0] == begin :]))
    assert found[2:] == list(itertools.islice(CronExpression.parse(text).since(found[2], zone(tz)), 4))


@pytest.mark.parametrize("text", ["1-2-3 * * * *", "Mon Tue", "5 * * * * 0 0"])
def test_patterns_that_ftl_refuses_are_refused(text: str):
    """Patterns that FTL's parser or its cron library refuses are errors here, too."""
    with pytest.raises(ScheduleError):
        ftl.parse(text)


FIELD = st.one_of(st.just("*"), st.sampled_from(["*/10", "*/7"]), st.lists(st.integers(0, 59), min_size=1, max_size=4))


@st.composite
def crons(draw: st.DrawFn) -> tuple[str, Callable[[datetime], bool]]:
    """Draw a cron expression, and whether a time on the wall clock fits it."""
    fields: list[str] = []
    allowed: list[set[int]] = []
    for most in (60, 24):
        drawn = draw(FIELD)
        if isinstance(drawn, str):
            step = int(drawn.partition("/")[2] or 1)
            fields.append(drawn)
            allowed.append(set(range(0, most, step)))
        else:
            values = {each % most for each in drawn}
            fields.append(",".join(map(str, sorted(values))))
            allowed.append(values)
    minutes, hours = allowed
    return f"{fields[0]} {fields[1]} * * *", lambda local: local.minute in minutes and local.hour in hours


@settings(max_examples=60, deadline=None)
@given(crons(), places())
@example(("*/10 3 * * *", lambda local: local.hour == 3 and local.minute % 10 == 0), LORD_HOWE)
def test_crons_agree_with_the_minutes_of_the_clock(cron, where):
    """Each occurrence is one that a walk over all minutes finds, near changes of the clock in many places."""
    (text, fits), (tz, begin) = cron, where
    parsed = CronExpression.parse(text)
    expected = (whenever if parsed.is_elapsed else once)(tz, begin, fits)
    assert expected == within(parsed.since(begin, zone(tz)), begin)


def test_ranges_of_days_have_steps():
    """Stepped ranges of days are read alike by number and by name."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    days, named = (CronExpression.parse(f"0 0 * * {each}").since(at, NEW_YORK) for each in ("1-5/2,0", "MON-FRI/2,SUN"))
    assert list(itertools.islice(days, 9)) == list(itertools.islice(named, 9))


@settings(max_examples=300, deadline=None)
@given(st.text("0123456789*/,-# LWlwMONTUEabc.@:²٣\n_+", max_size=24))
@example("9" * 5000 + " * * * *")
@example("5L/2 * * * *")
@example("* * * * 1#2/2")
@example("* * * * * 2_02,5")
@example("5" * 9 + "m")
def test_any_text_is_parsed_or_refused(text):
    """Any text is an expression or refused by the one documented error."""
    with contextlib.suppress(ScheduleError):
        CronExpression.parse(text)
    with contextlib.suppress(ScheduleError):
        ftl.parse(text)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("0123456789*/,-.", min_size=1, max_size=7), min_size=5, max_size=7).map(" ".join))
def test_any_text_with_the_right_number_of_fields_is_parsed_or_refused(text):
    """So is any text that has the number of fields."""
    with contextlib.suppress(ScheduleError):
        CronExpression.parse(text)
    with contextlib.suppress(ScheduleError):
        ftl.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1/2/3 * * * *", '1:4: unexpected token "/"'),
        ("1/* * * * * *", '1:3: unexpected token "*" (expected <number>)'),
        ("1- * * * *", '1:4: unexpected token "*" (expected <number>)'),
        ("0 1,- * * *", '1:5: unexpected token "-" (expected Step)'),
        ("0 1,", '1:5: unexpected token "<EOF>" (expected Step)'),
        ("*-5 * * * *", '1:2: unexpected token "-"'),
        ("* *-5 * * *", '1:4: unexpected token "-"'),
        ("1.5 * * * *", '1:5: unexpected token "*" (expected ("s" | "m" | "h"))'),
        ("* 1.5 * * *", 'ValueRange.Start: strconv.ParseInt: parsing "1.5": invalid syntax'),
        ("* 08-10 * * *", 'ValueRange.Start: strconv.ParseInt: parsing "08": invalid syntax'),
        ("08-10 * * * *", 'ValueRange.Start: strconv.ParseInt: parsing "08": invalid syntax'),
        ("* 1-2.5 * * *", 'ValueRange.End: strconv.ParseInt: parsing "2.5": invalid syntax'),
        ("* */2.5 * * *", 'Step.Step: strconv.ParseInt: parsing "2.5": invalid syntax'),
        ("* 08- * * *", '1:7: unexpected token "*" (expected <number>)'),
        (
            "* 9223372036854775808 * * *",
            'ValueRange.Start: strconv.ParseInt: parsing "9223372036854775808": value out of range',
        ),
        ("5M", "duration has unknown unit \"M\" - use 'd', 'h', 'm' or 's', eg '1d' or '30s'"),
        ("1.5m", "unable to parse duration \"1.5m\" - expected duration in format like '1m' or '30s'"),
        ("  -5 * * * *", "1:3: sub-expression Component+ must match at least once"),
        ("0 0\n* * *é", '2:6: invalid input text "é"'),
        ("0 0 * * * é, and much more text", '1:11: invalid input text "é, and much more..."'),
        ('0 0 * * * "x"', '1:11: unexpected token "x"'),
        ("0 0 * * * // x", '1:11: unexpected token "x"'),
        ("Mon tue", '1:5: unexpected token "tue"'),
        ("99/0 * * * *", "failed to parse cron expression syntax error in minute field: '99/0'"),
        ("99,*/0 * * * *", "failed to parse cron expression invalid interval */0"),
        ("0 0 * * */7", "failed to parse cron expression invalid interval */7"),
        ("0 0 1 1 * 1970/100", "failed to parse cron expression invalid interval 1970/100"),
        ("05-01 0  * * *", "unable to find next timeout for 5-1 0 * * *"),
        ("0 0 30 2 *", "unable to find next timeout for 0 0 30 2 *"),
        ("0 0 1 1 * 2019", "unable to find next timeout for 0 0 1 1 * 2019"),
    ],
)
def test_ftl_has_its_own_texts(text: str, message: str):
    """Errors are those of FTL's lexer, parser and cron library, derived from their rules."""
    with pytest.raises(ScheduleError) as refused:
        ftl.parse(text)
    assert message == str(refused.value)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("5 m", "*/5 * * * *"),
        ('5 "m"', "*/5 * * * *"),
        ("0h", "0 0 * * *"),
        ("SAT", "0 0 * * 6"),
        ("010 0 * * *", "8 0 * * *"),
        ("*,99 0 * * *", "* 0 * * *"),
        ("0 0 */2 * 1", "0 0 1-31/2 * 1"),
        ("0 0 1,* * 1", "0 0 * * 1"),
        ("0 0 * * 5-7", "0 0 * * 5,6"),
        ("0 0 * * 7/3", "0 0 * * 0,3,6"),
        ("0 0 5-1 * 1", "0 0 * * 1"),
        ("0 0 1 * 5-1", "0 0 1 * *"),
        ("5-1,7 0 * * *", "7 0 * * *"),
        ("0 0 1 1 * 2020-2030/5", "0 0 1 1 * 2020,2025,2030"),
    ],
)
def test_ftl_has_its_own_meanings(text: str, same: str):
    """Patterns that FTL reads differently from redrive are read differently by its strict reader, too."""
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    one, other = (each.since(at, zone("UTC")) for each in (ftl.parse(text), CronExpression.parse(same)))
    assert list(itertools.islice(other, 9)) == list(itertools.islice(one, 9))
    assert text == str(ftl.parse(text))


def test_the_second_of_two_equal_times_may_be_the_last_occurrence():
    """Expressions with years end with the last instant of a time that exists twice."""
    found = CronExpression.parse("*/30 1 1 11 * 2026").since(AUTUMN, NEW_YORK)
    assert ["01:00-0400", "01:30-0400", "01:00-0500", "01:30-0500"] == [
        f"{each.astimezone(NEW_YORK):%H:%M%z}" for each in found
    ]


def test_an_expression_accepts_the_earliest_instant():
    """Occurrences are found in the first year of the calendar, too."""
    begin = datetime(1, 1, 1, 6, tzinfo=UTC)
    assert begin == next(CronExpression.parse("0 * * * *").since(begin, zone("UTC")))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 3 * * *", "at 03:00 every day"),
        ("@hourly", "at the start of every hour"),
        ("30s", "every 30th second of every minute"),
        ("Mon", "at 00:00 on Monday"),
        ("0 0 * * 5L", "at 00:00 on the last Friday of the month"),
        ("0 0 1 1 * 2027", "at 00:00 on January 1 in 2027"),
        ("0 0 0 1 1 * 2030-2060/2", "at 00:00 on January 1 in 16 years between 2030 and 2060"),
    ],
)
def test_expressions_have_words(text: str, words: str):
    """Expressions of each form are written in words."""
    assert words == CronExpression.parse(text).words
