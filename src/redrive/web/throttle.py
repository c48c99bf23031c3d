"""Limits on logins and on actions."""

from __future__ import annotations

import hashlib
from collections import deque
from http import HTTPStatus
from typing import Final

from redrive.clock import SystemClock
from redrive.web.exchange import Refusal

#: Failed logins of one user from one address, and from one address, in a minute. The second limit is high, because an
#: address may belong to many users; it bounds what the checks of passwords cost, and trials of many names.
LOGINS: Final = 5
LOGINS_OF_ADDRESS: Final = 100

#: Actions of one user in a minute.
ACTIONS: Final = 60

_SPAN: Final = 60.0

# Names that are remembered; the oldest is forgotten first.
_MOST: Final = 10_000


class Throttle:
    """Counts failed logins and actions of the last minute, in this process."""

    def __init__(self) -> None:
        self._logins: dict[str, deque[float]] = {}
        self._actions: dict[str, deque[float]] = {}

    def check(self, user: str, address: str) -> None:
        """Raise `Refusal` (429) if logins of a user from an address have failed too often, or all from the address.

        Args:
            user: the name that was given, whether there is such a user or not.
            address: as `redrive.web.peers.counted` returns it.
        """
        self._demand(self._logins, _pair(user, address), LOGINS, "logins failed")
        self._demand(self._logins, address, LOGINS_OF_ADDRESS, "logins failed")

    def failed(self, user: str, address: str) -> None:
        """Count a failed login."""
        _add(self._logins, address)
        _add(self._logins, _pair(user, address))

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


def _pair(user: str, address: str) -> str:
    # The digest is short, however long the name is; no address has a space.
    return f"{address} {hashlib.sha256(user.encode(errors='replace')).hexdigest()}"
