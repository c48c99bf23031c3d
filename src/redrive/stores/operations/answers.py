"""Attempts that wait for an answer from outside: the answer, and the end of the wait. PURE.

The answer names the attempt that it ends by the attempt's uid, ``<job>.<lease>``. It is fenced like everything that
ends an attempt: one that names an attempt which is over, because the wait ended, or somebody cancelled the job, or
another answer came first, changes nothing and is told what happened instead.

The outside may be faster than the handler: its answer comes before the handler that asked for it has returned
``Pending``. It ends the attempt all the same. What the handler then says is settled already.

An answer that comes after the end of the wait is refused by the database's clock, whether or not a worker has ended the
attempt by then.

The same answer may come twice, because the reply to the first got lost. History and result tell whether it is the
same (conformance D25): then the second one has succeeded too, and has changed nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from redrive.engine.frozen import is_readable
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Failed, Succeeded
from redrive.engine.records import AttemptOutcome, AttemptRecord, Claim, JobRecord
from redrive.engine.settle import decide, set_aside
from redrive.engine.transition import Transition
from redrive.errors import JobNotFound, LeaseLost, StoreError
from redrive.policy import Failure, Stage
from redrive.stores.operations.clock import instant
from redrive.stores.operations.transitions import write_all
from redrive.stores.query import Query, Rows, Steps, reads, wakes

__all__ = ["UNANSWERED", "answer", "lapse", "until_lapse"]

UNANSWERED = Failed(
    Failure(
        ("builtins.TimeoutError", "builtins.OSError", "builtins.Exception"),
        "no answer came in time",
        "TIMEOUT",
        Stage.IN_FLIGHT,
    )
)
"""How an attempt ends whose wait is over: whatever was started outside may have happened or not."""


@dataclass(frozen=True, slots=True)
class NextTimeout:
    """A row of the query ``next_timeout``.

    Attributes:
        now: the instant of the transaction, as of the query ``clock``.
        over_at: when the first wait is over; None where no attempt waits.
    """

    now: datetime
    over_at: datetime | None


@wakes
def answer(
    job_id: int, lease_id: int, outcome: Succeeded | Failed, sample: float, *, now: datetime | None = None
) -> Steps[Transition | None]:
    """End an open attempt from outside.

    Args:
        job_id: which job.
        lease_id: which attempt of it.
        outcome: how it ended.
        sample: a random number in [0, 1), for jitter.
        now: the instant, in tests.

    Returns:
        What became of the job; None where the same answer has ended the attempt before.

    Raises:
        JobNotFound: there is no such job.
        LeaseLost: the attempt is over, and ended otherwise, or its wait is over; the message says how.
        StoreError: it failed, and its policy cannot be read by this redrive.
    """
    at = yield from instant(now)
    # The lock comes first, so that the state read after it does not change before it is written.
    claims: Sequence[Claim] = yield Query("open_attempt", {"job_id": job_id, "lease_id": lease_id}, into=Claim)
    job = yield from _get(job_id)
    for claim in claims:
        if job.state is State.WAITING and (at >= job.scheduled_at or job.hold is not None):
            when = f"at {job.scheduled_at}" if job.hold is None else "before"
            message = f"the wait of attempt {job_id}.{lease_id} was over {when}: no answer came in time"
            raise LeaseLost(message)
        if not is_readable(claim.policy) and isinstance(outcome, Failed):
            message = f"the policy of job {job_id} cannot be read by this redrive: a newer one may"
            raise StoreError(message)
        decided = decide(claim, outcome, at, sample, state=job.state)
        done = yield from write_all([(claim, decided)], at)
        if done:
            return done[claim.lease_id]
        job = yield from _get(job_id)
    yield from _check_said_before(job, lease_id, outcome)
    return None


def _get(job_id: int) -> Generator[Query, Rows, JobRecord]:
    rows: Sequence[JobRecord] = yield Query("job_get", {"id": job_id}, into=JobRecord)
    if not rows:
        message = f"there is no job {job_id}"
        raise JobNotFound(message)
    return rows[0]


def _check_said_before(job: JobRecord, lease_id: int, outcome: Succeeded | Failed) -> Generator[Query, Rows, None]:
    """Raise unless this very answer has ended the attempt before."""
    lines: Sequence[AttemptRecord] = yield Query("attempts_of", {"job_id": job.id}, into=AttemptRecord)
    line = next((each for each in lines if each.lease_id == lease_id), None)
    if line is None:
        under = "" if job.lease_id is None else f" under another attempt, {job.id}.{job.lease_id}"
        message = f"{job.id}.{lease_id} names no open attempt: job {job.id} is {job.state}{under}"
        raise LeaseLost(message)
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
def until_lapse(*, now: datetime | None = None) -> Steps[timedelta | None]:
    """Read how long it is until the next wait for an answer from outside is over.

    Args:
        now: the instant, in tests.

    Returns:
        How long; not positive where one is over, None where no attempt waits.
    """
    rows: Sequence[NextTimeout] = yield Query("next_timeout", {"now": now}, into=NextTimeout)
    return None if rows[0].over_at is None else rows[0].over_at - rows[0].now


@wakes
def lapse(budget: int, samples: Iterable[float], *, now: datetime | None = None) -> Steps[tuple[Transition, ...]]:
    """End the attempts whose answer has not come in time; their policies decide what follows.

    Args:
        budget: how many at most.
        samples: random numbers in [0, 1), for jitter; one is taken for each that is ended, because those that end
            together must not come back together.
        now: the instant, in tests.

    Returns:
        What became of each job; shorter than ``budget`` when nothing is left.
    """
    at = yield from instant(now)
    rows: Sequence[Claim] = yield Query("overdue", {"now": at, "budget": budget}, into=Claim)
    waiting = State.WAITING
    pairs = [
        (each, decide(each, UNANSWERED, at, sample, state=waiting))
        if is_readable(each.policy)
        else (each, set_aside(each, at, state=waiting))
        for each, sample in zip(rows, samples, strict=False)
    ]
    done = yield from write_all(pairs, at)
    return tuple(transition for _, transition in pairs if transition.lease_id in done)
