"""One pass of a body: from its beginning to its end, or to the point where every branch waits.

::

    body ---- returned ----> is it whole? ----> Succeeded
      |------ raised ------> is it whole? ----> the policy decides: another attempt, or the undos, then the end
      |------ torn down ---> Parked or Held
      `------ cut off -----> no outcome: the caller has cancelled the attempt
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Token
from typing import Any

from redrive.app.flows.flow import CURRENT as FLOW
from redrive.app.flows.flow import Flow
from redrive.app.flows.sync_flow import SyncFlow
from redrive.app.tasks.failures import permanent
from redrive.engine.lease import THREAD_GRACE
from redrive.engine.lifecycle import FINAL
from redrive.engine.outcome import Cancelled, Expired, Held, Outcome, Parked, Succeeded
from redrive.engine.replay import describe_run
from redrive.engine.runs import check_size
from redrive.engine.settle import decide
from redrive.errors import (
    BranchDropped,
    CancelRequested,
    ConfigurationError,
    FlowInterrupt,
    FlowMisused,
    ParkingSwallowed,
    PayloadError,
    ResultTooLarge,
)
from redrive.errors.foreign import is_a
from redrive.runtime import log
from redrive.runtime.handlers import is_interruption, undo_cancellation
from redrive.runtime.runs.branches import Branch
from redrive.runtime.runs.conductor import Conductor, RunEnded


class Pass:
    """One pass of the body of a run; ``conductor`` answers what the body asks for."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._expired = False
        self._token: Token[Flow | None] | None = None

    async def run(
        self,
        arguments: Mapping[str, Any],
        within: Callable[[Awaitable[Any]], Awaitable[Any]],
        *,
        expired: bool = False,
    ) -> Outcome:
        """Run the body ``within`` a time limit, and the undos if the run does not succeed; return how the pass ended.

        A pass that has ``expired``, or with undos that have begun, takes no new step. Raise `asyncio.CancelledError` if
        the caller has cancelled it, or `LeaseLost`.
        """
        conductor = self._conductor
        main = self._main_branch()
        main.replay_only = expired or conductor.undos.begun
        self._expired = expired
        result, error = None, None
        try:
            try:
                result = await within(conductor.run_branch(main, functools.partial(self._body, arguments)))
            except BaseException as raised:  # noqa: BLE001 - the body may raise anything
                error = raised
            await self._leave(main)
            return await self._ended(main, arguments, result, error)
        except RunEnded as end:
            return end.outcome
        finally:
            conductor.stop_helpers()

    async def compare(self, arguments: Mapping[str, Any]) -> Any:
        """Run the body without a new step or an undo, and return its result.

        Raise its error, `RunEnded` if it does not fit the recorded steps, or `BranchDropped` where it asks for another.
        """
        conductor = self._conductor
        main = self._main_branch()
        main.replay_only = True
        try:
            result = await conductor.run_branch(main, functools.partial(self._body, arguments))
        except BaseException as error:
            if conductor.waits.end is not None:
                raise RunEnded(conductor.waits.end) from error
            if conductor.keyed is not None and conductor.keyed.replayed:
                undo_cancellation()
                raise BranchDropped from error
            if not is_a(error, BranchDropped):
                self._check_whole(error)
            raise
        finally:
            await self._leave(main)
            conductor.stop_helpers()
        misused = self._misuse()
        if misused is not None:
            raise misused
        return result

    def _main_branch(self) -> Branch:
        conductor = self._conductor
        return Branch("", conductor.claim.started_at, conductor.seed)

    def _body(self, arguments: Mapping[str, Any]) -> Any:
        conductor = self._conductor
        name = conductor.workflow.signature.context
        assert name is not None
        if not conductor.workflow.is_async:
            return conductor.workflow.function(**{name: SyncFlow(conductor.calls(conductor))}, **arguments)
        flow = Flow(conductor.calls(conductor))
        self._token = FLOW.set(flow)
        return conductor.workflow.function(**{name: flow}, **arguments)

    async def _leave(self, main: Branch) -> None:
        """End what the body has left over."""
        if self._token is not None:
            FLOW.reset(self._token)
            self._token = None
        if self._conductor.keyed is not None:
            await self._conductor.keyed.stop(main)

    async def _ended(
        self, main: Branch, arguments: Mapping[str, Any], result: Any, error: BaseException | None
    ) -> Outcome:
        """Return the outcome of the pass after the end of its body, with a result or an error."""
        conductor = self._conductor
        conductor.writes.check_lost()
        if error is not None and conductor.cut_off() and is_interruption(error):
            raise asyncio.CancelledError from error
        if is_a(error, asyncio.CancelledError) or conductor.keyed is not None:
            # A body with named calls is parked by the cancellation of its task.
            undo_cancellation()
        await self._finish_all()
        conductor.writes.check_lost()
        if conductor.undos.begun:
            return await conductor.undos.go_on(conductor, main)
        self._check_parked(error)
        conductor.writes.attach_held(main)
        if error is not None and not conductor.errors.is_recorded(error):
            # Another pass may not come to this error, which has cut off other calls.
            conductor.writes.rows.forget_drops()
        if error is None:
            error = self._misuse() or self._undelivered(main)
        elif self._expired:
            self._check_whole(error)
        if self._expired:
            late = TimeoutError("the deadline of the run has passed")
            return await conductor.undos.run(conductor, main, Expired(), late)
        outcome = self._result(result) if error is None else await self._outcome(main, arguments, error)
        if isinstance(outcome, Succeeded) or not self._is_final(outcome):
            await conductor.writes.rows.flush()
            return outcome
        return await conductor.undos.run(conductor, main, outcome, error)

    async def _finish_all(self) -> None:
        """Wait for the work that goes on, but not for long after the time limit of the attempt."""
        conductor = self._conductor
        while conductor.writes.unfinished:
            timeout = THREAD_GRACE.total_seconds() if conductor.is_over else None
            done, _ = await asyncio.wait(conductor.writes.unfinished, timeout=timeout)
            if not done:
                log.warning(
                    "%s: a step still runs after the time limit; what it does is not undone", conductor.describe()
                )
                return

    def _check_parked(self, error: BaseException | None) -> None:
        """Raise the outcome of a pass that was torn down."""
        conductor = self._conductor
        if conductor.waits.end is None:
            return
        if error is None:
            raise RunEnded(
                Held(
                    f"{conductor.describe()}: its body caught the exception that parks it, and went on "
                    f"({ParkingSwallowed.__name__}): let exceptions pass that are no Exception"
                )
            )
        if conductor.misused is not None and isinstance(conductor.waits.end, Parked):
            raise RunEnded(Held(f"{conductor.describe()}: {conductor.misused}")) from error
        if not _is_interrupt(error, conductor.keyed is not None):
            log.warning("%s: its body raised while it was torn down: %r", describe_run(conductor.run_record), error)
        raise RunEnded(conductor.waits.end)

    def _misuse(self) -> FlowMisused | None:
        """Return the error of a body that has returned and misused its flow; raise `RunEnded` if it does not fit."""
        conductor = self._conductor
        if conductor.misused is not None:
            return conductor.misused
        for call in conductor.announced:
            text = f"a call of the flow was never awaited: {call.asked.line}"
            if call.asked.key is None:
                return FlowMisused(text)
            # The task that was to await it may have been cancelled before.
            log.warning("%s: %s", conductor.describe(), text)
        self._check_whole(None)
        return None

    def _check_whole(self, error: BaseException | None) -> None:
        """Raise the outcome of a run with recorded steps that its body has not reached."""
        conductor = self._conductor
        missing = conductor.replay.missing()
        if missing is not None:
            why = missing if conductor.misused is None else f"{conductor.describe()}: {conductor.misused}"
            raise RunEnded(Held(why)) from error

    def _undelivered(self, main: Branch) -> CancelRequested | None:
        """Return the cancellation of the run if its body has not received it."""
        why = self._conductor.flags.cancel_why
        return None if why is None or main.delivered else CancelRequested(why)

    async def _outcome(self, main: Branch, arguments: Mapping[str, Any], error: BaseException) -> Outcome:
        """Return the outcome of a body that has raised an error."""
        conductor = self._conductor
        if not _is_cancel(error):
            self._check_whole(error)
            outcome = conductor.errors.outcome_of(error)
            outcome = await conductor.functions.failure(conductor.claim, dict(arguments), error, outcome)
            if self._is_final(outcome) or self._undelivered(main) is None:
                return outcome
        if is_a(error, BaseExceptionGroup):
            return Cancelled(str(CancelRequested(conductor.flags.cancel_why)))
        return Cancelled(str(self._undelivered(main) or error))

    def _is_final(self, outcome: Outcome) -> bool:
        """Return True if no further attempt of the run follows this outcome."""
        conductor = self._conductor
        return decide(conductor.claim, outcome, conductor.now_at(), 0.0).state in FINAL

    def _result(self, result: Any) -> Outcome:
        """Return the outcome of a body that has returned."""
        conductor = self._conductor
        try:
            raw = conductor.workflow.returns.check(result)
            if raw is not None:
                check_size(conductor.describe(), raw, conductor.workflow.app.max_payload)
        except (PayloadError, ConfigurationError) as error:
            return permanent("BAD_RESULT", str(error))
        except ResultTooLarge as error:
            return permanent("RESULT_TOO_LARGE", str(error))
        return Succeeded(raw)


def _is_cancel(error: BaseException) -> bool:
    """Return True for the cancellation of a run, and for a group of it with what it has cut off."""
    if is_a(error, BaseExceptionGroup):
        found = [each for each in error.exceptions if not is_a(each, asyncio.CancelledError)]
        return bool(found) and all(map(_is_cancel, found))
    return is_a(error, CancelRequested)


def _is_interrupt(error: BaseException, cancels: bool) -> bool:  # noqa: FBT001 - of the pass
    """Return True for an interrupt, for a group of them, and for an error that was raised while one passed.

    A cancellation is an interrupt if it ``cancels`` the tasks of a body.
    """
    if is_a(error, BaseExceptionGroup):
        return all(_is_interrupt(each, cancels) for each in error.exceptions)
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        if is_a(link, FlowInterrupt) or (cancels and is_a(link, asyncio.CancelledError)):
            return True
        seen.add(id(link))
        link = link.__context__
    return False
