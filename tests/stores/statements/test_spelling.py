"""What PostgreSQL and SQLite only spell differently follows from one text."""

from __future__ import annotations

import pytest

from redrive.stores.statements.loader import spelled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id = :id::bigint AND at < :now::timestamptz", "id = :id AND at < :now"),
        ("unnest(:ids::bigint[])", "unnest(:ids)"),
        ("WHERE id = :id FOR UPDATE", "WHERE id = :id "),
        ("LIMIT 5 FOR NO KEY UPDATE OF job SKIP LOCKED)", "LIMIT 5 )"),
        ("LIMIT 5\nFOR KEY SHARE", "LIMIT 5\n"),
        ("LIMIT 5 FOR SHARE", "LIMIT 5 "),
        ("id = ANY (:ids)", "id IN (SELECT value FROM json_each(:ids))"),
        ("id = ANY (:ids::bigint[]) FOR UPDATE", "id IN (SELECT value FROM json_each(:ids)) "),
        ("NOT EXISTS (SELECT FROM redrive_jobs)", "NOT EXISTS (SELECT 1 FROM redrive_jobs)"),
    ],
)
def test_a_text_of_both_dialects_is_spelled_for_sqlite(text: str, expected: str):
    """Casts and row locks are dropped, a list is a JSON document, and a SELECT without columns has one."""
    assert text == spelled(text, "postgres")
    assert expected == spelled(text, "sqlite")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM a WHERE b = 1 OFFSET 0",
        "WITH a AS MATERIALIZED (SELECT 1)",
        "FROM redrive_jobs INDEXED BY redrive_jobs_ready",
        "id = ANY (ARRAY(SELECT id FROM own))",
        "id <> ALL (:ids)",
        "greatest(a, b)",
    ],
)
def test_what_a_planner_sees_is_not_changed(text: str):
    """What leaves a planner one way, and what computes differently, stays as it is written."""
    assert text == spelled(text, "sqlite")
