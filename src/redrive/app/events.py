"""Events about jobs: from decisions of the engine to the events of `redrive.observe`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from redrive import observe
from redrive.engine.lease import UNKNOWN_TASK_DELAY
from redrive.engine.lifecycle import LifecycleEvent
from redrive.engine.occurrence import Occurrence, OccurrenceDecision
from redrive.engine.outcome import Settlement
from redrive.engine.records import Claim, Hold, JobRecord, NewJob
from redrive.engine.settle import BAD_POLICY, CATCH_STUCK_AFTER
from redrive.observe.listeners import DEBUG, ERROR, heard
from redrive.stores.operations.jobs import EnqueueResult, due_at
from redrive.stores.operations.leases import Ending, Settled


class EnqueueEvents:
    """A ``with`` block around an enqueue, in which sinks may open a span."""

    def __init__(self, task: str, queue: str, new: Sequence[NewJob], using: object) -> None:
        self._new = new
        self._using = using
        self._around = observe.around(observe.JobsEnqueuing(task=task, queue=queue, count=len(new)))
        #: Inside the block, the trace context to store with the jobs.
        self.trace: str | None = None

    def __enter__(self) -> Self:
        self._around.__enter__()
        self.trace = self._around.kept
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self._around.__exit__(kind, error, traceback)

    def emit(self, placed: EnqueueResult, new: Sequence[NewJob] | None = None) -> None:
        """Emit an event for each new job, after they have been stored; as they are now, if given."""
        for i, (number, job) in enumerate(zip(placed.ids, self._new if new is None else new, strict=True)):
            if i not in placed.existing:
                observe.emit(
                    observe.JobEnqueued(
                        task=job.task,
                        queue=job.queue,
                        job_id=number,
                        origin=job.origin,
                        delay=job.delay if placed.at is None else due_at(job, placed.at) - placed.at,
                        in_transaction=self._using is not None,
                    )
                )


def emit_apart(event: observe.Event, *, but: observe.Sink | None = None) -> None:
    """Emit an event of a background duty; a context variable that a sink sets is not seen by the next event."""
    copy_context().run(observe.emit, event, but=but)


def emit_settled(endings: Sequence[Ending], settled: Settled) -> None:
    """Emit the events of a settle: settlements, and attempts that had lost their lease."""
    emit_moved(settled.moved)
    if not settled.lost:
        return
    for ending in endings:
        if ending.claim.lease_id in settled.lost:
            cancelled = ending.claim.lease_id in settled.cancelled
            emit_lost(ending.claim, "it was cancelled" if cancelled else "its lease was lost")


def emit_lost(claim: Claim, why: str = "its lease was lost") -> None:
    """Emit the event of an attempt that lost its lease before it ended."""
    emit_apart(
        observe.JobLeaseLost(
            task=claim.task,
            queue=claim.queue,
            job_id=claim.id,
            origin=claim.origin,
            attempt=claim.attempt,
            lease_id=claim.lease_id,
            why=why,
        )
    )


def emit_moved(moved: Iterable[Settlement]) -> None:
    """Emit the events of settlements that were written."""
    if not heard("redrive.jobs", ERROR):
        return
    # The events of successes are built only if a sink or a log at DEBUG receives them.
    every = heard("redrive.jobs", DEBUG)
    for each in moved:
        # Workers log these themselves, with the traceback of the policy.
        but = observe.log if is_undecided(each) else None
        if every or each.event is not LifecycleEvent.SUCCEED:
            emit_apart(_EVENTS[each.event](each), but=but)
        if each.caught is not None:
            caught = observe.JobCaught(
                task=each.task, queue=each.queue, job_id=each.caught, origin=each.origin, catch_id=each.job_id
            )
            emit_apart(caught)


def is_undecided(moved: Settlement) -> bool:
    """Return True if the policy of the job cannot be read or raises."""
    return moved.reason == BAD_POLICY or moved.hold is Hold.BAD_POLICY


def is_first_hold(held: Settlement) -> bool:
    """Return True if no worker has held the job for this reason before."""
    assert held.scheduled_at is not None  # a held job has a next look
    return held.unreadable_at is not None and held.scheduled_at - held.unreadable_at <= UNKNOWN_TASK_DELAY


def emit_cancelled(jobs: Iterable[JobRecord]) -> None:
    """Emit the events of jobs that were cancelled."""
    for job in jobs:
        emit_apart(
            observe.JobCancelled(
                task=job.task,
                queue=job.queue,
                job_id=job.id,
                origin=job.origin,
                attempt=job.attempt,
                why=job.note or "cancelled",
            )
        )


def emit_fired(fired: Iterable[Occurrence]) -> None:
    """Emit the events of decisions on occurrences that were written."""
    for each in fired:
        emit_apart(
            _DECISIONS[each.decision](
                schedule=each.schedule,
                occurs_at=each.occurs_at,
                late=each.decided_at - each.occurs_at,
                job_id=each.job_id,
                why=each.note,
            )
        )


def _job(moved: Settlement) -> dict[str, Any]:
    return {"task": moved.task, "queue": moved.queue, "job_id": moved.job_id, "origin": moved.origin}


_GIVEN_BACK = frozenset({LifecycleEvent.RELEASE, LifecycleEvent.PARK})


def _attempt(moved: Settlement) -> dict[str, Any]:
    # An attempt that was released does not count any more, and has no record.
    given_back = moved.event in _GIVEN_BACK or (moved.event is LifecycleEvent.DIE and moved.closed is None)
    number = moved.closed.number if moved.closed is not None else moved.attempt + given_back
    return {**_job(moved), "attempt": number, "lease_id": moved.lease_id}


def _ended(moved: Settlement) -> dict[str, Any]:
    closed = moved.closed
    return {**_attempt(moved), "took": None if closed is None else closed.finished_at - closed.started_at}


def _failed(moved: Settlement) -> dict[str, Any]:
    closed = moved.closed
    return {
        **_ended(moved),
        # Without a record the handler was never called: the deadline had passed before.
        "rule": "deadline" if closed is None else closed.rule,
        "reason": moved.reason,
        "error_type": None if closed is None else closed.error_type,
        "error": moved.error,
        "max_attempts": moved.max_attempts,
    }


def _delay(moved: Settlement) -> timedelta:
    return (moved.closed.delay if moved.closed is not None else None) or timedelta(0)


def _due(moved: Settlement) -> datetime:
    assert moved.scheduled_at is not None  # the job has a due time
    return moved.scheduled_at


def _released(moved: Settlement) -> observe.JobEvent:
    unknown = moved.hold is Hold.UNKNOWN_TASK
    held = unknown or (moved.hold in (Hold.BAD_PAYLOAD, Hold.BAD_POLICY, Hold.HELD) and is_first_hold(moved))
    event = observe.JobHeld if held else observe.JobReleased
    return event(**_attempt(moved), due_at=_due(moved), hold=str(moved.hold), why=moved.note or "")


def _retried(moved: Settlement) -> observe.JobEvent:
    fields = {**_failed(moved), "delay": _delay(moved), "due_at": moved.scheduled_at}
    if fields["rule"] == "catch" and moved.failures == CATCH_STUCK_AFTER:
        return observe.CatchStuck(**fields, failures=moved.failures)
    return observe.JobRetryScheduled(**fields)


def _died(moved: Settlement) -> observe.JobEvent:
    traceback = None if moved.closed is None else moved.closed.traceback
    fields = {**_failed(moved), "why": moved.note or "", "catch": moved.catch, "traceback": traceback}
    follows = moved.next_refresh
    if follows is None:
        return observe.JobDied(**fields)
    return observe.RefreshAttemptFailed(**fields, number=follows.attempt, next_at=follows.at, next_is=follows.why)


def _rescued(moved: Settlement) -> observe.JobEvent:
    assert moved.closed is not None  # a lost attempt has a record
    return observe.JobRescued(**_failed(moved), worker_id=moved.closed.worker_id, why=moved.note or "it runs again")


_EVENTS: Mapping[LifecycleEvent, Callable[[Settlement], observe.JobEvent]] = {
    LifecycleEvent.SUCCEED: lambda moved: observe.JobSucceeded(**_ended(moved)),
    LifecycleEvent.RETRY: _retried,
    LifecycleEvent.DIE: _died,
    LifecycleEvent.WAIT: lambda moved: observe.JobSuspended(**_attempt(moved), until=_due(moved)),
    LifecycleEvent.SNOOZE: lambda moved: observe.JobSnoozed(**_ended(moved), delay=_delay(moved), why=moved.note or ""),
    LifecycleEvent.PARK: lambda moved: observe.JobParked(**_attempt(moved), until=_due(moved), why=moved.note or ""),
    LifecycleEvent.RELEASE: _released,
    LifecycleEvent.SET_ASIDE: _released,
    LifecycleEvent.LOSE: _rescued,
    LifecycleEvent.CANCEL: lambda moved: observe.JobCancelled(
        **_job(moved), attempt=_attempt(moved)["attempt"], why=moved.note or ""
    ),
}

_DECISIONS: Mapping[OccurrenceDecision, type[observe.CronEvent]] = {
    OccurrenceDecision.STARTED: observe.CronStarted,
    OccurrenceDecision.QUEUED: observe.CronQueued,
    OccurrenceDecision.SKIPPED: observe.CronSkipped,
    OccurrenceDecision.MISSED: observe.CronMissed,
}
