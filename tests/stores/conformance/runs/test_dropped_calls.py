"""Child runs whose calls were dropped, because their callers go on without them or have ended."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Cancelled, Expired, Held, Outcome, Parked, Restarted, Snoozed, Succeeded
from redrive.engine.records import Claim
from redrive.engine.runs import UNDO_MARK, RunRecord, StepError, StepKind, StepRecord
from redrive.engine.undoing import new_mark
from redrive.stores.operations import managing_runs as manage
from redrive.stores.operations.runs import calls, waits
from tests.stores.helpers import FATAL, Harness, failed, seconds
from tests.stores.runs import begun, record, rows, run, step, wake

CALL = replace(step(name="ship"), kind=StepKind.CALL, tries=0, result=None)

ENDED = "its call in checkout order-42 (1) was dropped: that run has ended"


def called(store: Harness, claim: Claim, path: str = "1") -> int:
    """Let a run call a child, and return the job of the child."""
    new = replace(run(f"order-42/{path}", workflow="ship", digest=8), parent_id=claim.id, parent_path=path)
    row = store.do(calls.call(claim.id, claim.lease_id, replace(CALL, path=path), new, now=store.now))
    assert row.ref is not None
    return row.ref


def parked(store: Harness, claim: Claim, path: str = "1") -> int:
    """Let a run call a child that waits for long, and return the job of the child."""
    number = called(store, claim, path)
    (child,) = store.claimed().claims
    assert number == child.id
    store.end(child, Parked(None, "waits"))
    return number


def child(store: Harness, path: str = "1") -> RunRecord:
    """Return a child."""
    return store.do(manage.get("ship", f"order-42/{path}")).run


def call_row(store: Harness, path: str = "1") -> StepRecord:
    """Return the row of a call."""
    return rows(store)[path]


@pytest.mark.parametrize("end", [Succeeded(), FATAL, Cancelled("by an operator"), Expired(undone=True)])
def test_a_run_that_ends_cancels_its_open_children(store: Harness, end: Outcome):
    """However a run ends, its open child is asked to end in the same transaction, with the caller in the reason."""
    claim = begun(store)
    number = parked(store, claim)
    store.end(claim, end)

    assert ENDED == child(store).cancel_why
    assert call_row(store).is_dropped
    assert "the call of ship order-42/1 was dropped: that run has ended" == str(call_row(store).error)
    assert {number} <= wake(store)
    assert [number] == [each.id for each in store.claimed().claims]


KEEPS = [Parked(None, "waits", waits=("1",), drops=True), Held("other code"), failed(), Snoozed(seconds(60))]


@pytest.mark.parametrize("end", KEEPS)
def test_a_run_that_goes_on_keeps_its_open_children(store: Harness, end: Outcome):
    """A run that waits for its child, is held or is tried again keeps the child."""
    claim = begun(store, run(retry="3 1h"))
    number = parked(store, claim)
    store.end(claim, end)

    assert child(store).cancel_at is None
    assert not call_row(store).is_dropped
    assert number not in wake(store)


def test_a_run_that_parks_without_a_call_cancels_its_child(store: Harness):
    """The child of the dropped call is cancelled and its row has the reason; that of the open call goes on."""
    claim = begun(store)
    parked(store, claim, "1.0.1")
    parked(store, claim, "1.1.1")
    store.end(claim, Parked(None, "waits", waits=("1.1.1",), drops=True))

    why = "its call in checkout order-42 (1.0.1) was dropped: that run goes on without it"
    assert [why, None] == [child(store, path).cancel_why for path in ("1.0.1", "1.1.1")]
    assert [True, False] == [call_row(store, path).is_dropped for path in ("1.0.1", "1.1.1")]


def test_the_end_of_a_dropped_child_wakes_no_run(store: Harness):
    """A run that goes on without a call is not continued by the end of its child, and does not read it."""
    claim = begun(store)
    parked(store, claim)
    store.end(claim, Parked(None, "waits", waits=(), drops=True))
    wake(store)
    (cancelled,) = store.claimed().claims
    store.end(cancelled, Cancelled("asked"))

    assert claim.id not in wake(store)
    assert ((), (), ()) == store.do(waits.news([claim.id], now=store.now))[claim.id].arrived


def test_a_run_that_comes_back_to_a_dropped_call_receives_its_end(store: Harness):
    """Code that drops a call in one pass and waits for it in the next one receives the cancellation of the child."""
    claim = begun(store)
    parked(store, claim)
    store.end(claim, Parked(None, "waits", waits=(), drops=True))
    wake(store)
    (cancelled,) = store.claimed().claims
    store.end(cancelled, Cancelled("asked"))
    store.do(manage.pause("checkout", "order-42", now=store.now))
    store.do(manage.resume("checkout", "order-42", now=store.now))
    (again,) = store.claimed().claims
    store.end(again, Parked(None, "waits", waits=("1",), drops=True))

    assert not call_row(store).is_dropped
    (woken,) = store.claimed().claims
    assert claim.id == woken.id


def test_a_run_that_begins_again_cancels_its_children(store: Harness):
    """The rows of the calls are gone, and the reason of the child names the caller."""
    claim = begun(store)
    parked(store, claim)
    store.end(claim, Restarted(b"{}", None))

    assert "its call in checkout order-42 (1) was dropped: that run begins again" == child(store).cancel_why


def test_a_run_that_takes_its_steps_back_cancels_its_children_first(store: Harness):
    """The row that begins the undos also asks the children to end."""
    claim = begun(store)
    parked(store, claim)
    record(store, claim, new_mark(StepError((), "boom", "ERROR"), store.now))

    assert "its call in checkout order-42 (1) was dropped: that run takes its steps back" == child(store).cancel_why
    assert UNDO_MARK in rows(store)


def test_a_worker_that_has_lost_the_run_cancels_no_child(store: Harness):
    """Undos that begin under a lost lease change nothing."""
    claim = begun(store)
    parked(store, claim)
    record(store, replace(claim, lease_id=claim.lease_id + 1), new_mark(StepError((), "boom", "ERROR"), store.now))

    assert child(store).cancel_at is None


def test_a_child_that_has_ended_is_left_as_it_is(store: Harness):
    """A child that succeeded before the end of its caller is not asked to end."""
    claim = begun(store)
    called(store, claim)
    (done,) = store.claimed().claims
    store.end(done, Succeeded(b"7"))
    store.end(claim, FATAL)

    assert child(store).cancel_at is None
    assert State.SUCCEEDED is store.job(done.id).state


def test_a_paused_child_is_cancelled_too(store: Harness):
    """The request ends the pause of the child."""
    claim = begun(store)
    number = parked(store, claim)
    store.do(manage.pause("ship", "order-42/1", now=store.now))
    store.end(claim, Succeeded())

    assert child(store).paused_at is None
    assert {number} <= wake(store)
    assert [number] == [each.id for each in store.claimed().claims]


def test_a_running_child_is_told_by_its_flags(store: Harness):
    """A child that runs while its caller ends reads the request with its next row."""
    claim = begun(store)
    called(store, claim)
    (running,) = store.claimed().claims
    store.end(claim, Succeeded())

    flags = record(store, running, step()).flags
    assert flags is not None
    assert ENDED == flags.cancel_why


def test_an_earlier_request_keeps_its_reason(store: Harness):
    """The end of the caller does not replace the reason that an operator gave."""
    claim = begun(store)
    parked(store, claim)
    store.do(manage.cancel("ship", "order-42/1", why="by hand", now=store.now))
    store.end(claim, Succeeded())

    assert "by hand" == child(store).cancel_why
