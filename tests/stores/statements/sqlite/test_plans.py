"""Costs of statements, which grow with the requested rows, not with the number of other jobs."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Succeeded, Suspended
from redrive.engine.records import Filter, Hold
from redrive.stores import migrate
from redrive.stores.drivers.sqlite import SQLiteSettings
from redrive.stores.drivers.sqlite.connection import drive
from redrive.stores.operations import admin, checks, jobs, leases, queues, retention, workers
from redrive.stores.operations.retention import RetentionTimes, Survey
from redrive.stores.query import Operation
from redrive.stores.statements import loader
from redrive.stores.values.sqlite import encode
from tests.stores.helpers import LONG, T0, failed, new, seconds

LANES = [{"queue": queue, "priority": priority} for queue in ("a", "b", "c") for priority in (0, 5)]
"""Six lanes for the waiting jobs."""

FEW, MANY = 500, 10_000

FLAT = 1.2
"""The permitted growth of the work with twenty times as many rows."""


class Counted:
    """A database in memory that counts the steps of SQLite's virtual machine."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.ticks = 0
        migrate.migrate(self.connection.cursor(), "sqlite", "counted")
        self.worker = self.run(workers.register("w", concurrency=9, lease_for=LONG, now=T0))

    def run(self, operation: Operation[Any]) -> Any:
        """Run an operation in one transaction."""
        cursor = self.connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        result = drive(cursor, operation.steps, SQLiteSettings(None))
        cursor.execute("COMMIT")
        return result

    def steps(self, operation: Operation[Any]) -> int:
        """Run an operation and count its steps, to five."""
        self.ticks = 0
        self.connection.set_progress_handler(self._tick, 5)
        self.run(operation)
        self.connection.set_progress_handler(None, 5)
        return self.ticks

    def _tick(self) -> int:
        self.ticks += 1
        return 0

    def claim(self, count: int = 10, at: float = 0) -> Operation[leases.Claimed]:
        """Return the operation that claims."""
        return leases.claim(self.worker, count, lease_for=LONG, now=T0 + seconds(at))

    def fill(self, count: int, **options: Any) -> None:
        """Enqueue this many jobs, spread over the lanes."""
        self.run(jobs.enqueue([new(**LANES[n % 6], **options) for n in range(count)], now=T0))

    def settle(self, outcome: Any, count: int) -> None:
        """Claim and settle this many jobs."""
        for _ in range(count // 500):
            claims = self.run(self.claim(500)).claims
            assert 500 == len(claims)
            self.run(leases.settle([leases.Ending(each, outcome, 0.0) for each in claims], now=T0))


@pytest.fixture(scope="module")
def made() -> Iterator[Callable[[str, int], Counted]]:
    """Create databases with this many jobs of a kind, each once."""
    known: dict[tuple[str, int], Counted] = {}

    def make(kind: str, count: int) -> Counted:
        if (kind, count) not in known:
            known[kind, count] = database = Counted()
            BACKLOGS[kind](database, count)
        return known[kind, count]

    yield make
    for each in known.values():
        each.connection.close()


def _due(database: Counted, count: int) -> None:
    database.fill(count)


def _scheduled(database: Counted, count: int) -> None:
    database.fill(count, delay=3600)


def _retrying(database: Counted, count: int) -> None:
    database.fill(count, retry="5 1h")
    database.settle(failed(), count)


def _running(database: Counted, count: int) -> None:
    database.fill(count)
    database.run(database.claim(count))


def _succeeded(database: Counted, count: int) -> None:
    database.fill(count)
    database.settle(Succeeded(b"1"), count)


BACKLOGS = {
    "due": _due,
    "scheduled": _scheduled,
    "retrying": _retrying,
    "running": _running,
    "succeeded": _succeeded,
}


@pytest.mark.parametrize("kind", BACKLOGS)
def test_a_claim_costs_the_same_with_many_jobs(made, kind: str):
    """With 10,000 jobs of any kind in six lanes, a claim of ten takes at most 1.2 times the steps that it takes with
    500."""
    costs = []
    for count in (FEW, MANY):
        database = made(kind, count)
        database.fill(60)
        costs.append(database.steps(database.claim()))

    assert costs[1] <= FLAT * costs[0]
    assert costs[0] > 100


@pytest.mark.parametrize("kind", ["scheduled", "retrying", "succeeded", "running"])
def test_an_idle_claim_costs_the_same_with_many_jobs(made, kind: str):
    """Claims that find no due job cost the same with 10,000 waiting, running or finished jobs."""
    costs = []
    for count in (FEW, MANY):
        database = made(kind, count)
        while database.run(database.claim(1000)).claims:
            pass
        costs.append(database.steps(database.claim()))

    assert costs[1] <= FLAT * costs[0]


def test_the_cost_of_a_claim_follows_what_it_takes(made):
    """Claiming a hundred jobs at once costs less than claiming ten jobs ten times."""
    database = made("due", MANY)
    ten, hundred = database.steps(database.claim(10)), database.steps(database.claim(100))

    assert hundred < 10 * ten


@pytest.mark.parametrize("outcome", [Succeeded(b"1"), failed()], ids=["success", "failure"])
@pytest.mark.parametrize("kind", ["retrying", "running", "succeeded"])
def test_a_settle_costs_the_same_with_many_jobs(made, kind: str, outcome: object):
    """Settling ten attempts costs the same with 10,000 other jobs as with 500."""
    costs = []
    for count in (FEW, MANY):
        database = made(kind, count)
        database.fill(10, retry="5 1h")
        claims = database.run(database.claim()).claims
        assert 10 == len(claims)
        costs.append(database.steps(leases.settle([leases.Ending(each, outcome, 0.0) for each in claims], now=T0)))

    assert costs[1] <= FLAT * costs[0]


@pytest.mark.parametrize("kind", ["scheduled", "retrying", "succeeded"])
def test_a_sweep_costs_the_same_with_many_jobs(made, kind: str):
    """Sweeps read running jobs, not waiting or finished ones."""
    costs = [made(kind, count).steps(leases.sweep(100, now=T0)) for count in (FEW, MANY)]

    assert costs[1] <= FLAT * max(costs[0], 100)


# ---------------------------------------------------------------------------------------------------- plans

ABSENT = """
    narrow workers attempts_least attempts_most took_least took_most not_workers not_ids not_state not_task not_queue
    not_hold not_reason not_group not_tag not_key not_partition schedule not_schedule
    queues tasks hold note attempt failures crashes snoozes by_rule last_delay finished_at reason error forgive queue
    task caught skipped oldest_first unreadable_at finished_before excluded refreshes group fingerprint fingerprints
    before_at birth others unstarted after before after_from before_until begin span
"""

GIVEN: dict[str, object] = {
    "now": T0, "count": 10, "worker_id": 1, "salt": 7, "leases": [1], "before": "running", "gone": [], "first_at": T0,
    "spacing": seconds(0), "job_ids": [1], "lease_ids": [1], "ids": [1], "id": 1,
    "job_id": 1, "lease_id": 1, "limit_for": seconds(3600), "grace": seconds(10),
    "every": seconds(5), "budget": 100, "after_id": 0, "most": 10,
    "before_id": 2**62, "due": None, "keep_due": False,
    "state": "ready", "scheduled_at": T0, "tag": "t", "since": T0, "width": seconds(60), "after": T0, "dead": False,
    "unmuted": False, "at": T0, "key": "k", "partition": None, "until": None, "run": "r", "names": ["n"], "word": "w",
    "starts": 5,
}  # fmt: skip

PARAMS: dict[str, object] = dict.fromkeys(ABSENT.split()) | GIVEN

HOT = [
    "claim",
    "next_due",
    "settle",
    "settle_succeeded",
    "closed_before",
    "caught",
    "leases_of",
    "lost",
    "worker_release",
    "families",
    "redrive",
    "job_get",
    "attempts_of",
    "histories_of",
    "payload_of",
    "cancel",
    "hasten",
    "expire",
    "jobs_tagged",
    "tags_of",
]


ALLOWED = {
    "SCAN redrive_jobs USING INDEX redrive_jobs_ready",  # the first of the lanes: one probe, bounded by LIMIT 1
    "SCAN redrive_jobs USING INDEX redrive_jobs_parted",  # likewise
    "SCAN job USING INDEX redrive_jobs_running",  # a sweep reads the running jobs
}


def plan(name: str) -> Sequence[str]:
    """Return the lines of SQLite's plan for a statement."""
    database = Counted()
    rows = database.connection.execute(
        f"EXPLAIN QUERY PLAN {loader.statements('sqlite')[name]}", encode(PARAMS)
    ).fetchall()
    database.connection.close()
    return [row[3] for row in rows]


@pytest.mark.parametrize("name", HOT)
def test_no_frequent_statement_scans_the_jobs(name: str):
    """Plans of the frequent statements never scan all jobs, attempts, payloads or policies."""
    big = ("redrive_jobs", "job", "parent", "child", "twin", "redrive_attempts", "redrive_payloads", "redrive_policies")
    walks = [line for line in plan(name) if line.startswith("SCAN") and line.split()[1] in big]

    assert set(walks) <= ALLOWED


@pytest.mark.parametrize("name", ["claim", "next_due"])
def test_claims_read_the_index_of_ready_rows(name: str):
    """Claims find lanes and jobs in the partial index of ready rows only."""
    lines = [line for line in plan(name) if "redrive_jobs_" in line]

    assert any("redrive_jobs_ready (queue=? AND priority=?" in line for line in lines)
    assert [] == [line for line in lines if not re.search("redrive_jobs_(ready|parted)", line)]


OPERATORS = {
    "list the newest": lambda: admin.select(Filter(limit=50)),
    "list the oldest": lambda: admin.select(Filter(limit=50, oldest_first=True)),
    "find the dead": lambda: admin.select(Filter(limit=50, oldest_first=True, state=State.DEAD, caught=False)),
    "survey": lambda: retention.survey(0, RetentionTimes(LONG, None), stride=500, now=T0),
    "young": lambda: retention.is_young(Survey(T0, (), frozenset(), 600), RetentionTimes(LONG, None), stride=500),
    "check": lambda: checks.check(0, stride=500),
    "count": lambda: admin.stats(most=50, now=T0),
    "depths": lambda: queues.depths(most=50, now=T0),
}
"""Reads of operators and the pruner; each is bounded by its limit."""


@pytest.mark.parametrize("kind", ["scheduled", "succeeded"])
@pytest.mark.parametrize("what", OPERATORS)
def test_statements_of_operators_do_not_grow_with_the_table(made: Callable[[str, int], Counted], what: str, kind: str):
    """Lists, surveys and checks read an index up to their limit, and sort nothing."""
    few, many = (made(kind, count).steps(OPERATORS[what]()) for count in (FEW, MANY))

    assert many <= few * FLAT + 20


CHOICES = {
    "state": [State.READY, State.RUNNING, State.WAITING, State.DEAD],
    "hold": [Hold.RETRY, Hold.DELAY],
}
"""Filters with a cost that depends on the jobs in that state, not on those that have ended."""

BESIDE: list[dict[str, Any]] = [
    {},
    {"task": "send"},
    {"queue": "a"},
    {"reason": "X"},
    {"error": "x"},
    {"caught": False},
    {"caught": False, "skipped": False},
]

LISTS = [
    Filter(**{name: value}, **beside, oldest_first=oldest_first)
    for name, values in CHOICES.items()
    for value in values
    for beside in BESIDE
    for oldest_first in (False, True)
] + [Filter(ids=(1, 2), oldest_first=oldest_first) for oldest_first in (False, True)]


@pytest.fixture(scope="module")
def ended() -> Iterator[tuple[Counted, Counted]]:
    """Return databases with a few jobs of each state, and few or many that have succeeded since."""
    made = []
    for count in (FEW, MANY):
        database = Counted()
        database.fill(40, retry="0 catch mend")
        some = database.run(database.claim(20)).claims
        database.run(leases.settle([leases.Ending(each, failed(), 0.0) for each in some[:10]], now=T0))
        waiting = [leases.Ending(each, Suspended(LONG), 0.0) for each in some[10:15]]
        database.run(leases.settle(waiting, now=T0))
        database.fill(10, retry="5 100d")
        retried = database.run(database.claim(40)).claims
        database.run(leases.settle([leases.Ending(each, failed(), 0.0) for each in retried[20:]], now=T0))
        database.fill(10, delay=9999)
        database.fill(count, payload=None)
        database.settle(Succeeded(), count)
        made.append(database)
    yield made[0], made[1]
    for each in made:
        each.connection.close()


@pytest.mark.parametrize("wanted", LISTS, ids=str)
def test_a_list_of_what_has_not_succeeded_reads_nothing_that_has(ended: tuple[Counted, Counted], wanted: Filter):
    """With 10,000 succeeded jobs, listing waiting, running or dead ones costs as much as with 500."""
    few, many = (each.steps(admin.select(wanted)) for each in ended)

    assert many <= FLAT * few
    assert (
        few < 100 * len(ended[0].run(admin.select(Filter(state=wanted.state, hold=wanted.hold, ids=wanted.ids)))) + 500
    )


def test_the_selected_jobs_exist(ended: tuple[Counted, Counted]):
    """Lists in the test above are not empty."""
    found = {each: len(ended[1].run(admin.select(Filter(state=each)))) for each in CHOICES["state"]}
    held = {each: len(ended[1].run(admin.select(Filter(hold=each)))) for each in CHOICES["hold"]}

    assert all(found.values()), found
    assert all(held.values()), held


WALKS = [
    ("jobs_held", r"SEARCH redrive_jobs USING INDEX redrive_jobs_held \(hold=\?\)"),
    ("jobs_these", r"SEARCH redrive_jobs USING INTEGER PRIMARY KEY \(rowid=\?\)"),
    ("jobs_few", r"(SCAN|SEARCH) redrive_jobs USING (COVERING )?INDEX redrive_jobs_\w+( \(hold=\?\))?"),
    ("jobs_dead", r"SEARCH redrive_jobs USING INDEX redrive_jobs_dead \(id>\? AND id<\?\)"),
    ("dead_ids", r"SEARCH redrive_jobs USING (COVERING )?INDEX redrive_jobs_(dead|caught) \(id>\? AND id<\?\)"),
    (
        "jobs_grouped",
        r"SEARCH redrive_jobs USING COVERING INDEX redrive_jobs_grouped \(fingerprint=\? AND id>\? AND id<\?\)",
    ),
]


@pytest.mark.parametrize(("name", "expected"), WALKS)
def test_a_list_reads_the_index_that_was_made_for_it(name: str, expected: str):
    """Each line of these plans that concerns jobs uses an index, and a partial one only as a whole."""
    lines = [line for line in plan(name) if "redrive_jobs" in line]

    assert lines
    assert [] == [line for line in lines if not re.fullmatch(expected, line)]
    assert name in {"jobs_these", "dead_ids"} or not any("TEMP B-TREE" in line for line in plan(name))


SEARCHES = ["jobs_known", "runs_called", "hits", "hits_unread", "workers_named"]


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_for_a_value_reads_indexes(name: str):
    """Statements that search a value go to its rows; only the schedules of the code and the workers are read whole."""
    scans = [line for line in plan(name) if line.startswith("SCAN ") and "json_each" not in line]
    of_tables = {"SCAN refresh", "SCAN redrive_workers"}
    recursive = {"workflows", "machines", "scopes", "topics", "ends", "family", "found", "tagged", "CONSTANT"}
    results = {"runs", "instances", "items", "events", "moves"}

    assert [] == [line for line in scans if line not in of_tables and line.split()[1] not in recursive | results]


def test_jobs_without_keys_run_no_key_statement():
    """Jobs without keys run no statement on the table of keys, from the enqueue to the end."""
    asked: list[str] = []
    database = Counted()
    database.connection.set_trace_callback(asked.append)
    database.fill(6)
    claims = database.run(database.claim(6)).claims
    database.run(leases.settle([leases.Ending(each, Succeeded(), 0.0) for each in claims], now=T0))
    database.connection.close()

    assert asked
    assert [] == [statement for statement in asked if "redrive_keys" in statement]


COUNTED = {
    "minutes_sums": ["SEARCH redrive_minutes USING PRIMARY KEY (at>?)", "USE TEMP B-TREE FOR GROUP BY"],
    "minutes_compared": [
        "MATERIALIZE told",
        "SEARCH redrive_minutes USING PRIMARY KEY (at>? AND at<?)",
        "LIST SUBQUERY 1",
        "SCAN json_each VIRTUAL TABLE INDEX 1:",
        "LIST SUBQUERY 2",
        "SCAN json_each VIRTUAL TABLE INDEX 1:",
        "LIST SUBQUERY 3",
        "SCAN json_each VIRTUAL TABLE INDEX 1:",
        "SCAN told",
        "USE TEMP B-TREE FOR GROUP BY",
    ],
    "workers_begun": ["SCAN redrive_workers", "USE TEMP B-TREE FOR ORDER BY"],
    "minutes_unrolled": ["SEARCH redrive_minutes USING PRIMARY KEY (at>? AND at<?)"],
    "errors_within": [
        "SEARCH found USING INDEX redrive_errors_latest (last_at>?)",
        "SEARCH counted USING PRIMARY KEY (fingerprint=? AND at>?)",
        "USE TEMP B-TREE FOR GROUP BY",
        "USE TEMP B-TREE FOR ORDER BY",
    ],
    "occurrences_outcomes": [
        "SCAN known",
        "LIST SUBQUERY 1",
        "SCAN json_each VIRTUAL TABLE INDEX 1:",
        "SEARCH found USING PRIMARY KEY (schedule=? AND occurs_at>?)",
        "CORRELATED SCALAR SUBQUERY 3",
        "CO-ROUTINE latest",
        "SEARCH redrive_occurrences USING PRIMARY KEY (schedule=?)",
        "SEARCH latest",
        "SEARCH job USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
        "USE TEMP B-TREE FOR ORDER BY",
    ],
    "depths_noted": ["SEARCH redrive_depths USING PRIMARY KEY (at=?)"],
    "errors_select": [
        "SCAN found USING INDEX redrive_errors_latest",
        "LIST SUBQUERY 8",
        "SCAN json_each VIRTUAL TABLE INDEX 1:",
        "CORRELATED SCALAR SUBQUERY 9",
        "SEARCH job USING COVERING INDEX redrive_jobs_grouped (fingerprint=?)",
        "CORRELATED SCALAR SUBQUERY 2",
        "CO-ROUTINE counted",
        "SEARCH job USING COVERING INDEX redrive_jobs_grouped (fingerprint=?)",
        "SCAN counted",
        "CORRELATED SCALAR SUBQUERY 6",
        "CO-ROUTINE series",
        "CO-ROUTINE hours",
        "SETUP",
        "SCAN CONSTANT ROW",
        "RECURSIVE STEP",
        "SCAN hours",
        "SCAN hours",
        "SEARCH counted USING PRIMARY KEY (fingerprint=? AND at=?) LEFT-JOIN",
        "USE TEMP B-TREE FOR GROUP BY",
        "SCAN series",
        "CORRELATED SCALAR SUBQUERY 7",
        "SEARCH counted USING PRIMARY KEY (fingerprint=? AND at>?)",
    ],
}
"""Statements of charts and error groups, and their plans. Groups are sorted by an index, and their jobs never read."""


@pytest.mark.parametrize("name", COUNTED)
def test_charts_read_the_rows_of_their_span(name: str):
    """Charts and error groups read no jobs, and of the sums only the rows of their span."""
    assert COUNTED[name] == plan(name)


def test_the_lag_of_a_subscription_reads_the_depths_of_its_span():
    """The table of builds is small and is scanned; of the depths those since the beginning of the span are read."""
    lines = [line for line in plan("lag_past") if "redrive_" in line and "redrive_clock" not in line]

    assert ["SCAN redrive_builds", "SEARCH redrive_depths USING PRIMARY KEY (at>?)"] == lines


def test_a_diagnosis_reads_partial_indexes():
    """The diagnosis scans neither jobs nor other rows beyond an index of those that it counts."""
    scans = [line for line in plan("vitals") if line.startswith("SCAN redrive_") and line != "SCAN redrive_clock"]

    assert scans
    assert [] == [line for line in scans if " USING INDEX " not in line]
