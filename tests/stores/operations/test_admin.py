"""Operations of operators, step by step."""

from __future__ import annotations

import pytest

from redrive.engine.lifecycle import State
from redrive.engine.records import COUNTED, AttemptOutcome, AttemptRecord, Filter, Hold, KeyUntil, Stats, WorkerRecord
from redrive.errors import StoreOpenError
from redrive.stores.operations import admin, schema, workers
from redrive.stores.operations.admin import BulkResult
from redrive.stores.query import Query
from tests.engine.helpers import job
from tests.stores.helpers import T0
from tests.stores.operations.conversing import CLOCK, converse, names


def test_other_reads_take_one_query():
    """Reading the workers, or the metadata of the database, takes one query each."""
    assert ((3, 4), [Query("workers", into=WorkerRecord)]) == converse(workers.workers(), [3, 4])
    assert ("f00", [Query("meta", {"key": "uid"})]) == converse(admin.identify("uid"), [("f00",)])


def test_a_filter_becomes_parameters():
    """Every condition of a filter is a parameter, and None where it was not given."""
    wanted = Filter(ids=(1, 2), state=State.DEAD, task="t", queue="q", reason="R", error="e", caught=True, after_id=5)
    failed = job(error="an e")
    found, asked = converse(admin.select(wanted), [failed], [])

    assert (failed,) == found
    excluded = [
        "state",
        "task",
        "queue",
        "hold",
        "reason",
        "group",
        "tag",
        "key",
        "partition",
        "schedule",
        "ids",
        "workers",
    ]
    bounds = ("attempts_least", "attempts_most", "took_least", "took_most")
    given = ("key", "partition", "schedule", "workers", "since", "until", "now", *bounds)
    assert {
        **{f"not_{name}": [] for name in excluded},
        **dict.fromkeys(given),
        "narrow": False,
        "ids": [1, 2],
        "state": State.DEAD,
        "task": "t",
        "queue": "q",
        "hold": None,
        "reason": "R",
        "error": "e",
        "group": None,
        "caught": True,
        "skipped": None,
        "tag": None,
        "finished_before": None,
        "refreshes": True,
        "oldest_first": False,
        "after_id": 5,
        "before_id": 2**63 - 1,
        "count": 100,
    } == asked[0].params
    assert None is converse(admin.select(Filter()), [])[1][0].params["ids"]


LATER = [each.value for each in Hold if each is not Hold.RETRY]


def test_counting_takes_the_instant():
    """Counts are taken at the instant of the transaction."""
    counts = Stats(1, 2, 3, 4, 5, 6, 7, 8, 9)
    answer, asked = converse(admin.stats(after_id=3, task="t"), CLOCK, [counts])

    assert counts == answer
    assert {"now": T0, "after_id": 3, "task": "t", "most": COUNTED, "holds": LATER} == asked[1].params


DEAD = job(state=State.DEAD, reason="ERROR", failures=3, finished_at=T0)


@pytest.mark.parametrize("why", [None, "enough"])
def test_cancelling_a_running_job_closes_its_attempt(why: str | None):
    """Cancelling a running job adds a line to its history; cancelling a waiting job does not."""
    running = job(state=State.RUNNING, lease_id=41, worker_id=2, claimed_at=T0, attempt=1)
    done, asked = converse(admin.cancel(7, why=why, actor="ann"), CLOCK, [running], [(7,)], [], [], [])
    expected = AttemptRecord(7, 41, 1, 2, T0, T0, AttemptOutcome.CANCELLED, verdict=why or "cancelled by an operator")

    assert done
    assert [41] == [row["lease_id"] for row in asked[3].many]
    assert [{each: getattr(expected, each) for each in AttemptRecord.__struct_fields__}] == asked[4].many
    _, plain = converse(admin.cancel(7), CLOCK, [job()], [(7,)], [])
    assert (T0, "ann", "cancel") == tuple(asked[5].params[key] for key in ("at", "actor", "action"))
    assert ["clock", "job_lock", "cancel", "audit_insert"] == names(plain)


def test_cancelling_a_final_job_changes_nothing():
    """Cancelling a job that has ended returns False."""
    assert not converse(admin.cancel(7), CLOCK, [DEAD])[0]


@pytest.mark.parametrize(
    ("wanted", "few", "statements"),
    [
        (Filter(), None, ["jobs_select"]),
        (Filter(oldest_first=True), None, ["jobs_oldest"]),
        (Filter(state=State.SUCCEEDED), None, ["jobs_select"]),
        (Filter(oldest_first=True, state=State.DEAD, caught=False), None, ["jobs_dead"]),
        (Filter(ids=(7,), state=State.DEAD, caught=False, oldest_first=True), None, ["jobs_these"]),
        (Filter(hold=Hold.RETRY), None, ["jobs_held"]),
        (Filter(hold=Hold.RETRY, oldest_first=True), 1, ["jobs_few", "jobs_these"]),
        (Filter(state=State.RUNNING), 1, ["jobs_few", "jobs_these"]),
        (Filter(state=State.DEAD, oldest_first=True), admin.FEW, ["jobs_few", "jobs_oldest"]),
        (Filter(state=State.READY), admin.FEW, ["jobs_few", "jobs_select"]),
    ],
)
def test_each_choice_has_its_statement(wanted: Filter, few: int | None, statements: list[str]):
    """Filters without an index walk the table, indexed ones read ids first, and few jobs are read by id."""
    found = [] if few is None else [[(number,) for number in range(1, few + 1)]]
    _, asked = converse(admin.select(wanted), *found, [])

    assert statements == names(asked)
    if statements[-1] == "jobs_these" and few is not None:
        assert [1] == asked[-1].params["ids"]


def test_cancelling_gives_the_key_back():
    """Cancelling a job releases its unique key; for a job without a key, no statement is run for that."""
    keyed = job(key="u", key_until=KeyUntil.END)
    _, asked = converse(admin.cancel(7), CLOCK, [keyed], [(7,)], [], [])

    assert Query("keys_drop", {"job_ids": [7]}) == asked[3]


def test_cancelling_many_ignores_ended_jobs():
    """Cancel the matching jobs that have not ended, and write one audit line for all of them."""
    rows = [job(id=1), job(id=2, state=State.SUCCEEDED), job(id=3), job(id=4)]
    done, asked = converse(admin.cancel_all(Filter(limit=4)), CLOCK, rows, [(1,)], [], [(4,)], [])

    assert BulkResult((1, 4), last_id=4) == done
    assert ["clock", "jobs_oldest", "cancel", "cancel", "cancel", "audit_insert"] == names(asked)
    assert BulkResult(()) == converse(admin.cancel_all(Filter()), CLOCK, [])[0]


def test_a_skip_without_effect_leaves_no_line():
    """Only a skip that changes a job is written to the audit log."""
    assert (True, 4) == ((answer := converse(admin.skip(7), CLOCK, [DEAD], [(7,)], []))[0], len(answer[1]))
    assert (False, 3) == ((answer := converse(admin.skip(7), CLOCK, [DEAD], []))[0], len(answer[1]))


def test_a_database_without_an_identity_is_damaged():
    """Reading the identity of a foreign table raises an error with the table's name and what it lacks."""
    with pytest.raises(StoreOpenError, match="redrive_meta has no uid"):
        converse(admin.identify("uid"), [])


@pytest.mark.parametrize(("version", "compatible"), [(None, None), ("two", None), ("1", "")])
def test_an_unreadable_schema_version_is_refused(version: str | None, compatible: str | None):
    """Refuse an unreadable schema version: the error names the possible foreign table and what to do."""
    with pytest.raises(StoreOpenError, match="without the version of the schema"):
        schema.found(version, compatible)
