"""Delete and archive: chosen jobs go with all their rows, running ones never."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.engine.outcome import Succeeded
from redrive.engine.records import Filter, KeyUntil, NewJob
from redrive.stores.operations import audit, deleting, jobs
from tests.stores.helpers import FATAL, Harness, new, seconds

ALL = Filter(all=True)


def delete(store: Harness, wanted: Filter = ALL, **options) -> deleting.BulkResult:
    """Delete jobs."""
    return store.do(deleting.delete(wanted, now=store.now, **options))


def keyed(**options) -> NewJob:
    """Return a job with a key and a tag."""
    return replace(new(**options), key="k", key_until=KeyUntil.END, tags=("t",))


def test_chosen_jobs_are_deleted_with_all_their_rows(store: Harness):
    """Deleting by filter removes the jobs that match, and leaves the others."""
    store.end(store.take(keyed()), Succeeded(b"1"))
    store.dead()
    store.put(new(queue="mail"))

    assert (1, 2) == delete(store, Filter(queue="default")).ids
    assert [3] == [job.id for job in store.jobs()]
    assert ({}, (), None) == (store.do(jobs.tags([1])), store.history(2), store.result(1))


def test_a_job_that_has_not_started_is_cancelled_and_deleted(store: Harness):
    """Deleting a ready job releases its key."""
    store.put(keyed(delay=60))

    assert (1,) == delete(store, Filter(tag="t")).ids
    assert 2 == store.put(keyed())


def test_running_and_waiting_jobs_stay(store: Harness):
    """Jobs with an open attempt are never deleted; the result has the reasons."""
    claim = store.take(new())
    store.wait_for_answer()
    before = store.everything()

    done = delete(store)
    assert ((), (1, 2)) == (done.ids, tuple(number for number, _ in done.kept))
    assert ["runs: cancel it first, or let it end", "waits for an answer: cancel it first, or let it end"] == [
        why for _, why in done.kept
    ]
    assert before == store.everything()
    store.end(claim)
    assert (1,) == delete(store).ids


def test_a_dead_job_goes_with_its_catch_job(store: Harness):
    """Dead jobs are deleted together with their catch jobs, or after them."""
    store.end(store.take(new(retry="2 1s catch mend")), FATAL)

    alone = delete(store, Filter(ids=(1,)))
    assert ((), ((1, "stays: its catch job 2 must be deleted first"),)) == (alone.ids, alone.kept)
    claim = store.take()
    running = delete(store)
    assert ((), [1, 2]) == (running.ids, [number for number, _ in running.kept])
    store.end(claim)
    assert (1, 2) == delete(store).ids
    assert () == store.jobs()


def test_a_dry_run_deletes_nothing(store: Harness):
    """Dry runs return what a delete would return."""
    store.dead()
    store.take(new())
    store.put()
    before = store.everything()

    tried = delete(store, dry_run=True)
    assert before == store.everything()
    assert tried == delete(store)


def test_deletes_are_done_in_batches_and_audited(store: Harness):
    """The limit counts the jobs that are read; the audit log has the ids and the filter."""
    store.enqueue(*(new() for _ in range(3)))

    first = delete(store, Filter(task="send", limit=2), actor="ann")
    assert ((1, 2), 2) == (first.ids, first.last_id)
    assert ((3,), None) == ((rest := delete(store, Filter(task="send", limit=2))).ids, rest.last_id)
    assert ((), (), None) == ((none := delete(store)).ids, none.kept, none.last_id)
    newest, oldest = store.do(audit.audit())
    assert ("delete", "ann", '{"ids":[1,2],"filter":{"task":"send"}}') == (oldest.action, oldest.actor, oldest.details)
    assert "delete" == newest.action


def test_an_archive_entry_has_all_that_is_stored(store: Harness):
    """Entries of ended jobs contain the row, the tags, the arguments, the result and the history."""
    store.end(store.take(keyed(payload=b'{"a":1}')), Succeeded(b"7"))
    store.dead()
    store.put()
    store.wait(1)

    page = store.do(deleting.entries(ALL, now=store.now))
    first, second = page.entries
    assert (store.job(1), ("t",), b'{"a":1}', b"7", store.history(1)) == (
        first.job, first.tags, first.payload, first.result, first.history,
    )  # fmt: skip
    assert (2, (), None, 1) == (second.job.id, second.tags, second.result, len(second.history))
    assert ((), None) == (page.kept, page.last_id)


@pytest.mark.parametrize("again", [False, True])
def test_archived_jobs_are_deleted(store: Harness, *, again: bool):
    """Jobs of a page are deleted, unless they were started again since they were read."""
    store.dead()
    store.dead()
    store.wait(1)
    page = store.do(deleting.entries(Filter(finished_before=store.now + seconds(9)), now=store.now))
    if again:
        store.retry(1)

    done = store.do(deleting.archived(page, ALL, "jobs.jsonl", actor="ann"))
    assert ([2] if again else [1, 2], [1] if again else []) == (list(done.ids), [number for number, _ in done.kept])
    assert [1] * again == [job.id for job in store.jobs()]
    assert '"to":"jobs.jsonl"' in store.do(audit.audit())[0].details


def test_an_empty_page_deletes_nothing(store: Harness):
    """Pages without jobs change nothing, and leave no entry in the audit log."""
    store.put()
    page = store.do(deleting.entries(ALL, now=store.now))

    assert ((), ()) == (page.entries, store.do(deleting.archived(page, ALL, "x")).ids)
    assert () == store.do(audit.audit())
