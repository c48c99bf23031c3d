"""Enqueueing jobs and reading one, step by step."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.records import AttemptRecord, Enqueue, JobRecord, KeyUntil, NewJob, OnConflict
from redrive.errors import ConfigurationError, JobNotFound
from redrive.stores.operations import admin, jobs, redriving
from redrive.stores.operations.keys import Holder
from redrive.stores.query import Operation, Query
from redrive.stores.statements import loader
from tests.engine.helpers import job
from tests.stores.helpers import T0, new, seconds
from tests.stores.operations.conversing import CLOCK, converse, names, single


@pytest.mark.parametrize(
    ("build", "rows", "expected", "query"),
    [
        (jobs.get, [job()], job(), Query("job_get", {"id": 7}, into=JobRecord)),
        (jobs.history, [1, 2], (1, 2), Query("attempts_of", {"job_id": 7}, into=AttemptRecord)),
        (jobs.result, [(b"1",)], b"1", Query("result_of", {"job_id": 7})),
        (jobs.result, [], None, Query("result_of", {"job_id": 7})),
    ],
    ids=["get", "history", "result", "no result"],
)
def test_reading_a_job_takes_one_query(build: Any, rows: list[Any], expected: object, query: Query):
    """Operations that read one part of a job run one query and return its result."""
    assert (expected, [query]) == converse(build(7), rows)


BUILDS = [jobs.get, jobs.material, admin.cancel, redriving.retry]


@pytest.mark.parametrize("build", BUILDS, ids=lambda each: each.__name__)
def test_a_missing_job_is_not_found(build: Any):
    """Operations on a missing job raise an error with its id, and run no further query."""
    operation = build(7)
    with pytest.raises(JobNotFound, match="there is no job 7"):
        converse(operation, *([CLOCK] if operation.writes else []), [])


@pytest.mark.parametrize(("rows", "expected"), [([(b"{}",)], b"{}"), ([], None)])
def test_material_is_read_in_one_transaction(rows: list[Any], expected: bytes | None):
    """Job, arguments and history of a catch request are read together in one transaction."""
    material, asked = converse(jobs.material(7), [job()], rows, [1])

    assert jobs.CatchMaterial(job(), expected, (1,)) == material
    assert ["job_get", "payload_of", "attempts_of"] == names(asked)


def gate(first: int, last: int) -> list[jobs.NumberBlock]:
    """Return the rows that the query ``gate`` yields first if no queue is ordered and these ids are free."""
    return [jobs.NumberBlock(T0, first, last)]


def test_enqueueing_writes_each_policy_once():
    """Jobs that share a policy write it once, and payloads only where there are any."""
    wanted = [new("a"), new("b", payload=None, delay=5), new("c", retry="9 1s")]
    blocks = [jobs.NumberBlock(T0, 42, 42), jobs.NumberBlock(T0, 43, 44)]
    ids, asked = converse(jobs.enqueue(wanted), blocks, [])
    _, policies, rows, payloads = single(asked)

    assert jobs.EnqueueResult([42, 43, 44], at=T0) == ids
    assert ["gate", "policy_put", "job_insert", "payload_insert"] == names(asked)
    assert 3 == asked[0].params["count"]
    assert [wanted[0].policy.digest, wanted[2].policy.digest] == [row["digest"] for row in policies.many]
    assert [None, "delay", None] == [row["hold"] for row in rows.many]
    assert [T0, T0 + seconds(5), T0] == [row["scheduled_at"] for row in rows.many]
    assert [42, 44] == [row["job_id"] for row in payloads.many]


def test_enqueueing_reads_once_and_writes_once():
    """Enqueueing reads one statement outside of the transaction, and writes one batch, which is the transaction."""
    _, asked = converse(jobs.enqueue([new(), new()]), gate(1, 2), [])

    kinds = loader.headers("postgres")
    assert ["none", "last"] == [kinds[query.name]["transaction"] for query in (asked[0], asked[1].queries[-1])]
    assert 2 == len(asked)


def test_the_trace_of_new_jobs_is_written_with_them():
    """Traces are written for new jobs only, by the same statement that inserts them."""
    _, asked = converse(jobs.enqueue([new(), new()], trace="t"), gate(1, 2), [])

    assert ["gate", "policy_put", "job_insert_alike", "payload_insert", "trace_put"] == names(asked)
    assert [{"job_id": 1, "trace": "t"}, {"job_id": 2, "trace": "t"}] == single(asked)[-1].many


def test_enqueueing_without_arguments_writes_no_payloads():
    """Enqueueing jobs without arguments writes no payloads."""
    _, asked = converse(jobs.enqueue([new(payload=None)]), gate(1, 1), [])

    assert ["gate", "policy_put", "job_insert_alike"] == names(asked)


def test_enqueueing_nothing_runs_no_query():
    """Enqueueing an empty list returns at once."""
    with pytest.raises(StopIteration) as ended:
        next(jobs.enqueue([]).steps)

    assert jobs.EnqueueResult([]) == ended.value.value


def test_only_the_job_itself_has_its_hard_timeout():
    """Jobs carry the attempt timeout of their policy; a catch job has that of an attempt without one."""
    wanted = new(attempt_timeout="30s")
    _, asked = converse(jobs.enqueue([wanted, replace(wanted, parent_id=3)]), gate(1, 2), [])

    assert [seconds(30), None] == [row["timeout_for"] for row in single(asked)[2].many]


SAME = new()


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (new(payload=b"[1]"), "job_insert_alike"),
        (new("other"), "job_insert"),
        (new(delay=5), "job_insert"),
        (replace(SAME, partition="a"), "job_insert"),
        (replace(SAME, parent_id=3), "job_insert"),
    ],
    ids=["arguments", "task", "delay", "partition", "catch job"],
)
def test_calls_that_are_alike_share_one_row_of_parameters(other: NewJob, expected: str):
    """Jobs that differ only in their arguments are inserted from one row of parameters."""
    _, asked = converse(jobs.enqueue([SAME, other]), gate(1, 2), [])
    rows = single(asked)[2]

    assert (expected, [1, 2]) == (rows.name, rows.params.get("ids") or [row["id"] for row in rows.many or ()])


@pytest.mark.parametrize(
    ("wanted", "trace", "query"),
    [
        (new(), None, "enqueue"),
        (replace(new(), partition="a"), None, "enqueue"),
        (new(), "t", "enqueue_full"),
        (new(delay=5), None, "enqueue_full"),
        (replace(new(), due_at=T0), None, "enqueue_full"),
        (replace(new(), expires=seconds(5)), None, "enqueue_full"),
        (replace(new(), expires=T0), None, "enqueue_full"),
        (replace(new(), tags=("t",)), None, "enqueue_full"),
    ],
)
def test_a_single_job_is_written_by_one_query(wanted: NewJob, trace: str | None, query: str):
    """Single jobs without keys are inserted by one query; one with options by a query with more parameters."""
    result, asked = converse(jobs.enqueue([wanted], trace=trace), [jobs.EnqueuedJob(3, T0)])

    assert ([query], jobs.EnqueueResult([3], at=T0)) == (names(asked), result)


@pytest.mark.parametrize(
    "wanted",
    [
        replace(new(), key="k", key_until=KeyUntil.END),
        replace(new(), idempotency_key="k"),
        replace(new(), parent_id=3),
        replace(new(), origin="cron:x"),
        new(payload=None),
        new(""),
        new(queue=""),
        replace(new(), partition=""),
    ],
)
def test_other_single_jobs_are_written_like_several(wanted: NewJob):
    """Jobs with keys, those of larger operations, and those that a database refuses, take several queries."""
    asked = next(jobs.enqueue([wanted]).steps)

    assert isinstance(asked, Query)
    assert "gate" == asked.name


def test_a_job_that_was_not_inserted_has_no_partition():
    """If the query inserts no job, the queue is ordered."""
    with pytest.raises(ConfigurationError, match=r"queue 'default' is ordered: give the partition"):
        converse(jobs.enqueue([new()]), [])


def test_an_unknown_job_has_no_salt():
    """Reading the idempotency key of a missing job raises an error with its id."""
    with pytest.raises(JobNotFound, match="7"):
        converse(jobs.salt(7), [])


def test_jobs_of_a_handler_whose_keys_were_all_taken_are_not_inserted():
    """The jobs that hold the keys by the end of the attempt stand for all of them: nothing follows the look."""
    job = replace(new(), key="k", on_conflict=OnConflict.EXISTING)
    steps = jobs.write_all([Enqueue(9, job)], T0)
    holder = Holder("send", "k", 3, "send", State.READY, debounced=False)
    _, asked = converse(Operation("write_all", steps, writes=True), [], [holder])

    assert ["keys_take", "keys_find"] == [each.name for each in single(asked)]
