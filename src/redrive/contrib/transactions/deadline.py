"""How much time is left for a transaction, by the calls around it."""

from __future__ import annotations

from redrive.clock import Clock
from redrive.retrying.context import SCOPE, SYSTEM

__all__ = ["clock_in_force", "room"]


def clock_in_force() -> Clock:
    """The clock of this code."""
    scope = SCOPE.get()
    return SYSTEM if scope is None else scope.clock


def room() -> float | None:
    """Seconds until the nearest bound that somebody gave to a call around this code; None without one.

    The 45 s that apply where no deadline was given end the retrying, and no statement.
    """
    scope = SCOPE.get()
    call = None if scope is None else scope.call
    bounds = []
    while call is not None:
        if call.live and call.ends is not None and (call.plan.has_deadline or call.plan.timeout is not None):
            bounds.append(call.ends - call.clock.monotonic())
        call = call.outer
    return min(bounds, default=None)
