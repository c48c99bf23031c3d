"""The signal ``task_finished``, sent for what a worker has settled.

The result is read from the database after the commit, so that receivers see what `get_result` returns. Receivers run
one after the other in a thread of their own: they may use the ORM, and a slow one delays no job.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Collection, Sequence
from queue import Queue
from typing import Any

from redrive.contrib.django import compat
from redrive.contrib.django.orm import connections_of_a_job
from redrive.engine.lifecycle import FINAL
from redrive.engine.outcome import Settlement
from redrive.errors import JobDead, StoreError
from redrive.observe.logs import logger
from redrive.policy import Policy

log = logger("redrive.django")

PATIENCE = 10.0
"""The longest time in seconds that a worker waits for receivers when it stops."""

_READING = Policy.parse("5 1s").with_(on=StoreError, idempotent=True)


class FinishedSignals:
    """Sends ``task_finished`` for the jobs of a backend that workers of this process have ended.

    Args:
        alias: the backend.
        find: reads the ``TaskResult`` of a job, None if there is none.
    """

    def __init__(self, alias: str, find: Callable[[int], Any]) -> None:
        self.alias = alias
        self._find = find
        self._raised: dict[int, BaseException] = {}
        self._ended: Queue[tuple[int, BaseException | None] | None] = Queue()
        self._thread: threading.Thread | None = None

    def raised(self, lease_id: int, error: BaseException) -> None:
        """Keep the exception of an attempt until it is settled; receivers find it in ``sys.exc_info()``."""
        self._raised[lease_id] = error

    def settled(self, moved: Sequence[Settlement], lost: Collection[int]) -> None:
        """Send the signal for each job that has ended by these settlements."""
        for lease_id in lost:
            self._raised.pop(lease_id, None)
        for each in moved:
            error = self._raised.pop(each.lease_id, None)
            if each.state in FINAL:
                self.ended(each.job_id, error)

    def ended(self, job_id: int, error: BaseException | None = None) -> None:
        """Send the signal for a job that has ended."""
        self._ended.put((job_id, error))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="redrive-signals", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait until all signals are sent, but not forever."""
        done = self._ended.all_tasks_done
        with done:
            if not done.wait_for(lambda: not self._ended.unfinished_tasks, PATIENCE):
                log.warning(
                    "task_finished was not sent for %d jobs: a receiver takes too long", self._ended.unfinished_tasks
                )

    def close(self) -> None:
        """End the thread, once it has sent what is due."""
        if self._thread is not None:
            self._ended.put(None)
            self._thread = None

    def _run(self) -> None:
        while (ended := self._ended.get()) is not None:
            try:
                with connections_of_a_job():
                    contextvars.copy_context().run(self._send, *ended)
            except Exception:
                log.exception("task_finished was not sent for job %d", ended[0])
            finally:
                self._ended.task_done()
        self._ended.task_done()

    def _send(self, job_id: int, error: BaseException | None) -> None:
        result = _READING.call(self._find, job_id)
        if result is None:
            return
        sender = type(result.task.get_backend())
        if result.status is not compat.TaskResultStatus.FAILED:
            compat.task_finished.send_robust(sender, task_result=result)
            return
        try:
            raise error or JobDead(result.errors[-1].traceback)  # noqa: TRY301 - so that it is in sys.exc_info()
        except BaseException:  # noqa: BLE001 - receivers report the error of the task
            compat.task_finished.send_robust(sender, task_result=result)
