"""The tables: every case that a program can read, through the adapter of its group."""

from __future__ import annotations

import pytest

from tests.conformance.plan import adapter_for


def test_table(plan, table_case, compared):
    """Redrive gives the answer of the case, or exactly the one in deviations.toml."""
    adapter, deviation = adapter_for(plan, table_case), plan.deviations.of(table_case)
    if deviation is None:
        adapter(table_case)
        return
    deviation.verify(lambda: adapter(table_case), compared)
    pytest.xfail(deviation.reason)
