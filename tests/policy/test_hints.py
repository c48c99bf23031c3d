"""Tests of `redrive.policy.hints`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.policy.duration import LONGEST, ZERO
from redrive.policy.hints import (
    Hint,
    ai,
    amazon,
    chosen,
    grpc_pushback,
    http,
    http_date,
    rate_limit_reset,
    retry_after,
    retry_after_decimal,
    retry_after_ms,
)

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
instants = st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31)).map(  # noqa: DTZ001 - what the strategy takes
    lambda at: at.replace(microsecond=0, tzinfo=UTC)
)

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def fixdate(at: datetime) -> str:
    """Return an instant as IMF-fixdate."""
    return f"{DAYS[at.weekday()][:3]}, {at.day:02} {MONTHS[at.month - 1]} {at.year:04} {at:%H:%M:%S} GMT"


def rfc850(at: datetime) -> str:
    """Return an instant in the form of RFC 850."""
    return f"{DAYS[at.weekday()]}, {at.day:02}-{MONTHS[at.month - 1]}-{at.year % 100:02} {at:%H:%M:%S} GMT"


def asctime(at: datetime) -> str:
    """Return an instant in the form of C's asctime."""
    return f"{DAYS[at.weekday()][:3]} {MONTHS[at.month - 1]} {at.day:2} {at:%H:%M:%S} {at.year:04}"


@given(instants)
def test_dates_are_read_back(at: datetime):
    """Instants written as IMF-fixdate or asctime are read back; so are those of RFC 850 from a time near them."""
    assert at == http_date(fixdate(at), now=NOW) == http_date(asctime(at), now=NOW)
    if at.year < 9890:  # the next century must still be a date
        assert at == http_date(rfc850(at), now=at)


@pytest.mark.parametrize(
    ("year", "now", "expected"),
    [
        ("76", NOW, 2076),
        ("77", NOW, 1977),
        ("26", NOW, 2026),
        ("05", NOW.replace(year=2096), 2105),
        ("99", NOW.replace(year=2096), 2099),
        ("47", NOW.replace(year=2096), 2047),
        ("46", NOW.replace(year=2096), 2146),
    ],
)
def test_a_year_of_two_digits_is_at_most_fifty_years_ahead(year: str, now: datetime, expected: int):
    """Years of two digits are the latest that are not more than 50 years ahead."""
    at = http_date(f"Friday, 01-Jan-{year} 00:00:00 GMT", now=now)

    assert at is not None
    assert expected == at.year


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "Mon, 31 Jun 2019 12:00:00 GMT",
        "Mon, 03 Jun 2019 24:00:00 GMT",
        "Mon, 03 Jun 2019 12:00:61 GMT",
        "Mon, 03 Jun 2019 12:00:00 CEST",
        "mon, 03 jun 2019 12:00:00 gmt",
        "Mon, 03 Jun 19 12:00:00 GMT",
        "Monday, 29-Feb-23 12:00:00 GMT",
        "Fri, 31 Dec 9999 23:59:60 GMT",
        "Mon, 03 Jun 2019 12:00:00 GMT, Mon, 03 Jun 2019 12:00:00 GMT",
        "Mon, 0٣ Jun 2019 12:00:00 GMT",
    ],
)
def test_an_invalid_date_is_refused(text: str):
    """Texts that are not dates of HTTP are refused."""
    assert None is http_date(text, now=NOW)
    assert None is retry_after(text, now=NOW).delay
    assert "is neither a whole number of seconds nor a date" in retry_after(text, now=NOW).problem


def test_a_leap_second_is_the_next_minute():
    """Leap seconds are read as the first second of the next minute."""
    assert datetime(2017, 1, 1, tzinfo=UTC) == http_date("Sat, 31 Dec 2016 23:59:60 GMT", now=NOW)


@given(st.integers(0))
def test_seconds_are_read_however_many(number: int):
    """Whole seconds are a span, at most the longest one."""
    expected = number * SECOND if number <= LONGEST // SECOND else LONGEST

    assert Hint(expected) == retry_after(f" {number}\t", now=NOW) == rate_limit_reset(f"00{number}", now=NOW)


def test_numbers_that_python_would_not_read_are_the_longest_span():
    """Numbers of five thousand digits are the longest span, and five thousand zeros are zero."""
    assert Hint(LONGEST) == retry_after("9" * 5000, now=NOW)
    assert Hint(ZERO) == retry_after("0" * 5000, now=NOW)


@given(instants, instants)
def test_a_date_is_a_span_from_now(at: datetime, now: datetime):
    """Dates become spans from now, zero for the past."""
    expected = min(max(ZERO, at - now), LONGEST)

    assert Hint(expected) == retry_after(fixdate(at), now=now)
    assert Hint(expected) == retry_after(fixdate(at), now=NOW, response_date=f" {asctime(now)} ")


def test_an_invalid_response_date_is_ignored():
    """Without a readable date of the response, the client's clock is used."""
    assert Hint(30 * SECOND) == retry_after(fixdate(NOW + 30 * SECOND), now=NOW, response_date="yesterday")
    assert Hint(30 * SECOND) == retry_after("30", now=NOW, response_date=fixdate(NOW - 60 * SECOND))


def test_a_reset_may_be_an_instant():
    """Resets counted from 1970 become spans from now, zero for the past."""
    now = datetime(1970, 1, 1, 0, 1, tzinfo=UTC)

    assert Hint(40 * SECOND) == rate_limit_reset("100", now=now, since_1970=True)
    assert Hint(ZERO) == rate_limit_reset("50", now=now, since_1970=True)
    assert Hint(LONGEST) == rate_limit_reset("9" * 30, now=now, since_1970=True)
    assert Hint(None, "the reset 'soon' is not a whole number of seconds") == rate_limit_reset("soon", now=now)


def test_pushback_is_a_span_or_a_stop():
    """Values that are not a natural number of 32 bits forbid the retry."""
    assert Hint(timedelta(milliseconds=2**31 - 1)) == grpc_pushback("2147483647")
    assert Hint(None, "the server asks for no retry (pushback '-1')", stop=True) == grpc_pushback("-1")
    assert grpc_pushback("2147483648").stop
    assert grpc_pushback("9" * 5000).stop


@given(st.text() | st.integers().map(str), st.timedeltas(ZERO, timedelta(days=1)))
def test_the_hint_of_amazon_is_bounded(value: str, delay: timedelta):
    """Waits are neither shorter than the client's own nor more than 5 s longer, whatever the server sends."""
    assert delay <= amazon(value, delay) <= delay + 5 * SECOND


def test_the_first_usable_hint_is_chosen():
    """Hints that forbid a retry come first; then the order counts, and too long hints come last."""
    long, short, unread = Hint(301 * SECOND), Hint(120 * SECOND), Hint(None, "what?")
    stop = grpc_pushback("no")

    assert short == chosen([unread, long, short], max_hint=300 * SECOND)
    assert long == chosen([unread, long, short]) == chosen([long, unread], max_hint=300 * SECOND)
    assert stop == chosen([short, stop])
    assert unread == chosen([unread])
    assert Hint(None, "no hint was given") == chosen([])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0.5", 0.5),
        ("1.0", 1),
        ("7", 7),
        (" 1.25\t", 1.25),
        ("0.0000001", 0.000001),
        ("0." + "3" * 99, 0.333334),
        ("-1", None),
        ("+1", None),
        ("1.", None),
        (".5", None),
        ("1e3", None),
        ("nan", None),
        ("\u0661", None),
        ("", None),
    ],
)
def test_seconds_may_have_a_fraction(text: str, seconds: float | None):
    """A number with a fraction is read exactly, rounded up to microseconds; milliseconds likewise."""
    hint = retry_after_decimal(text)

    assert (None if seconds is None else timedelta(seconds=seconds)) == hint.delay
    assert (seconds is None) is ("is not a number without a sign" in hint.problem)
    expected = None if seconds is None else timedelta(microseconds=-(-seconds * 10**6 // 1000))
    assert expected == retry_after_ms(text).delay


def test_a_decimal_number_has_a_limit():
    """A number of any length is at most the longest span."""
    assert LONGEST == retry_after_decimal("9" * 99).delay == retry_after_ms("9" * 99 + ".5").delay
    assert LONGEST == retry_after_decimal(f"{LONGEST // SECOND}.999999").delay


# ---------------------------------------------------------------------------------------- all headers of an answer

DATED = ("date", "Fri, 20 Nov 2026 11:00:00 GMT")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "3"}, 3),
        ({"retry-after": "1.5"}, 1.5),
        ({"Retry-After-Ms": "300", "Retry-After": "1"}, 0.3),
        ([("retry-after-ms", "soon"), ("retry-after", "soon"), ("retry-after", "4")], 4),
        ([DATED, ("Retry-After", "Fri, 20 Nov 2026 11:00:09 GMT")], 9),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "9s"}, None),
    ],
)
def test_the_headers_of_an_answer_are_read_in_order(headers, seconds: float | None):
    """Milliseconds come before `Retry-After`, and resets of rate limits are not read."""
    hint = http(headers, NOW)

    assert (None if seconds is None else timedelta(seconds=seconds)) == hint.delay
    assert (False, False) == (hint.stop, hint.again)


def resets(kind: str, reset: str, remaining: str = "0") -> dict[str, str]:
    """Return the headers of a rate limit: of OpenAI by a name in lower case, of Anthropic by one in upper case."""
    if kind.islower():
        return {f"x-ratelimit-reset-{kind}": reset, f"x-ratelimit-remaining-{kind}": remaining}
    return {f"Anthropic-RateLimit-{kind}-Reset": reset, f"Anthropic-RateLimit-{kind}-Remaining": remaining}


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("6m0s", 360),
        ("20ms", 0.02),
        ("1h30m", 5400),
        ("8.64s", 8.64),
        ("1d2h3m4s5ms", 93784.005),
        ("0.0000001s", 0.000001),
        ("0s", 0),
        (f"{'9' * 99}d" * 5, LONGEST.total_seconds()),
        ("1s" * 6, None),
        ("6", None),
        ("6m 0s", None),
        ("-1s", None),
        ("1w", None),
        ("", None),
        ("\u0661s", None),
    ],
)
def test_a_reset_may_be_a_span(reset: str, seconds: float | None):
    """The resets of OpenAI are spans, rounded up to microseconds."""
    hint = ai(resets("requests", reset), NOW)

    assert (None if seconds is None else timedelta(seconds=seconds)) == hint.delay


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("2026-11-20T12:00:30Z", 30),
        ("2026-11-20t13:01:00.5+01:00", 60.5),
        ("2026-11-20T11:00:00Z", 0),
        ("2026-11-31T12:00:00Z", None),
        ("2026-11-20", None),
        ("2026-11-20T12:00:30", None),
        ("1795176030", None),
    ],
)
def test_a_reset_may_be_an_instant_of_rfc_3339(reset: str, seconds: float | None):
    """The resets of Anthropic are instants, compared with the `Date` of the answer if there is one."""
    headers = resets("Output-Tokens", reset)
    expected = None if seconds is None else timedelta(seconds=seconds)

    assert expected == ai(headers, NOW).delay == ai([*headers.items(), ("Date", "soon")], NOW).delay
    dated = ai([*headers.items(), DATED], NOW).delay
    assert (expected is None) is (dated is None)
    if seconds:
        assert timedelta(seconds=seconds, hours=1) == dated


def test_the_longest_reset_of_a_spent_limit_is_taken():
    """Limits of which something is left, or of which nothing is known, are not awaited."""
    assert 9 * SECOND == ai(resets("requests", "3s") | resets("tokens", "9s"), NOW).delay
    assert 3 * SECOND == ai(resets("requests", "3s") | resets("tokens", "9s", "17"), NOW).delay
    assert 3 * SECOND == ai(resets("requests", "3s") | resets("tokens", "soon"), NOW).delay
    assert None is ai({"x-ratelimit-reset-requests": "3s"}, NOW).delay
    assert 2 * SECOND == ai(resets("requests", "3s") | {"Retry-After": "2"}, NOW).delay


@pytest.mark.parametrize(
    ("value", "stop", "again"),
    [("true", False, True), (" FALSE", True, False), ("perhaps", False, False), ("", False, False)],
)
def test_a_server_may_decide_about_the_retry(value: str, stop: bool, again: bool):
    """`x-should-retry` forbids the retry, or asks for it; a delay beside it is kept only for a retry."""
    hint = ai({"X-Should-Retry": value, "Retry-After": "3"}, NOW)

    assert (stop, again, None if stop else 3 * SECOND) == (hint.stop, hint.again, hint.delay)
    assert stop is ("asks for no retry" in hint.problem)
