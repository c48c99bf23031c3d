"""Job counts by state and condition."""

from __future__ import annotations

from msgspec.structs import replace

from redrive.engine.outcome import Cancelled, Released, Snoozed
from redrive.engine.queue import QueueChange
from redrive.engine.records import Hold, Stats
from redrive.stores.operations import admin, queues
from tests.stores.helpers import FATAL, Harness, failed, new, seconds

EMPTY = Stats(due=0, scheduled=0, retrying=0, running=0, waiting=0, succeeded=0, dead=0, caught=0, cancelled=0)


def counted(store: Harness, **options) -> Stats:
    """Return the counts at the present instant."""
    return store.do(admin.stats(now=store.now, **options))


def test_an_empty_store_counts_nothing(store: Harness):
    """In a new store all counts are 0."""
    assert EMPTY == counted(store)


def test_each_job_is_counted_once(store: Harness):
    """Every job is in exactly one count: due, scheduled, retrying, running, succeeded, dead, caught or cancelled."""
    store.end(store.take(new(retry="2 1s catch mend")), FATAL)
    store.end(store.take())
    store.end(store.take(new()), FATAL)
    store.end(store.take(new(retry="5 1h")), failed())
    store.end(store.take(new()), Snoozed(seconds(60)))
    store.end(store.take(new()), Released("unknown task", seconds(15), Hold.UNKNOWN_TASK))
    store.end(store.take(new()), Cancelled("enough"))
    store.enqueue(new(), new(), new(delay=60))
    store.take()
    expected = Stats(due=1, scheduled=3, retrying=1, running=1, waiting=0, succeeded=1, dead=1, caught=1, cancelled=1)

    assert expected == counted(store)
    assert 10 == len(store.jobs())
    assert 6 == expected.unfinished


def test_waiting_jobs_become_due(store: Harness):
    """Scheduled and retrying jobs count as due from their due time on."""
    store.end(store.take(new(retry="5 10s")), failed())
    store.put(new(delay=10))
    store.now += seconds(9.999)
    before = counted(store)
    store.now += seconds(0.001)
    after = counted(store)

    assert (0, 1, 1) == (before.due, before.scheduled, before.retrying)
    assert (2, 0, 0) == (after.due, after.scheduled, after.retrying)


def test_retries_do_not_hide_scheduled_jobs(store: Harness):
    """Scheduled jobs are counted also if the retries of the store reach the limit of a count."""
    for _ in range(4):
        store.end(store.take(new(retry="5 10s")), failed())
    store.enqueue(*[new(delay=60)] * 2)
    found = counted(store, most=3)

    assert (2, 3) == (found.scheduled, found.retrying)


def test_the_counts_can_be_narrowed(store: Harness):
    """Counts can be limited to one task, and to jobs enqueued after another one."""
    first, *_ = store.enqueue(new("a"), new("b"), new("a"), new("b"), new("b"))

    assert (2, 3, 0) == tuple(counted(store, task=task).due for task in ("a", "b", "c"))
    assert (4, 1) == (counted(store, after_id=first).due, counted(store, after_id=first, task="a").due)


def test_due_jobs_are_counted_behind_many_that_wait(store: Harness):
    """No count exceeds its limit, and jobs that wait or belong to paused queues leave none of the due ones out."""
    store.enqueue(*[new("a", delay=60)] * 5, new("a"), replace(new("b"), partition="p"), new("c", queue="z"))
    store.do(queues.change("z", QueueChange(paused=True), now=store.now))
    counts = counted(store, most=3)

    assert (3, 3, 0) == (counts.due, counts.scheduled, counts.succeeded)
    assert (1, 3) == (counted(store, task="a", most=3).due, counted(store, task="a", most=3).scheduled)


def test_ended_jobs_are_counted_among_the_newest(store: Harness):
    """Succeeded and cancelled jobs are counted among the newest jobs, dead ones among all."""
    store.end(store.take(new()), FATAL)
    for _ in range(3):
        store.end(store.take(new()))

    assert (2, 1) == (counted(store, most=2).succeeded, counted(store, most=2).dead)


def test_without_an_instant_the_clock_of_the_database_counts(store: Harness):
    """Counts without an injected instant use the database's clock."""
    store.put(new(delay=60))

    assert 1 == store.do(admin.stats()).due
