"""Tags: texts by which jobs are found."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.records import Filter, Hold
from redrive.stores.operations import admin, jobs, retention
from redrive.stores.operations.retention import RetentionTimes
from tests.stores.helpers import FATAL, Harness, new, seconds


def tagged(*tags: str, **options):
    """Return a job with tags."""
    return replace(new(**options), tags=tags)


def ids(store: Harness, **conditions) -> list[int]:
    """Return the ids of the matching jobs."""
    return [job.id for job in store.do(admin.select(Filter(**conditions)))]


def test_tags_are_stored_with_jobs(store: Harness):
    """Jobs have the tags of their enqueue, sorted; jobs without tags have none."""
    store.enqueue(tagged("b", "a"), new(), tagged("a"))

    assert {1: ("a", "b"), 3: ("a",)} == store.do(jobs.tags([1, 2, 3, 404]))


def test_jobs_are_found_by_a_tag(store: Harness):
    """Filters by tag return the jobs with the tag, with all other conditions."""
    store.enqueue(tagged("a", delay=9), tagged("a", "b"), tagged("b"), new(), tagged("a", queue="mail"))

    assert [5, 2, 1] == ids(store, tag="a")
    assert [2] == ids(store, tag="a", oldest_first=True, after_id=1, limit=1)
    assert [5] == ids(store, tag="a", queue="mail")
    assert [5, 2, 1] == ids(store, tag="a", state=State.READY)
    assert [1] == ids(store, tag="a", hold=Hold.DELAY)
    assert [2] == ids(store, tag="a", ids=(2, 3, 4))
    assert [] == ids(store, tag="c")


def test_dead_jobs_are_found_by_a_tag(store: Harness):
    """Filters for dead jobs regard tags too."""
    store.dead(tagged("a"))
    store.dead(tagged("b"))

    assert [2] == ids(store, tag="b", state=State.DEAD, caught=False, oldest_first=True)


def test_many_jobs_with_a_tag_are_found_by_a_scan(store: Harness, monkeypatch: pytest.MonkeyPatch):
    """If more jobs have the tag than are read by id, the same jobs are found in the same order."""
    monkeypatch.setattr(admin, "FEW", 2)
    store.enqueue(*(tagged("a" if number % 2 else "b") for number in range(6)))

    assert [6, 4, 2] == ids(store, tag="a")
    assert [2, 4] == ids(store, tag="a", oldest_first=True, limit=2)


def test_tags_are_deleted_with_their_jobs(store: Harness):
    """Pruned jobs leave no tag behind."""
    store.end(store.take(tagged("a")), FATAL)
    store.wait(10)
    store.do(retention.prune(store.do(retention.survey(0, RetentionTimes(seconds(1), seconds(1)), now=store.now))))

    assert {} == store.do(jobs.tags([1]))
    assert [] == ids(store, tag="a")


def test_jobs_are_found_by_the_time_of_their_end(store: Harness):
    """Filters by the end return jobs that ended before the instant, and no unfinished one."""
    store.dead()
    store.wait(10)
    store.dead()
    store.put()

    assert [1] == ids(store, finished_before=store.now)
    assert [2, 1] == ids(store, finished_before=store.now + seconds(1))
