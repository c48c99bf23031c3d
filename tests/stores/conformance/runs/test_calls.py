"""Calls of child runs: the child and the row of its call, or neither."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.engine.outcome import Outcome, Succeeded
from redrive.engine.records import Claim
from redrive.engine.runs import StepKind, StepOutcome, StepRecord
from redrive.engine.steps import StepsAnswer
from redrive.errors import LeaseLost, RunNotFound, WaitsForItself
from redrive.stores.operations import managing_runs as manage
from redrive.stores.operations import redriving
from redrive.stores.operations.runs import calls
from tests.stores.helpers import FATAL, Harness
from tests.stores.runs import ERROR, begin, begun, forget, gap, record, rows, run, step, view

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


def test_a_call_behind_a_lost_row_starts_no_child(store: Harness):
    """Write neither the row nor the child if the database has lost the row before, and say so."""
    claim = begun(store)
    first = record(store, claim, step()).steps[0]
    store.do(forget(claim))
    behind = calls.call(
        claim.id,
        claim.lease_id,
        replace(CALL, path="2"),
        child(claim.id),
        before=(first.path, first.at),
        now=store.now,
    )
    if gap(store, StepsAnswer.WRITTEN) is StepsAnswer.GAP:
        with pytest.raises(calls.StepGap, match="the database has lost a step of it"):
            store.do(behind)
        assert [claim.id] == [each.id for each in store.jobs()]
    else:
        assert "2" == store.do(behind).path


def test_a_call_that_would_wait_for_itself_is_refused(store: Harness):
    """Children with the workflow and the arguments of a run above them are refused, and nothing is written."""
    claim = begun(store)
    same = child(claim.id, digest=7, workflow="checkout")
    with pytest.raises(WaitsForItself, match="checkout order-42 would wait for a run of checkout"):
        store.do(calls.call(claim.id, claim.lease_id, CALL, same, now=store.now))

    assert {} == rows(store)


def called(store: Harness, claim: Claim) -> StepRecord:
    """Let a run call a child."""
    return store.do(calls.call(claim.id, claim.lease_id, CALL, child(claim.id), now=store.now))


def origin_of(store: Harness, call: StepRecord) -> str:
    """Return the origin of the child of a call."""
    assert call.ref is not None
    return store.job(call.ref).origin or ""


def parent_of(store: Harness, call: StepRecord) -> int | None:
    """Return the parent of the child of a call."""
    name = origin_of(store, call).removeprefix("run:ship/")
    return store.do(manage.get("ship", name)).run.parent_id


@pytest.mark.parametrize("digest", [8, 9])
def test_no_other_run_is_taken_for_a_child(store: Harness, digest: int):
    """A run of a user or of another parent that has the id of a child is left alone, whatever its arguments are."""
    begin(store, run("order-42/1", digest=digest, workflow="ship"), run("a"), run("b"))
    own, first, second = store.claimed(3).claims
    one, two = called(store, first), called(store, second)

    assert f"run:ship/order-42/1~{own.id}" == origin_of(store, one)
    assert f"run:ship/order-42/1~{own.id}" != origin_of(store, two)
    assert [first.id, second.id] == [parent_of(store, each) for each in (one, two)]


def test_a_call_whose_reply_was_lost_finds_its_child(store: Harness):
    """The same call, again, answers the same child and writes nothing."""
    claim = begun(store)
    first, again = called(store, claim), called(store, claim)
    assert (first.ref, first.path) == (again.ref, again.path)


@pytest.mark.parametrize("ended", [Succeeded(b"7"), FATAL])
def test_a_call_of_a_parent_that_was_retried_finds_a_child_that_can_answer(store: Harness, ended: Outcome):
    """The child of the execution before is taken again, unless it is dead."""
    claim = begun(store)
    first = called(store, claim)
    (started,) = store.claimed().claims
    store.end(started, ended)
    record(store, claim, replace(CALL, outcome=StepOutcome.FAILED, error=ERROR, ref=first.ref))
    store.end(claim, FATAL)
    store.do(redriving.retry(claim.id, now=store.now))

    (again,) = store.claimed().claims
    assert {} == rows(store)
    assert isinstance(ended, Succeeded) == (first.ref == called(store, again).ref)
