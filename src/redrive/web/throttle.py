"""Limits on logins and on actions."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, TypeVar

from redrive.clock import SystemClock
from redrive.operate.exchange import Refusal

#: Failed logins of one user from one address, and from one address, in a minute. The second limit is high, because an
#: address may belong to many users; it bounds what the checks of passwords cost, and trials of many names.
LOGINS: Final = 5
LOGINS_OF_ADDRESS: Final = 100

#: Actions of one user in a minute.
ACTIONS: Final = 60

_SPAN: Final = 60.0

T = TypeVar("T")

# Names that are remembered; the oldest is forgotten first.
_MOST: Final = 10_000


class Throttle:
    """Counts failed logins and actions of the last minute, in this process."""

    def __init__(self) -> None:
        self._logins: dict[str, deque[float]] = {}
        self._actions: dict[str, deque[float]] = {}
        # The checks of passwords that are under way, and the requests that wait for the end of one.
        self._checks: Counter[str] = Counter()
        self._waiting: list[asyncio.Future[None]] = []

    async def login(self, user: str, address: str, check: Callable[[], T | None]) -> T | None:
        """Run the check of a password in a thread, and return what it returns; None is a failed login.

        A check that is under way counts as a failed one until it has succeeded. A login that would only then exceed a
        limit waits for its end, so that many requests at once neither evade the limit nor reach it by right passwords.

        Args:
            user: as for `check`.
            address: likewise.
            check: the check.

        Raises:
            Refusal: 429, as `check` raises it.
        """
        names = (_pair(user, address), address)
        while not self._may_begin(user, address):
            ended = asyncio.get_running_loop().create_future()
            self._waiting.append(ended)
            await ended
        self._checks.update(names)
        found = None
        try:
            found = await asyncio.to_thread(check)
        finally:
            self._checks -= Counter(names)
            if found is None:
                self.failed(user, address)
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                # It is cancelled if its request is.
                if not each.done():
                    each.set_result(None)
        return found

    def _may_begin(self, user: str, address: str) -> bool:
        """Return True if a login is within the limits also if all checks fail that are under way."""
        self.check(user, address)
        limits = ((_pair(user, address), LOGINS), (address, LOGINS_OF_ADDRESS))
        return all(len(self._logins.get(name, ())) + self._checks[name] < most for name, most in limits)

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
