"""Runs the handler of one claimed job and returns how it ended.

Everything that a handler does becomes one frozen `Outcome`, never an exception of the worker. A payload that the
present code cannot read, a result that cannot be stored and an error text that cannot be encoded are outcomes of that
one job and affect no other.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from redrive.app.app import App
from redrive.app.attempts.context import Context, Pending
from redrive.app.attempts.effects import CURRENT as EFFECTS
from redrive.app.attempts.effects import Effects
from redrive.app.attempts.handle import AttemptHandle, Stop
from redrive.app.attempts.origins import Delivery, DeliveryHandle, TransitionHandle
from redrive.app.attempts.resources import NO_RESOURCES
from redrive.app.flows.workflow import Workflow
from redrive.app.machines.state import StateTask
from redrive.app.tasks.catch import CatchRequest, request_hint
from redrive.app.tasks.failures import ERROR_TEXT, ExitInThread, clean, failed, permanent
from redrive.app.tasks.task import Task
from redrive.app.topics.subscription import Subscription, envelopes
from redrive.app.types import type_name
from redrive.clock import SystemClock
from redrive.engine.keys import idempotency_key
from redrive.engine.lease import ATTEMPT_LIMIT, UNKNOWN_TASK_DELAY, limit_of
from redrive.engine.outcome import Expired, Failed, Outcome, Released, Succeeded, Suspended, Unreadable
from redrive.engine.records import Claim, Hold
from redrive.engine.runs import RunState
from redrive.engine.settle import deadline_at
from redrive.engine.steps import StepBatch, StepsWritten
from redrive.engine.topics import OUT_OF_ORDER
from redrive.errors import ConfigurationError, JobNotFound, PayloadError, StoreError
from redrive.errors.foreign import is_a, trace
from redrive.observe.listeners import DEBUG, heard
from redrive.observe.logs import Block
from redrive.runtime import failpoints, layers, log
from redrive.runtime.breakers import Admission, admit
from redrive.runtime.functions import PolicyFunctions
from redrive.runtime.handlers import (
    EndedInChild,
    TimeLimits,
    is_interruption,
    outcome_of,
    softly,
    task_is_cancelled,
    undo_cancellation,
)
from redrive.runtime.threads import Pool, Threads, carry_context, outside_loop
from redrive.runtime.tracing import traced
from redrive.stores.operations import attempts as handler_reports
from redrive.stores.operations import jobs, workers
from redrive.stores.operations.attempts import ProgressReport
from redrive.stores.operations.workers import Asked

if TYPE_CHECKING:
    from redrive.runtime.processes import Child, Processes
    from redrive.runtime.runs.attempt import RunAttempts

_SUCCEEDED = Succeeded()

# The wait for a free child process from which on the time limit of the attempt is written anew.
WAITED = timedelta(seconds=1)


class FeederRunner(Protocol):
    """Runs feeders."""

    def stop(self, why: Stop, lease_ids: Iterable[int] | None = None) -> None:
        """Ask the feeders of these leases to stop; None means all. Safe to call from any thread."""

    async def run(self, claim: Claim, subscription: Subscription) -> Outcome:
        """Run a feeder and return how it ended."""


class Executor:
    """Runs the handlers of one app.

    Args:
        app: the app with the tasks.
        pool: the threads of ``def`` handlers; None calls them in the thread of the event loop, for drain mode.
        begins: called with each claim just before its handler is called.
        cut_off: returns True if the caller has cancelled the attempt of a lease. By default every cancellation of the
            current task counts as the caller's.
        resources: what the start hooks have returned, for the contexts of handlers.
        write_steps: writes rows of running runs; None without workflows.
        processes: the children for tasks with ``executor="process"``; None runs these as other ``def`` handlers.
    """

    def __init__(
        self,
        app: App,
        pool: Pool | None,
        *,
        begins: Callable[[Claim], None] = lambda _: None,
        cut_off: Callable[[int], bool] = lambda _: task_is_cancelled(),
        resources: Mapping[str, Any] = NO_RESOURCES,
        write_steps: Callable[[StepBatch], Awaitable[StepsWritten]] | None = None,
        processes: Processes | None = None,
    ) -> None:
        self._app = app
        self._write_steps = write_steps
        self._attempts: RunAttempts | None = None
        self.threads = None if pool is None else Threads(pool)
        #: The functions of the policies of jobs.
        self.functions = PolicyFunctions(app)
        self._begins = begins
        self._cut_off = cut_off
        self._resources = resources
        self._links: dict[int, AttemptHandle] = {}
        self._processes = processes
        self._limits = TimeLimits()
        carry_context()
        # The children of attempts, by their leases.
        self._children: dict[int, Child] = {}
        #: Runs the feeders of subscriptions; None in an executor of single attempts.
        self.feeders: FeederRunner | None = None

    # ---------------------------------------------------------------- stop requests and reports

    def stop(self, why: Stop, lease_ids: Iterable[int] | None = None) -> None:
        """Set ``ctx.should_stop`` for the handlers of these leases; None means all. Safe to call from any thread."""
        for lease_id in list(self._links) if lease_ids is None else lease_ids:
            link = self._links.get(lease_id)
            if link is not None:
                link.stop(why)
        if self.feeders is not None:
            self.feeders.stop(why, lease_ids)

    def ends_by_itself(self, lease_id: int) -> bool:
        """Return True if the handler has ended this attempt in its own transaction, or may be doing so now."""
        link = self._links.get(lease_id)
        return link is not None and (link.ended or link.lent)

    def asked(self, asked: Mapping[int, Asked]) -> None:
        """Have runs, by their leases, read what operators ask of them."""
        if self._attempts is not None:
            self._attempts.asked(asked)

    def unwritten(self) -> list[ProgressReport]:
        """Take the reports of handlers that are not written yet. Safe to call from any thread."""
        reports = (link.due_report() for link in list(self._links.values()))
        return [report for report in reports if report is not None]

    # ---------------------------------------------------------------- one attempt

    def run(
        self, claim: Claim, delivery: Delivery | None = None, state: RunState | None = None
    ) -> Coroutine[Any, Any, Outcome]:
        """Run the handler of a claimed job and return how it ended; ``state`` is what is stored of a run.

        Raise `asyncio.CancelledError` if the caller has cancelled the attempt, which so has no outcome.
        """
        task = self._app.find(claim.task)
        if task is None:
            return self._feed(claim)
        return self._run(task, claim, state) if isinstance(task, Workflow) else self._call(task, claim, delivery)

    async def _call(self, task: Task[Any, Any, Any], claim: Claim, delivery: Delivery | None) -> Outcome:
        """Call the handler of a task that is no workflow."""
        if _expired(claim):
            return Expired()
        limit = limit_of(task.policy if claim.catching else claim.policy)
        effects, transition = Effects(self._app), None
        try:
            if type(task) is Task and claim.parent_id is None:  # hot path
                arguments = task.signature.read(claim.payload or b"{}")
            else:
                arguments = await self._arguments(task, claim, limit)
                transition = await task.begin(claim.origin, effects) if isinstance(task, StateTask) else None
                delivery = _delivery(claim, task, arguments, delivery)
        except _UnknownTask as error:
            return _unknown(str(error))
        except (PayloadError, ConfigurationError, JobNotFound) as error:
            return Unreadable(clean(error, ERROR_TEXT))
        admission = admit(self._app, task, claim)
        if isinstance(admission, Released):
            return admission
        try:
            if self._processes is not None and task.traits.executor == "process":
                outcome = await self._in_child(self._processes, task, arguments, limit, admission, effects)
            elif task.signature.context is None:
                outcome = await self._outcome(task, arguments, limit, admission, effects)
            else:
                outcome = await self._linked(
                    task,
                    claim,
                    arguments,
                    limit,
                    admission=admission,
                    effects=effects,
                    transition=transition,
                    delivery=delivery,
                )
        except BaseException:
            admission.drop()
            raise
        try:
            admission.record(outcome)
        except BaseException as error:  # noqa: BLE001 - a predicate of the user may raise anything
            why = "its circuit breaker could not record how the attempt ended"
            log.error("job %d: %s%s", claim.id, why, Block(trace(error)))
        return outcome

    async def _in_child(  # noqa: PLR0917 - what a call needs
        self,
        processes: Processes,
        task: Task[Any, Any, Any],
        arguments: dict[str, Any],
        limit: timedelta,
        admission: Admission,
        effects: Effects,
    ) -> Outcome:
        """Call a handler in a child process."""
        claim, began = admission.claim, SystemClock.monotonic()
        async with processes.lend() as child:
            if child is None:
                return Released("no child process of its worker became free in time")
            waited = timedelta(seconds=SystemClock.monotonic() - began)
            if waited > WAITED:
                await self._app.store.arun(workers.prolong(claim.id, claim.lease_id, limit + waited))
            self._children[claim.lease_id] = child
            try:
                if task.signature.context is None:
                    return await self._outcome(task, arguments, limit, admission, effects)
                return await self._linked(
                    task, claim, arguments, limit, admission=admission, effects=effects, transition=None, delivery=None
                )
            finally:
                del self._children[claim.lease_id]

    async def _arguments(self, task: Task[Any, Any, Any], claim: Claim, limit: timedelta) -> dict[str, Any]:
        """Return the arguments of the handler without its context."""
        if claim.parent_id is None:
            return task.signature.read(claim.payload or b"{}")
        await self._prolong(claim, limit)
        return {task.signature.payload[0]: await self._catch_request(task, claim.parent_id)}

    async def _run(self, workflow: Workflow[Any, Any, Any], claim: Claim, state: RunState | None) -> Outcome:
        """Continue the run of a workflow; one that has passed its deadline only takes its steps back."""
        if state is None or self._write_steps is None:
            return Unreadable(f"job {claim.id} is no run: a run of {workflow.name} is started by its start()")
        if self._attempts is None:
            # Most workers have no workflow, and need not load what runs them.
            from redrive.runtime.runs.attempt import RunAttempts

            self._attempts = RunAttempts(
                self._app, self.threads, self._write_steps, self.functions, self._cut_off, self._limits
            )
        admission = admit(self._app, workflow, claim)
        if isinstance(admission, Released):
            return admission
        attempts, expired = self._attempts, _expired(claim)
        self._begins(claim)
        try:
            if heard("redrive.jobs", DEBUG):
                outcome = await traced(
                    self._app.store, claim, lambda: attempts.run(workflow, claim, state, expired=expired)
                )
            else:
                outcome = await attempts.run(workflow, claim, state, expired=expired)
        except BaseException:
            admission.drop()
            raise
        admission.record(outcome)
        return outcome

    async def _outcome(
        self,
        task: Task[Any, Any, Any],
        arguments: dict[str, Any],
        limit: timedelta,
        admission: Admission,
        effects: Effects,
    ) -> Outcome:
        """Call the handler and return its outcome."""
        claim = admission.claim
        token = EFFECTS.set(effects)
        # A catch task is tried until it succeeds, so that no number of attempts is multiplied.
        layer = layers.begin(task.name, None if claim.catching else claim.policy, claim.claimed_at)
        self._begins(claim)
        try:
            # The predicates of the policy, which are called below, are no part of the attempt.
            try:
                if heard("redrive.jobs", DEBUG):
                    result = await traced(
                        self._app.store, claim, lambda: self._limits.within(limit, self._start(task, arguments, claim))
                    )
                else:
                    result = await self._limits.within(limit, self._start(task, arguments, claim))
            finally:
                EFFECTS.reset(token)
                layers.end(layer)
        except BaseException as error:
            # The thread of a `def` handler may go on.
            effects.close()
            if self._cut_off(claim.lease_id) and is_interruption(error):
                raise asyncio.CancelledError from error
            if is_a(error, asyncio.CancelledError):
                undo_cancellation()
            end, error = _end_of(error)
            admission.error = error
            return await self.functions.failure(claim, arguments, error, end)
        if isinstance(result, Pending):
            if isinstance(task, StateTask):
                return permanent("BAD_RESULT", "a transition cannot wait for an answer from outside: wait in a state")
            return Suspended(result.timeout, effects.close())
        if claim.policy.has_functions:
            rejected = await self.functions.rejection(claim, arguments, result)
            if rejected is not None:
                return rejected
        try:
            raw = task.returns.check(result)
        except (PayloadError, ConfigurationError) as error:
            # The handler has done its work and would return the same again, so another attempt is of no use.
            return permanent("BAD_RESULT", str(error))
        made = effects.close()
        return _SUCCEEDED if raw is None and not made else Succeeded(raw, made)

    async def _linked(
        self,
        task: Task[Any, Any, Any],
        claim: Claim,
        arguments: dict[str, Any],
        limit: timedelta,
        *,
        admission: Admission,
        effects: Effects,
        transition: TransitionHandle | None,
        delivery: Delivery | None,
    ) -> Outcome:
        """Call a handler that takes a context."""
        uid = await self._app.auid()
        # The same key in the feeder and in the job of the failed event.
        key = f"{uid}-{claim.origin}" if delivery else idempotency_key(uid, claim.id, claim.salt)
        if delivery is not None and delivery.feed is None and claim.attempt > 1:
            # A redriven job has had an attempt. Others do not read their tags.
            tags = await self._app.store.arun(jobs.tags([claim.id]))
            delivery.out_of_order = OUT_OF_ORDER in tags.get(claim.id, ())
        link = self._link(task, claim, arguments, limit, key, effects=effects, transition=transition, delivery=delivery)
        self._links[claim.lease_id] = link
        try:
            outcome = await self._outcome(task, arguments, limit, admission, effects)
        except asyncio.CancelledError:
            if not link.ended:
                raise
            outcome = Succeeded(link.result)
        else:
            await self._write_last_report(link)
        finally:
            # The thread of a `def` handler may go on.
            link.stop(Stop.LOST)
            del self._links[claim.lease_id]
        if delivery is not None and delivery.feed is None and delivery.failed and isinstance(outcome, Succeeded):
            return failed(delivery.failed[0])
        return _transacted(link, outcome) if link.ended else outcome

    async def _write_last_report(self, link: AttemptHandle) -> None:
        """Write what the handler has reported in its last second, before the end of the attempt forbids it."""
        report = link.last_report()
        if report is not None:
            try:
                await self._app.store.arun(handler_reports.report([report], now=self._app.now()))
            except StoreError as error:
                # The handler has done its work: its end is written as soon as the database answers.
                log.warning("job %d: its last progress report could not be written: %s", link.job_id, error)

    async def _feed(self, claim: Claim) -> Outcome:
        """Run the feeder of a subscription; its task is none that a user has written."""
        subscription = self._app.topics.fed_by(claim.task)
        if subscription is None or self.feeders is None:
            return _unknown(claim.task)
        return await self.feeders.run(claim, subscription)

    def _link(
        self,
        task: Task[Any, Any, Any],
        claim: Claim,
        arguments: dict[str, Any],
        limit: timedelta,
        key: str,
        *,
        effects: Effects,
        transition: TransitionHandle | None,
        delivery: Delivery | None,
    ) -> AttemptHandle:
        """Add the context to the arguments and return the handle of the attempt."""
        assert task.signature.context is not None  # the caller has checked
        soft_for = None if task.traits.soft_timeout is None else task.traits.soft_timeout.total_seconds()
        parts = (claim, self._app.store, self._app.now, task.returns.check, soft_for, effects)
        is_fed = delivery is not None and delivery.feed is not None
        link = DeliveryHandle(*parts, delivery) if is_fed and delivery else AttemptHandle(*parts)
        arguments[task.signature.context] = Context(
            job_id=claim.id,
            task=claim.task,
            attempt=claim.attempt,
            failures=claim.failures,
            attempt_uid=link.uid,
            delivery=delivery,
            idempotency_key=key,
            started_at=claim.started_at,
            deadline_at=claim.claimed_at + limit,
            origin=claim.origin,
            link=link,
            resources=self._resources,
            transition=transition,
        )
        return link

    async def _prolong(self, claim: Claim, limit: timedelta) -> None:
        """Write the time limit of a catch attempt that is longer than the default."""
        # The row was written when the dead job ended, and only the code of the catch task has its limit.
        if limit > ATTEMPT_LIMIT:
            await self._app.store.arun(workers.prolong(claim.id, claim.lease_id, limit))

    async def _catch_request(self, catch: Task[Any, Any, Any], parent_id: int) -> CatchRequest[Any]:
        wanted = request_hint(catch.signature)
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

    # ``async def`` handlers run on the event loop and are cancelled at their attempt timeout. ``def`` handlers run in a
    # thread, which Python cannot stop: at the timeout the attempt is over and fenced off, and the thread runs out by
    # itself. Child processes are killed.
    def _start(self, task: Task[Any, Any, Any], arguments: dict[str, Any], claim: Claim) -> Awaitable[Any]:
        if failpoints.PLANNED:
            failpoints.fail(task.name)
        if _is_async(task.function):
            return _softly(task.function(**arguments), task.traits.soft_timeout)
        return self._start_plain(task, arguments, claim)

    async def _start_plain(self, task: Task[Any, Any, Any], arguments: dict[str, Any], claim: Claim) -> Any:  # noqa: ANN401 - of the user
        child = self._children.get(claim.lease_id)
        if child is not None:
            name = task.signature.context
            return await child.run(task, claim, None if name is None else arguments[name])
        if self.threads is None:
            result = outside_loop(functools.partial(task.function, **arguments))
        else:
            try:
                result = await self.threads.start(claim.lease_id, functools.partial(task.function, **arguments))
            except ExitInThread as exit_in_thread:
                raise exit_in_thread.error from None
        # A plain decorator around an `async def` makes a function that returns a coroutine.
        return await _softly(result, task.traits.soft_timeout) if inspect.isawaitable(result) else result


def _end_of(error: BaseException) -> tuple[Outcome, BaseException]:
    """Return the outcome of an attempt that raised this error, and the error of the handler."""
    return (error.outcome, error.error) if type(error) is EndedInChild else (outcome_of(error), error)


# A soft timeout comes before the attempt timeout. In an ``async def`` handler it is a `SoftTimeout`, raised where the
# handler waits, so that it can clean up; in a ``def`` handler it sets ``ctx.should_stop``.
def _softly(running: Awaitable[Any], limit: timedelta | None) -> Awaitable[Any]:
    return running if limit is None else softly(running, limit.total_seconds())


_is_async = functools.lru_cache(maxsize=1024)(inspect.iscoroutinefunction)


class _UnknownTask(Exception):
    """The app has no task with the name of the dead job."""


# A handler may end its attempt by itself, in the transaction of its context. Then the end is written,
# and a later error or result of the handler is only logged.
def _transacted(link: AttemptHandle, outcome: Outcome) -> Outcome:
    """Return the success that the transaction has written, and log a different end of the handler."""
    match outcome:
        case Succeeded(None) | Succeeded(link.result):
            pass
        case Succeeded():
            log.error(
                "job %d: the result that its handler returned after ctx.transaction() is not kept, because the "
                "transaction has completed the job: set the result inside the block, by ctx.set_result()",
                link.claim.id,
            )
        case Failed(failure, trace):
            log.error(
                "job %d: its handler failed after its transaction: %s%s", link.claim.id, failure.message, Block(trace)
            )
        case _:
            log.error("job %d: its transaction has completed it; it cannot become %s", link.claim.id, outcome)
    return Succeeded(link.result)


def _delivery(
    claim: Claim, task: Task[Any, Any, Any], arguments: dict[str, Any], delivery: Delivery | None
) -> Delivery | None:
    """Return the delivery of an attempt, with the events as its handler gets them; None for another task."""
    if not isinstance(task, Subscription):
        return None
    found = delivery or Delivery(envelopes(claim.payload or b"[]"), redelivered=claim.attempt > 1)
    value = arguments[task.signature.payload[0]]
    found.values = value if task.batch is not None else (value,)
    return found


def _unknown(name: str) -> Released:
    return Released(f"this worker has no task {name!r}", UNKNOWN_TASK_DELAY, Hold.UNKNOWN_TASK)


def _expired(claim: Claim) -> bool:
    ends_at = deadline_at(claim.policy, claim.started_at)
    return ends_at is not None and not claim.catching and claim.claimed_at >= ends_at
