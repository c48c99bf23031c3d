"""Queue depths, at a bounded cost."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pytest

from redrive.engine.outcome import Suspended
from redrive.stores.operations import queues as module
from redrive.stores.operations.queues import Depth, DepthState
from tests.stores.helpers import FATAL, Harness, failed, new, seconds


def read(store: Harness) -> dict[tuple[str, DepthState], tuple[int, datetime | None]]:
    """Return the depths of the queues."""
    lines: tuple[Depth, ...] = store.do(module.depths(now=store.now)).queues
    return {(line.queue, line.standing): (line.jobs, line.oldest_at) for line in lines}


def test_an_empty_store_has_no_depths(store: Harness):
    """Empty stores return the instant and no queues."""
    assert (store.now, ()) == (store.do(module.depths(now=store.now)).at, store.do(module.depths(now=store.now)).queues)


def test_each_queue_is_counted_by_what_its_jobs_are_doing(store: Harness):
    """Counts cover due, later, running, waiting and dead jobs with or without a partition, but no ended ones."""
    began = store.now
    store.end(store.take(new()))
    store.end(store.take(new()), FATAL)
    store.end(store.take(new()), Suspended(seconds(99)))
    store.end(store.take(new(retry="5 1h")), failed())
    store.take(new())
    store.enqueue(new(queue="mail"), new(queue="mail", delay=60))
    store.wait(5)
    store.enqueue(msgspec.structs.replace(new(queue="mail"), partition="a"), new(queue="bulk", priority=7))

    assert {
        ("default", DepthState.DEAD): (1, None),
        ("default", DepthState.WAITING): (1, None),
        ("default", DepthState.LATER): (1, None),
        ("default", DepthState.RUNNING): (1, None),
        ("mail", DepthState.DUE): (2, began),
        ("mail", DepthState.LATER): (1, None),
        ("bulk", DepthState.DUE): (1, store.now),
    } == read(store)


def test_counts_stop_at_their_limit(store: Harness, monkeypatch: pytest.MonkeyPatch):
    """Counts stop at their limit, and the list of queues stops at its limit in the order of names."""
    monkeypatch.setattr(module, "MOST", 3)
    monkeypatch.setattr(module, "WIDEST", 2)
    store.enqueue(*[new(queue="a")] * 5, new(queue="b"), new(queue="c"))

    assert [("a", 3), ("b", 1)] == sorted((queue, jobs) for (queue, _), (jobs, _) in read(store).items())


def test_a_count_has_a_limit(store: Harness):
    """Queues with more jobs than the limit have the number of the limit."""
    store.enqueue(*[new(queue="mail")] * 3)
    (found,) = store.do(module.depths(most=2, now=store.now)).queues

    assert ("mail", DepthState.DUE, 2) == (found.queue, found.standing, found.jobs)
