"""The jobs that a worker has claimed ahead: they are leased, and start when a slot becomes free.

`redrive.engine.pace` decides how many there may be. Jobs that have crashed and jobs that may not run twice never wait
here (`may_wait`), nor do jobs of limited queues, which no claim takes ahead. A job that has not started within
`PATIENCE` is given back, with no attempt spent, so that another worker can start it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from redrive.app.app import App
from redrive.clock import Clock
from redrive.engine.lease import POISON_LIMIT
from redrive.engine.origin import is_feeder
from redrive.engine.pace import PATIENCE, Pace
from redrive.engine.records import Claim
from redrive.engine.runs import RunState
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.supervision import Duty
from redrive.stores.operations import workers
from redrive.stores.query import Operation


def is_suspect(claim: Claim) -> bool:
    """Return True if one more crash of this job would be its last."""
    return claim.crashes >= POISON_LIMIT - 1 and not is_feeder(claim.origin)


def may_wait(claim: Claim) -> bool:
    """Return True if a job may be leased before there is a slot for it."""
    # If the worker dies, a job that may not run twice is dead although it has not started. Any other job has one crash
    # more: the row does not show that it had not started, since to write each start would cost as much as a claim. One
    # such crash is tolerable, but two would make a suspect of a healthy job.
    return claim.policy.idempotent is not False and claim.crashes == 0


class Waiting(NamedTuple):
    """A job that has no slot yet."""

    claim: Claim
    state: RunState | None
    since: float  # an instant of the monotonic clock


# The event loop puts jobs in and starts them. The thread of the heartbeat gives back those that wait while a handler
# blocks the loop.
class Ahead:
    """The jobs that a worker has claimed ahead.

    Attributes:
        waiting: these jobs, in the order in which they start.
        size: the number of jobs that may wait.
        scarce: True while jobs are due that may not be claimed ahead. Then none is, so that slots become free.
        duty: gives back jobs that have waited too long.
    """

    def __init__(self, app: App, clock: Clock, registration: WorkerRegistration) -> None:
        self.size = 0
        self.scarce = False
        self._app = app
        self._clock = clock
        self._registration = registration
        self.waiting: deque[Waiting] = deque()
        self._returning: frozenset[int] = frozenset()
        self._filled = asyncio.Event()
        self._pace = Pace()
        self._ended, self._busy = 0, 0.0
        self.duty: Duty = Duty("giving back", self._step)

    def leases(self) -> list[int]:
        """Return the leases of the jobs that wait or are being given back. Safe to call from any thread."""
        return [*self._returning, *(each.claim.lease_id for each in tuple(self.waiting))]

    # ---------------------------------------------------------------- the pace

    @property
    def wanted(self) -> int:
        """The number of jobs that should wait; 0 while half as many do, because a small claim costs as much."""
        size = 0 if self.scarce else self._pace.ahead(self._clock.monotonic())
        return size if 2 * len(self.waiting) <= size else 0

    @property
    def linger(self) -> float:
        """The seconds for which an end of an attempt waits for others before it is written."""
        return self._pace.linger(self._clock.monotonic())

    def ended(self, began: float) -> None:
        """Count an attempt that began at this instant and ends now."""
        self._ended += 1
        self._busy += self._clock.monotonic() - began

    def measure(self) -> None:
        """Measure the pace again, after ends of attempts were written."""
        now = self._clock.monotonic()
        self._pace = self._pace.after(self._ended, self._busy, now)
        self._ended, self._busy = 0, 0.0
        self.size = self._pace.ahead(now)

    # ---------------------------------------------------------------- the jobs

    def put(self, claim: Claim, state: RunState | None) -> None:
        """Add a job."""
        self.waiting.append(Waiting(claim, state, self._clock.monotonic()))
        self._filled.set()

    def pop(self) -> Waiting | None:
        """Take the job that starts next; None if none is left."""
        try:
            return self.waiting.popleft()
        except IndexError:
            return None

    def drop(self, lease_ids: Collection[int]) -> list[Claim]:
        """Remove jobs that have lost their leases, and return them."""
        dropped = [each for each in tuple(self.waiting) if each.claim.lease_id in lease_ids]
        for each in dropped:
            with contextlib.suppress(ValueError):
                self.waiting.remove(each)
        return [each.claim for each in dropped]

    # ---------------------------------------------------------------- giving back

    async def _step(self) -> float:
        await self._filled.wait()
        if not self.waiting:
            self._filled.clear()
            return 0.0
        left = self.waiting[0].since + PATIENCE - self._clock.monotonic()
        if left <= 0:
            late = self._late()
            await self.give_back(late, f"no slot of worker {self._registration.id} became free in time")
        return max(left, 0.0)

    def _late(self) -> list[int]:
        """Take the jobs that have waited too long, and return their leases."""
        late, now = [], self._clock.monotonic()
        # As `_step` computes it: another formula may round to the other side, so that nothing is late for ever.
        while self.waiting and self.waiting[0].since + PATIENCE <= now and (each := self.pop()) is not None:
            late.append(each.claim.lease_id)
        self._returning |= frozenset(late)
        return late

    async def give_back(self, lease_ids: Collection[int], why: str) -> None:
        """Give jobs back that have not started; if that fails, the claimer does so later."""
        try:
            if lease_ids:
                await self._app.store.arun(self._giving_back(lease_ids, why))
        finally:
            self._returning -= frozenset(lease_ids)

    async def give_back_all(self) -> None:
        """Give back all jobs that wait, because the worker shuts down."""
        waiting = []
        while (each := self.pop()) is not None:
            waiting.append(each.claim.lease_id)
        await self.give_back(waiting, f"worker {self._registration.id} shut down")

    def give_back_from_thread(self, timeout: float) -> None:
        """Give back jobs that have waited too long, from another thread: a handler blocks the event loop.

        Args:
            timeout: seconds that the database may take.
        """
        late = self._late()
        try:
            if late:
                why = f"a handler keeps the event loop of worker {self._registration.id} busy"
                self._app.store.run(self._giving_back(late, why), timeout=timeout)
        finally:
            self._returning -= frozenset(late)

    def _giving_back(self, lease_ids: Collection[int], why: str) -> Operation[list[int]]:
        # The estimate was wrong: the pace is measured anew.
        self._pace, self.size = Pace(), 0
        return workers.give_back(self._registration.id, lease_ids, why, now=self._app.now())
