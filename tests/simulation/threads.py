"""Replacements of the parts of `threading`, `queue` and `concurrent.futures` that the product uses, for strands.

`Threads` replaces the module ``threading`` and `Queues` the module ``queue``. A flag is enough for a lock, since a
strand loses the processor only where it parks."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty
from typing import Any

from tests.simulation.scheduler import Scheduler, Strand

__all__ = ["Future", "Queues", "SimulatedThreadPool", "Threads"]


class Condition:
    """Strands that wait for something.

    Args:
        scheduler: that runs them.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._waiting: list[Strand] = []

    def wait_for(self, holds: Callable[[], bool], seconds: float | None = None) -> bool:
        """Park until something holds; return whether it does."""
        until = None if seconds is None else self.scheduler.now + seconds
        while not holds():
            if until is not None and self.scheduler.now >= until:
                return False
            self._waiting.append(self.scheduler.current)
            self.scheduler.park(None if until is None else until - self.scheduler.now)
        return True

    def notify(self) -> None:
        """Let all of them check their condition again."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self.scheduler.wake(each)


class Future(concurrent.futures.Future[Any]):
    """A future on which a strand can wait without blocking the others."""

    scheduler: Scheduler

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the error."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        if not self.done() and self.scheduler.current is not None:
            condition = Condition(self.scheduler)
            self.add_done_callback(lambda _: condition.notify())
            condition.wait_for(self.done, timeout)


class Threads:
    """Stands in for the module ``threading``.

    Args:
        scheduler: that runs the threads.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        class Event(_Event):
            def __init__(self) -> None:
                super().__init__(scheduler)

        class Lock(_Lock):
            def __init__(self) -> None:
                super().__init__(scheduler)

        class Thread(_Thread):
            def __init__(self, **options: Any) -> None:
                super().__init__(scheduler, **options)

        self.Event, self.Lock, self.Thread = Event, Lock, Thread
        self._scheduler = scheduler

    def get_ident(self) -> int:
        """Return the identity of the strand that runs."""
        return id(self._scheduler.current)


class _Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._condition = Condition(scheduler)
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._condition.notify()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._condition.wait_for(self.is_set, timeout)


class _Lock:
    def __init__(self, scheduler: Scheduler) -> None:
        self._condition = Condition(scheduler)
        self._held = False

    def locked(self) -> bool:
        return self._held

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._condition.wait_for(lambda: not self._held, (None if timeout < 0 else timeout) if blocking else 0):
            return False
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        self._condition.notify()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Thread:
    def __init__(
        self,
        scheduler: Scheduler,
        *,
        target: Callable[..., object],
        name: str = "thread",
        daemon: bool | None = None,
        args: Iterable[Any] = (),
    ) -> None:
        self.name = name
        self.daemon = daemon
        self._scheduler = scheduler
        self._target = target
        self._args = tuple(args)
        self._strand: Strand | None = None

    def start(self) -> None:
        process = self._scheduler.current.process
        self._strand = self._scheduler.spawn(process, lambda: self._target(*self._args), self.name)

    def join(self, timeout: float | None = None) -> None:
        self._scheduler.join(self._strand, timeout)

    def is_alive(self) -> bool:
        return self._strand is not None and not self._strand.done


class Queues:
    """A replacement of the module ``queue``.

    Args:
        scheduler: the scheduler of the strands that put and get."""

    Empty = Empty

    def __init__(self, scheduler: Scheduler) -> None:
        class SimpleQueue(_Queue):
            def __init__(self) -> None:
                super().__init__(scheduler)

            def __class_getitem__(cls, _: object) -> type:
                return cls

        self.SimpleQueue = SimpleQueue


class _Queue:
    def __init__(self, scheduler: Scheduler) -> None:
        self._condition = Condition(scheduler)
        self._items: deque[Any] = deque()

    def empty(self) -> bool:
        return not self._items

    def put(self, item: object) -> None:
        self._items.append(item)
        self._condition.notify()

    def get(self) -> Any:
        self._condition.wait_for(lambda: bool(self._items))
        return self._items.popleft()

    def get_nowait(self) -> Any:
        if not self._items:
            raise Empty
        return self._items.popleft()


class SimulatedThreadPool:
    """Stands in for `concurrent.futures.ThreadPoolExecutor` and for `redrive.runtime.threads.ThreadPool`.

    Args:
        scheduler: that runs its threads.
        size: how many run at once.
    """

    def __init__(self, scheduler: Scheduler, size: int) -> None:
        self._scheduler = scheduler
        self._size = size
        self._running = 0
        self._queue: deque[tuple[Future, Callable[[], Any]]] = deque()

    def submit(self, function: Callable[..., Any], *args: Any) -> Future:
        """Run a function in a thread, when one is free."""
        future = Future()
        self._queue.append((future, lambda: function(*args)))
        if self._running < self._size:
            self._running += 1
            self._scheduler.spawn(self._scheduler.current.process, self._work, "pool")
        return future

    def start(self, call: Callable[[], Any], ended: Callable[[], object]) -> asyncio.Future[Any]:
        """Call a function in a thread, as `redrive.runtime.threads.ThreadPool` does."""
        future = self.submit(call)
        future.add_done_callback(lambda _: ended())
        return asyncio.wrap_future(future)

    def close(self) -> None:
        """Accept no more functions."""
        self.shutdown(cancel_futures=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more functions; running ones continue."""
        if cancel_futures:
            for future, _ in self._queue:
                future.cancel()
            self._queue.clear()

    def _work(self) -> None:
        while self._queue:
            future, call = self._queue.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:  # noqa: BLE001 - it belongs to the caller
                    future.set_exception(error)
                else:
                    future.set_result(result)
        self._running -= 1
