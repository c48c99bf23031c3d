"""A background duty that writes the ends of attempts in batches."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from redrive.app.app import App
from redrive.clock import Clock
from redrive.engine.origin import is_feeder
from redrive.engine.outcome import Failed, Lost, Outcome, Released, Succeeded
from redrive.engine.records import Claim
from redrive.engine.settle import CATCH_AGAIN
from redrive.errors import StoreBusy, StoreError, StoreFull, StoreOutcomeUnknown, StoreUnreachable
from redrive.errors.foreign import summary, trace
from redrive.observe.logs import Block
from redrive.policy import Failure
from redrive.runtime import failpoints, log
from redrive.runtime.step_writer import StepWriter
from redrive.runtime.supervision import Duty, Outage, cancel, rest
from redrive.runtime.threads import Threads
from redrive.stores.operations import leases
from redrive.stores.operations.leases import Ending, Settled

# A commit costs the same for one row or two hundred, so ends travel together: the settler waits until nothing more is
# about to end, or a time has passed that depends on the rate of ends (`redrive.engine.pace`), or `BATCH` have gathered.
# While one batch is being written the next gathers. The claimer is woken just before each batch, so that its next claim
# joins the same transaction: a busy worker makes one commit for each batch of jobs, not one to claim them and one to
# settle them.
#
# Endings of one transaction.
BATCH = 500

# The last ends of attempts that must not run twice, which are kept for `Settler.write_again`.
REMEMBERED = 1000

# Transactions in which endings that were set aside are written at the same time; the connections of a store are few.
LANES = 4

_LATER: Final = (StoreBusy, StoreFull, StoreUnreachable, StoreOutcomeUnknown)

_UNDONE = "the database server was replaced by one that lacks the transaction in which its handler had succeeded"


def _is_written(ending: Ending) -> bool:
    """Return True if a transaction of the handler has written the end."""
    return isinstance(ending.outcome, Succeeded) and ending.outcome.written is not None


def is_once(claim: Claim) -> bool:
    """Return True for a claim of a task whose started attempt must not be followed by another one."""
    return claim.policy.idempotent is False and not is_feeder(claim.origin)


class RunningAttempts(Protocol):
    """The part of `redrive.runtime.attempts.Attempts` that the settler uses."""

    claim_again: asyncio.Event

    @property
    def count(self) -> int:
        """The number of attempts with ends that are not written."""

    @property
    def linger(self) -> float:
        """The seconds to wait for more ends."""

    def settled(self, endings: Sequence[Ending], settled: Settled) -> None:
        """Receive a batch that was written."""


class Settler:
    """The background duty that writes the ends of attempts."""

    def __init__(
        self,
        app: App,
        clock: Clock,
        attempts: RunningAttempts,
        steps: StepWriter,
        *,
        threads: Threads | None = None,
        era: Callable[[], int | None] = lambda: None,
        outage: Outage | None = None,
    ) -> None:
        self._app = app
        self._outage = outage or Outage(clock)
        self._era = era
        self._once: deque[Ending] = deque(maxlen=REMEMBERED)
        self._clock = clock
        self._attempts = attempts
        self._threads = threads
        self._endings: list[Ending] = []
        self._steps = steps
        self._arrived = asyncio.Event()
        self._aside: dict[asyncio.Task[None], Sequence[Ending]] = {}
        self._lanes = asyncio.Semaphore(LANES)
        self._stopped: set[int] = set()
        """Leases of ended attempts with handlers that have stopped since; not written yet."""
        self.duty: Duty = Duty("settling", self._step)

    def put(self, ending: Ending) -> None:
        """Queue an ending to be written."""
        self._endings.append(ending)
        self._arrived.set()

    def let_go(self, lease_id: int) -> None:
        """Write that the handler of an ended attempt has stopped, as soon as it has."""
        loop = asyncio.get_running_loop()

        def stopped() -> None:
            # The event loop may have ended, and with it the worker.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._has_stopped, lease_id)

        if self._threads is None:
            stopped()
        else:
            self._threads.when_stopped(lease_id, stopped)

    def _has_stopped(self, lease_id: int) -> None:
        self._stopped.add(lease_id)
        self._arrived.set()

    @property
    def waiting(self) -> int:
        """The number of endings that are not written yet."""
        return len(self._endings) + sum(map(len, self._aside.values()))

    @property
    def unwritten(self) -> tuple[Ending, ...]:
        """The endings without a confirmed write."""
        return (*self._endings, *itertools.chain.from_iterable(self._aside.values()))

    # After such an end is lost with its server, the job would run again, or be dead as lost in flight. That is what is
    # left for one with a transaction of its own, which is lost too: nothing shows whether it has done more than that.
    async def write_again(self) -> None:
        """Write the last ends of attempts that must not run twice once more: a new server may lack them.

        An end that is stored already, or whose lease is not current, changes nothing. Raise `StoreError`.
        """
        ends = (each for each in self._once if not isinstance(each.outcome, Released))
        again = tuple(replace(each, outcome=Lost(_UNDONE)) if _is_written(each) else each for each in ends)
        if again:
            await self._app.store.arun(leases.settle(again, now=self._app.now()))

    async def close(self) -> None:
        """Stop writing the endings that have been set aside."""
        await cancel(*self._aside)

    async def _step(self) -> float:
        """Write one batch. A batch that fails halfway is written again, which changes nothing twice."""
        await self._arrived.wait()
        # A run that waits for its rows ends no earlier than they are written.
        if self._attempts.count > len(self._endings) + self._steps.waiting and len(self._endings) < BATCH:
            await self._clock.asleep(self._attempts.linger)
        self._attempts.claim_again.set()
        batch = self._endings[:BATCH]
        if self._steps.waiting:
            # Rows of a run that was interrupted are refused when its lease has ended.
            await self._steps.written({each.claim.lease_id for each in batch if isinstance(each.outcome, Released)})
        keyed = [each for each in batch if leases.takes_keys(each)]
        if keyed:
            self._set_aside(keyed)
            self._endings[: len(batch)] = batch = [each for each in batch if not leases.takes_keys(each)]
        if batch or self._stopped:
            await self._write(batch)
        del self._endings[: len(batch)]
        if not self._endings:
            self._arrived.clear()
        return 0.0

    # An ending is kept until the store has taken it. While the store is busy, full or unreachable, it is tried again
    # with growing rests; trying twice is safe, because a lease settles once (`redrive.stores.operations.leases`). If a
    # batch fails for another reason, each ending is tried alone, and one that fails alone is *set aside* and tried
    # again by itself, so that it delays no other. If the decision about the ending fails, such as by a backoff function
    # of the user that raises, trying again would not help: the job ends with that as its error.
    async def _write(self, batch: Sequence[Ending]) -> None:
        tries = 0
        while True:
            error = await self._try(batch)
            if error is None:
                return
            tries += 1
            if not isinstance(error, _LATER):
                break
            await self._clock.asleep(rest(tries))
        for ending in batch:
            if len(batch) > 1:
                await self._write([ending])
            else:
                self._refused(ending, error, tries)

    async def _try(self, batch: Sequence[Ending]) -> Exception | None:
        """Write endings in one transaction; return the error if the store does not take them."""
        try:
            failpoints.at("before_settle")
            batch, stopped = self._marked(batch), frozenset(self._stopped)
            operation = leases.settle(batch, stopped=stopped, now=self._app.now())
            settled = await self._app.store.arun(replace(operation, era=self._era()))
        except _LATER as error:
            self._outage.failed(self.duty.name, error)
            return error
        except Exception as error:  # noqa: BLE001 - without a settler the worker loses every job
            return error
        self._outage.worked(self.duty.name)
        failpoints.at("after_settle")
        self._stopped -= stopped
        for ending in batch:
            if is_once(ending.claim):
                self._once.append(ending)
            if ending.unstopped:
                self.let_go(ending.claim.lease_id)
        self._attempts.settled(batch, settled)
        return None

    def _marked(self, batch: Sequence[Ending]) -> Sequence[Ending]:
        """Mark the attempts with handlers that still run."""
        running = () if self._threads is None else self._threads.running
        if not running:
            return batch
        return [replace(each, unstopped=each.claim.lease_id in running) for each in batch]

    def _refused(self, ending: Ending, error: Exception, tries: int) -> None:
        log.error("settling job %d failed; trying again%s", ending.claim.id, Block(trace(error)))
        if not isinstance(error, StoreError):
            ending = replace(ending, outcome=_undecided(ending, error))
        self._set_aside([ending], tries)

    # Endings that take keys are set aside at once. A user's transaction may hold a key for any time, and the store
    # waits for it, which must delay only endings that take keys, too.
    def _set_aside(self, batch: Sequence[Ending], tries: int = 0) -> None:
        """Write endings beside the others."""
        odd = asyncio.create_task(self._beside(batch, tries))
        self._aside[odd] = batch
        odd.add_done_callback(self._written)

    def _written(self, odd: asyncio.Task[None]) -> None:
        # A cancelled task has not written its endings.
        if not odd.cancelled():
            self._aside.pop(odd, None)

    async def _beside(self, batch: Sequence[Ending], tries: int) -> None:
        """Write endings that were set aside: together, or each alone if the store does not take them."""
        while True:
            if tries:
                await self._clock.asleep(rest(tries))
            async with self._lanes:
                error = await self._try(batch)
            if error is None:
                return
            tries += 1
            if len(batch) > 1 or not isinstance(error, _LATER):
                break
        for ending in batch:
            if len(batch) > 1:
                self._set_aside([ending], tries)
            else:
                self._refused(ending, error, tries)


def _undecided(ending: Ending, error: Exception) -> Outcome:
    why = f"the decision about this attempt failed: {summary(error)}"
    if ending.claim.catching:
        return Released(why, CATCH_AGAIN)
    return Failed(Failure((), why, permanent=why))
