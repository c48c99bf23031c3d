"""The time left for a transaction, by the deadlines of the calls around it."""

from __future__ import annotations

from redrive.clock import Clock
from redrive.retrying.context import SCOPE, SYSTEM

__all__ = ["current_clock", "seconds_left"]


def current_clock() -> Clock:
    """Return the clock of the innermost call."""
    scope = SCOPE.get()
    return SYSTEM if scope is None else scope.clock


def seconds_left() -> float | None:
    """Return the seconds until the nearest explicit deadline of a call around this code, or None."""
    # The default deadline of 45 s ends the retries of a call, but no statement: it does not count here.
    scope = SCOPE.get()
    call = None if scope is None else scope.call
    bounds = []
    while call is not None:
        if call.live and call.ends is not None and (call.plan.has_deadline or call.plan.timeout is not None):
            bounds.append(call.ends - call.clock.monotonic())
        call = call.outer
    return min(bounds, default=None)
