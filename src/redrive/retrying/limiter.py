"""A limiter: at most so many calls at once, and at most so many in a time, whoever makes them.

It belongs around the function itself, below the retries, so that every attempt passes it and the time that it makes
wait counts against the attempt's timeout and the deadline::

    payments = Limiter(concurrency=20, rate=100)

    @redrive.retry("3 100ms", on=OSError, budget="payments")
    @payments
    async def charge(...): ...

That is the innermost place of the fixed order (see `redrive.retrying.run`), and a decorator is all that it takes. It
also works as ``with payments:`` and ``async with payments:``.

One limiter serves threads and tasks of any event loop at once. Who waits for a free place gets it in the order of
asking, handed over by the one who leaves, so that a newcomer cannot snatch it. The rate is spread evenly: an instant is
reserved for each call, a burst may go at once. A wait that would pass the deadline of the call around it is not begun:
it raises `TimeoutError` at once, and nothing was called.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable
from threading import Event, Lock
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

from redrive.clock import Clock, in_trio
from redrive.errors import PolicyValueError
from redrive.retrying.context import SCOPE, SYSTEM, deadline

__all__ = ["Limiter"]

F = TypeVar("F", bound=Callable[..., Any])


class Limiter:
    """Limits how many calls run at once and how many are started in a time.

    Args:
        concurrency: calls at once; None for no limit.
        rate: calls per second in the long run; None for no limit.
        burst: calls that may be started at once after a quiet time.
        name: for messages.

    Raises:
        PolicyValueError: nothing is limited, or a number is not positive.
    """

    def __init__(
        self, *, concurrency: int | None = None, rate: float | None = None, burst: int = 1, name: str = ""
    ) -> None:
        if concurrency is None and rate is None:
            raise PolicyValueError("a limiter limits something: concurrency=, rate= or both")
        for field, value in (("concurrency", concurrency), ("rate", rate), ("burst", burst)):
            if value is not None and (isinstance(value, bool) or not value > 0):
                raise PolicyValueError(f"{field}={value!r} of a limiter: above zero")
        self.name = name
        self._gap = None if rate is None else 1 / rate
        self._burst = burst
        self._free = concurrency
        self._queue: deque[_Waiter] = deque()
        self._next = float("-inf")  # when the next call may be started, if the burst is used up
        self._lock = Lock()

    # ------------------------------------------------------------------------------------------------------ its forms

    def __call__(self, function: F) -> F:
        """Decorate a function or a coroutine function."""
        import inspect

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def limited_async(*args: Any, **kwargs: Any) -> Any:
                async with self:
                    return await function(*args, **kwargs)

            return cast("F", limited_async)

        @functools.wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast("F", limited)

    def __enter__(self) -> None:
        waiter = self._ask(_ThreadWaiter)
        if waiter is not None:
            self._await_in_thread(waiter)
        try:
            if wait := self._reserve():
                _clock().sleep(wait)
        except BaseException:
            self._leave()
            raise

    async def __aenter__(self) -> None:
        waiter = self._ask(_TrioWaiter if in_trio() else _AsyncioWaiter)
        if waiter is not None:
            try:
                await waiter.wait()
            except BaseException:
                self._withdraw(waiter)
                raise
        try:
            if wait := self._reserve():
                await _clock().asleep(wait)
        except BaseException:
            self._leave()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self._leave()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self._leave()

    # ------------------------------------------------------------------------------------------------------- its places

    def _ask(self, kind: Callable[[], _Waiter]) -> _Waiter | None:
        """Take a place; or a number, if there is none."""
        with self._lock:
            if self._free is None:
                return None
            if self._free:
                self._free -= 1
                return None
            waiter = kind()
            self._queue.append(waiter)
            return waiter

    def _await_in_thread(self, waiter: Any) -> None:
        bound = deadline()
        try:
            in_time = waiter.wait_for(None if bound is None else bound.remaining)
        except BaseException:
            self._withdraw(waiter)
            raise
        if not in_time:
            self._withdraw(waiter)
            raise TimeoutError(f"the limiter {self.name!r} had no place before the deadline")

    def _withdraw(self, waiter: _Waiter) -> None:
        """Wait no longer; a place that has been handed over in the meantime is passed on."""
        with self._lock:
            waiting = waiter in self._queue
            if waiting:
                self._queue.remove(waiter)
        if not waiting:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            if self._free is None:
                return
            heir = self._queue.popleft() if self._queue else None
            if heir is None:
                self._free += 1
        if heir is not None and not heir.wake():
            self._leave()  # its event loop is gone, and so is whoever waited there

    # -------------------------------------------------------------------------------------------------------- its rate

    def _reserve(self) -> float:
        """Reserve an instant; how many seconds it is away.

        Raises:
            TimeoutError: it lies behind the deadline; nothing was reserved.
        """
        if self._gap is None:
            return 0.0
        now, bound = _clock().monotonic(), deadline()
        with self._lock:
            # The next instant may lag behind by a burst, and no further: time that was not used is not saved up.
            start = max(self._next, now - self._gap * (self._burst - 1))
            wait = max(0.0, start - now)
            if bound is not None and wait >= bound.remaining and wait:
                raise TimeoutError(f"the limiter {self.name!r} has no place for another {wait:.3g} s")
            self._next = start + self._gap
        return wait


def _clock() -> Clock:
    scope = SCOPE.get()
    return SYSTEM if scope is None else scope.clock


class _Waiter(Protocol):
    """Somebody who waits for a place."""

    def wake(self) -> bool:
        """Hand the place over, from any thread; False if nobody is there any more."""
        ...

    async def wait(self) -> None:
        """Wait in a task."""
        ...


class _ThreadWaiter:
    def __init__(self) -> None:
        self._event = Event()

    def wake(self) -> bool:
        self._event.set()
        return True

    def wait_for(self, seconds: float | None) -> bool:
        """Wait in a thread; whether it was woken."""
        return self._event.wait(seconds)

    async def wait(self) -> None:
        raise NotImplementedError


class _AsyncioWaiter:
    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # the loop is closed
            return False
        return True

    async def wait(self) -> None:
        await self._event.wait()


class _TrioWaiter:
    def __init__(self) -> None:
        trio = sys.modules["trio"]
        self._token = trio.lowlevel.current_trio_token()
        self._event = trio.Event()
        self._gone: type[BaseException] = trio.RunFinishedError

    def wake(self) -> bool:
        try:
            self._token.run_sync_soon(self._event.set)
        except self._gone:
            return False
        return True

    async def wait(self) -> None:
        await self._event.wait()
