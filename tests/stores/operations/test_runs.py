"""Starting runs, step by step: what another transaction did in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.engine.runs import RunRecord, StepOutcome
from redrive.engine.steps import NewStep, StepBatch, StepsAnswer, StepsWritten, decided
from redrive.errors import ConfigurationError, LeaseLost, RunNotFound, StoreBusy
from redrive.stores.operations.jobs import NumberBlock
from redrive.stores.operations.runs import calls, gate, start
from redrive.stores.operations.runs.start import StartedRun
from redrive.stores.operations.runs.steps import _Asked, _Written, record, write_behind
from redrive.stores.query import Statements
from tests.stores.helpers import T0
from tests.stores.operations.conversing import converse, names
from tests.stores.runs import run, step, tried, wait


def test_a_run_that_is_deleted_while_its_id_is_taken_is_an_error():
    """Starts with the id of a run that is gone at the next statement raise an error that advises to repeat."""
    taken, numbers = [start.StartedRow(7, T0, None)], [NumberBlock(T0, 7, 8)]

    with pytest.raises(RunNotFound, match="run 'order-42' of checkout has been deleted at this moment: try again"):
        converse(start.start([run()], now=T0), taken, [])
    with pytest.raises(RunNotFound, match="run 'order-42' of checkout has been deleted at this moment: try again"):
        converse(start.start([run(), run()], now=T0), numbers, [], [])


def test_a_run_is_started_by_one_statement():
    """Its id is made from the number of its job if it has none."""
    ((named,), ran) = converse(start.start([run()], now=T0), [start.StartedRow(7, T0, "order-42")])
    ((unnamed,), _) = converse(start.start([run(None)], now=T0), [start.StartedRow(8, T0, "run-8")])

    assert (StartedRun(7, "order-42", created=True, at=T0), ["run_start"]) == (named, names(ran))
    assert StartedRun(8, "run-8", created=True, at=T0) == unnamed


def test_a_run_with_a_taken_id_is_found():
    """By a second statement."""
    there = RunRecord(5, "checkout", "order-42", 1, run().digest)
    ((found,), ran) = converse(start.start([run()], now=T0), [start.StartedRow(7, T0, None)], [there])

    assert (5, False, ["run_start", "runs_named"]) == (found.job_id, found.created, names(ran))


def test_a_run_in_an_ordered_queue_needs_a_partition():
    """As a job does."""
    with pytest.raises(ConfigurationError, match="is ordered"):
        converse(start.start([run()], now=T0), [])


@pytest.mark.parametrize("unlike", [{"workflow": ""}, {"id": ""}, {"parent_id": 1, "parent_path": "1"}])
def test_what_the_database_may_refuse_is_started_in_steps(unlike: dict[str, Any]):
    """So that the transaction of a user survives it."""
    assert "gate" == next(start.start([replace(run(), **unlike)], now=T0).steps).name


def test_a_step_that_nothing_has_begun_is_not_found():
    """The row of a step may be read before its first try."""
    found, ran = converse(gate.find(7, "charge"), [])

    assert (None, ["step_get"]) == (found, names(ran))


def asked(
    lease: int | None = None,
    outcome: StepOutcome | None = None,
    *,
    tries: int = 0,
    is_current: bool = True,
    is_anchored: bool = True,
) -> _Asked:
    """Return what is recorded of the step of a run."""
    return _Asked(7, "1", 41, is_current, is_anchored, lease, outcome, None if outcome is None else T0, None, tries)


def test_rows_of_a_locked_run_are_to_be_written_later():
    """Rows that were not written under a current lease belong to a run that another transaction has locked."""
    batch = StepBatch(7, 41, (step(),))

    written, ran = converse(record([batch], now=T0), [], [asked()])

    assert [StepsAnswer.LATER] == [each.answer for each in written]
    assert ["steps_put", "steps_asked"] == names(ran)


WAITS, DONE = StepOutcome.WAITING, StepOutcome.OK


@pytest.mark.parametrize(
    ("there", "row", "answer"),
    [
        (asked(40, WAITS), step(), StepsAnswer.LATER),
        (asked(41, WAITS), step(), StepsAnswer.LATER),
        (asked(41, WAITS, tries=1), decided(tried(tries=2), T0), StepsAnswer.LATER),
        (asked(41, WAITS, tries=2), decided(tried(tries=1), T0), StepsAnswer.WRITTEN),
        (asked(41, WAITS), wait(), StepsAnswer.WRITTEN),
        (asked(41, DONE), step(), StepsAnswer.WRITTEN),
        (asked(40, DONE), step(), StepsAnswer.LOST),
        (asked(40, WAITS, is_current=False), step(), StepsAnswer.LOST),
        (asked(41, WAITS, is_current=False), step(), StepsAnswer.LOST),
        (asked(is_current=False), step(), StepsAnswer.LOST),
        (asked(is_current=False, is_anchored=False), step(), StepsAnswer.LOST),
        (asked(is_anchored=False), step(), StepsAnswer.GAP),
        (asked(41, DONE, is_anchored=False), step(), StepsAnswer.WRITTEN),
    ],
)
def test_an_answer_is_lost_only_if_the_run_has_another_lease(there: _Asked, row: NewStep, answer: StepsAnswer):
    """Ends of waits, and later tries, of a locked run are written later; rows that wait there do not stand for them."""
    ((written,), _) = converse(record([StepBatch(7, 41, (row,))], now=T0), [], [there])

    assert answer == written.answer


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (StepsAnswer.LATER, StoreBusy, "is locked by another transaction"),
        (StepsAnswer.GAP, calls.StepGap, "the database has lost a step of it"),
        (StepsAnswer.LOST, LeaseLost, "another worker has the run"),
    ],
)
def test_a_call_that_is_not_written_names_the_reason(
    answer: StepsAnswer, error: type[Exception], why: str, monkeypatch: pytest.MonkeyPatch
):
    """The exception takes the child back."""

    def begun(*_: Any) -> Statements[SimpleNamespace]:
        yield from ()
        return SimpleNamespace(job_id=8, at=T0)

    def written(*_: Any) -> Statements[list[StepsWritten]]:
        yield from ()
        return [StepsWritten(answer)]

    monkeypatch.setattr(calls, "_begin", begun)
    monkeypatch.setattr(calls, "write", written)
    with pytest.raises(error, match=why) as raised:
        converse(calls.call(7, 41, step(), run(), now=T0), [])

    assert error is raised.type


def test_a_run_that_parks_waits_for_the_transaction_that_has_locked_it():
    """Rows of parked runs that are locked are written after the lock, because their waits go with the parking."""
    batches = [StepBatch(number, 41, (wait(),)) for number in (7, 8)]
    put = _Written(8, "1", 41, T0, None, paused=False)
    late = _Written(7, "1", 41, T0, None, paused=False)
    written, ran = converse(SimpleNamespace(steps=write_behind(batches, T0)), [put], [asked()], [], [late])

    assert [StepsAnswer.WRITTEN] * 2 == [each.answer for each in written]
    assert ["steps_put", "steps_asked", "jobs_lock", "steps_put"] == names(ran)
    assert [(7, 8), (7,)] == [tuple(row["run_id"] for row in ran[place].many) for place in (0, 3)]
