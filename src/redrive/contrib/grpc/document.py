"""gRPC's retry documents, read into redrive's values: ``retryPolicy``, ``hedgingPolicy``, ``retryThrottling``.

The owner of a gRPC service may write down, for all clients in all languages, how its methods are retried: in the
service config, JSON that is found in the DNS or given to the channel. gRFC A6 says what it means and what makes it
invalid. Here it becomes a `redrive.Policy` and a `redrive.retrying.ThrottleBudget`, so that calls that do not go
through a gRPC channel (a gateway, a durable job) are retried by the same rules.

====================================  ==========================================================================
``retryPolicy``                       the `redrive.Policy`
====================================  ==========================================================================
``maxAttempts``                       ``attempts``, at most 5 unless the client says otherwise
``initialBackoff``, ``maxBackoff``,   ``backoff`` and ``jitter``: the n-th retry comes after initial times
``backoffMultiplier``                 multiplier to the power of n - 1, at most the longest, give or take a fifth
``retryableStatusCodes``              ``on``: the reasons ``GRPC_UNAVAILABLE`` and so on
(that the owner has chosen them)      ``idempotent=True``: the owner vouches that these may be repeated
====================================  ==========================================================================

The fifth up and down is written as a backoff of 0.8 and a jitter of up to a half on top, which is the same spread, so
``delays()`` gives the shortest of each. One thing is redrive's: a pushback is a floor, as every hint, and does not
restart the backoff.

All numbers may be whole floats (``4.0``), which is what many readers make of JSON. Keys that A6 does not have are
ignored, as by gRPC itself: the document belongs to somebody else, who may be newer than this client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite, log
from typing import Any

from redrive.contrib.grpc.codes import Code
from redrive.contrib.grpc.progress import NEVER_LEFT, NOT_PROCESSED
from redrive.errors import PolicyError, PolicyValueError
from redrive.policy import Backoff, Jitter, Policy
from redrive.policy.budget import ThrottleBudget
from redrive.policy.hedge import Hedge

__all__ = ["MOST_ATTEMPTS", "read_duration", "read_hedging_policy", "read_retry_policy", "read_retry_throttling"]

MOST_ATTEMPTS = 5
"""How many attempts a client makes at most, whatever the document says, unless it is told otherwise (gRFC A6)."""

_FEWEST = 2
_MOST_TOKENS = 1000
_NANOS = 10**9
_LONGEST = 315_576_000_000  # seconds: what a protobuf Duration can hold
_DURATION = re.compile(r"(-?)(0|[1-9]\d*)(?:\.(\d{1,9}))?s", re.ASCII)
_FIFTH = Jitter.plus(0.5)


def read_retry_policy(document: Mapping[str, Any], *, most: int = MOST_ATTEMPTS, at: str = "retryPolicy") -> Policy:
    """Read a ``retryPolicy``.

    Args:
        document: the JSON object.
        most: attempts that this client makes at most.
        at: where the object stands, for messages.

    Returns:
        The policy. Its deadline is that of the place; see `redrive.contrib.grpc.transparently` for retries of calls
        that no application has seen.

    Raises:
        PolicyValueError: what A6 forbids; the message says what, where, and what would be right.
    """
    fields = _object(document, at)
    attempts = _attempts(fields, most, at)
    initial, maximum = (_above_zero(fields, name, at) for name in ("initialBackoff", "maxBackoff"))
    multiplier = _number(_required(fields, "backoffMultiplier", at), f"{at}.backoffMultiplier")
    if multiplier <= 0:
        raise PolicyValueError(f"{at}.backoffMultiplier: {multiplier!r} is not above zero")
    codes = _codes(_required(fields, "retryableStatusCodes", at), f"{at}.retryableStatusCodes")
    if not codes:
        raise PolicyValueError(f"{at}.retryableStatusCodes: it is empty; name at least one, such as 'UNAVAILABLE'")
    return Policy(
        on=codes,
        attempts=attempts,
        backoff=_backoff(_shortest(initial), _shortest(maximum), multiplier),
        jitter=_FIFTH,
        idempotent=True,
    )


def read_hedging_policy(document: Mapping[str, Any], *, most: int = MOST_ATTEMPTS, at: str = "hedgingPolicy") -> Policy:
    """Read a ``hedgingPolicy``.

    Args:
        document: the JSON object.
        most: copies of a call that this client makes at most, the first included.
        at: where the object stands, for messages.

    Returns:
        A policy of one attempt and a `redrive.retrying.Hedge`.

    Raises:
        PolicyValueError: what A6 forbids.
    """
    fields = _object(document, at)
    copies = _attempts(fields, most, at)
    delay = read_duration(fields.get("hedgingDelay", "0s"), at=f"{at}.hedgingDelay")
    if delay < 0:
        raise PolicyValueError(f"{at}.hedgingDelay: {fields['hedgingDelay']!r} is negative")
    codes = _codes(fields.get("nonFatalStatusCodes", []), f"{at}.nonFatalStatusCodes")
    return Policy(
        on=codes or Code.OK.reason,  # every failure is fatal, and OK is none
        attempts=1,
        idempotent=True,
        hedge=Hedge(delay / _NANOS, copies) if copies > 1 else None,
    )


def read_retry_throttling(document: Mapping[str, Any], *, at: str = "retryThrottling") -> ThrottleBudget:
    """Read a ``retryThrottling``.

    Args:
        document: the JSON object.
        at: where the object stands, for messages.

    Returns:
        The budget, to be registered by `redrive.retrying.budget` under a key for the server, since A6 throttles by
        server. Transparent retries are free of it.

    Raises:
        PolicyValueError: what A6 forbids.
    """
    fields = _object(document, at)
    tokens = _whole(_required(fields, "maxTokens", at), f"{at}.maxTokens")
    if not 0 < tokens <= _MOST_TOKENS:
        raise PolicyValueError(f"{at}.maxTokens: {tokens!r} is not from 1 to {_MOST_TOKENS}")
    ratio = _number(_required(fields, "tokenRatio", at), f"{at}.tokenRatio")
    try:
        return ThrottleBudget(tokens, ratio=ratio, free=(NEVER_LEFT, NOT_PROCESSED))
    except PolicyError as error:
        raise PolicyValueError(f"{at}.tokenRatio: {error}") from None


def read_duration(said: object, *, at: str = "duration") -> int:
    """Read a protobuf ``Duration`` as JSON writes it: ``"0.1s"``.

    Args:
        said: the text: a decimal number with at most nine digits behind the point, and an ``s``.
        at: where it stands, for messages.

    Returns:
        Nanoseconds; negative if the text is.

    Raises:
        PolicyValueError: it is no such text.
    """
    found = _DURATION.fullmatch(said) if isinstance(said, str) else None
    if found is None or int(found[2][:13]) > _LONGEST:
        raise PolicyValueError(f"{at}: {said!r} is not a duration: write seconds with an s behind them, as in '0.1s'")
    nanos = int(found[2]) * _NANOS + int((found[3] or "").ljust(9, "0"))
    return -nanos if found[1] else nanos


# --------------------------------------------------------------------------------------------------------------- fields


def _backoff(initial: float, maximum: float, multiplier: float) -> Backoff:
    if multiplier >= 1:
        return Backoff.exponential(initial, maximum, multiplier)
    return Backoff.named("decay", initial=initial, rate=-log(multiplier)).cap(maximum)  # A6 allows ever shorter delays


def _shortest(nanos: int) -> float:
    return nanos * 4 // 5 / _NANOS  # in whole numbers, so that 0.1 s does not become 0.08000000000000002


def _attempts(fields: Mapping[str, Any], most: int, at: str) -> int:
    attempts = _whole(_required(fields, "maxAttempts", at), f"{at}.maxAttempts")
    if attempts < _FEWEST:
        raise PolicyValueError(f"{at}.maxAttempts: {attempts!r} is less than 2; it counts the first attempt too")
    return min(attempts, most)


def _above_zero(fields: Mapping[str, Any], name: str, at: str) -> int:
    said = _required(fields, name, at)
    nanos = read_duration(said, at=f"{at}.{name}")
    if nanos <= 0:
        raise PolicyValueError(f"{at}.{name}: {said!r} is not above zero")
    return nanos


def _codes(said: object, at: str) -> list[str]:
    if not isinstance(said, list | tuple):
        raise PolicyValueError(f"{at}: {said!r} is not a list of status codes")
    return [_code(each, f"{at}[{place}]").reason for place, each in enumerate(said)]


def _code(said: object, at: str) -> Code:
    try:
        code = Code.of(said)
    except PolicyValueError as error:
        raise PolicyValueError(f"{at}: {error}") from None
    if code is Code.OK:
        raise PolicyValueError(f"{at}: {said!r} is no failure, so there is nothing to repeat")
    return code


def _object(said: object, at: str) -> Mapping[str, Any]:
    if not isinstance(said, Mapping):
        raise PolicyValueError(f"{at}: {said!r} is not an object of JSON")
    return said


def _required(fields: Mapping[str, Any], name: str, at: str) -> object:
    if fields.get(name) is None:
        raise PolicyValueError(f"{at}.{name}: it is missing")
    return fields[name]


def _number(said: object, at: str) -> float:
    if isinstance(said, bool) or not isinstance(said, int | float) or not isfinite(said):
        raise PolicyValueError(f"{at}: {said!r} is not a number")
    return said


def _whole(said: object, at: str) -> int:
    number = _number(said, at)
    if number != int(number):
        raise PolicyValueError(f"{at}: {said!r} is not a whole number")
    return int(number)
