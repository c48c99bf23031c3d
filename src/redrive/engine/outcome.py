"""The ways in which an attempt ends, and the changes that its end writes. PURE.

The executor describes the end of a handler by an `Outcome`; `redrive.engine.settle` turns it into a `Settlement`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from redrive.engine.lifecycle import LifecycleEvent, State, next_state
from redrive.engine.origin import Effect, OriginResult
from redrive.engine.records import AttemptOutcome, AttemptRecord, Claim, Hold
from redrive.engine.steps import NewStep, StepEnd, StepMark
from redrive.policy import Failure

if TYPE_CHECKING:
    from redrive.engine.error_groups import ErrorSeen


class Succeeded(msgspec.Struct, frozen=True, gc=False):
    """The handler returned.

    Attributes:
        result: its return value as JSON, or None.
        effects: what commits with the end of the attempt, in the order in which the handler asked for it.
        written: how the attempt is settled, if a transaction of the handler has written that already.
    """

    result: bytes | None = None
    effects: tuple[Effect, ...] = ()
    written: Settlement | None = None


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The handler raised, timed out, or could not be called; ``traceback`` may be empty.

    Attributes:
        undone: True for the end of a run that has nothing left to take back.
    """

    failure: Failure
    traceback: str = ""
    undone: bool = False


class Snoozed(msgspec.Struct, frozen=True, gc=False):
    """The handler asked to be called again after ``delay``; ``why`` is shown until then."""

    delay: timedelta
    why: str = ""


class Suspended(msgspec.Struct, frozen=True, gc=False):
    """The handler returned `Pending`: the attempt stays open for an external completion, for ``wait_for`` at most."""

    wait_for: timedelta
    effects: tuple[Effect, ...] = ()  # of the handler, which has returned


class Released(msgspec.Struct, frozen=True, gc=False):
    """The worker gives the job back unfinished.

    Attributes:
        delay: time before the job can be claimed again.
        started: the handler had begun and was cancelled; its effects are unknown.
        began: the body of a run had begun; what it has done is recorded.
    """

    why: str
    delay: timedelta = timedelta(0)
    hold: Hold = Hold.RELEASE
    started: bool = False
    began: bool = False


class Parked(msgspec.Struct, frozen=True, gc=False):
    """The run waits, and its worker is free for other jobs; no attempt is spent.

    Attributes:
        until: the earliest due time of its recorded waits, without those of ``steps``; None if none has one.
        why: the waits as a text, which is shown until then.
        steps: rows to be written in the same transaction, such as that of a step that failed for now. The run is due
            at the earliest of their due times, and at once if one of them has failed for good.
        values: the values of ``flow.set`` as a JSON object, if they have changed.
        waits: the paths of the waits for signals, values and child runs that are open; other rows that wait for these,
            such as those of a branch that lost against another one, are deleted, and those for child runs dropped.
            None keeps them all.
        paused: True if it takes no new step because of a pause; the run is due at once if that has ended since.
        undoing: True if its undos run, which the deadline of the run does not end.
        drops: True if it may have calls of child runs that are not among its waits, or that are again.
        before: the last row that the attempt has seen recorded, as in `redrive.engine.steps.StepBatch`.
    """

    until: datetime | None
    why: str
    steps: tuple[StepEnd, ...] = ()
    values: bytes | None = None
    waits: tuple[str, ...] | None = None
    paused: bool = False
    undoing: bool = False
    drops: bool = False
    before: StepMark | None = None


class Restarted(msgspec.Struct, frozen=True, gc=False):
    """The run begins again with other arguments, as JSON: its steps are deleted, its unread signals stay.

    ``steps`` are rows of signals that it has received, which are deleted with the others.
    """

    arguments: bytes
    values: bytes | None = None
    steps: tuple[NewStep, ...] = ()


class Held(msgspec.Struct, frozen=True, gc=False):
    """The code of this worker does not fit the recorded steps of the run; another worker may go on with it.

    Attributes:
        began: the body has begun; False if the worker has no code for the run.
    """

    why: str
    began: bool = True


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """The code of this worker cannot decode the arguments of the job, or, if ``policy`` is True, its policy.

    If ``encoded`` is True, its codec cannot decode them, and its code has not seen them.
    """

    why: str
    policy: bool = False
    encoded: bool = False

    @property
    def lasts(self) -> bool:
        """True if the job waits without a time limit."""
        return self.policy or self.encoded


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """The handler cancelled its job; ``why`` is shown on the job, and ``undone`` is as of `Failed`."""

    why: str
    undone: bool = False


class Expired(msgspec.Struct, frozen=True, gc=False):
    """The deadline of the policy had passed before the handler could be called; ``undone`` is as of `Failed`."""

    undone: bool = False


class Lost(msgspec.Struct, frozen=True, gc=False):
    """The worker died, or the attempt exceeded its hard time limit; found by the sweep. ``why`` names the worker."""

    why: str


Outcome: TypeAlias = (
    Succeeded
    | Failed
    | Snoozed
    | Suspended
    | Parked
    | Restarted
    | Held
    | Released
    | Unreadable
    | Cancelled
    | Expired
    | Lost
)


class RunChange(msgspec.Struct, frozen=True, gc=False):
    """The changes of a run that commit with the end of its attempt."""

    steps: tuple[NewStep, ...] = ()  # with instants
    values: bytes | None = None
    waits: tuple[str, ...] | None = None  # paths of the open waits; None if all rows that wait are open
    paused: bool = False  # parked because of a pause
    arguments: bytes | None = None  # of a restart, which deletes the steps
    held: str | None = None
    ends_at: datetime | None = None  # its deadline, at which it is due also if it is paused
    drops: bool = False  # calls of child runs may be dropped, or open again
    before: StepMark | None = None  # nothing is written without this row


class NextRefresh(msgspec.Struct, frozen=True, gc=False):
    """What follows a failed attempt at a refresh, whose policy decides about it.

    Attributes:
        attempt: the number of the attempt that has failed, as the refresh counts.
        at: when the next one is due.
        why: what the next one is: a retry, or the next planned refresh.
    """

    attempt: int
    at: datetime
    why: str


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """How an attempt of a job is settled: all changes that its end writes."""

    task: str
    queue: str
    job_id: int
    lease_id: int  # the fence: nothing is written if this lease is not current
    event: LifecycleEvent
    state: State
    attempt: int
    failures: int
    crashes: int
    snoozes: int
    by_rule: tuple[int, ...] = ()  # failures matched by each rule after this, and the state of the backoffs
    scheduled_at: datetime | None = None
    # The delay before the latest retry; an attempt that is given back does not change it.
    last_delay: timedelta | None = None
    hold: Hold | None = None
    note: str | None = None
    reason: str | None = None  # the reason of the failure; None keeps that of an earlier failure, as for ``error``
    error: str | None = None
    closed: AttemptRecord | None = None  # the record for the history; None if no execution took place
    result: bytes | None = None
    catch: str | None = None
    caught: int | None = None
    before: State = State.RUNNING  # the state that the job must be in; nothing is written if it is not
    # The report for the origin of the job; None if the job goes on or has no known origin.
    report: OriginResult | None = None
    max_attempts: int | None = None  # attempts if the others fail alike; None without a limit, or not asked
    run: RunChange | None = None  # of a run that is parked, restarted or held
    unreadable_at: datetime | None = None  # since when no worker has been able to decode the arguments of the job
    unstarted: bool = False  # the job was given back before its handler had begun
    effects: tuple[Effect, ...] = ()  # of a successful attempt, or of one that waits for an answer
    origin: str | None = None  # of the job
    seen: ErrorSeen | None = None  # of a failure, in its error group
    # What follows a failed attempt at a refresh, once that is written; None if the refresh gave up, and for other jobs.
    next_refresh: NextRefresh | None = None


def base(
    claim: Claim,
    event: LifecycleEvent,
    closed: AttemptRecord | None = None,
    *,
    result: bytes | None = None,
    caught: int | None = None,
    report: OriginResult | None = None,
    effects: tuple[Effect, ...] = (),
) -> Settlement:
    """Return the settlement of a running job for this event; the caller replaces what differs."""
    return Settlement(
        task=claim.task,
        queue=claim.queue,
        job_id=claim.id,
        lease_id=claim.lease_id,
        event=event,
        state=next_state(State.RUNNING, event),
        attempt=claim.attempt,
        failures=claim.failures,
        crashes=0,
        snoozes=claim.snoozes,
        by_rule=claim.by_rule,
        last_delay=claim.last_delay,
        closed=closed,
        result=result,
        caught=caught,
        report=report,
        effects=effects,
        origin=claim.origin,
    )


def close(
    claim: Claim,
    now: datetime,
    outcome: AttemptOutcome,
    *,
    failed: Failed | None = None,
    nominal: timedelta | None = None,
    delay: timedelta | None = None,
    rule: str | None = None,
    verdict: str | None = None,
) -> AttemptRecord:
    """Return the record of the attempt for the history."""
    failure = failed.failure if failed else None
    return AttemptRecord(
        job_id=claim.id,
        lease_id=claim.lease_id,
        number=claim.attempt,
        worker_id=claim.worker_id,
        started_at=claim.claimed_at,
        finished_at=now,
        outcome=outcome,
        reason=failure.reason if failure else None,
        stage=failure.stage.value if failure else None,
        error_type=failure.error_type if failure else None,
        error=failure.message if failure else None,
        traceback=(failed.traceback or None) if failed else None,
        nominal=nominal,
        delay=delay,
        rule=rule,
        verdict=verdict,
    )
