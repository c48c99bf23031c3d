"""A limiter of the calls in progress and of the calls per second, for all threads and tasks.

It decorates the function itself, below the retries, so that each attempt passes it and its waits count against the
timeout of the attempt and the deadline::

    payments = Limiter(concurrency=20, rate=100)

    @redrive.retry("3 100ms", on=OSError, budget="payments")
    @payments
    async def charge(...): ...

It also works as ``with payments:`` and ``async with payments:``.

One limiter serves threads and the tasks of several event loops at once. A free slot is handed to the waiter that came
first, so that a newcomer cannot take it. The rate is spread evenly: each call reserves an instant, and a burst may
start at once. A wait that would pass the deadline of the enclosing call is not begun: `TimeoutError` is raised and the
function is not called.

A limiter can follow its target, since it sees every answer: ``rate=Adaptive(...)`` sends as many calls as the target
accepts (`redrive.policy.overload`), and ``shed=Shedding(...)`` does not send calls that would be refused
(`redrive.policy.overload`). A cancelled attempt has no answer.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable
from threading import Event, Lock
from types import TracebackType
from typing import Any, TypeVar, cast

from redrive import forks
from redrive.clock import in_trio
from redrive.errors import Overloaded, PolicyValueError
from redrive.policy.classify import refuse_coroutine
from redrive.policy.overload import Adaptive, AdaptiveRate, Answers, Shedding
from redrive.retrying.context import SCOPE, attempt, deadline, present_clock
from redrive.retrying.rng import roll
from redrive.seams import refuse_task

F = TypeVar("F", bound=Callable[..., Any])
_W = TypeVar("_W", bound="_ThreadWaiter | _AsyncioWaiter | _TrioWaiter")

# The result of a `with` block.
_UNKNOWN = object()
# The shortest wait, in seconds.
_GRAIN = 0.001


class Limiter(forks.Member):
    """A limit of the calls in progress and of the calls per second.

    Args:
        concurrency: calls in progress; None for no limit.
        rate: calls per second in the long run, or `Adaptive` for as many as the target accepts; None for no limit.
        burst: calls that may start at once after an idle time, if the rate is a number.
        shed: refuses calls with `redrive.errors.Overloaded` while the target refuses many; None never refuses.
        name: for messages.

    Raises:
        PolicyValueError: there is no limit, or a number is not positive.
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
        self._concurrency = self._free = concurrency
        self._queue: deque[_ThreadWaiter | _AsyncioWaiter | _TrioWaiter] = deque()
        self._lock = Lock()
        self._rate: EvenRate | FollowingRate | None = None
        self._following: FollowingRate | None = None
        if isinstance(rate, Adaptive):
            self._rate = self._following = FollowingRate(rate)
        elif rate is not None:
            self._rate = EvenRate(rate, burst)
        self._throttles = rate.answers if isinstance(rate, Adaptive) else None
        self._shed = shed
        self._shedding = None if shed is None else shed.open()
        forks.register(self)

    def after_fork_in_child(self) -> None:
        """Free all places: the threads that hold them, or wait for one, do not exist in the child."""
        self._lock = Lock()
        self._free = self._concurrency
        self._queue.clear()

    @property
    def rate(self) -> float | None:
        """The present limit in calls per second; None without one."""
        with self._lock:
            return None if self._rate is None else self._rate.rate

    @property
    def rejection(self) -> float:
        """The fraction of calls that it refuses at present, from 0 to 1."""
        with self._lock:
            return 0.0 if self._shedding is None else self._shedding.rejection(present_clock().monotonic())

    def __call__(self, function: F) -> F:
        """Decorate a function or a coroutine function."""
        import inspect

        refuse_task("@limiter", function)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def limited_async(*args: object, **kwargs: object) -> Any:
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
        def limited(*args: object, **kwargs: object) -> Any:
            self.__enter__()
            try:
                result = refuse_coroutine(function(*args, **kwargs), function)
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
                present_clock().sleep(wait)
                if self._has_turn:
                    break
            self._sent()
        except BaseException:
            self._leave()
            raise

    async def __aenter__(self) -> None:
        self._refuse()
        kind: Any = _TrioWaiter if in_trio() else _AsyncioWaiter
        waiter = self._ask(kind)
        if waiter is not None:
            try:
                await waiter.wait()
            except BaseException:
                self._withdraw(waiter)
                raise
        try:
            while wait := self._reserve():
                await present_clock().asleep(wait)
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

    def _ask(self, kind: Callable[[], _W]) -> _W | None:
        """Take a slot and return None; return a waiter if there is no free slot."""
        with self._lock:
            if self._free is None:
                return None
            if self._free:
                self._free -= 1
                return None
            waiter = kind()
            self._queue.append(waiter)
            return waiter

    def _await_in_thread(self, waiter: _ThreadWaiter) -> None:
        bound = deadline()
        try:
            in_time = waiter.wait_for(None if bound is None else bound.remaining)
        except BaseException:
            self._withdraw(waiter)
            raise
        if not in_time:
            self._withdraw(waiter)
            raise TimeoutError(f"the limiter {self.name!r} had no place before the deadline")

    def _withdraw(self, waiter: _ThreadWaiter | _AsyncioWaiter | _TrioWaiter) -> None:
        """Stop waiting; pass on a slot that has been handed over already."""
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
            waiter = self._queue.popleft() if self._queue else None
            if waiter is None and self._free != self._concurrency:
                self._free += 1
        if waiter is not None and not waiter.wake():
            # Its event loop is closed, and the waiter with it.
            self._leave()

    @property
    def _has_turn(self) -> bool:
        """True if a call may start after its wait without taking another turn."""
        return self._rate is None or not self._rate.is_provisional

    def _reserve(self) -> float:
        """Take the next turn; return the seconds until then. Raise `TimeoutError` if the deadline is earlier."""
        if self._rate is None:
            return 0.0
        is_retry = self._following is not None and attempt() > 1
        now, bound = present_clock().monotonic(), deadline()
        room = float("inf") if bound is None else bound.remaining
        with self._lock:
            wait = self._rate.take(now, room, is_retry=is_retry)
        if wait and wait >= room:
            raise TimeoutError(f"the limiter {self.name!r} has no place for another {wait:.3g} s")
        return wait

    def _refuse(self) -> None:
        """Raise `Overloaded` for a fraction of the calls while the target refuses many."""
        if self._shedding is None:
            return
        scope, now = SCOPE.get(), present_clock().monotonic()
        sample = roll() if scope is None else scope.roll()
        with self._lock:
            rejection = self._shedding.rejection(now)
            if sample < rejection:
                self._shedding.asked(now)
        if sample < rejection:
            raise Overloaded(f"the limiter {self.name!r} refuses {rejection:.0%} of all calls", rejection=rejection)

    def _sent(self) -> None:
        """Record a call that is let through."""
        if self._shedding is not None:
            now = present_clock().monotonic()
            with self._lock:
                self._shedding.asked(now)

    def _over(self, error: BaseException | None, result: object = _UNKNOWN) -> None:
        """Record the answer of a call that has ended, if there is one, and free its slot."""
        try:
            if (self._following or self._shedding) and (error is None or isinstance(error, Exception)):
                self._record(error, result)
        finally:
            self._leave()

    def _record(self, error: BaseException | None, result: object) -> None:
        # Without the lock, since this calls the user's code.
        now = present_clock().monotonic()
        throttled = self._throttles is not None and _matches(self._throttles, error, result)
        accepted = self._shed is not None and not _matches(self._shed.answers, error, result)
        with self._lock:
            if self._following is not None:
                self._following.record(now, throttled=throttled)
            if self._shedding is not None and accepted:
                self._shedding.accepted(now)


def _matches(answers: Answers, error: BaseException | None, result: object) -> bool:
    if error is not None:
        return answers.has_error(error)
    return result is not _UNKNOWN and answers.has_result(result)


# Both rates have `take`, which takes the next turn and returns the seconds until then, or takes none that is more than
# `room` seconds away. The limiter has the lock.
class EvenRate:
    """Turns at equal distances, reserved in the order of the requests."""

    #: True if the caller takes a turn again after its wait; otherwise the wait ends with its turn.
    is_provisional = False

    def __init__(self, rate: float, burst: int) -> None:
        self.rate = rate
        self._gap = 1 / rate
        self._lag = self._gap * (burst - 1)
        # The next turn after the burst is used up.
        self._next = float("-inf")

    def take(self, now: float, room: float, *, is_retry: bool) -> float:  # noqa: ARG002 - all attempts are alike
        """Take the next turn."""
        # The next turn may lie behind the present by one burst at most: unused time does not accumulate.
        start = max(self._next, now - self._lag)
        wait = max(0.0, start - now)
        if not wait or wait < room:
            self._next = start + self._gap
        return wait


class FollowingRate:
    """Turns at an `AdaptiveRate`. A caller that has to wait takes no turn, since the rate may change."""

    is_provisional = True

    def __init__(self, adaptive: Adaptive) -> None:
        self._adaptive = adaptive
        self._state: AdaptiveRate | None = None

    @property
    def rate(self) -> float | None:
        """Calls per second at present; None without a limit."""
        return self._state.rate if self._state is not None and self._state.enabled else None

    def take(self, now: float, room: float, *, is_retry: bool) -> float:  # noqa: ARG002 - a wait takes nothing
        """Take the next turn."""
        wait = self._begun(now).acquire(now, self._adaptive.retry_cost if is_retry else self._adaptive.cost)
        # A sleep shorter than the resolution of the clock would end at the same instant, and repeat forever.
        return max(wait, _GRAIN) if wait else 0.0

    def record(self, now: float, *, throttled: bool) -> None:
        """Record an answer."""
        self._begun(now).report(now, throttled=throttled)

    def _begun(self, now: float) -> AdaptiveRate:
        # The measurement begins with the first call.
        if self._state is None:
            self._state = self._adaptive.open(now)
        return self._state


# A waiter is a thread or task that waits for a slot. `wake` hands the slot over, from any thread, and returns False if
# the waiter's event loop is closed.
class _ThreadWaiter:
    def __init__(self) -> None:
        self._event = Event()

    def wake(self) -> bool:
        self._event.set()
        return True

    def wait_for(self, seconds: float | None) -> bool:
        """Block the thread; return True if it was woken in time."""
        return self._event.wait(seconds)


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
