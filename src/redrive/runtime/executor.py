"""Runs one handler and says how it ended.

Whatever a handler does becomes one frozen `Outcome`: it returned, it raised, it asked for something by a signal, it
took too long. What it *cannot* become is an exception of the worker: a payload that the present code cannot read, a
result that cannot be stored, an error whose text cannot be encoded are all outcomes of that one job and hurt no other.

``async def`` handlers run on the event loop and are cancelled at their attempt timeout. ``def`` handlers run in a
thread, which Python cannot stop: at the timeout the attempt is over and fenced off, and the thread runs out by itself.

A soft timeout comes before that. An ``async def`` handler meets it as a `SoftTimeout`, raised where it waits, and may
clean up; a ``def`` handler sees it in ``ctx.should_stop``.

A handler may end its attempt by itself, in its own transaction (`redrive.app.transaction`). Then the end is written,
and what the handler still does is only looked at to be logged.

A cancellation by the worker ends the attempt without an outcome. Any other cancellation, by the handler itself or by
what it awaits, is a failure: otherwise the job would be given back and run again at once, for ever.

Every other `BaseException` that a handler raises is a failure of its attempt too; none of them ends the worker.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor as Pool
from datetime import timedelta
from typing import Any

from redrive.app.app import App
from redrive.app.attempt_handle import AttemptHandle, Stop
from redrive.app.catch import CatchRequest, wanted_request
from redrive.app.context import Context
from redrive.app.failures import ERROR_TEXT, clean, permanent
from redrive.app.payload import type_name
from redrive.app.pending import Pending
from redrive.app.task import Task
from redrive.engine.keys import idempotency_key
from redrive.engine.lease import ATTEMPT_LIMIT, UNKNOWN_TASK_DELAY, limit_of
from redrive.engine.outcome import (
    Expired,
    Failed,
    Outcome,
    Released,
    Succeeded,
    Suspended,
    Unreadable,
)
from redrive.engine.records import Claim, Hold
from redrive.errors import ConfigurationError, JobNotFound, PayloadError
from redrive.errors.foreign import trace
from redrive.observe.listeners import LISTENERS
from redrive.observe.logs import Block, logger
from redrive.runtime.breakers import Passage, admit
from redrive.runtime.meaning import AttemptTimeout, meaning
from redrive.runtime.soft_timeout import softly
from redrive.runtime.threads import Threads
from redrive.runtime.tracing import watched
from redrive.stores.operations import jobs, workers
from redrive.stores.operations.attempts import ProgressReport

__all__ = ["Executor"]

log = logger("redrive.worker")

_SUCCEEDED = Succeeded()


class Executor:
    """Runs handlers of one app.

    Args:
        app: whose tasks.
        pool: where ``def`` handlers run; None runs them on the event loop, one at a time, as drain mode wants it.
        begins: called with each claim just before its handler is called.
        cut_off: answers whether the caller has cancelled the attempt of a lease. By default every cancellation of the
            present task counts as the caller's.
    """

    def __init__(
        self,
        app: App,
        pool: Pool | None,
        *,
        begins: Callable[[Claim], None] = lambda _: None,
        cut_off: Callable[[int], bool] = lambda _: _task_is_cancelled(),
    ) -> None:
        self._app = app
        self.threads = None if pool is None else Threads(pool)
        self._begins = begins
        self._cut_off = cut_off
        self._links: dict[int, AttemptHandle] = {}

    # ------------------------------------------------------------------------------- what handlers are told, and tell

    def stop(self, why: Stop, lease_ids: Iterable[int] | None = None) -> None:
        """Tell handlers that they should stop. From any thread.

        Args:
            why: the reason.
            lease_ids: the attempts; None means all that run.
        """
        for lease_id in list(self._links) if lease_ids is None else lease_ids:
            link = self._links.get(lease_id)
            if link is not None:
                link.stop(why)

    def ends_by_itself(self, lease_id: int) -> bool:
        """Has the handler of this attempt ended it in its own transaction, or may it be doing so just now?"""
        link = self._links.get(lease_id)
        return link is not None and (link.ended or link.lent)

    def unsaid(self) -> list[ProgressReport]:
        """Take what handlers have said of themselves and nobody has written yet. From any thread."""
        reports = (link.unsaid() for link in list(self._links.values()))
        return [report for report in reports if report is not None]

    # ------------------------------------------------------------------------------------------------- one attempt

    async def run(self, claim: Claim) -> Outcome:
        """Run the handler of a claimed job.

        Args:
            claim: the job.

        Returns:
            How it ended.

        Raises:
            asyncio.CancelledError: the caller has cancelled the attempt, which has no outcome.
        """
        task = self._app.find(claim.task)
        if task is None:
            return _unknown(claim.task)
        if _expired(claim):
            return Expired()
        limit = limit_of(task.policy if claim.catching else claim.policy)
        try:
            if claim.parent_id is None:
                arguments = task.signature.read(claim.payload or b"{}")
            else:
                await self._prolong(claim, limit)
                arguments = {task.signature.payload[0]: await self._catch_request(task, claim.parent_id)}
        except _UnknownTask as error:
            return _unknown(str(error))
        except (PayloadError, ConfigurationError, JobNotFound) as error:
            return Unreadable(clean(error, ERROR_TEXT))
        passage = admit(self._app, task, claim)
        if isinstance(passage, Released):
            return passage
        try:
            if task.signature.context is None:
                outcome = await self._outcome(task, arguments, limit, passage)
            else:
                outcome = await self._linked(task, claim, arguments, limit, passage=passage)
        except BaseException:
            passage.drop()
            raise
        try:
            passage.tell(outcome)
        except BaseException as error:  # noqa: BLE001 - a predicate of the user's may raise anything
            why = "its circuit breaker could not be told how the attempt ended"
            log.error("job %d: %s%s", claim.id, why, Block(trace(error)))  # noqa: TRY400 - the error may be foreign
        return outcome

    async def _outcome(
        self, task: Task[Any, Any, Any], arguments: dict[str, Any], limit: timedelta, passage: Passage
    ) -> Outcome:
        """Call the handler, and say as a value what came of it."""
        claim = passage.claim
        self._begins(claim)
        try:
            if LISTENERS:
                result = await watched(
                    self._app.store, claim, lambda: self._call(task, arguments, limit, claim.lease_id)
                )
            else:
                result = await self._call(task, arguments, limit, claim.lease_id)
        except BaseException as error:
            if issubclass(type(error), asyncio.CancelledError):  # what is foreign may lie about its class, or raise
                if self._cut_off(claim.lease_id):
                    raise
                _undo_cancellation()
            passage.error = error
            return meaning(error)
        if isinstance(result, Pending):
            return Suspended(result.timeout)
        try:
            raw = task.returns.check(result)
        except (PayloadError, ConfigurationError) as error:
            # The handler has done its work, and would return the same again: another attempt would only repeat it.
            return permanent("BAD_RESULT", str(error))
        return _SUCCEEDED if raw is None else Succeeded(raw)

    async def _linked(
        self,
        task: Task[Any, Any, Any],
        claim: Claim,
        arguments: dict[str, Any],
        limit: timedelta,
        *,
        passage: Passage,
    ) -> Outcome:
        """The same for a handler that asks for its context."""
        key = idempotency_key(await self._app.auid(), claim.id, claim.salt)
        link = self._link(task, claim, arguments, limit, key)
        self._links[claim.lease_id] = link
        try:
            outcome = await self._outcome(task, arguments, limit, passage)
        except asyncio.CancelledError:
            if not link.ended:
                raise
            outcome = Succeeded(link.result)
        finally:
            link.stop(Stop.LOST)  # for a thread that goes on
            del self._links[claim.lease_id]
        return _transacted(link, outcome) if link.ended else outcome

    def _link(
        self, task: Task[Any, Any, Any], claim: Claim, arguments: dict[str, Any], limit: timedelta, key: str
    ) -> AttemptHandle:
        """Add the context to the arguments."""
        assert task.signature.context is not None  # noqa: S101 - the caller has looked
        soft_for = None if task.traits.soft_timeout is None else task.traits.soft_timeout.total_seconds()
        link = AttemptHandle(claim, self._app.store, self._app.now, task.returns.check, soft_for)
        arguments[task.signature.context] = Context(
            job_id=claim.id,
            task=claim.task,
            attempt=claim.attempt,
            failures=claim.failures,
            attempt_uid=link.uid,
            idempotency_key=key,
            started_at=claim.started_at,
            deadline_at=claim.claimed_at + limit,
            origin=claim.origin,
            link=link,
        )
        return link

    async def _prolong(self, claim: Claim, limit: timedelta) -> None:
        """Write the limit of a catch attempt where it is longer than that of every other.

        Its row was written by whoever ended the dead job, and only the code of the catch task names its limit.
        """
        if limit > ATTEMPT_LIMIT:
            await self._app.store.arun(workers.prolong(claim.id, claim.lease_id, limit))

    async def _catch_request(self, catch: Task[Any, Any, Any], parent_id: int) -> CatchRequest[Any]:
        wanted = wanted_request(catch.signature)
        dead = await self._app.store.arun(jobs.material(parent_id))
        failed = self._app.find(dead.job.task)
        if failed is None:
            raise _UnknownTask(dead.job.task)
        request, kind = failed.signature.read_request(dead.payload or b"{}", wanted)
        return CatchRequest(
            task=dead.job.task,
            request=request,
            request_type=type_name(kind),
            error=dead.job.error or "unknown error",
            attempts=dead.attempts,
            job_id=dead.job.id,
        )

    def _call(
        self, task: Task[Any, Any, Any], arguments: dict[str, Any], limit: timedelta, lease_id: int
    ) -> Awaitable[Any]:
        """Call the handler. What needs no coroutine of ours is awaited as it is: each one costs every job."""
        return _within(self._start(task, arguments, lease_id), limit)

    def _start(self, task: Task[Any, Any, Any], arguments: dict[str, Any], lease_id: int) -> Awaitable[Any]:
        if _is_async(task.function):
            return _softly(task.function(**arguments), task.traits.soft_timeout)
        return self._start_plain(task, arguments, lease_id)

    async def _start_plain(self, task: Task[Any, Any, Any], arguments: dict[str, Any], lease_id: int) -> Any:  # noqa: ANN401 - the user's
        if self.threads is None:
            result = task.function(**arguments)
        else:
            call = functools.partial(contextvars.copy_context().run, _in_thread, task.function, arguments)
            try:
                result = await asyncio.wrap_future(self.threads.start(lease_id, call))
            except _ExitInThread as exit_in_thread:
                raise exit_in_thread.error from None
        # A plain decorator around an `async def` makes a function that returns a coroutine.
        return await _softly(result, task.traits.soft_timeout) if inspect.isawaitable(result) else result


async def _within(running: Awaitable[Any], limit: timedelta) -> Any:  # noqa: ANN401 - the user's
    scope = asyncio.timeout(limit.total_seconds())
    try:
        async with scope:
            return await running
    except TimeoutError as error:
        if scope.expired():
            raise AttemptTimeout(limit) from error
        raise


def _softly(running: Awaitable[Any], limit: timedelta | None) -> Awaitable[Any]:
    return running if limit is None else softly(running, limit.total_seconds())


_is_async = functools.lru_cache(maxsize=1024)(inspect.iscoroutinefunction)


class _ExitInThread(Exception):
    """Carries a `GeneratorExit` out of a thread."""

    def __init__(self, error: GeneratorExit) -> None:
        super().__init__()
        self.error = error


class _UnknownTask(Exception):
    """The task whose request is to be caught is not one of this app."""


def _in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - the user's
    try:
        return function(**arguments)
    except StopIteration as error:
        # A future cannot carry this one: whoever awaits it would wait for ever.
        message = "the handler raised StopIteration"
        raise RuntimeError(message) from error
    except GeneratorExit as error:
        # A task that gets this one from a future closes its coroutines instead of raising it where they wait.
        raise _ExitInThread(error) from error


def _task_is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _undo_cancellation() -> None:
    """Let the present task go on after its handler has cancelled it."""
    task = asyncio.current_task()
    while task is not None and task.cancelling() > 0:
        task.uncancel()


def _transacted(link: AttemptHandle, outcome: Outcome) -> Outcome:
    """The attempt has succeeded; say so again, and say aloud what the handler still said and nobody will keep."""
    match outcome:
        case Succeeded(None) | Succeeded(link.result):
            pass
        case Succeeded():
            log.error(
                "job %d: what its handler returned after ctx.transaction() is not kept, because the transaction has "
                "completed the job: give the result inside the block, by ctx.set_result()",
                link.claim.id,
            )
        case Failed(failure, trace):
            log.error(
                "job %d: its handler failed after its transaction: %s%s", link.claim.id, failure.message, Block(trace)
            )
        case _:
            log.error("job %d: its transaction has completed it; it cannot become %s", link.claim.id, outcome)
    return Succeeded(link.result)


def _unknown(name: str) -> Released:
    return Released(f"this worker has no task {name!r}", UNKNOWN_TASK_DELAY, Hold.UNKNOWN_TASK)


def _expired(claim: Claim) -> bool:
    deadline = claim.policy.deadline
    return deadline is not None and not claim.catching and claim.claimed_at >= claim.started_at + deadline
