"""Tells what is decided about jobs: from what the pure code decided to the events of `redrive.observe`.

Nothing of this is run, or even imported, while nobody listens: whoever carries a decision out looks at
`redrive.observe.listeners.LISTENERS` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from redrive import observe
from redrive.engine.lifecycle import LifecycleEvent
from redrive.engine.occurrence import Occurrence, OccurrenceDecision
from redrive.engine.records import Claim, JobRecord, NewJob
from redrive.engine.transition import Transition
from redrive.stores.operations.jobs import EnqueueResult
from redrive.stores.operations.leases import Ending, Settled

__all__ = ["EnqueueEvents", "emit_cancelled", "emit_fired", "emit_lost", "emit_moved", "emit_settled"]


class EnqueueEvents:
    """One enqueue that is watched: around the storing, what sinks want to have around it.

    Args:
        task: name of the task.
        queue: name of the queue.
        new: the jobs.
        using: the caller's own connection, if it is not None.

    Attributes:
        trace: inside the ``with`` block, what is to be kept with the jobs.
    """

    def __init__(self, task: str, queue: str, new: Sequence[NewJob], using: object) -> None:
        self._new = new
        self._using = using
        self._around = observe.around(observe.JobsEnqueuing(task=task, queue=queue, count=len(new)))
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
        """Tell which jobs are new, after they have been stored.

        Args:
            placed: what the store answered.
        """
        for i, (number, job) in enumerate(zip(placed.ids, self._new, strict=True)):
            if i not in placed.existing:
                observe.emit(
                    observe.JobEnqueued(
                        task=job.task,
                        queue=job.queue,
                        job_id=number,
                        delay=job.delay,
                        in_transaction=self._using is not None,
                    )
                )


def emit_settled(endings: Sequence[Ending], settled: Settled) -> None:
    """Tell what became of attempts that a worker has ended.

    Args:
        endings: how they ended.
        settled: what the store answered.
    """
    emit_moved(settled.moved)
    for ending in endings:
        if ending.claim.lease_id in settled.lost:
            emit_lost(ending.claim)


def emit_lost(claim: Claim) -> None:
    """Tell that an attempt has lost its lease before it ended.

    Args:
        claim: the attempt.
    """
    observe.emit(
        observe.JobLeaseLost(
            task=claim.task, queue=claim.queue, job_id=claim.id, attempt=claim.attempt, lease_id=claim.lease_id
        )
    )


def emit_moved(moved: Iterable[Transition]) -> None:
    """Tell what became of attempts.

    Args:
        moved: what was decided and written.
    """
    for each in moved:
        for event in _events(each):
            observe.emit(event)


def emit_cancelled(jobs: Iterable[JobRecord]) -> None:
    """Tell that somebody has ended jobs.

    Args:
        jobs: as they are now.
    """
    for job in jobs:
        observe.emit(
            observe.JobCancelled(
                task=job.task, queue=job.queue, job_id=job.id, attempt=job.attempt, why=job.note or "cancelled"
            )
        )


def emit_fired(fired: Iterable[Occurrence]) -> None:
    """Tell what became of occurrences of crons.

    Args:
        fired: what was decided and written.
    """
    for each in fired:
        observe.emit(
            _DECIDED[each.decision](
                schedule=each.schedule,
                occurs_at=each.occurs_at,
                late=each.decided_at - each.occurs_at,
                job_id=each.job_id,
                why=each.note,
            )
        )


def _events(moved: Transition) -> Iterator[observe.JobEvent]:
    yield _TELLS[moved.event](moved)
    if moved.caught is not None:
        yield observe.JobCaught(task=moved.task, queue=moved.queue, job_id=moved.caught, catch_id=moved.job_id)


def _job(moved: Transition) -> dict[str, Any]:
    return {"task": moved.task, "queue": moved.queue, "job_id": moved.job_id}


def _attempt(moved: Transition) -> dict[str, Any]:
    """Which attempt it was. One that was given back is counted no more, and has left no line."""
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
        # One that has left no line was never called: its deadline had passed before.
        "rule": "deadline" if closed is None else closed.rule,
        "reason": moved.reason,
        "error_type": None if closed is None else closed.error_type,
        "error": moved.error,
    }


def _delay(moved: Transition) -> timedelta:
    return (moved.closed.delay if moved.closed is not None else None) or timedelta(0)


def _due(moved: Transition) -> datetime:
    assert moved.scheduled_at is not None  # noqa: S101 - it waits for its time
    return moved.scheduled_at


def _rescued(moved: Transition) -> observe.JobEvent:
    assert moved.closed is not None  # noqa: S101 - an attempt that was lost leaves a line
    return observe.JobRescued(**_failed(moved), worker_id=moved.closed.worker_id)


_TELLS: Mapping[LifecycleEvent, Callable[[Transition], observe.JobEvent]] = {
    LifecycleEvent.SUCCEED: lambda moved: observe.JobSucceeded(**_ended(moved)),
    LifecycleEvent.RETRY: lambda moved: observe.JobRetryScheduled(**_failed(moved), delay=_delay(moved)),
    LifecycleEvent.DIE: lambda moved: observe.JobDied(**_failed(moved), why=moved.note or "", catch=moved.catch),
    LifecycleEvent.WAIT: lambda moved: observe.JobSuspended(**_attempt(moved), until=_due(moved)),
    LifecycleEvent.SNOOZE: lambda moved: observe.JobSnoozed(**_ended(moved), delay=_delay(moved), why=moved.note or ""),
    LifecycleEvent.RELEASE: lambda moved: observe.JobReleased(
        **_attempt(moved), due_at=_due(moved), hold=str(moved.hold), why=moved.note or ""
    ),
    LifecycleEvent.SET_ASIDE: lambda moved: observe.JobReleased(
        **_attempt(moved), due_at=_due(moved), hold=str(moved.hold), why=moved.note or ""
    ),
    LifecycleEvent.LOSE: _rescued,
    LifecycleEvent.CANCEL: lambda moved: observe.JobCancelled(
        **_job(moved), attempt=_attempt(moved)["attempt"], why=moved.note or ""
    ),
}
"""Every event that ends an attempt; those of operators are told by those who carry them out."""

_DECIDED: Mapping[OccurrenceDecision, type[observe.CronEvent]] = {
    OccurrenceDecision.STARTED: observe.CronStarted,
    OccurrenceDecision.QUEUED: observe.CronQueued,
    OccurrenceDecision.SKIPPED: observe.CronSkipped,
    OccurrenceDecision.MISSED: observe.CronMissed,
}
