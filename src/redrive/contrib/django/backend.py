"""The backend for ``django.tasks``: Django's side of the border."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connections
from django.utils import timezone

from redrive.contrib.django import checks, compat, results
from redrive.contrib.django.app import DjangoApp, define, find_task, home
from redrive.engine.lifecycle import State
from redrive.errors import JobNotFound
from redrive.stores.operations import jobs
from redrive.stores.operations.clock import instant
from redrive.stores.query import Steps, reads

__all__ = ["RedriveBackend"]


class RedriveBackend(compat.BaseTaskBackend):  # type: ignore[misc] # Django has no type information
    """Durable tasks: ``TASKS = {"default": {"BACKEND": "redrive.contrib.django.RedriveBackend"}}``.

    A task is a job of redrive's engine, in the project's own database. Enqueued inside of ``transaction.atomic()``, it
    exists if and only if that transaction commits. ``manage.py redrive worker`` runs it.

    The options are described in ``docs/reference/django.md``.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def app(self) -> DjangoApp:
        """The redrive App behind it.

        Raises:
            ConfigurationError: the options do not lead to a store.
        """
        return home(self.alias, self.options)

    def validate_task(self, task: Any) -> None:  # noqa: ANN401 - Django's Task
        """See that Django may make this task, and note that it is there.

        Args:
            task: Django's.
        """
        super().validate_task(task)
        define(self.alias, task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - Django's, and the user's
        """Make a durable job of a call.

        Args:
            task: Django's.
            args: by position.
            kwargs: by name.

        Returns:
            A ``TaskResult``. It is stored when this returns, or, inside of a transaction, when that commits.

        Raises:
            TypeError: an argument cannot be written as JSON.
            PayloadError: likewise.
            OutcomeUnknown: the answer to the commit was lost; the job may be there.
            StoreError: the database refused, or is away; nothing was enqueued.
        """
        self.validate_task(task)
        new = self._new(task, args, kwargs)
        app, using = self.app, self._using()
        call = app.adopt(task).options(
            queue=task.queue_name, priority=-task.priority, delay=self._delay(task.run_after, using)
        )
        job = call.enqueue(new.args, new.kwargs, using=using)
        new = replace(new, id=str(job.id))
        compat.task_enqueued.send(type(self), task_result=new)
        return new

    def get_result(self, result_id: str) -> Any:  # noqa: ANN401 - Django's TaskResult
        """Look a job up.

        Args:
            result_id: the number of the job.

        Returns:
            A ``TaskResult``.

        Raises:
            TaskResultDoesNotExist: there is no such job, or it is of no task of Django's.
            StoreError: the database refused.
        """
        app, using = self.app, self._using()
        try:
            material = app.store.run(jobs.material(int(result_id)), using=using)
        except (JobNotFound, ValueError) as error:
            raise compat.TaskResultDoesNotExist(result_id) from error
        job = material.job
        task = find_task(job.task)
        if task is None:
            raise compat.TaskResultDoesNotExist(result_id)
        queue = job.queue if not self.queues or job.queue in self.queues else None  # an operator may have moved it
        found = results.result(task.using(priority=-job.priority, queue_name=queue), self.alias, material)
        if job.state is not State.SUCCEEDED:
            return found
        return results.with_value(found, app.read_result(job.task, app.store.run(jobs.result(job.id), using=using)))

    def check(self, **_: Any) -> Iterable[Any]:  # noqa: ANN401 - Django's
        """Say what is wrong in the settings; see `redrive.contrib.django.checks`."""
        return checks.alone(self)

    def _new(self, task: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - Django's, and the user's
        return compat.TaskResult(
            task=task,
            id="",
            status=compat.TaskResultStatus.READY,
            enqueued_at=results.at(timezone.now()),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    def _using(self) -> Any:  # noqa: ANN401 - a connection of sqlite3 or psycopg
        """The connection whose transaction is open, if it is to the database that has the jobs."""
        app = self.app
        if app.options.database is None or app.url == "memory://":
            return None
        connection = connections[app.options.database]
        if not connection.in_atomic_block and connection.get_autocommit():
            return None
        connection.validate_no_broken_transaction()
        connection.ensure_connection()
        return connection.connection

    def _delay(self, run_after: Any, using: Any) -> timedelta:  # noqa: ANN401 - a datetime, and see `_using`
        if run_after is None:
            return timedelta(0)
        due_at = timezone.make_aware(run_after) if timezone.is_naive(run_after) else run_after
        # Counted from the database's now, since that is where it will be counted to (law 8).
        now: datetime = self.app.store.run(_now(self.app.now()), using=using)
        delay: timedelta = due_at - now
        return max(delay, timedelta(0))


@reads
def _now(now: datetime | None) -> Steps[datetime]:
    return (yield from instant(now))
