"""Single steps for callers that are no workflows: a lease per step, and one winner. PURE.

One statement gives the step to a caller: it inserts the row, or takes it if its next try is due or if the lease of the
last caller has ended. The database executes it for one caller at a time, so of any number of callers one receives the
row, and the others the reason why not.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.engine.runs import RESULT_LIMIT, StepOutcome, StepRecord, check_gate_name, check_size
from redrive.engine.steps import FailedTry, resolve
from redrive.errors import IllegalMove, LeaseLost, StepBusy, StepExhausted, StepNotReady
from redrive.stores.operations import jobs
from redrive.stores.operations.clock import instant
from redrive.stores.operations.runs.steps import columns
from redrive.stores.query import Query, Statements, reads, wakes, writes


class Acquired(msgspec.Struct, frozen=True, gc=False):
    """The answer of the gate: the row of the step, which the caller executes if ``execute`` is True."""

    step: StepRecord
    execute: bool
    at: datetime  # the instant of the transaction


@writes
def acquire(run_id: int, name: str, *, lease_for: timedelta, now: datetime | None = None) -> Statements[Acquired]:
    """Give the caller a step of a job, or return the result that it has.

    Raise `StepNotReady`, `StepBusy` or `StepExhausted` if the step cannot be executed now; `JobNotFound`; or
    `IllegalMove` if the job has ended.
    """
    check_gate_name(name)
    at = yield from instant(now)
    lease_id = (yield from jobs.take("lease", 1))[0]
    params = {"run_id": run_id, "path": name, "lease_id": lease_id, "now": at, "until": at + lease_for}
    rows: Sequence[StepRecord] = yield Query("gate_acquire", params, into=StepRecord)
    if rows:
        return Acquired(rows[0], execute=True, at=at)
    row = yield from _find(run_id, name)
    if row is None:
        job = yield from jobs.find(run_id)
        raise IllegalMove(f"job {run_id} is {job.state}: it takes no step any more")
    return Acquired(_finished(row), execute=False, at=at)


def _find(run_id: int, name: str) -> Statements[StepRecord | None]:
    rows: Sequence[StepRecord] = yield Query("step_get", {"run_id": run_id, "path": name}, into=StepRecord)
    return rows[0] if rows else None


def _finished(row: StepRecord) -> StepRecord:
    """Return a row that has a result, or raise why it has none."""
    what = f"step {row.name!r} of job {row.run_id}"
    message = "" if row.error is None else row.error.message
    match row.outcome:
        case StepOutcome.WAITING:
            assert row.due_at is not None  # a step that waits has a due time
            raise StepNotReady(
                f"{what} is tried again at {row.due_at:%Y-%m-%d %H:%M:%S.%f} UTC, after {row.tries} failed: {message}",
                retry_at=row.due_at,
                retry_count=row.tries,
            )
        case StepOutcome.RUNNING:
            raise StepBusy(f"{what} is executed by another caller, until {row.due_at:%Y-%m-%d %H:%M:%S.%f} UTC at most")
        case StepOutcome.FAILED:
            raise StepExhausted(
                f"{what} failed for good after {row.tries} tries: {message}", tries=row.tries, error=message
            )
        case _:
            return row


@reads
def find(run_id: int, name: str) -> Statements[StepRecord | None]:
    """Return the row of a step, if there is one."""
    return (yield from _find(run_id, name))


@wakes
def succeed(
    step: StepRecord, result: bytes | None, *, limit: int = RESULT_LIMIT, now: datetime | None = None
) -> Statements[StepRecord]:
    """Write the result of a step, of at most ``limit`` bytes; a repeated call with the same result changes nothing.

    Raise `LeaseLost` if another caller has the step, or `ResultTooLarge`.
    """
    check_size(f"step {step.name!r} of job {step.run_id}", result, limit)
    at = yield from _instant_of_end(step, now)
    row = msgspec.structs.replace(
        step, outcome=StepOutcome.OK, at=at, took=at - step.at, tries=step.tries + 1, due_at=None, result=result,
        error=None,
    )  # fmt: skip
    return (yield from _end(row))


@wakes
def fail(step: StepRecord, failed: FailedTry, *, now: datetime | None = None) -> Statements[StepRecord]:
    """Write a failed try of a step, about which its policy decides; see `succeed`."""
    at = yield from _instant_of_end(step, now)
    end = msgspec.structs.replace(failed, took=at - step.at)
    return (yield from _end(resolve(end, step.run_id, step.lease_id, at)))


@writes
def extend(step: StepRecord, lease_for: timedelta, *, now: datetime | None = None) -> Statements[StepRecord]:
    """Extend the lease of a caller; raise `LeaseLost` if another caller has the step."""
    at = yield from _instant_of_end(step, now)
    return (yield from _end(msgspec.structs.replace(step, due_at=at + lease_for)))


def _instant_of_end(step: StepRecord, now: datetime | None) -> Statements[datetime]:
    """Return the instant of a report, which is not before the caller has received the step: delays count from it."""
    return max((yield from instant(now)), step.at)


def _end(row: StepRecord) -> Statements[StepRecord]:
    if (yield Query("gate_end", columns(row))):
        return row
    there = yield from _find(row.run_id, row.path)
    if there is not None and there.lease_id == row.lease_id and _same_end(there, row):
        # The reply to the first call was lost.
        return there
    raise LeaseLost(f"step {row.name!r} of job {row.run_id} belongs to another caller now; nothing was written")


def _same_end(there: StepRecord, row: StepRecord) -> bool:
    return (there.outcome, there.tries, there.result, there.error) == (row.outcome, row.tries, row.result, row.error)
