"""The circuit breaker as a function: ``step(settings, state, event, now) -> (state, answer)``.

A breaker counts results. When too many calls fail it refuses calls at once; after a sleep it admits one call, the
*canary*, whose result closes or opens it. RFC 0049 has only the reason ``CIRCUIT_BREAKER_OPEN``; the numbers are those
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

**Eras.** Each change of state begins a new era, and the token of an admitted call is the number of its era. The result
of an earlier era is a *straggler* and does not count. (In the SDKs' breakers a straggling failure extends the sleep,
and a straggling success closes a breaker that waits for its canary.)

**Canary.** It is the next real call (``canary="request"``), or a cheap call of the client's own while the caller is
still refused (``canary="probe"``, as in Couchbase's Go SDK). A canary without a result counts as failed after
``canary_timeout``; otherwise the breaker would stay half open for ever.

**Whole numbers.** The percentage is compared as ``failures * 100 >= percentage * total``, and instants are counted in
microseconds, to avoid rounding errors.

**Window.** Results are kept in a hundred slots per window, so that a burst needs no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

from redrive.policy.circuit import (
    Admitted,
    Answer,
    Ask,
    BreakerSettings,
    BreakerState,
    BreakerStatus,
    Dropped,
    Event,
    Failed,
    Noted,
    Probe,
    Refused,
    Reset,
    Succeeded,
)

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
    "as_of",
    "initial",
    "step",
]

_SLOTS = 100
_MICROSECOND = timedelta(microseconds=1)


def initial(settings: BreakerSettings) -> BreakerState:
    """Return the state of a new breaker."""
    return BreakerState(BreakerStatus.CLOSED if settings.enabled else BreakerStatus.DISABLED)


def step(settings: BreakerSettings, state: BreakerState, event: Event, now: float) -> tuple[BreakerState, Answer]:
    """Apply an event to a state, and return the new state and the answer.

    Args:
        settings: the settings.
        state: the state before.
        event: the request or the report.
        now: seconds on a monotonic clock.
    """
    at = round(now * 1_000_000)
    state = _aged(settings, state, at)
    if isinstance(event, Ask):
        return _asked(settings, state, at)
    if isinstance(event, Reset):
        return initial(settings)._replace(era=state.era + 1), Noted(is_counted=True)
    if event.token != state.era or state.status not in _HEARD:
        return state, Noted(is_counted=False)
    return _HEARD[state.status](settings, state, event, at)


def as_of(settings: BreakerSettings, state: BreakerState, now: float) -> BreakerState:
    """Return the state at an instant: a canary that took too long has failed."""
    return _aged(settings, state, round(now * 1_000_000))


def _aged(settings: BreakerSettings, state: BreakerState, at: int) -> BreakerState:
    if state.status is not BreakerStatus.HALF_OPEN:
        return state
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


def _heard_closed(settings: BreakerSettings, state: BreakerState, event: Event, at: int) -> tuple[BreakerState, Answer]:
    if isinstance(event, Dropped):
        return state, Noted(is_counted=False)
    counted = _counted(settings, state, at, failed=isinstance(event, Failed))
    total = counted.successes + counted.failures
    too_many = counted.failures * 100 >= settings.error_threshold * total
    if isinstance(event, Failed) and total >= settings.volume_threshold and too_many:
        counted = _opened(counted, at)
    return counted, Noted(is_counted=True)


def _heard_half_open(
    settings: BreakerSettings, state: BreakerState, event: Event, at: int
) -> tuple[BreakerState, Answer]:
    match event:
        case Succeeded():
            return initial(settings)._replace(era=state.era + 1), Noted(is_counted=True)
        case Failed():
            return _opened(state, at), Noted(is_counted=True)
    # The canary tells nothing, so the next one who asks is the canary: it has slept already.
    slept = settings.sleep_window // _MICROSECOND + 1
    return _opened(state, at - slept), Noted(is_counted=False)


_Heard: TypeAlias = Callable[[BreakerSettings, BreakerState, Event, int], tuple[BreakerState, Answer]]

_HEARD: dict[BreakerStatus, _Heard] = {
    BreakerStatus.CLOSED: _heard_closed,
    BreakerStatus.HALF_OPEN: _heard_half_open,
}
"""Where reports are listened to."""


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
