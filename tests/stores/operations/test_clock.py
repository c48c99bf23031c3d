"""The instant of a transaction."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.engine.records import Filter
from redrive.stores.operations import admin, clock, jobs, leases, redriving, retention, workers
from tests.stores.helpers import T0, new, seconds
from tests.stores.operations.conversing import CLOCK, converse, names


@pytest.mark.parametrize("now", [None, T0])
def test_every_operation_that_writes_asks_for_the_time_first(now: object):
    """Operations that write read the clock first, with the injected instant or none; frequent ones combine that with
    another statement."""
    operations = [
        leases.settle([], now=now),
        leases.sweep(1, now=now),
        workers.leave(1, now=now),
        admin.cancel(1, now=now),
        admin.cancel_all(Filter(), now=now),
        admin.skip(1, now=now),
        redriving.retry(1, now=now),
        redriving.redrive(Filter(), now=now),
        redriving.repolicy(Filter(), {}, now=now),
        retention.forget_workers(left_for=seconds(1), now=now),
    ]

    assert {True} == {operation.writes for operation in operations}
    for operation in operations:
        asked = next(operation.steps)
        assert ("clock", {"now": now}, clock.Instant) == (asked.name, asked.params, asked.into)
        operation.steps.close()
    for busy in (
        jobs.enqueue([new()], now=now),
        leases.claim(1, 1, lease_for=seconds(1), now=now),
        workers.beat(1, seconds(1), now=now),
        workers.register("w", concurrency=1, lease_for=seconds(1), now=now),
    ):
        assert now == next(busy.steps).params["now"]
        busy.steps.close()


def test_an_anchor_that_still_holds_is_not_written_again():
    """Reading the clock a second time at the same instant writes nothing."""
    wall = clock.MachineClock(T0, None, "boot", 5)
    _, asked = converse(clock.keep(), [wall], [])
    (written,) = asked[1].many
    kept, asked_again = converse(clock.keep(), [clock.MachineClock(T0, written["value"], "boot", 5)])

    assert ["wall", "meta_put"] == names(asked)
    assert (clock.ClockState(timedelta(0), timedelta(0)), ["wall"]) == (kept, names(asked_again))


def test_the_instant_of_the_database_can_be_read_alone():
    """Reading the clock takes one query."""
    found, asked = converse(clock.present(), CLOCK)

    assert T0 == found
    assert ["clock"] == names(asked)
