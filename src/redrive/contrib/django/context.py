"""What a task of Django may know about its execution, and say, and ask: Django's context, with redrive's in it."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.app.context import Context
from redrive.contrib.django import compat
from redrive.contrib.django.orm import AtomicEnd
from redrive.errors import ConfigurationError
from redrive.stores.urls import redacted

__all__ = ["JobContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(compat.TaskContext):  # type: ignore[misc] # Django has no type information
    """What a task with ``takes_context=True`` gets: Django's ``TaskContext``, and more.

    Attributes:
        task_result: Django's view of the job, as it was when the execution started.
        job: redrive's context: ``idempotency_key``, ``heartbeat()``, ``should_stop`` and the rest.
    """

    job: Context

    def transaction(self) -> AtomicEnd:
        """Commit what the ORM writes, and the end of this job, together or not at all.

        ``with context.transaction():`` is ``transaction.atomic()`` on the database that has the jobs. When the block
        ends, the job has succeeded, in the same transaction: the effect takes place exactly once, whatever is killed.
        A result is given inside, by ``context.job.set_result()``. For ``def`` tasks; Django's transactions are
        synchronous.

        Returns:
            The block.

        Raises:
            LeaseLost: on entering or leaving the block: the execution is over, and what was written is undone.
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
        return AtomicEnd(self.job.link, app.options.database)
