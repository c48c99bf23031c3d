"""The signals that branches have received and that are not recorded yet.

A signal belongs to the code that goes on with it. So the row of a received one is written with the next row of its
branch: a step, a wait, or the decision of the call that opened the branch. A crash before leaves the signal unread, and
another pass receives it again. If the row stood there without the decision, another branch could win the next pass.

A branch that has received a signal may end with it, and win, or go on. Until it has done one of them, no other branch
receives a signal, because it could be dropped at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from operator import attrgetter

from msgspec.structs import replace

from redrive.engine.runs import ChildEnd, EmitRecord, RunState, SignalRecord
from redrive.engine.steps import NewStep
from redrive.runtime.runs.branches import Branch, Receipt
from redrive.stores.operations.runs.steps import UNREAD, Arrivals


class Inbox:
    """The unread signals of a run, the emitted values and the ends of children that it waits for."""

    def __init__(self, state: RunState) -> None:
        self.signals: list[SignalRecord] = list(state.signals)
        self.emits: dict[str, EmitRecord] = {each.name: each for each in state.emits}
        self.children: dict[int, ChildEnd] = {each.job_id: each for each in state.children}
        #: True if the database may have more unread signals than were read.
        self.is_partial: bool = len(state.signals) >= UNREAD
        # A signal that was received is still unread in the database until its row is written.
        self._seen = {each.id for each in state.signals}

    def add(self, arrived: Arrivals) -> bool:
        """Add what is new, and return True if something is."""
        signals, emits, children = arrived
        self.is_partial = self.is_partial or len(signals) >= UNREAD
        before = len(self.emits) + len(self.children)
        self.emits.update({each.name: each for each in emits})
        self.children.update({each.job_id: each for each in children})
        # Of a partial inbox only the waits themselves find out if something is new for them.
        return self.add_signals(signals) or self.is_partial or len(self.emits) + len(self.children) > before

    def first(self, name: str, until: datetime | None) -> SignalRecord | None:
        """Return the first unread signal of a name, if it has come until an instant."""
        found = (each for each in self.signals if each.name == name and (until is None or each.at <= until))
        return next(found, None)

    def give_back(self, signals: Iterable[SignalRecord]) -> None:
        """Add signals that were received by a branch which was dropped before they were recorded."""
        self.signals = sorted((*self.signals, *signals), key=attrgetter("id"))

    def add_signals(self, signals: Sequence[SignalRecord]) -> bool:
        """Add signals that were not read before, and return True if there are some."""
        fresh = [each for each in signals if each.id not in self._seen]
        self._seen.update(each.id for each in fresh)
        self.signals = sorted((*self.signals, *fresh), key=attrgetter("id"))
        return bool(fresh)


# Seconds that a branch with a signal holds up the others at most. It may wait for something that another one does with
# a signal of its own, such as the release of a lock.
HOLDS = 1.0


class Receipts:
    """The branches with signals that have neither gone on nor ended.

    Args:
        inbox: takes signals back.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        #: Each with the timer that closes it.
        self._open: dict[Branch, asyncio.TimerHandle] = {}
        self._waiting: list[asyncio.Future[None]] = []

    def receive(self, branch: Branch, row: NewStep, signal: SignalRecord) -> None:
        """Take a signal out of the inbox for a branch."""
        self._inbox.signals.remove(signal)
        branch.held.append(Receipt(row, signal))
        self._put(branch)

    def _put(self, branch: Branch) -> None:
        self._close(branch)
        self._open[branch] = asyncio.get_running_loop().call_later(HOLDS, self._close, branch)

    def _close(self, branch: Branch) -> bool:
        timer = self._open.pop(branch, None)
        if timer is None:
            return False
        timer.cancel()
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)
        return True

    def goes_on(self, branch: Branch) -> None:
        """Note that a branch has taken note of what it has received."""
        branch.received = False
        if self._open:
            self._close(branch)

    def ends(self, branch: Branch) -> None:
        """Note that a branch has ended; the one that has opened it goes on with its result."""
        if self._close(branch) and branch.parent is not None and not branch.dropped:
            self._put(branch.parent)

    def hand_over(self, branch: Branch, *, seen: bool) -> None:
        """Pass what an ended branch has received on to the one that has opened it; its code may have ``seen`` it."""
        if branch.held and branch.parent is not None:
            branch.parent.held += [replace(each, seen=each.seen or seen) for each in branch.held]
            branch.held = []

    def drop(self, branch: Branch, *, seen: bool) -> None:
        """Make unread again what a dropped branch has received and no code has seen; pass the rest on."""
        self._inbox.give_back(
            each.signal for each in branch.held if each.signal is not None and not (seen or each.seen)
        )
        branch.held = [each for each in branch.held if seen or each.seen]
        self.hand_over(branch, seen=seen)

    async def turn(self, branch: Branch) -> None:
        """Wait until no other branch has a signal with which it has not gone on."""
        await self._until(lambda: self._open.keys() <= {branch})

    async def settled(self, parent: Branch) -> None:
        """Wait until no branch below this one has a signal with which it has not gone on."""
        await self._until(lambda: not any(each.is_below(parent) for each in self._open))

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
