"""Search for what a business knows: values, keys, partitions, runs, workers and times."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from redrive.engine.bulk import BulkAction, BulkOptions, scoped
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Succeeded
from redrive.engine.records import NEWEST, Filter, Hold, KeyUntil, NewJob, OnConflict
from redrive.engine.runs import NewRun
from redrive.engine.search import tag_of
from redrive.errors import StoreError
from redrive.stores.operations import admin, bulk, jobs, search
from redrive.stores.operations.runs import start as starting
from redrive.stores.operations.search import HitKind
from tests.stores.helpers import FATAL, T0, Harness, failed, new, seconds


def ids(store: Harness, **conditions) -> list[int]:
    """Return the ids of the matching jobs, oldest first, however they are found."""
    wanted = Filter(oldest_first=True, **conditions)
    newest = replace(wanted, oldest_first=False)
    found = [job.id for job in store.do(admin.select(wanted, now=store.now))]
    assert found == [job.id for job in reversed(store.do(admin.select(newest, now=store.now)))]
    assert found == [job.id for job in reversed(store.do(admin.page(newest, budget=100, now=store.now)).jobs)]
    return found


def keyed(key: str, payload: bytes = b"{}", **changes: Any) -> NewJob:
    """Return a job with a unique key."""
    return structs.replace(new(payload=payload), key=key, key_until=KeyUntil.END, **changes)


def find(store: Harness, word: str, budget: int = 100, **conditions) -> tuple[list[int], int | None]:
    """Return the jobs that have a value, newest first, and the id down to which all were read."""
    found = store.do(admin.page(Filter(**conditions), budget=budget, word=word))
    return [job.id for job in found.jobs], found.searched_to


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("inv-443", [1]),
        ("inv-44", []),
        ("inv-44*", [1, 2]),
        ("*-443", [1]),
        ("*v-44*", [1, 2]),
        ("INV-443", []),
        ("7", [2]),
        ("12.5", [2]),
        ("deep", [3]),
        ("Ḁ", [3]),
        ("A\N{COMBINING RING BELOW}", [3]),
        ("two words", [3]),
        ("null", []),
        ("true", []),
        ("hunter7secret", []),
        ("hunter*", []),
        ("[redacted]", []),
        ("card 4111*", []),
        ("order", []),
    ],
)
def test_arguments_are_found_by_their_values(store: Harness, args: str, expected: list[int]):
    """Whole values at any depth, or parts of them, but no keys, no truth values, and nothing that is secret."""
    store.enqueue(
        new(payload=b'{"order": "inv-443", "token": "hunter7secret", "note": "hunter7secret"}'),
        new(payload=b'{"order": "inv-4430", "count": 7, "price": 12.5, "paid": true, "left": null}'),
        new(payload='{"lines": [{"sku": "deep"}, ["Ḁ", " two words "]], "card": "card 4111"}'.encode()),
        new(payload=None),
    )

    assert expected == ids(store, args=args)
    assert expected == ids(store, args=args, redacted=True)
    assert sorted({1, 2, 3, 4} - {*expected}) == ids(store, without=(Filter(args=args),))
    assert [] == ids(store, args=args, hidden=True)


def test_a_search_for_a_value_reads_some_rows_at_a_time(store: Harness, monkeypatch: pytest.MonkeyPatch):
    """Matches are found behind any number of others, up to the limit, in each order."""
    monkeypatch.setattr(admin, "_AT_ONCE", 2)
    store.enqueue(*[new(payload=b'{"order": "%d"}' % (number % 3)) for number in range(12)])

    assert [1, 4, 7, 10] == ids(store, args="0")
    assert [4] == [job.id for job in store.do(admin.select(Filter(args="0", oldest_first=True, limit=1, after_id=1)))]
    assert [10, 7] == [job.id for job in store.do(admin.select(Filter(args="0", limit=2)))]
    assert [1, 4] == ids(store, args="0", ids=(1, 2, 3, 4, 5))


def test_a_secret_that_a_result_repeats_is_not_found_in_the_arguments(store: Harness):
    """What a page does not show of the arguments is not found in them either."""
    claim = store.take(new(payload=b'{"note": "pass hunter7secret", "other": "hunter7secret"}'))
    store.end(claim, Succeeded(b'{"password": "hunter7secret"}'))

    assert [] == ids(store, args="hunter7secret")
    assert [] == ids(store, args="pass*")


def test_jobs_are_found_by_their_keys(store: Harness):
    """By a unique key, also of an ended job, and by an idempotency key."""
    store.end(store.take(keyed("inv-443")))
    store.enqueue(keyed("inv-443"), structs.replace(new(), idempotency_key="inv-443"), new(), keyed("inv-444"))

    assert [1, 2, 3] == ids(store, key="inv-443")
    assert [4, 5] == ids(store, without=(Filter(key="inv-443"),))
    assert [4] == ids(store, without=(Filter(key="inv-443"), Filter(key="inv-444")))
    assert [1] == ids(store, key="inv-443", state=State.SUCCEEDED)


def test_jobs_are_found_by_their_partition(store: Harness):
    """A tenant is a condition like others."""
    store.enqueue(structs.replace(new(), partition="acme"), new(), structs.replace(new(), partition="other"))

    assert [1] == ids(store, partition="acme")
    assert [2, 3] == ids(store, without=(Filter(partition="acme"),))


def test_jobs_are_found_by_their_schedule(store: Harness):
    """A cron and a refresh have made them; a machine with the same name has not."""
    origins = ("cron:night/1", "cron:nightly/1", "refresh:night/a/b", "machine:night/a", None)
    store.enqueue(*(structs.replace(new(), origin=each) for each in origins))

    assert [1, 3] == ids(store, schedule="night")
    assert [2] == ids(store, schedule="nightly")
    assert [2, 4, 5] == ids(store, without=(Filter(schedule="night"),))
    assert [] == ids(store, schedule="nigh")


def test_jobs_are_found_by_a_worker(store: Harness):
    """By its id or its name: jobs that it runs, that have succeeded there, and that had a failed attempt there."""
    first, second = store.worker("a:1"), store.worker("b:1")
    store.end(store.take(new(), worker=first))
    store.end(store.take(new(), worker=first), failed())
    store.end(store.take(new(), worker=second))
    store.take(new(), worker=first)
    store.put()

    assert [1, 2, 4] == ids(store, worker="a:1") == ids(store, worker=str(first))
    assert [3] == ids(store, worker="b:1")
    assert [3, 5] == ids(store, without=(Filter(worker="a:1"),))
    assert [] == ids(store, worker="404") == ids(store, worker="nobody")
    assert [4] == ids(store, worker="a:1", state=State.RUNNING)


def test_jobs_are_found_by_a_run(store: Harness):
    """The job of a run with the id in any workflow, and those of the runs that it has called."""
    run = NewRun(new("checkout"), "checkout", 1, 7, "order-1", None, None)
    (parent, other) = store.do(starting.start([run, replace(run, workflow="refund", digest=8)], now=store.now))
    called = replace(run, workflow="pay", id="child", parent_id=parent.job_id, parent_path="1")
    (child,) = store.do(starting.start([called], now=store.now))
    inner = replace(called, workflow="bank", id="inner", parent_id=child.job_id)
    (last,) = store.do(starting.start([inner], now=store.now))
    number = store.put()

    assert [parent.job_id, other.job_id, child.job_id, last.job_id] == ids(store, run="order-1")
    assert [child.job_id, last.job_id] == ids(store, run="child")
    assert [last.job_id] == ids(store, run="child", ids=(last.job_id, number, parent.job_id))
    assert [number] == ids(store, without=(Filter(run="order-1"),))
    assert [] == ids(store, run="none")


def test_jobs_are_found_by_the_time_of_their_end_or_enqueue(store: Harness):
    """An ended job counts by its end, and another one by its enqueue."""
    early = store.take(new())
    store.put()
    store.wait(100)
    store.end(early, FATAL)
    store.put()

    assert [1, 3] == ids(store, since=T0 + seconds(100))
    assert [2] == ids(store, until=T0 + seconds(100))
    assert [] == ids(store, since=T0 + seconds(1), until=T0 + seconds(100))


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"attempts": ">1"}, [2]),
        ({"attempts": "1"}, [3]),
        ({"attempts": "<=1"}, [1, 3]),
        ({"took": ">10s"}, [2]),
        ({"took": "<=10s"}, [3]),
        ({"took": ">5s", "state": State.RUNNING}, [2]),
        ({"attempts": ">=1", "took": "<1h"}, [2, 3]),
    ],
    ids=str,
)
def test_numbers_are_compared(store: Harness, conditions: dict[str, Any], expected: list[int]):
    """Attempts, and how long the latest one took, that of a running job until now."""
    store.put(new(delay=9999))
    store.end(store.take(new(retry="3 1s")), failed())
    store.wait(60)
    store.take()
    claim = store.take(new())
    store.wait(10)
    store.end(claim)
    store.wait(10)

    assert expected == ids(store, **conditions)


def test_conditions_are_negated(store: Harness):
    """Jobs that meet none of several conditions are left, also those without a value."""
    store.end(store.take(new("pay", queue="money")), FATAL)
    store.end(store.take(new("send")), failed("100% of it", reason="TIMEOUT"))
    store.enqueue(new("look", delay=9), structs.replace(new("send"), tags=("eu",)))

    def without(**conditions: object) -> list[int]:
        """Return the jobs that do not meet each one of the conditions."""
        return ids(store, without=tuple(replace(Filter(), **{name: value}) for name, value in conditions.items()))

    assert [2, 3, 4] == without(state=State.DEAD)
    assert [3] == without(state=State.DEAD, task="send")
    assert [2, 3, 4] == without(queue="money")
    assert [1, 2, 4] == without(hold=Hold.DELAY)
    assert [1, 3, 4] == without(reason="TIMEOUT")
    assert [1, 2, 3] == without(tag="eu")
    assert [1, 3, 4] == without(error="100%")
    assert [3, 4] == without(error="100%", task="pay")
    assert [2, 3] == without(tag="eu", state=State.DEAD)
    assert [2, 3, 4] == without(group=store.job(1).fingerprint or "none")


def test_a_word_finds_jobs_by_all_that_is_known(store: Harness):
    """By tag, key, idempotency key, partition, argument and the id of a run; with other conditions, which must hold."""
    store.enqueue(
        structs.replace(new(), tags=("inv-443",)),
        structs.replace(new(), idempotency_key="inv-443"),
        structs.replace(new(), partition="inv-443"),
        new(payload=b'{"lines": [{"invoice": "inv-443"}]}'),
        keyed("inv-443"),
        new(payload=b'{"invoice": "inv-4430"}'),
        new(payload=b'{"token": "inv-443"}'),
    )
    store.do(starting.start([NewRun(new("checkout"), "checkout", 1, 7, "inv-443", None, None)], now=store.now))

    assert ([8, 5, 4, 3, 2, 1], None) == find(store, "inv-443")
    assert ([8], None) == find(store, "inv-443", task="checkout")
    assert ([4, 3, 2, 1], None) == find(store, "inv-443", before_id=5)
    assert ([], None) == find(store, "inv-999")


def test_a_search_names_what_it_has_not_read(store: Harness):
    """Beyond the budget, jobs are found by tags, held keys and runs, and the answer has the id from which to go on."""
    store.enqueue(
        structs.replace(new(payload=b'{"invoice": "inv-1"}'), search=("inv-1",)),
        structs.replace(new(), idempotency_key="inv-1"),
        keyed("inv-1"),
        new(payload=b'{"invoice": "inv-1"}'),
        new(),
        new(payload=b'{"invoice": "inv-1"}'),
    )

    assert ([6, 3, 2, 1], 5) == find(store, "inv-1", budget=2)
    assert ([4, 3, 2, 1], 3) == find(store, "inv-1", budget=2, before_id=5)
    assert ([6, 3], 5) == find(store, "inv-1", budget=2, limit=2)
    page = store.do(admin.page(Filter(args="inv-1"), budget=2))
    assert ([6, 1], 5, True) == ([job.id for job in page.jobs], page.searched_to, page.by_index)
    page = store.do(admin.page(Filter(args="*-1"), budget=2))
    assert ([6], 5, False) == ([job.id for job in page.jobs], page.searched_to, page.by_index)
    page = store.do(admin.page(Filter(key="inv-1"), budget=2))
    assert ([3, 2], 5, True) == ([job.id for job in page.jobs], page.searched_to, page.by_index)


def test_a_number_is_also_the_id_of_a_job(store: Harness):
    """A search for a number finds the job with that id beside those that have it as a value."""
    store.enqueue(new(), new(), new(payload=b'{"order": 2}'), new())
    found = store.do(admin.page(Filter(), budget=1, word="2", also=2))

    assert ([2], 4) == ([job.id for job in found.jobs], found.searched_to)
    assert [3, 2] == [job.id for job in store.do(admin.page(Filter(), budget=9, word="2", also=2)).jobs]


def test_dead_jobs_are_searched_from_their_index(store: Harness, monkeypatch: pytest.MonkeyPatch):
    """A value of a dead job is found below any number of newer jobs."""
    dead = [store.dead(new(payload=b'{"invoice": "inv-%d"}' % number)) for number in (1, 2, 1)]
    store.enqueue(*[new() for _ in range(5)])

    assert (dead[::-2], None) == find(store, "inv-1", budget=1, state=State.DEAD)
    monkeypatch.setattr(admin, "FEW", 2)
    assert ([3], 2) == find(store, "inv-1", budget=1, state=State.DEAD)


def test_values_of_declared_fields_are_tags(store: Harness):
    """They are written with each enqueue, beside other tags, and each once."""
    store.enqueue(
        structs.replace(new(), tags=("eu", "inv-1"), search=("inv-1", "x")), structs.replace(new(), search=())
    )
    store.enqueue(structs.replace(new(), search=("inv-2",)))

    assert {1: ("eu", "inv-1", "x"), 3: ("inv-2",)} == store.do(jobs.tags([1, 2, 3]))
    assert [3] == ids(store, tag="inv-2")


def bounced(payload: bytes, tags: tuple[str, ...], search_: tuple[str, ...] | None) -> NewJob:
    """Return a debounced job."""
    made = structs.replace(new(payload=payload, delay=5), key="k", key_until=KeyUntil.START, tags=tags, search=search_)
    return structs.replace(made, on_conflict=OnConflict.BOUNCE, latest=timedelta(seconds=60))


def test_a_debounced_job_has_the_tags_of_its_latest_arguments(store: Harness):
    """The arguments of the last call replace those before, and so do their tags."""
    first, *_ = store.enqueue(bounced(b'{"i": 1}', ("eu",), ("1",)))
    store.enqueue(bounced(b'{"i": 2}', ("eu",), ("2",)))
    assert {first: ("2", "eu")} == store.do(jobs.tags([first]))
    store.enqueue(bounced(b'{"i": 3}', (), ()), new())
    assert {} == store.do(jobs.tags([first]))
    store.enqueue(bounced(b'{"i": 4}', ("eu",), ("4",)), bounced(b'{"i": 5}', ("eu",), ("5",)))
    assert {first: ("5", "eu")} == store.do(jobs.tags([first]))
    store.enqueue(bounced(b'{"i": 6}', ("us",), None))
    assert {first: ("5", "eu")} == store.do(jobs.tags([first]))


def test_a_batch_with_two_calls_of_a_burst_has_the_tags_of_the_last(store: Harness):
    """The first of them is inserted with the arguments of the second."""
    first, second = store.enqueue(bounced(b'{"i": 1}', (), ("1",)), bounced(b'{"i": 2}', (), ("2",)))

    assert first == second
    assert {first: ("2",)} == store.do(jobs.tags([first]))


def test_a_fork_has_the_tags_of_its_run(store: Harness):
    """It has the same arguments, and is found by them."""
    made = NewRun(structs.replace(new("pay"), search=("inv-1",), tags=("eu",)), "pay", 1, 7, "a", None, None)
    store.do(starting.start([made], now=store.now))
    (fork,) = store.do(starting.fork("pay", {"a": "b"}, before=None, now=store.now))

    assert ("eu", "inv-1") == store.do(jobs.tags([fork.job_id]))[fork.job_id]


def test_an_operation_changes_the_jobs_of_a_value(store: Harness, monkeypatch: pytest.MonkeyPatch):
    """Its preview and its batches mean the same jobs, those with secret values left out."""
    monkeypatch.setattr(bulk, "STRIDE", 5)
    for number in range(12):
        store.dead(new(payload=b'{"order": "%d", "token": "%d"}' % (number % 3, number)))
    wanted = scoped(BulkAction.REDRIVE, Filter(args="2", without=(Filter(task="none"),), limit=NEWEST))
    preview = store.do(bulk.preview(BulkAction.REDRIVE, wanted, BulkOptions(), now=store.now))
    number = store.do(bulk.start(preview, actor="ann", now=store.now)).id
    done: list[int] = []
    while (batch := store.do(bulk.carry_out(number, now=store.now))) is not None:
        done += batch.ids

    assert (4, True) == (preview.changes, preview.is_whole)
    assert [3, 6, 9, 12] == done


@pytest.mark.parametrize("name", ["args", "key", "partition", "run", "worker"])
def test_a_value_that_no_database_stores_is_refused_or_found_nowhere(store: Harness, name: str):
    """A lone surrogate is an error of the store, or matches nothing."""
    store.put()
    wanted = replace(Filter(), **{name: "a\ud800"})
    with pytest.raises(StoreError) if name != "args" else contextlib.nullcontext():
        assert () == store.do(admin.select(wanted))
    assert 1 == len(store.jobs())


def test_runs_and_nothing_else_are_found_by_an_id(store: Harness):
    """A search in an empty database finds nothing; a run is found in each workflow."""
    assert ((), True) == structs.astuple(store.do(search.find("order-1", budget=9)))
    made = NewRun(new("pay"), "pay", 1, 7, "order-1", None, None)
    store.do(starting.start([made, replace(made, workflow="ship", digest=8)], now=store.now))
    found = store.do(search.find("order-1", budget=9))

    assert [(HitKind.RUN, "pay", "order-1", "ready", 1), (HitKind.RUN, "ship", "order-1", "ready", 2)] == [
        (each.kind, each.name, each.part, each.text, each.job_id) for each in found.hits
    ]
    assert T0 == found.hits[0].at
    assert tag_of("order-1") == "order-1"
