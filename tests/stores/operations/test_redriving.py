"""Starting ended jobs again, step by step."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as changed

from redrive.engine.lifecycle import State
from redrive.engine.records import Filter, JobRecord, KeyUntil
from redrive.errors import IllegalMove
from redrive.stores.operations import redriving
from redrive.stores.operations.admin import BulkResult
from redrive.stores.operations.keys import Holder
from redrive.stores.operations.redriving import JobFamily
from redrive.stores.query import Query
from tests.engine.helpers import job, policy
from tests.stores.helpers import T0, seconds
from tests.stores.operations.conversing import CLOCK, converse, names

DEAD = job(state=State.DEAD, reason="ERROR", failures=3, finished_at=T0)
FREE = JobFamily(7, catching=False, twin=False, pointless=False)
KEYED = replace(DEAD, key="u", key_until=KeyUntil.END)


def family(number: int) -> JobFamily:
    """Return the rows of a job that has no obstacle to a redrive."""
    return changed(FREE, id=number)


def test_retrying_a_waiting_job_makes_it_due():
    """Retrying a waiting job makes it and its waiting steps due."""
    _, asked = converse(redriving.retry(7), CLOCK, [job()], [], [], [])

    assert Query("hasten", {"id": 7, "now": T0}) == asked[2]
    assert Query("steps_hasten", {"run_id": 7, "now": T0}) == asked[3]


@pytest.mark.parametrize(
    ("row", "forgiven"),
    [
        (DEAD, 1),
        (replace(DEAD, reason="POISON"), 1),
        (replace(DEAD, reason="DEADLINE"), 0),
        (replace(DEAD, state=State.CANCELLED), 0),
    ],
    ids=["failed", "poisoned", "expired", "cancelled"],
)
def test_retrying_resets_the_final_failure(row: JobRecord, forgiven: int):
    """Retrying a dead job subtracts its last failure; a job that ended without a failure keeps its count."""
    _, asked = converse(redriving.retry(7), CLOCK, [row], [FREE], [(7,)], [], [])
    start = {"ids": [7], "first_at": T0, "spacing": timedelta(0), "queue": None, "forgive": forgiven}

    assert start | {"note": "run once more by an operator", "keep_due": False} == asked[3].params


@pytest.mark.parametrize("state", [State.RUNNING, State.SUCCEEDED])
def test_an_impossible_retry_is_refused(state: State):
    """Retrying a running or succeeded job is refused before its related jobs are read."""
    with pytest.raises(IllegalMove, match=f"a {state} job cannot run again"):
        converse(redriving.retry(7), CLOCK, [job(state=state)])


OBSTACLES = [
    (replace(DEAD, caught_at=T0), FREE, "was caught: its catch task has dealt with it"),
    (
        replace(DEAD, policy=policy("2 1s catch mend")),
        changed(FREE, catching=True),
        "is being caught by mend: cancel the catch job first, or let it finish",
    ),
    (
        replace(DEAD, parent_id=3),
        changed(FREE, pointless=True),
        "has nothing to catch: job 3 is not dead any more, or was caught",
    ),
    (replace(DEAD, parent_id=3), changed(FREE, twin=True), "has a twin: another catch job of job 3 waits or runs"),
]


@pytest.mark.parametrize(("row", "kin", "why"), OBSTACLES)
def test_an_obstacle_refuses_a_retry(row: JobRecord, kin: JobFamily, why: str):
    """Refuse a retry of a job with an obstacle, and give the reason."""
    with pytest.raises(IllegalMove) as refused:
        converse(redriving.retry(7), CLOCK, [row], [kin])

    assert f"job 7 {why}" == str(refused.value)


@pytest.mark.parametrize(("row", "kin", "why"), [*OBSTACLES, (job(), FREE, "is ready")])
def test_an_obstacle_keeps_a_job_from_a_redrive(row: JobRecord, kin: JobFamily, why: str):
    """Keep a job with an obstacle in a redrive, report the reason, and write nothing for it."""
    redriven, asked = converse(redriving.redrive(Filter()), CLOCK, [row], [kin])

    assert BulkResult((), ((7, why),)) == redriven
    assert "redrive" not in names(asked)


def test_a_redrive_starts_one_of_a_job_and_its_catch_jobs():
    """Of a dead job and its catch jobs the oldest is started; the others are kept, each with its reason."""
    rows = [
        replace(DEAD, id=1),
        replace(DEAD, id=2, parent_id=1),
        replace(DEAD, id=4, parent_id=3),
        replace(DEAD, id=5, parent_id=3),
    ]
    families = [changed(FREE, id=row.id) for row in rows]
    redriven, asked = converse(redriving.redrive(Filter()), CLOCK, rows, families, [(1,), (4,)], [])

    assert (1, 4) == redriven.ids
    assert (
        (2, "has nothing to catch while job 1 starts again"),
        (5, "has a twin: another catch job of job 3 waits or runs"),
    ) == redriven.kept
    start = {"ids": [1, 4], "first_at": T0, "spacing": timedelta(0), "queue": None, "forgive": None}
    assert start | {"note": "redriven by an operator", "keep_due": False} == asked[3].params
    assert "jobs_oldest" == asked[1].name


def test_a_dry_run_writes_nothing():
    """Dry runs return the same result and run no writing statement."""
    redriven, asked = converse(redriving.dry_run(Filter()), [DEAD], [FREE])

    assert BulkResult((7,)) == redriven
    assert ["jobs_oldest", "families"] == names(asked)


def test_a_key_that_is_held_refuses_a_retry():
    """Retrying a dead job is refused if another job holds its key; the error names that job."""
    holder = Holder(KEYED.task, "u", 9, KEYED.task, State.READY, debounced=False)
    with pytest.raises(IllegalMove, match="job 7 stays dead: its key 'u' is held by job 9"):
        converse(redriving.retry(7), CLOCK, [KEYED], [FREE], [], [holder])


def test_a_key_that_is_taken_in_the_last_moment_keeps_the_job():
    """If a job's key is free when read but taken before the redrive takes it, the job stays dead."""
    holder = Holder(KEYED.task, "u", 9, KEYED.task, State.READY, debounced=False)
    redriven, asked = converse(redriving.redrive(Filter()), CLOCK, [KEYED], [FREE], [], [], [holder])

    assert BulkResult((), ((7, "stays dead: its key 'u' is held by job 9"),)) == redriven
    assert "redrive" not in names(asked)


def test_a_redrive_reads_until_its_limit_is_reached():
    """Limits count started jobs: if jobs are kept, more are read, and the result has the cursor."""
    kept = [replace(DEAD, id=number, caught_at=T0) for number in range(1, 101)]
    free = [replace(DEAD, id=number) for number in (101, 102)]
    kin = [family(number) for number in range(1, 103)]
    answers = CLOCK, kept, kin[:100], free, kin[100:], [(101,)], []
    redriven, asked = converse(redriving.redrive(Filter(limit=1)), *answers)

    assert ((101,), 100, 101) == (redriven.ids, len(redriven.kept), redriven.last_id)
    assert 100 == asked[3].params["after_id"]


def test_a_rate_spaces_due_times_out():
    """Space the due times by the given interval, from the given start, on another queue if one is named."""
    operation = redriving.redrive(Filter(), queue="q2", spacing=seconds(2), first_after=seconds(5))
    _, asked = converse(operation, CLOCK, [DEAD], [FREE], [(7,)], [])

    start = tuple(asked[3].params[key] for key in ("first_at", "spacing", "queue"))
    assert (T0 + seconds(5), seconds(2), "q2") == start


def test_a_redrive_of_nothing_leaves_no_line():
    """If no job matches, a redrive writes neither jobs nor an audit line."""
    redriven, asked = converse(redriving.redrive(Filter()), CLOCK, [])

    assert (BulkResult(()), ["clock", "jobs_oldest"]) == (redriven, names(asked))
