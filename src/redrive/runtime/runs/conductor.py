"""What a body asks for: a recorded value, something that is carried out, or a wait.

The way of a call, with the module of each part::

    call of the body          body       checks that the branch may call
      -> ask                  conductor  recorded? --- final row ---> its value or its error
           `--- new --> edge  conductor  cancelled? paused?
      -> the step, ...        steps, waits, groups
           |--> record        writes     --> its value or its error
           `--> wait          parking    a retry, a sleep, a signal, a child; if every branch waits: Parked

After the teardown of a body that parks has begun, every call raises the interrupt again and does nothing.
`redrive.runtime.runs.passes` runs the body, and decides with which outcome a pass ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import datetime
from typing import Any, NoReturn, Protocol, TypeAlias

from redrive.app.app import App
from redrive.app.flows.calls import StepFunction, Undo
from redrive.app.flows.flow_call import ConductorProtocol, FlowCall
from redrive.app.flows.workflow import Workflow
from redrive.app.loading import REFUSAL
from redrive.app.payload import NOT_DECODED
from redrive.app.tasks.failures import carried
from redrive.clock import SystemClock
from redrive.engine.lease import limit_of
from redrive.engine.outcome import Held, Outcome, Parked
from redrive.engine.records import ENCODED, Claim
from redrive.engine.replay import Answer, Replay, StepRequest, describe_run
from redrive.engine.runs import RunFlags, RunRecord, RunState, StepKind, StepRecord, is_named
from redrive.engine.steps import NewStep
from redrive.errors import (
    BranchDropped,
    CancelRequested,
    FlowMisused,
    Parking,
)
from redrive.policy import Policy
from redrive.runtime.functions import PolicyFunctions
from redrive.runtime.runs.branches import (
    CANCEL_MARK,
    CURRENT,
    Branch,
    RunningStep,
)
from redrive.runtime.runs.keyed import Keyed, Patience
from redrive.runtime.runs.parking import Waits
from redrive.runtime.runs.receipts import Inbox, Receipts
from redrive.runtime.runs.recorded import RecordedErrors
from redrive.runtime.runs.recorder import Recorder
from redrive.runtime.runs.refused import BodyRefusal
from redrive.runtime.runs.writes import Writes
from redrive.stores.operations.runs.steps import Arrivals
from redrive.stores.operations.workers import Asked

#: The path and the name of the row that records that a cancellation has to wait.
CANCEL_SEEN = ":cancel-seen"

# The part of the time limit of an attempt after which no further undo begins in it.
_LATE = 0.1

monotonic: Callable[[], float] = SystemClock.monotonic

StartThread: TypeAlias = Callable[[Callable[[], Any]], asyncio.Future[Any]]
"""Starts a function in a thread."""


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


def encoded(run: RunRecord, steps: Sequence[StepRecord], arrived: Arrivals) -> str | None:
    """Return why a run cannot go on because the store could not decode a document of it; None if it can.

    Its body would take the error of one value for the failure of its step, and undo the others.
    """
    signals, emits, children = arrived
    documents = (
        run.values,
        *[row.result for row in steps],
        *[each.payload for each in signals],
        *[each.payload for each in emits],
        *[each.result for each in children],
    )
    if not any(each is not None and each.startswith(ENCODED) for each in documents):
        return None
    return f"{describe_run(run)}: a document of it is encoded, and this worker cannot decode it: {NOT_DECODED}"


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
        patience: how long a body with named calls keeps its worker.
    """

    claim: Claim
    workflow: Workflow[Any, Any, Any]
    run_record: RunRecord
    app: App
    functions: PolicyFunctions
    recorder: Recorder
    now_at: Callable[[], datetime]
    inbox: Inbox
    replay: Replay
    undos: UndoList
    calls: Callable[[Conductor], ConductorProtocol]
    loop: asyncio.AbstractEventLoop
    errors: RecordedErrors
    flags: RunFlags
    start_thread: StartThread | None
    cut_off: Callable[[], bool]
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
        patience: Patience,
    ) -> None:
        self.claim, self.workflow, self.run_record = claim, workflow, state.run
        self.seed: str = f"{state.run.workflow} {state.run.id} {state.run.epoch}"
        self.app, self.functions, self.recorder, self.now_at = app, functions, recorder, now
        self.inbox, self.replay = Inbox(state), Replay(state.run, state.steps)
        self.receipts: Receipts = Receipts(self.inbox)
        self.undos, self.calls, self.loop = undos, calls, asyncio.get_running_loop()
        self.errors, self.flags = RecordedErrors(), state.flags
        #: What the body has asked for last.
        self.asked: StepRequest | None = None
        self.start_thread, self.cut_off, self._began = start_thread, cut_off, monotonic()
        self.branches: list[Branch] = []
        #: Calls of the body that were not awaited yet.
        self.announced: set[FlowCall[Any]] = set()
        ends = {"lost": self._lose, "finished": self._finished}
        self.writes: Writes = Writes(claim, workflow, state, recorder, now=now, flags=self._take, **ends)
        self.waits: Waits = Waits(
            self.branches,
            self.writes,
            parked=self._parked,
            refresh=self._refresh,
            now=now,
            asleep=asleep,
            is_virtual=app.clock is not None,
        )
        self._marks = {row.path.removeprefix(f"{CANCEL_MARK} ") for row in state.steps if row.kind is StepKind.CANCEL}
        self._cancel_seen = bool(self._marks)
        self._steps, self._patience = state.steps, patience
        #: The named calls of the body; None for a body that makes none.
        self.keyed = self._new_keyed() if any(is_named(row.path) for row in state.steps) else None
        #: Tasks that end with the pass.
        self.helpers: set[asyncio.Task[Any]] = set()
        self._reads: set[asyncio.Task[None]] = set()

    # ---------------------------------------------------------------- named calls

    def name_calls(self) -> Keyed:
        """Return the named calls of the body, from the first one on."""
        if self.keyed is None:
            for branch in self.branches:
                # What it has received is written with the next row of the run, and not of the branch alone.
                self.writes.attach_held(branch)
            self.keyed = self._new_keyed()
        return self.keyed

    def _new_keyed(self) -> Keyed:
        keyed = self.waits.keyed = Keyed(
            self._steps,
            self.replay,
            self.waits,
            self.writes,
            self.inbox,
            self.branches,
            seed=self.seed,
            patience=self._patience,
            ends=lambda: self.cut_off() or self.is_over,
            describe=self.describe,
        )
        self.writes.number = keyed.number
        return keyed

    async def ready(self, branch: Branch, answer: Answer) -> None:
        """Hold a call back until it may begin; only beside named calls."""
        if self.keyed is not None and self.asked is not None:
            await self.keyed.ready(branch, answer, self.asked)

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
        return self.waits.end.why if isinstance(self.waits.end, Held) else None

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
        self.waits.open()
        self.branches[:] = [branch]
        branch.task, branch.thread = asyncio.current_task(), None
        try:
            yield
        except Parking:
            assert self.waits.end is not None
            raise RunEnded(self.waits.end) from None
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

    def stop_helpers(self) -> None:
        """Stop what would outlive the pass."""
        for helper in (*self.helpers, *self.writes.unfinished):
            helper.cancel()
        self.waits.stop()

    # ---------------------------------------------------------------- what the body asks for

    def check_open(self, branch: Branch) -> None:
        """Raise the interrupt again after the teardown has begun, and the cancellation of the attempt."""
        if branch.dropped:
            raise BranchDropped
        if self.waits.interrupt is not None:
            raise type(self.waits.interrupt)(str(self.waits.interrupt))
        # A step that the body takes after that, as in a `finally` block, would be recorded before what was cut off.
        if branch.task is not None and branch.task.cancelling() and (self.cut_off() or self.is_over):
            raise asyncio.CancelledError

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
            self.waits.close(Held(answer.mismatch))
            self.check_open(branch)
        if answer.path in self._marks:
            branch.deliver()
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
                branch.deliver()
                self._cancel_seen = True
                await self.writes.record_for(branch, NewStep(f"{CANCEL_MARK} {path}", StepKind.CANCEL, CANCEL_MARK))
                raise CancelRequested(cancel)
            if not self.flags.paused:
                break
            await self.waits.wait(branch, None, "paused", path)
        self.writes.rows.check_room()
        if has_effect and branch.held:
            await self.writes.flush(branch)

    # ---------------------------------------------------------------- what operators ask for

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
        if not known and self.waits.end is None:
            # The end of the pass does not cancel it: a connection that is being opened would not be closed.
            read = self.loop.create_task(self._refresh())
            self._reads.add(read)
            read.add_done_callback(self._reads.discard)

    async def _refresh(self) -> None:
        """Read what has arrived for the run, and wake its waits if something has."""
        fresh = await self.recorder.arrived()
        if fresh is None:
            return
        self._take(fresh.flags)
        undecoded = encoded(self.run_record, (), fresh.arrived)
        if undecoded is not None and self.waits.end is None:
            self.waits.close(Held(undecoded))
            return
        if self.inbox.add(fresh.arrived):
            self.waits.wake()

    # ---------------------------------------------------------------- what the writes and the waits report

    def _lose(self) -> None:
        self.waits.close(Held("its lease is lost"))

    def _finished(self) -> None:
        self.waits.consider()

    def _parked(self, until: datetime | None, why: str, open_waits: tuple[str, ...]) -> Parked:
        """Return the outcome of a pass whose branches all wait."""
        rows, calling = self.writes.rows, self.writes.calling
        if self.flags.cancel_why is not None and not self._cancel_seen:
            # Behind a shield, and while undos run. Without the row the run would be due at once to receive it.
            rows.attach(NewStep(CANCEL_SEEN, StepKind.CANCEL, CANCEL_SEEN))
        drops = any(dropped is (path in open_waits) for path, dropped in calling.items())
        paused, undoing = self.flags.paused, self.undos.begun
        before = self.recorder.before
        return Parked(until, why, rows.take(), rows.changed_values(), open_waits, paused, undoing, drops, before)
