"""Calls of child runs: the child and the row of its call, or neither."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.engine.runs import StepKind, StepOutcome
from redrive.errors import LeaseLost, RunNotFound, WaitsForItself
from redrive.stores.operations.runs import calls
from tests.stores.helpers import Harness
from tests.stores.runs import begun, rows, run, step, view

CALL = replace(step(name="ship"), kind=StepKind.CALL, tries=0, result=None)


def child(parent: int, *, digest: int = 8, workflow: str = "ship"):
    """Return the child of a run."""
    return replace(run("order-42/1", digest=digest, workflow=workflow), parent_id=parent, parent_path="1")


def test_a_child_and_the_row_of_its_call_are_written_together(store: Harness):
    """The row waits for the job of the child, which has its parent."""
    claim = begun(store)
    row = store.do(calls.call(claim.id, claim.lease_id, CALL, child(claim.id), now=store.now))

    assert (StepOutcome.WAITING, StepKind.CALL) == (row.outcome, row.kind)
    assert row.ref is not None
    assert row.ref == rows(store)["1"].ref
    assert "run:ship/order-42/1" == store.job(row.ref).origin
    assert row == store.do(calls.recorded(claim.id, "1"))
    assert store.do(calls.recorded(claim.id, "2")) is None


def test_a_call_under_a_lost_lease_starts_no_child(store: Harness):
    """Workers that have lost the run write neither the row nor the child."""
    claim = begun(store)
    with pytest.raises(LeaseLost, match="another worker has the run"):
        store.do(calls.call(claim.id, claim.lease_id + 1, CALL, child(claim.id), now=store.now))

    assert {} == rows(store)
    with pytest.raises(RunNotFound):
        view(store, "order-42/1")


def test_a_call_that_would_wait_for_itself_is_refused(store: Harness):
    """Children with the workflow and the arguments of a run above them are refused, and nothing is written."""
    claim = begun(store)
    same = child(claim.id, digest=7, workflow="checkout")
    with pytest.raises(WaitsForItself, match="checkout order-42 would wait for a run of checkout"):
        store.do(calls.call(claim.id, claim.lease_id, CALL, same, now=store.now))

    assert {} == rows(store)
