"""What a body asks for: a recorded value, something that is carried out, or a wait.

When every branch waits, the conductor tears the body down: it throws `Parking` into each wait, in the order of the
branches, and the body ends. A body is not torn down while a branch still works, because the effect of that would be
repeated; until then this process keeps the due times of the other branches. After the teardown has begun, every call
raises the interrupt again and does nothing::

    call of the body -> ask: recorded? --- final row ---> its value or its error
                          `--- new ---> edge: cancelled? paused? -> the step -> record -> its value or its error
                                          |                          |
                                          `------> wait <------------'  a retry, a sleep, a signal, a child
                                                    |
                       consider: do all branches wait? --- yes ---> Parked, close
                                                    `------ no ----> write waits, keep their times

`redrive.runtime.runs.passes` runs the body, and decides with which outcome a pass ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar

from redrive.app.app import App
from redrive.app.flows.calls import ChildCall, StepCall, StepFunction, Undo
from redrive.app.flows.flow import ConductorProtocol, FlowCall
from redrive.app.flows.workflow import Workflow
from redrive.app.loading import REFUSAL
from redrive.app.tasks.failures import carried
from redrive.clock import SystemClock
from redrive.engine.lease import limit_of
from redrive.engine.outcome import Held, Outcome, Parked
from redrive.engine.records import Claim
from redrive.engine.replay import Answer, Replay, StepRequest, describe_run
from redrive.engine.runs import FAR, RunFlags, RunState, StepKind, StepRecord
from redrive.engine.steps import NewStep, StepEnd, resolve
from redrive.errors import (
    BranchDropped,
    CancelRequested,
    FlowInterrupt,
    FlowMisused,
    LeaseLost,
    Parking,
)
from redrive.policy import Policy
from redrive.runtime.functions import PolicyFunctions
from redrive.runtime.runs.branches import (
    CURRENT,
    Branch,
    BranchWait,
    ExitInTask,
    Receipt,
    RunningStep,
    StepInterrupted,
    carrying,
)
from redrive.runtime.runs.receipts import Inbox, Receipts
from redrive.runtime.runs.recorded import RecordedErrors
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

    def keep(self, path: str, value: Any) -> None:
        """Keep what the function of a step has returned, which cannot be stored, for its undo."""

    async def run(self, conductor: Conductor, main: Branch, outcome: Outcome, error: BaseException | None) -> Outcome:
        """Begin and run the undos of a run that ends with this outcome, and return what it ends with."""

    async def go_on(self, conductor: Conductor, main: Branch) -> Outcome:
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
        cut_off: returns True if the caller has cancelled the attempt.
    """

    # The error of an operation that the body must not call.
    misused: FlowMisused | None = None

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
        cut_off: Callable[[], bool],
    ) -> None:
        self.claim, self.workflow, self.run_record = claim, workflow, state.run
        self.seed = f"{state.run.workflow} {state.run.id} {state.run.epoch}"
        self.app, self.functions, self.recorder, self.now_at = app, functions, recorder, now
        self.inbox, self.replay = Inbox(state), Replay(state.run, state.steps)
        self.receipts = Receipts(self.inbox)
        self.undos, self.calls = undos, calls
        self.loop = asyncio.get_running_loop()
        self.errors, self.flags = RecordedErrors(), state.flags
        #: What the body has asked for last.
        self.asked: StepRequest | None = None
        self.start_thread, self._asleep, self.cut_off = start_thread, asleep, cut_off
        self._began = monotonic()
        self.end: Outcome | None = None
        self._interrupt: FlowInterrupt | None = None
        self._lost = self._looking = False
        self.branches: list[Branch] = []
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

    # ---------------------------------------------------------------- branches

    async def run_branch(self, branch: Branch, start: Callable[[], Any]) -> Any:
        """Run the code of a branch in the current task, or in a thread if the body is no coroutine."""
        self.branches.append(branch)
        branch.task = asyncio.current_task()
        token, refusal = CURRENT.set(branch), REFUSAL.set(BodyRefusal(branch, self._note_misuse))
        try:
            if self.workflow.is_async:
                return await start()
            return await self._in_thread(branch, start)
        finally:
            REFUSAL.reset(refusal)
            CURRENT.reset(token)
            self.branches.remove(branch)
            self.receipts.ends(branch)
            if branch.parent is not None:
                # Until it has taken note of this end, the parent does something.
                branch.parent.joining = False

    async def _in_thread(self, branch: Branch, start: Callable[[], Any]) -> Any:
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

    def _note_misuse(self, error: FlowMisused) -> None:
        self.misused = self.misused or error

    @property
    def mismatch(self) -> str | None:
        """Why the code does not fit the recorded steps; None if it does."""
        return self.end.why if isinstance(self.end, Held) else None

    @property
    def is_over(self) -> bool:
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
    def listed(self, branch: Branch) -> Iterator[None]:
        """Count a branch as one that runs, and open the flow for it again."""
        self.end = self._interrupt = None
        self.branches[:] = [branch]
        branch.task, branch.thread = asyncio.current_task(), None
        try:
            yield
        except Parking:
            assert self.end is not None
            raise RunEnded(self.end) from None
        finally:
            self.branches.clear()

    def describe(self) -> str:
        """Return the workflow, the id and the version of the run, for a message."""
        return describe_run(self.run_record)

    def forget(self, work: object) -> None:
        """Take a branch out of the calls that must be awaited, and close a coroutine that was never started."""
        if isinstance(work, FlowCall):
            self.announced.discard(work)
        elif inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            work.close()

    def check_lost(self) -> None:
        """Raise `LeaseLost` if another worker continues the run."""
        if self._lost:
            raise LeaseLost(f"{describe_run(self.run_record)}: another worker continues it")

    def stop_helpers(self) -> None:
        """Stop what would outlive the pass."""
        for helper in (*self.helpers, *self.unfinished):
            helper.cancel()
        if self._timer is not None:
            self._timer.cancel()

    # ---------------------------------------------------------------- what the body asks for

    @property
    def parking(self) -> bool:
        """True while the body is torn down."""
        return self.end is not None

    def check_open(self, branch: Branch) -> None:
        """Raise the interrupt again after the teardown has begun, and the cancellation of the attempt."""
        if branch.dropped:
            raise BranchDropped
        if self._interrupt is not None:
            raise type(self._interrupt)(str(self._interrupt))
        # A step that the body takes after that, as in a `finally` block, would be recorded before what was cut off.
        if branch.task is not None and branch.task.cancelling() and (self.cut_off() or self.is_over):
            raise asyncio.CancelledError

    # ---------------------------------------------------------------- identity

    def ask(self, branch: Branch, request: StepRequest) -> Answer:
        """Find the recorded step; hold the run if the code does not fit.

        Raise `FlowMisused` if the code goes on after a call that it must not make, or has cut off the step before.
        """
        if self.misused is not None:
            raise FlowMisused(str(self.misused))
        if branch.cut_off:
            raise FlowMisused(
                f"{request.line}: the step before ({branch.cut_off}) was cut off by the body itself, as by "
                "asyncio.timeout() or asyncio.wait_for(), and a replay would not be cut off there: give "
                "flow.step(..., timeout=...), or race it against flow.sleep() by flow.first()"
            )
        self.asked = request
        self.errors.asks += 1
        answer = self.replay.ask(branch.path, branch.position + 1, request)
        branch.position = answer.position
        if answer.mismatch is not None:
            self.close(Held(answer.mismatch))
            self.check_open(branch)
        if answer.path in self._marks:
            branch.delivered = True
            raise CancelRequested(self.flags.cancel_why)
        if answer.row is not None and answer.row.is_final:
            branch.reached(answer.row.at)
        return answer

    def check_receives(self, branch: Branch) -> None:
        """Raise the interrupt of the run, or that of a branch that may take no new step."""
        self.check_open(branch)
        if branch.replay_only:
            raise BranchDropped

    async def edge(self, branch: Branch, path: str, *, has_effect: bool = False) -> None:
        """Check at the edge of a new step, or after a wait, whether it may go on.

        What the branch has received is written before something that ``has_effect``.
        """
        while True:
            self.check_receives(branch)
            cancel = self.flags.cancel_why
            if cancel is not None and not branch.delivered and not branch.shields:
                branch.delivered = self._cancel_seen = True
                await self.record_for(branch, NewStep(f"{CANCEL_MARK} {path}", StepKind.CANCEL, CANCEL_MARK))
                raise CancelRequested(cancel)
            if not self.flags.paused:
                break
            await self.wait(branch, None, "paused", path)
        self.rows.check_room()
        if has_effect and branch.held:
            await self.flush(branch)

    # ---------------------------------------------------------------- writes

    def expected(self, end: StepEnd) -> StepRecord:
        """Return the row that would be written now, by the time of this process."""
        return resolve(end, self.claim.id, self.claim.lease_id, self.now_at())

    def attach(self, branch: Branch, end: NewStep) -> None:
        """Write a row with the next one; behind what its branch has received, which would be missed before it."""
        if branch.held:
            branch.held.append(Receipt(end, None))
        else:
            self.rows.attach(end)

    async def record(self, end: StepEnd, *more: StepEnd) -> StepRecord:
        """Write rows, with those that were attached and the changed values; return the first one as written."""
        row = await self.rows.record(end, *more)
        self.check_lost()
        return row

    def record_for(self, branch: Branch, end: StepEnd, ended: Ended | None = None) -> Coroutine[Any, Any, StepRecord]:
        """Write a row of a branch with what it has received; see `record`. Call ``ended`` with a row that is final."""
        work = self.write_for(branch, end, ended)
        return work if branch.parent is None else self.finish(work)

    async def write_for(self, branch: Branch, end: StepEnd, ended: Ended | None = None) -> StepRecord:
        """Write a row as `record_for` does, as a part of work that a drop does not cut off."""
        if not branch.held:
            row = await self.rows.record(end)
            self.check_lost()
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
        task = self.loop.create_task(carrying(work))
        self.unfinished.add(task)
        task.add_done_callback(self._finished)
        # A task that is cancelled before its first turn has not begun the work, which would never be awaited.
        task.add_done_callback(lambda _: work.close())
        try:
            return await asyncio.shield(task)
        except ExitInTask as exit_in_task:
            raise exit_in_task.error from None

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self.unfinished.discard(task)
        # Without this, asyncio would report an exception that a branch which was cut off does not take.
        _ = task.cancelled() or task.exception()
        self.consider()

    async def flush(self, branch: Branch) -> None:
        """Write what a branch has received."""
        if branch.held:
            await self.record_for(branch, branch.held[0].row)

    def attach_held(self, branch: Branch) -> None:
        """Write what a branch has received with the next row, or with the end of the pass."""
        for each in branch.held:
            self.rows.attach(each.row)
        branch.held = []

    async def start_child(self, path: str, call: ChildCall) -> StepRecord:
        """Start a child run, and write the row of its call."""
        self._calling[path] = False
        return await self.rows.start_child(path, call)

    async def transact(self, branch: Branch, path: str, call: StepCall, ended: Ended | None) -> StepRecord:
        """Call the function of a step with a connection, and write its row in the same transaction."""
        while True:
            await self.edge(branch, path, has_effect=True)
            with contextlib.suppress(StepInterrupted):
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
        if self.end is None:
            self.close(Held("its lease is lost"))

    def _take(self, flags: RunFlags) -> None:
        if flags == self.flags:
            return
        self.flags = flags
        for branch in self.branches:
            if branch.wait is not None:
                branch.wait.wake()
            elif branch.step is not None and self._stops(branch, branch.step):
                branch.step.interrupt()

    def _stops(self, branch: Branch, step: RunningStep) -> bool:
        """Return True if the function of a step has to be interrupted, so that its branch meets the edge again."""
        if branch.shields:
            return False
        return (self.flags.cancel_why is not None and not branch.delivered) or (self.flags.paused and step.repeatable)

    def asked_to(self, what: Asked) -> None:
        """Read what operators ask of the run, if it is new."""
        known = self.flags.paused if what == "pause" else self.flags.cancel_why is not None
        if not known and self.end is None:
            # The end of the pass does not cancel it: a connection that is being opened would not be closed.
            read = self.loop.create_task(self._refresh())
            self._reads.add(read)
            read.add_done_callback(self._reads.discard)

    # ---------------------------------------------------------------- waits

    async def wait(self, branch: Branch, due_at: datetime | None, why: str, path: str) -> None:
        """Wait with the row at this path until something has changed, or raise `Parking`; the caller checks again."""
        wait = branch.wait = BranchWait(due_at, why, path)
        self.consider()
        try:
            await wait.woken
        finally:
            branch.wait = None

    async def wait_with(self, branch: Branch, end: StepEnd, why: str) -> StepRecord:
        """Wait with a row that is not written yet: alone, or together with the parking of the run.

        Return the row as written, if something has changed before the run could park.
        """
        wait = branch.wait = BranchWait(self.expected(end).due_at, why, end.path, end)
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
        if self.end is not None or not self.branches:
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

    async def _write_held(self, branch: Branch) -> None:
        with contextlib.suppress(LeaseLost):
            await self.flush(branch)

    async def _write_wait(self, branch: Branch, wait: BranchWait, end: StepEnd) -> None:
        # The next call of the branch raises it.
        with contextlib.suppress(LeaseLost):
            wait.written = await self.record_for(branch, end)
            wait.due_at = wait.written.due_at
            if wait.written.is_final and end.kind is not StepKind.SLEEP:
                wait.wake()

    def _park(self, waits: list[BranchWait]) -> None:
        due = min((wait.due_at for wait in waits if wait.due_at is not None and wait.row is None), default=None)
        for wait in waits:
            if wait.row is not None:
                self.rows.attach(wait.row)
        for branch in self.branches:
            self.attach_held(branch)
        if self.flags.cancel_why is not None and not self._cancel_seen:
            # Behind a shield, and while undos run. Without the row the run would be due at once to receive it.
            self.rows.attach(NewStep(CANCEL_SEEN, StepKind.CANCEL, CANCEL_SEEN))
        why = "; ".join(sorted({wait.why for wait in waits}))
        # Waits of branches that were dropped are not among these, and their rows go.
        open_waits = tuple(wait.path for wait in waits)
        until = None if due is None or due >= FAR else due
        rows, values = self.rows.take(), self.rows.changed_values()
        drops = any(dropped is (path in open_waits) for path, dropped in self._calling.items())
        self.close(Parked(until, why, rows, values, open_waits, self.flags.paused, self.undos.begun, drops))

    def close(self, end: Outcome) -> None:
        """Tear the body down: throw the interrupt into each wait, in the order of the branches."""
        if self.end is None:
            self.end = end
            self._interrupt = Parking(getattr(end, "why", None))
            for branch in sorted(self.branches, key=lambda each: each.path):
                if branch.wait is not None:
                    branch.wait.throw(Parking(str(self._interrupt)))

    async def _keep_times(self) -> None:
        """Wake branches at their due times, and poll for signals, while another branch works."""
        while self.end is None:
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
