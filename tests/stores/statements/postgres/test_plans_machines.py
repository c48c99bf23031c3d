"""Turns of machines find their rows by index, however many instances are busy and however many events wait."""

from __future__ import annotations

import re
from typing import LiteralString

import pytest

from redrive.stores.opening import open_store
from tests import postgres
from tests.stores.statements.postgres.test_plans import Plans

FEW, MANY = 1_000, 100_000

ROWS: tuple[LiteralString, ...] = (
    # A half is busy, with a waiting event of each; a half is idle, with timeouts that are not due; of two machines.
    """
    INSERT INTO redrive_instances (
        machine, key, state, to_state, status, job_id, event, created_at, entered_at, timeout_at, timeout_event,
        timeout_payload, waiting
    )
    SELECT
        CASE WHEN n % 4 < 2 THEN 'other' ELSE 'payment' END, 'k' || n, 'created', CASE WHEN n % 2 = 0 THEN 'paid' END,
        'running', CASE WHEN n % 2 = 0 THEN n END, CASE WHEN n % 2 = 0 THEN 'Paid' END, '2026-01-01', '2026-01-01',
        timestamptz '2026-02-01' + n * interval '1 s', 'Expired', '{{}}', CASE WHEN n % 2 = 0 THEN 'event' END
    FROM generate_series(1, {count}) AS n
    """,
    """
    INSERT INTO redrive_moves (id, machine, key, source, status, event, payload, sent_at, noted)
    SELECT job_id, machine, key, 'send', 'queued', 'Completed', '{{}}', created_at, true
    FROM redrive_instances WHERE job_id IS NOT NULL
    """,
    # One busy instance has as many events in its line.
    """
    INSERT INTO redrive_instances (
        machine, key, state, to_state, status, job_id, event, created_at, entered_at, waiting
    )
    VALUES ('payment', 'hot', 'created', 'paid', 'running', 1, 'Paid', '2026-01-01', '2026-01-01', 'event')
    """,
    """
    INSERT INTO redrive_moves (id, machine, key, source, status, event, payload, sent_at, noted)
    SELECT 1000000 + n, 'payment', 'hot', 'send', 'queued', 'Completed', '{{}}', '2026-01-01', true
    FROM generate_series(1, {count} / 2) AS n
    """,
    # Ten instances are due, ten are free for their events, ten have an event that is not noted.
    """
    INSERT INTO redrive_instances (
        machine, key, state, status, created_at, entered_at, timeout_at, timeout_event, timeout_payload, waiting
    )
    SELECT
        'payment', kind || n, 'created', 'running', '2026-01-01', '2026-01-01',
        CASE WHEN kind = 'due' THEN timestamptz '2026-01-01' END, CASE WHEN kind = 'due' THEN 'Expired' END,
        CASE WHEN kind = 'due' THEN '{{}}'::bytea END, CASE WHEN kind = 'free' THEN 'event' END
    FROM generate_series(1, 10) AS n, unnest(ARRAY['due', 'free', 'new']) AS kind
    """,
    """
    INSERT INTO redrive_moves (id, machine, key, source, status, event, payload, sent_at, noted)
    SELECT
        2000000 + row_number() OVER (), machine, key, 'send', 'queued', 'Paid', '{{}}', created_at, key ~ 'free'
    FROM redrive_instances WHERE key ~ '^(free|new)'
    """,
    "ANALYZE redrive_instances",
    "ANALYZE redrive_moves",
)

VALUES = {
    "now": "'2026-01-02'", "machine": "'payment'", "machines": "'{payment}'", "states": "'{payment/created}'",
    "events": "'{payment/Paid,payment/Completed,payment/Expired}'", "count": "5", "key": "'hot'",
}  # fmt: skip

ASKED: dict[str, dict[str, str]] = {
    "machines_look": {},
    "machines_overdue": {},
    "machines_free": {},
    "moves_new": {},
    "moves_next": {"machine": "'{payment}'", "key": "'{hot}'", "source": "'{NULL}'"},
    "instance_free": {},
    "instance_lock_idle": {},
    "move_keyed": {"event_key": "'k'"},
}
"""The statements of sends and turns, with values of their own."""


@pytest.fixture(scope="module")
def schemas() -> dict[int, str]:
    """Return a small and a large schema."""
    return {count: made(count) for count in (FEW, MANY)}


def made(count: int) -> str:
    """Return a schema with this many instances and events."""
    url = postgres.url()
    open_store(url).close()
    schema = url.partition("schema=")[2]
    with postgres.connect() as connection:
        connection.execute(f"SET search_path = {schema}")
        for statement in ROWS:
            connection.execute(statement.format(count=count))
    return schema


@pytest.mark.parametrize("name", ASKED)
def test_a_turn_costs_the_same_with_many_waiting_events(schemas: dict[int, str], name: str):
    """With a hundred times as many instances and events, statements touch few more pages and scan no table."""
    values = {**VALUES, **ASKED[name]}
    with postgres.connect() as connection:
        few, many = (Plans(connection, schemas[count]) for count in (FEW, MANY))
        costs = [each.cost(name, **values) for each in (few, many)]
        nodes = many.explain(name, **values)

    # An index of a hundred thousand entries is a level or two deeper, which each probe reads.
    assert costs[1] <= 1.5 * costs[0] + 12
    assert costs[1] < 200
    assert [] == [
        each
        for each in nodes
        if each["Node Type"] == "Seq Scan" and re.match("redrive_(instances|moves)", each["Relation Name"])
    ]


@pytest.mark.parametrize(
    ("name", "indexes"),
    [
        ("machines_overdue", {"redrive_instances_timeouts"}),
        ("machines_free", {"redrive_instances_turns", "redrive_moves_queued"}),
        ("moves_new", {"redrive_moves_new", "redrive_instances_pkey"}),
        (
            "machines_look",
            {
                "redrive_instances_timeouts",
                "redrive_instances_turns",
                "redrive_instances_pkey",
                "redrive_moves_new",
                "redrive_moves_queued",
            },
        ),
    ],
)
def test_turns_read_the_indexes_that_were_made_for_them(schemas: dict[int, str], name: str, indexes: set[str]):
    """Turns read the indexes of due timeouts, of free instances with events, and of events that are not noted."""
    with postgres.connect() as connection:
        nodes = Plans(connection, schemas[MANY]).explain(name, **VALUES)

    assert indexes == {each["Index Name"] for each in nodes if "Index Name" in each}
