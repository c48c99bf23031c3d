"""Calls of child runs, and recorded steps one by one. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from redrive.engine.runs import NewRun, RunRecord, StepOutcome, StepRecord
from redrive.engine.steps import NewStep, StepBatch, StepsAnswer
from redrive.errors import LeaseLost, StoreBusy, WaitsForItself
from redrive.stores.operations.runs.start import begin
from redrive.stores.operations.runs.steps import write
from redrive.stores.query import Query, Steps, reads, wakes


# The child and the row of its call commit together: no child runs that its parent does not wait for.
@wakes
def call(run_id: int, lease_id: int, end: NewStep, new: NewRun, *, now: datetime | None = None) -> Steps[StepRecord]:
    """Start a child run, and write the row of its call under the lease of its parent.

    Raise `LeaseLost`; `StoreBusy` if another transaction has locked the parent; or `WaitsForItself` if a run above it,
    or itself, has the workflow and the arguments of the child, so that the calls would never end.
    """
    above: Sequence[RunRecord] = yield Query("run_ancestors", {"id": run_id}, into=RunRecord)
    same = next((run for run in above if (run.workflow, run.digest) == (new.workflow, new.digest)), None)
    if same is not None:
        raise WaitsForItself(
            f"{same.workflow} {same.id} would wait for a run of {new.workflow} with the same arguments, which would "
            "wait for another one, without end"
        )
    (started,) = yield from begin([new], now)
    waiting = replace(end, outcome=StepOutcome.WAITING, ref=started.job_id)
    (written,) = yield from write([StepBatch(run_id, lease_id, (waiting,))], started.at)
    if written.answer is not StepsAnswer.WRITTEN:
        # The exception takes the child back.
        locked = written.answer is StepsAnswer.LATER
        raise (
            StoreBusy(f"job {run_id} is locked by another transaction")
            if locked
            else LeaseLost(f"the attempt {run_id}.{lease_id} is over: another worker has the run")
        )
    return written.steps[0]


@reads
def recorded(run_id: int, path: str) -> Steps[StepRecord | None]:
    """Return the row of a step, if it has one."""
    rows: Sequence[StepRecord] = yield Query("step_get", {"run_id": run_id, "path": path}, into=StepRecord)
    return rows[0] if rows else None
