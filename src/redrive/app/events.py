"""Events about jobs: from decisions of the engine to the events of `redrive.observe`.

Callers check `redrive.observe.listeners.LISTENERS` before they import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from redrive import observe
from redrive.engine.lifecycle import LifecycleEvent
from redrive.engine.occurrence import Occurrence, OccurrenceDecision
from redrive.engine.outcome import Transition
from redrive.engine.records import Claim, JobRecord, NewJob
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

    def emit(self, placed: EnqueueResult) -> None:
        """Emit an event for each new job, after they have been stored."""
        for i, (number, job) in enumerate(zip(placed.ids, self._new, strict=True)):
            if i not in placed.existing:
                observe.emit(
                    observe.JobEnqueued(
                        task=job.task,
                        queue=job.queue,
                        job_id=number,
                        delay=job.delay if placed.at is None else due_at(job, placed.at) - placed.at,
                        in_transaction=self._using is not None,
                    )
                )


def emit_settled(endings: Sequence[Ending], settled: Settled) -> None:
    """Emit the events of a settle: transitions, and attempts that had lost their lease."""
    emit_moved(settled.moved)
    for ending in endings:
        if ending.claim.lease_id in settled.lost:
            emit_lost(ending.claim)


def emit_lost(claim: Claim) -> None:
    """Emit the event of an attempt that lost its lease before it ended."""
    observe.emit(
        observe.JobLeaseLost(
            task=claim.task, queue=claim.queue, job_id=claim.id, attempt=claim.attempt, lease_id=claim.lease_id
        )
    )


def emit_moved(moved: Iterable[Transition]) -> None:
    """Emit the events of transitions that were written."""
    for each in moved:
        for event in _events(each):
            observe.emit(event)


def emit_cancelled(jobs: Iterable[JobRecord]) -> None:
    """Emit the events of jobs that were cancelled."""
    for job in jobs:
        observe.emit(
            observe.JobCancelled(
                task=job.task, queue=job.queue, job_id=job.id, attempt=job.attempt, why=job.note or "cancelled"
            )
        )


def emit_fired(fired: Iterable[Occurrence]) -> None:
    """Emit the events of decisions on occurrences that were written."""
    for each in fired:
        observe.emit(
            _DECISIONS[each.decision](
                schedule=each.schedule,
                occurs_at=each.occurs_at,
                late=each.decided_at - each.occurs_at,
                job_id=each.job_id,
                why=each.note,
            )
        )


def _events(moved: Transition) -> Iterator[observe.JobEvent]:
    yield _EVENTS[moved.event](moved)
    if moved.caught is not None:
        yield observe.JobCaught(task=moved.task, queue=moved.queue, job_id=moved.caught, catch_id=moved.job_id)


def _job(moved: Transition) -> dict[str, Any]:
    return {"task": moved.task, "queue": moved.queue, "job_id": moved.job_id}


def _attempt(moved: Transition) -> dict[str, Any]:
    # An attempt that was released does not count any more, and has no record.
    given_back = moved.event is LifecycleEvent.RELEASE or (moved.event is LifecycleEvent.DIE and moved.closed is None)
    number = moved.closed.number if moved.closed is not None else moved.attempt + given_back
    return {**_job(moved), "attempt": number, "lease_id": moved.lease_id}


def _ended(moved: Transition) -> dict[str, Any]:
    closed = moved.closed
    return {**_attempt(moved), "took": None if closed is None else closed.finished_at - closed.started_at}


def _failed(moved: Transition) -> dict[str, Any]:
    closed = moved.closed
    return {
        **_ended(moved),
        # Without a record the handler was never called: the deadline had passed before.
        "rule": "deadline" if closed is None else closed.rule,
        "reason": moved.reason,
        "error_type": None if closed is None else closed.error_type,
        "error": moved.error,
    }


def _delay(moved: Transition) -> timedelta:
    return (moved.closed.delay if moved.closed is not None else None) or timedelta(0)


def _due(moved: Transition) -> datetime:
    assert moved.scheduled_at is not None  # noqa: S101 - the job has a due time
    return moved.scheduled_at


def _released(moved: Transition) -> observe.JobEvent:
    due, hold = _due(moved), str(moved.hold)
    return observe.JobReleased(**_attempt(moved), due_at=due, hold=hold, why=moved.note or "")


def _rescued(moved: Transition) -> observe.JobEvent:
    assert moved.closed is not None  # noqa: S101 - a lost attempt has a record
    return observe.JobRescued(**_failed(moved), worker_id=moved.closed.worker_id)


_EVENTS: Mapping[LifecycleEvent, Callable[[Transition], observe.JobEvent]] = {
    LifecycleEvent.SUCCEED: lambda moved: observe.JobSucceeded(**_ended(moved)),
    LifecycleEvent.RETRY: lambda moved: observe.JobRetryScheduled(**_failed(moved), delay=_delay(moved)),
    LifecycleEvent.DIE: lambda moved: observe.JobDied(**_failed(moved), why=moved.note or "", catch=moved.catch),
    LifecycleEvent.WAIT: lambda moved: observe.JobSuspended(**_attempt(moved), until=_due(moved)),
    LifecycleEvent.SNOOZE: lambda moved: observe.JobSnoozed(**_ended(moved), delay=_delay(moved), why=moved.note or ""),
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
