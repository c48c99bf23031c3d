"""Erase: what is stored under a value goes, a batch at a time, and what runs stays."""

from __future__ import annotations

from msgspec.structs import replace

from redrive.engine.outcome import Succeeded
from redrive.engine.queue import QueueChange, Rate
from redrive.engine.records import Filter, KeyUntil
from redrive.stores.operations import audit, deleting, erasing, queues, requests
from redrive.stores.operations.erasing import Erased, Found
from redrive.stores.operations.requests import StoredRequest
from redrive.stores.operations.runs import waits
from tests.stores.helpers import Harness, new, seconds

WORD = "customer:7"


def test_all_under_a_value_is_found_and_erased(store: Harness):
    """Jobs are found by tag, key and partition; the entry of the audit log does not have the value."""
    tagged = store.take(replace(new(), tags=(WORD,)))
    store.end(tagged, Succeeded(b"1"))
    store.put(replace(new(), key=WORD, key_until=KeyUntil.END))
    store.put(replace(new(), partition=WORD))
    store.put(replace(new(), tags=(f"{WORD}7",)))
    store.do(deleting.delete(Filter(tag=f"x {WORD}"), now=store.now))
    found = store.do(erasing.find(WORD))
    rehearsed = store.do(erasing.erase_jobs(found.jobs, dry_run=True, now=store.now))
    before = len(store.jobs())
    items = store.do(erasing.erase_items(found.items, now=store.now))
    done = store.do(erasing.erase_jobs(found.jobs, now=store.now))
    whole = store.do(erasing.erase_rest(WORD, found, done, actor="ann", now=store.now))

    assert ((1, 2, 3), 4) == (found.jobs, before)
    assert {"jobs": 3, "arguments": 3, "results": 1, "keys": 1} == dict(rehearsed.counts) == dict(done.counts)
    assert (Erased(), [4], Found()) == (items, [job.id for job in store.jobs()], store.do(erasing.find(WORD)))
    assert done.counts == whole.counts
    (entry,) = store.do(audit.audit())
    assert ("erase", "ann", False) == (entry.action, entry.actor, WORD in entry.details)


def test_an_ended_job_is_found_by_its_key(store: Harness):
    """The key is free again, so the next job has it too; both are erased."""
    keyed = replace(new(), key=WORD, key_until=KeyUntil.END)
    store.end(store.take(keyed), Succeeded(b"1"))
    store.put(keyed)
    store.put(replace(new(), key=f"{WORD}7", key_until=KeyUntil.END))
    found = store.do(erasing.find(WORD))
    done = store.do(erasing.erase_jobs(found.jobs, now=store.now))

    assert {"jobs": 2, "arguments": 2, "results": 1, "keys": 1} == dict(done.counts)
    assert [3] == [job.id for job in store.jobs()]


def test_answered_requests_that_mention_a_value_are_erased(store: Harness):
    """By their key or their answer, of any actor; not those of a longer value, and none that has not been answered."""
    given = {
        f"refund-{WORD}": b'{"status":200,"body":{}}',
        "in-answer": b'{"status":201,"body":{"key":"customer:7"}}',
        f"pay-order-of-{WORD}7": b'{"status":200,"body":{"key":"customer:77"}}',
    }
    for key, answer in given.items():
        store.do(requests.begin("ann", key, "d", now=store.now))
        store.do(requests.answered("ann", key, answer))
    store.do(requests.begin("bob", f"refund-{WORD}", "d", now=store.now))
    found = store.do(erasing.find(WORD))
    done = store.do(erasing.erase_rest(WORD, found, Erased(), now=store.now))
    again = [store.do(requests.begin("ann", key, "d", now=store.now)) for key in given]

    assert (2, {"requests": 2}) == (erasing.rest_of(found).counts["requests"], dict(done.counts))
    assert [None, None, StoredRequest("d", given[f"pay-order-of-{WORD}7"])] == again
    assert StoredRequest("d") == store.do(requests.begin("bob", f"refund-{WORD}", "d", now=store.now))


def test_queues_forget_the_partition_of_a_value(store: Harness):
    """That it was served last, and its starts, which the rate of the whole queue still counts; not those of others."""
    change = QueueChange(rate=Rate(5, seconds(60)), rate_per_partition=Rate(1, seconds(60)))
    store.do(queues.change("default", change, now=store.now))
    parted = [replace(new(), partition=each) for each in (f"{WORD}7", f"key:{WORD}", WORD)]
    for each in parted:
        store.end(store.take(each))
    before = store.do(queues.settings("default")).turn
    found = store.do(erasing.find(WORD))
    store.do(erasing.erase_jobs(found.jobs, now=store.now))
    store.do(erasing.erase_rest(WORD, found, Erased(), now=store.now))
    after = store.do(queues.settings("default")).turn
    store.enqueue(*parted, replace(new(), partition="other"))

    assert ((2, 3), WORD, "") == (found.jobs, before, after)
    assert [WORD, f"key:{WORD}"] == [claim.partition for claim in store.claim(9)]


def test_a_running_job_is_not_erased(store: Harness):
    """It stays with the reason, and nothing else changes."""
    store.take(replace(new(), tags=(WORD,)))
    before = store.everything()
    done = store.do(erasing.erase_jobs((1,), now=store.now))

    assert ({}, ("job 1 runs: cancel it first, or let it end",)) == (dict(done.counts), done.kept)
    assert before == store.everything()


def test_what_is_gone_meanwhile_or_not_offered_yet_is_no_error(store: Harness):
    """An instance that was deleted since the search is passed over; a value that no worker has offered yet stays."""
    store.do(waits.emit(WORD, b"1", keep=seconds(60), now=store.now))
    found = store.do(erasing.find(WORD))
    first = store.do(erasing.erase_rest(WORD, replace(found, instances=(("door", WORD),)), Erased(), now=store.now))

    assert (1, {}) == (found.values, dict(first.counts))
    assert ("an emitted value stays: a run that waits for it has not got it",) == first.kept
