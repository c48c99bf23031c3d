"""The budget of a function, a policy or a transport that names none.

Its numbers are `redrive.policy.budget.OWN`. A call that succeeds at once costs nothing, and neither does a call that
retries while no other call of the same owner does: such a call is *alone*, and is never refused. So programs and tests
that make one call after another have no budget, and need no time to pass. Only the retries of calls that retry side by
side are charged, to a ledger that the first of them opens. Successes are counted while tokens are missing. Where the
clock of a test is in force there is no such budget.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

# The number of forks that this process has behind it: a call of a thread of the parent is over in the child.
FORKS = [0]


def _forked() -> None:
    FORKS[0] += 1


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Retrying(Protocol):
    """A call that retries."""

    live: bool


class Shared(Protocol):
    """A `redrive.retrying.shared.SharedBudget`."""

    def succeed(self, *, alone: bool) -> None:
        """Record a call that has succeeded."""
        ...


class OwnBudget:
    """The budget of one owner; see the module."""

    __slots__ = ("_forks", "_switch", "is_watched", "lone", "low", "shared")

    def __init__(self) -> None:
        #: The latest call that was alone; it is over if it is not live.
        self.lone: Retrying | None = None
        #: True while tokens are missing.
        self.low: bool = False
        #: True if a compiled wrapper counts the successes.
        self.is_watched: bool = False
        self._forks = 0
        #: The ledger; `redrive.retrying.shared.opened` sets it.
        self.shared: Shared | None = None
        self._switch: Callable[[bool], None] | None = None

    def admits(self, call: Retrying) -> bool:
        """Return True if a call may retry without a charge, because no other one retries."""
        # Two threads may both be admitted at the same instant, which costs one retry too many and no lock. The quick
        # path of `CallState.failed` has this test, too, without the forks.
        lone = self.lone
        if lone is None or lone is call or not lone.live or self._forks != FORKS[0]:
            self.lone, self._forks = call, FORKS[0]
            return True
        return False

    def succeeded(self, *, alone: bool = False) -> None:
        """Count a call that has succeeded at once, or ``alone`` after retries; do nothing while no token is missing."""
        if self.low and self.shared is not None:
            self.shared.succeed(alone=alone)

    def watch(self, switch: Callable[[bool], None]) -> None:
        """Call a function with True when tokens begin to be missing, and with False when none is missing."""
        self._switch, self.is_watched = switch, True

    def balance(self, low: bool) -> None:  # noqa: FBT001 - a callback
        """Record whether tokens are missing."""
        if low != self.low:
            self.low = low
            if self._switch is not None:
                self._switch(low)


def counting(function: Callable[..., Any], own: OwnBudget, *, is_async: bool) -> Callable[..., Any]:
    """Return a function that counts the calls of another one that succeed."""
    if is_async:

        async def acounted(*args: object, **kwargs: object) -> Any:
            """Await the function, and count its success."""
            result = await function(*args, **kwargs)
            own.succeeded()
            return result

        return acounted

    def counted(*args: object, **kwargs: object) -> Any:
        result = function(*args, **kwargs)
        own.succeeded()
        return result

    return counted
