"""Putting jobs in, and looking at one, driven by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from redrive.engine.records import Attempt, Job
from redrive.errors import JobNotFound
from redrive.stores.operations import admin, jobs, redriving
from redrive.stores.query import Query
from tests.engine.helpers import job
from tests.stores.helpers import T0, new, seconds
from tests.stores.operations.conversing import CLOCK, converse, names

GATE = [jobs.Gate(T0)]
"""What the query ``gate`` answers first where no queue is ordered."""


@pytest.mark.parametrize(
    ("build", "rows", "expected", "query"),
    [
        (jobs.get, [job()], job(), Query("job_get", {"id": 7}, into=Job)),
        (jobs.history, [1, 2], (1, 2), Query("attempts_of", {"job_id": 7}, into=Attempt)),
        (jobs.payload, [(b"{}",)], b"{}", Query("payload_of", {"job_id": 7})),
        (jobs.payload, [], None, Query("payload_of", {"job_id": 7})),
        (jobs.result, [(b"1",)], b"1", Query("result_of", {"job_id": 7})),
        (jobs.result, [], None, Query("result_of", {"job_id": 7})),
    ],
    ids=["get", "history", "payload", "no payload", "result", "no result"],
)
def test_reading_a_job_asks_one_question(build: Any, rows: list[Any], expected: object, query: Query):
    """An operation that reads one thing of a job asks for it and answers it."""
    assert (expected, [query]) == converse(build(7), rows)


BUILDS = [jobs.get, jobs.material, admin.cancel, redriving.retry]


@pytest.mark.parametrize("build", BUILDS, ids=lambda each: each.__name__)
def test_a_missing_job_is_not_found(build: Any):
    """An operation on a job that is not there says which one is missing, and asks no further."""
    operation = build(7)
    with pytest.raises(JobNotFound, match="there is no job 7"):
        converse(operation, *([CLOCK] if operation.writes else []), [])


@pytest.mark.parametrize(("rows", "expected"), [([(b"{}",)], b"{}"), ([], None)])
def test_material_is_read_in_one_transaction(rows: list[Any], expected: bytes | None):
    """The material of a catch request is the job, its arguments and its history, asked for together."""
    material, asked = converse(jobs.material(7), [job()], rows, [1])

    assert jobs.Material(job(), expected, (1,)) == material
    assert ["job_get", "payload_of", "attempts_of"] == names(asked)


def test_enqueueing_writes_each_policy_once():
    """Jobs that share a policy write it once, and payloads only where there are any."""
    wanted = [new("a"), new("b", payload=None, delay=5), new("c", retry="9 1s")]
    ids, asked = converse(jobs.enqueue(wanted), GATE, [(42, 42), (43, 44)], [], [], [])

    assert jobs.Placed([42, 43, 44]) == ids
    assert ["gate", "take", "policy_put", "job_insert", "payload_insert"] == names(asked)
    assert {"name": "job", "count": 3} == asked[1].params
    assert [wanted[0].policy.digest, wanted[2].policy.digest] == [row["digest"] for row in asked[2].many]
    assert [None, "delay", None] == [row["hold"] for row in asked[3].many]
    assert [T0, T0 + seconds(5), T0] == [row["scheduled_at"] for row in asked[3].many]
    assert [42, 44] == [row["job_id"] for row in asked[4].many]


def test_enqueueing_without_payloads_writes_none():
    """Where no job has arguments, none are written."""
    _, asked = converse(jobs.enqueue([new(payload=None)]), GATE, [(1, 1)], [], [])

    assert "payload_insert" not in names(asked)


def test_enqueueing_nothing_asks_only_the_time():
    """An empty enqueue takes no number."""
    assert (jobs.Placed([]), 1) == ((answer := converse(jobs.enqueue([]), GATE))[0], len(answer[1]))


def test_only_the_job_itself_has_its_hard_timeout():
    """A job carries the attempt timeout of its policy; a catch job does not carry its parent's."""
    wanted = new(attempt_timeout="30s")
    _, asked = converse(jobs.enqueue([wanted, replace(wanted, parent_id=3)]), GATE, [(1, 2)], [], [], [])

    assert [seconds(30), None] == [row["timeout_for"] for row in asked[3].many]


def test_calls_that_are_alike_share_one_row_of_parameters():
    """Jobs that differ in nothing but their arguments are inserted by one statement; the others share another one."""
    alike, catching = [new(), new(payload=b"[1]")], replace(new(), parent_id=3)
    wanted = [*alike, new("other"), *alike, catching, catching]
    _, asked = converse(jobs.enqueue(wanted), GATE, [(1, 7)], [], [], [], [], [])

    assert [[1, 2], [4, 5]] == [query.params["ids"] for query in asked if query.name == "job_insert_alike"]
    assert [[3, 6, 7]] == [[row["id"] for row in query.many or ()] for query in asked if query.name == "job_insert"]
