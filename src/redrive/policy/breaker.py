"""The circuit breaker as a function: ``step(settings, state, event, now) -> (state, answer)``.

A breaker counts results. When too many calls fail it refuses calls at once; after a sleep it admits one call, the
*canary*; its result closes or opens it. RFC 0049 has only the reason ``CIRCUIT_BREAKER_OPEN``; the numbers are those
of its SDKs.

::

              volume and percentage reached                 slept, a caller asks
    CLOSED ----------------------------------> OPEN ----------------------------------> HALF_OPEN
       ^                                        ^  the canary fails, is lost or dropped     |
       |                                        +-------------------------------------------+
       +------------------------------------------------------------------------------------+
                                        the canary succeeds

============  ===============================  ===================================  ============================
state         Ask                              result of this era                   result of an earlier era
============  ===============================  ===================================  ============================
CLOSED        admitted                         counted; a failure may open          not counted
OPEN          refused until slept, then the    there is none                        not counted
              canary
HALF_OPEN     refused                          the canary's: closes or opens        not counted
DISABLED      admitted                         not counted                          not counted
============  ===============================  ===================================  ============================
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import TypeAlias

from redrive.errors import PolicyValueError
from redrive.policy.duration import Duration, parse_duration
from redrive.policy.value import NamedTuple, Value, freeze

#: The rules by which a policy ends a call without a failure of its target. A failure with such an end is an answer, and
#: counts as a success, if its stage is *answered*; otherwise it is not counted.
NOT_COUNTED = ("disabled", "not_matched", "permanent")


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

    volume_threshold: int
    error_threshold: int
    sleep_window: timedelta
    rolling_window: timedelta
    canary_timeout: timedelta
    canary: str
    enabled: bool

    def __init__(
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
            raise PolicyValueError(f"canary={canary!r}: it is a 'request' or a 'probe'")
        freeze(self, "volume_threshold", volume_threshold)
        freeze(self, "error_threshold", error_threshold)
        freeze(self, "sleep_window", parse_duration(sleep_window))
        freeze(self, "rolling_window", parse_duration(rolling_window))
        freeze(self, "canary_timeout", parse_duration(canary_timeout))
        freeze(self, "canary", canary)
        freeze(self, "enabled", enabled)
        if not self.rolling_window or not self.canary_timeout:
            name = "canary_timeout" if self.rolling_window else "rolling_window"
            raise PolicyValueError(f"{name} must be longer than nothing")


class BreakerState(NamedTuple):
    """The state of a breaker. All instants are in microseconds."""

    status: BreakerStatus
    #: Number of the present era, and the token of the calls that are admitted in it.
    era: int = 0
    #: The time at which the breaker opened, or at which its canary was admitted; 0 otherwise.
    since: int = 0
    #: For each slot of the window that has results: its number, successes, failures.
    slots: tuple[tuple[int, int, int], ...] = ()
    #: Sums over the slots.
    successes: int = 0
    failures: int = 0


class Ask(Value):
    """A request to send a call."""


class _Report(Value):
    token: int


class SuccessReport(_Report):
    """An admitted call, with the token of its admission, has succeeded."""


class FailureReport(_Report):
    """An admitted call, with the token of its admission, has failed in a way that counts."""


class Dropped(_Report):
    """An admitted call, with the token of its admission, has no result: it was not sent, or its caller has left."""


class Reset(Value):
    """A restart of the breaker, as after a reconnect."""


Event: TypeAlias = Ask | SuccessReport | FailureReport | Dropped | Reset


class Admitted(Value):
    """The call may be sent."""

    #: For the report of its result.
    token: int
    #: The breaker waits for this call.
    is_canary: bool = False


class Probe(Value):
    """The call is refused, and the client must send a canary of its own and report under this token."""

    token: int


class Refused(Value):
    """The call must not be sent."""

    #: The earliest time until a canary.
    retry_after: timedelta


class Noted(Value):
    """A report was received."""

    #: False if it changed nothing, such as the report of a straggler.
    is_counted: bool


Answer: TypeAlias = Admitted | Probe | Refused | Noted


def _check_whole(name: str, value: object, most: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or (most is not None and value > most):
        limit = "1 or more" if most is None else f"from 1 to {most}"
        raise PolicyValueError(f"{name}={value!r}: it is a whole number, {limit}")


# Results are kept in this number of slots per window, so that a burst needs no memory.
_SLOTS = 100
_MICROSECOND = timedelta(microseconds=1)


def initial(settings: BreakerSettings) -> BreakerState:
    """Return the state of a new breaker."""
    return BreakerState(BreakerStatus.CLOSED if settings.enabled else BreakerStatus.DISABLED)


def step(settings: BreakerSettings, state: BreakerState, event: Event, now: float) -> tuple[BreakerState, Answer]:
    """Apply an event to a state, and return the new state and the answer. ``now`` is monotonic, in seconds."""
    at = round(now * 1_000_000)
    state = _aged(settings, state, at)
    if isinstance(event, Ask):
        return _asked(settings, state, at)
    if isinstance(event, Reset):
        return initial(settings)._replace(era=state.era + 1), Noted(is_counted=True)
    # A straggler, the result of an earlier era, does not count. (In the SDKs' breakers a straggling failure extends the
    # sleep, and a straggling success closes a breaker that waits for its canary.)
    if event.token != state.era or state.status not in _BY_REPORT:
        return state, Noted(is_counted=False)
    return _BY_REPORT[state.status](settings, state, event, at)


def as_of(settings: BreakerSettings, state: BreakerState, now: float) -> BreakerState:
    """Return the state at an instant: a canary that took too long has failed."""
    return _aged(settings, state, round(now * 1_000_000))


def _aged(settings: BreakerSettings, state: BreakerState, at: int) -> BreakerState:
    if state.status is not BreakerStatus.HALF_OPEN:
        return state
    # A canary without a result counts as failed; otherwise the breaker would stay half open for ever.
    lost = state.since + settings.canary_timeout // _MICROSECOND
    return _opened(state, lost) if at > lost else state


def _asked(settings: BreakerSettings, state: BreakerState, at: int) -> tuple[BreakerState, Answer]:
    if state.status is BreakerStatus.HALF_OPEN:
        return state, Refused(_left(state, settings.canary_timeout, at))
    if state.status is not BreakerStatus.OPEN:
        return state, Admitted(state.era)
    left = _left(state, settings.sleep_window, at)
    if left:
        return state, Refused(left)
    half = BreakerState(BreakerStatus.HALF_OPEN, state.era + 1, since=at)
    if settings.canary == "probe":
        return half, Probe(half.era)
    return half, Admitted(half.era, is_canary=True)


def _left(state: BreakerState, span: timedelta, at: int) -> timedelta:
    """Return the rest of a span that began with the state; its last instant belongs to it, as in the Java SDK."""
    return max(0, state.since + span // _MICROSECOND + 1 - at) * _MICROSECOND


def _report_closed(
    settings: BreakerSettings, state: BreakerState, event: Event, at: int
) -> tuple[BreakerState, Answer]:
    if isinstance(event, Dropped):
        return state, Noted(is_counted=False)
    counted = _counted(settings, state, at, failed=isinstance(event, FailureReport))
    total = counted.successes + counted.failures
    # Whole numbers, to avoid rounding errors.
    too_many = counted.failures * 100 >= settings.error_threshold * total
    if isinstance(event, FailureReport) and total >= settings.volume_threshold and too_many:
        counted = _opened(counted, at)
    return counted, Noted(is_counted=True)


def _report_half_open(
    settings: BreakerSettings, state: BreakerState, event: Event, at: int
) -> tuple[BreakerState, Answer]:
    match event:
        case SuccessReport():
            return initial(settings)._replace(era=state.era + 1), Noted(is_counted=True)
        case FailureReport():
            return _opened(state, at), Noted(is_counted=True)
    # The canary has no result, so the next call is the canary: the breaker has slept already.
    slept = settings.sleep_window // _MICROSECOND + 1
    return _opened(state, at - slept), Noted(is_counted=False)


_OnReport: TypeAlias = Callable[[BreakerSettings, BreakerState, Event, int], tuple[BreakerState, Answer]]

#: The states in which reports count.
_BY_REPORT: dict[BreakerStatus, _OnReport] = {
    BreakerStatus.CLOSED: _report_closed,
    BreakerStatus.HALF_OPEN: _report_half_open,
}


def _opened(state: BreakerState, at: int) -> BreakerState:
    return BreakerState(BreakerStatus.OPEN, state.era + 1, since=at)


def _counted(settings: BreakerSettings, state: BreakerState, at: int, *, failed: bool) -> BreakerState:
    """Return the state with one more result, and without those that are older than the window."""
    window = settings.rolling_window // _MICROSECOND
    size = max(1, window // _SLOTS)
    oldest, slot = (at - window) // size, at // size
    slots, successes, failures = state.slots, state.successes, state.failures
    while slots and slots[0][0] < oldest:
        successes -= slots[0][1]
        failures -= slots[0][2]
        slots = slots[1:]
    good, bad = int(not failed), int(failed)
    if slots and slots[-1][0] >= slot:
        last = slots[-1]
        slots = (*slots[:-1], (last[0], last[1] + good, last[2] + bad))
    else:
        slots = (*slots, (slot, good, bad))
    return state._replace(slots=slots, successes=successes + good, failures=failures + bad)
