"""Parsers of the delays that servers ask for, such as ``Retry-After``. PURE.

A hint is a lower bound: the wait may be longer, never shorter, so hints get no downward jitter. A hint goes into a
failure (``Failure.hint``, or an attribute ``retry_after`` of the exception); the policy decides about it (``hints``,
``max_hint``, ``deadline``). A value that cannot be read is no hint; the result has the problem.

==========================  =====================  ====================================================================
``Retry-After``             `retry_after`          RFC 9110, 10.2.3: whole seconds, or a date in one of three forms
``Retry-After``             `retry_after_decimal`  no standard: seconds with a fraction
``retry-after-ms``          `retry_after_ms`       no standard: milliseconds
``X-RateLimit-Reset``       `rate_limit_reset`     no standard: seconds from now, or seconds since 1970
``grpc-retry-pushback-ms``  `grpc_pushback`        gRFC A6: whole milliseconds; any other value means: do not retry
``x-amz-retry-after``       `amazon`               milliseconds, at most 5 s above the client's own delay
all headers of an answer    `http`                 ``retry-after-ms``, then ``Retry-After``
all headers of an answer    `ai`                   these, ``x-should-retry``, and the resets of exhausted rate limits
==========================  =====================  ====================================================================

A date is compared with the response's own ``Date`` header, if there is one, so that a wrong clock of the client has no
effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from redrive.policy.duration import LONGEST, ZERO
from redrive.policy.value import NamedTuple

__all__ = [
    "AMAZON_OVER",
    "Headers",
    "Hint",
    "HintReader",
    "ai",
    "amazon",
    "chosen",
    "grpc_pushback",
    "http",
    "http_date",
    "rate_limit_reset",
    "retry_after",
    "retry_after_decimal",
    "retry_after_ms",
]

Headers: TypeAlias = Mapping[str, str] | Collection[tuple[str, str]]
"""Headers as HTTP libraries have them: a mapping, or pairs. The case of names does not matter."""

#: How far the AWS clients let a server go beyond their own delay.
AMAZON_OVER = timedelta(seconds=5)


class Hint(NamedTuple):
    """A parsed hint."""

    #: The delay from now on; None if the value cannot be read.
    delay: timedelta | None
    #: The reason why the value cannot be read; otherwise "".
    problem: str = ""
    #: True if the server forbids a retry.
    stop: bool = False
    #: True if the server asks for a retry, whatever the status of its answer.
    again: bool = False


HintReader: TypeAlias = Callable[[Headers, datetime], Hint]
"""Reads the headers of an answer: `http` or `ai`. The second argument is the present instant, aware."""


def retry_after(value: str, *, now: datetime, response_date: str | None = None) -> Hint:
    """Read a ``Retry-After``.

    Args:
        value: the field's value: whole seconds, or a date as in `http_date`.
        now: the present instant, aware.
        response_date: the response's ``Date``; a date is compared with it. An unreadable one is ignored.

    Returns:
        The span, zero for a date in the past, at most `redrive.policy.duration.LONGEST`; or the problem.
    """
    text = value.strip(" \t")
    if _DIGITS.fullmatch(text):
        return Hint(_number(text, timedelta(seconds=1)))
    at = http_date(text, now=now)
    if at is None:
        return Hint(None, f"Retry-After {value!r} is neither a whole number of seconds nor a date as HTTP writes it")
    return Hint(_until(at, (response_date and http_date(response_date.strip(" \t"), now=now)) or now))


def retry_after_decimal(value: str) -> Hint:
    """Read a ``Retry-After`` with a fraction, ``0.5``: no form of RFC 9110, but servers of AI services send it.

    Returns:
        The span, rounded up to microseconds, at most `redrive.policy.duration.LONGEST`; or the problem.
    """
    return _decimal(value, "Retry-After", timedelta(seconds=1))


def retry_after_ms(value: str) -> Hint:
    """Read a ``retry-after-ms``, which servers of AI services send beside ``Retry-After``, and which is more exact.

    Returns:
        The span, rounded up to microseconds, at most `redrive.policy.duration.LONGEST`; or the problem.
    """
    return _decimal(value, "retry-after-ms", timedelta(milliseconds=1))


def _decimal(value: str, name: str, unit: timedelta) -> Hint:
    found = _DECIMAL.fullmatch(value.strip(" \t"))
    if found is None:
        return Hint(None, f"{name} {value!r} is not a number without a sign")
    return Hint(_amount(found, unit))


def _amount(found: re.Match[str], unit: timedelta) -> timedelta:
    """Return a decimal number of units, rounded up to microseconds."""
    whole, fraction = _number(found["whole"], unit), found["fraction"] or ""
    # A part of a unit that is written with more digits than this is less than a microsecond.
    part = -(-int(fraction[:_COUNTABLE].ljust(_COUNTABLE, "0")) * (unit // _LEAST) // 10**_COUNTABLE)
    total: timedelta = whole + part * _LEAST
    return min(total, LONGEST)


def rate_limit_reset(value: str, *, now: datetime, since_1970: bool = False) -> Hint:
    """Read an ``X-RateLimit-Reset``, or a field of that kind under another name.

    Args:
        value: the field's value, whole seconds.
        now: the present instant, aware.
        since_1970: the seconds count from 1970 (GitHub) instead of from now (most others); see the server's
            documentation.
    """
    text = value.strip(" \t")
    if not _DIGITS.fullmatch(text):
        return Hint(None, f"the reset {value!r} is not a whole number of seconds")
    span = _number(text, timedelta(seconds=1))
    return Hint(max(ZERO, span - (now - EPOCH)) if since_1970 and span < LONGEST else span)


def grpc_pushback(value: str) -> Hint:
    """Read a ``grpc-retry-pushback-ms``.

    Returns:
        The span; or ``stop`` for a value that is negative, not a 32-bit integer, or not a number (gRFC A6).
    """
    if _DIGITS.fullmatch(value) and len(value) <= _INT32_DIGITS and int(value) <= _INT32:
        return Hint(timedelta(milliseconds=int(value)))
    return Hint(None, f"the server asks for no retry (pushback {value!r})", stop=True)


def amazon(value: str, delay: timedelta, *, over: timedelta = AMAZON_OVER) -> timedelta:
    """Return the wait of AWS's clients: the milliseconds of ``x-amz-retry-after``, at most ``over`` above ``delay``.

    A client never waits more than ``over`` longer than its own delay, so that a faulty server cannot stop its clients.
    """
    text = value.strip(" \t")
    if not _DIGITS.fullmatch(text):
        return delay
    return max(delay, min(_number(text, timedelta(milliseconds=1)), delay + over))


def chosen(hints: Iterable[Hint], *, max_hint: timedelta | None = None) -> Hint:
    """Return the hint to apply, for a response with several.

    Args:
        hints: in the order of preference.
        max_hint: a longer hint is skipped for a later one that is not longer (as in Envoy).

    Returns:
        A hint that forbids the retry, if there is one; otherwise the first readable one that is not too long; otherwise
        the first readable one, on which a policy with this ``max_hint`` gives up; otherwise the first problem.
    """
    given = list(hints)
    read = [hint for hint in given if hint.delay is not None]
    fitting = [hint for hint in read if max_hint is None or (hint.delay is not None and hint.delay <= max_hint)]
    forbidding = [hint for hint in given if hint.stop]
    return next(iter(forbidding + fitting + read + given), _NONE)


# ---------------------------------------------------------------------------------------- all headers of an answer


def http(headers: Headers, now: datetime) -> Hint:
    """Read the headers of an HTTP answer: ``retry-after-ms`` if there is one, otherwise ``Retry-After``.

    Args:
        headers: of the answer.
        now: the present instant, aware.
    """
    date = next(values(headers, "date"), None)
    exact = [retry_after_ms(value) for value in values(headers, "retry-after-ms")]
    given = list(values(headers, "retry-after"))
    dated = [retry_after(value, now=now, response_date=date) for value in given]
    return chosen([*exact, *dated, *map(retry_after_decimal, given)])


def ai(headers: Headers, now: datetime) -> Hint:
    """Read the headers of an answer of an AI service, as OpenAI, Anthropic and services like them send them.

    ``x-should-retry: false`` forbids the retry, and ``true`` asks for it. The delay is that of `http`. Without one it
    is the longest reset of the rate limits of which nothing is left (``-remaining`` is 0): of
    ``x-ratelimit-reset-requests`` and ``x-ratelimit-reset-tokens``, which are spans such as ``6m0s`` or ``20ms``, and
    of ``anthropic-ratelimit-*-reset``, which are instants of RFC 3339.

    Args:
        headers: of the answer.
        now: the present instant, aware.
    """
    should = next(values(headers, "x-should-retry"), "").strip(" \t").lower()
    if should == "false":
        return Hint(None, "the server asks for no retry (x-should-retry: false)", stop=True)
    resets = list(_resets(headers, now))
    longest = max(resets, key=lambda hint: hint.delay or ZERO, default=_NONE)
    return chosen([http(headers, now), longest])._replace(again=should == "true")


def values(headers: Headers, name: str) -> Iterator[str]:
    """Yield the values of the headers with a name, which is in lower case."""
    return (value for given, value in _pairs(headers) if given.lower() == name)


def _pairs(headers: Headers) -> Iterable[tuple[str, str]]:
    return headers.items() if isinstance(headers, Mapping) else headers


def _resets(headers: Headers, now: datetime) -> Iterator[Hint]:
    """Yield the resets of the rate limits of which nothing is left."""
    date = http_date(next(values(headers, "date"), "").strip(" \t"), now=now)
    for name, value in _pairs(headers):
        spoken, dated = _SPAN_RESET.fullmatch(name), _DATED_RESET.fullmatch(name)
        remaining = spoken.expand(r"\1remaining\2") if spoken else dated.expand(r"\1remaining") if dated else ""
        if "0" in map(str.strip, values(headers, remaining.lower())):
            yield _span_of(value.strip(" \t")) if spoken else _until_instant(value.strip(" \t"), date or now)


def _span_of(text: str) -> Hint:
    """Read a span as Go writes it: ``6m0s``, ``20ms``, ``1h30m``, ``8.64s``."""
    if not _SPAN.fullmatch(text):
        return Hint(None, f"the reset {text!r} is not a span such as 6m0s")
    parts = (_amount(part, _UNITS[part["unit"]]) for part in _SPAN_PART.finditer(text))
    return Hint(min(sum(parts, ZERO), LONGEST))


def _until_instant(text: str, now: datetime) -> Hint:
    """Read an instant of RFC 3339 as the span until then."""
    try:
        at = datetime.fromisoformat(text.upper()) if _INSTANT.fullmatch(text) else None
    except ValueError:
        # The 31st of June.
        at = None
    return Hint(None, f"the reset {text!r} is not an instant of RFC 3339") if at is None else Hint(_until(at, now))


_NONE = Hint(None, "no hint was given")
_SPAN_RESET = re.compile(r"(x-ratelimit-)reset(-requests|-tokens)", re.IGNORECASE)
_DATED_RESET = re.compile(r"(anthropic-ratelimit-[a-z-]+-)reset", re.IGNORECASE)
_SPAN_PART = re.compile(r"(?P<whole>\d+)(?:\.(?P<fraction>\d+))?(?P<unit>ms|[dhms])", re.ASCII)
_SPAN = re.compile(rf"(?:{re.sub('[?]P<[a-z]+>', '', _SPAN_PART.pattern)}){{1,5}}", re.ASCII)
_UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE)

# ------------------------------------------------------------------------------------------------------------- dates

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_FORMS = tuple(
    re.compile(form, re.ASCII)
    for form in (
        # IMF-fixdate, a little wider.
        rf"{_DAY}, (?P<day>\d\d?) {_MONTH} (?P<year>\d{{4}}) {_TIME} (?:GMT|UTC)",
        # RFC 850.
        rf"{_LONG_DAY}, (?P<day>\d\d)-{_MONTH}-(?P<year>\d\d) {_TIME} GMT",
        # asctime, which is UTC in HTTP.
        rf"{_DAY} {_MONTH} (?P<day>[ \d]\d) {_TIME} (?P<year>\d{{4}})",
    )
)
_DIGITS = re.compile(r"\d+", re.ASCII)
_DECIMAL = re.compile(r"(?P<whole>\d+)(?:\.(?P<fraction>\d+))?", re.ASCII)
_LEAST = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT32, _INT32_DIGITS = 2**31 - 1, 10
# Digits; a longer number is beyond `LONGEST` in any unit, and Python refuses to read very long ones.
_COUNTABLE = 15
_LEAP = 60
_AHEAD = timedelta(days=50 * 365.2425)


def http_date(text: str, *, now: datetime) -> datetime | None:
    """Read a date in one of the three forms of RFC 9110, 5.6.7.

    A day of one digit and the zone UTC are accepted, too. The weekday is not checked against the date. A leap second
    is the first second of the next minute.

    Args:
        text: the date.
        now: the present instant, aware: a year of two digits is the latest that is at most 50 years ahead.

    Returns:
        The instant, aware; None if the text is not such a date.
    """
    for form in _FORMS:
        found = form.fullmatch(text)
        if found is not None:
            parts = found.groupdict()
            try:
                return _instant(parts, now) if len(parts["year"]) == len("70") else _at(parts, int(parts["year"]))
            except (ValueError, OverflowError):  # the 31st of June; the last second of the last year
                return None
    return None


def _instant(parts: dict[str, str], now: datetime) -> datetime:
    year = now.year // 100 * 100 + 100 + int(parts["year"])
    at = _at(parts, year)
    while at > now + _AHEAD:
        year -= 100
        at = _at(parts, year)
    return at


def _at(parts: dict[str, str], year: int) -> datetime:
    second = int(parts["second"])
    at = datetime(
        year,
        _MONTHS.index(parts["month"]) + 1,
        int(parts["day"]),
        int(parts["hour"]),
        int(parts["minute"]),
        0 if second == _LEAP else second,
        tzinfo=UTC,
    )
    return at + timedelta(minutes=1) if second == _LEAP else at


def _until(at: datetime, now: datetime) -> timedelta:
    return min(max(ZERO, at - now), LONGEST)


def _number(digits: str, unit: timedelta) -> timedelta:
    significant = digits.lstrip("0") or "0"
    if len(significant) > _COUNTABLE or int(significant) > LONGEST // unit:
        return LONGEST
    return int(significant) * unit
