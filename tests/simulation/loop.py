"""An asyncio event loop that runs in a strand: its own code is asyncio's, but it waits in virtual time.

`asyncio.BaseEventLoop` asks a selector to wait for events of sockets until the next timer. There are no sockets here,
so the selector parks the strand until that timer, or until another strand wakes it by ``call_soon_threadsafe``.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import base_events
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from tests.simulation.scheduler import Scheduler
from tests.simulation.threads import SimulatedThreadPool

__all__ = ["Loop", "run"]

THREADS = 6
"""Threads of the default executor: what Python gives a machine with two cores."""


class Loop(base_events.BaseEventLoop):
    """An event loop in virtual time.

    Args:
        scheduler: that runs the strand.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._clock_resolution = 1e-9
        self._scheduler = scheduler
        self._strand = scheduler.current
        self._strand.loop = self
        self._selector = self
        self._default: SimulatedThreadPool | None = None
        self.set_exception_handler(lambda *_: None)

    def time(self) -> float:
        """Seconds of virtual time; a wrong wall clock does not change it."""
        return self._scheduler.now

    def select(self, timeout: float | None) -> list[Any]:
        """Park until the next timer of this loop, or until another strand has given it something to do."""
        if timeout is None or timeout > 0:
            self._scheduler.park(timeout)
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no events of sockets."""

    def _write_to_self(self) -> None:
        self._scheduler.wake(self._strand)

    def run_in_executor(
        self, executor: SimulatedThreadPool | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function in a simulated thread."""
        if executor is None:
            self._default = self._default or SimulatedThreadPool(self._scheduler, THREADS)
            executor = self._default
        return asyncio.wrap_future(executor.submit(func, *args), loop=self)

    def run_forever(self) -> None:
        """Run until stopped. Unlike asyncio's own, it leaves the hooks of the interpreter alone."""
        asyncio._set_running_loop(self)
        try:
            while True:
                self._run_once()
                if self._stopping:
                    break
        finally:
            self._stopping = False
            asyncio._set_running_loop(None)

    def is_running(self) -> bool:
        """Return True while a coroutine or callback of this loop runs."""
        return asyncio._get_running_loop() is self


def run(scheduler: Scheduler, main: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine in the present strand like `asyncio.run`: remaining tasks are cancelled at its end.

    Args:
        scheduler: the scheduler of the strand.
        main: the coroutine."""
    loop = Loop(scheduler)
    try:
        loop.run_until_complete(main)
    finally:
        try:
            if not scheduler.closing:
                _cancel_all(loop)
        finally:
            _discard(loop)


def _cancel_all(loop: Loop) -> None:
    left = sorted(asyncio.all_tasks(loop), key=_order)  # a set of tasks has another order in each run
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(_gather(left))


def _order(task: asyncio.Task[Any]) -> tuple[int, str]:
    return len(task.get_name()), task.get_name()


async def _gather(tasks: Iterable[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _discard(loop: Loop) -> None:
    """Close the coroutines that will never end, so that the garbage collector emits no warning."""
    asyncio._set_running_loop(loop)  # what they call at their end would make a loop of its own otherwise
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False
        coroutine = task.get_coro()
        for _ in range(20):
            try:
                coroutine.close()
            except BaseException:  # noqa: BLE001, S112 - it ignores that it is closed; the next time it goes on
                continue
            break
    asyncio._set_running_loop(None)
    with contextlib.suppress(Exception):
        loop.close()
