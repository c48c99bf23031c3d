"""Batches: a job that waits until others have ended, however they end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.engine.bulk import BulkAction, BulkOptions, scoped
from redrive.engine.explain import why_not_running
from redrive.engine.lifecycle import State
from redrive.engine.origin import read_origin
from redrive.engine.outcome import Lost, Succeeded, Suspended
from redrive.engine.queue import QueueChange
from redrive.engine.records import NEWEST, Claim, Filter, Hold, JobRecord, NewJob
from redrive.errors import ConfigurationError
from redrive.stores.operations import admin, attempts, batches, bulk, checks, deleting, jobs, leases, queues, redriving
from redrive.stores.operations.leases import Ending
from tests.stores.helpers import FATAL, T0, Harness, failed, new, seconds

THEN = new("then")


def begin(store: Harness, *members: NewJob, then: NewJob = THEN) -> tuple[list[int], int]:
    """Enqueue a batch; return the ids of its jobs, and that of the job that follows."""
    *ids, last = store.do(batches.enqueue(members, then, now=store.now)).ids
    return ids, last


def job(store: Harness, number: int) -> JobRecord:
    """Return a job."""
    return store.do(jobs.get(number))


def is_due(store: Harness, number: int) -> bool:
    """Return True if a job may start now."""
    found = job(store, number)
    return found.state is State.READY and found.hold is None and found.scheduled_at <= store.now


def taken(store: Harness, count: int = 9) -> list[Claim]:
    """Claim members, by id."""
    return sorted(store.claimed(count, tasks=["send"]).claims, key=lambda each: each.id)


def test_the_job_that_follows_waits_for_the_last_one(store: Harness):
    """It is due in the transaction that ends the last job, and cannot be claimed before."""
    _, last = begin(store, new(), new(), new())
    first, second, third = taken(store)
    store.end(first)
    store.settle((second, Succeeded()), (third, failed()))
    waiting, around = store.do(queues.status(last, now=store.now))
    early = store.claim(9)
    store.wait(60)
    (again,) = taken(store)
    store.end(again)

    assert (Hold.BATCH, ()) == (waiting.hold, early)
    assert "waits for the jobs of its batch" == why_not_running(waiting, around)
    assert [last] == [each.id for each in store.claim(9)]
    assert () == store.do(checks.check()).findings


def test_an_empty_batch_has_ended(store: Harness):
    """Without jobs the one that follows runs at once."""
    _, last = begin(store)

    assert is_due(store, last)


def test_the_jobs_of_a_batch_name_it(store: Harness):
    """Each has the batch as its origin and as a tag, which stays; a wait inside of it is none of another batch."""
    (one, two), last = begin(store, replace(new(), tags=("own",)), new())
    begin(store, new())
    found = store.do(admin.select(Filter(tag=f"batch:{last}"), now=store.now))
    origin = read_origin(job(store, one).origin)
    (first, second, _) = taken(store)
    store.settle((first, Succeeded()), (second, Succeeded()))
    kept = store.do(admin.select(Filter(tag=f"batch:{last}"), now=store.now))

    assert {one, two} == {each.id for each in found} == {each.id for each in kept}
    assert origin is not None
    assert f"batch of job {last}" == origin.described
    assert is_due(store, last)


@pytest.mark.parametrize("where", ["job", "follower", "batch"])
def test_a_tag_of_the_user_with_the_same_text_blocks_no_batch(store: Harness, where: str):
    """Only jobs of the batch count, not others, nor the one that follows; the tags of those stay."""
    tagged = replace(new("other", delay=99), tags=("in batch 3",))
    if where == "batch":
        begin(store, then=replace(THEN, queue="slow"))
    else:
        store.enqueue(tagged if where == "job" else new("other", delay=99))
    (one,), last = begin(store, new(), then=replace(THEN, tags=tagged.tags if where == "follower" else ()))
    if where == "batch":
        begin(store, tagged)
    store.end(taken(store)[0])

    assert (2, 3) == (one, last)
    assert is_due(store, last)
    assert 1 == len(store.do(admin.select(Filter(tag="in batch 3"), now=store.now)))


@pytest.mark.parametrize("way", ["dead", "lost", "cancelled", "deleted", "expired", "answered"])
def test_any_end_of_a_job_counts(store: Harness, way: str):
    """A job that dies, is cancelled, deleted or expires has ended, and so has one that was answered from outside."""
    retry = "0" if way == "lost" else "2 1s"
    member = replace(new(retry=retry), expires=seconds(5)) if way == "expired" else new(retry=retry)
    if way == "lost":
        member = new(retry="0", idempotent=False)
    (one, _), last = begin(store, member, new())
    if way not in {"deleted", "expired"}:
        claim = next(each for each in taken(store) if each.id == one)
    match way:
        case "dead":
            store.end(claim, FATAL)
        case "lost":
            store.end(claim, Lost("fell silent"))
        case "cancelled":
            store.do(admin.cancel(one, now=store.now))
        case "deleted":
            store.do(deleting.delete(Filter(ids=(one,)), now=store.now))
        case "expired":
            store.wait(6)
            store.do(attempts.expire(9, now=store.now))
        case _:
            store.end(claim, Suspended(seconds(60)))
            held = is_due(store, last)
            assert not held
            store.answer(claim)
    before = is_due(store, last)
    rest = store.do(admin.select(Filter(tag=f"batch:{last}", limit=9), now=store.now))
    store.do(admin.cancel_all(Filter(ids=tuple(each.id for each in rest)), now=store.now))

    assert (False, True) == (before, is_due(store, last))


def test_a_dead_job_with_a_catch_task_ends_with_its_catch_job(store: Harness):
    """The batch goes on until what catches its jobs has ended, too."""
    _, last = begin(store, new(retry="0 catch mend"))
    (claim,) = taken(store)
    store.end(claim, failed())
    (catch,) = store.claimed(1, tasks=["mend"]).claims
    before = is_due(store, last)
    store.end(catch)

    assert (False, True) == (before, is_due(store, last))


def test_a_redriven_job_is_not_waited_for_again(store: Harness):
    """A job counts until it has first ended; what follows runs once, also if the job ends again later."""
    (one, _), last = begin(store, new(), new())
    first, second = taken(store)
    store.end(first, FATAL)
    store.do(redriving.redrive(Filter(ids=(one,)), now=store.now))
    store.end(second)
    (then,) = store.claimed(1, tasks=["then"]).claims
    store.end(then)
    (again,) = taken(store)
    store.end(again)

    assert (last, State.SUCCEEDED) == (then.id, job(store, last).state)
    assert (State.SUCCEEDED, ()) == (job(store, one).state, store.claim(9))


@pytest.mark.parametrize("way", ["cancelled", "retried"])
def test_an_operator_decides_about_the_job_that_follows(store: Harness, way: str):
    """One that was cancelled, or started early, is not started by the end of its batch."""
    _, last = begin(store, new())
    (claim,) = taken(store)
    if way == "cancelled":
        store.do(admin.cancel(last, now=store.now))
    else:
        store.do(redriving.retry(last, now=store.now))
        (early,) = store.claimed(1, tasks=["then"]).claims
        store.end(early)
    before = job(store, last)
    store.end(claim)

    assert before == job(store, last)
    assert State.CANCELLED is before.state if way == "cancelled" else State.SUCCEEDED is before.state


def test_a_repeated_end_changes_nothing(store: Harness):
    """A settle whose reply was lost is repeated, also after the job that follows has run."""
    _, last = begin(store, new())
    (claim,) = taken(store)
    store.end(claim)
    (then,) = store.claim(9)
    store.end(then)
    store.settle((claim, Succeeded()))

    assert (last, State.SUCCEEDED, ()) == (then.id, job(store, last).state, store.claim(9))


@pytest.mark.parametrize("field", ["key", "idempotency_key"])
@pytest.mark.parametrize("place", [0, 1])
def test_keys_are_refused(store: Harness, field: str, place: int):
    """A job of a batch cannot be another one that exists already; nothing is written."""
    given = [new(), THEN]
    given[place] = replace(given[place], **{field: "k"})
    with pytest.raises(ConfigurationError, match="the jobs of a batch have no key"):
        begin(store, given[0], then=given[1])

    assert not store.jobs()


@pytest.mark.parametrize("given", [{"delay": seconds(30)}, {"due_at": T0}, {"expires": T0 + seconds(60)}])
@pytest.mark.parametrize("members", [0, 2])
def test_times_of_the_job_that_follows_are_refused(store: Harness, given: dict[str, Any], members: int):
    """It is due when the batch has ended, which may be later than any of them; nothing is written."""
    with pytest.raises(ConfigurationError, match="is due when the others have ended"):
        begin(store, *[new(delay=9)] * members, then=replace(THEN, **given))

    assert () == store.do(admin.select(Filter(), now=store.now))


def test_a_batch_in_an_ordered_queue_needs_partitions(store: Harness):
    """The rule of the queue holds for all jobs of a batch, and nothing is written."""
    store.do(queues.change("default", QueueChange(ordered=True), now=store.now))
    with pytest.raises(ConfigurationError, match="is ordered"):
        begin(store, replace(new(), partition="a"))

    assert not store.jobs()


def test_a_large_batch_ends_once(store: Harness):
    """Thousands of jobs of two tasks are written together, and end in groups; the last group makes the job due."""
    many = 1500
    ids, last = begin(store, *[new() for _ in range(many)], *[new("send", priority=3) for _ in range(many)])
    due = []
    for _ in range(2 * many // 300):
        claims = taken(store, 300)
        store.settle(*[(each, Succeeded()) for each in claims])
        due.append(is_due(store, last))

    assert 2 * many == len(ids) == len({*ids})
    assert [False] * (len(due) - 1) + [True] == due


@pytest.mark.parametrize("round_", range(4))
def test_of_two_last_jobs_one_makes_it_due(shared: Harness, round_: int):
    """Jobs that end at the same time in transactions of their own do not both believe that the other still runs."""
    _, last = begin(shared, *[new() for _ in range(4)])
    ends = [leases.settle([Ending(each, Succeeded(), 0.0)], now=shared.now) for each in taken(shared)]
    shared.at_once(ends)

    assert is_due(shared, last)


@pytest.mark.parametrize("round_", range(4))
def test_ends_and_a_cancellation_of_all_do_not_block_each_other(shared: Harness, round_: int):
    """An operator cancels the batch and what follows it, while workers end its jobs: each job has ended once."""
    ids, last = begin(shared, *[new() for _ in range(6)])
    claims = taken(shared)
    shared.at_once(
        [
            leases.settle([Ending(each, Succeeded(), 0.0) for each in claims[:3]], now=shared.now),
            admin.cancel_all(Filter(ids=(*ids, last)), now=shared.now),
            leases.settle([Ending(each, Succeeded(), 0.0) for each in claims[3:]], now=shared.now),
        ]
    )

    assert {State.SUCCEEDED, State.CANCELLED} >= {job(shared, each).state for each in ids}
    assert State.CANCELLED is job(shared, last).state
    shared.now += timedelta(seconds=1)
    assert () == shared.claim(9)


def undo_of_cancelling(store: Harness, *ids: int) -> int:
    """Cancel jobs as one operation; return the one that takes it back a second later."""
    wanted, action = Filter(ids=ids, limit=NEWEST), BulkAction.CANCEL
    found = store.do(bulk.preview(action, scoped(action, wanted), BulkOptions(), now=store.now))
    number = store.do(bulk.start(found, now=store.now)).id
    carry_out(store, number)
    store.wait(1)
    return store.do(bulk.undo(number, now=store.now)).id


def carry_out(store: Harness, number: int) -> None:
    """Write all parts of an operation."""
    while store.do(bulk.carry_out(number, now=store.now)) is not None:
        pass


def test_the_job_that_follows_waits_again_after_an_undo(store: Harness):
    """If its cancellation is taken back while jobs of its batch are open, it waits for them as before."""
    _, last = begin(store, new(), new(delay=30))
    _, other = begin(store, new(delay=60))
    carry_out(store, undo_of_cancelling(store, last, other))
    held = [job(store, each).hold for each in (last, other)]
    store.end(taken(store)[0])
    early = store.claim(9)
    store.wait(30)
    store.end(taken(store)[0])

    assert ([Hold.BATCH, Hold.BATCH], ()) == (held, early)
    assert (True, False) == (is_due(store, last), is_due(store, other))
    assert [last] == [each.id for each in store.claim(9)]
    assert () == store.do(checks.check()).findings


def test_the_job_that_follows_runs_after_an_undo_of_the_whole_batch(store: Harness):
    """The jobs ended when they were cancelled; it is due at once, and they start again each at its time."""
    (due, later), last = begin(store, new(), new(delay=30))
    carry_out(store, undo_of_cancelling(store, due, later, last))
    claims = store.claim(9)
    store.settle(*((each, Succeeded()) for each in claims))
    store.wait(30)
    store.end(taken(store)[0])

    assert {due, last} == {each.id for each in claims}
    assert [State.SUCCEEDED] * 3 == [job(store, each).state for each in (due, later, last)]
    assert () == store.claim(9)


@pytest.mark.parametrize("round_", range(4))
def test_an_undo_and_the_last_end_do_not_overlook_each_other(shared: Harness, round_: int):
    """The batch ends while the cancellation of what follows is taken back: it is due, or was left cancelled."""
    _, last = begin(shared, new())
    undo = undo_of_cancelling(shared, last)
    shared.do(bulk.carry_out(undo, now=shared.now))  # the start of the other operation, without jobs
    (claim,) = taken(shared)
    shared.at_once(
        [bulk.carry_out(undo, now=shared.now), leases.settle([Ending(claim, Succeeded(), 0.0)], now=shared.now)]
    )

    assert is_due(shared, last) or job(shared, last).state is State.CANCELLED
