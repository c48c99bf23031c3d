"""Runs the handler of one claimed job and returns how it ended.

::

    run ---- workflow ---> RunAttempts.run                          redrive.runtime.runs
     |------ feeder -----> Feeders.run                              redrive.runtime.feeders
     `------ task -------> _call: read the arguments, ask the circuit breaker
                             |-- executor="process" --> _in_child: take a child process
                             |-- takes a context -----> Contexts.lend  (redrive.runtime.contexts)
                             |                               |
                             `-- the hot path ---------------+----> _outcome: layers, effects, time limit
                                                                      `-> _start: coroutine, thread or child

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
from redrive.app.attempts.context import Pending
from redrive.app.attempts.effects import CURRENT as EFFECTS
from redrive.app.attempts.effects import Effects
from redrive.app.attempts.handle import Stop
from redrive.app.attempts.origins import Delivery
from redrive.app.attempts.resources import NO_RESOURCES
from redrive.app.flows.workflow import Workflow
from redrive.app.machines.state import StateTask
from redrive.app.tasks.failures import ERROR_TEXT, ExitInThread, clean, permanent
from redrive.app.tasks.task import Task
from redrive.app.topics.subscription import Subscription
from redrive.clock import SystemClock
from redrive.engine.lease import UNKNOWN_TASK_DELAY, limit_of
from redrive.engine.outcome import Expired, Outcome, Released, Succeeded, Suspended, Unreadable
from redrive.engine.records import Claim, Hold
from redrive.engine.runs import RunState
from redrive.engine.settle import deadline_at
from redrive.engine.steps import StepBatch, StepsWritten
from redrive.errors import ConfigurationError, JobNotFound, PayloadEncoded, PayloadError
from redrive.errors.foreign import is_a, trace
from redrive.observe.listeners import DEBUG, heard
from redrive.observe.logs import Block
from redrive.runtime import failpoints, layers, log
from redrive.runtime.breakers import Admission, admit
from redrive.runtime.contexts import Contexts, UnknownTask, delivery_of
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
from redrive.stores.operations import workers
from redrive.stores.operations.workers import Asked

if TYPE_CHECKING:
    from redrive.app.attempts.around import Execution
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
        era: returns that of the store in which the present claims were made.
        linger: the seconds of a wait that a body with named calls keeps in memory.
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
        era: Callable[[], int | None] = lambda: None,
        linger: float = 0.0,
    ) -> None:
        self._app = app
        self._write_steps, self._linger = write_steps, linger
        self._attempts: RunAttempts | None = None
        self.threads: Threads | None = None if pool is None else Threads(pool)
        #: The functions of the policies of jobs.
        self.functions: PolicyFunctions = PolicyFunctions(app)
        self._begins = begins
        self._cut_off = cut_off
        self.contexts: Contexts = Contexts(app, resources, era)
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
        self.contexts.stop(why, lease_ids)
        if self.feeders is not None:
            self.feeders.stop(why, lease_ids)

    def asked(self, asked: Mapping[int, Asked]) -> None:
        """Have runs, by their leases, read what operators ask of them."""
        if self._attempts is not None:
            self._attempts.asked(asked)

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
                arguments = await self.contexts.arguments(task, claim, limit)
                transition = await task.begin(claim.origin, effects) if isinstance(task, StateTask) else None
                delivery = delivery_of(claim, task, arguments, delivery)
        except UnknownTask as error:
            return _unknown(str(error))
        except (PayloadError, ConfigurationError, JobNotFound) as error:
            return Unreadable(clean(error, ERROR_TEXT), encoded=isinstance(error, PayloadEncoded))
        admission = admit(self._app, task, claim)
        if isinstance(admission, Released):
            return admission
        try:
            if self._processes is not None and task.traits.executor == "process":
                outcome = await self._in_child(self._processes, task, arguments, limit, admission, effects)
            elif task.signature.context is None:
                outcome = await self._outcome(task, arguments, limit, admission, effects)
            else:
                outcome = await self.contexts.lend(
                    task,
                    claim,
                    arguments,
                    limit,
                    lambda: self._outcome(task, arguments, limit, admission, effects),
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
                return await self.contexts.lend(
                    task,
                    claim,
                    arguments,
                    limit,
                    lambda: self._outcome(task, arguments, limit, admission, effects),
                    effects=effects,
                )
            finally:
                del self._children[claim.lease_id]

    async def _run(self, workflow: Workflow[Any, Any, Any], claim: Claim, state: RunState | None) -> Outcome:
        """Continue the run of a workflow; one that has passed its deadline only takes its steps back."""
        if state is None or self._write_steps is None:
            return Unreadable(f"job {claim.id} is no run: a run of {workflow.name} is started by its start()")
        if self._attempts is None:
            # Most workers have no workflow, and need not load what runs them.
            from redrive.runtime.runs.attempt import RunAttempts

            self._attempts = RunAttempts(
                self._app, self.threads, self._write_steps, self.functions, self._cut_off, self._limits, self._linger
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

    async def _feed(self, claim: Claim) -> Outcome:
        """Run the feeder of a subscription; its task is none that a user has written."""
        subscription = self._app.topics.fed_by(claim.task)
        if subscription is None or self.feeders is None:
            return _unknown(claim.task)
        return await self.feeders.run(claim, subscription)

    # ``async def`` handlers run on the event loop and are cancelled at their attempt timeout. ``def`` handlers run in a
    # thread, which Python cannot stop: at the timeout the attempt is over and fenced off, and the thread runs out by
    # itself. Child processes are killed.
    def _start(self, task: Task[Any, Any, Any], arguments: dict[str, Any], claim: Claim) -> Awaitable[Any]:
        if failpoints.PLANNED:
            failpoints.fail(task.name)
        function = task.function
        if self._app.hooks.around:
            function = self._within(function, task, arguments, claim)
        if _is_async(task.function):
            return _softly(function(**arguments), task.traits.soft_timeout)
        return self._start_plain(task, functools.partial(function, **arguments), arguments, claim)

    def _within(
        self, function: Callable[..., Any], task: Task[Any, Any, Any], arguments: dict[str, Any], claim: Claim
    ) -> Callable[..., Any]:
        """Return what calls the handler within the middleware of the app."""
        from redrive.app.attempts.around import within

        return within(self._app.hooks.around, function, functools.partial(_execution, task, arguments, claim))

    async def _start_plain(
        self, task: Task[Any, Any, Any], call: Callable[[], Any], arguments: dict[str, Any], claim: Claim
    ) -> Any:  # noqa: ANN401 - of the user
        child = self._children.get(claim.lease_id)
        if child is not None:
            name = task.signature.context
            run = child.run if not self._app.hooks.around else self._within(child.run, task, arguments, claim)
            return await run(task, claim, None if name is None else arguments[name])
        if self.threads is None:
            result = outside_loop(call)
        else:
            try:
                result = await self.threads.start(claim.lease_id, call)
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


def _execution(task: Task[Any, Any, Any], arguments: Mapping[str, Any], claim: Claim) -> Execution:
    from redrive.app.attempts.around import Execution

    given = {name: arguments[name] for name in task.signature.payload if name in arguments}
    return Execution(
        "handler", task.name, task.name, claim.id, claim.attempt, given, claim.queue, claim.partition, claim.origin
    )


_is_async = functools.lru_cache(maxsize=1024)(inspect.iscoroutinefunction)


def _unknown(name: str) -> Released:
    return Released(f"this worker has no task {name!r}", UNKNOWN_TASK_DELAY, Hold.UNKNOWN_TASK)


def _expired(claim: Claim) -> bool:
    ends_at = deadline_at(claim.policy, claim.started_at)
    return ends_at is not None and not claim.catching and claim.claimed_at >= ends_at
