"""The tries of one step.

A try is decided like an attempt of a job: by the same functions, on a claim with the policy, the failures and the start
of the step. What a job would write, a step stores in its row.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import FunctionType
from typing import Any

from msgspec import structs

from redrive.app.attempts.around import Execution, within
from redrive.app.flows.calls import StepCall, StepFunction, Undo
from redrive.app.flows.run_errors import stored
from redrive.app.tasks.failures import permanent
from redrive.clock import SystemClock
from redrive.engine.lease import THREAD_GRACE, limit_of
from redrive.engine.outcome import Cancelled, Failed, Outcome, Released, Snoozed, Succeeded
from redrive.engine.records import Claim
from redrive.engine.replay import StepRequest
from redrive.engine.runs import StepError, StepHistory, StepKind, StepOutcome, StepRecord, check_size
from redrive.engine.steps import FailedTry, NewStep, StepEnd
from redrive.errors import BranchDropped, ConfigurationError, FlowInterrupt, LeaseLost, PayloadError, ResultTooLarge
from redrive.errors.foreign import is_a
from redrive.policy import Policy
from redrive.retrying.cancellation import latest_cancellation
from redrive.runtime import failpoints, layers, log, rng
from redrive.runtime.breakers import admit
from redrive.runtime.functions import TriedStep
from redrive.runtime.handlers import AttemptTimeout, mark_late, outcome_of
from redrive.runtime.runs.branches import IN_STEP, Branch, StepInterrupted, apart, call_coroutine
from redrive.runtime.runs.conductor import Conductor
from redrive.runtime.runs.writes import Ended
from redrive.runtime.threads import outside_loop

monotonic: Callable[[], float] = SystemClock.monotonic

# What the function of a step raises and is no failed try; an undo that exits must not stop the undos behind it.
_ENDS = (FlowInterrupt, KeyboardInterrupt, SystemExit, GeneratorExit)

# Hot path: asking takes as long as the rest of the call.
_is_async = functools.lru_cache(maxsize=1024)(inspect.iscoroutinefunction)


async def run_step(conductor: Conductor, branch: Branch, call: StepCall) -> Any:
    """Return the recorded result of a step, or call its function until it succeeds or fails for good."""
    step = call.step
    answer = conductor.ask(branch, StepRequest(StepKind.STEP, step.name, call.digest, call.line, step.aka))
    policy = stricter(call.policy or conductor.workflow.step_policy, once=step.once)
    row = answer.row
    ended = None if call.undo is None else functools.partial(_note_undo, conductor, call.undo, policy, step)
    if row is not None and ended is not None:
        ended(row)
    if conductor.keyed is not None:
        await conductor.ready(branch, answer)
    if row is None or row.outcome is StepOutcome.WAITING:
        row = await _tries(conductor, branch, answer.path, call, policy, ended).run(row)
    if row.outcome is StepOutcome.FAILED:
        raise conductor.errors.of(row)
    return step.returns.read(row.result)


def stricter(policy: Policy, *, once: bool) -> Policy:
    """Return the policy of a function that may run ``once``: the stricter of both declarations holds."""
    return policy.with_(idempotent=False) if once else policy


def _note_undo(conductor: Conductor, undo: Undo, policy: Policy, step: StepFunction, row: StepRecord) -> None:
    """Note the undo of a step that has ended with an effect."""
    if row.has_effect:
        conductor.undos.add(row, undo, policy, step)


def _tries(  # noqa: PLR0917 - what identifies a row
    conductor: Conductor, branch: Branch, path: str, call: StepCall, policy: Policy, ended: Ended | None
) -> Tries:
    """Return the tries of a step."""
    step = call.step
    tries = Tries(conductor, branch, path, StepKind.STEP, step.name, policy)
    tries.call, tries.ended = call, ended
    called = tries.within(step.function) if conductor.app.hooks.around else step.function
    if call.transacted:
        tries.call = structs.replace(call, step=structs.replace(step, function=called))
        tries.function = tries.transact
        return tries
    function = functools.partial(called, *call.args, **call.kwargs)
    if _is_coroutine_function(step.function):
        # Hot path: a partial with arguments by keyword copies them at each call.
        tries.function = functools.partial(call_coroutine, policy.idempotent is not False, step.name, function)
    else:
        tries.is_whole = conductor.start_thread is not None
        if call.undo is not None and policy.attempt_timeout is not None:
            tries.thread = _Thread()
        tries.function = functools.partial(call_function, conductor, step.name, function, tries.thread)
    return tries


def _execution(conductor: Conductor, name: str, call: StepCall | None, number: int) -> Execution:
    claim, given = conductor.claim, {}
    if call is not None:
        given = dict(zip(call.step.signature.payload, call.args, strict=False)) | dict(call.kwargs)
    return Execution(
        "undo" if call is None else "step",
        conductor.run_record.workflow,
        name,
        claim.id,
        number,
        given,
        claim.queue,
        claim.partition,
        claim.origin,
    )


class _Thread:
    """The thread that calls a function, which a time limit cannot stop."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] | None = None

    async def ended(self) -> asyncio.Future[Any] | None:
        """Return the future of a function that ends soon after its time limit; None if it runs on."""
        future = self.future
        assert future is not None  # the function was called
        await asyncio.wait([future], timeout=THREAD_GRACE.total_seconds())
        if future.done():
            return future
        future.cancel()
        return None


async def call_function(
    conductor: Conductor, name: str, call: functools.partial[Any], thread: _Thread | None = None
) -> Any:
    """Call a function as a step: a coroutine here, another one in a thread, which is kept if its end matters."""
    if _is_coroutine_function(call.func):
        return await apart(name, call)
    token = IN_STEP.set(name)
    try:
        if conductor.start_thread is None:
            # As in a thread, what it sets is not seen by the body.
            result = outside_loop(functools.partial(contextvars.copy_context().run, call))
        elif thread is None:
            result = await conductor.start_thread(call)
        else:
            thread.future = conductor.start_thread(call)
            result = await asyncio.shield(thread.future)
        return await apart(name, lambda: result) if inspect.isawaitable(result) else result
    finally:
        IN_STEP.reset(token)


def _is_coroutine_function(function: object) -> bool:
    return _is_async(function) if isinstance(function, FunctionType) else inspect.iscoroutinefunction(function)


class Tries:
    """The tries of one function under a policy: a step, or the undo of one.

    Attributes:
        function: what is tried.
        call: of the body, with the arguments for the hooks of the policy; None for an undo.
        ended: called with the final row, as soon as it is written.
        thread: the one that calls the function, if its end matters after the time limit.
        is_whole: True if a thread calls the function: it has its effect although the body or the branch is cut off
            meanwhile.
    """

    function: Callable[[], Awaitable[Any]]
    call: StepCall | None = None
    ended: Ended | None = None
    thread: _Thread | None = None
    is_whole = False
    # What the function has returned after its time limit, as JSON.
    _late: bytes | None = None
    # The row that was committed with what the function has written.
    _committed: StepRecord | None = None
    _number = 1
    _history: StepHistory | None = None
    _error: BaseException | None = None
    _value: Any = None

    def __init__(  # noqa: PLR0917 - what identifies a row
        self, conductor: Conductor, branch: Branch, path: str, kind: StepKind, name: str, policy: Policy
    ) -> None:
        self._conductor = conductor
        self._branch = branch
        self._path = path
        self._kind = kind
        self._name = name
        self._policy = policy

    def within(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls this one within the middleware of the app."""
        conductor = self._conductor
        made = lambda: _execution(conductor, self._name, self.call, self._number)  # noqa: E731
        return within(conductor.app.hooks.around, function, made)

    async def transact(self) -> None:
        """Call the function with a connection, and commit what it writes with the row of the step."""
        writes, call = self._conductor.writes, self.call
        assert call is not None  # an undo has no transaction
        end = NewStep(self._path, self._kind, self._name, tries=self._number, digest=call.digest, history=self._history)
        work = writes.transact(self._branch, end, call)
        self._committed = await (work if self._branch.parent is None else writes.finish(work))

    async def run(self, row: StepRecord | None) -> StepRecord:
        """Call the function until it has succeeded or failed for good, and return the row, which is written."""
        conductor, branch = self._conductor, self._branch
        while row is None or not row.is_final:
            if self._kind is StepKind.STEP:
                await conductor.edge(branch, self._path, has_effect=True)
            if row is not None and row.due_at is not None and row.due_at > conductor.now_at():
                await conductor.waits.wait(branch, row.due_at, self._why(row), self._path)
                continue
            final = None
            try:
                if self.is_whole:
                    end, final = await conductor.writes.finish(self._whole(row))
                else:
                    end = await self._once(row)
                    final = self._committed
            except StepInterrupted:
                # The edge of the step delivers the cancellation, or waits for the end of the pause.
                continue
            if isinstance(end, NewStep) and end.outcome is not StepOutcome.WAITING:
                row = final or await conductor.writes.record_for(branch, end, self.ended)
                break
            expected = conductor.writes.expected(end)
            if isinstance(end, FailedTry) and self._policy.has_functions:
                self._report(end, expected)
            row = await self._written(end, expected)
            if isinstance(end, NewStep) and not row.is_final:
                # A row that waits keeps its due time if the step asks again for more time under the same lease.
                row = structs.replace(row, due_at=expected.due_at)
        branch.reached(row.at)
        return row

    async def _written(self, end: StepEnd, expected: StepRecord) -> StepRecord:
        """Write the row of a try that has not succeeded, with the parking of the run if another one follows later."""
        conductor, branch = self._conductor, self._branch
        if conductor.keyed is not None and not expected.is_final:
            conductor.keyed.release(self._path)
        if not expected.is_final and expected.due_at is not None and expected.due_at > conductor.now_at():
            row = await conductor.waits.wait_with(branch, end, self._why(expected))
        else:
            row = await conductor.writes.record_for(branch, end, self.ended)
        if row.outcome is StepOutcome.OK:
            # A transaction that took effect although its time limit had passed, or the reply to its commit was lost.
            row = await conductor.recorder.recorded(self._path) or row
        return row

    async def _whole(self, row: StepRecord | None) -> tuple[StepEnd, StepRecord | None]:
        """Call the function once, and write the row if it is final, or if the branch was dropped meanwhile.

        The body may have been cut off by then, for example by the time limit of the attempt.
        """
        end = await self._once(row)
        if self._branch.dropped or (isinstance(end, NewStep) and end.outcome is not StepOutcome.WAITING):
            return end, await self._conductor.writes.write_for(self._branch, end, self.ended)
        return end, None

    async def _once(self, row: StepRecord | None) -> StepEnd:
        """Call the function once, and return the row to be written."""
        began = monotonic()
        if row is not None:
            self._number, self._history = row.tries + 1, row.history
        if self._policy.breaker is None and not self._policy.has_functions:
            outcome = await self._call(None)
        else:
            outcome = await self._admitted(self._claim(row))
        return self._end(row, outcome, timedelta(seconds=monotonic() - began))

    # A row that waits is written with the parking of the run, when its body has ended. So the hooks are called before.
    def _report(self, end: FailedTry, expected: StepRecord) -> None:
        """Start the hooks of the policy after a failed try."""
        function = f"{self._conductor.run_record.workflow}.{self._name}"
        args, kwargs = ((), {}) if self.call is None else (self.call.args, self.call.kwargs)
        tried = TriedStep(function, args, kwargs, self._error, self._value, end.failure)
        self._conductor.functions.report_try(expected, self._policy, tried)

    def _why(self, row: StepRecord) -> str:
        what = "the undo of " if self._kind is StepKind.UNDO else "step "
        error = f" after {row.error.message}" if row.error is not None and row.error.message else ""
        return f"{what}{self._name} is tried again{error}"

    def _claim(self, row: StepRecord | None) -> Claim:
        """Return the claim that a job would have in the place of this step."""
        history = None if row is None else row.history
        tries = 0 if row is None else row.tries
        now = self._conductor.now_at()
        return structs.replace(
            self._conductor.claim,
            task=f"{self._conductor.run_record.workflow}.{self._name}",
            policy=self._policy,
            attempt=tries + 1,
            failures=tries,
            by_rule=() if history is None else history.by_rule,
            last_delay=None if history is None else history.last_delay,
            started_at=now if history is None else history.started_at,
            claimed_at=now,
            parent_id=None,
        )

    async def _admitted(self, claim: Claim) -> Outcome:
        """Call the function once if the circuit breaker of its policy admits it, and return how that ended."""
        admission = admit(self._conductor.app, self._conductor.workflow, claim)
        if isinstance(admission, Released):
            return admission
        try:
            outcome = await self._call(claim)
        except BaseException:
            admission.drop()
            raise
        admission.error = self._error
        admission.record(outcome)
        return outcome

    async def _call(self, claim: Claim | None) -> Outcome:
        """Call the function once, and return how that ended; a policy without functions needs no claim."""
        self._error = self._value = None
        task = self._branch.task
        before = 0 if task is None else task.cancelling()
        limit = self._policy.attempt_timeout
        if limit is None and self._kind is StepKind.UNDO:
            # Without a time limit of its own, a step has that of the body of its run.
            limit = limit_of(self._conductor.claim.policy)
        scope = None if limit is None else asyncio.timeout(limit.total_seconds())
        layer = layers.begin(self._name, self._policy, self._conductor.claim.claimed_at)
        try:
            if failpoints.PLANNED:
                failpoints.fail(self._name)
            if scope is None:
                value = await self.function()
            else:
                async with scope:
                    value = await self.function()
        except BaseException as raised:  # noqa: BLE001 - of the user
            error = raised
            if task is not None and task.cancelling() > before:
                error = latest_cancellation(raised) or raised
            if self._ends_pass(error, before):
                raise error  # noqa: B904 - it may be the cancellation that the function has replaced
            if limit is not None and scope is not None and scope.expired():
                if is_a(error, TimeoutError):
                    overrun, late = AttemptTimeout(limit), await self._await_thread()
                    overrun.__cause__, error = error, overrun
                    if late is not None:
                        return late
                else:
                    mark_late(error)
            self._error = error
            outcome = outcome_of(error)
            return outcome if claim is None else await self._conductor.functions.failure(claim, {}, error, outcome)
        finally:
            layers.end(layer)
        return self._result(value) if claim is None else await self._admits(claim, value)

    def _ends_pass(self, error: BaseException, before: int) -> bool:
        """Return True if an error is no failed try: it stops the branch, whose task had been cancelled so often before.

        Raise `BranchDropped` if the branch was cancelled because its result is not needed any more.
        """
        if is_a(error, FlowInterrupt if self._kind is StepKind.UNDO else _ENDS):
            return True
        if is_a(error, LeaseLost):
            self._conductor.writes.check_lost()
        task = self._branch.task
        if not is_a(error, asyncio.CancelledError) or task is None or task.cancelling() <= before:
            return False
        if self._branch.dropped:
            raise BranchDropped from None
        return True

    async def _admits(self, claim: Claim, value: object) -> Outcome:
        """Return how a try has ended whose function has returned, which its policy may take for a failure."""
        if self.call is not None and self._committed is None and claim.policy.has_functions:
            rejected = await self._conductor.functions.rejection(claim, {}, value)
            if rejected is not None:
                self._value = value
                return rejected
        return self._result(value)

    # The effect is there, so that it has to be taken back if the run fails. Waiting also keeps the next try apart.
    async def _await_thread(self) -> Outcome | None:
        """Wait a while for a function with an undo that its time limit has not stopped, and keep what it returns.

        Return the failure of one whose result cannot be stored.
        """
        if self.thread is None:
            return None
        future = await self.thread.ended()
        if future is None:
            where = f"{self._conductor.describe()}: step {self._name} ({self._path})"
            log.warning("%s still runs after its time limit; what it does is not undone", where)
        elif future.exception() is None:
            outcome = self._result(future.result())
            if not isinstance(outcome, Succeeded):
                return outcome
            self._late = outcome.result or b"null"
        return None

    def _result(self, value: object) -> Outcome:
        if self.call is None or self._committed is not None:
            return Succeeded()
        # The function has done its work, so another try is of no use if its result cannot be stored.
        try:
            raw = self.call.step.returns.check(value)
            check_size(f"step {self._name}", raw, self._conductor.workflow.app.max_payload)
        except ResultTooLarge as error:
            self._conductor.undos.keep(self._path, value)
            failed = permanent("RESULT_TOO_LARGE", str(error))
            return structs.replace(failed, failure=failed.failure._replace(types=(_TOO_LARGE,)))
        except (PayloadError, ConfigurationError) as error:
            self._conductor.undos.keep(self._path, value)
            failed = permanent("BAD_RESULT", f"step {self._name}: {error}")
            return structs.replace(failed, failure=failed.failure._replace(types=(_BAD_RESULT,)))
        return Succeeded(raw)

    def _end(self, row: StepRecord | None, outcome: Outcome, took: timedelta) -> StepEnd:
        """Return the row to be written after a try."""
        history, before = (None, 0) if row is None else (row.history, row.tries)
        digest = None if self.call is None else self.call.digest
        if isinstance(outcome, Succeeded):
            return NewStep(
                self._path,
                self._kind,
                self._name,
                took=took,
                tries=before + 1,
                digest=digest,
                result=outcome.result,
                history=history,
            )
        if isinstance(outcome, Failed):
            return FailedTry(
                self._path,
                self._kind,
                self._name,
                took,
                before + 1,
                outcome.failure,
                stored(outcome, self._error),
                self._policy,
                rng.sample(),
                digest,
                history,
                self._late or (None if row is None else row.result),
            )
        made = functools.partial(NewStep, self._path, self._kind, self._name, took=took, digest=digest, history=history)
        match outcome:
            case Snoozed(delay, why) | Released(why, delay):
                error = StepError(("redrive.errors.Snooze",), why, "SNOOZED")
                return made(outcome=StepOutcome.WAITING, tries=before, delay=delay, error=error)
            case _:
                why = outcome.why if isinstance(outcome, Cancelled) else "cancelled"
                error = StepError(("redrive.errors.Cancel",), why, "CANCELLED")
                return made(outcome=StepOutcome.FAILED, tries=before + 1, error=error)


_TOO_LARGE = "redrive.errors.ResultTooLarge"
_BAD_RESULT = "redrive.errors.PayloadError"
