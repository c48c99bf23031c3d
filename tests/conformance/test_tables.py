"""The tables: every case that a program can read, through the adapter of its group."""

from __future__ import annotations

from tests.conformance.plan import adapter_for


def test_table(plan, table_case):
    """Redrive answers the case as the file says."""
    adapter_for(plan, table_case)(table_case)
