"""The context of a running task: Django's, with that of redrive in it."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.app.attempts.context import Context
from redrive.contrib.django import compat
from redrive.contrib.django.orm import AtomicTransaction
from redrive.errors import ConfigurationError
from redrive.stores.urls import redacted


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(compat.TaskContext):  # type: ignore[misc] # Django has no type information
    """The context of tasks with ``takes_context=True``: Django's ``TaskContext`` and that of redrive.

    Attributes:
        task_result: Django's view of the job when the execution started.
        job: the `redrive.Context`, with ``idempotency_key``, ``heartbeat()``, ``should_stop`` and more.
    """

    job: Context

    def transaction(self) -> AtomicTransaction:
        """Return a block that commits the writes of the ORM and the end of this job together, or neither.

        ``with context.transaction():`` is ``transaction.atomic()`` on the database of the jobs. When the block ends,
        the job has succeeded, in the same transaction: its effect takes place exactly once, also after a crash. Set a
        result inside, by ``context.job.set_result()``. For ``def`` tasks, because Django's transactions are
        synchronous.

        Raises:
            LeaseLost: on entering or leaving the block: the execution is over, and the writes are rolled back.
            ConfigurationError: the jobs are not in one of Django's databases, or this is not a job.
        """
        if self.job.link is None:
            raise ConfigurationError("this context belongs to no execution: only a job that a worker runs has one")
        app = self.task_result.task.get_backend().app
        if app.options.database is None or app.url == "memory://":
            message = (
                f"context.transaction() needs the jobs in one of DATABASES, but {app.options.where} has them in "
                f"{redacted(app.url)}"
            )
            raise ConfigurationError(message)
        return AtomicTransaction(self.job.link, app.options.database)
