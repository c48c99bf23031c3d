"""The threads of ``def`` handlers. Python cannot stop a thread, so one may go on when its attempt has ended."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Executor as Pool
from concurrent.futures import Future
from typing import Any


class Threads:
    """Runs handlers in the threads of a pool and records which of them run."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._running: dict[int, Future[Any]] = {}

    @property
    def running(self) -> Collection[int]:
        """The leases of the handlers that run, whether or not their attempts have ended."""
        return self._running.keys()

    def start(self, lease_id: int, call: Callable[[], Any]) -> Future[Any]:
        """Call a handler in a thread, and return the future of its result."""
        future = self._pool.submit(call)
        self._running[lease_id] = future
        future.add_done_callback(lambda _: self._running.pop(lease_id, None))
        return future

    def when_stopped(self, lease_id: int, call: Callable[[], object]) -> None:
        """Call a function when the handler of an attempt has stopped; at once if it has. Any thread may call it."""
        future = self._running.get(lease_id)
        if future is None:
            call()
        else:
            future.add_done_callback(lambda _: call())
