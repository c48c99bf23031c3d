"""gRPC service configs read into policies: ``retryPolicy``, ``hedgingPolicy``, ``retryThrottling``.

The owner of a gRPC service publishes how clients retry its methods as JSON, in the DNS or in the options of a channel
(gRFC A6). These functions return a `redrive.Policy` and a `redrive.retrying.ThrottleBudget`, so that calls outside a
gRPC channel (a gateway, a durable job) follow the same rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite, log
from typing import Any

from redrive.contrib.grpc.progress import NEVER_LEFT, NOT_PROCESSED, Code
from redrive.errors import PolicyError, PolicySyntaxError, PolicyValueError
from redrive.policy import Backoff, Jitter, Policy
from redrive.policy.budget import ThrottleBudget
from redrive.policy.hedge import Hedge

MOST_ATTEMPTS = 5
"""The default of the largest number of attempts, whatever a service config asks for (gRFC A6)."""

_FEWEST = 2
_MOST_TOKENS = 1000
_NANOS = 10**9
_LONGEST = 315_576_000_000  # seconds, the range of a protobuf Duration
_DURATION = re.compile(r"(-?)(0|[1-9]\d*)(?:\.(\d{1,9}))?s", re.ASCII)
_SPREAD = Jitter.plus(0.5)


@dataclass(frozen=True, slots=True)
class MethodConfig:
    """The retry settings of some methods in a service config.

    Attributes:
        names: the methods: ``package.Service/Method``, ``package.Service/`` for all of a service, ``/`` for all.
        policy: the policy, with their ``timeout`` as its deadline; None if they are neither retried nor hedged.
    """

    names: tuple[str, ...]
    policy: Policy | None


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The retry settings of a service config.

    Attributes:
        methods: in the order of the config.
        throttling: the retry budget of the server; None if it has none.
    """

    methods: tuple[MethodConfig, ...]
    throttling: ThrottleBudget | None

    def policy_for(self, method: str) -> Policy | None:
        """Return the policy of a method, of its service or of all methods, whichever is found first; or None.

        The method is ``/package.Service/Method``, as interceptors get it; the leading slash is optional.
        """
        whole = method.removeprefix("/")
        named = {name: each.policy for each in self.methods for name in each.names}
        for name in (whole, whole.partition("/")[0] + "/", "/"):
            if name in named:
                return named[name]
        return None


def read_service_config(document: Mapping[str, Any] | str | bytes, *, most: int = MOST_ATTEMPTS) -> ServiceConfig:
    """Read the retry settings of a service config.

    Args:
        document: the JSON, parsed or as text.
        most: the largest number of attempts that this client makes.

    Raises:
        PolicySyntaxError: the text is not JSON.
        PolicyValueError: gRFC A6 forbids a value; the message names the place and the valid values. One invalid value
            makes the whole config invalid.
    """
    config = _parsed(document) if isinstance(document, str | bytes) else document
    if not isinstance(config, Mapping):
        raise PolicyValueError(f"the service config {config!r} is not a JSON object")
    methods = config.get("methodConfig", [])
    if not isinstance(methods, list | tuple):
        raise PolicyValueError(f"methodConfig: {methods!r} is not a list")
    found = tuple(_method(each, most, f"methodConfig[{place}]") for place, each in enumerate(methods))
    names = [name for each in found for name in each.names]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PolicyValueError(f"methodConfig: {', '.join(twice)} is named more than once")
    throttling = config.get("retryThrottling")
    return ServiceConfig(found, None if throttling is None else read_retry_throttling(throttling))


def read_retry_policy(document: Mapping[str, Any], *, most: int = MOST_ATTEMPTS, at: str = "retryPolicy") -> Policy:
    """Read a ``retryPolicy``; see `redrive.contrib.grpc.transparently` for retries of calls that were not sent.

    ``most`` is the largest number of attempts that this client makes, ``at`` the path of the object for messages.

    Raises:
        PolicyValueError: A6 forbids a value; the message names the place and the valid values.
    """
    fields = _object(document, at)
    attempts = _attempts(fields, most, at)
    initial, maximum = (_above_zero(fields, name, at) for name in ("initialBackoff", "maxBackoff"))
    multiplier = _number(_required(fields, "backoffMultiplier", at), f"{at}.backoffMultiplier")
    if multiplier <= 0:
        raise PolicyValueError(f"{at}.backoffMultiplier: {multiplier!r} is not above zero")
    codes = _codes(_required(fields, "retryableStatusCodes", at), f"{at}.retryableStatusCodes")
    if not codes:
        raise PolicyValueError(f"{at}.retryableStatusCodes: it is empty; name at least one code, such as 'UNAVAILABLE'")
    return Policy(
        on=codes,
        attempts=attempts,
        backoff=_backoff(_shortest(initial), _shortest(maximum), multiplier),
        jitter=_SPREAD,
        idempotent=True,
    )


def read_hedging_policy(document: Mapping[str, Any], *, most: int = MOST_ATTEMPTS, at: str = "hedgingPolicy") -> Policy:
    """Read a ``hedgingPolicy`` into a policy with one attempt and a `redrive.retrying.Hedge`.

    ``most`` is the largest number of copies of a call, including the first; ``at`` the path of the object for messages.

    Raises:
        PolicyValueError: A6 forbids a value.
    """
    fields = _object(document, at)
    copies = _attempts(fields, most, at)
    delay = read_duration(fields.get("hedgingDelay", "0s"), at=f"{at}.hedgingDelay")
    if delay < 0:
        raise PolicyValueError(f"{at}.hedgingDelay: {fields['hedgingDelay']!r} is negative")
    codes = _codes(fields.get("nonFatalStatusCodes", []), f"{at}.nonFatalStatusCodes")
    return Policy(
        # Without codes every failure is fatal. `on` must name a reason, and OK is never the reason of a failure.
        on=codes or Code.OK.reason,
        attempts=1,
        idempotent=True,
        hedge=Hedge(delay / _NANOS, copies) if copies > 1 else None,
    )


def read_retry_throttling(document: Mapping[str, Any], *, at: str = "retryThrottling") -> ThrottleBudget:
    """Read a ``retryThrottling``; ``at`` is the path of the object for messages.

    Register the budget with `redrive.retrying.budget` under a key for the server, because A6 throttles by server.
    Transparent retries take no token from it.

    Raises:
        PolicyValueError: A6 forbids a value.
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


def read_duration(value: object, *, at: str = "duration") -> int:
    """Read a protobuf ``Duration`` in its JSON form, ``"0.1s"``.

    The value has at most nine digits after the point, and an ``s``; ``at`` is its path for messages. Return
    nanoseconds, which may be negative.

    Raises:
        PolicyValueError: the value has another form.
    """
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None or int(found[2][:13]) > _LONGEST:
        raise PolicyValueError(f"{at}: {value!r} is not a duration: write seconds followed by an s, as in '0.1s'")
    nanos = int(found[2]) * _NANOS + int((found[3] or "").ljust(9, "0"))
    return -nanos if found[1] else nanos


def _backoff(initial: float, maximum: float, multiplier: float) -> Backoff:
    if multiplier >= 1:
        # A6 allows a first delay beyond the longest one.
        return Backoff.exponential(min(initial, maximum), maximum, multiplier)
    # A6 allows a multiplier below 1: delays that become shorter.
    return Backoff.named("decay", initial=initial, rate=-log(multiplier)).cap(maximum)


def _shortest(nanos: int) -> float:
    # Computed in integers, so that 0.1 s does not become 0.08000000000000002.
    return nanos * 4 // 5 / _NANOS


def _attempts(fields: Mapping[str, Any], most: int, at: str) -> int:
    attempts = _whole(_required(fields, "maxAttempts", at), f"{at}.maxAttempts")
    if attempts < _FEWEST:
        raise PolicyValueError(f"{at}.maxAttempts: {attempts!r} is less than 2; it includes the first attempt")
    return min(attempts, most)


def _above_zero(fields: Mapping[str, Any], name: str, at: str) -> int:
    value = _required(fields, name, at)
    nanos = read_duration(value, at=f"{at}.{name}")
    if nanos <= 0:
        raise PolicyValueError(f"{at}.{name}: {value!r} is not above zero")
    return nanos


def _codes(value: object, at: str) -> list[str]:
    if not isinstance(value, list | tuple):
        raise PolicyValueError(f"{at}: {value!r} is not a list of status codes")
    return [_code(each, f"{at}[{place}]").reason for place, each in enumerate(value)]


def _code(value: object, at: str) -> Code:
    try:
        code = Code.of(value)
    except PolicyValueError as error:
        raise PolicyValueError(f"{at}: {error}") from None
    if code is Code.OK:
        raise PolicyValueError(f"{at}: {value!r} is not a failure and cannot be retried")
    return code


def _object(value: object, at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise PolicyValueError(f"{at}: {value!r} is not a JSON object")
    return value


def _required(fields: Mapping[str, Any], name: str, at: str) -> object:
    if fields.get(name) is None:
        raise PolicyValueError(f"{at}.{name}: it is missing")
    return fields[name]


def _number(value: object, at: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise PolicyValueError(f"{at}: {value!r} is not a number")
    return value


# Many JSON parsers return whole numbers as floats (4.0).
def _whole(value: object, at: str) -> int:
    number = _number(value, at)
    if number != int(number):
        raise PolicyValueError(f"{at}: {value!r} is not a whole number")
    return int(number)


def _parsed(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise PolicySyntaxError(f"the service config is not JSON: {error}") from None


def _method(value: object, most: int, at: str) -> MethodConfig:
    fields = _object(value, at)
    names = tuple(_names(fields.get("name", []), f"{at}.name"))
    policy, retried, hedged = None, fields.get("retryPolicy"), fields.get("hedgingPolicy")
    if retried is not None and hedged is not None:
        raise PolicyValueError(f"{at}: a retryPolicy and a hedgingPolicy exclude each other; remove one")
    if retried is not None:
        policy = read_retry_policy(retried, most=most, at=f"{at}.retryPolicy")
    elif hedged is not None:
        policy = read_hedging_policy(hedged, most=most, at=f"{at}.hedgingPolicy")
    timeout = fields.get("timeout")
    if timeout is not None:
        seconds = read_duration(timeout, at=f"{at}.timeout") / _NANOS
        if seconds <= 0:
            raise PolicyValueError(f"{at}.timeout: {timeout!r} is not above zero")
        policy = policy and policy.with_(deadline=seconds)
    return MethodConfig(names, policy)


def _names(value: object, at: str) -> Iterator[str]:
    if not isinstance(value, list | tuple):
        raise PolicyValueError(f"{at}: {value!r} is not a list of names")
    for place, name in enumerate(value):
        service, method = (
            (name.get(key) or "" for key in ("service", "method")) if isinstance(name, Mapping) else (0, 0)
        )
        if not isinstance(service, str) or not isinstance(method, str):
            raise PolicyValueError(f"{at}[{place}]: {name!r} is not of the form {{'service': ..., 'method': ...}}")
        if method and not service:
            raise PolicyValueError(f"{at}[{place}]: the method {method!r} needs a service")
        yield f"{service}/{method}"
