"""What all viewers of a process share: figures that need not be of this second are read once in 10 seconds.

They are read for a request, so only while the dashboard is in use. An action of this process drops them, so that the
page that follows shows its effect. Between two reads, the numbers of jobs below `PULSED` come from the live updates
(`redrive.web.live`), which count up to that limit every two seconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator
from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from redrive.app.protocol import Procedure
from redrive.clock import Clock, SystemClock
from redrive.stores.operations.doctor import Vitals
from redrive.stores.operations.queues import Depth, Depths

#: Seconds for which figures are shared.
KEPT: Final = 10.0

#: Jobs of a queue and a state up to which the live updates count.
PULSED: Final = 1_000

R = TypeVar("R")


class _Read(msgspec.Struct):
    """A read: when it began, and its result."""

    began: float
    value: Any


class Shared:
    """The figures that the viewers of a dashboard share.

    Args:
        clock: for tests.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._reads: dict[Hashable, _Read] = {}
        self._reading: set[Hashable] = set()
        self._changes = 0
        self._pulse: tuple[float, Depths] | None = None

    def read(self, key: Hashable, procedure: Procedure[R]) -> Procedure[R]:
        """Return the result of a procedure, or of one with the same key that is younger than `KEPT`.

        While a request reads, the others have the result before. The number of keys is small and fixed.
        """
        now, before = self._clock.monotonic(), self._reads.get(key)
        if before is not None and (now - before.began < KEPT or self.is_reading(key)):
            result: R = before.value
            return result
        changes = self._changes
        with self.reading(key):
            found = yield from procedure
        if changes == self._changes:
            self._reads[key] = _Read(now, found)
        return found

    def is_reading(self, key: Hashable) -> bool:
        """Return True while a request reads under a key."""
        return key in self._reading

    @contextlib.contextmanager
    def reading(self, key: Hashable) -> Iterator[None]:
        """Mark that a request reads under a key."""
        self._reading.add(key)
        try:
            yield
        finally:
            self._reading.discard(key)

    def age(self, key: Hashable) -> timedelta:
        """Return the time since a read began; zero if it is not kept."""
        found = self._reads.get(key)
        return timedelta(seconds=0 if found is None else self._clock.monotonic() - found.began)

    def forget(self) -> None:
        """Read everything anew: something was changed."""
        self._changes += 1
        self._reads.clear()
        self._pulse = None

    def pulse(self, found: Depths) -> None:
        """Keep the numbers of jobs that the live updates have counted."""
        self._pulse = self._clock.monotonic(), found

    def latest(self, found: Vitals) -> Vitals:
        """Return what was read with the numbers of jobs of the live updates, where they have counted all jobs."""
        if self._pulse is None or self._clock.monotonic() - self._pulse[0] >= KEPT or self._pulse[1].at < found.now:
            return found
        return replace(found, depths=merged(found.depths, self._pulse[1].queues))


def merged(whole: tuple[Depth, ...], pulsed: tuple[Depth, ...]) -> tuple[Depth, ...]:
    """Return the numbers of jobs, from the second count where it has not reached its limit."""
    # Ready jobs are counted up to the limit in each queue, jobs in other states in all queues together.
    capped = {_limit(each) for each in pulsed if each.is_capped}
    kept = tuple(each for each in whole if _limit(each) in capped)
    return kept + tuple(each for each in pulsed if _limit(each) not in capped)


def _limit(each: Depth) -> tuple[str, str | None]:
    return each.standing.value, each.queue if each.standing.is_ready else None
