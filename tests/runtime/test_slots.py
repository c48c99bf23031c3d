"""Slots of a worker: an ended attempt frees its slot before its outcome is written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from redrive import App
from redrive.engine.outcome import Succeeded
from redrive.engine.records import Claim
from redrive.runtime.attempts import Attempts
from redrive.runtime.settler import Settler
from redrive.runtime.step_writer import StepWriter
from redrive.runtime.threads import ThreadPool
from redrive.runtime.worker import Worker
from redrive.stores.operations.leases import Ending, Settled
from redrive.testing import VirtualClock
from tests.runtime.helpers import PATIENCE, Registered, repeat, take


def attempts_of(app: App) -> Attempts:
    """Return the attempts of a worker with three slots."""

    async def make() -> Attempts:
        return Attempts(app, VirtualClock(), Registered(app), concurrency=3, pool=ThreadPool(1, "handler"))

    return asyncio.run(make())


@pytest.mark.parametrize(
    ("held", "ended", "expected"),
    [(0, 0, 3), (2, 0, 1), (3, 0, 0), (3, 2, 2), (3, 3, 3), (5, 3, 1), (6, 3, 0), (6, 6, 0)],
)
def test_a_slot_is_free_when_no_handler_is_in_it(app: App, held: int, ended: int, expected: int):
    """Ended attempts take no slot, and no more of them than there are slots may wait to be written."""
    attempts = attempts_of(app)
    attempts._running = dict.fromkeys(range(held))
    attempts._ended = ended

    assert expected == attempts.free


def test_an_end_is_counted_until_it_is_written(app: App):
    """After its work the worker has no slot in use, and keeps no outcomes."""

    async def run() -> Worker:
        worker = Worker(app, concurrency=2)
        working = asyncio.create_task(worker.run())
        async with asyncio.timeout(PATIENCE):
            while app.jobs.stats().succeeded < 5:
                await VirtualClock().asleep(0)
            worker.stop()
            await working
        return worker

    app.task(name="send")(lambda number: None).enqueue_many(range(5))
    worker = asyncio.run(run())

    assert worker._attempts is not None
    assert (0, 0) == (worker.abandoned, worker._attempts._ended)


def test_a_worker_that_stops_has_no_free_slot(app: App):
    """Stopped workers have no free slot, so that no claim follows the present one."""
    attempts = attempts_of(app)
    attempts.close()

    assert 0 == attempts.free


class OrderedAttempts:
    """Attempts that record in which order the settler calls them."""

    def __init__(self, order: list[str]) -> None:
        self.order, self.count, self.claim_again = order, 0, self

    def set(self) -> None:
        """Record that the claimer is woken."""
        self.order.append("woken")

    def settled(self, endings: Sequence[Ending], _: Settled) -> None:
        """Record that a batch was written."""
        self.order.append(f"wrote {len(endings)}")


def test_the_claimer_is_woken_before_a_batch_is_written(app: App):
    """Wake the claimer before a batch is written, so that both share a transaction."""
    order: list[str] = []

    async def run(claims: Sequence[Claim]) -> None:
        settler = Settler(app, VirtualClock(), OrderedAttempts(order), StepWriter(app, VirtualClock()))
        for claim in claims:
            settler.put(Ending(claim, Succeeded(), 0.0))
        settling = asyncio.create_task(repeat(settler.duty, VirtualClock()))
        async with asyncio.timeout(PATIENCE):
            while len(order) < 2:
                await VirtualClock().asleep(0)
        settling.cancel()
        await asyncio.gather(settling, return_exceptions=True)

    app.task(name="send")(lambda number: None).enqueue_many(range(3))
    asyncio.run(run(take(app, 3)))

    assert ["woken", "wrote 3"] == order
