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

A limiter can also follow its target, for it hears every answer: ``rate=Adaptive(...)`` sends as much as the target
bears (`redrive.policy.adaptive`), and ``shed=Shedding(...)`` does not send what would be refused
(`redrive.policy.shedding`). An attempt that is cancelled has had no answer.
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
from redrive.errors import Overloaded, PolicyValueError
from redrive.policy.adaptive import Adaptive
from redrive.policy.answers import Answers
from redrive.policy.shedding import Shedding
from redrive.retrying.context import SCOPE, SYSTEM, attempt, deadline
from redrive.retrying.rate import Even, Following, Pace
from redrive.retrying.rng import roll

__all__ = ["Limiter"]

F = TypeVar("F", bound=Callable[..., Any])

_UNKNOWN = object()  # what a `with` block came to


class Limiter:
    """Limits how many calls run at once and how many are started in a time.

    Args:
        concurrency: calls at once; None for no limit.
        rate: calls per second in the long run, or `Adaptive` for as many as the target bears; None for no limit.
        burst: calls that may be started at once after a quiet time, if the rate is a number.
        shed: refuses calls with `redrive.errors.Overloaded` while the target refuses many; None never does.
        name: for messages.

    Raises:
        PolicyValueError: nothing is limited, or a number is not positive.
    """

    def __init__(
        self,
        *,
        concurrency: int | None = None,
        rate: float | Adaptive | None = None,
        burst: int = 1,
        shed: Shedding | None = None,
        name: str = "",
    ) -> None:
        if concurrency is None and rate is None and shed is None:
            raise PolicyValueError("a limiter limits something: concurrency=, rate= or shed=, or several of them")
        if shed is not None and not isinstance(shed, Shedding):
            raise PolicyValueError(f"shed={shed!r} of a limiter: give a Shedding(...)")
        numbers = {"concurrency": concurrency, "burst": burst} | ({} if isinstance(rate, Adaptive) else {"rate": rate})
        for field, value in numbers.items():
            if value is not None and (isinstance(value, bool) or not value > 0):
                raise PolicyValueError(f"{field}={value!r} of a limiter: above zero")
        if isinstance(rate, Adaptive) and burst != 1:
            raise PolicyValueError(f"burst={burst!r} of a limiter: an adaptive rate has a bucket of its own")
        self.name = name
        self._free = concurrency
        self._queue: deque[_Waiter] = deque()
        self._lock = Lock()
        self._pace: Pace | None = None
        self._following: Following | None = None
        if isinstance(rate, Adaptive):
            self._pace = self._following = Following(rate)
        elif rate is not None:
            self._pace = Even(rate, burst)
        self._throttles = rate.answers if isinstance(rate, Adaptive) else None
        self._shed = shed
        self._seen = None if shed is None else shed.open()

    @property
    def rate(self) -> float | None:
        """Calls per second that it lets through at present; None if it does not limit them."""
        with self._lock:
            return None if self._pace is None else self._pace.rate

    @property
    def rejection(self) -> float:
        """The part of the calls that it refuses at present, from 0 to 1."""
        with self._lock:
            return 0.0 if self._seen is None else self._seen.rejection(_clock().monotonic())

    # ------------------------------------------------------------------------------------------------------ its forms

    def __call__(self, function: F) -> F:
        """Decorate a function or a coroutine function."""
        import inspect

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def limited_async(*args: Any, **kwargs: Any) -> Any:
                await self.__aenter__()
                try:
                    result = await function(*args, **kwargs)
                except BaseException as error:
                    self._over(error)
                    raise
                self._over(None, result)
                return result

            return cast("F", limited_async)

        @functools.wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            self.__enter__()
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                self._over(error)
                raise
            self._over(None, result)
            return result

        return cast("F", limited)

    def __enter__(self) -> None:
        self._refuse()
        waiter = self._ask(_ThreadWaiter)
        if waiter is not None:
            self._await_in_thread(waiter)
        try:
            while wait := self._reserve():
                _clock().sleep(wait)
                if self._has_turn:
                    break
            self._sent()
        except BaseException:
            self._leave()
            raise

    async def __aenter__(self) -> None:
        self._refuse()
        waiter = self._ask(_TrioWaiter if in_trio() else _AsyncioWaiter)
        if waiter is not None:
            try:
                await waiter.wait()
            except BaseException:
                self._withdraw(waiter)
                raise
        try:
            while wait := self._reserve():
                await _clock().asleep(wait)
                if self._has_turn:
                    break
            self._sent()
        except BaseException:
            self._leave()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self._over(error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self._over(error)

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

    @property
    def _has_turn(self) -> bool:
        """Whether a wait is all that it takes."""
        return self._pace is None or not self._pace.asks_again

    def _reserve(self) -> float:
        """Take the next turn; how many seconds it is away.

        Raises:
            TimeoutError: it lies behind the deadline; nothing was taken.
        """
        if self._pace is None:
            return 0.0
        is_retry = self._following is not None and attempt() > 1
        now, bound = _clock().monotonic(), deadline()
        room = float("inf") if bound is None else bound.remaining
        with self._lock:
            wait = self._pace.take(now, room, is_retry=is_retry)
        if wait and wait >= room:
            raise TimeoutError(f"the limiter {self.name!r} has no place for another {wait:.3g} s")
        return wait

    # --------------------------------------------------------------------------------------------- what the target says

    def _refuse(self) -> None:
        """Refuse this call if it would probably be refused by the target.

        Raises:
            Overloaded: it was not sent.
        """
        if self._seen is None:
            return
        scope, now = SCOPE.get(), _clock().monotonic()
        sample = roll() if scope is None else scope.roll()
        with self._lock:
            rejection = self._seen.rejection(now)
            if sample < rejection:
                self._seen.asked(now)
        if sample < rejection:
            raise Overloaded(f"the limiter {self.name!r} refuses {rejection:.0%} of all calls", rejection=rejection)

    def _sent(self) -> None:
        """A call is let through."""
        if self._seen is not None:
            now = _clock().monotonic()
            with self._lock:
                self._seen.asked(now)

    def _over(self, error: BaseException | None, result: object = _UNKNOWN) -> None:
        """A call that was let through has ended: listen to the answer, if there was one, and make room."""
        try:
            if (self._following or self._seen) and (error is None or isinstance(error, Exception)):
                self._hear(error, result)
        finally:
            self._leave()

    def _hear(self, error: BaseException | None, result: object) -> None:
        now = _clock().monotonic()  # judged without the lock, since it is the user's code that judges
        throttled = self._throttles is not None and _is_one(self._throttles, error, result)
        accepted = self._shed is not None and not _is_one(self._shed.answers, error, result)
        with self._lock:
            if self._following is not None:
                self._following.hear(now, throttled=throttled)
            if self._seen is not None and accepted:
                self._seen.accepted(now)


def _is_one(answers: Answers, error: BaseException | None, result: object) -> bool:
    if error is not None:
        return answers.has_error(error)
    return result is not _UNKNOWN and answers.has_result(result)


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
