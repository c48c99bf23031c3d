"""The instant of a transaction."""

from __future__ import annotations

import pytest

from redrive.engine.select import Filter
from redrive.stores.operations import admin, clock, jobs, leases, workers
from redrive.stores.query import Query
from tests.stores.helpers import T0, seconds


@pytest.mark.parametrize("now", [None, T0])
def test_every_operation_that_writes_asks_for_the_time_first(now: object):
    """The first question of every operation that writes is the clock, with the injected instant or none."""
    operations = [
        jobs.enqueue([], now=now),
        leases.claim(1, 1, lease_for=seconds(1), now=now),
        leases.settle([], now=now),
        leases.sweep(1, now=now),
        workers.register("w", concurrency=1, lease_for=seconds(1), now=now),
        workers.beat(1, seconds(1), now=now),
        workers.leave(1, now=now),
        admin.cancel(1, now=now),
        admin.retry(1, now=now),
        admin.redrive(Filter(), now=now),
    ]

    assert {True} == {operation.writes for operation in operations}
    for operation in operations:
        assert Query("clock", {"now": now}, into=clock.Instant) == next(operation.steps)
        operation.steps.close()
