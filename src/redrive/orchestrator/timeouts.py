"""The end of a request's time: how long it may still wait, and what may be said when it is over.

**Capping** (RFC 0049, "Capping the Retry Duration"). A wait never goes past the deadline; one that would is cut, and
after it the request is not sent again but times out, since that is what would happen anyway. If the deadline has passed
already there is nothing to wait for. (Two SDKs then wait the whole delay, and two send the request after a cut wait.)

**Ambiguous or not** (RFC 0058). A timeout is ambiguous if the request can change something and some attempt was sent
without a definite answer. That does not go away by later attempts: an upsert that was lost once and then refused twice
may have taken effect the first time. It is not ambiguous for having been sent: "locked" and "temporary failure" are
definite.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from redrive.errors import AmbiguousTimeout, UnambiguousTimeout
from redrive.orchestrator.request import Request
from redrive.policy import format_duration
from redrive.policy.duration import Duration, parse_duration, span

__all__ = ["Wait", "cap", "server_timeout", "timed_out"]

_FLOOR = timedelta(milliseconds=1500)


class Wait(NamedTuple):
    """What a delay comes to under a deadline.

    Attributes:
        delay: how long to wait.
        expires: whether the deadline comes with its end, so that nothing is sent after it.
    """

    delay: timedelta
    expires: bool


def cap(delay: timedelta, remaining: float | None) -> Wait:
    """Cut a delay to what is left.

    Args:
        delay: what was asked for.
        remaining: seconds until the deadline, negative after it; None without one.
    """
    if remaining is None:
        return Wait(delay, expires=False)
    left = span(max(0.0, remaining))
    return Wait(min(delay, left), expires=delay >= left)


def timed_out(request: Request) -> AmbiguousTimeout | UnambiguousTimeout:
    """The error of a request whose time is up; what its last attempt raised is its cause."""
    told = f"{request.operation} timed out after {format_duration(_rounded(request.elapsed))}, {_told(request)}"
    error: AmbiguousTimeout | UnambiguousTimeout
    if request.is_ambiguous:
        error = AmbiguousTimeout(f"{told}; nobody knows whether it took effect")
    else:
        error = UnambiguousTimeout(f"{told}; it {'changes nothing' if request.read_only else 'did not take effect'}")
    error.__cause__ = request.last_error
    return error


def _rounded(elapsed: timedelta) -> timedelta:
    return timedelta(milliseconds=round(elapsed.total_seconds() * 1000))


def _told(request: Request) -> str:
    if not request.retry_attempts:
        return "without a retry"
    times = f"{request.retry_attempts} retr{'y' if request.retry_attempts == 1 else 'ies'}"
    return f"after {times} ({', '.join(reason.name for reason in request.retry_reasons)})"


def server_timeout(timeout: Duration) -> timedelta:
    """How long a server should try what a client waits for: 90 %, and not less than 1.5 s (Couchbase's C++ SDK).

    The rest is for its answer: a server that gives up in time can still say whether a durable write took effect.

    Args:
        timeout: what is left of the request's time.
    """
    return max(parse_duration(timeout) * 9 // 10, _FLOOR)
