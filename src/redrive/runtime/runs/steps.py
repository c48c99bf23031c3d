"""The tries of one step.

A try is decided like an attempt of a job: by the same functions, on a claim with the policy, the failures and the start
of the step. What a job would write, a step stores in its row.
"""

# ruff: noqa: ANN401 - results of the user's functions

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from datetime import timedelta
from types import FunctionType
from typing import Any

from msgspec import structs

from redrive.app.failures import permanent
from redrive.app.flow_calls import StepCall, StepFunction
from redrive.app.run_errors import stored
from redrive.clock import SystemClock
from redrive.engine.lease import limit_of
from redrive.engine.outcome import Cancelled, Failed, Outcome, Released, Snoozed, Succeeded
from redrive.engine.records import Claim
from redrive.engine.replay import StepRequest
from redrive.engine.runs import StepError, StepKind, StepOutcome, StepRecord, check_size
from redrive.engine.steps import FailedTry, NewStep, StepEnd
from redrive.errors import BranchDropped, ConfigurationError, FlowInterrupt, PayloadError, ResultTooLarge
from redrive.policy import Policy
from redrive.runtime import rng
from redrive.runtime.breakers import admit
from redrive.runtime.handlers import AttemptTimeout, outcome_of
from redrive.runtime.runs.branches import IN_STEP, Branch
from redrive.runtime.runs.conductor import Conductor

monotonic = SystemClock.monotonic

# Hot path: asking takes as long as the rest of the call.
_is_async = functools.lru_cache(maxsize=1024)(inspect.iscoroutinefunction)


async def run_step(conductor: Conductor, branch: Branch, call: StepCall) -> Any:
    """Return the recorded result of a step, or call its function until it succeeds or fails for good."""
    request = StepRequest(StepKind.STEP, call.step.name, call.digest, call.line)
    answer = conductor.ask(branch, request)
    policy = call.policy or conductor.workflow.step_policy
    row = answer.row
    if row is None or row.outcome is StepOutcome.WAITING:
        tries = Tries(
            conductor, branch, answer.path, kind=StepKind.STEP, name=call.step.name, policy=policy, digest=call.digest
        )
        if call.transacted:
            row = await conductor.transact(branch, answer.path, call)
        else:
            row = await tries.run(row, functools.partial(called, conductor, call), call.step)
    if row.outcome is StepOutcome.FAILED:
        raise conductor.recorded(row)
    if call.undo is not None:
        conductor.undos.add(row, call.undo, policy, call.step)
    return call.step.returns.read(row.result)


async def called(conductor: Conductor, call: StepCall) -> Any:
    """Call the function of a step."""
    return await call_function(conductor, call.step.name, call.step.function, *call.args, **call.kwargs)


async def call_function(conductor: Conductor, name: str, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function as a step: a coroutine here, another one in a thread."""
    token = IN_STEP.set(name)
    try:
        if _is_async(function) if isinstance(function, FunctionType) else inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        call = functools.partial(function, *args, **kwargs)
        if conductor.start_thread is None:
            result = call()
        else:
            context = contextvars.copy_context()
            result = await conductor.start_thread(functools.partial(context.run, call))
        return await result if inspect.isawaitable(result) else result
    finally:
        IN_STEP.reset(token)


class Tries:
    """The tries of one function under a policy: a step, or the undo of one."""

    def __init__(  # noqa: PLR0913 - what identifies a row
        self,
        conductor: Conductor,
        branch: Branch,
        path: str,
        *,
        kind: StepKind,
        name: str,
        policy: Policy,
        digest: int | None = None,
    ) -> None:
        self._conductor = conductor
        self._branch = branch
        self._path = path
        self._kind = kind
        self._name = name
        self._policy = policy
        self._digest = digest
        self._error: BaseException | None = None

    async def run(self, row: StepRecord | None, call: Any, step: StepFunction | None) -> StepRecord:
        """Call the function until it has succeeded or failed for good, and return the row, which is written."""
        conductor, branch = self._conductor, self._branch
        while row is None or not row.is_final:
            if self._kind is StepKind.STEP:
                await conductor.edge(branch, self._path)
            if row is not None and row.due_at is not None and row.due_at > conductor.now_at():
                await conductor.wait(branch, row.due_at, self._why(row), self._path)
                continue
            end = await self._once(row, call, step)
            expected = conductor.expected(end)
            if not expected.is_final and expected.due_at is not None and expected.due_at > conductor.now_at():
                # The row is written with the parking of the run.
                row = await conductor.wait_with(branch, end, self._why(expected))
            else:
                row = await conductor.record(end)
            if isinstance(end, NewStep) and not row.is_final:
                # A row that waits keeps its due time if the step asks again for more time under the same lease.
                row = structs.replace(row, due_at=expected.due_at)
        branch.reached(row.at)
        return row

    async def _once(self, row: StepRecord | None, call: Any, step: StepFunction | None) -> StepEnd:
        """Call the function once, and return the row to be written."""
        began = monotonic()
        claim = self._claim(row)
        outcome = await self._admitted(claim, call, step)
        return self._end(row, claim, outcome, timedelta(seconds=monotonic() - began))

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

    async def _admitted(self, claim: Claim, call: Any, step: StepFunction | None) -> Outcome:
        """Call the function once if the circuit breaker of its policy admits it, and return how that ended."""
        admission = admit(self._conductor.app, self._conductor.workflow, claim)
        if isinstance(admission, Released):
            return admission
        try:
            outcome = await self._try(claim, call, step)
        except BaseException:
            admission.drop()
            raise
        admission.error = self._error
        admission.record(outcome)
        return outcome

    async def _try(self, claim: Claim, call: Any, step: StepFunction | None) -> Outcome:
        self._error = None
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        limit = limit_of(claim.policy)
        scope = asyncio.timeout(limit.total_seconds())
        try:
            async with scope:
                value = await call()
        except BaseException as error:
            if isinstance(error, FlowInterrupt | KeyboardInterrupt | SystemExit | GeneratorExit):
                raise
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > before:
                if self._branch.dropped:
                    raise BranchDropped from None
                raise
            if isinstance(error, TimeoutError) and scope.expired():
                error = AttemptTimeout(limit)
            self._error = error
            return await self._conductor.functions.failure(claim, {}, error, outcome_of(error))
        return await self._result(claim, value, step)

    async def _result(self, claim: Claim, value: Any, step: StepFunction | None) -> Outcome:
        if step is None:
            return Succeeded()
        if claim.policy.has_functions:
            rejected = await self._conductor.functions.rejection(claim, {}, value)
            if rejected is not None:
                return rejected
        # The function has done its work, so another try is of no use if its result cannot be stored.
        try:
            raw = step.returns.check(value)
            check_size(f"step {self._name}", raw)
        except ResultTooLarge as error:
            failed = permanent("RESULT_TOO_LARGE", str(error))
            return structs.replace(failed, failure=failed.failure._replace(types=(_TOO_LARGE,)))
        except (PayloadError, ConfigurationError) as error:
            failed = permanent("BAD_RESULT", str(error))
            return structs.replace(failed, failure=failed.failure._replace(types=(_BAD_RESULT,)))
        return Succeeded(raw)

    def _end(self, row: StepRecord | None, claim: Claim, outcome: Outcome, took: timedelta) -> StepEnd:
        """Return the row to be written after a try."""
        history = None if row is None else row.history
        if isinstance(outcome, Failed):
            return FailedTry(
                self._path,
                self._kind,
                self._name,
                took,
                claim.attempt,
                outcome.failure,
                stored(outcome, self._error),
                self._policy,
                rng.sample(),
                self._digest,
                history,
            )
        made = NewStep(
            self._path, self._kind, self._name, took=took, tries=claim.attempt, digest=self._digest, history=history
        )
        match outcome:
            case Succeeded(result):
                return structs.replace(made, result=result)
            case Snoozed(delay, why) | Released(why, delay):
                error = StepError(("redrive.errors.Snooze",), why, "SNOOZED")
                return structs.replace(
                    made, outcome=StepOutcome.WAITING, tries=claim.failures, delay=delay, error=error
                )
            case _:
                why = outcome.why if isinstance(outcome, Cancelled) else "cancelled"
                error = StepError(("redrive.errors.Cancel",), why, "CANCELLED")
                return structs.replace(made, outcome=StepOutcome.FAILED, error=error)


_TOO_LARGE = "redrive.errors.ResultTooLarge"
_BAD_RESULT = "redrive.errors.PayloadError"
