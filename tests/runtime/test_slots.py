"""How many jobs a worker takes: an attempt that has ended makes room before its end is written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from redrive import App
from redrive.engine.outcome import Succeeded
from redrive.engine.records import Claim
from redrive.runtime.settler import Settler
from redrive.runtime.worker import Worker
from redrive.stores.operations.leases import Ending, Settled
from redrive.testing import VirtualClock
from tests.runtime.helpers import PATIENCE, repeat, take


@pytest.mark.parametrize(
    ("held", "ended", "expected"),
    [(0, 0, 3), (2, 0, 1), (3, 0, 0), (3, 2, 2), (3, 3, 3), (5, 3, 1), (6, 3, 0), (6, 6, 0)],
)
def test_a_slot_is_free_when_no_handler_is_in_it(app: App, held: int, ended: int, expected: int):
    """Ended attempts take no slot, and no more of them than there are slots may wait to be written."""
    worker = Worker(app, concurrency=3)
    worker._running = dict.fromkeys(range(held))
    worker._ended = ended

    assert expected == worker._free()


def test_an_end_is_counted_until_it_is_written(app: App):
    """A worker that has worked has no slot taken, and remembers no ends."""

    async def run() -> Worker:
        worker = Worker(app, concurrency=2)
        working = asyncio.create_task(worker.run())
        async with asyncio.timeout(PATIENCE):
            while app.stats().succeeded < 5:
                await VirtualClock().asleep(0)
            worker.stop()
            await working
        return worker

    app.task(name="send")(lambda number: None).enqueue_many(range(5))
    worker = asyncio.run(run())

    assert ({}, 0) == (worker._running, worker._ended)


def test_a_worker_that_stops_has_no_free_slot(app: App):
    """So a stop that comes during a claim is not followed by another claim."""
    worker = Worker(app, concurrency=3)
    worker.stop()

    assert 0 == worker._free()


def test_the_claimer_is_told_before_a_batch_is_written(app: App):
    """The next claim is queued while the batch is, so that they share a transaction."""
    order: list[str] = []

    def settled(endings: Sequence[Ending], _: Settled) -> None:
        order.append(f"wrote {len(endings)}")

    async def run(claims: Sequence[Claim]) -> None:
        settler = Settler(app, VirtualClock(), lambda: 0, settled, lambda: order.append("told"))
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

    assert ["told", "wrote 3"] == order
