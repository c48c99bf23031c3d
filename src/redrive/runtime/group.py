"""The workers of several apps in one process: each has a database of its own, and they start and stop together.

An outage of one database must not stop the jobs of the others. So a worker whose database is away at the start tries on
without a limit while another one works, and later each worker waits for its own database only. Any other end of one
worker, such as a failed start hook, is an end of the process: the others drain, and a supervisor starts all again.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterator, Mapping

from redrive.errors.foreign import summary
from redrive.observe.logs import OF_APP
from redrive.runtime import log
from redrive.runtime.claimer import Together
from redrive.runtime.supervision import cancel
from redrive.runtime.worker import Worker


class WorkerGroup:
    """The workers of a process.

    Args:
        workers: one for each app, by the name of the app in logs. The log of a single one has no name.
    """

    def __init__(self, workers: Mapping[str, Worker]) -> None:
        self.workers: dict[str, Worker] = dict(workers)
        if len(self.workers) > 1:
            together = Together()
            for worker in self.workers.values():
                worker.belongs_to(together, self._works)

    def _works(self) -> bool:
        return any(each.registered.is_set() for each in self.workers.values())

    def stop(self) -> None:
        """Stop all workers; see `Worker.stop`."""
        for each in self.workers.values():
            each.stop()

    @property
    def abandoned(self) -> int:
        """The number of handlers that did not stop, after `run`."""
        return sum(each.abandoned for each in self.workers.values())

    async def run(self) -> None:
        """Run jobs until the workers are stopped, or the first of them has ended; then the others drain.

        Raises the first error of a worker; further ones are logged.
        """
        tasks = dict(self._started())
        failed: BaseException | None = None
        try:
            left = set(tasks)
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    error = each.exception()
                    if error is not None and len(tasks) > 1:
                        log.error("the worker of %s has failed, and the process ends: %s", tasks[each], summary(error))
                    failed = failed or error
                self._drain()
        finally:
            await cancel(*tasks)
        if failed is not None:
            raise failed

    def _started(self) -> Iterator[tuple[asyncio.Task[None], str]]:
        for name, worker in self.workers.items():
            context = contextvars.copy_context()
            if len(self.workers) > 1:
                context.run(OF_APP.set, name)
            yield asyncio.create_task(worker.run(), context=context), name

    def _drain(self) -> None:
        for each in self.workers.values():
            # A second stop would interrupt its handlers.
            if not each.stopping.is_set():
                each.stop()
