"""Rows to be written for the steps of a run, and the decision about a step that failed. PURE.

A worker describes the end of a step by a `NewStep`, or by a `FailedTry` if its function raised. Both have delays and no
instants, because the clock of the database decides: `resolve` turns them into a `StepRecord` inside the transaction
that writes it. The delay of a retry counts from there, which is the instant of the failure as stored.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from redrive.engine.runs import RunFlags, StepError, StepHistory, StepKind, StepOutcome, StepRecord, StepTry, kept_tries
from redrive.errors.foreign import summary
from redrive.policy import Defer, Failure, GiveUp, History, Policy, Retry

_ZERO = timedelta(0)


class NewStep(msgspec.Struct, frozen=True, gc=False):
    """A row to be written; see `redrive.engine.runs.StepRecord` for its fields.

    Attributes:
        tries: executions of the function, including those that failed before.
        delay: from the transaction until the row is due; for the end of a sleep and of a wait.
        due_at: the same as an instant; used if it is given.
        at: its instant, if it is another one than that of the transaction: the body has seen it.
    """

    path: str
    kind: StepKind
    name: str
    outcome: StepOutcome = StepOutcome.OK
    took: timedelta = _ZERO
    tries: int = 0
    delay: timedelta | None = None
    due_at: datetime | None = None
    digest: int | None = None
    result: bytes | None = None
    error: StepError | None = None
    history: StepHistory | None = None
    ref: int | None = None
    at: datetime | None = None
    seq: int | None = None


class FailedTry(msgspec.Struct, frozen=True, gc=False):
    """A failed try of a step, about which its policy decides in the transaction that writes the row.

    Attributes:
        tries: executions of the function, including this one.
        failure: the classified error.
        error: the error as it is stored.
        policy: of the step.
        sample: a random number in [0, 1), for jitter.
        history: of the row of the earlier tries; None for the first try.
        result: what the function of this try or of an earlier one has returned after its time limit, as JSON.
    """

    path: str
    kind: StepKind
    name: str
    took: timedelta
    tries: int
    failure: Failure
    error: StepError
    policy: Policy
    sample: float
    digest: int | None = None
    history: StepHistory | None = None
    result: bytes | None = None
    seq: int | None = None


StepEnd: TypeAlias = NewStep | FailedTry
"""A row to be written."""


StepMark: TypeAlias = tuple[str, datetime]
"""The path and the instant of a row that was recorded."""


class StepBatch(msgspec.Struct, frozen=True, gc=False):
    """Rows of a running run, to be written under its lease; without rows and values it only asks for the flags."""

    run_id: int
    lease_id: int
    steps: tuple[StepEnd, ...] = ()
    values: bytes | None = None  # of ``flow.set``, a JSON object
    # The last row that the writer has seen recorded under this lease. The rows are refused if a server that can lose
    # commits does not have it. None if there was no such row.
    before: StepMark | None = None


class StepsAnswer(StrEnum):
    """What became of the rows of a `StepBatch`."""

    WRITTEN = "written"
    """They are recorded under the lease, by this transaction or by an earlier one with a lost reply."""
    LATER = "later"
    """Another transaction has locked the run; they must be written again."""
    LOST = "lost"
    """The lease is no longer current, and nothing was written."""
    GAP = "gap"
    """The database has lost an earlier row, and nothing was written: the run must be replayed from what is stored."""


class StepsWritten(msgspec.Struct, frozen=True, gc=False):
    """The answer to a `StepBatch`: the rows as they are recorded, and what operators ask of the run.

    The flags are None if nothing was written, because the rows were recorded before.
    """

    answer: StepsAnswer
    steps: tuple[StepRecord, ...] = ()
    flags: RunFlags | None = None


def resolve(end: StepEnd, run_id: int, lease_id: int, now: datetime) -> StepRecord:
    """Return the row as it is written at this instant, under this lease."""
    row = decided(end, now)
    return StepRecord(
        run_id,
        row.path,
        row.kind,
        row.name,
        row.outcome,
        lease_id,
        now if row.at is None else row.at,
        row.took,
        row.tries,
        row.due_at,
        row.digest,
        row.result,
        row.error,
        row.history,
        row.ref,
        row.seq,
    )


def decided(end: StepEnd, now: datetime) -> NewStep:
    """Return a row to be written at this instant, with its due time as an instant."""
    if isinstance(end, FailedTry):
        return failed_step(end, now)
    if end.delay is None:
        return end
    return replace(end, delay=None, due_at=now + end.delay if end.due_at is None else end.due_at)


def failed_step(end: FailedTry, now: datetime) -> NewStep:
    """Return the row of a step that failed: waiting for its next try, or failed for good.

    A policy that raises fails the step for good.
    """
    try:
        delay, rule, by_rule = _decide(end, now)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # noqa: BLE001 - a backoff function of the application may raise anything
        delay, rule, by_rule = None, f"bad policy: {summary(error)}", ()
    tried = StepTry(now, end.took, end.error, delay, rule)
    return NewStep(
        end.path,
        end.kind,
        end.name,
        StepOutcome.FAILED if delay is None else StepOutcome.WAITING,
        end.took,
        end.tries,
        due_at=None if delay is None else now + delay,
        digest=end.digest,
        result=end.result,
        error=end.error,
        history=StepHistory(_started_at(end, now), delay, by_rule, kept_tries(end.history, tried)),
        seq=end.seq,
    )


def _started_at(end: FailedTry, now: datetime) -> datetime:
    return now - end.took if end.history is None else end.history.started_at


def _decide(end: FailedTry, now: datetime) -> tuple[timedelta | None, str, tuple[int, ...]]:
    """Return the delay until the next try, None for none; the rule that decided; and the numbers that rules keep."""
    earlier = end.history
    started_at = _started_at(end, now)
    history = History(
        end.tries,
        started_at,
        None if earlier is None else earlier.last_delay,
        () if earlier is None else earlier.by_rule,
    )
    match end.policy.decide(history, end.failure, now, end.sample):
        case GiveUp(_, rule):
            return None, rule, ()
        case Retry(delay, _, rule):
            pass
        case Defer(at, rule):  # pragma: no branch - the last one; mypy proves that all are here
            delay = at - now
    deadline = end.policy.deadline
    if rule == "deadline" and deadline is not None and now + delay >= started_at + deadline:
        # A delay that is cut at the deadline is not followed by a call.
        return None, rule, ()
    by_rule = end.policy.advance(history, end.failure, delay, now=now, sample=end.sample).by_rule
    return delay, rule, by_rule
