"""The lanes with ready jobs, as claims find them on PostgreSQL."""

from __future__ import annotations

import itertools

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.stores.drivers.postgres.statements import compiled
from redrive.stores.opening import open_store
from redrive.stores.operations import jobs, leases
from redrive.stores.statements.loader import _blocks
from tests import postgres
from tests.stores.helpers import T0, new
from tests.stores.statements.postgres.test_plans import Plans, _written

LANES = tuple(itertools.product(("a", "b", "c"), (-1, 0, 1), ("x", "y")))
"""All lanes of the tests: queue, priority and task."""

FOUND = _blocks("postgres")["lanes"].text + " SELECT queue, priority, task FROM lane"  # noqa: S608 - a file of the package


def lanes(
    connection: psycopg.Connection, schema: str, cursors: list[tuple[str, int, str]]
) -> list[tuple[str, int, str]]:
    """Return the lanes that a claim with these cursors reads."""
    statement = compiled(FOUND, schema)
    queues, priorities, tasks = ([lane[column] for lane in cursors] for column in range(3))
    values = {
        "queues": None, "excluded": None, "tasks": None, "cursor_queues": queues, "cursor_priorities": priorities,
        "cursor_tasks": tasks, "cursor_times": [T0] * len(cursors), "cursor_ids": [1] * len(cursors),
    }  # fmt: skip
    text = statement.text
    for number, name in reversed(list(enumerate(statement.names, 1))):
        text = text.replace(f"${number}", f"%({name})s")
    return connection.execute(text, values).fetchall()


@pytest.fixture(scope="module")
def schema():
    """Return a schema with a job in each lane."""
    url = postgres.url()
    store = open_store(url)
    store.run(jobs.enqueue([new(task, queue=queue, priority=number) for queue, number, task in LANES], now=T0))
    store.close()
    return url.partition("schema=")[2]


SOME = st.sets(st.sampled_from(LANES))


@settings(max_examples=60)
@given(ready=SOME, known=SOME)
def test_claims_find_all_lanes_with_ready_jobs_whatever_their_cursors(
    schema: str, ready: set[tuple[str, int, str]], known: set[tuple[str, int, str]]
):
    """Claims read each lane that has ready jobs, and each lane with a cursor."""
    hidden = f"UPDATE {schema}.redrive_jobs SET partition = 'p' WHERE (queue, priority, task) = (%s, %s, %s)"  # noqa: S608 - ours
    with postgres.connect(autocommit=False) as connection:
        connection.cursor().executemany(hidden, [each for each in LANES if each not in ready])
        found = lanes(connection, schema, list(known))
        connection.rollback()

    assert sorted(ready | known) == sorted(found)


def test_the_jobs_of_lanes_with_cursors_are_not_read():
    """Claims find other lanes without reading the jobs of those that they know, however many these are."""
    url = postgres.url()
    store = open_store(url)
    store.run(jobs.enqueue([new(queue="a", payload=None), *[new(queue="b", payload=None)] * 10_000], now=T0))
    store.close()
    cursors = _written((leases.LaneCursor("b", 0, "send", T0, 1),))
    with postgres.connect() as connection:
        plans = Plans(connection, url.partition("schema=")[2])
        pages = min(plans.cost("next_due", **cursors) for _ in range(2))

    # The entries of the lane are on 70 pages. PostgreSQL 15 read them for a comparison of rows; 16 does not.
    assert pages <= 50
