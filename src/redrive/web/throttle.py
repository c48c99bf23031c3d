"""Limits on logins and on actions."""

from __future__ import annotations

from collections import deque
from http import HTTPStatus
from typing import Final

from redrive.clock import SystemClock
from redrive.web.exchange import Refusal

#: Failed logins of one address, and actions of one user, in a minute.
LOGINS: Final = 5
ACTIONS: Final = 60

_SPAN: Final = 60.0

# Addresses that are remembered; the oldest is forgotten first.
_MOST: Final = 10_000


class Throttle:
    """Counts failed logins and actions of the last minute, in this process."""

    def __init__(self) -> None:
        self._logins: dict[str, deque[float]] = {}
        self._actions: dict[str, deque[float]] = {}

    def check(self, peer: str | None) -> None:
        """Raise `Refusal` (429) if an address has failed to log in too often."""
        self._demand(self._logins, peer or "", LOGINS, "logins failed")

    def failed(self, peer: str | None) -> None:
        """Count a failed login."""
        _add(self._logins, peer or "")

    def write(self, user: str) -> None:
        """Count an action; raise `Refusal` (429) if a user has acted too often."""
        self._demand(self._actions, user, ACTIONS, "actions were requested")
        _add(self._actions, user)

    def _demand(self, counted: dict[str, deque[float]], name: str, most: int, what: str) -> None:
        times, now = counted.get(name, deque()), SystemClock.monotonic()
        while times and times[0] <= now - _SPAN:
            times.popleft()
        if len(times) >= most:
            wait = int(times[0] + _SPAN - now) + 1
            raise Refusal(
                HTTPStatus.TOO_MANY_REQUESTS, f"{most} {what} in a minute: wait {wait} s", {"Retry-After": str(wait)}
            )


def _add(counted: dict[str, deque[float]], name: str) -> None:
    if len(counted) >= _MOST and name not in counted:
        del counted[next(iter(counted))]
    counted.setdefault(name, deque()).append(SystemClock.monotonic())
