"""The waits of the branches of a pass, and the end of the pass when all of them wait.

::

    wait(row is written), wait_with(row is not written yet)
      `-> consider: does every branch wait?
            |-- yes --> attach the rows of the waits, Parked -> close: throw `Parking` into each wait
            `-- no ---> write the rows of the waits, keep their due times, poll for signals

A body is not torn down while a branch still works, because the effect of that would be repeated; until then this
process keeps the due times of the other branches. `redrive.runtime.runs.conductor` has the place of this in the way of
a call.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, Protocol

from redrive.clock import SystemClock
from redrive.engine.outcome import Outcome, Parked
from redrive.engine.runs import FAR, StepKind, StepRecord
from redrive.engine.steps import StepEnd
from redrive.errors import FlowInterrupt, LeaseLost, Parking
from redrive.runtime.runs.branches import Branch, BranchWait
from redrive.runtime.runs.writes import Writes

# Seconds between two polls for signals, while a branch waits for one and another branch works.
_LOOK = 0.5

# Seconds for which a virtual clock stands while a branch works and nothing begins or ends, and those between two looks.
_PATIENCE, _SHORT = 1.0, 0.02


class NamedCalls(Protocol):
    """The named calls of a body; see `redrive.runtime.runs.keyed`."""

    def all_wait(self) -> bool:
        """Return True if no function of a step runs: every call waits, and the rest is up to the body."""

    def is_short(self, left: float | None) -> bool:
        """Return True for a wait that is kept in memory: it ends in so many seconds."""

    def settle(self, park: Callable[[], None]) -> None:
        """Park the body if no call begins or ends for a while."""

    def tear_down(self) -> None:
        """Cancel the calls that are held back, and the tasks of branches that are in no call."""


class Waits:
    """The waits of the branches of one pass.

    Args:
        branches: those that run; the conductor changes the list.
        writes: writes the rows of waits.
        parked: returns the outcome of a run that parks, by its due time, a text for the screen, and the paths of its
            waits.
        refresh: reads what has arrived for the run, and wakes its waits if something has.
        now: returns the present instant of the store's clock, or an earlier one.
        asleep: waits for so many seconds.
        is_virtual: True if that does not wait, but advances a clock.

    Attributes:
        end: how the pass ends, from the beginning of the teardown on.
        interrupt: what each call of the body raises from then on.
    """

    def __init__(
        self,
        branches: list[Branch],
        writes: Writes,
        *,
        parked: Callable[[datetime | None, str, tuple[str, ...]], Parked],
        refresh: Callable[[], Coroutine[Any, Any, None]],
        now: Callable[[], datetime],
        asleep: Callable[[float], Coroutine[Any, Any, None]],
        is_virtual: bool,
    ) -> None:
        self._branches, self._writes, self._parked, self._refresh = branches, writes, parked, refresh
        self._now, self._asleep, self._is_virtual = now, asleep, is_virtual
        self._loop = asyncio.get_running_loop()
        self.end: Outcome | None = None
        self.interrupt: FlowInterrupt | None = None
        self._looking = False
        #: The named calls of the body, if it makes some.
        self.keyed: NamedCalls | None = None
        self._helpers: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Task[None] | None = None
        #: True while the timer waits for a time, and not for the database.
        self._sleeps = False

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
        wait = branch.wait = BranchWait(self._writes.expected(end).due_at, why, end.path, end)
        self.consider()
        try:
            await wait.woken
        finally:
            branch.wait = None
        if wait.row is not None:
            wait.row = None
            return await self._writes.record_for(branch, end)
        return wait.written or self._writes.expected(end)

    def wake(self) -> None:
        """Let all branches that wait check again."""
        for branch in self._branches:
            if branch.wait is not None:
                branch.wait.wake()

    def consider(self) -> None:
        """Check soon whether every branch waits."""
        if len(self._branches) == 1:
            self._look()
        elif not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        if self.end is not None or not self._branches:
            return
        waiting = [(branch, branch.wait) for branch in self._branches if branch.wait is not None]
        if any(wait.woken.done() for _, wait in waiting) or not waiting:
            return
        if not self._writes.unfinished and self._parks([wait for _, wait in waiting]):
            return
        for branch, wait in waiting:
            if wait.row is not None:
                self._spawn(self._write_wait(branch, wait, wait.row))
                wait.row = None
            elif branch.held:
                self._spawn(self._write_held(branch))
        if self._timer is None or self._timer.done():
            self._timer = self._loop.create_task(self._keep_times())

    def _parks(self, waits: list[BranchWait]) -> bool:
        """Park if every branch waits, or when a body with named calls has settled; return False if one goes on."""
        if self.keyed is None:
            if all(branch.is_idle for branch in self._branches):
                self._park(waits)
                return True
            return False
        if not self.keyed.all_wait() or self.keyed.is_short(self._left(waits)):
            return False
        # Virtual time must not pass while the body settles.
        self._stop_times()
        self.keyed.settle(self._settled)
        return True

    def _left(self, waits: list[BranchWait]) -> float | None:
        """Return the seconds until the first of these waits is due."""
        due = min((wait.due_at for wait in waits if wait.due_at is not None), default=None)
        return None if due is None else (due - self._now()).total_seconds()

    def _settled(self) -> None:
        """Park a body with named calls, in which nothing has happened for a while."""
        waits = [branch.wait for branch in self._branches if branch.wait is not None]
        if self.end is None and waits and not self._writes.unfinished and not any(wait.woken.done() for wait in waits):
            self._park(waits)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        helper = self._loop.create_task(work)
        self._helpers.add(helper)
        helper.add_done_callback(self._helpers.discard)

    async def _write_held(self, branch: Branch) -> None:
        with contextlib.suppress(LeaseLost):
            await self._writes.flush(branch)

    async def _write_wait(self, branch: Branch, wait: BranchWait, end: StepEnd) -> None:
        try:
            written = wait.written = await self._writes.record_for(branch, end)
        except LeaseLost:
            return  # the next call of the branch raises it
        except Exception as error:  # noqa: BLE001 - as the call that waits would raise it
            wait.throw(error)
            return
        wait.due_at = written.due_at
        if written.is_final and end.kind is not StepKind.SLEEP:
            wait.wake()

    def _park(self, waits: list[BranchWait]) -> None:
        due = min((wait.due_at for wait in waits if wait.due_at is not None and wait.row is None), default=None)
        for wait in waits:
            if wait.row is not None:
                self._writes.rows.attach(wait.row)
        for branch in self._branches:
            self._writes.attach_held(branch)
        why = "; ".join(sorted({wait.why for wait in waits}))
        # Waits of branches that were dropped are not among these, and their rows go.
        open_waits = tuple(wait.path for wait in waits)
        self.close(self._parked(None if due is None or due >= FAR else due, why, open_waits))

    def close(self, end: Outcome) -> None:
        """Tear the body down: throw the interrupt into each wait, in the order of the branches."""
        if self.end is None:
            self.end = end
            self.interrupt = Parking(getattr(end, "why", None))
            for branch in sorted(self._branches, key=lambda each: each.path):
                if branch.wait is not None:
                    branch.wait.throw(Parking(str(self.interrupt)))
            if self.keyed is not None:
                self.keyed.tear_down()

    def open(self) -> None:
        """Let the branches ask again after a teardown."""
        self.end = self.interrupt = None

    def stop(self) -> None:
        """Stop what would outlive the pass."""
        for helper in self._helpers:
            helper.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _stop_times(self) -> None:
        if self._timer is not None and self._sleeps:
            self._timer.cancel()
            self._timer, self._sleeps = None, False

    async def _keep_times(self) -> None:
        """Wake branches at their due times, and poll for signals, while another branch works."""
        while self.end is None:
            waits = [branch.wait for branch in self._branches if branch.wait is not None]
            if not waits:
                return
            now = self._now()
            due = min((wait.due_at for wait in waits if wait.due_at is not None), default=None)
            left = None if due is None else max((due - now).total_seconds(), 0.0)
            if not (self._is_virtual and left != 0.0 and await self._goes_on(left)):
                self._sleeps = True
                await self._asleep(_LOOK if left is None else min(left, _LOOK))
                self._sleeps = False
            await self._refresh()
            now = self._now()
            for wait in waits:
                if wait.due_at is not None and wait.due_at <= now:
                    wait.wake()

    # A step that works for an instant must not find that the next due time has come. One that waits for another branch
    # would wait for ever if the time stood still.
    async def _goes_on(self, left: float | None) -> bool:
        """Wait a while, with a virtual clock, for what a branch does; return True if time must not pass now."""
        before, until = self._progress(), SystemClock.monotonic() + _PATIENCE
        while self.end is None and not self._all_wait():
            if left is not None and SystemClock.monotonic() >= until:
                await self._asleep(left)
                return True
            self._sleeps = True
            await SystemClock().asleep(_SHORT)
            self._sleeps = False
            if self._progress() != before:
                return True
            await self._refresh()
        return False

    def _progress(self) -> list[tuple[str, int, BranchWait | None]]:
        return [(branch.path, branch.position, branch.wait) for branch in self._branches]

    def _all_wait(self) -> bool:
        """Return True if no function of a step runs, no row is being written, and no wait has ended."""
        if self._writes.unfinished or self._helpers:
            return False
        if any(branch.wait is not None and branch.wait.woken.done() for branch in self._branches):
            return False
        return all(branch.is_idle for branch in self._branches) if self.keyed is None else self.keyed.all_wait()
