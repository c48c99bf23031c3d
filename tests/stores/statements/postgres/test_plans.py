"""Claims and settles on PostgreSQL find their rows by index, regardless of the other rows in the table."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import redrive
from redrive.engine.outcome import Succeeded
from redrive.stores.drivers.postgres import PostgresSettings
from redrive.stores.drivers.postgres.statements import begin, prepared
from redrive.stores.opening import open_store
from redrive.stores.operations import jobs, leases, workers
from redrive.stores.operations.leases import Ending
from redrive.stores.statements import loader
from tests import postgres
from tests.stores.helpers import LONG, T0, new

VALUES: dict[str, str] = {
    "now": f"'{T0}'", "count": "10", "queues": "NULL", "excluded": "NULL", "worker_id": "1", "salt": "7",
    "job_ids": "ARRAY[1,2,3]", "lease_ids": "ARRAY[1,2,3]", "ids": "ARRAY[1,2,3]", "job_id": "1", "id": "1",
    "limit_for": "'1 h'", "grace": "'10 s'", "every": "'5 s'", "budget": "100", "gone": "'{}'", "expires_at": f"'{T0}'",
    "cursor_queues": "'{}'", "cursor_priorities": "'{}'", "cursor_tasks": "'{}'", "tasks": "NULL",
    "cursor_times": "'{}'", "cursor_ids": "'{}'", "starts": "5", "note": "'late'", "reason": "'EXPIRED'",
}  # fmt: skip

POOLED = PostgresSettings("", "", pgbouncer=True)
"""Settings with which each transaction repeats the settings of its session."""

_CONDITIONS = """
    state hold task queue reason error group caught skipped tag finished_before partition schedule key workers since
    until attempts_least attempts_most took_least took_most
"""

_EXCLUDED = [
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

FILTER = dict.fromkeys(_CONDITIONS.split(), "NULL") | dict.fromkeys([f"not_{each}" for each in _EXCLUDED], "'{}'") | {
    "narrow": "true",
    "after_id": "0", "before_id": "9000000000", "oldest_first": "false", "most": "100", "refreshes": "NULL",
}  # fmt: skip

HOT = [
    "claim", "claim_chosen", "next_due", "settle_succeeded", "closed_before", "attempts_of", "histories_of",
    "leases_of", "lost", "next_timeout", "expire",
]  # fmt: skip

FEW, MANY = 501, 50_001


class Plans:
    """A schema with a number of jobs of one kind, and the plans of statements there."""

    def __init__(self, connection: psycopg.Connection, schema: str) -> None:
        self.connection = connection
        self.schema = schema

    def explain(self, name: str, /, *, writes: bool = True, **changes: str) -> list[dict[str, Any]]:
        """Run a statement as a cached plan, roll it back, and return the nodes of its plan."""
        statement = prepared(self.schema)[name]
        values = ", ".join({**VALUES, **changes}[each] for each in statement.names)
        values = f"({values})" if values else ""
        self.connection.execute(begin(POOLED, writes=writes))
        self.connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        self.connection.execute(f"PREPARE statement AS {statement.text}")
        rows = self.connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE statement{values}").fetchall()
        self.connection.execute("ROLLBACK")
        self.connection.execute("DEALLOCATE statement")
        return list(_nodes(rows[0][0][0]["Plan"]))

    def cost(self, name: str, /, *, writes: bool = True, **changes: str) -> int:
        """Return the number of pages that a statement touches."""
        top = self.explain(name, writes=writes, **changes)[0]
        return top["Shared Hit Blocks"] + top["Shared Read Blocks"]


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for each in node.get("Plans", ()):
        yield from _nodes(each)


def made(count: int, *, kind: str = "ready") -> str:
    """Return a schema with this many jobs in six lanes; finished and waiting jobs stand beside twenty due ones."""
    url = postgres.url()
    store = open_store(url)
    store.run(workers.register("h:1", concurrency=1, lease_for=LONG, now=T0))
    store.run(jobs.enqueue([new(queue=f"q{n % 3}", priority=n % 2, payload=None) for n in range(20)], now=T0))
    delay = 0 if kind == "ready" else 9999
    for lane in range(3):
        store.run(jobs.enqueue([new(queue=f"q{lane}", delay=delay, payload=None)] * (count // 3), now=T0))
    store.close()
    schema = url.partition("schema=")[2]
    with postgres.connect() as connection:
        if kind == "succeeded":
            connection.execute(
                f"UPDATE {schema}.redrive_jobs SET state = 'succeeded', hold = NULL, finished_at = '{T0}',"  # noqa: S608 - of our own making
                f" claimed_at = '{T0}', success_lease_id = id, success_worker_id = 1"
                " WHERE scheduled_at > enqueued_at"
            )
            connection.execute(f"VACUUM ANALYZE {schema}.redrive_jobs")
    return schema


shared = functools.cache(made)
"""The same for tests in which the dead entries of statements that were rolled back make no difference."""


@pytest.mark.parametrize("name", HOT)
def test_no_frequent_statement_scans_the_jobs(name: str):
    """No table is read from end to end, even though the planner has no statistics and assumes a small table."""
    with postgres.connect() as connection:
        nodes = Plans(connection, shared(FEW)).explain(name)

    big = [
        each
        for each in nodes
        if each["Node Type"] == "Seq Scan" and re.match(r"redrive_(jobs|attempts|payloads)", each["Relation Name"])
    ]
    assert [] == big


GROWING = re.compile(
    r"redrive_(attempts|done|emits|errors|events|instances|jobs|keys|moves|occurrences|payloads|progress|refreshes"
    r"|requests|results|runs|signals|steps|tags|traces)"
)
"""Tables with a row for each job, item, instance, run or event; the names of their indexes begin likewise."""

WHOLE = {
    "jobs_empty": "deletes all jobs",
    "occurrences_empty": "deletes all occurrences",
    "refreshes_empty": "deletes all items",
    "lost": "looks at all running jobs, by their index",
    "slots_put": "looks at all running jobs, by their index, once a limit is set",
    "policy_retire": "looks for a job with a policy, at most once a day for each policy",
    "policy_forget": "likewise",
    "erase_requests": "may read the requests of a day, for an erasure",
    "erase_errors": "may read all error groups, for an erasure",
    "wakes_pending": "looks for the first entry of an index",
    "done_rebase": "renews all rows of ended deliveries, when topics are rebased after a restore",
    "errors_forget": "may look at all dead jobs for an error group that has not failed for long, once an hour",
}
"""Statements that read a whole table or index, with the reason."""

BETWEEN = {"families", "keys_find", "run_ancestors", "run_family", "runs_named"}
"""Statements that read in operations that write; the plans of others are made for the values of each call."""


def _generic_plan(connection: psycopg.Connection, text: str, parameters: int) -> list[tuple[dict[str, Any], str]]:
    """Return the nodes of the plan that a session keeps for a statement, each with the type of the node above it."""
    connection.execute(begin(POOLED, writes=True))
    connection.execute(f"PREPARE statement AS {text}")
    values = f"({', '.join(['NULL'] * parameters)})" if parameters else ""
    rows = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE statement{values}").fetchall()
    connection.execute("ROLLBACK")
    connection.execute("DEALLOCATE statement")
    plan = {"Node Type": "", "Plans": [rows[0][0][0]["Plan"]]}
    return [(below, above["Node Type"]) for above in _nodes(plan) for below in above.get("Plans", ())]


def _reads_all(node: dict[str, Any], above: str) -> bool:
    """Return True if a node of a plan reads more rows of a growing table, the larger the table is."""
    if not GROWING.match(node.get("Index Name") or node.get("Relation Name") or ""):
        return False
    if node["Node Type"] == "Seq Scan" or "(key = " in node.get("Filter", ""):
        return True
    is_index = node["Node Type"] in {"Index Scan", "Index Only Scan", "Bitmap Index Scan"}
    return is_index and "Index Cond" not in node and above not in {"Limit", "LockRows"}


_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|SHARE|nextval)\b")


STATISTICS = {"never analyzed": None, "analyzed while they were empty": 0, "analyzed with three rows": 3}


@pytest.mark.parametrize("number", [1, postgres.OLDEST], ids=["newest", "oldest"])
@pytest.mark.parametrize("rows", STATISTICS.values(), ids=STATISTICS)
def test_no_plan_depends_on_the_size_that_tables_had_when_it_was_made(number: int, rows: int | None):
    """A session that plans its statements in an empty database finds rows by their keys when tables have grown.

    That is every worker that was started before the first jobs came.
    """
    schema = _with_rows(postgres.url(number=number), rows or 0)
    bad = {}
    with postgres.connect(number=number) as connection:
        if rows is not None:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
            connection.execute("VACUUM ANALYZE " + ", ".join(f"{schema}.{table}" for (table,) in tables))
        for name, statement in prepared(schema).items():
            alone = loader.headers("postgres")[name].get("transaction")
            if (alone or name in BETWEEN or _WRITES.search(statement.text)) and name not in WHOLE:
                nodes = _generic_plan(connection, statement.text, len(statement.names))
                found = [
                    each.get("Index Name") or each["Relation Name"] for each, above in nodes if _reads_all(each, above)
                ]
                bad |= {name: found} if found else {}

    assert {} == bad


def _with_rows(url: str, rows: int) -> str:
    """Return a schema that has this many jobs, keys, items and instances."""
    app = redrive.App(url)
    machine = app.machine("payment")

    @machine.start
    def created(event: int) -> None:
        """Do nothing."""

    @app.task
    def send(number: int) -> None:
        """Do nothing."""

    @app.refresh("Refresh every day at 6 AM")
    def fetch(address: str) -> None:
        """Do nothing."""

    app.open()
    for number in range(rows):
        send.options(key=f"{number}").enqueue(number)
        fetch.track(f"{number}", "https://example.com")
        machine.send(f"{number}", number)
    app.close()
    return url.partition("schema=")[2]


BY_ID = {"settle_succeeded": "ready", "claim_chosen": "succeeded"}
"""Statements on jobs by id, and the state that the planner assumes for all jobs: it expects no match."""


@pytest.mark.parametrize("name", BY_ID)
def test_jobs_are_found_by_their_ids_and_not_by_their_state(name: str):
    """Look jobs up by id: an index on running or ready jobs may be full of dead entries that the planner ignores."""
    schema = made(FEW, kind=BY_ID[name])
    with postgres.connect() as connection:
        if BY_ID[name] == "succeeded":
            connection.execute(f"DELETE FROM {schema}.redrive_jobs WHERE state = 'ready'")  # noqa: S608 - ours
        connection.execute(f"VACUUM ANALYZE {schema}.redrive_jobs")
        nodes = Plans(connection, schema).explain(name)
    used = {each["Index Name"] for each in nodes if each.get("Index Name", "").startswith("redrive_jobs")}

    assert {"redrive_jobs_pkey"} == used


LISTS = {
    "jobs_held": {"hold": "'retry'"},
    "jobs_few": {"hold": "'retry'"},
    "jobs_few, ready": {"state": "'ready'"},
    "jobs_few, running": {"state": "'running'"},
    "jobs_few, waiting": {"state": "'waiting'"},
    "jobs_few, dead": {"state": "'dead'"},
    "jobs_these": {"ids": "ARRAY[1,2,3]"},
    "jobs_dead": {},
    "dead_ids": {},
    "jobs_grouped": {"group": "'1-0'"},
    "jobs_held, worker": {
        "hold": "'retry'",
        "workers": "ARRAY[1,2]",
        "not_workers": "ARRAY[3]",
        "not_tag": "ARRAY['a']",
    },
    "jobs_held, key": {"hold": "'retry'", "key": "'inv-443'", "not_key": "ARRAY['inv-1']", "took_least": "'1 s'"},
    "jobs_known": {"tag": "'inv-443'", "key": "'inv-443'", "run": "'inv-443'", "workers": "ARRAY[1,2]"},
    "jobs_known, tag": {"key": "NULL", "run": "NULL", "tag": "'inv-443'"},
    "runs_called": {"names": "ARRAY['inv-443']"},
    "hits": {"word": "'inv-443'", "budget": "100"},
    "errors_select": {
        "fingerprints": "NULL",
        "before_at": "NULL",
        "before": "NULL",
        "dead": "true",
        "unmuted": "true",
        "count": "20",
        "since": f"'{T0}'",
    },
    "errors_select, names": {
        "fingerprints": "ARRAY['a', 'b']",
        "before_at": "NULL",
        "before": "NULL",
        "dead": "true",
        "unmuted": "true",
        "count": "20",
        "since": f"'{T0}'",
    },
    "errors_within": {"since": f"'{T0}'", "count": "20"},
    "occurrences_outcomes": {"names": "NULL", "before": "NULL", "count": "20"},
    "vitals": {"failures": "5"},
}


@pytest.fixture
def succeeded() -> str:
    """Return a schema with twenty due and 20,000 succeeded jobs."""
    return shared(20_001, kind="succeeded")


@pytest.mark.parametrize("what", LISTS)
def test_a_list_of_what_has_not_succeeded_reads_nothing_that_has(succeeded: str, what: str):
    """Listing waiting, running or dead jobs touches no page of the succeeded jobs."""
    with postgres.connect() as connection:
        plans = Plans(connection, succeeded)
        nodes = plans.explain(what.partition(",")[0], writes=False, **FILTER | LISTS[what])

    assert [] == [each for each in nodes if each["Node Type"] == "Seq Scan" and each["Relation Name"] == "redrive_jobs"]
    assert 100 > nodes[0]["Shared Hit Blocks"] + nodes[0]["Shared Read Blocks"]


@pytest.mark.parametrize("task", ["NULL", "'send'"])
def test_counting_reads_no_more_than_its_limit(succeeded: str, task: str):
    """Counts of jobs by state read the partial indexes, and of 20,000 succeeded jobs the newest hundred."""
    values = {"after_id": "0", "most": "100", "task": task, "holds": "ARRAY['delay','snooze']"}
    with postgres.connect() as connection:
        nodes = Plans(connection, succeeded).explain("stats", writes=False, **values)

    assert [] == [each for each in nodes if each["Node Type"] == "Seq Scan" and each["Relation Name"] == "redrive_jobs"]
    assert 200 > nodes[0]["Shared Hit Blocks"] + nodes[0]["Shared Read Blocks"]


@pytest.mark.parametrize("kind", ["scheduled", "succeeded"])
def test_depths_read_no_more_than_their_limit(kind: str):
    """Due jobs are counted without those that are delayed or have ended, and delayed ones up to the limit."""
    with postgres.connect() as connection:
        nodes = Plans(connection, shared(20_001, kind=kind)).explain("depths", writes=False, most="30")

    assert [] == [each for each in nodes if each["Node Type"] == "Seq Scan" and each["Relation Name"] == "redrive_jobs"]
    assert 400 > nodes[0]["Shared Hit Blocks"] + nodes[0]["Shared Read Blocks"]


def test_jobs_without_an_expiry_cost_the_expiry_nothing():
    """Looking for expired jobs touches no page of jobs without an expiry, however many are due."""
    with postgres.connect() as connection:
        plans = Plans(connection, shared(FEW))
        nodes = plans.explain("expire")
        first = plans.explain("next_timeout", writes=False)

    assert {"redrive_jobs_expiring"} <= {each.get("Index Name") for each in nodes}
    assert {"redrive_jobs_expiring"} <= {each.get("Index Name") for each in first}
    assert 5 > nodes[0]["Shared Hit Blocks"] + nodes[0]["Shared Read Blocks"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ready", "scheduled", "succeeded"])
def test_a_claim_costs_the_same_with_many_jobs(kind: str):
    """With a hundred times as many jobs of a kind a claim of ten touches at most 1.5 times the pages."""
    with postgres.connect() as connection:
        few, many = (Plans(connection, made(count, kind=kind)).cost("claim") for count in (FEW, MANY))

    assert many <= 1.5 * few


def test_a_claim_locks_no_more_than_it_takes():
    """Claiming ten of thousands of jobs in six lanes locks ten rows."""
    with postgres.connect() as connection:
        nodes = Plans(connection, shared(FEW)).explain("claim")

    locked = [each["Actual Rows"] * each["Actual Loops"] for each in nodes if each["Node Type"] == "LockRows"]
    # Older versions print the rows of each loop without a fraction.
    assert 9 <= sum(locked) <= 10


@pytest.mark.case("D40")
@pytest.mark.parametrize("left", [100, 0])
def test_a_held_snapshot_does_not_slow_claims(left: int):
    """After 3,000 jobs with dead entries that vacuum cannot remove, a claim walks no more than the first one did."""
    url = postgres.url()
    store = open_store(url)
    worker = store.run(workers.register("h:1", concurrency=1, lease_for=LONG, now=T0))
    store.run(jobs.enqueue([new(queue=f"q{n % 3}", payload=None) for n in range(3000 + left)], now=T0))
    with postgres.connect(autocommit=False) as other, postgres.connect() as connection:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1 FROM pg_class LIMIT 1")
        plans = Plans(connection, url.partition("schema=")[2])
        first = {name: plans.cost(name) for name in ("next_due", "claim")}
        known: tuple[leases.LaneCursor, ...] = ()
        for _ in range(30):
            claims = store.run(leases.claim(worker, 100, lease_for=LONG, cursors=known, now=T0)).claims
            store.run(leases.settle([Ending(claim, Succeeded(), 0.0) for claim in claims], now=T0))
            known = leases.advanced(known, claims)
        last = {name: plans.cost(name, **_written(known)) for name in first}
        without = {name: plans.cost(name) for name in first}
    store.close()

    # Pages: the claim reads some dead entries, but not all three thousand.
    assert [] == [name for name in first if last[name] > first[name] + 40]
    assert [] == [name for name in first if without[name] < last[name] + 150], "nothing was in the way"


def _written(known: tuple[leases.LaneCursor, ...]) -> dict[str, str]:
    """Return floors as SQL values."""
    arrays = leases.parameters(known).items()
    return {name: "'{" + ", ".join(f'"{each}"' for each in values) + "}'" for name, values in arrays}
