"""Branches that run at once: gather, map and first.

A branch is a task of its own. Each branch counts its calls by itself, so the order in which branches progress does not
change the path of a step. Which branch has won, or which one has failed first, is recorded before the body goes on. A
replay that finds such a row replays the other branches as far as they are recorded, because their undos belong to the
run, and drops them where they ask for more.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import FIRST_COMPLETED
from collections.abc import Awaitable
from typing import Any

import msgspec

from redrive.app.flows.calls import GatherCall, OnError
from redrive.app.flows.flow_call import FlowCall
from redrive.engine.replay import StepRequest
from redrive.engine.runs import RACE, StepKind, branch_path
from redrive.engine.steps import NewStep
from redrive.errors import BranchDropped, CancelRequested, FlowInterrupt
from redrive.errors.foreign import is_a
from redrive.runtime.runs.branches import Branch, ExitInTask, carrying
from redrive.runtime.runs.conductor import Conductor


async def run_group(conductor: Conductor, branch: Branch, call: GatherCall) -> Any:
    """Run the branches of a call, and return what it promises."""
    request = StepRequest(StepKind.GATHER, call.name, line=call.line, aka=call.aka, branches=len(call.branches))
    answer = conductor.ask(branch, request)
    decided = None if answer.row is None else int(msgspec.json.decode(answer.row.result or b"0"))
    group = _Group(conductor, branch, call, answer.path, decided)
    try:
        return await group.run()
    except ExitInTask as exit_in_branch:
        await group.stop()
        raise exit_in_branch.error from None
    except BaseException:
        await group.stop()
        raise


class _Group:
    def __init__(self, conductor: Conductor, parent: Branch, call: GatherCall, path: str, decided: int | None) -> None:
        self._conductor = conductor
        self._parent = parent
        self._call = call
        self._path = path
        self._decided = decided
        self._started = 0
        self._tasks: dict[asyncio.Task[Any], int] = {}
        self._children: dict[int, Branch] = {}
        self._ended: dict[int, asyncio.Task[Any]] = {}

    @property
    def _races(self) -> bool:
        return self._call.name == RACE

    async def run(self) -> Any:
        """Start branches and wait for them, until the result is decided."""
        receipts, keyed = self._conductor.receipts, self._conductor.keyed
        # Beside named calls a branch that has lost may not end by itself.
        over = keyed.decision(self._path) if keyed is not None and self._decided is not None else None
        count, most = len(self._call.branches), self._call.at_once or len(self._call.branches)
        while len(self._ended) < count:
            while self._started < count and len(self._tasks) < most:
                self._start(self._started)
                self._started += 1
            self._parent.joining = True
            receipts.goes_on(self._parent)
            self._conductor.waits.consider()
            waits = {*self._tasks} if over is None or over.done() else {*self._tasks, over}
            await asyncio.wait(waits, return_when=FIRST_COMPLETED)
            self._parent.joining = False
            # One that has received a signal may be about to end, and the signal would be lost if another one wins.
            await receipts.settled(self._parent)
            for task in sorted((each for each in self._tasks if each.done()), key=self._order):
                number = self._tasks.pop(task)
                self._ended[number] = task
                child = self._children[number]
                self._parent.reached(child.at)
                if self._decided is None and self._decides(task):
                    await self._decide(number, task)
                    return self._result(number)
                receipts.hand_over(child, seen=self._has_code(number))
            if over is not None and over.done() and self._decided in self._ended:
                await self.stop()
                break
        self._parent.joining = False
        if self._decided is None:
            return self._all()
        for number, child in self._children.items():
            if number != self._decided:
                # A step of it that was undone is not executed anew, so the steps behind it are not reached.
                self._leave(child)
        return self._result(self._decided)

    def _start(self, number: int) -> None:
        conductor = self._conductor
        child = Branch(branch_path(self._path, number), self._parent.at, conductor.seed, self._parent)
        if self._decided not in (None, number):
            child.replay_only = True
            if conductor.keyed is not None:
                conductor.keyed.leave_out(conductor.replay.below(child.path))
        self._children[number] = child
        work = self._call.branches[number]
        context = contextvars.copy_context()

        run = carrying(conductor.run_branch(child, lambda: _begin(work)))
        task = conductor.loop.create_task(run, context=context)
        self._tasks[task] = number

    def _has_code(self, number: int) -> bool:
        """Return True if a branch is more than one call of the flow."""
        return not isinstance(self._call.branches[number], FlowCall)

    def _order(self, task: asyncio.Task[Any]) -> tuple[bool, int]:
        """Return a key that sorts branches which have ended at once: those that end with a signal come first."""
        number = self._tasks[task]
        return not self._children[number].received, number

    def _decides(self, task: asyncio.Task[Any]) -> bool:
        """Return True if the end of this branch decides the call; raise the interrupt of the run."""
        if task.cancelled():
            return False
        error = task.exception()
        if is_a(error, FlowInterrupt) and not is_a(error, BranchDropped):
            # The others receive it, too, at their next step.
            return False
        if error is None:
            return self._races
        return not is_a(error, BranchDropped) and self._call.on_error is OnError.FIRST

    async def _decide(self, number: int, task: asyncio.Task[Any]) -> None:
        """Record the branch that has won or failed first, and drop the others."""
        await self.stop()
        self._conductor.receipts.hand_over(self._children[number], seen=self._has_code(number))
        error = task.exception()
        if error is not None and not self._conductor.errors.is_recorded(error):
            # An error of the code itself may not come again in the next attempt of the run.
            return
        end = NewStep(self._path, StepKind.GATHER, self._call.name, result=msgspec.json.encode(number))
        row = await self._conductor.writes.record_for(self._parent, end)
        self._parent.reached(row.at)

    async def stop(self) -> None:
        """Drop the branches that have not ended, and wait for their ends."""
        for task, number in self._tasks.items():
            child = self._children[number]
            child.drop()
            if child.wait is not None:
                child.wait.throw(BranchDropped())
            else:
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for task in self._tasks:
            # Without this, asyncio would report the exception of the interrupt.
            _ = task.cancelled() or task.exception()
        for number, child in self._children.items():
            if number not in self._ended:
                self._conductor.receipts.drop(child, seen=self._has_code(number))
                self._leave(child)
                if self._conductor.keyed is not None:
                    self._conductor.keyed.end_below(child)
        self._tasks.clear()

    def _leave(self, child: Branch) -> None:
        """Count the recorded steps of a branch as reached."""
        self._conductor.replay.drop(child.path)
        if self._conductor.keyed is not None:
            self._conductor.keyed.leave_out(self._conductor.replay.below(child.path))

    def _result(self, number: int) -> Any:
        self._raise_interrupt()
        self._parent.received = self._children[number].received
        value = self._ended[number].result()
        return (number, value) if self._races else value

    def _raise_interrupt(self) -> None:
        """Raise the interrupt that a branch has received."""
        found = [each.exception() for each in self._ended.values() if not each.cancelled()]
        for error in found:
            if is_a(error, CancelRequested):
                self._parent.delivered = True
                raise error
        for error in found:
            if is_a(error, FlowInterrupt) and not is_a(error, BranchDropped):
                raise error

    def _all(self) -> list[Any]:
        """Return the results of all branches in their order."""
        self._raise_interrupt()
        self._parent.received = any(child.received for child in self._children.values())
        if self._call.on_error is OnError.COLLECT:
            return [self._collected(self._ended[number]) for number in range(len(self._ended))]
        return [self._ended[number].result() for number in range(len(self._ended))]

    def _collected(self, task: asyncio.Task[Any]) -> Any:
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, Exception) and not is_a(error, ExitInTask):
            return error
        raise error


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def _begin(work: Any) -> Any:
    return _awaited(work) if isinstance(work, Awaitable) else work()
