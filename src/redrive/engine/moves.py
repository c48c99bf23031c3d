"""What every end of an attempt writes: the move of the job, and the line of its history. PURE."""

from __future__ import annotations

from datetime import datetime, timedelta

from redrive.engine.lifecycle import JobEvent, State, move
from redrive.engine.outcome import Failed
from redrive.engine.records import AttemptRecord, Claim, Closing
from redrive.engine.tracked import Report
from redrive.engine.transition import Transition

__all__ = ["base", "close"]


def base(  # noqa: PLR0913 - what one end differs by from another
    claim: Claim,
    event: JobEvent,
    closed: AttemptRecord | None = None,
    *,
    result: bytes | None = None,
    caught: int | None = None,
    report: Report | None = None,
) -> Transition:
    """Make the transition that only moves the job, from ``running``; the caller replaces what differs.

    Args:
        claim: the attempt.
        event: what happened.
        closed: the line for the history.
        result: what the handler returned, as JSON.
        caught: the job that this one has caught.
        report: what the schedule is told that has made the job.

    Returns:
        The transition.
    """
    return Transition(
        task=claim.task,
        queue=claim.queue,
        job_id=claim.id,
        lease_id=claim.lease_id,
        event=event,
        state=move(State.RUNNING, event),
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


def close(  # noqa: PLR0913 - the columns of one history line
    claim: Claim,
    now: datetime,
    outcome: Closing,
    *,
    failed: Failed | None = None,
    nominal: timedelta | None = None,
    delay: timedelta | None = None,
    rule: str | None = None,
    verdict: str | None = None,
) -> AttemptRecord:
    """Make the line for the history.

    Args:
        claim: the attempt.
        now: when it ended.
        outcome: how it ended.
        failed: why it failed.
        nominal: the delay that the backoff computed.
        delay: the delay that was decided.
        rule: which rule of the policy decided.
        verdict: the decision as a sentence.

    Returns:
        The line.
    """
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
