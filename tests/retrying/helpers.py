"""Helpers for the tests of retried calls: a clock that jumps, and functions with scripted results."""

from __future__ import annotations

import asyncio
import selectors
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from redrive.clock import SystemClock, in_trio

START = datetime(2026, 1, 1, tzinfo=UTC)


class JumpingClock:
    """Jumps instead of sleeping, under every library, and remembers how far.

    Attributes:
        slept: the lengths of all sleeps, in seconds.
    """

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._time = 0.0

    def now(self) -> datetime:
        """Return the present instant."""
        return START + timedelta(seconds=self._time)

    def monotonic(self) -> float:
        """Seconds since the start."""
        return self._time

    def advance(self, seconds: float) -> None:
        """Let time pass without a sleep."""
        self._time += seconds

    def sleep(self, seconds: float) -> None:
        """Jump."""
        self.slept.append(seconds)
        self._time += seconds

    async def asleep(self, seconds: float) -> None:
        """Jump, after other tasks have run."""
        await checkpoint()
        self.sleep(seconds)


async def checkpoint() -> None:
    """Let other tasks run, under the library that is running."""
    if in_trio():
        await sys.modules["trio"].lowlevel.checkpoint()
    else:
        await asyncio.sleep(0)  # noqa: TID251 - no sleep: it lets other tasks run


class Script:
    """A function with a script, one step a call: an exception is raised, any other value is returned.

    Attributes:
        calls: how often it was called.
    """

    def __init__(self, *steps: Any, clock: JumpingClock | None = None, takes: float = 0.0) -> None:
        self.calls = 0
        self._steps = steps
        self._clock = clock
        self._takes = takes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do the next step; the last one is repeated."""
        step = self._steps[min(self.calls, len(self._steps) - 1)]
        self.calls += 1
        if self._clock is not None:
            self._clock.advance(self._takes)
        if isinstance(step, BaseException):
            raise step
        return step

    def as_async(self) -> Any:
        """Return a coroutine function with the same script, which lets other tasks run first."""

        async def call(*args: Any, **kwargs: Any) -> Any:
            await checkpoint()
            return self(*args, **kwargs)

        return call


class Busy(Exception):
    """The failure that the policies of these tests are about."""


class Other(Exception):
    """One that they are not about."""


class _JumpingSelector(selectors.DefaultSelector):
    """Where the loop would wait for a timer, its time jumps."""

    jumped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """Return the ready events; without any, jump to the next timer."""
        ready = super().select(0)
        if not ready and timeout:
            self.jumped += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop of asyncio with timers that need no time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds since the start, as far as timers have jumped."""
        return self._jumping.jumped


class LoopClock:
    """The time of the loop that runs, which jumps."""

    def now(self) -> datetime:
        """Return the present instant."""
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """Seconds on the clock of the loop."""
        trio = sys.modules["trio"]
        return float(trio.current_time()) if in_trio() else asyncio.get_running_loop().time()

    def sleep(self, seconds: float) -> None:
        """Do nothing: no test blocks a loop."""
        raise AssertionError(f"blocked for {seconds} s")

    async def asleep(self, seconds: float) -> None:
        """Wait for the loop."""
        await SystemClock().asleep(seconds)
