"""Running attempts: their progress, and their completion from outside; and jobs that do not start in time. PURE.

An attempt that waits for an external completion is named by its uid, ``<job>.<lease>``. The completion is fenced like
every end of an attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.engine import reports
from redrive.engine.frozen import is_readable
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Failed, Settlement, Succeeded
from redrive.engine.records import AttemptOutcome, AttemptRecord, Claim, JobRecord, Progress
from redrive.engine.settle import EXPIRED, decide, set_aside
from redrive.errors import LeaseLost, StoreError
from redrive.policy import Failure, Stage
from redrive.stores.operations import origins
from redrive.stores.operations.clock import instant
from redrive.stores.operations.jobs import find
from redrive.stores.operations.keys import drop
from redrive.stores.operations.origins import write_all
from redrive.stores.query import Query, Statements, reads, wakes, writes

# The outcome of an attempt after the end of its wait; the external work may have happened or not.
NOT_COMPLETED = Failed(
    Failure(
        ("builtins.TimeoutError", "builtins.OSError", "builtins.Exception"),
        "no answer came in time",
        "TIMEOUT",
        Stage.IN_FLIGHT,
    )
)


class ProgressReport(msgspec.Struct, frozen=True, gc=False):
    """A report of a handler about its progress."""

    job_id: int
    lease_id: int
    details: str | None  # JSON; None reports only that the handler still runs


@writes
def report(reports: Sequence[ProgressReport], *, now: datetime | None = None) -> Statements[frozenset[int]]:
    """Write the reports of handlers with current leases, and return these leases."""
    at = yield from instant(now)
    rows = [{"job_id": each.job_id, "lease_id": each.lease_id, "details": each.details, "now": at} for each in reports]
    return frozenset(row[0] for row in (yield Query("progress_put", many=rows)))


@reads
def progress(job_id: int) -> Statements[Progress | None]:
    """Return the last progress report of a job, if there is one."""
    rows: Sequence[Progress] = yield Query("progress_of", {"job_id": job_id}, into=Progress)
    return rows[0] if rows else None


@reads
def is_current(job_id: int, lease_id: int) -> Statements[bool]:
    """Return True if the lease of an attempt is current."""
    return bool((yield Query("lease_current", {"job_id": job_id, "lease_id": lease_id})))


class NextTimeout(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``next_timeout``."""

    now: datetime
    over_at: datetime | None  # when the first wait is over; None if no attempt waits
    expires_at: datetime | None = None  # when the first job expires; None if no job does


# A completion may arrive before the handler has returned ``Pending``. It ends the attempt, and the handler's result is
# then settled already.
#
# A completion after the end of the wait is refused by the clock of the database, whether or not a worker has ended the
# attempt by then.
@wakes
def complete(
    job_id: int, lease_id: int, outcome: Succeeded | Failed, sample: float, *, now: datetime | None = None
) -> Statements[Settlement | None]:
    """End an open attempt from outside; return None if the same completion has ended it before.

    Raise `JobNotFound`; `LeaseLost` if the attempt ended otherwise, or its wait is over; or `StoreError` if the outcome
    is a failure, and this version cannot read the policy.
    """
    at = yield from instant(now)
    # The lock comes first, so that the state read after it does not change before it is written.
    claims: Sequence[Claim] = yield Query("open_attempt", {"job_id": job_id, "lease_id": lease_id}, into=Claim)
    job = yield from find(job_id)
    for claim in claims:
        if job.state is State.WAITING and (at >= job.scheduled_at or job.hold is not None):
            when = f"at {job.scheduled_at}" if job.hold is None else "before"
            raise LeaseLost(f"the wait of attempt {job_id}.{lease_id} was over {when}: no answer came in time")
        if not is_readable(claim.policy) and isinstance(outcome, Failed):
            raise StoreError(f"the policy of job {job_id} cannot be read by this redrive: a newer one may")
        decided = decide(claim, outcome, at, sample, state=job.state)
        done = yield from write_all([(claim, decided)], at)
        if done:
            return done[claim.lease_id]
        job = yield from find(job_id)
    yield from _check_same(job, lease_id, outcome)
    return None


# A caller that received no reply may send the same completion twice. The history and the result show that it is the
# same: the second one succeeds and changes nothing.
def _check_same(job: JobRecord, lease_id: int, outcome: Succeeded | Failed) -> Statements[None]:
    """Raise `LeaseLost` unless the attempt has ended by the same completion."""
    lines: Sequence[AttemptRecord] = yield Query("attempts_of", {"job_id": job.id}, into=AttemptRecord)
    line = next((each for each in lines if each.lease_id == lease_id), None)
    if line is None:
        under = "" if job.lease_id is None else f" under another attempt, {job.id}.{job.lease_id}"
        raise LeaseLost(f"{job.id}.{lease_id} names no open attempt: job {job.id} is {job.state}{under}")
    if isinstance(outcome, Failed):
        same = line.outcome is AttemptOutcome.FAILED and line.error == outcome.failure.message
    elif same := line.outcome is AttemptOutcome.SUCCEEDED:
        kept = yield Query("result_of", {"job_id": job.id})
        same = outcome.result == (kept[0][0] if kept else None)
    if not same:
        raise LeaseLost(_ended(line))


def _ended(line: AttemptRecord) -> str:
    how = "succeeded, with another result" if line.outcome is AttemptOutcome.SUCCEEDED else str(line.outcome)
    why = f": {line.error} ({line.reason})" if line.reason else f": {line.verdict}" if line.verdict else ""
    return f"attempt {line.job_id}.{line.lease_id} has ended before: {how}{why}"


@reads
def until_expiry(*, now: datetime | None = None) -> Statements[timedelta | None]:
    """Return the time until the next wait is over or the next job expires, not positive if one is; None without any."""
    rows: Sequence[NextTimeout] = yield Query("next_timeout", {"now": now}, into=NextTimeout)
    first = min((each for each in (rows[0].over_at, rows[0].expires_at) if each is not None), default=None)
    return None if first is None else first - rows[0].now


@wakes
def expire_waits(
    budget: int, samples: Iterable[float], *, now: datetime | None = None
) -> Statements[tuple[Settlement, ...]]:
    """End attempts after the end of their waits; none are left if fewer than the budget ended."""
    at = yield from instant(now)
    rows: Sequence[Claim] = yield Query("overdue", {"now": at, "budget": budget}, into=Claim)
    waiting = State.WAITING
    # Each attempt has a sample of its own: jobs that end together must not retry together.
    pairs = [
        (each, decide(each, NOT_COMPLETED, at, sample, state=waiting))
        if is_readable(each.policy)
        else (each, set_aside(each, at, state=waiting))
        for each, sample in zip(rows, samples, strict=False)
    ]
    done = yield from write_all(pairs, at)
    return tuple(settlement for _, settlement in pairs if settlement.lease_id in done)


_NOT_STARTED = "it had not started when it expired"


# A claim takes no expired job, so none starts before it is cancelled here. Its catch task does not run: nothing failed.
@wakes
def expire(budget: int, *, now: datetime | None = None) -> Statements[tuple[JobRecord, ...]]:
    """Cancel jobs that have expired before they started; none are left if fewer than the budget were cancelled."""
    at = yield from instant(now)
    params = {"now": at, "budget": budget, "note": _NOT_STARTED, "reason": EXPIRED}
    ended: Sequence[JobRecord] = yield Query("expire", params, into=JobRecord)
    yield from drop([job.id for job in ended if job.key is not None])
    found = (reports.ended(job, _NOT_STARTED) for job in ended)
    yield from origins.report([each for each in found if each is not None], at)
    return tuple(ended)
