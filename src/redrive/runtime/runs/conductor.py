"""One pass of a body: from its beginning to its end, or to the point where every branch waits.

The conductor answers what the body asks for: with a recorded value, by carrying it out, or by a wait. When every branch
waits, it tears the body down: it throws `Parking` into each wait, in the order of the branches, and the body ends. A
body is not torn down while a branch still works, because the effect of that would be repeated; until then this
process keeps the due times of the other branches. After the teardown has begun, every call raises the interrupt again
and does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from datetime import datetime
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar

import msgspec

from redrive import errors
from redrive.app.app import App
from redrive.app.flows.calls import ChildCall, StepCall, StepFunction, Undo
from redrive.app.flows.flow import ConductorProtocol, Flow, FlowCall
from redrive.app.flows.run_errors import rebuilt
from redrive.app.flows.sync_flow import SyncFlow
from redrive.app.flows.workflow import Workflow
from redrive.app.loading import REFUSAL
from redrive.app.tasks.failures import carried, permanent
from redrive.clock import SystemClock
from redrive.engine.lease import THREAD_GRACE, limit_of
from redrive.engine.lifecycle import FINAL
from redrive.engine.outcome import Cancelled, Expired, Failed, Held, Outcome, Parked, Succeeded
from redrive.engine.records import Claim
from redrive.engine.replay import Answer, Replay, StepRequest, describe_run
from redrive.engine.runs import FAR, RunFlags, RunState, StepError, StepKind, StepRecord, check_size
from redrive.engine.settle import decide
from redrive.engine.steps import NewStep, StepEnd, resolve
from redrive.errors.foreign import is_a
from redrive.policy import Policy
from redrive.runtime import log
from redrive.runtime.functions import PolicyFunctions
from redrive.runtime.handlers import is_interruption, outcome_of, undo_cancellation
from redrive.runtime.runs import branches
from redrive.runtime.runs.receipts import Inbox, Receipts
from redrive.runtime.runs.recorder import Recorder
from redrive.runtime.runs.refused import BodyRefusal
from redrive.runtime.runs.rows import PendingRows
from redrive.stores.operations.workers import Asked

#: The name of the rows that record where a cancellation was delivered.
CANCEL_MARK = ":cancel"

#: The path and the name of the row that records that a cancellation has to wait.
CANCEL_SEEN = ":cancel-seen"

# The part of the time limit of an attempt after which no further undo begins in it.
_LATE = 0.1

monotonic = SystemClock.monotonic

# Seconds between two polls for signals, while a branch waits for one and another branch works.
_LOOK = 0.5


R = TypeVar("R")

StartThread: TypeAlias = Callable[[Callable[[], Any]], asyncio.Future[Any]]
"""Starts a function in a thread."""

Ended: TypeAlias = Callable[[StepRecord], None]
"""Receives the final row of a step, as soon as it is written."""


class UndoList(Protocol):
    """The undos of a run; see `redrive.runtime.runs.undo`."""

    @property
    def begun(self) -> bool:
        """True if the undos of the run have begun."""

    def add(self, row: StepRecord, undo: Undo, policy: Policy, step: StepFunction) -> None:
        """Note the undo of a finished step."""

    def keep(self, path: str, value: object) -> None:
        """Keep what the function of a step has returned, which cannot be stored, for its undo."""

    async def run(
        self, conductor: Conductor, main: branches.Branch, outcome: Outcome, error: BaseException | None
    ) -> Outcome:
        """Begin and run the undos of a run that ends with this outcome, and return what it ends with."""

    async def go_on(self, conductor: Conductor, main: branches.Branch) -> Outcome:
        """Run the undos that are left, and return what the run ends with."""


class RunEnded(BaseException):
    """The end of a pass with an outcome that is neither a result nor an error of the body."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class Conductor:
    """One pass of the body of a run.

    Args:
        claim: the claimed job of the run.
        workflow: its code.
        state: what is stored of the run.
        recorder: writes rows.
        calls: returns what the flow of the body calls; see `redrive.runtime.runs.body`.
        undos: the undos of the run.
        app: the app.
        now: returns the present instant of the store's clock, or an earlier one.
        functions: the functions of policies.
        start_thread: starts a function in a thread; None calls functions of steps in the thread of the event loop.
        asleep: waits for so many seconds.
        within: awaits the body within the time limit of an attempt.
        cut_off: returns True if the caller has cancelled the attempt.
    """

    # The error of an operation that the body must not call.
    _misused: errors.FlowMisused | None = None

    def __init__(
        self,
        claim: Claim,
        workflow: Workflow[Any, Any, Any],
        state: RunState,
        recorder: Recorder,
        *,
        calls: Callable[[Conductor], ConductorProtocol],
        undos: UndoList,
        app: App,
        functions: PolicyFunctions,
        now: Callable[[], datetime],
        start_thread: StartThread | None,
        asleep: Callable[[float], Coroutine[Any, Any, None]],
        within: Callable[[Awaitable[Any]], Awaitable[Any]],
        cut_off: Callable[[], bool],
    ) -> None:
        self.claim, self.workflow, self.run_record = claim, workflow, state.run
        self.seed = f"{state.run.workflow} {state.run.id} {state.run.epoch}"
        self.app, self.functions, self.recorder, self.now_at = app, functions, recorder, now
        self.inbox, self.replay = Inbox(state), Replay(state.run, state.steps)
        self.receipts = Receipts(self.inbox)
        self.undos, self._calls = undos, calls
        self.loop = asyncio.get_running_loop()
        # Errors that were recorded, with the paths of their rows and the number of the calls until then.
        self._recorded: list[tuple[BaseException, str, int]] = []
        self._asks, self._flags = 0, state.flags
        #: What the body has asked for last.
        self.asked: StepRequest | None = None
        self.start_thread, self._asleep, self._within, self._cut_off = start_thread, asleep, within, cut_off
        self._began = monotonic()
        self._end: Outcome | None = None
        self._interrupt: errors.FlowInterrupt | None = None
        self._lost = self._expired = self._looking = False
        self.branches: list[branches.Branch] = []
        #: Calls of the body that were not awaited yet.
        self.announced: set[FlowCall[Any]] = set()
        self.rows = PendingRows(state, workflow, recorder, flags=self._take, lost=self._lose)
        self._marks = {row.path.removeprefix(f"{CANCEL_MARK} ") for row in state.steps if row.kind is StepKind.CANCEL}
        self._cancel_seen = bool(self._marks)
        # The calls of child runs that have not ended, and whether each was dropped.
        self._calling = {
            row.path: row.is_dropped for row in state.steps if row.kind is StepKind.CALL and not row.is_final
        }
        #: Tasks that end with the pass.
        self.helpers: set[asyncio.Task[Any]] = set()
        self._reads: set[asyncio.Task[None]] = set()
        #: Tasks of branches, perhaps of dropped ones, that the pass waits for.
        self.unfinished: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.Task[None] | None = None

    # ---------------------------------------------------------------- one pass

    async def run(self, arguments: Mapping[str, Any], *, expired: bool = False) -> Outcome:
        """Run the body, and the undos if the run ends otherwise than by success; return how the pass has ended.

        A pass that has ``expired``, or with undos that have begun, takes no new step. Raise `asyncio.CancelledError` if
        the caller has cancelled it, or `LeaseLost`.
        """
        main = self._main_branch()
        main.replay_only = expired or self.undos.begun
        self._expired = expired
        result, error = None, None
        try:
            try:
                result = await self._within(self.run_branch(main, functools.partial(self._body, arguments)))
            except BaseException as raised:  # noqa: BLE001 - the body may raise anything
                error = raised
            return await self._ended(main, arguments, result, error)
        except RunEnded as end:
            return end.outcome
        finally:
            self._forget()

    async def compare(self, arguments: Mapping[str, Any]) -> Any:
        """Run the body without a new step or an undo, and return its result.

        Raise its error, `RunEnded` if it does not fit the recorded steps, or `BranchDropped` where it asks for another.
        """
        main = self._main_branch()
        main.replay_only = True
        try:
            result = await self.run_branch(main, functools.partial(self._body, arguments))
        except BaseException as error:
            if self._end is not None:
                raise RunEnded(self._end) from error
            if not is_a(error, errors.BranchDropped):
                self._check_whole(error)
            raise
        finally:
            self._forget()
        misused = self._misuse()
        if misused is not None:
            raise misused
        return result

    def _main_branch(self) -> branches.Branch:
        return branches.Branch("", self.claim.started_at, self.seed)

    def _body(self, arguments: Mapping[str, Any]) -> Any:
        flow = (Flow if self.workflow.is_async else SyncFlow)(self._calls(self))
        name = self.workflow.signature.context
        assert name is not None  # a workflow takes a flow
        return self.workflow.function(**{name: flow}, **arguments)

    async def run_branch(self, branch: branches.Branch, start: Callable[[], Any]) -> Any:
        """Run the code of a branch in the current task, or in a thread if the body is no coroutine."""
        self.branches.append(branch)
        branch.task = asyncio.current_task()
        token, refusal = branches.CURRENT.set(branch), REFUSAL.set(BodyRefusal(branch, self._note_misuse))
        try:
            if self.workflow.is_async:
                return await start()
            return await self._in_thread(branch, start)
        finally:
            REFUSAL.reset(refusal)
            branches.CURRENT.reset(token)
            self.branches.remove(branch)
            self.receipts.ends(branch)
            if branch.parent is not None:
                # Until it has taken note of this end, the parent does something.
                branch.parent.joining = False

    async def _in_thread(self, branch: branches.Branch, start: Callable[[], Any]) -> Any:
        def call() -> Any:
            branch.thread = threading.get_ident()
            return start()

        try:
            if self.start_thread is not None:
                return await self.start_thread(call)
            # In drain mode `def` handlers run in the thread of the event loop, but this one would wait for what that
            # does.
            return await asyncio.to_thread(carried, call)
        except asyncio.CancelledError:
            # The thread cannot be stopped. It makes no further call, and the task of its present one ends.
            branch.thread, helper = None, branch.task
            if helper is not None and helper is not asyncio.current_task() and not helper.done():
                helper.cancel()
                await asyncio.wait([helper])
            raise

    async def _ended(
        self, main: branches.Branch, arguments: Mapping[str, Any], result: object, error: BaseException | None
    ) -> Outcome:
        """Return the outcome of the pass after the end of its body, with a result or an error."""
        self._check_lost()
        if error is not None and self._cut_off() and is_interruption(error):
            raise asyncio.CancelledError from error
        if is_a(error, asyncio.CancelledError):
            undo_cancellation()
        await self._finish_all()
        self._check_lost()
        if self.undos.begun:
            return await self.undos.go_on(self, main)
        self._check_parked(error)
        self._attach_held(main)
        if error is None:
            error = self._misuse() or self._undelivered(main)
        elif self._expired:
            self._check_whole(error)
        if self._expired:
            late = TimeoutError("the deadline of the run has passed")
            return await self.undos.run(self, main, Expired(), late)
        outcome = self._result(result) if error is None else await self._outcome(main, arguments, error)
        if isinstance(outcome, Succeeded) or not self._is_final(outcome):
            await self.rows.flush()
            return outcome
        return await self.undos.run(self, main, outcome, error)

    async def _finish_all(self) -> None:
        """Wait for the work that goes on, but not for long after the time limit of the attempt."""
        while self.unfinished:
            timeout = THREAD_GRACE.total_seconds() if self._is_over else None
            done, _ = await asyncio.wait(self.unfinished, timeout=timeout)
            if not done:
                log.warning("%s: a step still runs after the time limit; what it does is not undone", self.describe())
                return

    def _check_parked(self, error: BaseException | None) -> None:
        """Raise the outcome of a pass that was torn down."""
        if self._end is None:
            return
        if error is None:
            raise RunEnded(
                Held(
                    f"{self.describe()}: its body caught the exception that parks it, and went on "
                    f"({errors.ParkingSwallowed.__name__}): let exceptions pass that are no Exception"
                )
            )
        if self._misused is not None and isinstance(self._end, Parked):
            raise RunEnded(Held(f"{self.describe()}: {self._misused}")) from error
        if not _is_interrupt(error):
            log.warning("%s: its body raised while it was torn down: %r", describe_run(self.run_record), error)
        raise RunEnded(self._end)

    def _note_misuse(self, error: errors.FlowMisused) -> None:
        self._misused = self._misused or error

    def _misuse(self) -> errors.FlowMisused | None:
        """Return the error of a body that has returned and misused its flow; raise `RunEnded` if it does not fit."""
        if self._misused is not None:
            return self._misused
        if self.announced:
            return self._unawaited()
        self._check_whole(None)
        return None

    def _unawaited(self) -> errors.FlowMisused:
        lost = next(iter(self.announced))
        return errors.FlowMisused(f"a call of the flow was never awaited: {lost.asked.line}")

    def _check_whole(self, error: BaseException | None) -> None:
        """Raise the outcome of a run with recorded steps that its body has not reached."""
        missing = self.replay.missing()
        if missing is not None:
            why = missing if self._misused is None else f"{self.describe()}: {self._misused}"
            raise RunEnded(Held(why)) from error

    def _undelivered(self, main: branches.Branch) -> errors.CancelRequested | None:
        """Return the cancellation of the run if its body has not received it."""
        why = self._flags.cancel_why
        return None if why is None or main.delivered else errors.CancelRequested(why)

    async def _outcome(self, main: branches.Branch, arguments: Mapping[str, Any], error: BaseException) -> Outcome:
        """Return the outcome of a body that has raised an error."""
        if not is_a(error, errors.CancelRequested):
            self._check_whole(error)
            outcome = self.outcome_of(error)
            outcome = await self.functions.failure(self.claim, dict(arguments), error, outcome)
            if self._is_final(outcome) or self._undelivered(main) is None:
                return outcome
        return Cancelled(str(self._undelivered(main) or error))

    def _is_final(self, outcome: Outcome) -> bool:
        """Return True if no further attempt of the run follows this outcome."""
        return decide(self.claim, outcome, self.now_at(), 0.0).state in FINAL

    def _result(self, result: object) -> Outcome:
        """Return the outcome of a body that has returned."""
        try:
            raw = self.workflow.returns.check(result)
            if raw is not None:
                check_size(self.describe(), raw)
        except (errors.PayloadError, errors.ConfigurationError) as error:
            return permanent("BAD_RESULT", str(error))
        except errors.ResultTooLarge as error:
            return permanent("RESULT_TOO_LARGE", str(error))
        return Succeeded(raw)

    @property
    def mismatch(self) -> str | None:
        """Why the code does not fit the recorded steps; None if it does."""
        return self._end.why if isinstance(self._end, Held) else None

    @property
    def _is_over(self) -> bool:
        """True if the time limit of the attempt has passed."""
        return monotonic() - self._began >= limit_of(self.claim.policy).total_seconds()

    @property
    def is_late(self) -> bool:
        """True if so much of the time of the attempt has passed that an undo may not end in it."""
        return monotonic() - self._began > limit_of(self.claim.policy).total_seconds() * _LATE

    def ends_with(self, outcome: Outcome) -> NoReturn:
        """End the pass with an outcome."""
        raise RunEnded(outcome)

    @contextlib.contextmanager
    def listed(self, branch: branches.Branch) -> Iterator[None]:
        """Count a branch as one that runs, and open the flow for it again."""
        self._end = self._interrupt = None
        self.branches[:] = [branch]
        branch.task, branch.thread = asyncio.current_task(), None
        try:
            yield
        except errors.Parking:
            assert self._end is not None  # the cause of the interrupt
            raise RunEnded(self._end) from None
        finally:
            self.branches.clear()

    def outcome_of(self, error: BaseException) -> Outcome:
        """Return the outcome of the run for an error that leaves its body."""
        outcome = outcome_of(error)
        if isinstance(outcome, Failed) and self.is_recorded(error):
            # Another pass would raise it again.
            message = outcome.failure.permanent or outcome.failure.message
            return msgspec.structs.replace(outcome, failure=outcome.failure._replace(permanent=message))
        return outcome

    def is_recorded(self, error: BaseException) -> bool:
        """Return True if an error, or one of its causes, was recorded, so that another pass would raise it again."""
        return self.recorded_at(error) is not None

    def recorded_at(self, error: BaseException | None) -> str | None:
        """Return the path of the row of an error or of one of its causes; None if it was not recorded."""
        found = self._found(error)
        return None if found is None else found[0]

    def has_reacted(self, error: BaseException | None) -> bool:
        """Return True if an error was recorded, and the body has called the flow since."""
        found = self._found(error)
        return found is not None and self._asks > found[1]

    def _found(self, error: BaseException | None) -> tuple[str, int] | None:
        seen: set[int] = set()
        link = error
        while link is not None and id(link) not in seen:
            for each, path, asks in self._recorded:
                if link is each:
                    return path, asks
            seen.add(id(link))
            link = link.__cause__
        return None

    def recorded(self, row: StepRecord) -> Exception:
        """Return the error of a step that has failed for good, for the body to receive."""
        error = rebuilt(row.name, row.error or StepError((), "no error was recorded", "ERROR"))
        self.note_error(error, row.path)
        return error

    def note_error(self, error: BaseException, path: str) -> None:
        """Note an error that was recorded: another pass would raise it again."""
        self._recorded.append((error, path, self._asks))

    def describe(self) -> str:
        """Return the workflow, the id and the version of the run, for a message."""
        return describe_run(self.run_record)

    def forget(self, work: object) -> None:
        """Take a branch out of the calls that must be awaited, and close a coroutine that was never started."""
        if isinstance(work, FlowCall):
            self.announced.discard(work)
        elif inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            work.close()

    def _check_lost(self) -> None:
        if self._lost:
            raise errors.LeaseLost(f"{describe_run(self.run_record)}: another worker continues it")

    def _forget(self) -> None:
        """Stop what would outlive the pass."""
        for helper in (*self.helpers, *self.unfinished):
            helper.cancel()
        if self._timer is not None:
            self._timer.cancel()

    # ---------------------------------------------------------------- what the body asks for

    @property
    def parking(self) -> bool:
        """True while the body is torn down."""
        return self._end is not None

    def check_open(self, branch: branches.Branch) -> None:
        """Raise the interrupt again after the teardown has begun, and the cancellation of the attempt."""
        if branch.dropped:
            raise errors.BranchDropped
        if self._interrupt is not None:
            raise type(self._interrupt)(str(self._interrupt))
        # A step that the body takes after that, as in a `finally` block, would be recorded before what was cut off.
        if branch.task is not None and branch.task.cancelling() and (self._cut_off() or self._is_over):
            raise asyncio.CancelledError

    # ---------------------------------------------------------------- identity

    def ask(self, branch: branches.Branch, request: StepRequest) -> Answer:
        """Find the recorded step; hold the run if the code does not fit.

        Raise `FlowMisused` if the code goes on after a call that it must not make, or has cut off the step before.
        """
        if self._misused is not None:
            raise errors.FlowMisused(str(self._misused))
        if branch.cut_off:
            raise errors.FlowMisused(
                f"{request.line}: the step before ({branch.cut_off}) was cut off by the body itself, as by "
                "asyncio.timeout() or asyncio.wait_for(), and a replay would not be cut off there: give "
                "flow.step(..., timeout=...), or race it against flow.sleep() by flow.first()"
            )
        self.asked = request
        self._asks += 1
        answer = self.replay.ask(branch.path, branch.position + 1, request)
        branch.position = answer.position
        if answer.mismatch is not None:
            self.close(Held(answer.mismatch))
            self.check_open(branch)
        if answer.path in self._marks:
            branch.delivered = True
            raise errors.CancelRequested(self._flags.cancel_why)
        if answer.row is not None and answer.row.is_final:
            branch.reached(answer.row.at)
        return answer

    def check_receives(self, branch: branches.Branch) -> None:
        """Raise the interrupt of the run, or that of a branch that may take no new step."""
        self.check_open(branch)
        if branch.replay_only:
            raise errors.BranchDropped

    async def edge(self, branch: branches.Branch, path: str, *, has_effect: bool = False) -> None:
        """Check at the edge of a new step, or after a wait, whether it may go on.

        What the branch has received is written before something that ``has_effect``.
        """
        while True:
            self.check_receives(branch)
            cancel = self._flags.cancel_why
            if cancel is not None and not branch.delivered and not branch.shields:
                branch.delivered = self._cancel_seen = True
                await self.record_for(branch, NewStep(f"{CANCEL_MARK} {path}", StepKind.CANCEL, CANCEL_MARK))
                raise errors.CancelRequested(cancel)
            if not self._flags.paused:
                break
            await self.wait(branch, None, "paused", path)
        self.rows.check_room()
        if has_effect and branch.held:
            await self.flush(branch)

    # ---------------------------------------------------------------- writes

    def expected(self, end: StepEnd) -> StepRecord:
        """Return the row that would be written now, by the time of this process."""
        return resolve(end, self.claim.id, self.claim.lease_id, self.now_at())

    def attach(self, branch: branches.Branch, end: NewStep) -> None:
        """Write a row with the next one; behind what its branch has received, which would be missed before it."""
        if branch.held:
            branch.held.append(branches.Receipt(end, None))
        else:
            self.rows.attach(end)

    async def record(self, end: StepEnd, *more: StepEnd) -> StepRecord:
        """Write rows, with those that were attached and the changed values; return the first one as written."""
        row = await self.rows.record(end, *more)
        self._check_lost()
        return row

    def record_for(
        self, branch: branches.Branch, end: StepEnd, ended: Ended | None = None
    ) -> Coroutine[Any, Any, StepRecord]:
        """Write a row of a branch with what it has received; see `record`. Call ``ended`` with a row that is final."""
        work = self.write_for(branch, end, ended)
        return work if branch.parent is None else self.finish(work)

    async def write_for(self, branch: branches.Branch, end: StepEnd, ended: Ended | None = None) -> StepRecord:
        """Write a row as `record_for` does, as a part of work that a drop does not cut off."""
        if not branch.held:
            row = await self.rows.record(end)
            self._check_lost()
        else:
            held, branch.held = branch.held, []
            try:
                row = await self.record(end, *(each.row for each in held))
            except Exception:
                branch.held[:0] = held
                raise
        self._calling.pop(row.path, None)
        if ended is not None and row.is_final:
            ended(row)
        return row

    async def finish(self, work: Coroutine[Any, Any, R]) -> R:
        """Do work that goes on when its branch is dropped: the pass ends, or parks, after it."""
        task = self.loop.create_task(branches.carrying(work))
        self.unfinished.add(task)
        task.add_done_callback(self._finished)
        # A task that is cancelled before its first turn has not begun the work, which would never be awaited.
        task.add_done_callback(lambda _: work.close())
        try:
            return await asyncio.shield(task)
        except branches.ExitInTask as exit_in_task:
            raise exit_in_task.error from None

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self.unfinished.discard(task)
        # Without this, asyncio would report an exception that a branch which was cut off does not take.
        _ = task.cancelled() or task.exception()
        self.consider()

    async def flush(self, branch: branches.Branch) -> None:
        """Write what a branch has received."""
        if branch.held:
            await self.record_for(branch, branch.held[0].row)

    def _attach_held(self, branch: branches.Branch) -> None:
        """Write what a branch has received with the next row, or with the end of the pass."""
        for each in branch.held:
            self.rows.attach(each.row)
        branch.held = []

    async def start_child(self, path: str, call: ChildCall) -> StepRecord:
        """Start a child run, and write the row of its call."""
        self._calling[path] = False
        return await self.rows.start_child(path, call)

    async def transact(self, branch: branches.Branch, path: str, call: StepCall, ended: Ended | None) -> StepRecord:
        """Call the function of a step with a connection, and write its row in the same transaction."""
        while True:
            await self.edge(branch, path, has_effect=True)
            with contextlib.suppress(branches.StepInterrupted):
                work = self._transact(path, call, ended)
                row = await (work if branch.parent is None else self.finish(work))
                branch.reached(row.at)
                return row

    async def _transact(self, path: str, call: StepCall, ended: Ended | None) -> StepRecord:
        row = await self.rows.transact(path, call)
        if ended is not None:
            ended(row)
        return row

    def _lose(self) -> None:
        self._lost = True
        if self._end is None:
            self.close(Held("its lease is lost"))

    def _take(self, flags: RunFlags) -> None:
        if flags == self._flags:
            return
        self._flags = flags
        for branch in self.branches:
            if branch.wait is not None:
                branch.wait.wake()
            elif branch.step is not None and self._stops(branch, branch.step):
                branch.step.interrupt()

    def _stops(self, branch: branches.Branch, step: branches.RunningStep) -> bool:
        """Return True if the function of a step has to be interrupted, so that its branch meets the edge again."""
        if branch.shields:
            return False
        return (self._flags.cancel_why is not None and not branch.delivered) or (self._flags.paused and step.repeatable)

    def asked_to(self, what: Asked) -> None:
        """Read what operators ask of the run, if it is new."""
        known = self._flags.paused if what == "pause" else self._flags.cancel_why is not None
        if not known and self._end is None:
            # The end of the pass does not cancel it: a connection that is being opened would not be closed.
            read = self.loop.create_task(self._refresh())
            self._reads.add(read)
            read.add_done_callback(self._reads.discard)

    # ---------------------------------------------------------------- waits

    async def wait(self, branch: branches.Branch, due_at: datetime | None, why: str, path: str) -> None:
        """Wait with the row at this path until something has changed, or raise `Parking`; the caller checks again."""
        wait = branch.wait = branches.BranchWait(due_at, why, path)
        self.consider()
        try:
            await wait.woken
        finally:
            branch.wait = None

    async def wait_with(self, branch: branches.Branch, end: StepEnd, why: str) -> StepRecord:
        """Wait with a row that is not written yet: alone, or together with the parking of the run.

        Return the row as written, if something has changed before the run could park.
        """
        wait = branch.wait = branches.BranchWait(self.expected(end).due_at, why, end.path, end)
        self.consider()
        try:
            await wait.woken
        finally:
            branch.wait = None
        if wait.row is not None:
            wait.row = None
            return await self.record_for(branch, end)
        return wait.written or self.expected(end)

    def consider(self) -> None:
        """Check soon whether every branch waits."""
        if len(self.branches) == 1:
            self._look()
        elif not self._looking:
            self._looking = True
            self.loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        if self._end is not None or not self.branches:
            return
        waiting = [(branch, branch.wait) for branch in self.branches if branch.wait is not None]
        if any(wait.woken.done() for _, wait in waiting) or not waiting:
            return
        if all(branch.is_idle for branch in self.branches) and not self.unfinished:
            self._park([wait for _, wait in waiting])
            return
        for branch, wait in waiting:
            if wait.row is not None:
                self._spawn(self._write_wait(branch, wait, wait.row))
                wait.row = None
            elif branch.held:
                self._spawn(self._write_held(branch))
        if self._timer is None or self._timer.done():
            self._timer = self.loop.create_task(self._keep_times())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        helper = self.loop.create_task(work)
        self.helpers.add(helper)
        helper.add_done_callback(self.helpers.discard)

    async def _write_held(self, branch: branches.Branch) -> None:
        with contextlib.suppress(errors.LeaseLost):
            await self.flush(branch)

    async def _write_wait(self, branch: branches.Branch, wait: branches.BranchWait, end: StepEnd) -> None:
        # The next call of the branch raises it.
        with contextlib.suppress(errors.LeaseLost):
            wait.written = await self.record_for(branch, end)
            wait.due_at = wait.written.due_at
            if wait.written.is_final and end.kind is not StepKind.SLEEP:
                wait.wake()

    def _park(self, waits: list[branches.BranchWait]) -> None:
        due = min((wait.due_at for wait in waits if wait.due_at is not None and wait.row is None), default=None)
        for wait in waits:
            if wait.row is not None:
                self.rows.attach(wait.row)
        for branch in self.branches:
            self._attach_held(branch)
        if self._flags.cancel_why is not None and not self._cancel_seen:
            # Behind a shield, and while undos run. Without the row the run would be due at once to receive it.
            self.rows.attach(NewStep(CANCEL_SEEN, StepKind.CANCEL, CANCEL_SEEN))
        why = "; ".join(sorted({wait.why for wait in waits}))
        # Waits of branches that were dropped are not among these, and their rows go.
        open_waits = tuple(wait.path for wait in waits)
        until = None if due is None or due >= FAR else due
        rows, values = self.rows.take(), self.rows.changed_values()
        drops = any(dropped is (path in open_waits) for path, dropped in self._calling.items())
        self.close(Parked(until, why, rows, values, open_waits, self._flags.paused, self.undos.begun, drops))

    def close(self, end: Outcome) -> None:
        """Tear the body down: throw the interrupt into each wait, in the order of the branches."""
        if self._end is None:
            self._end = end
            self._interrupt = errors.Parking(getattr(end, "why", None))
            for branch in sorted(self.branches, key=lambda each: each.path):
                if branch.wait is not None:
                    branch.wait.throw(errors.Parking(str(self._interrupt)))

    async def _keep_times(self) -> None:
        """Wake branches at their due times, and poll for signals, while another branch works."""
        while self._end is None:
            waits = [branch.wait for branch in self.branches if branch.wait is not None]
            if not waits:
                return
            now = self.now_at()
            due = min((wait.due_at for wait in waits if wait.due_at is not None), default=None)
            left = _LOOK if due is None else min(max((due - now).total_seconds(), 0.0), _LOOK)
            await self._asleep(left)
            await self._refresh()
            now = self.now_at()
            for wait in waits:
                if wait.due_at is not None and wait.due_at <= now:
                    wait.wake()

    async def _refresh(self) -> None:
        """Read what has arrived for the run, and wake its waits if something has."""
        fresh = await self.recorder.arrived()
        if fresh is None:
            return
        self._take(fresh.flags)
        if self.inbox.add(fresh.arrived):
            for branch in self.branches:
                if branch.wait is not None:
                    branch.wait.wake()


def _is_interrupt(error: BaseException) -> bool:
    """Return True for an interrupt, for a group of them, and for an error that was raised while one passed."""
    if is_a(error, BaseExceptionGroup):
        return all(_is_interrupt(each) for each in error.exceptions)
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        if is_a(link, errors.FlowInterrupt):
            return True
        seen.add(id(link))
        link = link.__context__
    return False
