"""The concurrent lines of a body, and what each of them waits for."""

from __future__ import annotations

import asyncio
import threading
import types
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar, copy_context
from datetime import datetime
from types import CoroutineType
from typing import Any, TypeVar

import msgspec

from redrive.app.flows.rng import FlowRandom
from redrive.engine.runs import SignalRecord, StepRecord, is_named
from redrive.engine.steps import NewStep, StepEnd
from redrive.errors import FlowInterrupt
from redrive.errors.foreign import is_a

#: The name of the rows that record where a cancellation was delivered.
CANCEL_MARK = ":cancel"

R = TypeVar("R")


class Receipt(msgspec.Struct, frozen=True):
    """A row of a branch that is written with its next one, and the signal that it has received with it.

    Attributes:
        seen: True if the code of a branch that has ended has received it.
    """

    row: NewStep
    signal: SignalRecord | None
    seen: bool = False


class Branch:
    """One line of a body: the body itself, or a branch of a gather.

    Attributes:
        path: "" for the body itself, ``4.0`` for the first branch of the fourth call.
        position: of the last call that it has made.
        at: the time of the last row that it has reached.
        wait: what it waits for; None while it does something.
        joining: True while it waits for branches of its own.
        shields: the number of open ``flow.shield()`` blocks.
        delivered: True if it has received the cancellation of the run.
        replay_only: True if it may take no new step.
        held: what it has received since its last row.
        received: True if the last answer of its flow was a signal, or the result of branches that had received one.
        calls: True while it is in a call of the flow that has no branch of its own.
        began: True for a named call that was not held back, or not any more.
        ref: the job of the child run that it waits for.
        cut_off: the place of a call that the code itself has cut off, as by ``asyncio.timeout``; "" without one.
    """

    def __init__(self, path: str, at: datetime, seed: str, parent: Branch | None = None) -> None:
        self.path = path
        self.position = 0
        self.at: datetime = at
        self.wait: BranchWait | None = None
        self.joining = False
        self.parent = parent
        self.shields: int = 0 if parent is None else parent.shields
        self.delivered: bool = parent is not None and parent.delivered
        self.replay_only: bool = parent is not None and parent.replay_only
        self.received = False
        self.cut_off = ""
        self.calls = self.began = False
        self.ref: int | None = None
        self._dropped = False
        self.held: list[Receipt] = []
        #: The function of a step that it awaits, if it can be interrupted.
        self.step: RunningStep | None = None
        self.task: asyncio.Task[object] | None = None
        self.thread: int | None = None
        self._seed = seed
        self._random: FlowRandom | None = None

    @property
    def random(self) -> FlowRandom:
        """The random number generator of the branch, made at its first use."""
        if self._random is None:
            self._random = FlowRandom(f"{self._seed} {self.path}")
        return self._random

    @property
    def is_current(self) -> bool:
        """True if the caller runs in the task or thread of the branch."""
        if self.thread is not None:
            return self.thread == threading.get_ident()
        try:
            return self.task is asyncio.current_task()
        except RuntimeError:
            # A thread without an event loop.
            return False

    @property
    def is_idle(self) -> bool:
        """True if it does nothing until something happens outside."""
        return self.joining or self.wait is not None

    @property
    def dropped(self) -> bool:
        """True if its result is not needed any more."""
        return self._dropped or (self.parent is not None and self.parent.dropped)

    def drop(self) -> None:
        """Note that its result is not needed any more."""
        self._dropped = True

    def is_below(self, other: Branch) -> bool:
        """Return True if the other branch has opened this one, directly or not."""
        parent = self.parent
        return parent is not None and (parent is other or parent.is_below(other))

    @property
    def is_cut(self) -> bool:
        """True for a named call that the body has cut off."""
        return self._dropped and is_named(self.path)

    @property
    def root(self) -> Branch:
        """The body itself."""
        return self if self.parent is None else self.parent.root

    def is_in(self, main: Branch) -> bool:
        """Return True for a branch of this body."""
        return self is main or self.is_below(main)

    def deliver(self) -> None:
        """Note that it has received the cancellation of the run; the tasks around a named call have so, too."""
        self.delivered = True
        if self.parent is not None and is_named(self.path):
            self.parent.delivered = True

    def reached(self, at: datetime) -> None:
        """Note the time of a row that the branch has reached."""
        self.at = max(self.at, at)


class BranchWait(msgspec.Struct, eq=False):
    """What a branch waits for.

    Attributes:
        due_at: when to check again; None if only something from outside ends the wait.
        why: a text for the screen.
        path: of the row that the wait belongs to.
        row: the row that stores the wait, until its write begins.
        written: the row as it was written.
        woken: set when the branch should check again.
    """

    due_at: datetime | None
    why: str
    path: str
    row: StepEnd | None = None
    written: StepRecord | None = None
    woken: asyncio.Future[None] = msgspec.field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def wake(self) -> None:
        """Let the branch check again."""
        if not self.woken.done():
            self.woken.set_result(None)

    def throw(self, error: BaseException) -> None:
        """End the wait with an exception."""
        if not self.woken.done():
            self.woken.set_exception(error)


class StepInterrupted(FlowInterrupt):
    """The function of a step was interrupted, because its run was cancelled or paused."""


class ExitInTask(Exception):
    """Carries an exit out of a task, which would otherwise end the event loop of the worker."""

    def __init__(self, error: SystemExit | KeyboardInterrupt) -> None:
        super().__init__()
        self.error = error


async def carrying(work: Awaitable[R]) -> R:
    """Await work as the content of a task, and raise `ExitInTask` if code of the user exits in it."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise ExitInTask(error) from error


class RunningStep:
    """The coroutine function of a step while a task awaits it.

    Attributes:
        repeatable: True if it may be called again after an interruption.
    """

    __slots__ = ("_before", "_interrupted", "_task", "repeatable")

    def __init__(self, task: asyncio.Task[object], *, repeatable: bool) -> None:
        self._task = task
        self._before = task.cancelling()
        self._interrupted = False
        self.repeatable: bool = repeatable

    def interrupt(self) -> None:
        """Cancel what the function awaits."""
        if not self._interrupted:
            self._interrupted = True
            self._task.cancel()

    def take_back(self) -> bool:
        """Take the cancellation back, and return True if it was the only one."""
        return self._interrupted and self._task.uncancel() <= self._before


# What an interrupted function raises is no failed try: it may turn the cancellation into an error of its own. One that
# returns all the same has done its work.
@types.coroutine
def call_coroutine(
    repeatable: bool,  # noqa: FBT001 - see the hot path of its caller
    name: str,
    function: Callable[[], Awaitable[Any]],
) -> Generator[Any, Any, Any]:
    """Await the function of a step; raise `StepInterrupted` if it was interrupted and has not returned."""
    branch = CURRENT.get()
    assert branch is not None  # a branch calls its steps
    # That of the branch, or one that goes on when the branch is dropped.
    task = asyncio.current_task()
    assert task is not None
    step = branch.step = RunningStep(task, repeatable=repeatable)
    try:
        value = yield from _drive(name, function)
    except BaseException as error:
        if step.take_back() and not is_a(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
            raise StepInterrupted from error
        raise
    finally:
        branch.step = None
    step.take_back()
    return value


# A replay does not call the function, so the body must not see the context variables that it sets. A task of its own
# would take longer than the rest of the call, and each further coroutine takes its part of it.
def _drive(name: str, function: Callable[[], Awaitable[Any]]) -> Generator[Any, Any, Any]:
    """Call the function of a step and await its result in a copy of the present context."""
    run = copy_context().run
    run(IN_STEP.set, name)
    called = run(function)
    inner = called if type(called) is CoroutineType else _awaited(called)
    try:
        waits = run(inner.send, None)
        while True:
            try:
                answer = yield waits
            except BaseException as error:  # noqa: BLE001 - it is raised where the function awaits
                waits = run(inner.throw, error)
            else:
                waits = run(inner.send, answer)
    except StopIteration as stop:
        return stop.value


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


apart = types.coroutine(_drive)
"""Calls the function of a step and awaits its result in a copy of the present context."""


#: The branch that runs.
CURRENT: ContextVar[Branch | None] = ContextVar("redrive_branch", default=None)

#: The name of the step that runs.
IN_STEP: ContextVar[str | None] = ContextVar("redrive_step", default=None)
