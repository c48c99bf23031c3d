"""The backend for ``django.tasks``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.utils import timezone

from redrive.contrib.django import checks, compat, results
from redrive.contrib.django.app import DjangoApp, app_of, record_task
from redrive.stores.operations.clock import instant
from redrive.stores.query import Statements, reads


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
        """The redrive App of this backend."""
        return app_of(self.alias, self.options)

    def validate_task(self, task: object) -> None:
        """Check a task as Django does, and record it."""
        super().validate_task(task)
        record_task(self.alias, task)

    def enqueue(self, task: Any, args: Any, kwargs: Any, **options: Any) -> Any:
        """Enqueue a job and return its ``TaskResult``.

        The job is stored when this returns, or, inside a transaction, when that commits. ``task.enqueue(...)`` calls
        it. Call it to give the job options that Django does not have.

        Args:
            task: Django's task.
            args: the list of positional arguments.
            kwargs: the dictionary of named arguments.
            **options: of `redrive.Task.options`: ``key``, ``key_until``, ``on_conflict``, ``idempotency_key``,
                ``partition`` and ``retry``.

        Raises:
            TypeError: an argument cannot be written as JSON.
            PayloadError: likewise.
            DuplicateJob: another job holds the key.
            OutcomeUnknown: the answer to the commit was lost; the job may exist.
            StoreError: the database refused, or cannot be reached; nothing was enqueued.
        """
        self.validate_task(task)
        app, using = self.app, self._using()
        delay = self._delay(task.run_after, using)
        call = app.adopt(task).options(queue=task.queue_name, priority=-task.priority, delay=delay, **options)
        new = self._new(task, args, kwargs)
        kept = {} if task.run_after is None else {"run_after": results.stored_time(task.run_after)}
        job = call.enqueue(new.args, new.kwargs, using=using, **kept)
        if not job.created:
            return results.find(app, job.id, using)
        new = replace(new, id=results.encode_id(job.id), enqueued_at=results.local_time(job.enqueued_at))
        compat.task_enqueued.send(type(self), task_result=new)
        return new

    async def aenqueue(self, task: object, args: object, kwargs: object, **options: object) -> Any:
        """Enqueue a job and return its ``TaskResult``; see `enqueue`."""
        return await sync_to_async(self.enqueue, thread_sensitive=True)(task, args, kwargs, **options)

    def get_result(self, result_id: str) -> Any:
        """Return the ``TaskResult`` of a job by its id.

        Raises:
            TaskResultDoesNotExist: there is no such job, or its task is not one of Django's.
            StoreError: the database refused.
        """
        number = results.decode_id(result_id)
        found = None if number is None else results.find(self.app, number, self._using())
        if found is None:
            raise compat.TaskResultDoesNotExist(result_id)
        return found

    def check(self, **_: object) -> Iterable[Any]:
        """Return the problems of the settings; see `redrive.contrib.django.checks`."""
        return checks.backend_problems(self)

    def _new(self, task: object, args: object, kwargs: object) -> Any:
        return compat.TaskResult(
            task=task,
            id="",
            status=compat.TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    def _using(self) -> Any:
        """Return the connection with an open transaction, if it is to the database of the jobs."""
        app = self.app
        if app.options.database is None or app.url == "memory://":
            return None
        connection = connections[app.options.database]
        if not connection.in_atomic_block and connection.get_autocommit():
            return None
        connection.validate_no_broken_transaction()
        connection.ensure_connection()
        return connection.connection

    def _delay(self, run_after: Any, using: Any) -> timedelta:
        if run_after is None:
            return timedelta(0)
        due_at = timezone.make_aware(run_after) if timezone.is_naive(run_after) else run_after
        # The delay counts from the database's clock, because that clock also decides when the job is due.
        now: datetime = self.app.store.run(_now(self.app.now()), using=using)
        delay: timedelta = due_at - now
        return max(delay, timedelta(0))


@reads
def _now(now: datetime | None) -> Statements[datetime]:
    return (yield from instant(now))
