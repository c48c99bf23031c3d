"""The changes that the end of one attempt writes, and the constructors that every end shares. PURE."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from redrive.engine.items import OriginResult
from redrive.engine.lifecycle import LifecycleEvent, State, next_state
from redrive.engine.outcome import Failed
from redrive.engine.records import AttemptOutcome, AttemptRecord, Claim, Hold


class Transition(msgspec.Struct, frozen=True, gc=False):
    """All changes that the end of one attempt writes."""

    task: str
    queue: str
    job_id: int
    # The fence: nothing is written if this lease is not current.
    lease_id: int
    event: LifecycleEvent
    state: State
    attempt: int
    failures: int
    crashes: int
    snoozes: int
    # Failures matched by each rule after this, and the state of the backoffs.
    by_rule: tuple[int, ...] = ()
    scheduled_at: datetime | None = None
    # The delay before the latest retry; an attempt that is given back does not change it.
    last_delay: timedelta | None = None
    hold: Hold | None = None
    note: str | None = None
    # The reason of the failure; None keeps that of an earlier failure, as for ``error``.
    reason: str | None = None
    error: str | None = None
    # The record for the history; None if no execution took place.
    closed: AttemptRecord | None = None
    result: bytes | None = None
    catch: str | None = None
    caught: int | None = None
    # The state that the job must be in; nothing is written if it is not.
    before: State = State.RUNNING
    # The result for the schedule that made the job; None if the job goes on or has no such origin.
    report: OriginResult | None = None
    # Since when no worker has been able to decode the arguments of the job.
    unreadable_at: datetime | None = None


def base(  # noqa: PLR0913 - the fields in which ends differ
    claim: Claim,
    event: LifecycleEvent,
    closed: AttemptRecord | None = None,
    *,
    result: bytes | None = None,
    caught: int | None = None,
    report: OriginResult | None = None,
) -> Transition:
    """Return the transition of a running job for this event; the caller replaces what differs."""
    return Transition(
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
    )


def close(  # noqa: PLR0913 - the columns of one record
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
