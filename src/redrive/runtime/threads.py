"""The threads in which ``def`` handlers run.

A switch between threads costs more than a short handler, so a pool avoids switches:

* Threads take calls from one queue. The event loop wakes one thread for all calls that it starts; that thread runs call
  after call without a rest. No call belongs to a thread before it begins, so a long one holds up no other: before a
  thread begins a call it wakes another thread for the calls that are left. At most one thread is on its way at a time,
  and while the calls are short there is nothing left for it.
* Results wait in an outbox, and one wake-up of the event loop fetches all of them. A thread asks for it when it has run
  out of calls, and before it begins a call while no other thread is on its way. Otherwise that other thread asks, so a
  long call holds up no result either.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import threading
from collections import deque
from collections.abc import Callable, Collection
from concurrent import futures
from typing import Any, Protocol, TypeVar, cast

from redrive.app.attempts.effects import CURRENT as EFFECTS
from redrive.app.loading import REFUSAL
from redrive.app.tasks.failures import carried
from redrive.retrying.context import JOB

R = TypeVar("R")


class Pool(Protocol):
    """Calls functions in threads."""

    def start(self, call: Callable[[], Any], ended: Callable[[], object]) -> asyncio.Future[Any]:
        """Call a function in a thread, and return the future of its result, which belongs to the running event loop.

        A call that has not begun when the future is cancelled never begins. ``ended`` is called in the thread as soon
        as the function has ended, before the future is done, or if it will never begin.
        """


# Results travel to one event loop. A pool may serve another one later.
class _Outbox:
    """The calls that have ended, on their way from the threads to an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._calls: deque[_Call] = deque()
        self._asked = False

    def put(self, call: _Call) -> None:
        """Add a call that has ended."""
        self._calls.append(call)

    def send(self) -> None:
        """Wake the event loop, unless nothing waits or it has been woken already."""
        if self._calls and not self._asked:
            self._asked = True
            # The event loop may have ended, and with it the worker.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # Reset first: a result that is added from here on asks again.
        self._asked = False
        calls = self._calls
        while calls:
            calls.popleft().deliver()


class _Call:
    """One call of a function in a thread."""

    __slots__ = ("_ended", "_error", "_function", "_result", "future", "outbox")

    def __init__(self, function: Callable[[], Any], ended: Callable[[], object], outbox: _Outbox) -> None:
        self.outbox = outbox
        self.future: asyncio.Future[Any] = outbox.loop.create_future()
        self._function, self._ended = function, ended
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Call the function in this thread, unless the future has been cancelled."""
        if not self.future.done():
            try:
                self._result = self._function()
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller
                self._error = error
        self._ended()
        del self._function, self._ended
        self.outbox.put(self)

    def drop(self) -> None:
        """End a call that will never begin; called in the event loop."""
        self.future.cancel()
        self._ended()

    def deliver(self) -> None:
        """Set the result; called in the event loop."""
        result, error = self._result, self._error
        # The traceback of the error refers to this object.
        self._result = self._error = None
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


# Locks that idle threads wait for are *gates*. A gate is closed while its thread runs.
class ThreadPool:
    """Threads that call functions, started as they are needed.

    Args:
        limit: the largest number of threads.
        name: the beginning of their names.
    """

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._queue: deque[_Call] = deque()
        self._outbox: _Outbox | None = None
        # It guards the fields below. While a thread is on its way, `_wake` reads `_waking` only.
        self._lock = threading.Lock()
        self._gates: list[threading.Lock] = []
        self._count = 0
        self._waking = self._closed = False

    def start(self, call: Callable[[], Any], ended: Callable[[], object]) -> asyncio.Future[Any]:
        """Call a function in a thread; see `Pool`. Raise RuntimeError if there is no thread and none can be started."""
        loop = asyncio.get_running_loop()
        outbox = self._outbox
        if outbox is None or outbox.loop is not loop:
            outbox = self._outbox = _Outbox(loop)
        each = _Call(call, ended, outbox)
        self._queue.append(each)
        if not self._waking:
            try:
                self._wake()
            except RuntimeError:
                if not self._count:
                    self._queue.remove(each)
                    raise
        return each.future

    def close(self) -> None:
        """Start no further call, and end the idle threads. Calls that run go on, and then their threads end."""
        with self._lock:
            self._closed = True
            gates, self._gates = self._gates, []
        while self._queue:
            self._queue.pop().drop()
        for gate in gates:
            gate.release()

    def _wake(self) -> bool:
        """Wake a thread, or start one, for the calls that wait. Return True if a thread is on its way to them."""
        with self._lock:
            if self._waking or not self._queue or self._closed:
                return self._waking
            gate = self._gates.pop() if self._gates else None
            if gate is None:
                if self._count == self._limit:
                    return False
                number = self._count
                self._count += 1
            self._waking = True
        if gate is not None:
            gate.release()
            return True
        try:
            # Each call brings its own context; the thread must not keep that of the first one.
            contextvars.Context().run(threading.Thread(target=self._work, name=f"{self._name}_{number}").start)
        except BaseException:
            with self._lock:
                self._count -= 1
                self._waking = False
            raise
        return True

    def _work(self) -> None:
        """Run calls until the pool is closed; the function of a thread."""
        gate = threading.Lock()
        gate.acquire()
        self._waking = False
        while True:
            try:
                call = self._queue.popleft()
            except IndexError:
                # Another thread may have left this to the one that was on its way.
                if self._outbox is not None:
                    self._outbox.send()
                if not self._rest(gate):
                    return
                continue
            if not self._waking and not self._has_woken():
                call.outbox.send()
            call.run()
            # It would keep the result alive while the thread is idle.
            del call

    def _has_woken(self) -> bool:
        """Wake another thread if calls wait; return False if none is on its way."""
        try:
            return bool(self._queue) and self._wake()
        except RuntimeError:
            # No thread can be started now. The threads of now go on.
            return False

    def _rest(self, gate: threading.Lock) -> bool:
        """Wait until calls wait; return False if the pool is closed."""
        with self._lock:
            if self._closed:
                return False
            if self._queue:
                return True
            self._gates.append(gate)
        gate.acquire()
        self._waking = False
        return not self._closed


def outside_loop(call: Callable[[], R]) -> R:
    """Call a function on the event loop's own thread as if that ran no event loop, for a drain.

    The function may start event loops, as in a thread of a worker. What the present loop has to do waits for its end.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # coroutines run in tasks
    # The means by which other event loops than those of asyncio run its tasks.
    asyncio.tasks._leave_task(loop, task)
    asyncio._set_running_loop(None)
    try:
        return call()
    finally:
        asyncio._set_running_loop(loop)
        asyncio.tasks._enter_task(loop, task)


def _of_attempt() -> bool:
    """Return True in the code of an attempt, in the body of a run, and in a step that is retried."""
    if EFFECTS.get() is not None or JOB.get() is not None:
        return True
    refusal = REFUSAL.get()
    return refusal is not None and refusal.is_of_body


_carried = False


# As Python 3.14 does with `thread_inherit_context`, but for the threads of attempts only.
def carry_context() -> None:
    """Have the threads that a handler, a body or a step starts in this process run in a copy of its context.

    What it calls in such a thread is then a part of it, as with ``asyncio.to_thread``: what it enqueues joins the end
    of the attempt, is refused in a body, and raises `LeaseLost` when the attempt has ended. That holds for
    `threading.Thread`, its subclasses, and each call of a `concurrent.futures.ThreadPoolExecutor`, whose threads may be
    older or live longer. Threads that are started outside of attempts remain as they are.
    """
    global _carried  # noqa: PLW0603 - the state of the process, as the classes are
    if _carried:
        return
    _carried = True
    start, submit = threading.Thread.start, cast("Any", futures.ThreadPoolExecutor.submit)
    # The context cannot be sent to another interpreter, which Python 3.14 has.
    interpreters = getattr(futures, "InterpreterPoolExecutor", ())

    @functools.wraps(start)
    def start_in_context(thread: threading.Thread) -> None:
        if _of_attempt():
            _run_in_context(thread)
        start(thread)

    @functools.wraps(submit)
    def submit_in_context(
        pool: futures.ThreadPoolExecutor, call: Callable[..., object], /, *args: object, **kwargs: object
    ) -> Any:  # noqa: ANN401 - as the original
        if not _of_attempt() or isinstance(pool, interpreters):
            return submit(pool, call, *args, **kwargs)
        in_context = contextvars.copy_context().run
        # A thread that the pool starts now must not keep the context for the calls of others.
        return contextvars.Context().run(submit, pool, in_context, call, *args, **kwargs)

    threading.Thread.start = start_in_context  # type: ignore[method-assign, assignment]
    futures.ThreadPoolExecutor.submit = submit_in_context  # type: ignore[method-assign, assignment]


def _run_in_context(thread: threading.Thread) -> None:
    """Have a thread that is not started yet run in a copy of the present context."""
    run, context = thread.run, contextvars.copy_context()

    def run_in_context() -> None:
        # A thread that has ended keeps no context.
        vars(thread).pop("run", None)
        context.run(run)

    thread.run = run_in_context  # type: ignore[method-assign]


class _Running:
    """A call of `Threads` that has not ended, and what waits for its end."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: list[Callable[[], object]] = []


# Python cannot stop a thread, so one may go on when its attempt has ended.
class Threads:
    """Runs handlers in the threads of a pool and records which of them run."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # Threads and the event loop use it without a lock: each access is one operation on a dictionary.
        self._running: dict[_Running, int] = {}

    @property
    def running(self) -> Collection[int]:
        """The leases of the handlers that run, whether or not their attempts have ended."""
        return set(self._running.copy().values())

    def start(self, lease_id: int, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call a handler, or a step of one, in a thread, in a copy of the present context; return the future of it."""
        running = _Running()
        in_context = functools.partial(contextvars.copy_context().run, carried, call)
        self._running[running] = lease_id
        try:
            return self._pool.start(in_context, functools.partial(self._ended, running))
        except BaseException:
            del self._running[running]
            raise

    def _ended(self, running: _Running) -> None:
        del self._running[running]
        while running.waiters:
            with contextlib.suppress(IndexError):
                running.waiters.pop()()

    def when_stopped(self, lease_id: int, call: Callable[[], object]) -> None:
        """Call a function when the threads of an attempt have stopped; at once if they have. Any thread may call it."""
        running = next((each for each, lease in self._running.copy().items() if lease == lease_id), None)
        if running is None:
            call()
            return

        def again() -> None:
            # Another thread of the attempt may still run then.
            self.when_stopped(lease_id, call)

        running.waiters.append(again)
        # The thread may have ended just before, and have called its waiters without this one.
        if running not in self._running:
            with contextlib.suppress(ValueError):
                running.waiters.remove(again)
                again()
