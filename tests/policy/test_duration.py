"""Tests of `redrive.policy.duration`."""

from __future__ import annotations

from datetime import timedelta
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PolicyError, PolicySyntaxError, PolicyValueError
from redrive.policy import Policy, format_duration, parse_duration
from redrive.policy.duration import LONGEST, LONGEST_WAIT, Duration, parse_wait, seconds, span

_ISO = "an ISO 8601 duration has weeks, days, hours, minutes and seconds, and no others"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5s", 5),
        ("500ms", 0.5),
        ("1h30m", 5400),
        ("1d2h3m4s5ms", 93784.005),
        ("1m90s", 150),
        ("0s", 0),
        ("007s", 7),
        ("0000000000000000000000000005s", 5),
        ("5 minutes", 300),
        ("5 minute", 300),
        ("5minutes", 300),
        ("2mins", 120),
        (" 1 Hour ", 3600),
        ("1 hour and 30 minutes", 5400),
        ("1h, 30 mins", 5400),
        ("1h 30m", 5400),
        ("1 week, 2 days, and 1 hour", 781_200),
        ("2 Weeks", 1_209_600),
        ("3 msecs", 0.003),
        ("PT1H", 3600),
        ("PT0M", 0),
        ("P1DT12H30M", 131_400),
        ("p2w", 1_209_600),
        ("PT0.5S", 0.5),
        ("PT1,25S", 1.25),
    ],
)
def test_text_is_read(text: str, expected: float):
    """Units are added up, in the short form, in words and in ISO 8601; they may exceed their natural range."""
    assert timedelta(seconds=expected) == parse_duration(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(timedelta(minutes=2), timedelta(minutes=2)), (2, timedelta(seconds=2)), (0.25, timedelta(milliseconds=250))],
)
def test_other_forms_are_read(value: object, expected: timedelta):
    """Values of timedelta are kept, and numbers count seconds."""
    assert expected == parse_duration(value)


@pytest.mark.parametrize(
    "value",
    ["99999999999999999999d", "99999999999999999999 days", "P99999999999999999999D", 1e300, 10**400, timedelta.max],
)
def test_long_durations_are_cut_to_the_maximum(value: object):
    """Spans of more than a thousand years are cut to that, in every form."""
    assert LONGEST == parse_duration(value)


@pytest.mark.parametrize(
    ("text", "at", "problem"),
    [
        ("", 0, "a duration is missing"),
        ("10", 2, "the number 10 has no unit"),
        ("1h30", 4, "the number 30 has no unit"),
        ("1s1h", 3, "the unit 'h' comes after 's'"),
        ("1m1m", 3, "the unit 'm' comes after 'm'"),
        ("5x", 1, "there is no unit 'x'"),
        ("5S", 1, "there is no unit 'S'"),
        ("5M", 1, "there is no unit 'M'"),
        ("5 fortnights", 1, "there is no unit 'fortnights'"),
        ("5 minutes or so", 1, "these words are not one duration"),
        ("30 minutes 1 hour", 2, "these words are not one duration"),
        ("1 hour,", 1, "these words are not one duration"),
        ("1 month", 1, "month is not a fixed length"),
        ("2y", 1, "y is not a fixed length"),
        ("-5s", 0, "a duration has no sign"),
        ("+5s", 0, "a duration has no sign"),
        ("1.5s", 1, "a duration takes whole numbers only"),
        (".5s", 0, "a duration takes whole numbers only"),
        ("1h 30", 2, "a duration cannot contain ' ' here"),
        ("P", 0, _ISO),
        ("PT", 0, _ISO),
        ("P1DT", 0, _ISO),
        ("P1M", 0, _ISO),
        ("s5", 0, "a duration cannot contain 's' here"),
        ("٣s", 0, "a duration cannot contain '٣' here"),
    ],
)
def test_faults_are_refused_with_their_place(text: str, at: int, problem: str):
    """Unreadable texts are refused with the place of the fault."""
    with pytest.raises(PolicySyntaxError) as refused:
        parse_duration(text)

    assert (text, at, problem) == (refused.value.text, refused.value.at, refused.value.problem)


@pytest.mark.parametrize("value", [-1, -0.001, nan, inf, -inf, timedelta(seconds=-1), True, None, [1]])
def test_an_invalid_duration_is_refused(value: object):
    """Negative, infinite and undefined numbers, and values that are not numbers, are refused."""
    with pytest.raises(PolicyValueError, match="is not a duration"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (timedelta(0), "0s"),
        (timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5), "1d2h3m4s5ms"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(milliseconds=500), "500ms"),
        (timedelta(microseconds=1500), "1.5ms"),
        (timedelta(seconds=1, microseconds=1), "1s0.001ms"),
        (timedelta(seconds=-90), "-1m30s"),
    ],
)
def test_spans_are_written_in_their_shortest_form(value: timedelta, expected: str):
    """Spans are written with the units that they need, largest first."""
    assert expected == format_duration(value)


@given(st.integers(0, 10**12))
def test_written_durations_are_read_back(milliseconds: int):
    """Whole milliseconds survive being written and read."""
    value = timedelta(milliseconds=milliseconds)

    assert value == parse_duration(format_duration(value))


@given(st.text(alphabet="0123456789dhms.-+ xPTHS,", max_size=12))
def test_text_is_read_or_refused_with_a_place(text: str):
    """Any text is either a duration or refused with an offset inside of it."""
    try:
        value = parse_duration(text)
    except PolicyError as error:
        place = error.at
        assert place in range(len(text) + 1)
    else:
        assert timedelta(0) <= value <= LONGEST


@given(st.floats(0, 1e300))
def test_seconds_keep_what_a_timedelta_would_round(number: float):
    """Seconds are kept as given; as a span they are rounded to microseconds, and cut."""
    assert number == seconds(number)
    assert abs(min(number, LONGEST.total_seconds()) - span(number).total_seconds()) <= 1e-6


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("1", "write 1s for 1 second"),
        ("5", "write 5s for 5 seconds"),
        ("1 year", "write a number of days, for example 30d"),
        ("P1Y", "write PT1H30M or P7D, for example"),
    ],
)
def test_refused_durations_have_a_remedy(text: str, valid: str):
    """Messages about durations end with a form that works."""
    with pytest.raises(PolicySyntaxError) as refused:
        parse_duration(text)

    assert f"^ {valid}" == str(refused.value).splitlines()[-1].strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 5minutes", "write 5m"),
        ("5m,30s", "write 5m30s"),
        ("5 minutes", "write 5m"),
        ("10 PT5S", "is not a minimum"),
    ],
)
def test_a_directive_has_durations_in_units_only(text: str, expected: str):
    """Directives refuse durations in words and in ISO 8601, and the message has the right form."""
    with pytest.raises(PolicySyntaxError, match=expected):
        Policy.parse(text)


@pytest.mark.parametrize("value", [LONGEST_WAIT + timedelta(seconds=1), "20000d", 2e9, 10**20])
def test_a_wait_of_more_than_fifty_years_is_refused(value: Duration):
    """It is a mistake, such as a time since 1970 for a delay."""
    with pytest.raises(PolicyValueError, match=r"is more than 50 years, which is the longest wait; a number counts"):
        parse_wait(value)
    assert LONGEST_WAIT == parse_wait(LONGEST_WAIT)
