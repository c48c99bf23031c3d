"""The values of a circuit breaker: settings, state, events and answers. The machine is in `redrive.policy.breaker`.

Events and answers are `Value` classes, not named tuples: ``Succeeded(1)`` must not equal ``Failed(1)``, and an event
without arguments must not be false.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import NamedTuple, TypeAlias

from redrive.errors import PolicyValueError
from redrive.policy.duration import Duration, parse_duration
from redrive.policy.value import Value, freeze

__all__ = [
    "Admitted",
    "Answer",
    "Ask",
    "BreakerSettings",
    "BreakerState",
    "BreakerStatus",
    "Dropped",
    "Event",
    "Failed",
    "Noted",
    "Probe",
    "Refused",
    "Reset",
    "Succeeded",
]


class BreakerStatus(Enum):
    """The state of a breaker."""

    CLOSED = "closed"
    """Lets them through and counts."""
    OPEN = "open"
    """Refuses."""
    HALF_OPEN = "half_open"
    """Waits for what becomes of the canary, and refuses."""
    DISABLED = "disabled"
    """Lets them through and does not count."""


class BreakerSettings(Value):
    """The thresholds and times of a breaker. The defaults are those of Couchbase's Java, Go and .NET SDKs.

    Args:
        volume_threshold: results that must be in the window before it can open.
        error_threshold: percentage of failures among them that opens it, a whole number from 1 to 100.
        sleep_window: time for which it refuses before there is a canary.
        rolling_window: time for which a result counts.
        canary_timeout: longest duration of a canary.
        canary: ``request``: the next real call; ``probe``: a cheap call of the client's own.
        enabled: False for a breaker that always admits.

    Raises:
        PolicyValueError: a value is not valid; the message names it.
    """

    __slots__ = (
        "canary",
        "canary_timeout",
        "enabled",
        "error_threshold",
        "rolling_window",
        "sleep_window",
        "volume_threshold",
    )
    _fields = (
        "volume_threshold",
        "error_threshold",
        "sleep_window",
        "rolling_window",
        "canary_timeout",
        "canary",
        "enabled",
    )
    volume_threshold: int
    error_threshold: int
    sleep_window: timedelta
    rolling_window: timedelta
    canary_timeout: timedelta
    canary: str
    enabled: bool

    def __init__(  # noqa: PLR0913 - one parameter a setting
        self,
        *,
        volume_threshold: int = 20,
        error_threshold: int = 50,
        sleep_window: Duration = "5s",
        rolling_window: Duration = "1m",
        canary_timeout: Duration = "5s",
        canary: str = "request",
        enabled: bool = True,
    ) -> None:
        _check_whole("volume_threshold", volume_threshold, None)
        _check_whole("error_threshold", error_threshold, 100)
        if canary not in ("request", "probe"):
            message = f"canary={canary!r}: it is a 'request' or a 'probe'"
            raise PolicyValueError(message)
        freeze(self, "volume_threshold", volume_threshold)
        freeze(self, "error_threshold", error_threshold)
        freeze(self, "sleep_window", parse_duration(sleep_window))
        freeze(self, "rolling_window", parse_duration(rolling_window))
        freeze(self, "canary_timeout", parse_duration(canary_timeout))
        freeze(self, "canary", canary)
        freeze(self, "enabled", enabled)
        if not self.rolling_window or not self.canary_timeout:
            name = "canary_timeout" if self.rolling_window else "rolling_window"
            message = f"{name} must be longer than nothing"
            raise PolicyValueError(message)


class BreakerState(NamedTuple):
    """The state of a breaker. All instants are in microseconds.

    Attributes:
        status: its status.
        era: number of the present era, and the token of the calls that are admitted in it.
        since: when it opened, or when its canary was admitted; 0 otherwise.
        slots: for each slot of the window that has results: its number, successes, failures.
        successes: the sum of the slots.
        failures: the same.
    """

    status: BreakerStatus
    era: int = 0
    since: int = 0
    slots: tuple[tuple[int, int, int], ...] = ()
    successes: int = 0
    failures: int = 0


class Ask(Value):
    """A request to send a call."""

    __slots__ = ()


class _Report(Value):
    __slots__ = ("token",)
    __match_args__ = _fields = ("token",)
    token: int

    def __init__(self, token: int) -> None:
        freeze(self, "token", token)


class Succeeded(_Report):
    """An admitted call, with the token of its admission, has succeeded."""

    __slots__ = ()


class Failed(_Report):
    """An admitted call, with the token of its admission, has failed in a way that counts."""

    __slots__ = ()


class Dropped(_Report):
    """An admitted call, with the token of its admission, has no result: it was not sent, or its caller has left."""

    __slots__ = ()


class Reset(Value):
    """A restart of the breaker, as after a reconnect."""

    __slots__ = ()


Event: TypeAlias = Ask | Succeeded | Failed | Dropped | Reset


class Admitted(Value):
    """The call may be sent.

    Args:
        token: for the report of its result.
        is_canary: the breaker waits for this call.
    """

    __slots__ = ("is_canary", "token")
    __match_args__ = _fields = ("token", "is_canary")
    token: int
    is_canary: bool

    def __init__(self, token: int, *, is_canary: bool = False) -> None:
        freeze(self, "token", token)
        freeze(self, "is_canary", is_canary)


class Probe(Value):
    """The call is refused, and the client must send a canary of its own and report under this token."""

    __slots__ = ("token",)
    __match_args__ = _fields = ("token",)
    token: int

    def __init__(self, token: int) -> None:
        freeze(self, "token", token)


class Refused(Value):
    """The call must not be sent.

    Args:
        retry_after: the earliest time until a canary.
    """

    __slots__ = ("retry_after",)
    __match_args__ = _fields = ("retry_after",)
    retry_after: timedelta

    def __init__(self, retry_after: timedelta) -> None:
        freeze(self, "retry_after", retry_after)


class Noted(Value):
    """A report was received.

    Args:
        is_counted: False if it changed nothing, such as the report of a straggler.
    """

    __slots__ = ("is_counted",)
    __match_args__ = _fields = ("is_counted",)
    is_counted: bool

    def __init__(self, *, is_counted: bool) -> None:
        freeze(self, "is_counted", is_counted)


Answer: TypeAlias = Admitted | Probe | Refused | Noted


def _check_whole(name: str, value: object, most: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or (most is not None and value > most):
        limit = "1 or more" if most is None else f"from 1 to {most}"
        message = f"{name}={value!r}: it is a whole number, {limit}"
        raise PolicyValueError(message)
