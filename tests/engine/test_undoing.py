"""What is stored of the undo of a run, and what a run that starts again keeps of its steps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import LifecycleEvent, State
from redrive.engine.outcome import Expired, Lost, RunChange, Unreadable
from redrive.engine.records import Hold
from redrive.engine.runs import RACE, StepError, StepKind, StepOutcome, StepRecord
from redrive.engine.settle import decide
from redrive.engine.steps import NewStep, resolve
from redrive.engine.undoing import (
    Again,
    UndonePath,
    UndoPlan,
    again,
    die_undoing,
    forked,
    given_up,
    lost_undoing,
    mark_of,
    new_mark,
    new_plan,
    not_undone,
    plan_of,
    standing,
    supplied,
    undo_first,
)
from tests.engine.helpers import NOW, claim

ERROR = StepError(("builtins.ValueError",), "no seat", "ERROR")


def row(path: str, name: str = "step", **changes: Any) -> StepRecord:
    """Return the row of a finished step, later than those with smaller paths."""
    at = NOW + timedelta(seconds=sum(map(int, path.removeprefix("u").split("."))))
    kind = StepKind.UNDO if path.startswith("u") else StepKind.STEP
    return replace(StepRecord(1, path, kind, name, StepOutcome.OK, 1, at, digest=7), **changes)


def failed(path: str, **changes: Any) -> StepRecord:
    """Return the row of a step that has failed for good."""
    return row(path, **{"outcome": StepOutcome.FAILED, "error": ERROR, **changes})


def decided(path: str, number: int) -> StepRecord:
    """Return the row of a call with branches that one of them has decided."""
    return row(path, "gather", kind=StepKind.GATHER, result=msgspec.json.encode(number), digest=None)


def written(step: NewStep) -> StepRecord:
    """Return a row as it is stored."""
    return resolve(step, 1, 1, NOW)


def mark(*steps: str, failed: str | None = None) -> StepRecord:
    """Return the row of the beginning of the undos of these steps."""
    return written(new_plan(ERROR, UndoPlan(tuple(UndonePath(each, "step") for each in steps), failed)))


def test_the_first_mark_of_an_ending_waits_for_the_plan_of_the_code():
    """Without the code only the error is known; a pass adds the steps in the order of their undos."""
    early = written(new_mark(ERROR, NOW))
    late = mark("2", "1", failed="3")

    assert (StepOutcome.WAITING, ERROR, None) == (early.outcome, early.error, plan_of(early))
    assert (StepOutcome.OK, ERROR, "3") == (late.outcome, late.error, getattr(plan_of(late), "failed", None))
    assert (early, None, None) == (mark_of([row("1"), early]), mark_of([row("1")]), plan_of(None))


def test_steps_stand_until_they_are_undone():
    """Steps whose undo has failed or waits are in effect; without a plan every finished step may be."""
    rows = [row("1"), row("2"), row("3"), failed("4"), row("u3"), failed("u2")]

    assert ["2", "1"] == [each.path for each in standing(rows)]
    assert ["1"] == [each.path for each in standing([*rows, mark("3", "1", "9")])]
    assert "not undone, as far as they have undos: step (2), step (1)" == not_undone(rows)
    assert "not undone: step (1)" == not_undone([*rows, mark("3", "1")])
    assert "" == not_undone([row("1"), row("u1"), mark("1")])


@pytest.mark.parametrize("reason", ["BAD_RESULT", "RESULT_TOO_LARGE"])
def test_a_step_with_a_result_that_could_not_be_stored_is_in_effect(reason: str):
    """A step that has failed otherwise is not, and neither is one that waits for its next try."""
    error = StepError((), "too large", reason)
    rows = [failed("1", error=error), failed("2"), failed("3", error=None), row("4", outcome=StepOutcome.WAITING)]

    assert ["1"] == [each.path for each in standing(rows)]
    assert [True, False, False, False] == [each.is_unstored for each in rows]


def test_undos_that_are_given_up_are_recorded_once():
    """Undos that have failed keep their own errors, and those that wait for another try end."""
    rows = [row("1"), row("2"), row("3"), failed("u3"), row("u2", outcome=StepOutcome.WAITING), mark("3", "2", "1")]

    assert ["u2", "u1"] == [each.path for each in given_up(rows, ERROR)]
    assert {StepOutcome.FAILED} == {each.outcome for each in given_up(rows, ERROR)}


@pytest.mark.parametrize(
    ("outcome", "event", "attempt"),
    [(Lost("silent"), LifecycleEvent.LOSE, 3), (Expired(), LifecycleEvent.PARK, 2)],
)
def test_a_run_that_would_end_takes_its_steps_back_before(outcome: Lost | Expired, event: LifecycleEvent, attempt: int):
    """The job is due at once, with the row that lets its next pass undo; its crashes are counted anew."""
    its = claim(crashes=2, attempt=3)
    dead = decide(its, outcome, NOW, 0.0)
    again = undo_first(its, dead, ERROR, NOW)

    assert State.DEAD is dead.state
    assert (State.READY, event, NOW, Hold.PARKED, 0, attempt) == (
        again.state, again.event, again.scheduled_at, again.hold, again.crashes, again.attempt
    )  # fmt: skip
    assert (RunChange((new_mark(ERROR, NOW),)), None, None) == (again.run, again.seen, again.catch)
    assert (dead.reason, dead.error, 0) == (again.reason, again.error, again.failures)


def test_a_run_that_ends_while_it_undoes_names_what_is_left():
    """The error and the note have the steps that were not undone, and their undos are recorded as failed."""
    rows = [row("1"), row("2"), row("u2"), mark("2", "1")]
    dead = decide(claim(unreadable_at=NOW - timedelta(days=1)), Unreadable("no such field"), NOW, 0.0)
    ended = die_undoing(dead, rows, ERROR)
    whole = die_undoing(dead, [row("1"), row("u1"), mark("1")], ERROR)

    assert "no such field; not undone: step (1)" == ended.error
    assert (ended.note or "").endswith("; not undone: step (1)")
    assert ["u1"] == [each.path for each in (ended.run or RunChange()).steps]
    assert (dead.error, RunChange()) == (whole.error, whole.run)


def test_an_undo_that_kills_its_workers_has_failed_and_the_others_run():
    """The undo that was executed is the first that is not recorded; without one, or without a plan, the run is dead."""
    its = claim(crashes=2, attempt=3)
    dead = decide(its, Lost("silent"), NOW, 0.0)
    rows = [row("1"), row("2"), row("3"), row("u3"), row("u2", outcome=StepOutcome.WAITING, error=ERROR)]
    goes_on = lost_undoing(its, dead, [*rows, mark("3", "2", "1")], ERROR, NOW)
    last = lost_undoing(its, dead, [row("1"), failed("u1"), mark("1")], ERROR, NOW)
    unknown = lost_undoing(its, dead, [row("1"), written(new_mark(ERROR, NOW))], ERROR, NOW)

    assert (State.READY, 0) == (goes_on.state, goes_on.crashes)
    assert [("u2", StepOutcome.FAILED)] == [(each.path, each.outcome) for each in (goes_on.run or RunChange()).steps]
    assert [State.DEAD, State.DEAD] == [last.state, unknown.state]
    assert ["u1"] == [each.path for each in (unknown.run or RunChange()).steps]


def test_a_run_forgets_the_failure_that_ended_it():
    """A failure with a step behind it was handled, and stays; steps of other branches are not behind it."""
    assert Again() == again([])
    assert Again(forget=("3",)) == again([failed("1"), row("2"), failed("3")])
    assert Again(forget=("1.0.2", "1.1.1")) == again([row("1.0.1"), failed("1.0.2"), failed("1.1.1")])
    assert Again() == again([failed("1.0.1"), row("2")])
    timed_out = row("2", kind=StepKind.WAIT, outcome=StepOutcome.TIMED_OUT)
    assert Again(forget=("2",)) == again([row("1"), timed_out])
    assert Again(forget=("2",)) == again([row("1"), failed("2", kind=StepKind.CALL, ref=5)])


def test_a_call_that_a_failure_has_decided_is_decided_again():
    """The decision goes with the failure; that of another branch stays, and so does one that a success has made."""
    mine, other = failed("1.1.2"), row("1.0.1")

    assert Again(forget=("1", "1.1.2")) == again([decided("1", 1), mine, other])
    assert Again(forget=("1.1.2",)) == again([decided("1", 0), mine, other])
    nested = again([decided("1", 0), decided("1.0.1", 1), failed("1.0.1.1.1")])
    assert Again(forget=("1", "1.0.1", "1.0.1.1.1")) == nested


def test_a_value_for_a_failed_step_takes_back_what_its_failure_has_decided():
    """Decisions of its own branch go with the calls that were dropped for them; a race keeps its winner."""
    gone = StepError((), "the call of slow 1 was dropped", "CANCELLED")
    dropped = row("1.1.1", kind=StepKind.CALL, outcome=StepOutcome.WAITING, error=gone, ref=9)
    race = replace(decided("1.0.1", 1), name=RACE)

    assert Again() == supplied([row("1")], "1")
    assert Again(forget=("1", "1.1.1")) == supplied([decided("1", 0), row("1.0.1"), dropped], "1.0.1")
    assert Again() == supplied([decided("1", 2), row("1.0.1"), dropped, row("1.2.1")], "1.0.1")
    assert Again(forget=("1",)) == supplied([decided("1", 0), race, row("1.0.1.1.1")], "1.0.1.1.1")
    assert Again(forget=("1",)) == supplied([decided("1", 0), row("1.0.1.1.1")], "1.0.1.1.1")


def test_what_another_branch_has_decided_stays_decided_around_it():
    """The failure of a branch that has not ended its call has not ended the calls around it either."""
    calls = [decided("1", 0), decided("1.0.1", 1), row("1.0.1.0.1"), row("1.0.1.1.1")]

    assert Again() == supplied(calls, "1.0.1.0.1")
    assert Again(forget=("1", "1.0.1")) == supplied(calls, "1.0.1.1.1")


def test_a_call_that_was_dropped_is_made_anew():
    """The child was cancelled, so its call is forgotten, unless steps behind it were recorded."""
    gone = StepError((), "the call of slow 1 was dropped", "CANCELLED")
    dropped = row("2.0.1", kind=StepKind.CALL, outcome=StepOutcome.WAITING, error=gone, ref=9)
    goes_on = row("2.1.1", kind=StepKind.CALL, outcome=StepOutcome.WAITING, ref=10)

    assert Again(forget=("2.0.1",)) == again([row("1"), dropped, goes_on])
    assert Again(forget=("2.0.1", "3")) == again([row("1"), dropped, failed("3")])
    assert Again() == again([dropped, row("3")])


def test_an_undone_step_is_executed_anew():
    """Its row waits, steps behind it are kept whatever their arguments are, and an undo that failed is forgotten."""
    slept = row("3", kind=StepKind.SLEEP, digest=None)
    rows = [row("1"), row("2"), slept, row("4"), failed("5"), row("u2"), failed("u4"), mark("4", "2", failed="5")]

    assert Again(forget=("5", ":undo", "u2", "u4"), renew=("2",), loosen=("4",)) == again(rows)


def test_what_the_body_did_about_its_end_is_forgotten():
    """Steps behind the failure that ended the run, or behind its cancellation, go: others are called there now."""
    rows = [row("1"), failed("2"), row("3"), row("4"), row("u4"), mark("4", failed="2")]
    supplied = [row("1"), row("2"), row("3"), mark(failed="2")]
    cancel = StepRecord(1, ":cancel 2.0.1", StepKind.CANCEL, ":cancel", StepOutcome.OK, 1, NOW)
    seen = StepRecord(1, ":cancel-seen", StepKind.CANCEL, ":cancel-seen", StepOutcome.OK, 1, NOW)

    assert Again(forget=("2", "3", "4", ":undo", "u4")) == again(rows)
    assert Again(forget=("3", ":undo")) == again(supplied)
    assert Again(forget=("2.0.2", "3", ":cancel 2.0.1", ":cancel-seen")) == again(
        [row("1"), row("2.0.2"), row("2.1.2"), row("3"), cancel, seen]
    )


def test_a_kept_step_behind_an_undone_one_is_no_answer():
    """Steps that were recorded before the failure or the cancellation stay, wherever they are."""
    cancel = StepRecord(1, ":cancel 1", StepKind.CANCEL, ":cancel", StepOutcome.OK, 5, NOW)

    assert Again(renew=("1",), loosen=("2",)) == again([failed("1", lease_id=2), row("2")])
    assert Again(forget=("3", ":cancel 1")) == again([row("1"), row("2"), row("3", lease_id=6), cancel])


def test_a_fork_executes_undone_steps_anew():
    """Copies have no undos, and those of undone steps wait for an execution."""
    rows = [row("1"), row("2"), row("3"), row("u1"), failed("u2"), mark("2", "1")]

    assert (("1", "2"), Again(renew=("1",), loosen=("2",))) == forked(rows, "3")
