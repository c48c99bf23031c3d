"""The refusal of what writes in the body of a run: the body is replayed, and each pass would write it again."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, takewhile
from typing import Any, ClassVar

from redrive.app.flows.calls import place
from redrive.app.loading import Place, callers, of_user
from redrive.errors import FlowMisused
from redrive.runtime.runs.branches import Branch


class BodyRefusal:
    """Refuses operations of redrive that write, in the code of one branch; see `redrive.app.loading.Refusal`.

    Args:
        branch: the branch.
        noted: called with the error, which the body may catch, or which may be that of a task that nothing awaits.
    """

    __slots__ = ("_noted", "_thread", "branch")
    is_of_body: ClassVar[bool] = True

    def __init__(self, branch: Branch, noted: Callable[[FlowMisused], None]) -> None:
        self.branch: Branch = branch
        self._noted = noted
        self._thread = threading.get_ident()

    def refused(self) -> FlowMisused:
        """Return the error of an operation that writes."""
        error = FlowMisused(
            f"{self._line()}: this writes to the database of jobs in the body of a workflow, outside of its steps, so "
            "that each replay of the body would write it again; nothing was written: make the call in a function that "
            "flow.step() or flow.transaction() calls, or start a child run by flow.call()"
        )
        self._noted(error)
        return error

    def _line(self) -> str:
        """Return the line of the body that calls, or that waits for the task or thread that calls."""
        if self.branch.is_current:
            found = of_user(callers())
        else:
            found = of_user(chain(_in_loop(callers()), self._starting(), reversed([*_suspended(self.branch.task)])))
        return "its body" if found is None else place(*found)

    def _starting(self) -> Iterable[Place]:
        """Return the places of the branch if it is running while another thread calls."""
        task, frame = self.branch.task, sys._current_frames().get(self._thread)  # as for `callers`
        is_running = task is not None and asyncio.current_task(task.get_loop()) is task
        return _in_loop(callers(frame)) if is_running and frame is not None else ()


# Below the event loop stands the program that runs the worker.
def _in_loop(places: Iterable[Place]) -> Iterable[Place]:
    return takewhile(lambda each: each[0] != asyncio.events.__file__, places)


def _suspended(task: asyncio.Task[Any] | None) -> Iterator[Place]:
    """Yield the places at which the coroutines of a task wait, the first one that was called first."""
    each: Any = None if task is None else task.get_coro()
    while each is not None:
        frame = getattr(each, "cr_frame", None) or getattr(each, "gi_frame", None)
        if frame is not None:
            yield frame.f_code.co_filename, frame.f_lineno
        each = getattr(each, "cr_await", None) or getattr(each, "gi_yieldfrom", None)
