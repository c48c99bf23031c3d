"""What has changed besides the numbers of jobs."""

from __future__ import annotations

import itertools
from datetime import timedelta

from redrive.engine.queue import QueueChange
from redrive.stores.operations import admin, queues, workers
from redrive.stores.operations.changes import Latest, latest
from tests.stores.helpers import Harness, new


def test_an_empty_store_has_no_latest_rows(store: Harness):
    """Without a row the numbers are zero."""
    assert Latest(0, 0, 0, 0, 0, 0) == store.do(latest())


def test_actions_and_workers_are_changes(store: Harness):
    """Each action of an operator changes the numbers, and so does a worker that comes or leaves; reading does not."""
    store.enqueue(new(), new())
    seen = [store.do(latest())]
    for change in (
        queues.change("default", QueueChange(paused=True), actor="ann", now=store.now),
        admin.cancel(1, now=store.now),
        workers.register("one", concurrency=1, lease_for=timedelta(minutes=1), now=store.now),
    ):
        store.do(change)
        seen.append(store.do(latest()))
    store.do(workers.leave(seen[-1].worker, now=store.now))
    seen.append(store.do(latest()))

    assert all(before != after for before, after in itertools.pairwise(seen))
    assert seen[-1] == store.do(latest())
