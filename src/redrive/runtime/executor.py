"""Runs one handler and says how it ended.

Whatever a handler does becomes one frozen `Outcome`: it returned, it raised, it asked for something by a signal, it
took too long. What it *cannot* become is an exception of the worker: a payload that the present code cannot read, a
result that cannot be stored, an error whose text cannot be encoded are all outcomes of that one job and hurt no other.

``async def`` handlers run on the event loop and are cancelled at their attempt timeout. ``def`` handlers run in a
thread, which Python cannot stop: at the timeout the attempt is over and fenced off, and the thread runs out by itself.

A cancellation is two things. Asked for by the worker, it ends the attempt without an outcome. Leaking out of something
that the handler awaited, it is a failure like any other: were it taken for the worker's, the job would be given back
and run again at once, for ever, with nothing spent.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import traceback
from collections.abc import Callable
from concurrent.futures import Executor as Pool
from datetime import timedelta
from types import TracebackType
from typing import Any

from redrive.app.app import App
from redrive.app.catch import CatchRequest, wanted_request
from redrive.app.context import Context
from redrive.app.payload import type_name
from redrive.app.task import Task
from redrive.engine.lease import UNKNOWN_TASK_DELAY
from redrive.engine.outcome import Cancelled, Expired, Failed, Outcome, Released, Snoozed, Succeeded
from redrive.engine.records import Claim
from redrive.errors import Cancel, ConfigurationError, JobNotFound, PayloadError, PolicyError, Snooze
from redrive.policy import Failure, Stage, parse_duration
from redrive.stores.operations import jobs

__all__ = ["Executor", "HandlerCancelled"]

ERROR_TEXT = 4_000
TRACEBACK_TEXT = 16_000
"""Characters that are kept: the end of a traceback is the part that matters."""

_OURS = (__name__, "concurrent.futures.thread")

_TIMEOUT = ("builtins.TimeoutError", "builtins.OSError", "builtins.Exception")


class Executor:
    """Runs handlers of one app.

    Args:
        app: whose tasks.
        pool: where ``def`` handlers run; None runs them on the event loop, one at a time, as drain mode wants it.
    """

    def __init__(self, app: App, pool: Pool | None) -> None:
        self._app = app
        self._pool = pool

    async def run(self, claim: Claim) -> Outcome:
        """Run the handler of a claimed job.

        Args:
            claim: the job.

        Returns:
            How it ended.

        Raises:
            asyncio.CancelledError: the worker wants the slot back; the attempt has no outcome.
        """
        task = self._app.find(claim.task)
        if task is None:
            return _unknown(claim.task)
        if _expired(claim):
            return Expired()
        limit = task.policy.attempt_timeout if claim.catching else claim.policy.attempt_timeout
        try:
            arguments = await self._arguments(task, claim, limit)
        except _UnknownTask as error:
            return _unknown(str(error))
        except (PayloadError, ConfigurationError, JobNotFound) as error:
            return _permanent("BAD_PAYLOAD", str(error))
        try:
            result = await self._call(task, arguments, limit)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _wanted_back():
                raise
            return _outcome(error)
        try:
            return Succeeded(task.returns.write(result))
        except PayloadError as error:
            return _permanent("BAD_RESULT", str(error))

    async def _arguments(self, task: Task[Any, Any, Any], claim: Claim, limit: timedelta | None) -> dict[str, Any]:
        if claim.parent_id is not None:
            request = await self._catch_request(task, claim.parent_id)
            arguments: dict[str, Any] = {task.signature.payload[0]: request}
        else:
            arguments = task.signature.read(claim.payload or b"{}")
        if task.signature.context is not None:
            arguments[task.signature.context] = Context(
                job_id=claim.id,
                task=claim.task,
                attempt=claim.attempt,
                failures=claim.failures,
                attempt_uid=f"{claim.id}.{claim.lease_id}",
                idempotency_key=self._app.idempotency_key(claim.id),
                started_at=claim.started_at,
                deadline_at=None if limit is None else claim.claimed_at + limit,
            )
        return arguments

    async def _catch_request(self, catch: Task[Any, Any, Any], parent_id: int) -> CatchRequest[Any]:
        wanted = wanted_request(catch.signature)
        dead = await self._app.store.arun(jobs.material(parent_id))
        failed = self._app.find(dead.job.task)
        if failed is None:
            raise _UnknownTask(dead.job.task)
        return CatchRequest(
            task=dead.job.task,
            request=failed.signature.read_request(dead.payload or b"{}", wanted),
            request_type=type_name(failed.signature.request),
            error=dead.job.error or "unknown error",
            attempts=dead.attempts,
            job_id=dead.job.id,
        )

    async def _call(self, task: Task[Any, Any, Any], arguments: dict[str, Any], limit: timedelta | None) -> Any:  # noqa: ANN401 - the user's
        if limit is None:
            return await self._start(task.function, arguments)
        scope = asyncio.timeout(limit.total_seconds())
        try:
            async with scope:
                return await self._start(task.function, arguments)
        except TimeoutError as error:
            if scope.expired():
                raise _AttemptTimeout(limit) from error
            raise

    async def _start(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - the user's
        if _is_async(function):
            return await function(**arguments)
        if self._pool is None:
            result = function(**arguments)
        else:
            call = functools.partial(contextvars.copy_context().run, _in_thread, function, arguments)
            result = await asyncio.get_running_loop().run_in_executor(self._pool, call)
        # A plain decorator around an `async def` makes a function that returns a coroutine.
        return await result if inspect.isawaitable(result) else result


_is_async = functools.lru_cache(maxsize=1024)(inspect.iscoroutinefunction)


class _AttemptTimeout(Exception):
    """The attempt took longer than its policy allows."""


class _UnknownTask(Exception):
    """The task whose request is to be caught is not one of this app."""


class HandlerCancelled(Exception):
    """Something that the handler awaited was cancelled."""


def _in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - the user's
    try:
        return function(**arguments)
    except StopIteration as error:
        # A future cannot carry this one: whoever awaits it would wait for ever.
        message = "the handler raised StopIteration"
        raise RuntimeError(message) from error


def _wanted_back() -> bool:
    """Has the worker cancelled this attempt?"""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _unknown(name: str) -> Released:
    return Released(f"this worker has no task {name!r}", UNKNOWN_TASK_DELAY, unknown_task=True)


def _expired(claim: Claim) -> bool:
    deadline = claim.policy.deadline
    return deadline is not None and not claim.catching and claim.claimed_at >= claim.started_at + deadline


def _outcome(error: BaseException) -> Outcome:
    """One match from what was raised to what it means."""
    match error:
        case Snooze():
            return _snoozed(error)
        case Cancel():
            return Cancelled(_clean(error.why, ERROR_TEXT))
        case _AttemptTimeout():
            (limit,) = error.args
            text = f"the attempt took longer than {limit.total_seconds():g} s"
            return Failed(Failure(_TIMEOUT, text, "TIMEOUT", Stage.IN_FLIGHT))
        case asyncio.CancelledError():
            cancelled = HandlerCancelled("something that the handler awaited was cancelled")
            cancelled.__cause__ = error
            return _failed(cancelled)
        case _:
            return _failed(error)


def _snoozed(signal: Snooze) -> Outcome:
    try:
        return Snoozed(parse_duration(signal.delay), _clean(signal.why, ERROR_TEXT))
    except PolicyError as bad_delay:
        return _failed(bad_delay)


def _failed(error: BaseException) -> Failed:
    try:
        failure = Failure.of(error)
    except PolicyError as bad_delay:
        failure = Failure.of(bad_delay)
    lines = traceback.format_exception(type(error), error, _users(error.__traceback__))
    text = _clean("".join(lines), -TRACEBACK_TEXT)
    permanent = None if failure.permanent is None else _clean(failure.permanent, ERROR_TEXT)
    return Failed(failure._replace(message=_clean(failure.message, ERROR_TEXT), permanent=permanent), text)


def _users(frames: TracebackType | None) -> TracebackType | None:
    """Leave out the frames that lead to the handler: they are the same for every error."""
    while frames is not None and frames.tb_frame.f_globals.get("__name__") in _OURS:
        frames = frames.tb_next
    return frames


def _permanent(reason: str, why: str) -> Failed:
    return Failed(Failure((), _clean(why, ERROR_TEXT), reason, permanent=_clean(why, ERROR_TEXT)))


def _clean(said: object, limit: int) -> str:
    """Make text storable: lone surrogates replaced, and no longer than what people read."""
    text = str(said).encode("utf-8", "replace").decode()
    return text[limit:] if limit < 0 else text[:limit]
