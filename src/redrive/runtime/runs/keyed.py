"""The named calls of one pass, which any task of its body makes.

A call has a branch of its own while it is open, so that it waits, is interrupted and is recorded like any other::

    flow.named(...)       a branch for the call, at the path of its name, its inputs and its ordinal
      -> recorded end     given to the body in its turn: the order of the ends is that of their numbers
      -> recorded, open   held back until every recorded step was asked for, then as in the drawing of `conductor`
      -> new              held back likewise; if that never happens, the code has changed: Held
      -> dropped before   waits until the body cuts it off again

A recorded request depends on recorded ends only, because an end is given to the body after it was written, or together
with the rows that depend on it. So a body whose code fits asks for every recorded step without a new one, and nothing
new runs before. In what order tasks ask decides about ordinals, and about the values in queues of the body. So `TURNS`
turns of the event loop lie between two ends, in which the body does all that follows from the first.

From the first named call on, the ends of all calls of the pass have numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from redrive.app.flows.calls import ChildCall, Key, OneCall, SleepCall, StepCall, WaitCall
from redrive.app.loading import REFUSAL
from redrive.clock import SystemClock
from redrive.engine.outcome import Held
from redrive.engine.replay import Answer, Replay, StepRequest
from redrive.engine.runs import SignalRecord, StepKind, StepOutcome, StepRecord, is_named, named_branch, next_path
from redrive.engine.steps import FailedTry, NewStep, StepEnd
from redrive.errors import BranchDropped, CancelRequested, FlowInterrupt, Parking
from redrive.errors.foreign import is_a
from redrive.runtime import log
from redrive.runtime.runs.branches import CANCEL_MARK, Branch
from redrive.runtime.runs.parking import Waits
from redrive.runtime.runs.receipts import Inbox
from redrive.runtime.runs.refused import BodyRefusal
from redrive.runtime.runs.writes import Writes

#: Turns of the event loop between two ends.
TURNS = 50

#: Seconds without a begin or an end of a call after which a body that waits parks; a pass without a new row doubles
#: them.
QUIET, MOST_QUIET = 0.05, 5.0

#: Seconds without a call that begins or ends after which code is held that has not asked for a recorded step.
HELD_AFTER = 2.0

#: Seconds for which the end of a pass waits for tasks that its body has left over.
LEFT_FOR = 5.0

monotonic: Callable[[], float] = SystemClock.monotonic


class _Queued(msgspec.Struct, eq=False):
    """A call that is held back: its branch and path, what it asks for, and its future."""

    branch: Branch
    path: str
    request: StepRequest | None
    turn: asyncio.Future[None]


class Patience(msgspec.Struct, frozen=True):
    """How long a body with named calls keeps its worker.

    Attributes:
        quiet: the seconds without a begin or an end of a call after which it parks, if all calls wait.
        linger: the seconds of a wait that is kept in memory.
    """

    quiet: float = QUIET
    linger: float = 0.0


class Keyed:
    """The named calls of one pass, and the order of its ends.

    Args:
        steps: what is recorded of the run.
        branches: those that run; it adds one for each open named call.
        seed: of random numbers.
        ends: returns True while the pass ends by something else than its body.
    """

    def __init__(  # noqa: PLR0917 - the parts of a pass
        self,
        steps: Iterable[StepRecord],
        replay: Replay,
        waits: Waits,
        writes: Writes,
        inbox: Inbox,
        branches: list[Branch],
        *,
        seed: str,
        patience: Patience,
        ends: Callable[[], bool],
        describe: Callable[[], str],
    ) -> None:
        self._replay, self._waits, self._writes, self._inbox, self._branches = replay, waits, writes, inbox, branches
        self._seed, self._until, self._ends, self._describe = seed, patience, ends, describe
        self._loop = asyncio.get_running_loop()
        self._known = {row.path: row for row in steps}
        numbered = [row for row in self._known.values() if row.seq is not None]
        self._last = max((row.seq or 0 for row in numbered), default=0)
        #: The numbers of ends that the body has not received, by their paths; those of earlier passes are recorded.
        self._pending = {row.path: row.seq or 0 for row in numbered if row.is_final or row.is_renewed}
        self._recorded = set(self._pending)
        self._heap = [(seq, path) for path, seq in self._pending.items()]
        heapq.heapify(self._heap)
        self._ready: dict[str, asyncio.Future[None]] = {}
        self._queue: list[_Queued] = []
        #: True if the body has asked for every recorded step and has received every recorded end.
        self._caught_up = not self._known
        self._ordinals: dict[str, int] = {}
        self._open: dict[Branch, float] = {}
        #: Calls that wait to be cut off again, with the seconds after which they were before.
        self._to_cut: dict[Branch, float] = {}
        self._received: dict[str, SignalRecord] = {}
        self._since, self._rest, self._resting = self._loop.time(), 0, False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._over = False
        #: True if the body was ended because it was only to be replayed, and has asked for all that is recorded.
        self.replayed: bool = False
        self._stir()
        self._watch()

    # ---------------------------------------------------------------- one call

    @contextlib.contextmanager
    def opened(self, parent: Branch, asked: OneCall, key: Key) -> Iterator[Branch]:
        """Open a branch for one named call, in the task that makes it."""
        path = named_branch(_kind(asked), key.name, key.digest or 0)
        branch = Branch(path, parent.at, self._seed, parent)
        branch.position = self._ordinals.get(path, 0)
        self._ordinals[path] = branch.position + 1
        branch.task = asyncio.current_task()
        assert branch.task is not None  # a coroutine runs in a task
        self._tasks.add(branch.task)
        self._branches.append(branch)
        self._open[branch] = monotonic()
        self._began()
        try:
            yield branch
        except asyncio.CancelledError:
            self._cut(branch, asked, key)
            raise
        finally:
            parent.reached(branch.at)
            # The undos of the run, and another pass, have other lists.
            if branch in self._branches:
                self._branches.remove(branch)
            del self._open[branch]
            self._to_cut.pop(branch, None)
            self._ended()

    async def ready(self, branch: Branch, answer: Answer, request: StepRequest) -> None:
        """Hold a call back whose end is not recorded; wait for the end of one that the body has cut off before."""
        row, path = answer.row, answer.path
        if row is not None and row.outcome is StepOutcome.DROPPED:
            self._to_cut[branch] = row.took.total_seconds()
            self._watch()
            # The body cuts it off, or the end of the pass.
            await self._held(_Queued(branch, path, None, self._loop.create_future()))
        if row is None or not row.is_final:
            if branch.replay_only and not branch.root.replay_only:
                # Another branch has won, or has failed first.
                raise BranchDropped
            # What was undone before the first named call is executed anew before it.
            is_first = row is not None and row.is_renewed and row.seq is None
            if not self._caught_up and not is_first:
                turn = self._loop.create_future()
                await self._held(_Queued(branch, path, request if row is None else None, turn), queued=True)
            elif branch.root.replay_only and not is_first:
                self._end_replay()
        branch.began = True

    async def _held(self, call: _Queued, *, queued: bool = False) -> None:
        if self._waits.end is not None:
            raise asyncio.CancelledError
        if queued:
            self._queue.append(call)
        self._ready.setdefault(call.path, call.turn)
        self._began()
        try:
            await call.turn
        finally:
            self._ready.pop(call.path, None)
            if call in self._queue:
                self._queue.remove(call)

    # ---------------------------------------------------------------- the order of the ends

    def number(self, branch: Branch, end: StepEnd) -> StepEnd:
        """Return the row of an end with its number; a call that was cut off keeps its effect, and has no number."""
        if end.kind in (StepKind.UNDO, StepKind.PATCH):
            return end
        if branch.is_cut:
            return _late(end)
        is_open = end.outcome is StepOutcome.WAITING if isinstance(end, NewStep) else self._is_tried_again(end)
        if is_open or branch.dropped or branch.replay_only:
            return end
        seq = self._pending.get(end.path)
        if seq is None:
            self._last = seq = self._last + 1
            self._pending[end.path] = seq
            heapq.heappush(self._heap, (seq, end.path))
        return replace(end, seq=seq)

    def _is_tried_again(self, end: FailedTry) -> bool:
        return not self._writes.expected(end).is_final

    async def turn(self, branch: Branch) -> None:
        """Wait until the end of the present call of a branch is the next one that the body receives."""
        call = next_path(branch.path, branch.position)
        path = next((each for each in (call, f"{CANCEL_MARK} {call}") if each in self._pending), None)
        if path is None:
            return
        try:
            while self._resting or self._first() != path:
                if self._waits.end is not None:
                    raise asyncio.CancelledError
                self._ready[path] = turn = self._loop.create_future()
                await turn
        finally:
            self._ready.pop(path, None)
            self.release(path)
            self._since = self._loop.time()
            if self._pending or len(self._open) > 1 or not self._caught_up:
                self._stir()

    async def failed(self, branch: Branch, error: BaseException) -> None:
        """Let the error of a call wait for its turn; raise `asyncio.CancelledError` in the place of `Parking`."""
        if is_a(error, Parking):
            raise asyncio.CancelledError("the run is parked") from None
        if is_a(error, asyncio.CancelledError) or (is_a(error, FlowInterrupt) and not is_a(error, CancelRequested)):
            self.release(next_path(branch.path, branch.position))
        else:
            await self.turn(branch)

    def _first(self) -> str | None:
        """Return the path of the next end that the body receives."""
        while self._heap and self._pending.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][1] if self._heap else None

    def release(self, path: str) -> None:
        """Take an end out of the order."""
        if self._pending.pop(path, None) is not None:
            self._recorded.discard(path)
            self._wake()

    def leave_out(self, paths: Iterable[str]) -> None:
        """Take the ends of a branch out of the order: what it does has no effect on the body."""
        for path in paths:
            self.release(path)

    def _wake(self) -> None:
        """Let the next end go on, if the body rests."""
        turn = None if self._resting else self._ready.get(self._first() or "")
        if turn is not None and not turn.done():
            turn.set_result(None)

    def _stir(self) -> None:
        """Note that the body goes on; it rests `TURNS` turns later."""
        self._rest = TURNS
        if not self._resting:
            self._resting = True
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._rest -= 1
        if self._rest > 0:
            self._loop.call_soon(self._tick)
            return
        self._resting = False
        if not self._caught_up and self._first() not in self._ready:
            self._advance()
        # An end, or a step that was undone: it is executed anew at its place in the order.
        self._wake()

    def _advance(self) -> None:
        """Let what is held back go on if the body has asked for all that is recorded, and has received it."""
        if self._over or self._waits.end is not None:
            return
        if not self._replay.misses:
            # What follows a step that is executed anew may not be asked for.
            self.leave_out([path for path in self._recorded if self._replay.is_left(path)])
            if not self._recorded:
                self._catch_up()
                return

    def _catch_up(self) -> None:
        self._caught_up = True
        if self._queue and self._queue[0].branch.root.replay_only:
            self._end_replay()
            return
        for each in self._queue:
            if not each.turn.done():
                each.turn.set_result(None)

    def _end_replay(self) -> None:
        """End a body that was only to be replayed: it has asked for all that is recorded."""
        self.replayed = True
        self.tear_down()

    def end_below(self, branch: Branch) -> None:
        """Cancel the tasks with open calls that a dropped branch has left over."""
        for each in self._open:
            if each.is_below(branch) and each.task is not None:
                each.task.cancel("its branch was dropped")

    def decision(self, path: str) -> asyncio.Future[None] | None:
        """Return a future that is done when a recorded decision is the next end; None if it has no number."""
        if path not in self._pending:
            return None
        turn = self._ready[path] = self._loop.create_future()
        self._stir()
        return turn

    # ---------------------------------------------------------------- calls that the body cuts off

    def _cut(self, branch: Branch, asked: OneCall, key: Key) -> None:
        """Record a call that the body has cut off, with its next row."""
        ends = self._over or self.replayed or self._waits.end is not None or self._ends()
        if ends or branch.dropped or branch.replay_only or not branch.began:
            return
        path = next_path(branch.path, branch.position)
        row = self._known.get(path)
        branch.drop()
        self.release(path)
        kind, ref = _kind(asked), branch.ref or (None if row is None else row.ref)
        if kind is StepKind.CALL and ref is None:
            # Its start goes on, and notes that the call was dropped.
            return
        took = timedelta(seconds=monotonic() - self._open[branch])
        end = NewStep(path, kind, recorded_name(asked, key), StepOutcome.DROPPED, took, digest=key.digest, ref=ref)
        if self._writes.rows.drop(end) and path in self._received:
            self._inbox.give_back([self._received.pop(path)])
            self._waits.wake()

    def receive(self, branch: Branch, row: NewStep, signal: SignalRecord) -> None:
        """Take a signal out of the inbox for a call; its row is written with the next one of the pass."""
        self._inbox.signals.remove(signal)
        self._received[row.path] = signal
        self._writes.rows.attach(self.number(branch, row))

    # ---------------------------------------------------------------- waiting, parking and the end

    def _began(self) -> None:
        self._since = self._loop.time()
        if not self._caught_up:
            self._stir()

    def _ended(self) -> None:
        self._since = self._loop.time()
        if not self._over:
            self._waits.consider()

    def all_wait(self) -> bool:
        """Return True if no function of a step runs: every call waits, and the rest is up to the body."""
        return all(branch.is_idle or branch in self._to_cut or self._is_undecided(branch) for branch in self._branches)

    @staticmethod
    def _is_undecided(branch: Branch) -> bool:
        """Return True for a branch that is not in a call of the flow: it may go on, or wait for a named call."""
        return not is_named(branch.path) and not branch.calls and branch.thread is None

    def is_short(self, left: float | None) -> bool:
        """Return True for a wait that is kept in memory: it ends in so many seconds."""
        return left is not None and left < self._until.linger

    def settle(self, park: Callable[[], None]) -> None:
        """Park the body if no call begins or ends for a while, and nothing that is recorded is left."""
        if self._caught_up and not self._to_cut:
            self._at("settle", self._since + self._until.quiet, lambda: self._settled(park))

    def _settled(self, park: Callable[[], None]) -> None:
        if self._waits.end is not None:
            return
        if not self.all_wait():
            # A step has begun meanwhile: until it ends, the times of the waits are kept here.
            self._waits.consider()
        elif self._loop.time() < self._since + self._until.quiet:
            self.settle(park)
        else:
            park()

    def _at(self, what: str, when: float, action: Callable[[], None]) -> None:
        timer = self._timers.get(what)
        if timer is not None:
            timer.cancel()
        self._timers[what] = self._loop.call_at(when, action)

    def _watch(self) -> None:
        """Hold the run if nothing begins or ends while a recorded step was not asked for."""
        if not self._over and not (self._caught_up and not self._to_cut):
            self._at("watch", self._patience(), self._look)

    def _patience(self) -> float:
        return self._since + HELD_AFTER + max(self._to_cut.values(), default=0.0)

    def _look(self) -> None:
        if self._waits.end is not None or (self._caught_up and not self._to_cut):
            return
        if self._loop.time() < self._patience() or self._resting or not self.all_hang():
            self._at("watch", max(self._patience(), self._loop.time() + HELD_AFTER / 10), self._look)
        elif self._replay.misses:
            self._waits.close(Held(self._replay.left_out(next((each.request for each in self._queue), None))))
        elif self._to_cut:
            branch = next(iter(self._to_cut))
            self._waits.close(Held(self._replay.not_cut_off(next_path(branch.path, branch.position))))
        else:
            # The body does not come to a call at which it received the cancellation of its run before.
            self.leave_out(self._recorded - self._ready.keys())
            self._stir()
            self._watch()

    def all_hang(self) -> bool:
        """Return True if every call waits, or is held back."""
        held = {each.path for each in self._queue} | self._ready.keys()
        return all(
            branch.is_idle
            or branch in self._to_cut
            or next_path(branch.path, branch.position) in held
            or self._is_undecided(branch)
            for branch in self._branches
        )

    def tear_down(self) -> None:
        """Cancel the calls that are held back, and the tasks of branches that are in no call."""
        for turn in [*self._ready.values(), *(each.turn for each in self._queue)]:
            turn.cancel()
        current = asyncio.current_task()
        for branch in self._branches:
            if self._is_undecided(branch) and branch.task is not None and branch.task is not current:
                branch.task.cancel("the run is parked")

    async def stop(self, main: Branch) -> None:
        """Cancel the tasks that the body has left over, and wait for their ends."""
        self._over = True
        for timer in self._timers.values():
            timer.cancel()
        left = {task for task in self._left_over(main) if not task.done() and task is not asyncio.current_task()}
        for task in left:
            task.cancel("the run has ended")
        if not left:
            return
        done, running = await asyncio.wait(left, timeout=LEFT_FOR)
        for task in done:
            # Without this, asyncio would report an exception that the body does not take.
            _ = task.cancelled() or task.exception()
        if running:
            log.warning("%s: %d tasks of its body go on after its end", self._describe(), len(running))

    def _left_over(self, main: Branch) -> Iterator[asyncio.Task[Any]]:
        """Yield the tasks of the body; before Python 3.12 those that have called the flow."""
        yield from self._tasks
        for task in asyncio.all_tasks(self._loop):
            context: Any = getattr(task, "get_context", dict)()
            refusal = context.get(REFUSAL)
            if isinstance(refusal, BodyRefusal) and refusal.branch.is_in(main):
                yield task


def _late(end: StepEnd) -> NewStep:
    """Return the row of a named call that has ended after the body had cut it off."""
    row = NewStep(end.path, end.kind, end.name, StepOutcome.DROPPED, end.took, digest=end.digest)
    if not isinstance(end, NewStep):
        return row
    has_effect = end.kind is StepKind.STEP and end.outcome is StepOutcome.OK
    return replace(row, result=(end.result or b"null") if has_effect else None, ref=end.ref)


def _kind(asked: OneCall) -> StepKind:
    match asked:
        case StepCall():
            return StepKind.STEP
        case SleepCall():
            return StepKind.SLEEP
        case WaitCall():
            return asked.kind
        case _:
            return StepKind.CALL


def recorded_name(asked: OneCall, key: Key) -> str:
    """Return the name in the row of a named call: that of the signal, event or workflow, or its own."""
    match asked:
        case WaitCall():
            return asked.name
        case StepCall() | SleepCall():
            return key.name
        case _:
            return asked.workflow.name if isinstance(asked, ChildCall) else ""
