"""Starts, sweeps and reads of tracked items find their rows by index, however many items there are."""

from __future__ import annotations

import re

import psycopg
import pytest

from redrive.stores.opening import open_store
from redrive.stores.operations import schedules
from redrive.stores.operations.refresh import manage
from redrive.stores.operations.refresh.manage import NewItem
from tests import postgres
from tests.stores.helpers import T0
from tests.stores.recurring import HALF, HOUR, cron, keeping, samples
from tests.stores.statements.postgres.test_plans import Plans

FEW, MANY = 500, 20_000

FRESH = keeping()

KEYS = "ARRAY['k000001','k000002','k000003']"

VALUES: dict[str, str] = {
    "now": f"'{HALF}'", "count": "5", "schedule": "'fresh'", "key": "'k000001'", "keys": KEYS,
    "timing": f"'{FRESH.timing}'", "names": "NULL", "after": "'k000100'", "job_ids": "ARRAY[11,12,13]",
    "refresh_at": f"'{HALF}'", "planned_at": f"'{HALF}'", "completed": "false", "deadline_at": "NULL",
    "started_at": f"'{T0}'", "due_at": f"'{T0}'", "failing_since": "NULL",
    "succeeded_at": "NULL", "sweep_at": "NULL", "attempt_no": "0", "attempts_since_success": "0",
    "disabled_until_update": "false", "disabled_reason": "NULL", "paused": "false",
}  # fmt: skip

ALIKE = {"job_ids": "ARRAY[NULL,NULL,NULL]::bigint[]"}

EACH = {
    name: "'{" + ",".join([value.strip("'")] * 3) + "}'"
    for name, value in VALUES.items()
    if name not in {"key", "keys", "names", "job_ids", "count", "after", "now"}
} | {"key": KEYS, "job_id": "'{NULL,NULL,NULL}'"}
"""The same for a statement over arrays, with three items."""

ASKED: dict[str, tuple[str, dict[str, str]]] = {
    "refresh_due": ("wait", {}),
    "refresh_overdue": ("run", {}),
    "refresh_outdated": ("wait", {"timing": "'another'"}),
    "refresh_idle": ("wait", {}),
    "refresh_rows": ("wait", {}),
    "refresh_get": ("wait", {}),
    "refresh_put": ("wait", EACH),
    "refresh_put_alike": ("wait", ALIKE),
    "refresh_succeeded": ("run", {}),
    "refreshes_select": ("wait", {}),
    "refreshes_troubled": ("run", {}),
    "refreshes_loads": ("run", {"most": "10"}),
    "schedules_due": ("wait", {}),
    "schedules_select": ("wait", {}),
}
"""The statements, with the kind of items and the values of each."""


def made(kind: str, count: int) -> str:
    """Return a schema with this many waiting or running items, twenty of them for a schedule that comes first."""
    url = postgres.url()
    store = open_store(url)
    store.run(schedules.declare([FRESH, cron()], now=T0))
    early = [NewItem(f"early{number:02}", b"{}") for number in range(20)]
    store.run(manage.track(FRESH, early, samples(), at_once=kind == "run", now=T0))
    one = [NewItem("k000000", b"{}")]
    store.run(manage.track(FRESH, one, samples(), at_once=kind == "run", now=HALF + HOUR))
    store.close()
    schema = url.partition("schema=")[2]
    with postgres.connect() as connection:
        copy(connection, schema, count)
    return schema


def copy(connection: psycopg.Connection, schema: str, count: int) -> None:
    """Insert this many copies of the first item, each with its own job id."""
    table = f"{schema}.redrive_refreshes"
    columns = [
        row[0]
        for row in connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
            " AND column_name NOT IN ('key', 'job_id')",
            (schema, "redrive_refreshes"),
        )
    ]
    names = ", ".join(columns)
    connection.execute(
        f"INSERT INTO {table} (key, job_id, {names})"  # noqa: S608 - of our own making
        f" SELECT 'k' || lpad(n::text, 6, '0'), job_id + n, {names} FROM {table}, generate_series(1, {count}) AS n"
        " WHERE key = 'k000000'"
    )
    connection.execute(f"ANALYZE {table}")


@pytest.fixture(scope="module")
def schemas() -> dict[tuple[str, int], str]:
    """Return a small and a large schema of each kind."""
    return {(kind, count): made(kind, count) for kind in ("wait", "run") for count in (FEW, MANY)}


@pytest.mark.parametrize("name", ASKED)
def test_a_statement_costs_the_same_with_many_items(schemas: dict[tuple[str, int], str], name: str):
    """With forty times as many items, statements touch few more pages and read no table from end to end."""
    kind, changes = ASKED[name]
    values = {**VALUES, **changes}
    with postgres.connect() as connection:
        few, many = (Plans(connection, schemas[kind, count]) for count in (FEW, MANY))
        costs = [each.cost(name, **values) for each in (few, many)]
        nodes = many.explain(name, **values)

    # An index of twenty thousand entries is a level or two deeper, which each probe reads.
    assert costs[1] <= 1.5 * costs[0] + 12
    assert [] == [
        each
        for each in nodes
        if each["Node Type"] == "Seq Scan" and re.match("redrive_(refreshes|jobs)", each["Relation Name"])
    ]


def test_a_start_locks_no_more_than_it_takes(schemas: dict[tuple[str, int], str]):
    """Starting five of thousands of waiting items locks five rows."""
    with postgres.connect() as connection:
        nodes = Plans(connection, schemas["wait", MANY]).explain("refresh_due", **VALUES)

    assert [5] == [each["Actual Rows"] for each in nodes if each["Node Type"] == "LockRows"]


@pytest.mark.parametrize(
    "name", ["refresh_get", "refreshes_select", "refreshes_troubled", "refreshes_loads", "schedules_due"]
)
def test_read_only_statements_cost_the_same(schemas: dict[tuple[str, int], str], name: str):
    """Read-only transactions could walk tables, but these statements give the planner no reason to."""
    kind, changes = ASKED[name]
    with postgres.connect() as connection:
        few, many = (
            Plans(connection, schemas[kind, count]).cost(name, writes=False, **{**VALUES, **changes})
            for count in (FEW, MANY)
        )

    assert many <= few + 10
