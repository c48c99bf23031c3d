"""The handlers of Django's tasks: their functions, with contexts, and with the handling of connections and signals.

Old and broken connections are closed before and after, in the thread that uses them, so that a worker respects
``CONN_MAX_AGE``. ``task_started`` is sent for each execution. ``task_finished`` is sent once for each job that a worker
has ended, after the commit, with what was stored: also if the result could not be stored, if the task called
``sys.exit()``, or if another worker found its worker dead. It is not sent for jobs that an operator cancels. A receiver
that raises does not fail the job.
"""

from __future__ import annotations

import contextlib
import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from redrive.app.attempts.context import Context
from redrive.app.attempts.handle import AttemptHandle, Stop
from redrive.app.tasks.catch import CatchRequest
from redrive.contrib.django import compat, results
from redrive.contrib.django.orm import AtomicTransaction, connected
from redrive.contrib.django.signals import FinishedSignals
from redrive.errors import ConfigurationError, Snooze, StoreError
from redrive.stores.operations import jobs
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


RETRY_AFTER = "1s"
"""The delay of a task that could not begin because the database could not be reached."""


def runner(task: Any, finished: FinishedSignals) -> Callable[..., Any]:
    """Return the handler of a task, ``def`` or ``async def`` like its function.

    It takes the list of positional arguments and the dictionary of named ones, and the time of ``run_after``, which is
    a part of the job's description only; that of a catch task takes the request.
    """
    asynchronous = inspect.iscoroutinefunction(task.func)
    if catches(task.func):
        made = _acatching(task, finished) if asynchronous else _catching(task, finished)
    else:
        made = _arunning(task, finished) if asynchronous else _running(task, finished)
    made.__module__, made.__qualname__ = task.func.__module__, task.func.__qualname__
    return made


def _running(task: object, finished: FinishedSignals) -> Callable[..., Any]:
    def run(args: list[Any], kwargs: dict[str, Any], context: Context, run_after: str | None = None) -> Any:  # noqa: ARG001 - the user's
        return _Execution(task, finished, context).run(args, kwargs)

    return run


def _arunning(task: object, finished: FinishedSignals) -> Callable[..., Any]:
    async def run(args: list[Any], kwargs: dict[str, Any], context: Context, run_after: str | None = None) -> Any:  # noqa: ARG001 - the user's
        return await _Execution(task, finished, context).arun(args, kwargs)

    return run


def _catching(task: object, finished: FinishedSignals) -> Callable[..., Any]:
    def run(request: CatchRequest[Any], context: Context) -> None:
        _Execution(task, finished, context).run([request], {})

    return run


def _acatching(task: object, finished: FinishedSignals) -> Callable[..., Any]:
    async def run(request: CatchRequest[Any], context: Context) -> None:
        await _Execution(task, finished, context).arun([request], {})

    return run


def catches(function: Callable[..., Any]) -> bool:
    """Return True if a function takes a `CatchRequest`, as those of catch tasks do."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - annotations are the user's code
        return False
    return any(CatchRequest in {hint, typing.get_origin(hint)} for hint in hints.values())


class _Execution:
    """One execution of a task."""

    def __init__(self, task: Any, finished: FinishedSignals, context: Context) -> None:
        assert context.link is not None  # a worker runs this
        self._task = task
        self._finished = finished
        self._context = context
        self._link: AttemptHandle = context.link
        self._sender = type(task.get_backend())

    def run(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return connected(self._run)(args, kwargs)

    def _run(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        with _snooze_without_database():
            result = self._result(self._link.store.run(jobs.material(self._context.job_id)))
        compat.task_started.send_robust(self._sender, task_result=result)
        with self._keeping_the_error():
            return self._task.func(*self._first(result), *args, **kwargs)

    async def arun(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return await connected(self._arun)(args, kwargs)

    async def _arun(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        with _snooze_without_database():
            result = self._result(await self._link.store.arun(jobs.material(self._context.job_id)))
        await compat.task_started.asend_robust(self._sender, task_result=result)
        with self._keeping_the_error():
            return await self._task.func(*self._first(result), *args, **kwargs)

    def _result(self, material: jobs.CatchMaterial) -> Any:
        return results.result(self._task, self._finished.alias, material)

    def _first(self, result: Any) -> tuple[JobContext, ...]:
        return (JobContext(task_result=result, job=self._context),) if self._task.takes_context else ()

    @contextlib.contextmanager
    def _keeping_the_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            # An attempt that has lost its lease is not settled, and nothing would remove its error.
            if self._link.reason is not Stop.LOST:
                self._finished.raised(self._link.claim.lease_id, error)
            raise


@contextlib.contextmanager
def _snooze_without_database() -> Iterator[None]:
    """Postpone a task that has not begun, without counting an attempt, if the database cannot be reached."""
    try:
        yield
    except StoreError as error:
        raise Snooze(RETRY_AFTER, f"the database cannot be reached: {error}") from error
