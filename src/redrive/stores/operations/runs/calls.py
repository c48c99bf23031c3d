"""Calls of child runs, and recorded steps one by one. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.runs import NewRun, RunRecord, StepOutcome, StepRecord
from redrive.engine.steps import NewStep, StepBatch, StepMark, StepsAnswer
from redrive.errors import DuplicateRun, LeaseLost, StoreBusy, WaitsForItself
from redrive.stores.operations.jobs import find
from redrive.stores.operations.runs.start import StartedRun, begin
from redrive.stores.operations.runs.steps import write
from redrive.stores.query import Query, Statements, reads, wakes


class StepGap(LeaseLost):
    """The database has lost an earlier row of the attempt; see `redrive.engine.steps.StepsAnswer`."""


# The child and the row of its call commit together: no child runs that its parent does not wait for.
@wakes
def call(
    run_id: int,
    lease_id: int,
    end: NewStep,
    new: NewRun,
    *,
    before: StepMark | None = None,
    now: datetime | None = None,
) -> Statements[StepRecord]:
    """Start a child run, and write the row of its call under the lease of its parent, behind the row ``before``.

    Raise `LeaseLost`; `StepGap` if that row is lost; `StoreBusy` if another transaction has locked the parent; or
    `WaitsForItself` if a run above it, or itself, has the workflow and the arguments of the child, so that the calls
    would never end.
    """
    above: Sequence[RunRecord] = yield Query("run_ancestors", {"id": run_id}, into=RunRecord)
    same = next((run for run in above if (run.workflow, run.digest) == (new.workflow, new.digest)), None)
    if same is not None:
        raise WaitsForItself(
            f"{same.workflow} {same.id} would wait for a run of {new.workflow} with the same arguments, which would "
            "wait for another one, without end"
        )
    started = yield from _begin(new, now)
    waiting = replace(end, outcome=StepOutcome.WAITING, ref=started.job_id)
    (written,) = yield from write([StepBatch(run_id, lease_id, (waiting,), before=before)], started.at)
    if written.answer is not StepsAnswer.WRITTEN:
        # The exception takes the child back.
        if written.answer is StepsAnswer.LATER:
            raise StoreBusy(f"job {run_id} is locked by another transaction")
        if written.answer is StepsAnswer.GAP:
            raise StepGap(f"the attempt {run_id}.{lease_id} is over: the database has lost a step of it")
        raise LeaseLost(f"the attempt {run_id}.{lease_id} is over: another worker has the run")
    return written.steps[0]


def _begin(new: NewRun, now: datetime | None) -> Statements[StartedRun]:
    """Start a child, or find the one that this call has started before; no other run is taken for it."""
    assert new.id is not None  # as `child_id` makes it
    name = new.id
    while True:
        try:
            (started,) = yield from begin([replace(new, id=name)], now)
        except DuplicateRun as taken:
            other = taken.job_id
        else:
            if started.created or (yield from _is_its_child(new, name)):
                return started
            other = started.job_id
        name = f"{new.id}~{other}"


# A child without a row of its call is that of an earlier execution: its parent had died, and was retried. What it has
# done is not done twice, but one that is dead or cancelled would only end its parent again.
def _is_its_child(new: NewRun, name: str) -> Statements[bool]:
    """Return True if the run with this id was started by this call, and can still answer it."""
    rows: Sequence[RunRecord] = yield Query("runs_named", {"workflow": new.workflow, "ids": [name]}, into=RunRecord)
    mine = [run for run in rows if (run.parent_id, run.parent_path) == (new.parent_id, new.parent_path)]
    if not mine or new.parent_id is None or new.parent_path is None:
        return False
    (run,) = mine
    row = yield from _row(new.parent_id, new.parent_path)
    if row is not None and row.ref == run.job_id:
        return True
    job = yield from find(run.job_id)
    return run.cancel_at is None and job.state not in (State.DEAD, State.CANCELLED)


@reads
def recorded(run_id: int, path: str) -> Statements[StepRecord | None]:
    """Return the row of a step, if it has one."""
    return (yield from _row(run_id, path))


def _row(run_id: int, path: str) -> Statements[StepRecord | None]:
    rows: Sequence[StepRecord] = yield Query("step_get", {"run_id": run_id, "path": path}, into=StepRecord)
    return rows[0] if rows else None
