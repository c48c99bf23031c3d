"""A look at the event loop of a worker from another thread: a handler that keeps it from running is logged.

While an ``async def`` handler computes, or waits without ``await`` as in ``time.sleep``, no other handler of the worker
goes on, and nothing else shows why.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from itertools import takewhile
from pathlib import PurePath
from types import FrameType
from typing import Any

from redrive.app.app import App
from redrive.app.flows.workflow import Workflow
from redrive.app.loading import of_user
from redrive.clock import SystemClock
from redrive.engine.explain import span
from redrive.runtime import log
from redrive.runtime.attempts import Attempts

# Seconds without a turn of the event loop after which the log names what keeps it.
NOTICED = 1.0

_IN_HANDLER = (
    "await what it waits for (asyncio.sleep, an async client, asyncio.to_thread), or make the handler a def, which "
    "runs in a thread"
)
_IN_RUN = (
    "a body waits by flow.sleep() and works in its steps; a step awaits what it waits for, or is a def, which runs "
    "in a thread"
)


class BlockedLoop:
    """The looks at the event loop of the thread that makes this object; without a loop they see nothing."""

    def __init__(self, app: App, attempts: Attempts) -> None:
        self._app, self._attempts = app, attempts
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None
        self._thread = threading.get_ident()
        self._asked_at: float | None = None
        self._told: set[str] = set()

    def look(self) -> None:
        """Ask the loop for a turn, or log what runs in it if it has not had one since; each culprit is logged once."""
        if self._loop is None:
            return
        if self._asked_at is None:
            # An idle worker is not woken.
            if self._attempts.held():
                self._asked_at = SystemClock.monotonic()
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._answer)
            return
        blocked_for, running = SystemClock.monotonic() - self._asked_at, asyncio.current_task(self._loop)
        # Without a task the loop waits for the processor, as after a stop of the whole process.
        if blocked_for >= NOTICED and running is not None:
            self._tell(running, blocked_for)

    def _answer(self) -> None:
        self._asked_at = None

    def _tell(self, running: asyncio.Task[Any], blocked_for: float) -> None:
        frames = list(_frames(sys._current_frames().get(self._thread)))  # documented; CPython and PyPy have it
        place = of_user((each.f_code.co_filename, each.f_lineno) for each in frames)
        if place is None:
            return
        where = f"{place[0]}, line {place[1]}"
        name = self._culprit(running, frames)
        known = name or where
        if known in self._told:
            return
        self._told.add(known)
        is_run = name is not None and isinstance(self._app.find(name), Workflow)
        log.warning(
            "the event loop has not run for %s, and no other handler goes on: %s blocks it in %s; %s",
            span(timedelta(seconds=blocked_for)),
            "a function" if name is None else f"task {name!r}",
            where,
            _IN_RUN if is_run else _IN_HANDLER,
        )

    def _culprit(self, running: asyncio.Task[Any], frames: list[FrameType]) -> str | None:
        """Return the task of the attempt, or of the function, that runs in the loop."""
        claim = self._attempts.of_task(running)
        if claim is not None:
            return claim.task
        codes = {each.f_code for each in frames}
        tasks = tuple(self._app.tasks.values())
        return next((each.name for each in tasks if getattr(each.function, "__code__", None) in codes), None)


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames above the event loop, the last one first."""
    return takewhile(lambda each: PurePath(each.f_code.co_filename).parts[-2:] != _LOOP, _callers(frame))


_LOOP = ("asyncio", "events.py")


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
