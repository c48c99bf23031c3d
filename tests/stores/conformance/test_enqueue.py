"""Enqueue: jobs are inserted completely or not at all."""

from __future__ import annotations

import pytest

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Succeeded
from redrive.engine.records import Hold, JobRecord
from redrive.errors import JobNotFound, StoreError
from redrive.policy import Policy, Rule
from redrive.stores.operations import admin, jobs
from tests.stores.helpers import FATAL, T0, Harness, failed, new, seconds

ESCAPED = rb'{"a":"\"\\\u0000\ud83d\ude00\n","b":[1.0,null]}'
"""JSON that a store must not read as its own."""


def test_a_new_job_is_ready_and_due(store: Harness):
    """Jobs enqueued without delay are ready, due now, and have no history."""
    number = store.put(new("send", retry="5 1s catch mend", queue="mail", priority=3))
    expected = JobRecord(
        id=number,
        task="send",
        queue="mail",
        priority=3,
        state=State.READY,
        hold=None,
        note=None,
        enqueued_at=T0,
        scheduled_at=T0,
        started_at=None,
        claimed_at=None,
        finished_at=None,
        caught_at=None,
        skipped_at=None,
        attempt=0,
        failures=0,
        crashes=0,
        snoozes=0,
        redrives=0,
        lease_id=None,
        worker_id=None,
        parent_id=None,
        partition=None,
        key=None,
        key_until=None,
        origin=None,
        reason=None,
        error=None,
        policy=Policy.parse("5 1s catch mend").durable(),
    )

    assert expected == store.job(number)


def test_a_delayed_job_is_due_later(store: Harness):
    """Delays count from the time of the enqueue, and the job is marked as scheduled."""
    row = store.job(store.put(new(delay=90)))

    assert (T0, T0 + seconds(90), Hold.DELAY) == (row.enqueued_at, row.scheduled_at, row.hold)


def test_ids_are_answered_in_the_order_given(store: Harness):
    """Jobs that are enqueued together get their ids in the order in which they were given."""
    ids = store.enqueue(*[new(f"task{n}") for n in range(5)])

    assert sorted(set(ids)) == ids
    assert [f"task{n}" for n in range(5)] == [store.job(number).task for number in ids]


def test_ids_are_never_repeated(store: Harness):
    """Jobs that are enqueued one after the other have different, growing ids."""
    ids = [store.put() for _ in range(5)]

    assert sorted(set(ids)) == ids


def test_enqueueing_nothing_takes_nothing(store: Harness):
    """Enqueueing an empty list returns no ids and inserts no job."""
    assert [] == store.enqueue()
    assert () == store.jobs()


def test_a_batch_is_enqueued_completely_or_not_at_all(store: Harness):
    """If one of several jobs is refused, none is inserted."""
    with pytest.raises(StoreError):
        store.enqueue(new(), new(queue=""), new())

    assert () == store.jobs()


def test_a_refused_enqueue_undoes_only_itself(store: Harness):
    """Of simultaneous operations, one that fails does not undo the others."""
    operations = [jobs.enqueue([new(queue="" if n == 3 else "q"), new(queue="q")], now=T0) for n in range(8)]
    answers = store.at_once(operations)

    assert [3] == [n for n, answer in enumerate(answers) if isinstance(answer, StoreError)]
    ids = [number for answer in answers if not isinstance(answer, Exception) for number in answer]
    assert sorted(ids) == [job.id for job in store.jobs()]
    assert 14 == len(set(ids))


@pytest.mark.parametrize(
    "payload", [b"{}", '{"name":"Zoë"}'.encode(), b'"' + b"x" * 300_000 + b'"', ESCAPED, b"", None]
)
def test_a_payload_comes_back_as_it_was(store: Harness, payload: bytes | None):
    """Arguments of a job, or their absence, are stored byte for byte."""
    number = store.put(new(payload=payload))

    assert payload == store.do(jobs.documents({number: None}))[number].payload
    assert payload == store.take().payload


def test_each_job_keeps_its_own_policy(store: Harness):
    """Jobs that are enqueued together each keep their own policy, shared or not."""
    ruled = {"rules": [Rule(OSError, attempts=2)], "deadline": "90s"}
    wanted = [new(retry="5 1s"), new(retry="2 3s catch mend"), new(retry="5 1s"), new(retry="5 1s", **ruled)]
    ids = store.enqueue(*wanted)

    assert [each.policy.policy for each in wanted] == [store.job(number).policy for number in ids]


def test_an_existing_policy_is_shared(store: Harness):
    """Policies that an earlier job brought are shared by later ones."""
    first, second = store.put(new(retry="5 1s")), store.put(new(retry="5 1s"))

    assert store.job(first).policy == store.job(second).policy


@pytest.mark.parametrize("read", [jobs.get, jobs.material])
def test_an_unknown_job_is_not_found(store: Harness, read):
    """Reading a missing job raises an error with its id."""
    with pytest.raises(JobNotFound) as missing:
        store.do(read(404))

    assert "there is no job 404" == str(missing.value)


def test_a_result_comes_back_as_it_was(store: Harness):
    """Results are stored byte for byte, each with its own job, even if many jobs are settled together."""
    results = [ESCAPED, '"Zo\u00eb"'.encode(), b"7"]
    claims = [store.take(new()) for _ in results]
    store.settle(*((claim, Succeeded(result)) for claim, result in zip(claims, results, strict=True)))

    assert results == [store.result(claim.id) for claim in claims]


def test_each_of_many_jobs_has_its_own_payload(store: Harness):
    """Jobs that are enqueued together each keep their own arguments, if any."""
    payloads = [b"1", None, ESCAPED, b'"' + b"x" * 300_000 + b'"', b"2"]
    numbers = store.do(jobs.enqueue([new(payload=each) for each in payloads], now=store.now)).ids

    assert payloads == [store.do(jobs.documents({number: None}))[number].payload for number in numbers]


def test_payload_and_result_of_an_unknown_job_are_none(store: Harness):
    """Payload and result of an unknown job are None."""
    assert {} == store.do(jobs.documents({}))
    assert ({404: jobs.Documents()}, None) == (store.do(jobs.documents({404: None})), store.do(jobs.result(404)))


def test_a_catch_gets_the_complete_request(store: Harness):
    """Catch requests contain the dead job, its arguments, and all attempts, oldest first."""
    claim = store.take(new(retry="1 1s catch mend", payload=b"[7]"))
    store.end(claim, failed("first"))
    store.wait(1)
    store.end(store.take(), FATAL)
    material = store.do(jobs.material(claim.id))

    assert (store.job(claim.id), b"[7]") == (material.job, material.payload)
    assert store.history(claim.id) == material.attempts
    assert ["first", "no such user"] == [attempt.error for attempt in material.attempts]


def test_the_material_of_a_job_without_payload(store: Harness):
    """Material of a job without arguments has None as its payload."""
    number = store.put(new(payload=None))

    assert (None, ()) == (store.do(jobs.material(number)).payload, store.do(jobs.material(number)).attempts)


def test_a_database_has_its_own_name(store: Harness):
    """Reading the uid of a database returns the same value each time."""
    uid = store.do(admin.identify("uid"))

    assert 16 == len(uid)
    assert uid == store.do(admin.identify("uid"))


def test_without_an_injected_instant_the_database_s_clock_is_used(store: Harness):
    """Operations without an injected instant use the database's clock: a job is due when it is enqueued."""
    (number,) = store.do(jobs.enqueue([new()]))
    row = store.job(number)

    assert row.enqueued_at == row.scheduled_at
    assert T0 != row.enqueued_at
    assert row.enqueued_at.tzinfo is not None
