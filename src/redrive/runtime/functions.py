"""The functions of a durable policy: its predicates and its hooks.

They are not stored with a job. A worker takes them from the present policy of the task.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import structs

from redrive.app.app import App
from redrive.app.tasks.failures import ERROR_TEXT, carried, clean, failed
from redrive.engine.lifecycle import LifecycleEvent
from redrive.engine.outcome import Failed, Outcome, Settlement
from redrive.engine.records import Claim
from redrive.engine.runs import StepHistory, StepOutcome, StepRecord
from redrive.errors.foreign import is_a, summary, trace
from redrive.observe.logs import Block
from redrive.policy import Failure, GiveUp, History, Policy
from redrive.policy.classify import described
from redrive.policy.duration import ZERO
from redrive.policy.outcome import Hook, RetryDetails
from redrive.runtime import log
from redrive.runtime.handlers import AttemptTimeout
from redrive.stores.operations.leases import Ending


class _Seen(NamedTuple):
    """What the hooks of a job get beside its end."""

    arguments: Mapping[str, Any]
    error: BaseException | None
    value: Any


class TriedStep(NamedTuple):
    """A failed try of a step, as the hooks of its policy get it."""

    function: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    error: BaseException | None
    value: Any
    failure: Failure


class PolicyFunctions:
    """Calls the functions of policies in one worker."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._context = contextvars.copy_context()
        self._seen: dict[int, _Seen] = {}
        self._calls: set[asyncio.Task[None]] = set()

    def present(self, claim: Claim) -> Claim:
        """Return the claim with the functions of the present policy of its task."""
        task = self._app.find(claim.task)
        if task is None or claim.catching or not task.policy.has_functions:
            return claim
        return structs.replace(claim, policy=claim.policy.with_functions(task.policy))

    async def failure(self, claim: Claim, arguments: dict[str, Any], error: BaseException, end: Outcome) -> Outcome:
        """Return the end of an attempt that raised, as the predicate ``on`` describes it."""
        if not isinstance(end, Failed) or not claim.policy.has_functions:
            return end
        if is_a(error, AttemptTimeout):
            error = TimeoutError(end.failure.message)
        self._remember(claim, arguments, error, None)
        if not callable(claim.policy.on) or end.failure.permanent is not None:
            return end
        try:
            answer = claim.policy.on(error)
            if inspect.isawaitable(answer):
                answer = await answer
            found = described(error, answer, end.failure.stage)
        except Exception as broken:  # noqa: BLE001 - a predicate of the user may raise anything
            return _undecided(claim, broken)
        reason = end.failure.reason if found.reason == "ERROR" else found.reason
        return structs.replace(end, failure=found._replace(message=clean(found.message, ERROR_TEXT), reason=reason))

    async def rejection(self, claim: Claim, arguments: dict[str, Any], value: object) -> Outcome | None:
        """Return the failure of an attempt with a result that ``on_result`` rejects; None if it is accepted."""
        policy, rejected_by = claim.policy, []
        try:
            for number, rejects in enumerate(policy.predicates):
                answer = None if rejects is None else rejects(value)
                if inspect.isawaitable(answer):
                    answer = await answer
                if answer:
                    rejected_by.append(number)
            if not rejected_by:
                return None
            failure = Failure.of_result(value, tuple(rejected_by))
            # A part of a combination may accept it.
            history = History(claim.failures + 1, claim.started_at, claim.last_delay, claim.by_rule)
            decision = policy.decide(history, failure, claim.claimed_at, 0.0)
        except Exception as broken:  # noqa: BLE001 - a predicate of the user may raise anything
            return _undecided(claim, broken)
        if isinstance(decision, GiveUp) and decision.rule == "not_matched":
            return None
        self._remember(claim, arguments, None, value)
        return Failed(failure._replace(message=clean(failure.message, ERROR_TEXT)))

    def _remember(self, claim: Claim, arguments: dict[str, Any], error: BaseException | None, value: object) -> None:
        task = self._app.find(claim.task)
        if task is not None and (claim.policy.retry_hooks or claim.policy.give_up_hooks):
            shown = {name: each for name, each in arguments.items() if name != task.signature.context}
            self._seen[claim.lease_id] = _Seen(shown, error, value)

    def report(self, endings: Sequence[Ending], moved: Sequence[Settlement]) -> None:
        """Start the hooks of jobs with ends that are written."""
        if not self._seen:
            return
        written = {each.lease_id: each for each in moved}
        for ending in endings:
            seen = self._seen.pop(ending.claim.lease_id, None)
            settlement = written.get(ending.claim.lease_id)
            if seen is None or settlement is None or not isinstance(ending.outcome, Failed):
                continue
            policy, died = ending.claim.policy, settlement.event is LifecycleEvent.DIE
            hooks = policy.give_up_hooks if died else policy.retry_hooks
            if hooks:
                details = _details(ending.claim, ending.outcome, settlement, seen, died=died)
                self._start(hooks, details, ending.claim.id)

    def report_try(self, row: StepRecord, policy: Policy, tried: TriedStep) -> None:
        """Start the hooks of a step of a run after a failed try; ``row`` is its row after that."""
        died = row.outcome is StepOutcome.FAILED
        hooks = policy.give_up_hooks if died else policy.retry_hooks
        if hooks and row.history is not None:
            self._start(hooks, _details_of_try(row, row.history, tried, died=died), row.run_id)

    def _start(self, hooks: tuple[Hook, ...], details: RetryDetails, job_id: int) -> None:
        call = asyncio.create_task(self._call(hooks, details, job_id), context=self._context.copy())
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, hooks: tuple[Hook, ...], details: RetryDetails, job_id: int) -> None:
        for hook in hooks:
            try:
                await asyncio.create_task(_call(hook, details), context=self._context.copy())
            except Exception as error:  # noqa: BLE001 - the job has ended; a hook of the user changes nothing
                log.error("job %d: a hook of its policy failed%s", job_id, Block(trace(error)))

    async def finish(self) -> None:
        """Wait for the hooks that run."""
        if self._calls:
            await asyncio.wait(self._calls)


def _details(claim: Claim, end: Failed, settlement: Settlement, seen: _Seen, *, died: bool) -> RetryDetails:
    closed = settlement.closed
    return RetryDetails(
        function=claim.task,
        args=(),
        kwargs=seen.arguments,
        attempt=claim.attempt,
        error=seen.error,
        value=seen.value,
        failure=end.failure,
        delay=None if died else settlement.last_delay,
        rule="" if closed is None else closed.rule or "",
        why=(settlement.note or "") if died else "",
        elapsed=ZERO if closed is None else closed.finished_at - claim.started_at,
    )


def _details_of_try(row: StepRecord, history: StepHistory, tried: TriedStep, *, died: bool) -> RetryDetails:
    last = history.tries[-1]
    return RetryDetails(
        function=tried.function,
        args=tried.args,
        kwargs=tried.kwargs,
        attempt=row.tries,
        error=tried.error,
        value=tried.value,
        failure=tried.failure,
        delay=last.delay,
        rule=last.rule or "",
        why=f"step {row.name} failed for good: {last.error.message}" if died else "",
        elapsed=row.at - history.started_at,
    )


async def _call(hook: Hook, details: RetryDetails) -> None:
    # A plain function may block, so it gets a thread.
    answer = hook(details) if inspect.iscoroutinefunction(hook) else await asyncio.to_thread(carried, hook, details)
    if inspect.isawaitable(answer):
        await answer


def _undecided(claim: Claim, broken: Exception) -> Failed:
    why = f"the decision about this attempt failed: {summary(broken)}"
    log.error("job %d: %s", claim.id, why)
    end = failed(broken)
    return structs.replace(end, failure=Failure((), clean(why, ERROR_TEXT), permanent=clean(why, ERROR_TEXT)))
