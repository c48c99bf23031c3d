"""Costs of claims in special queues, which grow with the requested jobs, not with blocked or saturated ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.engine.outcome import Succeeded
from redrive.engine.queue import QueueChange
from redrive.stores import migrate
from redrive.stores.operations import jobs, leases, limited_queues, queues
from redrive.stores.statements import loader
from redrive.stores.values.sqlite import encode
from tests.stores.helpers import FATAL, LONG, T0, failed, new, seconds
from tests.stores.statements.sqlite.test_plans import FLAT, Counted

FEW, MANY = 1_000, 10_000

QUEUES = [f"q{n:02}" for n in range(20)]


def backlog(count: int) -> Counted:
    """Return a database over twenty queues with this many ready and as many running jobs, and half as many of each of
    these: jobs that wait for a retry, jobs blocked by the head of an ordered queue, jobs of saturated partitions."""
    database = Counted()

    def put(many: int, queue: str | None = None, partition: str | None = None, **options: Any) -> None:
        wanted = [new(queue=queue or QUEUES[n % 20], **options) for n in range(many)]
        database.run(jobs.enqueue([replace(each, partition=partition) for each in wanted], now=T0))

    put(count // 2, retry="5 1h")
    taken = database.run(leases.claim(database.worker, count // 2, lease_for=LONG, now=T0)).claims
    database.run(leases.settle([leases.Ending(each, failed(), 0.0) for each in taken], now=T0))
    put(count)
    database.run(leases.claim(database.worker, count, lease_for=LONG, now=T0))
    for name, change in {
        "ordered": QueueChange(ordered=True),
        "shared": QueueChange(per_partition=1),
        "full": QueueChange(concurrency=1),
        "paused": QueueChange(paused=True),
    }.items():
        database.run(queues.change(name, change, now=T0))
        put(1, name, "a")
    heads = database.run(leases.claim(database.worker, 9, lease_for=LONG, now=T0)).claims
    assert 3 == len(heads)
    dead = next(each for each in heads if each.queue == "ordered")
    database.run(leases.settle([leases.Ending(dead, FATAL, 0.0)], now=T0))
    for name in ("ordered", "shared", "full", "paused"):
        put(count // 4, name, "a")
    put(count)
    return database


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Counted, Counted]]:
    """Return a small backlog and one of ten times the size."""
    made = backlog(FEW), backlog(MANY)
    yield made
    for each in made:
        each.connection.close()


@pytest.mark.case("D39")
def test_a_claim_costs_the_same_with_blocked_jobs(pair: tuple[Counted, Counted]):
    """With ten times the rows, a claim of ten takes at most 1.2 times the steps, whether the rows are ready, running,
    waiting for a retry, or blocked by an ordered partition, a limit or a pause."""
    costs = [database.steps(database.claim()) for database in pair]

    assert costs[1] <= FLAT * costs[0]


@pytest.mark.case("D39")
def test_a_claim_visits_a_bounded_number_of_rows(pair: tuple[Counted, Counted]):
    """Claiming ten jobs over twenty plain and four special queues visits a bounded number of rows: four for each queue
    and slot, and those that a claim may examine in special queues."""
    visits = 4 * 24 * 10 + 2 * limited_queues.WINDOW + limited_queues.VISITS

    assert pair[1].steps(pair[1].claim()) * 5 <= 60 * visits


@pytest.mark.case("D39")
def test_a_saturated_queue_is_not_scanned(pair: tuple[Counted, Counted]):
    """If only a saturated and a paused queue have due jobs, a claim reads none of these jobs."""
    costs = []
    for database in pair:
        looked: list[str] = []
        database.connection.set_trace_callback(looked.append)
        operation = leases.claim(database.worker, 10, lease_for=LONG, queues=["full", "paused"], now=T0)
        assert () == database.run(operation).claims
        database.connection.set_trace_callback(None)
        costs.append(len(looked))
        assert [] == [statement for statement in looked if "scheduled_at" in statement and "LIMIT 10" in statement]

    assert costs[0] == costs[1]


def test_a_limited_queue_adds_one_statement_to_other_claims():
    """Claims of plain queues run one more statement if a special queue without due jobs exists."""
    database = Counted()
    database.run(queues.change("limited_queues", QueueChange(concurrency=1), now=T0))
    database.run(jobs.enqueue([new(), new(queue="limited_queues", delay=3600)], now=T0))
    asked: list[str] = []
    database.connection.set_trace_callback(asked.append)
    claims = database.run(database.claim(1)).claims
    database.connection.set_trace_callback(None)
    database.run(leases.settle([leases.Ending(each, Succeeded(), 0.0) for each in claims], now=T0))
    database.connection.close()

    assert ["BEGIN", "SELECT", "UPDATE", "UPDATE", "WITH", "COMMIT"] == [each.split()[0] for each in map(_bare, asked)]


def _bare(statement: str) -> str:
    return "\n".join(line for line in statement.splitlines() if not line.startswith("--"))


PARAMS: dict[str, object] = {
    "now": T0, "count": 10, "window": 100, "queue": "q", "queues": None, "excluded": None, "after": T0, "ordered": True,
    "ids": [1], "leases": [1], "worker_id": 1, "salt": 7, "partitions": ["a"], "priorities": [0], "tasks": ["t"],
    "partition": "a",
}  # fmt: skip


@pytest.mark.case("D39")
@pytest.mark.parametrize(
    "name",
    ["queues_due", "queue_window", "queue_shares", "queue_rows", "queue_lines", "queue_held", "job_circumstances",
     "queue_holders", "heads", "claim_chosen"],
)  # fmt: skip
def test_no_statement_of_a_claim_scans_the_jobs(name: str):
    """Plans of the claim's statements scan neither the table of jobs nor an index of it beyond the first row."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate.migrate(connection.cursor(), "sqlite", "planned")
    params = encode({**PARAMS, "after": "a"} if name in ("queue_shares", "queue_lines") else PARAMS)
    text = f"EXPLAIN QUERY PLAN {loader.statements('sqlite')[name]}"
    lines = [row[3] for row in connection.execute(text, params).fetchall()]
    connection.close()
    big = ("redrive_jobs", "job", "line", "first", "head", "child", "other")
    scans = [line for line in lines if line.startswith("SCAN") and line.split()[1] in big]
    firsts = {
        "SCAN redrive_jobs USING INDEX redrive_jobs_ready",
        "SCAN redrive_jobs USING INDEX redrive_jobs_parted",
        "SCAN line",  # the name of the loose scan itself
        "SCAN first",  # its first row
        "SCAN head",  # the first rows of a lane, which were found by probes
    }

    assert lines
    assert set(scans) <= firsts


def test_starts_are_counted_by_their_queue():
    """Starts of a queue are found by its name, and deleted when no window contains them."""
    database = Counted()
    database.run(queues.change("default", QueueChange(rate=None), now=T0))
    for name in ("queue_starts", "partition_starts"):
        lines = database.connection.execute(
            f"EXPLAIN QUERY PLAN {loader.statements('sqlite')[name]}", encode({"queue": "q", "after": T0})
        ).fetchall()
        assert any("PRIMARY KEY (queue=?" in row[3] for row in lines)
    database.connection.close()

    assert seconds(0) < limited_queues.RESUME_AFTER
