"""Shards that a worker gives back to others."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from redrive import App
from redrive.runtime.feeders import AGAIN_AFTER, Balancer, Feeders, surplus
from redrive.stores.operations import leases, workers
from redrive.testing import VirtualClock
from tests.runtime.helpers import LONG, Registered


@pytest.mark.parametrize(
    ("mine", "others", "given"),
    [(4, [], 0), (4, [0], 2), (3, [1], 1), (2, [2], 0), (2, [1], 0), (4, [0, 0], 2), (2, [2, 0], 1), (0, [4], 0)],
)
def test_a_worker_gives_back_what_is_above_its_share(mine: int, others: list[int], given: int):
    """Give back what is above the share, or one if another worker has at least two fewer."""
    assert given == surplus(mine, others)


def test_a_worker_that_takes_no_shard_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    """Give shards to the same workers once, and again after a while."""
    app = App("memory://", clock=VirtualClock())
    topic = app.topic("clicks", int)

    @topic.subscribe("log", order="key", shards=4)
    def log(number: int) -> None: ...

    app.topics.declare()
    mine, _ = (
        app.store.run(workers.register(name, concurrency=9, lease_for=LONG, tasks=app.served(), now=app.now()))
        for name in ("mine", "other")
    )
    claims = app.store.run(leases.claim(mine, 9, lease_for=LONG, now=app.now())).claims
    given: list[tuple[str, int]] = []
    feeders = Feeders(app, app.clock, None, {})
    monkeypatch.setattr(feeders, "counts", lambda: Counter(each.task for each in claims))
    monkeypatch.setattr(feeders, "give_back", lambda task, count, *, until: given.append((task, count)))
    duty = Balancer(app, app.clock, Registered(app, mine), feeders).duty

    for _ in range(2):
        asyncio.run(duty.step())
    assert [(log.feeder, 2)] == given
    app.clock.advance(AGAIN_AFTER)
    asyncio.run(duty.step())
    assert [(log.feeder, 2)] * 2 == given
    app.close()


def test_shards_that_were_given_back_are_not_claimed_at_once():
    """Leave a task out of the claims for some seconds after its shards were given back."""
    app = App("memory://", clock=VirtualClock())
    feeders = Feeders(app, app.clock, None, {})
    tasks = frozenset({"a", "b"})
    before = feeders.claimable(tasks)
    feeders.give_back("a", 1, until=app.clock.monotonic() + 3)
    during = feeders.claimable(tasks)
    app.clock.advance(3)

    assert (tasks, {"b"}, tasks) == (before, during, feeders.claimable(tasks))
    app.close()
