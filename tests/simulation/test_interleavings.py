"""All orders of the transactions of two workers and an operator around one job, with a crash at each point."""

from __future__ import annotations

import os

import pytest

from tests.simulation.interleavings import explore

SPANS = 2 if "REDRIVE_SEEDS" in os.environ else 1
"""Spans of a lease that pass; two of them are four times as many states, and left to `make soak`."""


@pytest.mark.parametrize("idempotent", [True, False])
def test_every_order_of_transactions_is_safe(idempotent, image, figure):
    """In each state that can be reached, no stale lease writes, the job ends once, and it can still be ended."""
    explored = explore(image, idempotent=idempotent, spans=SPANS)

    assert () == explored.problems
    assert {"succeeded", "dead", "cancelled"} == explored.finals
    figure(f"idempotent={idempotent}: {explored.states} states, {explored.moves} moves of two workers and one job")
