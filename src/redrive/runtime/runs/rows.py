"""The rows and the values of one pass that are to be written, and their writes, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from redrive.app.flows.calls import ChildCall, StepCall
from redrive.app.flows.workflow import Workflow
from redrive.engine.replay import describe_run
from redrive.engine.runs import RunFlags, RunState, StepKind, StepOutcome, StepRecord, check_values
from redrive.engine.steps import NewStep, StepEnd
from redrive.errors import LeaseLost, TooManySteps
from redrive.runtime import log
from redrive.runtime.runs.recorder import Recorder

R = TypeVar("R")


class _Write:
    """The rows of one transaction, by their paths.

    Attributes:
        ends: the rows to be written.
        attached: those of them for which no call waits.
        rows: all of them, as they were written.
    """

    __slots__ = ("attached", "ends", "rows")

    def __init__(self) -> None:
        self.ends: dict[str, StepEnd] = {}
        self.attached: dict[str, StepEnd] = {}
        self.rows: dict[str, StepRecord] = {}


class PendingRows:
    """What one pass of a run has still to write.

    Args:
        state: what is stored of the run.
        workflow: its code, which limits the number of rows.
        recorder: writes rows.
        flags: receives what operators ask of the run, as each write returns it.
        lost: called if another worker has the run.
    """

    def __init__(
        self,
        state: RunState,
        workflow: Workflow[Any, Any, Any],
        recorder: Recorder,
        *,
        flags: Callable[[RunFlags], None],
        lost: Callable[[], None],
    ) -> None:
        self._run = state.run
        self._workflow = workflow
        self._recorder = recorder
        self._flags = flags
        self._lost = lost
        self._next = _Write()
        self._lock = asyncio.Lock()
        self._count = len(state.steps)
        self._values: dict[str, msgspec.Raw] = (
            {} if state.run.values is None else msgspec.json.decode(state.run.values, type=dict[str, msgspec.Raw])
        )
        self._changed = False
        #: The calls that were cut off, with the rows that were to be written before.
        self._dropped: dict[str, StepEnd | None] = {}

    def check_room(self) -> None:
        """Raise `TooManySteps` if the run may record no more steps."""
        most = self._workflow.max_steps
        if self._count >= most:
            raise TooManySteps(
                f"{describe_run(self._run)} has {self._count:,} recorded steps, and the limit is {most:,}: "
                "begin anew by flow.restart()"
            )

    def attach(self, end: StepEnd) -> None:
        """Write a row with the next one."""
        self._next.ends[end.path] = self._next.attached[end.path] = end

    def drop(self, end: NewStep) -> bool:
        """Write the row of a call that was cut off with the next one; return True if another row of it was to be."""
        before = self._next.ends.get(end.path)
        if isinstance(before, NewStep) and before.outcome is StepOutcome.OK and end.kind is StepKind.STEP:
            # The effect of the function stays, and may have to be undone.
            end = msgspec.structs.replace(end, result=before.result or b"null")
        self._dropped[end.path] = before
        self.attach(end)
        return before is not None

    def forget_drops(self) -> None:
        """Do not write that calls were cut off, if that is not written: what has ended them is not recorded."""
        for path, before in self._dropped.items():
            end = self._next.ends.get(path)
            if end is None or not isinstance(end, NewStep) or end.outcome is not StepOutcome.DROPPED:
                continue
            if before is not None:
                self.attach(before)
            elif self._next.attached.pop(path, None) is not None:
                del self._next.ends[path]

    def received(self) -> tuple[NewStep, ...]:
        """Return the rows of received signals that are not written yet."""
        ends = (each for each in self._next.ends.values() if isinstance(each, NewStep))
        return tuple(each for each in ends if each.kind is StepKind.WAIT and each.ref is not None)

    def set(self, name: str, raw: bytes) -> None:
        """Write a value of the run with its next row; raise `ResultTooLarge` if all values are too large together."""
        others = sum(len(each) + len(bytes(value)) for each, value in self._values.items() if each != name)
        check_values(name, others + len(name) + len(raw), self._workflow.app.max_payload)
        self._values[name] = msgspec.Raw(raw)
        self._changed = True

    async def record(self, end: StepEnd, *more: StepEnd) -> StepRecord:
        """Write rows, with those that were attached and the changed values; return the first one as written."""
        write = self._next
        for each in (end, *more):
            write.ends[each.path] = each
        # Hot path: `async with` would make two more coroutines.
        await self._lock.acquire()
        try:
            # The holder of the lock before may have written them.
            if write is self._next:
                await self._write()
        finally:
            self._lock.release()
        return write.rows[end.path]

    async def _write(self) -> None:
        write, self._next = self._next, _Write()
        values, self._changed = self.changed_values(), False
        try:
            rows, flags = await self._recorder.record(tuple(write.ends.values()), values)
        except LeaseLost:
            self._lost()
            raise
        except Exception:
            # A body may catch this error of one call. What belongs to no call is written with the next row.
            self._next.ends = write.attached | self._next.ends
            self._next.attached = write.attached | self._next.attached
            self._changed = self._changed or values is not None
            raise
        for row in rows:
            write.rows[row.path] = row
        self._grew(len(rows))
        if flags is not None:
            self._flags(flags)

    async def flush(self) -> None:
        """Write attached rows and changed values at the end of a pass, if there are any."""
        if self._next.ends or self._changed:
            async with self._lock:
                await self._write()

    def take(self) -> tuple[StepEnd, ...]:
        """Return the attached rows, to be written with the end of the pass."""
        write, self._next = self._next, _Write()
        return tuple(write.ends.values())

    def changed_values(self) -> bytes | None:
        """Return all values of the run if one has changed."""
        return msgspec.json.encode(self._values) if self._changed else None

    async def start_child(self, path: str, call: ChildCall) -> StepRecord:
        """Start a child run, and write the row of its call."""
        row = await self._fenced(self._recorder.start_child(self._run, path, call))
        self._grew(1)
        return row

    async def transact(self, end: NewStep, call: StepCall) -> StepRecord:
        """Call the function of a step with a connection, and write its row in the same transaction."""
        await self.flush()
        row = await self._fenced(self._recorder.transacted(end, call))
        if isinstance(row, Exception):
            raise row
        self._grew(1)
        return row

    async def _fenced(self, work: Coroutine[Any, Any, R]) -> R:
        try:
            return await work
        except LeaseLost:
            self._lost()
            raise

    def _grew(self, count: int) -> None:
        warn = self._workflow.warn_steps
        if self._count < warn <= self._count + count:
            log.warning(
                "%s has %d recorded steps; each continuation replays all of them: flow.restart() begins anew",
                describe_run(self._run),
                warn,
            )
        self._count += count
