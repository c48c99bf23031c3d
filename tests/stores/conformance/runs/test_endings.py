"""Runs that end without their code take their finished steps back before."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Unreadable
from redrive.engine.records import Claim, Filter, Hold
from redrive.engine.runs import UNDO_MARK, StepError, StepKind, StepOutcome
from redrive.engine.steps import NewStep
from redrive.engine.undoing import UndonePath, UndoPlan, new_plan
from redrive.errors import IllegalMove
from redrive.stores.operations import admin, checks, deleting, doctor
from redrive.stores.operations import managing_runs as manage
from redrive.stores.operations.runs import start
from tests.stores.helpers import FATAL, Harness, failed, seconds
from tests.stores.runs import ERROR, begin, begun, claimed, park, record, rows, run, sleep, step, tried, view

PLAN = new_plan(ERROR, UndoPlan((UndonePath("2", "charge"), UndonePath("1", "charge"))))


def crash(store: Harness, times: int = 3) -> Claim:
    """Let workers die during the next attempts of a run."""
    for _ in range(times):
        worker = store.worker()
        claim, _ = claimed(store, worker=worker)
        store.sweep(gone=[worker])
    return claim


def undo(path: str) -> NewStep:
    """Return the row of an undo that succeeded."""
    return NewStep(f"u{path}", StepKind.UNDO, "refund", tries=1)


def test_a_run_that_kills_its_workers_takes_its_steps_back(store: Harness):
    """After three crashes in a row it is due, with the row that lets it undo, and its crashes are counted anew."""
    park(store, begun(store), step("1"), sleep("2", 0))
    crash(store)
    after = view(store).job
    mark = rows(store)[UNDO_MARK]

    assert (State.READY, Hold.PARKED, 0) == (after.state, after.hold, after.crashes)
    assert ("POISON", StepOutcome.WAITING) == (after.reason, mark.outcome)
    assert "POISON" == (mark.error or ERROR).reason
    assert "lost" == str(store.history(after.id)[-1].outcome)
    assert () == store.do(checks.check()).findings


def test_a_run_without_finished_steps_dies_of_its_crashes(store: Harness):
    """Nothing is to be taken back, so the run is dead at once."""
    park(store, begun(store), sleep("1", 0), tried("2", retry="0"))
    crash(store)

    assert (State.DEAD, "POISON") == (view(store).job.state, view(store).job.reason)


def test_crashes_are_counted_anew_after_each_row(store: Harness):
    """A run that records something before each crash is not presumed to kill its workers."""
    begin(store)
    for number in range(1, 8):
        worker = store.worker()
        record(store, claimed(store, worker=worker)[0], step(str(number)))
        store.sweep(gone=[worker])

    assert (State.READY, 1) == (view(store).job.state, view(store).job.crashes)


def test_an_undo_that_kills_its_workers_has_failed(store: Harness):
    """Each undo has three crashes; then it has failed, and the run goes on with the others."""
    begin(store)
    worker = store.worker()
    record(store, claimed(store, worker=worker)[0], step("1"), step("2"), PLAN)
    store.sweep(gone=[worker])
    crash(store, 2)
    first = rows(store)["u2"]
    crash(store, 2)
    between = view(store).job
    crash(store, 1)
    last = rows(store)["u1"]

    assert [StepOutcome.FAILED, "POISON"] == [first.outcome, (first.error or ERROR).reason]
    assert (State.READY, 2) == (between.state, between.crashes)
    assert (StepOutcome.FAILED, State.READY) == (last.outcome, view(store).job.state)


def test_an_end_that_leaves_steps_undone_names_them(store: Harness):
    """Arguments that no worker can read end the run, although not all is taken back."""
    claim = begun(store)
    record(store, claim, step("1"), step("2"), PLAN, undo("2"))
    store.wait(10**6)
    store.settle((replace(claim, unreadable_at=claim.claimed_at), Unreadable("no such field")))

    assert "no such field; not undone: charge (1)" == view(store).job.error
    assert (State.DEAD, StepOutcome.FAILED) == (view(store).job.state, rows(store)["u1"].outcome)


def test_a_final_failure_that_its_worker_took_for_a_retry_takes_steps_back(store: Harness):
    """Whether a run ends is decided by the store, so an end that was not expected lets the next pass undo."""
    claim = begun(store)
    record(store, claim, step("1"))
    store.end(claim, replace(FATAL, undone=False))

    assert (State.READY, "GAVE_UP", 0) == (view(store).job.state, view(store).job.reason, view(store).job.failures)
    assert UNDO_MARK in rows(store)


@pytest.mark.parametrize("how", ["run", "job", "filter"])
def test_a_cancelled_run_is_due_and_not_ended(store: Harness, how: str):
    """Whichever way a run is cancelled, it takes its steps back itself."""
    park(store, begun(store), step("1"), sleep("2"))
    number = view(store).job.id
    match how:
        case "run":
            assert store.do(manage.cancel("checkout", "order-42", now=store.now))
        case "job":
            assert store.cancel(number)
        case _:
            assert (number,) == store.do(admin.cancel_all(Filter(ids=(number,)), now=store.now)).ids

    assert "cancelled by an operator" == claimed(store)[1].flags.cancel_why


def test_a_run_that_waits_for_a_retry_is_due_when_it_is_cancelled(store: Harness):
    """Delays of the policy of the run do not put its cancellation off."""
    claim = begun(store, run(retry="9 1d"))
    record(store, claim, step("1"))
    store.end(claim, failed("for now"))
    store.cancel(claim.id)

    assert claim.id == claimed(store)[0].id


def test_a_second_cancellation_takes_a_run_back_from_its_worker(store: Harness):
    """The worker loses its lease, and the next pass begins with the undos; a third one ends the run."""
    claim = begun(store)
    record(store, claim, step("1"))
    store.cancel(claim.id, "enough")
    store.cancel(claim.id, "now")
    taken = view(store).job
    lost = store.settle((claim, FATAL)).lost
    again, state = claimed(store)
    store.cancel(again.id, "at once")

    assert (State.READY, {claim.lease_id}) == (taken.state, lost)
    assert StepError((), "now", "CANCELLED") == next(row.error for row in state.steps if row.path == UNDO_MARK)
    assert "at once; not undone, as far as they have undos: charge (1)" == view(store).job.note
    assert StepOutcome.FAILED is rows(store)["u1"].outcome
    assert () == store.do(checks.check()).findings


def test_a_run_with_finished_steps_is_not_deleted(store: Harness):
    """Steps would stay in effect without a record; the refusal says what can be done."""
    park(store, begun(store), step("1"), sleep("2"))
    park(store, begun(store, run("other")), sleep("1"))
    done = store.do(deleting.delete(Filter(limit=9), now=store.now))

    assert 1 == len(done.ids)
    assert [(1, "is a run with finished steps: cancel it first, so that they are taken back, or let it end")] == list(
        done.kept
    )


def test_a_run_that_is_lost_is_written_under_its_lease(store: Harness):
    """A worker that was presumed dead and returns neither ends the run nor records a step."""
    park(store, begun(store), step("1"), sleep("2", 0))
    claim = crash(store)

    assert {claim.lease_id} == store.settle((claim, FATAL)).lost
    assert "lost" == str(record(store, claim, step("2")).answer)
    assert seconds(0) == view(store).job.scheduled_at - store.now


def test_ended_runs_with_steps_in_effect_are_found(store: Harness):
    """The diagnosis has the steps until their undos are recorded; a run that goes on is not among them."""
    claim = begun(store)
    refused = NewStep("u1", StepKind.UNDO, "refund", StepOutcome.FAILED, tries=1, error=ERROR)
    record(store, claim, step("1"), step("2", "ship"), PLAN, replace(refused, path="u2"), refused)
    open_run = store.do(doctor.examine(store.now)).in_effect
    store.end(claim, FATAL)
    ended = store.do(doctor.examine(store.now)).in_effect
    for path in ("u1", "u2"):
        store.do(manage.supply("checkout", "order-42", path, None, now=store.now))

    assert () == open_run
    assert [(claim.id, "checkout", "order-42", {"charge (1)", "ship (2)"})] == [
        (each.job_id, each.workflow, each.id, set(each.steps.split(", "))) for each in ended
    ]
    assert (State.DEAD, ()) == (view(store).job.state, store.do(doctor.examine(store.now)).in_effect)
    assert () == store.do(checks.check()).findings


def test_a_run_that_takes_its_steps_back_is_neither_forked_nor_given_a_value(store: Harness):
    """Its steps are about to be undone; a fork without steps and a value after its end are possible."""
    park(store, begun(store), step("1"), sleep("2"))
    for _ in range(2):
        store.cancel(view(store).job.id)

    with pytest.raises(IllegalMove, match="takes its steps back at this moment: give the value when it has ended"):
        store.do(manage.supply("checkout", "order-42", "1", b"1", now=store.now))
    with pytest.raises(IllegalMove, match="takes its steps back at this moment: fork it when it has ended"):
        store.do(start.fork("checkout", {"order-42": "again"}, before="2", now=store.now))


def test_a_run_is_forked_from_a_step(store: Harness):
    """The undo of a step is no place at which a body can begin."""
    park(store, begun(store), step("1"), sleep("2"))

    with pytest.raises(IllegalMove, match="cannot be forked from u1: name a step"):
        store.do(start.fork("checkout", {"order-42": "again"}, before="u1", now=store.now))


def test_a_cancellation_behind_the_last_undo_leaves_nothing(store: Harness):
    """A run whose steps are all undone ends without another row."""
    claim = begun(store)
    record(store, claim, step("1"), step("2"), PLAN, undo("2"), undo("1"))
    for _ in range(2):
        store.cancel(claim.id, "enough")

    assert (State.CANCELLED, "enough") == (view(store).job.state, view(store).job.note)
    assert StepOutcome.OK is rows(store)["u1"].outcome
