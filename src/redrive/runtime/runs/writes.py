"""What a pass records: each row of a branch with what the branch has received before it.

::

    step, sleep, ... -> record_for -> rows of `redrive.runtime.runs.rows` -> the row as written
    below a gather  --> finish -----^      a drop of the branch does not cut it off

A signal that a branch has received is *held*, and written with its next row: alone it would cost a transaction of its
own. `redrive.runtime.runs.conductor` has the place of this in the way of a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from redrive.app.flows.calls import ChildCall, StepCall
from redrive.app.flows.workflow import Workflow
from redrive.engine.records import Claim
from redrive.engine.replay import describe_run
from redrive.engine.runs import RunFlags, RunState, StepKind, StepOutcome, StepRecord
from redrive.engine.steps import NewStep, StepEnd, resolve
from redrive.errors import LeaseLost
from redrive.runtime.runs.branches import Branch, ExitInTask, Receipt, carrying
from redrive.runtime.runs.recorder import Recorder
from redrive.runtime.runs.rows import PendingRows

R = TypeVar("R")

Ended: TypeAlias = Callable[[StepRecord], None]
"""Receives the final row of a step, as soon as it is written."""


class Writes:
    """The writes of one pass.

    Args:
        claim: the claimed job of the run.
        workflow: its code, which limits the number of rows.
        state: what is stored of the run.
        recorder: writes rows.
        now: returns the present instant of the store's clock, or an earlier one.
        flags: receives what operators ask of the run, as each write returns it.
        lost: called if another worker has the run.
        finished: called after work that went on when its branch was dropped.
    """

    def __init__(
        self,
        claim: Claim,
        workflow: Workflow[Any, Any, Any],
        state: RunState,
        recorder: Recorder,
        *,
        now: Callable[[], datetime],
        flags: Callable[[RunFlags], None],
        lost: Callable[[], None],
        finished: Callable[[], None],
    ) -> None:
        self._claim, self._run, self._now, self._is_lost = claim, state.run, now, False
        self._on_lost, self._on_finished = lost, finished
        self._loop = asyncio.get_running_loop()
        self.rows: PendingRows = PendingRows(state, workflow, recorder, flags=flags, lost=self._lose)
        #: The calls of child runs that have not ended, and whether each was dropped.
        self.calling: dict[str, bool] = {
            row.path: row.is_dropped
            for row in state.steps
            if row.kind is StepKind.CALL and (not row.is_final or row.outcome is StepOutcome.DROPPED)
        }
        #: Tasks of branches, perhaps of dropped ones, that the pass waits for.
        self.unfinished: set[asyncio.Task[Any]] = set()

    #: Returns the row of an end with its number; None if the ends of the pass have none.
    number: Callable[[Branch, StepEnd], StepEnd] | None = None

    def _lose(self) -> None:
        self._is_lost = True
        self._on_lost()

    def check_lost(self) -> None:
        """Raise `LeaseLost` if another worker continues the run."""
        if self._is_lost:
            raise LeaseLost(f"{describe_run(self._run)}: another worker continues it")

    def expected(self, end: StepEnd) -> StepRecord:
        """Return the row that would be written now, by the time of this process."""
        return resolve(end, self._claim.id, self._claim.lease_id, self._now())

    def attach(self, branch: Branch, end: NewStep) -> None:
        """Write a row with the next one; behind what its branch has received, which would be missed before it."""
        if branch.held:
            branch.held.append(Receipt(end, None))
        else:
            self.rows.attach(end)

    def end_with_next(self, branch: Branch, end: NewStep) -> None:
        """Write an end without an effect with the next row: what depends on it is not written before it."""
        self.rows.attach(end if self.number is None else self.number(branch, end))

    def attach_held(self, branch: Branch) -> None:
        """Write what a branch has received with the next row, or with the end of the pass."""
        for each in branch.held:
            self.rows.attach(each.row)
        branch.held = []

    async def flush(self, branch: Branch) -> None:
        """Write what a branch has received."""
        if branch.held:
            await self.record_for(branch, branch.held[0].row)

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
        if self.number is not None:
            end = self.number(branch, end)
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
        self.calling.pop(row.path, None)
        if ended is not None and row.is_final:
            ended(row)
        return row

    async def start_child(self, branch: Branch, path: str, call: ChildCall) -> StepRecord:
        """Start a child run, and write the row of its call."""
        self.calling[path] = False
        work = self.rows.start_child(path, call)
        return await (work if call.key is None else self.finish(self._start_named(branch, work)))

    async def _start_named(self, branch: Branch, work: Coroutine[Any, Any, StepRecord]) -> StepRecord:
        row = await work
        branch.ref = row.ref
        if branch.dropped:
            self.rows.drop(NewStep(row.path, row.kind, row.name, StepOutcome.DROPPED, digest=row.digest, ref=row.ref))
        return row

    async def transact(self, branch: Branch, end: NewStep, call: StepCall) -> StepRecord:
        """Call the function of a step with a connection, and write its row in the same transaction."""
        if self.number is not None:
            # Other ends wait for this one: the function ends in a thread, perhaps, and its row is written there.
            end = replace(end, seq=self.number(branch, end).seq)
        return await self.rows.transact(end, call)

    async def finish(self, work: Coroutine[Any, Any, R]) -> R:
        """Do work that goes on when its branch is dropped: the pass ends, or parks, after it."""
        task = self._loop.create_task(carrying(work))
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
        self._on_finished()
