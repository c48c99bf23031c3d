"""A background duty that writes the steps of running runs in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

import msgspec
from msgspec.structs import replace

from redrive.app.app import App
from redrive.clock import Clock
from redrive.engine.steps import StepBatch, StepsAnswer, StepsWritten
from redrive.errors import StoreBusy, StoreFull, StoreOutcomeUnknown, StoreUnreachable
from redrive.runtime import failpoints
from redrive.runtime.supervision import Duty, Outage, rest
from redrive.stores.operations.runs import steps

# A step that ends while nothing is written is written at once; others gather for the next transaction. Of many steps
# that have ended together a part is written first: when the runs of that part go on, the rest is under way, so that the
# process and the database work at the same time.
#
# Transactions at once.
WRITERS = 2

NAME = "recording steps"

# Batches of rows, each of another run, in one transaction.
BATCH = 100

# Seconds between two checks whether rows are written.
LOOK = 0.005

# Seconds until rows of a run that another transaction has locked are written again.
LATER = 0.05


class _StepWrite(msgspec.Struct, eq=False):
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


class StepWriter:
    """The background duty that writes the steps of running runs.

    Attributes:
        duties: the writers, which take turns.

    Args:
        era: returns the era in which the worker has registered (`redrive.stores.store.Store.era`).
    """

    def __init__(
        self, app: App, clock: Clock, era: Callable[[], int | None] = lambda: None, outage: Outage | None = None
    ) -> None:
        self._app = app
        self._outage = outage or Outage(clock)
        self._era = era
        self._clock = clock
        self._steps: list[_StepWrite] = []
        self._under_way: set[_StepWrite] = set()
        self._arrived = asyncio.Event()
        self.duties: list[Duty] = [Duty(NAME, self._step) for _ in range(WRITERS)]

    def put(self, batch: StepBatch) -> asyncio.Future[StepsWritten]:
        """Queue rows of a running run, and return the future of the answer: written or lost.

        The future raises `StoreError` or another error of the store if the rows cannot be written.
        """
        waiting = _StepWrite(batch, asyncio.get_running_loop().create_future())
        self._put(waiting)
        return waiting.written

    def _put(self, waiting: _StepWrite) -> None:
        self._steps.append(waiting)
        self._arrived.set()

    @property
    def waiting(self) -> int:
        """The number of writes that have not ended."""
        return len(self._steps) + len(self._under_way)

    async def written(self, lease_ids: Collection[int]) -> None:
        """Wait until the rows under these leases are written. Their runs may no longer wait for them."""
        while any(each.batch.lease_id in lease_ids for each in (*self._steps, *self._under_way)):
            await self._clock.asleep(LOOK)

    async def _step(self) -> float:
        await self._arrived.wait()
        batch = self._steps[:BATCH]
        del self._steps[: len(batch)]
        if not self._steps:
            self._arrived.clear()
        if not batch:
            # The other writer has taken the rows for which both were woken.
            return 0.0
        self._under_way.update(batch)
        try:
            await self._write(batch)
        finally:
            self._under_way.difference_update(batch)
        return 0.0

    # Writing a step twice changes nothing (`redrive.stores.operations.runs.steps`), so that it is tried again while the
    # store is busy, full or unreachable. If a batch fails for another reason, each part is tried alone, and an error
    # then belongs to that part.
    async def _write(self, batch: Sequence[_StepWrite]) -> None:
        tries = 0
        while True:
            try:
                failpoints.at("before_settle")
                rows = steps.record([each.batch for each in batch], now=self._app.now())
                written = await self._app.store.arun(replace(rows, era=self._era()))
                self._outage.worked(NAME)
            except (StoreBusy, StoreFull, StoreUnreachable, StoreOutcomeUnknown) as error:
                tries += 1
                self._outage.failed(NAME, error)
                await self._clock.asleep(rest(tries))
            except Exception as error:  # noqa: BLE001 - without a writer the worker loses every run
                if len(batch) == 1:
                    batch[0].fail(error)
                    return
                for each in batch:
                    await self._write([each])
                return
            else:
                failpoints.at("after_settle")
                self._answer(batch, written)
                return

    def _answer(self, batch: Sequence[_StepWrite], answers: Sequence[StepsWritten]) -> None:
        for each, answer in zip(batch, answers, strict=True):
            if answer.answer is StepsAnswer.LATER:
                # The run is locked, for example by a transaction of a step.
                asyncio.get_running_loop().call_later(LATER, self._put, each)
            else:
                each.answer(answer)
