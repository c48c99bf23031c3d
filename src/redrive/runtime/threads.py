"""The threads in which `def` handlers run. Python cannot stop a thread, so it may go on when its attempt has ended."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Executor as Pool
from concurrent.futures import Future
from typing import Any

__all__ = ["Threads"]


class Threads:
    """Runs handlers in threads, and remembers which of them run.

    Args:
        pool: that has the threads.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._running: dict[int, Future[Any]] = {}

    @property
    def running(self) -> Collection[int]:
        """The leases of the attempts whose handlers run, whether or not the attempts have ended."""
        return self._running.keys()

    def start(self, lease_id: int, call: Callable[[], Any]) -> Future[Any]:
        """Run the handler of an attempt.

        Args:
            lease_id: of the attempt.
            call: calls the handler.

        Returns:
            A future of what it returns.
        """
        future = self._pool.submit(call)
        self._running[lease_id] = future
        future.add_done_callback(lambda _: self._running.pop(lease_id, None))
        return future

    def when_stopped(self, lease_id: int, tell: Callable[[], object]) -> None:
        """Call a function when the handler of an attempt has stopped; at once if it has.

        Args:
            lease_id: of the attempt.
            tell: is called in any thread.
        """
        future = self._running.get(lease_id)
        if future is None:
            tell()
        else:
            future.add_done_callback(lambda _: tell())
