"""The handlers of Django's tasks: their functions, with the handling of connections and signals around them.

Old and broken connections are closed before and after, in the thread that uses them, so that a worker respects
``CONN_MAX_AGE``. ``task_started`` is sent for each execution, ``task_finished`` only when the task succeeded, or failed
and is not retried. It is not sent if the worker was killed or the execution was cut off by its timeout. A receiver that
raises does not fail the job.
"""

from __future__ import annotations

import contextlib
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, reset_queries

from redrive.app.attempt_handle import AttemptHandle
from redrive.app.catch import CatchRequest
from redrive.app.context import Context
from redrive.app.failures import failed
from redrive.clock import SystemClock
from redrive.contrib.django import compat, results
from redrive.contrib.django.context import JobContext
from redrive.engine.lifecycle import State
from redrive.engine.settle import decide
from redrive.errors import Cancel, Snooze, StoreError
from redrive.stores.operations import jobs

RETRY_AFTER = "1s"
"""The delay of a task that could not begin because the database could not be reached."""


def runner(task: Any) -> Callable[..., Any]:  # noqa: ANN401 - Django's Task
    """Return the handler of a task, ``def`` or ``async def`` like its function.

    It takes the list of positional arguments and the dictionary of named ones; that of a catch task, the request.
    """
    asynchronous = inspect.iscoroutinefunction(task.func)
    if catches(task.func):
        made = _acatching(task) if asynchronous else _catching(task)
    else:
        made = _arunning(task) if asynchronous else _running(task)
    made.__module__, made.__qualname__ = task.func.__module__, task.func.__qualname__
    return made


def _running(task: Any) -> Callable[..., Any]:  # noqa: ANN401 - Django's Task
    def run(args: list[Any], kwargs: dict[str, Any], context: Context) -> Any:  # noqa: ANN401 - the user's
        return _Execution(task, context).run(args, kwargs)

    return run


def _arunning(task: Any) -> Callable[..., Any]:  # noqa: ANN401 - Django's Task
    async def run(args: list[Any], kwargs: dict[str, Any], context: Context) -> Any:  # noqa: ANN401 - the user's
        return await _Execution(task, context).arun(args, kwargs)

    return run


def _catching(task: Any) -> Callable[..., Any]:  # noqa: ANN401 - Django's Task
    def run(request: CatchRequest[Any], context: Context) -> None:
        _Execution(task, context).run([request], {})

    return run


def _acatching(task: Any) -> Callable[..., Any]:  # noqa: ANN401 - Django's Task
    async def run(request: CatchRequest[Any], context: Context) -> None:
        await _Execution(task, context).arun([request], {})

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

    def __init__(self, task: Any, context: Context) -> None:  # noqa: ANN401 - Django's Task
        assert context.link is not None  # noqa: S101 - a worker runs this
        self._task = task
        self._context = context
        self._link: AttemptHandle = context.link
        self._sender = type(task.get_backend())

    def run(self, args: list[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - the user's
        reset_queries()
        close_old_connections()
        try:
            with _snooze_without_database():
                result = self._result(self._link.store.run(jobs.material(self._context.job_id)))
            compat.task_started.send_robust(self._sender, task_result=result)
            try:
                value = self._task.func(*self._first(result), *args, **kwargs)
            except Exception as error:
                if self._is_final(error):
                    compat.task_finished.send_robust(self._sender, task_result=results.failing(result, error))
                raise
            compat.task_finished.send_robust(self._sender, task_result=results.succeeding(result, value))
            return value
        finally:
            close_old_connections()

    async def arun(self, args: list[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - the user's
        await sync_to_async(_reset_connections)()
        try:
            with _snooze_without_database():
                result = self._result(await self._link.store.arun(jobs.material(self._context.job_id)))
            await compat.task_started.asend_robust(self._sender, task_result=result)
            try:
                value = await self._task.func(*self._first(result), *args, **kwargs)
            except Exception as error:
                if self._is_final(error):
                    failing = results.failing(result, error)
                    await compat.task_finished.asend_robust(self._sender, task_result=failing)
                raise
            await compat.task_finished.asend_robust(self._sender, task_result=results.succeeding(result, value))
            return value
        finally:
            await sync_to_async(close_old_connections)()

    def _result(self, material: jobs.CatchMaterial) -> Any:  # noqa: ANN401 - Django's TaskResult
        return results.result(self._task, self._task.backend, material)

    def _first(self, result: Any) -> tuple[JobContext, ...]:  # noqa: ANN401 - Django's TaskResult
        return (JobContext(task_result=result, job=self._context),) if self._task.takes_context else ()

    def _is_final(self, error: Exception) -> bool:
        """Return True if the job will not be retried, by the function that decides it afterwards."""
        if isinstance(error, Snooze | Cancel) or self._link.ended:
            return False
        now = self._link.now() or SystemClock().now()
        return decide(self._link.claim, failed(error), now, 0.0).state is State.DEAD


@contextlib.contextmanager
def _snooze_without_database() -> Iterator[None]:
    """Postpone a task that has not begun, without counting an attempt, if the database cannot be reached."""
    try:
        yield
    except StoreError as error:
        raise Snooze(RETRY_AFTER, f"the database cannot be reached: {error}") from error


def _reset_connections() -> None:
    reset_queries()
    close_old_connections()
