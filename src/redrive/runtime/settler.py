"""A background duty that writes the ends of attempts, and the steps of running runs, in batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from redrive.app.app import App
from redrive.clock import Clock
from redrive.engine.outcome import Failed, Outcome, Released
from redrive.engine.settle import CATCH_AGAIN
from redrive.engine.steps import StepBatch, StepsAnswer, StepsWritten
from redrive.errors import StoreBusy, StoreError, StoreFull, StoreOutcomeUnknown, StoreUnreachable
from redrive.errors.foreign import summary, trace
from redrive.observe.logs import Block
from redrive.policy import Failure
from redrive.runtime import failpoints, log
from redrive.runtime.handlers import Threads
from redrive.runtime.supervision import Duty, cancel, rest
from redrive.stores.operations import leases
from redrive.stores.operations.leases import Ending, Settled

# A commit costs the same for one row or two hundred, so ends travel together: the settler waits until nothing more is
# about to end, or `LINGER` has passed, or `BATCH` have gathered. While one batch is being written the next gathers. The
# claimer is woken just before each batch, so that its next claim joins the same transaction: a busy worker makes one
# commit for each batch of jobs, not one to claim them and one to settle them.
#
# Endings of one transaction.
BATCH = 500

# Seconds to wait for more endings.
LINGER = 0.002

# Seconds until rows of a run that another transaction has locked are written again.
LATER = 0.05


class RunningAttempts(Protocol):
    """The part of `redrive.runtime.attempts.Attempts` that the settler uses."""

    claim_again: asyncio.Event

    @property
    def count(self) -> int:
        """The number of attempts with ends that are not written."""

    def settled(self, endings: Sequence[Ending], settled: Settled) -> None:
        """Receive a batch that was written."""


@dataclass(eq=False, slots=True)
class _StepWrite:
    """Rows of a run that wait to be written, and the future with the answer."""

    batch: StepBatch
    written: asyncio.Future[StepsWritten]

    def answer(self, written: StepsWritten) -> None:
        # The run may have been cancelled since.
        if not self.written.done():
            self.written.set_result(written)

    def fail(self, error: Exception) -> None:
        if not self.written.done():
            self.written.set_exception(error)


class Settler:
    """The background duty that writes the ends of attempts, and the steps of running runs."""

    def __init__(self, app: App, clock: Clock, attempts: RunningAttempts, *, threads: Threads | None = None) -> None:
        self._app = app
        self._clock = clock
        self._attempts = attempts
        self._threads = threads
        self._endings: list[Ending] = []
        self._steps: list[_StepWrite] = []
        self._arrived = asyncio.Event()
        self._aside: dict[asyncio.Task[None], Ending] = {}
        self._stopped: set[int] = set()
        """Leases of ended attempts with handlers that have stopped since; not written yet."""
        self.duty = Duty("settling", self._step)

    def put(self, ending: Ending) -> None:
        """Queue an ending to be written."""
        self._endings.append(ending)
        self._arrived.set()

    async def write_steps(self, batch: StepBatch) -> StepsWritten:
        """Write rows of a running run with the next ends of attempts, and return the answer: written or lost.

        Raise `StoreError` or another error of the store if the rows cannot be written.
        """
        waiting = _StepWrite(batch, asyncio.get_running_loop().create_future())
        self._steps.append(waiting)
        self._arrived.set()
        return await waiting.written

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
        """The number of endings and of step writes that are not written yet."""
        return len(self._endings) + len(self._steps) + len(self._aside)

    @property
    def unwritten(self) -> tuple[Ending, ...]:
        """The endings that are not written yet, as far as this process knows."""
        return (*self._endings, *self._aside.values())

    async def close(self) -> None:
        """Stop writing the endings that have been set aside."""
        await cancel(*self._aside)

    async def _step(self) -> float:
        """Write one batch. A batch that fails halfway is written again, which changes nothing twice."""
        await self._arrived.wait()
        # A run that waits for its rows ends no earlier than they are written.
        waiting = len(self._endings) + len(self._steps)
        if self._attempts.count > waiting and waiting < BATCH:
            await self._clock.asleep(LINGER)
        if self._endings or not self._steps:
            self._attempts.claim_again.set()
        batch, steps = self._endings[:BATCH], self._steps[:BATCH]
        await self._write(batch, steps)
        del self._endings[: len(batch)], self._steps[: len(steps)]
        if not self._endings and not self._steps:
            self._arrived.clear()
        return 0.0

    # An ending is kept until the store has taken it. While the store is busy, full or unreachable, it is tried again
    # with growing rests; trying twice is safe, because a lease settles once (`redrive.stores.operations.leases`). If a
    # batch fails for another reason, each ending is tried alone, and one that fails alone is *set aside* and tried
    # again by itself, so that it delays no other. If the decision about the ending fails, such as by a backoff function
    # of the user that raises, trying again would not help: the job ends with that as its error.
    async def _write(self, batch: Sequence[Ending], steps: Sequence[_StepWrite] = (), tries: int = 0) -> None:
        while True:
            try:
                failpoints.at("before_settle")
                batch, stopped = self._marked(batch), frozenset(self._stopped)
                settled = await self._app.store.arun(
                    leases.settle(batch, steps=[each.batch for each in steps], stopped=stopped, now=self._app.now())
                )
            except (StoreBusy, StoreFull, StoreUnreachable, StoreOutcomeUnknown) as error:
                tries += 1
                log.warning("settling %d attempts and %d steps waits: %s", len(batch), len(steps), error)
                await self._clock.asleep(rest(tries))
            except Exception as error:  # noqa: BLE001 - without a settler the worker loses every job
                await self._write_alone(batch, steps, error, tries)
                return
            else:
                failpoints.at("after_settle")
                self._stopped -= stopped
                for ending in batch:
                    if ending.unstopped:
                        self.let_go(ending.claim.lease_id)
                if batch or not steps:
                    self._attempts.settled(batch, settled)
                self._answer(steps, settled.steps)
                return

    async def _write_alone(
        self, batch: Sequence[Ending], steps: Sequence[_StepWrite], error: Exception, tries: int
    ) -> None:
        """Write each part of a batch that failed by itself; an error then belongs to that part."""
        if len(batch) + len(steps) > 1:
            for each in steps:
                await self._write([], [each])
            for ending in batch:
                await self._write([ending])
        elif batch:
            self._set_aside(batch[0], error, tries + 1)
        else:
            steps[0].fail(error)

    def _answer(self, steps: Sequence[_StepWrite], answers: Sequence[StepsWritten]) -> None:
        for each, answer in zip(steps, answers, strict=True):
            if answer.answer is StepsAnswer.LATER:
                # The run is locked, for example by a transaction of a step.
                asyncio.get_running_loop().call_later(LATER, self._put_again, each)
            else:
                each.answer(answer)

    def _put_again(self, waiting: _StepWrite) -> None:
        self._steps.append(waiting)
        self._arrived.set()

    def _marked(self, batch: Sequence[Ending]) -> Sequence[Ending]:
        """Mark the attempts with handlers that still run."""
        running = () if self._threads is None else self._threads.running
        if not running:
            return batch
        return [replace(each, unstopped=each.claim.lease_id in running) for each in batch]

    def _set_aside(self, ending: Ending, error: Exception, tries: int) -> None:
        log.error("settling job %d failed; trying again%s", ending.claim.id, Block(trace(error)))
        if not isinstance(error, StoreError):
            ending = replace(ending, outcome=_undecided(ending, error))
        odd = asyncio.create_task(self._again(ending, tries))
        self._aside[odd] = ending
        odd.add_done_callback(self._written)

    def _written(self, odd: asyncio.Task[None]) -> None:
        # A cancelled task has not written its ending.
        if not odd.cancelled():
            self._aside.pop(odd, None)

    async def _again(self, ending: Ending, tries: int) -> None:
        await self._clock.asleep(rest(tries))
        await self._write([ending], tries=tries)


def _undecided(ending: Ending, error: Exception) -> Outcome:
    why = f"the decision about this attempt failed: {summary(error)}"
    if ending.claim.catching:
        return Released(why, CATCH_AGAIN)
    return Failed(Failure((), why, permanent=why))
