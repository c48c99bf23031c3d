"""The event stream of redrive: typed events, and the sinks that receive them.

May import: `redrive.policy` and below; no module below this one may emit, because pure code returns its decisions and
the code that executes them emits. Must never: change what a call does, add cost to a call that succeeds at once, or
let the failure of a sink out.

A *sink* is a function that takes an event. `log`, which writes events to the standard library's logging, is registered
from the start; ``observe.remove(observe.log)`` removes it. Add others::

    from redrive import observe


    @observe.add
    def count(event):
        if isinstance(event, observe.CallRetryScheduled):
            retries.labels(event.name, event.rule).inc()

=========================  ============================================================================
event                      emitted when
=========================  ============================================================================
`CallRetryScheduled`       an attempt of a call in process has failed, and another one follows
`CallSucceeded`            a call has succeeded after retries
`CallGaveUp`               a call has failed for good, or was refused by its budget or its breaker
`CallDeferred`             a call has ended because its next attempt lies beyond the deadline
``RequestRetryScheduled``  a request under RFC 0049 is sent again (`redrive.orchestrator`)
``RequestNotRetried``      it is not
``Job...``, ``Worker...``  see the table of `redrive.observe.jobs`
``Cron...``                an occurrence was decided
``TopicDelivered``         a subscription got events
``Task...``                an attempt in Celery or Dramatiq has failed (`redrive.observe.tasks`)
=========================  ============================================================================

Classes are named by their subject and what happened: ``Call...`` in process, ``Request...`` under the orchestrator,
``Job...`` for durable work, ``Task...`` in another engine, ``Cron...`` for schedules. These emit no event: a call that
succeeds at once, an error that its policy does not match, and a call that leaves the retries to an enclosing one. A job
emits an event for each of its attempts.

**Around a wait, or an attempt.** A sink may return a context manager. It is entered before the wait that the event is
about and exited once after it, also when the wait is cancelled or interrupted; each event has its own, so that
concurrent calls share none. The manager of `JobStarted` is around the handler, and receives the handler's exception;
that of `JobsEnqueuing` is around the storing. For an event that nothing follows it is entered and exited at once. The
result of its exit is ignored: a sink cannot suppress an error or a cancellation. ::

    @observe.add
    @contextmanager
    def span(event):
        with tracer.start_as_current_span(type(event).__name__):
            yield

**A sink that carries** has an attribute ``carries = True``. The text that its manager returns when entered, such as the
W3C ``traceparent``, is kept with the job: from `JobsEnqueuing` on with new jobs, from `JobStarted` on for the next
attempt, in any process. That attempt has it in ``JobStarted.trace``. If several sinks carry, the last one is kept.

**Labels.** ``Event.labels`` names the fields that are fit for the labels of a metric. `Bounded` limits their values,
and `redrive.observe.measures` computes the numbers for all systems of metrics.

**A sink that fails** breaks nothing. Its first error goes to the logger ``redrive.observe``, and the call goes on; the
sink receives further events. Events that a sink causes itself are not sent to it, so that a sink may call a retried
function.

Sinks are called synchronously, in the thread or task of the event: they should be quick and must not block an event
loop. While the event of a failure is emitted, ``sys.exception()`` is the exception; events about waits do not hold it,
since nothing that waits may hold an error and its frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redrive.observe.events import (
        CallDeferred,
        CallEvent,
        CallGaveUp,
        CallRetryScheduled,
        CallSucceeded,
        CronEvent,
        CronMissed,
        CronQueued,
        CronSkipped,
        CronStarted,
        Event,
        TopicDelivered,
    )
    from redrive.observe.jobs import (
        CatchStuck,
        JobCancelled,
        JobCaught,
        JobDied,
        JobEnqueued,
        JobEvent,
        JobHeld,
        JobLeaseLost,
        JobParked,
        JobReleased,
        JobRescued,
        JobRetryScheduled,
        JobsEnqueuing,
        JobSnoozed,
        JobStarted,
        JobSucceeded,
        JobSuspended,
        RefreshAttemptFailed,
        WorkerDutyFailed,
        WorkerServerReplaced,
        WorkerStarted,
        WorkerStopped,
    )
    from redrive.observe.measures import Bounded
    from redrive.observe.sinks import Registration, Sink, Wait, add, around, carried, emit, log, only, remove
    from redrive.observe.tasks import TaskEvent, TaskGaveUp, TaskLost, TaskRetryScheduled

__all__ = [
    "Bounded",
    "CallDeferred",
    "CallEvent",
    "CallGaveUp",
    "CallRetryScheduled",
    "CallSucceeded",
    "CatchStuck",
    "CronEvent",
    "CronMissed",
    "CronQueued",
    "CronSkipped",
    "CronStarted",
    "Event",
    "JobCancelled",
    "JobCaught",
    "JobDied",
    "JobEnqueued",
    "JobEvent",
    "JobHeld",
    "JobLeaseLost",
    "JobParked",
    "JobReleased",
    "JobRescued",
    "JobRetryScheduled",
    "JobSnoozed",
    "JobStarted",
    "JobSucceeded",
    "JobSuspended",
    "JobsEnqueuing",
    "RefreshAttemptFailed",
    "Registration",
    "Sink",
    "TaskEvent",
    "TaskGaveUp",
    "TaskLost",
    "TaskRetryScheduled",
    "TopicDelivered",
    "Wait",
    "WorkerDutyFailed",
    "WorkerServerReplaced",
    "WorkerStarted",
    "WorkerStopped",
    "add",
    "around",
    "carried",
    "emit",
    "log",
    "only",
    "remove",
]

_HOMES = {
    "Call": "events",
    "Event": "events",
    "Catch": "jobs",
    "Job": "jobs",
    "Refresh": "jobs",
    "Worker": "jobs",
    "Cron": "events",
    "Task": "tasks",
    "Topic": "events",
}


if not TYPE_CHECKING:  # type checkers report a name that the package does not have

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
        """Load a public name at its first use: a call that emits nothing needs none of them."""
        if name not in __all__:
            raise AttributeError(f"module 'redrive.observe' has no attribute {name!r}")
        from importlib import import_module

        home = next((home for start, home in _HOMES.items() if name.startswith(start)), "")
        home = home or ("measures" if name == "Bounded" else "sinks")
        value = globals()[name] = getattr(import_module(f"redrive.observe.{home}"), name)
        return value
