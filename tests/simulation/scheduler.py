"""A deterministic scheduler: simulated processes and threads in one real thread, in virtual time.

A *strand* is a simulated thread: a greenlet that runs until it parks. Only one strand runs at a time, and the seeded
generator chooses which one is next, so a seed names one interleaving. While no strand can run, time jumps to the next
timer. A *process* is a set of strands with a clock of its own; it can be frozen (SIGSTOP) and killed (SIGKILL): a
killed process never runs another instruction, not even a ``finally`` block.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

__all__ = ["EPOCH", "Process", "Scheduler", "Strand"]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The instant at which virtual time begins."""


@dataclass(eq=False)
class Process:
    """A simulated process.

    Attributes:
        name: its name, without a blank.
        number: its process id.
        frozen_until: the virtual time at which it continues, if it is frozen.
        offset: seconds by which the clock of its host is wrong.
        dead: True once it was killed or has ended.
        rng: the generator of its delays; a fault of one process does not change the delays of another one.
        strands: its threads.
        frozen: the spans in which it was stopped."""

    name: str
    number: int
    rng: Random
    frozen_until: float = 0.0
    offset: float = 0.0
    dead: bool = False
    strands: list[Strand] = field(default_factory=list)
    frozen: list[tuple[float, float]] = field(default_factory=list)


class Strand:
    """A simulated thread.

    Args:
        scheduler: the scheduler that runs it.
        process: the process that it belongs to.
        target: the function that it runs.
        name: the name in messages.

    Attributes:
        loop: the event loop that runs in this strand, or None.
        pending: the statement that this strand is about to run.
        lingering: True while its transaction may pause between two statements.
        done: True once the target has returned.
        error: the exception of the target, or None."""

    def __init__(self, scheduler: Scheduler, process: Process, target: Callable[[], object], name: str) -> None:
        self.scheduler = scheduler
        self.process = process
        self.name = name
        self.loop: asyncio.AbstractEventLoop | None = None
        self.pending: Any = None
        self.lingering = False
        self.done = False
        self.error: BaseException | None = None
        self.joiners: list[Strand] = []
        self.ticket = 0
        self.woken = False
        self.queued = False
        self._target = target
        self.greenlet = greenlet(self._run, parent=scheduler.hub)

    def _run(self) -> None:
        try:
            self._target()
        except GreenletExit:
            pass
        except BaseException as error:  # noqa: BLE001 - the process that waits for the strand looks at it
            self.error = error
        finally:
            self.done = True
            if self in self.process.strands:
                self.process.strands.remove(self)
            for each in self.joiners:
                self.scheduler.wake(each)


class Scheduler:
    """Runs strands one at a time.

    Args:
        rng: chooses the strand that runs next.

    Attributes:
        now: seconds of virtual time since the start.
        current: the strand that runs, or None between two.
    """

    def __init__(self, rng: Random) -> None:
        self.now = 0.0
        self.current: Strand | None = None
        self.closing = False
        self.hub = getcurrent()
        self._rng = rng
        self._salt = rng.random()
        self._ready: list[Strand] = []
        self._timers: list[tuple[float, int, Strand, int]] = []
        self._sequence = 0
        self._processes: list[Process] = []

    # ---------------------------------------------------------------- for strands

    def time(self, process: Process | None = None) -> datetime:
        """Read the wall clock of a process, by default of the one that runs; outside of processes, the true one."""
        if process is None and self.current is not None:
            process = self.current.process
        offset = 0.0 if process is None else process.offset
        return EPOCH + timedelta(seconds=self.now + offset)

    def park(self, seconds: float | None = None) -> bool:
        """Let other strands run, until this one is woken or the time has passed.

        Args:
            seconds: how long; None: until it is woken.

        Returns:
            True if the strand was woken.
        """
        me = self.current
        assert me is not None, "only a strand can park"
        if self.closing:
            raise GreenletExit
        me.ticket += 1
        me.woken = False
        if seconds is not None:
            self._sequence += 1
            heapq.heappush(self._timers, (self.now + max(seconds, 0.0), self._sequence, me, me.ticket))
        self._leave(me)
        return me.woken

    def _leave(self, me: Strand) -> None:
        """Switch to the hub. The state of asyncio for this thread, its loop and its task, moves with the strand."""
        loop = me.loop
        task = None
        if loop is not None:
            task = asyncio.current_task(loop)
            if task is not None:
                asyncio.tasks._leave_task(loop, task)
            asyncio._set_running_loop(None)
        try:
            self.hub.switch()
        finally:
            if loop is not None:
                asyncio._set_running_loop(loop)
                if task is not None:
                    asyncio.tasks._enter_task(loop, task)

    def wake(self, strand: Strand) -> None:
        """Let a parked strand continue."""
        strand.woken = True
        if not strand.queued and not strand.done:
            strand.queued = True
            strand.ticket += 1
            self._ready.append(strand)

    def sleep(self, seconds: float) -> None:
        """Park for exactly this long."""
        until = self.now + seconds
        while self.now < until:
            self.park(until - self.now)

    # ---------------------------------------------------------------- for processes

    def process(self, name: str) -> Process:
        """Make a process."""
        made = Process(name, 1000 + len(self._processes), Random(f"{self._salt} {name}"))
        self._processes.append(made)
        return made

    def spawn(self, process: Process, target: Callable[[], object], name: str) -> Strand:
        """Start a strand."""
        strand = Strand(self, process, target, name)
        process.strands.append(strand)
        strand.queued = True
        self._ready.append(strand)
        return strand

    def join(self, strand: Strand, seconds: float | None = None) -> bool:
        """Wait for the end of a strand; return False if the time has passed before."""
        until = None if seconds is None else self.now + seconds
        while not strand.done:
            if until is not None and self.now >= until:
                return False
            strand.joiners.append(self.current)
            self.park(None if until is None else until - self.now)
        return True

    def freeze(self, process: Process, seconds: float) -> None:
        """Stop a process for a while, as SIGSTOP and SIGCONT do."""
        process.frozen_until = max(process.frozen_until, self.now + seconds)
        process.frozen.append((self.now, process.frozen_until))

    def kill(self, process: Process) -> None:
        """End a process at once, as SIGKILL does. If a strand of it runs, this does not return."""
        process.dead = True
        if self.current is not None and self.current.process is process:
            self._leave(self.current)

    # ---------------------------------------------------------------- the hub

    def run(self, until: Callable[[], bool], most: float) -> bool:
        """Run strands.

        Args:
            until: asked between two strands; True ends the run.
            most: the virtual time at which the run ends at the latest.

        Returns:
            False if the time has passed, or no strand will ever run again.
        """
        while not until():
            if not self._ready and not self._advance(most):
                return False
            index = int(self._rng.random() * len(self._ready)) if len(self._ready) > 1 else 0
            strand = self._ready[index]
            self._ready[index] = self._ready[-1]
            self._ready.pop()
            self._resume(strand)
        return True

    def _resume(self, strand: Strand) -> None:
        process = strand.process
        if process.dead or strand.done:
            return
        if process.frozen_until > self.now:
            self._sequence += 1
            heapq.heappush(self._timers, (process.frozen_until, self._sequence, strand, strand.ticket))
            return
        self.current = strand
        strand.queued = False
        strand.greenlet.switch()
        self.current = None

    def _advance(self, most: float) -> bool:
        """Jump to the next timer, and make its strands ready."""
        while self._timers:
            when, _, strand, ticket = self._timers[0]
            if strand.ticket != ticket or strand.done or strand.process.dead:
                heapq.heappop(self._timers)
                continue
            if when > most:
                self.now = most
                return False
            self.now = max(self.now, when)
            while self._timers and self._timers[0][0] <= self.now:
                _, _, other, number = heapq.heappop(self._timers)
                if other.ticket == number and not other.done:
                    other.queued = True
                    self._ready.append(other)
            return True
        return False

    def close(self) -> None:
        """Unwind all strands. Their waits end, and their exceptions are ignored."""
        self.closing = True
        for process in self._processes:
            for strand in list(process.strands):
                self.current = strand
                for _ in range(20):
                    if strand.greenlet.dead:
                        break
                    with contextlib.suppress(BaseException):
                        strand.greenlet.throw(GreenletExit)
                self.current = None
        asyncio._set_running_loop(None)
