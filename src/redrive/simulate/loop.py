"""Virtual time as a queue of events, the count of what arrives in it, and one call of many attempts in it. PURE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TypeAlias

from redrive.errors import CircuitOpen
from redrive.policy import Failure, Stage
from redrive.simulate.client import SimulatedClient
from redrive.simulate.rng import SeededRandom

# An attempt that a target in trouble has refused.
DOWN = Failure.of(ConnectionError("the target is down"))
# A call that was not sent.
REFUSED = Failure.of(CircuitOpen("the breaker is open"), stage=Stage.NOT_SENT)
# An attempt with an answer after the caller has stopped waiting.
LATE = Failure.of(TimeoutError("no answer in time"))

Answered: TypeAlias = Callable[[Failure | None], None]
"""Receives the failure of an attempt, or None if it succeeded."""
Send: TypeAlias = Callable[[Answered], None]
"""Makes one attempt."""


class Loop:
    """A queue of future events; ``now`` is the present instant, in seconds from the start."""

    __slots__ = ("_numbers", "_queue", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        # What falls on one instant happens in the order in which it was asked for.
        self._numbers = count()

    def after(self, seconds: float, happen: Callable[[], None]) -> None:
        """Schedule a call after a number of seconds."""
        heappush(self._queue, (self.now + seconds, next(self._numbers), happen))

    def run(self, until: float = inf) -> bool:
        """Run all calls that are due before an instant, in seconds from the start; return True if none is left."""
        queue = self._queue
        while queue and queue[0][0] < until:
            self.now, _, happen = heappop(queue)
            happen()
        return not queue


class Load:
    """Attempts by the slice of time, in seconds, in which they arrive."""

    def __init__(self, slice: float = 1.0) -> None:  # noqa: A002 - it is one
        self.total: int = 0
        self._slice = slice
        self._counts: Counter[int] = Counter()

    def arrive(self, now: float) -> None:
        """Count the arrival of an attempt."""
        self.total += 1
        self._counts[int(now / self._slice)] += 1

    def counts(self, start: float, end: float) -> list[int]:
        """Attempts in each slice from one instant to another, in seconds."""
        return [self._counts[number] for number in range(round(start / self._slice), round(end / self._slice))]

    def peak(self) -> float:
        """Attempts per second in the worst slice."""
        return max(self._counts.values(), default=0) / self._slice


def quantile(values: list[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def call(loop: Loop, client: SimulatedClient, rng: SeededRandom, send: Send, done: Answered) -> None:
    """Start a call of a client; ``done`` receives its result like that of an attempt, for a layer above."""
    made = client.begin(loop.now)
    if made is None:
        done(REFUSED)
        return

    def ended(failure: Failure | None) -> None:
        if failure is None:
            made.succeeded(loop.now)
            done(None)
            return
        delay = made.failed(failure, loop.now, rng.random())
        if delay is None:
            done(failure)
        elif delay:
            loop.after(delay, again)
        else:
            send(ended)

    def again() -> None:
        send(ended)

    send(ended)
