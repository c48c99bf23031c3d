"""How fast a limiter lets calls start: an even rate, or one that follows the target. The limiter has the lock."""

from __future__ import annotations

from typing import Protocol

from redrive.policy.adaptive import Adaptive, AdaptiveRate

__all__ = ["Even", "Following", "Pace"]


class Pace(Protocol):
    """What a limiter needs of a rate.

    Attributes:
        asks_again: whether a wait is followed by another question; otherwise its end is the caller's turn.
    """

    asks_again: bool

    @property
    def rate(self) -> float | None:
        """Calls per second at present; None if nothing is limited."""
        ...

    def take(self, now: float, room: float, *, is_retry: bool) -> float:
        """Take the next turn.

        Args:
            now: the present instant.
            room: seconds until the deadline; a turn that lies behind them is not taken.
            is_retry: whether it is for an attempt that is not the first.

        Returns:
            How many seconds it is away; 0.0 for now.
        """
        ...


class Even:
    """Turns at equal distances, reserved in the order of asking.

    Args:
        rate: turns per second in the long run.
        burst: turns that may be taken at once after a quiet time.
    """

    asks_again = False

    def __init__(self, rate: float, burst: int) -> None:
        self.rate = rate
        self._gap = 1 / rate
        self._lag = self._gap * (burst - 1)
        self._next = float("-inf")  # when the next turn is, if the burst is used up

    def take(self, now: float, room: float, *, is_retry: bool) -> float:  # noqa: ARG002 - all attempts are alike
        """See `Pace.take`."""
        # The next instant may lag behind by a burst, and no further: time that was not used is not saved up.
        start = max(self._next, now - self._lag)
        wait = max(0.0, start - now)
        if not wait or wait < room:
            self._next = start + self._gap
        return wait


class Following:
    """Turns at an `AdaptiveRate`. Who has to wait takes nothing and asks again, since the rate may have changed.

    Args:
        adaptive: the numbers.
    """

    asks_again = True

    def __init__(self, adaptive: Adaptive) -> None:
        self._adaptive = adaptive
        self._state: AdaptiveRate | None = None

    @property
    def rate(self) -> float | None:
        """See `Pace.rate`."""
        return self._state.rate if self._state is not None and self._state.enabled else None

    def take(self, now: float, room: float, *, is_retry: bool) -> float:  # noqa: ARG002 - a wait takes nothing
        """See `Pace.take`."""
        wait = self._begun(now).acquire(now, self._adaptive.retry_cost if is_retry else self._adaptive.cost)
        # Clocks have their grain, and who sleeps less than it asks again at the same instant, for ever.
        return max(wait, _GRAIN) if wait else 0.0

    def hear(self, now: float, *, throttled: bool) -> None:
        """Take note of an answer."""
        self._begun(now).report(now, throttled=throttled)

    def _begun(self, now: float) -> AdaptiveRate:
        if self._state is None:  # measuring begins with the first call
            self._state = self._adaptive.open(now)
        return self._state


_GRAIN = 0.001
