"""Cron expressions in all their forms, in all places."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.errors import ScheduleError
from redrive.schedule import Cron, ftl
from redrive.schedule.wall import zone

NEW_YORK = zone("America/New_York")


def shown(text: str, at: datetime, count: int = 3) -> list[str]:
    """The next occurrences, as New York's clocks show them."""
    found = Cron.parse(text).since(at, NEW_YORK)
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
    """What names its hour and minute fires once a day; what has a star in them counts real time."""
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
    one, other = (itertools.islice(Cron.parse(each).since(at, NEW_YORK), 4) for each in (text, same))
    assert list(one) == list(other)
    assert text == str(Cron.parse(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("* * *", "it has 3 fields"),
        ("@sometimes", "of these names there are @hourly"),
        ("90s", "the number lies between 1 and 59"),
        ("0h", "the number lies between 1 and 23"),
        ("0 25 * * *", "'25' is no hour"),
        ("0 0 32 * *", "'32' is no day of the month"),
        ("0 0 30 2 *", "never occurs"),
        ("0 0 29 2 * 2027", "never occurs"),
        ("0 0 1 1 * 1066", "names no years between 1970 and 2099"),
        ("0 0 0 1 1 * soon", "'soon' is no year"),
        ("0 0 1 1 * 2030-2020", "names no years"),
        ("0 0 1 1 * 2030/0", "is no year"),
    ],
)
def test_what_is_no_expression_is_refused(text: str, message: str):
    """The error shows the expression, the field, and the forms."""
    with pytest.raises(ScheduleError, match=message):
        Cron.parse(text)


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
    found = list(itertools.islice(Cron.parse(text).since(begin, zone(tz)), 6))
    assert all(earlier < later for earlier, later in itertools.pairwise([begin, *found][found[0] == begin :]))
    assert found[2:] == list(itertools.islice(Cron.parse(text).since(found[2], zone(tz)), 4))


@pytest.mark.parametrize("text", ["1-2-3 * * * *", "Mon Tue", "5 * * * * 0 0"])
def test_ftl_refuses_in_its_own_words(text: str):
    """What FTL's parser or its cron library does not know is an error there too."""
    with pytest.raises(ScheduleError):
        ftl.parse(text, now=datetime(2026, 1, 1, tzinfo=UTC))
