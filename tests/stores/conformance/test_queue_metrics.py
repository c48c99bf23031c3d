"""Queue depths, at a bounded cost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import pytest

from redrive.engine.outcome import Suspended
from redrive.engine.records import NewJob
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


def counted(store: Harness, queue: str | None = None, most: int = 2) -> dict[str, str]:
    """Return the counts of a queue, or of all, as readers show them, without zeros."""
    found = module.counted(store.do(module.depths(most=most, now=store.now)).queues, queue)
    return {state.value: str(count) for state, count in found.items() if str(count) != "0"}


def parted(job: NewJob) -> NewJob:
    """Return a job with a partition."""
    return msgspec.structs.replace(job, partition="acme")


def test_counts_stop_at_their_limit(store: Harness):
    """A lane with more jobs than the limit has the number of the limit, and says that there may be more."""
    store.enqueue(*[new(queue="mail")] * 3, *[new(queue="mail", delay=60)] * 3)
    lines = store.do(module.depths(most=2, now=store.now)).queues

    assert {("due", 2, True), ("later", 2, True)} == {(each.standing, each.jobs, each.is_capped) for each in lines}
    assert {"due": "3", "later": "3"} == counted(store, "mail", most=4)


def test_no_queue_is_left_out(store: Harness):
    """The limit is one of each lane: with more queues than that, none is left out."""
    store.enqueue(*[new(queue="a")] * 5, new(queue="b"), new(queue="c"))

    assert [{"due": "2+"}, {"due": "1"}, {"due": "1"}] == [counted(store, each) for each in "abc"]
    assert {"due": "4+"} == counted(store)


@pytest.mark.parametrize("place", [lambda job: job, parted], ids=["plain", "parted"])
@pytest.mark.parametrize(
    "other",
    [
        {"task": "a_reminder", "queue": "mail"},
        {"task": "send", "queue": "mail", "priority": -5},
        {"task": "send", "queue": "a"},
        {"task": "send", "queue": "mail"},
    ],
    ids=["task", "priority", "queue", "lane"],
)
def test_later_jobs_hide_no_due_ones(store: Harness, place: Callable[[NewJob], NewJob], other: dict[str, Any]):
    """Due jobs are counted whatever is delayed before them in the index, and delayed ones whatever is due."""
    began = store.now
    later = new(**other, delay=99)
    store.enqueue(*[place(later)] * 5, *[place(new("send", queue="mail"))] * 2)
    for each in (3, 5):
        found = store.do(module.depths(most=each, now=store.now)).queues
        due = next(line for line in found if line.standing is DepthState.DUE)
        assert ("mail", 2, began, False) == (due.queue, due.jobs, due.oldest_at, due.is_capped)
    store.enqueue(*[place(new("send", queue="mail"))] * 5)

    assert {"due": "3+", "later": "3+"} == counted(store, most=3)


def test_the_oldest_due_job_is_found_in_any_lane(store: Harness):
    """The instant at which the first job became due is that of the whole queue, also if the counts are capped."""
    first = store.now
    store.enqueue(new("zeta", queue="mail", priority=9))
    store.wait(60)
    store.enqueue(*[new("alpha", queue="mail")] * 5)

    assert {("mail", DepthState.DUE): (6, first)} == read(store)
    assert [first] == [each.oldest_at for each in store.do(module.depths(most=2, now=store.now)).queues]


def test_a_state_without_an_index_by_queue_is_capped_for_all_queues(store: Harness):
    """If the dead jobs of all queues reach the limit, each queue may have more, also where none was read."""
    for _ in range(2):
        store.end(store.take(new(queue="mail")), FATAL)
    store.enqueue(new(queue="bulk"))
    before = counted(store, "mail", most=3), counted(store, "bulk", most=3)

    assert ({"dead": "2"}, {"due": "1"}) == before
    assert ({"dead": "2+"}, {"due": "1", "dead": "0+"}) == (counted(store, "mail"), counted(store, "bulk"))
