"""Unique and idempotency keys: holders, conflicts and release."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from redrive.engine.keys import SUPERSEDED
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Cancelled, Outcome, Released, Snoozed, Succeeded
from redrive.engine.records import Filter, Hold, KeyUntil, NewJob, OnConflict
from redrive.errors import DuplicateJob, IllegalMove
from redrive.stores.operations import jobs
from tests.stores.helpers import FATAL, Harness, failed, new, seconds


def keyed(key: str = "u", until: str = "end", **changes: Any) -> NewJob:
    """Return a job with a unique key."""
    task = changes.pop("task", "send")
    return replace(new(task), key=key, key_until=KeyUntil(until), **changes)


def named(key: str = "k", **changes: Any) -> NewJob:
    """Return a job with an idempotency key."""
    task = changes.pop("task", "send")
    return replace(new(task), idempotency_key=key, **changes)


EXISTING = {"on_conflict": OnConflict.EXISTING}


def debounced(payload: bytes = b"{}", *, quiet: float = 2, at_most: float = 5, key: str = "u") -> NewJob:
    """Return one of several debounced calls."""
    job = keyed(key, "start", payload=payload, on_conflict=OnConflict.BOUNCE)
    return replace(job, delay=seconds(quiet), latest=seconds(at_most))


# --------------------------------------------------------------------------------------------------------------- unique


def test_a_second_job_with_a_key_is_refused(store: Harness):
    """Enqueueing under a held key is refused with the holder's id, and inserts nothing."""
    first = store.put(keyed())
    with pytest.raises(DuplicateJob, match=f"send: the key 'u' is held by job {first}") as refused:
        store.put(keyed())

    assert (first, "u") == (refused.value.job_id, refused.value.key)
    assert [first] == [job.id for job in store.jobs()]


def test_a_refused_key_takes_the_whole_batch_along(store: Harness):
    """If one job of a batch may not have its key, none of the batch is inserted."""
    first = store.put(keyed())
    with pytest.raises(DuplicateJob):
        store.enqueue(new(), keyed("v"), keyed("u"))

    assert [first] == [job.id for job in store.jobs()]
    assert store.put(keyed("v"))


def test_two_of_one_batch_cannot_share_a_key(store: Harness):
    """Two jobs of one batch with one key are refused; the error names no job, since none exists."""
    with pytest.raises(DuplicateJob, match="held by another call of the same batch") as refused:
        store.enqueue(keyed(), keyed())

    assert None is refused.value.job_id
    assert () == store.jobs()


def test_the_existing_job_can_be_the_answer(store: Harness):
    """Callers that accept the existing job get its id and a flag; the new jobs are inserted."""
    first = store.put(keyed())
    placed = store.do(jobs.enqueue([new(), keyed(**EXISTING), keyed("v", **EXISTING), keyed("v", **EXISTING)]))

    assert (first, frozenset({1, 3})) == (placed.ids[1], placed.existing)
    assert placed.ids[2] == placed.ids[3]
    assert {first, placed.ids[0], placed.ids[2]} == {job.id for job in store.jobs()}


def test_a_key_belongs_to_its_task(store: Harness):
    """Jobs of two tasks may have the same key."""
    store.enqueue(keyed(), keyed(task="mail"), keyed("U"))

    assert 3 == len(store.jobs())


@pytest.mark.parametrize("outcome", [Succeeded(), FATAL, Cancelled("enough")], ids=lambda each: type(each).__name__)
def test_the_end_of_a_job_frees_its_key(store: Harness, outcome: Outcome):
    """Keys are held while their job is ready or running, and free after any end of it."""
    claim = store.take(keyed())
    with pytest.raises(DuplicateJob):
        store.put(keyed())
    store.end(claim, outcome)

    assert claim.id < store.put(keyed())


def test_a_cancel_frees_the_key(store: Harness):
    """Cancelling a job frees its key."""
    store.cancel(store.put(keyed()))
    store.cancel(store.take(keyed()).id)

    assert store.put(keyed())


def test_a_late_success_frees_no_key(store: Harness):
    """Late successes of a cancelled job do not free the key, which the next job holds."""
    claim = store.take(keyed())
    store.cancel(claim.id)
    second = store.put(keyed())
    store.settle((claim, Succeeded()))
    with pytest.raises(DuplicateJob) as refused:
        store.put(keyed())

    assert second == refused.value.job_id


def test_a_key_until_the_start_is_free_while_its_job_runs(store: Harness):
    """While one job runs the next one may wait, and no third one."""
    first = store.take(keyed(until="start"))
    second = store.put(keyed(until="start"))
    with pytest.raises(DuplicateJob):
        store.put(keyed(until="start"))
    store.end(first)

    assert State.READY is store.job(second).state


RETURNS = [failed(), Snoozed(seconds(1)), Released("shutdown")]


@pytest.mark.parametrize("outcome", RETURNS, ids=lambda each: type(each).__name__)
def test_a_job_that_runs_again_takes_its_key_again(store: Harness, outcome: Outcome):
    """Jobs that run again take their key again if it is free."""
    claim = store.take(keyed(until="start"))
    store.end(claim, outcome)
    with pytest.raises(DuplicateJob) as refused:
        store.put(keyed(until="start"))

    assert claim.id == refused.value.job_id


@pytest.mark.parametrize("outcome", RETURNS, ids=lambda each: type(each).__name__)
def test_a_job_that_cannot_take_its_key_again_is_superseded(store: Harness, outcome: Outcome):
    """Jobs that must run again while another one holds their key are cancelled and name that job."""
    claim = store.take(keyed(until="start"))
    second = store.put(keyed(until="start"))
    moved = store.end(claim, outcome)
    job = store.job(claim.id)

    assert (State.CANCELLED, State.CANCELLED, SUPERSEDED) == (moved.state, job.state, job.reason)
    assert f"superseded by job {second}, which holds its key 'u'" == job.note == moved.note
    assert (None, store.now) == (job.hold, job.finished_at)
    assert State.READY is store.job(second).state


def test_a_lost_job_takes_its_key_again_or_is_superseded(store: Harness):
    """Sweeps give each lost job its key back or cancel it; one conflict affects no other job."""
    worker = store.worker()
    store.enqueue(keyed("a", "start"), new(), keyed("b", "start"))
    first, plain, other = (claim.id for claim in store.claim(3, worker=worker))
    rival = store.put(keyed("a", "start"))
    store.wait(60)

    assert {first, plain, other} == {each.job_id for each in store.sweep()}
    states = [store.job(number).state for number in (first, plain, other, rival)]
    assert [State.CANCELLED, State.READY, State.READY, State.READY] == states
    with pytest.raises(DuplicateJob):
        store.put(keyed("b", "start"))


def test_a_leaving_worker_gives_keys_back_too(store: Harness):
    """Jobs released by a leaving worker take their key again, or are superseded."""
    worker = store.worker()
    store.enqueue(keyed("a", "start"), keyed("b", "start"))
    first, second = (claim.id for claim in store.claim(2, worker=worker))
    store.put(keyed("a", "start"))
    store.leave(worker)

    assert [State.CANCELLED, State.READY] == [store.job(first).state, store.job(second).state]


def test_a_redriven_job_takes_its_key_again(store: Harness):
    """Redriven dead jobs take their key again; if another job holds it, they stay dead with the reason."""
    free, taken = (store.dead(keyed(name)) for name in ("a", "b"))
    holder = store.put(keyed("b"))
    dry = store.redrive(dry_run=True)
    done = store.redrive(Filter(state=State.DEAD))

    assert ((free,), ((taken, f"stays dead: its key 'b' is held by job {holder}"),)) == (done.ids, done.kept)
    assert ((free,), (taken,)) == (dry.ids, tuple(number for number, why in dry.kept if "key" in why))
    with pytest.raises(DuplicateJob):
        store.put(keyed("a"))


def test_the_older_of_two_dead_jobs_with_one_key_is_redriven(store: Harness):
    """Of two dead jobs with one key, one is started and the other stays dead and names it, also in a dry run."""
    older, younger = store.dead(keyed()), store.dead(keyed())
    dry = store.redrive(dry_run=True)
    done = store.redrive()

    assert dry == done
    assert ((older,), ((younger, f"stays dead: its key 'u' is held by job {older}"),)) == (done.ids, done.kept)


def test_a_retry_takes_the_key_again(store: Harness):
    """Retrying a job takes its key again, and is refused if another job holds the key."""
    dead = store.dead(keyed())
    holder = store.put(keyed())
    with pytest.raises(IllegalMove, match=f"its key 'u' is held by job {holder}"):
        store.retry(dead)
    store.cancel(holder)
    store.retry(dead)

    assert State.READY is store.job(dead).state
    with pytest.raises(DuplicateJob):
        store.put(keyed())


def test_concurrent_enqueues_take_a_key_once(store: Harness):
    """Of simultaneous producers with one key, one gets it and the others are refused."""
    answers = store.at_once([jobs.enqueue([keyed()], now=store.now) for _ in range(6)])

    assert 5 == sum(isinstance(answer, DuplicateJob) for answer in answers)
    assert 1 == len(store.jobs())


# ---------------------------------------------------------------------------------------------------------- idempotency


def test_an_idempotency_key_answers_the_first_job(store: Harness):
    """Enqueueing a request again returns the first job, even if it has ended."""
    first = store.put(named())
    again = store.do(jobs.enqueue([named()], now=store.now))
    store.end(store.take())
    later = store.do(jobs.enqueue([new(), named()], now=store.now))

    assert ([first], {0}, first, {1}) == (again.ids, again.existing, later.ids[1], later.existing)


def test_an_idempotency_key_names_one_task(store: Harness):
    """Reusing an idempotency key for another task is refused, in the database and within a batch."""
    first = store.put(named())
    with pytest.raises(DuplicateJob, match=f"the idempotency key 'k' belongs to job {first} of the task send"):
        store.put(named(task="mail"))
    with pytest.raises(DuplicateJob, match="of the task send"):
        store.enqueue(named("l"), named("l", task="mail"))


def test_an_idempotency_key_goes_with_the_job_that_was_the_answer(store: Harness):
    """Requests answered with the holder of their unique key get the same job at each repetition."""
    holder = store.put(keyed())
    request = keyed(idempotency_key="k", **EXISTING)
    placed = store.do(jobs.enqueue([request, request], now=store.now))
    store.end(store.take())

    assert [holder, holder] == placed.ids
    assert holder == store.put(request)


def test_concurrent_idempotent_enqueues_get_one_job(store: Harness):
    """Simultaneous producers of one request get the same job."""
    answers = store.at_once([jobs.enqueue([named()], now=store.now) for _ in range(6)])

    assert 1 == len({number for answer in answers for number in answer.ids})
    assert 5 == sum(bool(answer.existing) for answer in answers)


# ------------------------------------------------------------------------------------------------------------- debounce


def test_a_burst_becomes_one_job(store: Harness):
    """Each debounced call postpones the job and replaces its arguments, up to its latest start."""
    began = store.now
    first = store.put(debounced(b"0"))
    due = []
    for payload in (b"1", b"2", b"3", b"4"):
        store.wait(1)
        assert first == store.put(debounced(payload))
        due.append((store.job(first).scheduled_at - began).total_seconds())

    assert ([3, 4, 5, 5], b"4") == (due, store.do(jobs.documents({first: None}))[first].payload)
    assert Hold.DEBOUNCE is store.job(first).hold


def test_the_next_call_after_the_start_makes_a_new_job(store: Harness):
    """While a debounced job runs, the next call creates a job of its own."""
    first = store.put(debounced())
    store.wait(2)
    store.take()

    assert first < store.put(debounced())


def test_a_retry_that_waits_is_superseded_by_the_next_burst(store: Harness):
    """Debounced jobs that wait for a retry are superseded by the next call, which has newer arguments."""
    first = store.put(debounced(b"0"))
    store.wait(2)
    store.end(store.take(), failed())
    second = store.put(debounced(b"1"))

    assert (State.CANCELLED, SUPERSEDED) == (store.job(first).state, store.job(first).reason)
    assert f"superseded by job {second}, which holds its key 'u'" == store.job(first).note
    assert second == store.put(debounced(b"2"))


def test_a_job_that_is_due_by_hand_stays_due(store: Harness):
    """Debounced jobs that an operator made due get the next call's arguments and are not postponed."""
    first = store.put(debounced(b"0"))
    store.retry(first)

    assert first == store.put(debounced(b"1"))
    assert (b"1", store.now) == (store.take().payload, store.job(first).scheduled_at)


def test_a_burst_in_one_batch_is_one_job(store: Harness):
    """Of debounced calls in one batch the last arguments count."""
    numbers = store.enqueue(debounced(b"0"), debounced(b"1"), debounced(b"2"))

    assert (1, b"2") == (len(set(numbers)), store.do(jobs.documents({numbers[0]: None}))[numbers[0]].payload)


@pytest.mark.parametrize("until", ["start", "end"])
def test_an_ordinary_job_is_not_debounced(store: Harness, until: str):
    """Debounced calls are refused if an ordinary job holds their key."""
    store.put(keyed(until=until))
    with pytest.raises(DuplicateJob, match="which is not debounced"):
        store.put(debounced())
