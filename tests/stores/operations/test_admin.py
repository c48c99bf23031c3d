"""What operators do, driven by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redrive.engine.lifecycle import State
from redrive.engine.records import Attempt, Closing, Job, Stats, Worker
from redrive.engine.select import Filter
from redrive.errors import IllegalMove
from redrive.stores.operations import admin, workers
from redrive.stores.operations.admin import Family, Redriven
from redrive.stores.query import Query
from tests.engine.helpers import job, policy
from tests.stores.helpers import T0
from tests.stores.operations.conversing import CLOCK, converse, names


def test_reading_the_rest_asks_one_question():
    """The workers, and what the database says of itself, are one question each."""
    assert ((3, 4), [Query("workers", into=Worker)]) == converse(workers.workers(), [3, 4])
    assert ("f00", [Query("meta", {"key": "uid"})]) == converse(admin.identify("uid"), [("f00",)])


def test_a_filter_becomes_parameters():
    """Every condition of a filter is a parameter, and None where it was not given."""
    wanted = Filter(ids=(1, 2), state=State.DEAD, task="t", queue="q", reason="R", error="e", caught=True, after_id=5)
    found, asked = converse(admin.select(wanted), [job()])

    assert (job(),) == found
    assert {
        "ids": [1, 2],
        "state": State.DEAD,
        "task": "t",
        "queue": "q",
        "reason": "R",
        "error": "e",
        "caught": True,
        "after_id": 5,
        "oldest_first": False,
        "count": 100,
    } == asked[0].params
    assert None is converse(admin.select(Filter()), [])[1][0].params["ids"]


def test_counting_is_told_the_instant():
    """Counts are taken at the instant of the transaction."""
    counts = Stats(1, 2, 3, 4, 5, 6, 7, 8)
    answer, asked = converse(admin.stats(after_id=3, task="t"), CLOCK, [counts])

    assert counts == answer
    assert {"now": T0, "after_id": 3, "task": "t"} == asked[1].params


DEAD = job(state=State.DEAD, reason="ERROR", failures=3, finished_at=T0)
FREE = Family(7, catching=False, twin=False, pointless=False)


@pytest.mark.parametrize("why", [None, "enough"])
def test_cancelling_a_running_job_closes_its_attempt(why: str | None):
    """A running job that is cancelled gets a line in its history; one that waits does not."""
    running = job(state=State.RUNNING, lease_id=41, worker_id=2, claimed_at=T0, attempt=1)
    done, asked = converse(admin.cancel(7, why=why), CLOCK, [running], [(7,)], [])
    expected = Attempt(7, 41, 1, 2, T0, T0, Closing.CANCELLED, verdict=why or "cancelled by an operator")

    assert done
    assert {each: getattr(expected, each) for each in Attempt.__struct_fields__} == asked[3].params
    assert 3 == len(converse(admin.cancel(7), CLOCK, [job()], [(7,)])[1])


def test_cancelling_what_is_final_changes_nothing():
    """Where the job had ended before, a cancel answers no."""
    assert not converse(admin.cancel(7), CLOCK, [DEAD], [])[0]


def test_retrying_a_waiting_job_makes_it_due():
    """A waiting job is made due, and nothing else is asked."""
    assert Query("hasten", {"id": 7, "now": T0}) == converse(admin.retry(7), CLOCK, [job()], [])[1][2]


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
def test_retrying_forgives_the_failure_that_was_final(row: Job, forgiven: int):
    """A dead job is forgiven its last failure; one that ended without a failure has none to be forgiven."""
    _, asked = converse(admin.retry(7), CLOCK, [row], [FREE], [(7,)])

    assert {"ids": [7], "forgive": forgiven, "now": T0, "note": "run once more by an operator"} == asked[3].params


@pytest.mark.parametrize("state", [State.RUNNING, State.SUCCEEDED])
def test_retrying_what_cannot_be_is_refused(state: State):
    """A job that runs or has succeeded is refused before its family is asked for."""
    with pytest.raises(IllegalMove, match=f"a {state} job cannot redrive"):
        converse(admin.retry(7), CLOCK, [job(state=state)])


OBSTACLES = [
    (replace(DEAD, caught_at=T0), FREE, "was caught: its catch task has dealt with it"),
    (
        replace(DEAD, policy=policy("2 1s catch mend")),
        replace(FREE, catching=True),
        "is being caught by mend: cancel the catch job first, or let it finish",
    ),
    (
        replace(DEAD, parent_id=3),
        replace(FREE, pointless=True),
        "has nothing to catch: job 3 is not dead any more, or was caught",
    ),
    (replace(DEAD, parent_id=3), replace(FREE, twin=True), "has a twin: another catch job of job 3 waits or runs"),
]


@pytest.mark.parametrize(("row", "family", "why"), OBSTACLES)
def test_an_obstacle_refuses_a_retry(row: Job, family: Family, why: str):
    """A job that must stay as it is is not run once more, and the refusal says why."""
    with pytest.raises(IllegalMove) as refused:
        converse(admin.retry(7), CLOCK, [row], [family])

    assert f"job 7 {why}" == str(refused.value)


@pytest.mark.parametrize(("row", "family", "why"), [*OBSTACLES, (job(), FREE, "is ready")])
def test_an_obstacle_keeps_a_job_from_a_redrive(row: Job, family: Family, why: str):
    """A job that must stay as it is is kept, with the reason, and nothing is written for it."""
    redriven, asked = converse(admin.redrive(Filter()), CLOCK, [row], [family])

    assert Redriven((), ((7, why),)) == redriven
    assert "redrive" not in names(asked)


def test_a_redrive_starts_one_of_each_family():
    """Of a dead job and its catch jobs the oldest is started; the others are kept, each with its reason."""
    rows = [
        replace(DEAD, id=1),
        replace(DEAD, id=2, parent_id=1),
        replace(DEAD, id=4, parent_id=3),
        replace(DEAD, id=5, parent_id=3),
    ]
    families = [replace(FREE, id=row.id) for row in rows]
    redriven, asked = converse(admin.redrive(Filter()), CLOCK, rows, families, [(1,), (4,)])

    assert (1, 4) == redriven.ids
    assert (
        (2, "has nothing to catch while job 1 starts again"),
        (5, "has a twin: another catch job of job 3 waits or runs"),
    ) == redriven.kept
    assert {"ids": [1, 4], "forgive": None, "now": T0, "note": "redriven by an operator"} == asked[3].params
    assert asked[1].params["oldest_first"]


def test_a_dry_run_writes_nothing():
    """A dry run answers the same and does not ask for the writing."""
    redriven, asked = converse(admin.redrive(Filter(), dry_run=True), CLOCK, [DEAD], [FREE])

    assert Redriven((7,)) == redriven
    assert ["clock", "jobs_select", "families"] == names(asked)
