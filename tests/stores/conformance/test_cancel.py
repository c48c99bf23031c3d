"""Cancel: operators can end a job that is not final."""

from __future__ import annotations

import pytest

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Succeeded
from redrive.engine.records import AttemptOutcome, AttemptRecord
from redrive.errors import JobNotFound
from tests.stores.helpers import FATAL, T0, Harness, failed, new, seconds


@pytest.mark.parametrize("delay", [0, 60])
def test_a_waiting_job_can_be_cancelled(store: Harness, delay: int):
    """Cancelled jobs that were due or waiting have an end time and never run."""
    number = store.put(new(delay=delay))
    store.wait(5)

    assert store.cancel(number)
    assert (State.CANCELLED, store.now, None) == (
        (row := store.job(number)).state, row.finished_at, row.hold,
    )  # fmt: skip
    assert "cancelled by an operator" == row.note
    store.wait(60)
    assert () == store.claim()
    assert () == store.history(number)


def test_a_waiting_retry_can_be_cancelled(store: Harness):
    """Cancelling a job between two attempts keeps its history."""
    claim = store.take(new())
    store.end(claim, failed())

    assert store.cancel(claim.id, "no longer wanted")
    assert "no longer wanted" == store.job(claim.id).note
    assert [AttemptOutcome.FAILED] == [attempt.outcome for attempt in store.history(claim.id)]


def test_a_running_job_can_be_cancelled(store: Harness):
    """Cancelling a running job takes effect at once and closes its attempt as cancelled."""
    claim = store.take(new())
    store.wait(3)

    assert store.cancel(claim.id, "wrong address")
    row = store.job(claim.id)
    assert (State.CANCELLED, None, None) == (row.state, row.lease_id, row.worker_id)
    expected = AttemptRecord(
        claim.id, claim.lease_id, 1, store.me, T0, T0 + seconds(3), AttemptOutcome.CANCELLED, verdict="wrong address"
    )
    assert (expected,) == store.history(claim.id)


def test_a_handler_that_finishes_after_a_cancel_changes_nothing(store: Harness):
    """Successes of a job that was cancelled are refused, and their results are discarded."""
    claim = store.take(new())
    store.cancel(claim.id)
    before = store.everything()

    assert frozenset({claim.lease_id}) == store.settle((claim, Succeeded(b"1"))).lost
    assert before == store.everything()


@pytest.mark.parametrize("state", ["succeeded", "dead", "cancelled"])
def test_a_final_job_stays_as_it_is(store: Harness, state: str):
    """Cancelling a job that has ended is no error and changes nothing."""
    claim = store.take(new())
    if state == "cancelled":
        store.cancel(claim.id)
    else:
        store.end(claim, FATAL if state == "dead" else Succeeded(b"1"))
    store.wait(5)
    before = store.everything()

    assert not store.cancel(claim.id, "too late")
    assert before == store.everything()


def test_an_unknown_job_is_not_found(store: Harness):
    """Cancelling a missing job raises an error with its id."""
    with pytest.raises(JobNotFound, match="there is no job 404"):
        store.cancel(404)


def test_cancelling_a_catch_job_leaves_its_parent_dead(store: Harness):
    """Ending a catch job leaves its parent dead and not caught."""
    store.end(store.take(new(retry="2 1s catch mend")), FATAL)
    store.cancel(2)

    assert [(State.DEAD, None), (State.CANCELLED, None)] == [(job.state, job.caught_at) for job in store.jobs()]
