"""What happens, told as it happens: one stream of typed events, and the sinks that hear it.

Answers: who is told that a retry was decided, that a call gave up, that a request is not sent again? May import:
`redrive.policy` and below; nothing below it may tell (law 1: pure code returns what it has decided, and whoever carries
that out tells). Must never: change what a call does, cost a call that succeeds at once anything, or let a sink's
failure out.

A *sink* is a function that takes an event::

    from redrive import observe

    observe.add(observe.log)


    @observe.add
    def count(event):
        if isinstance(event, observe.CallRetryScheduled):
            retries.labels(event.name, event.rule).inc()

All that redrive tells goes through here, whichever half of it speaks:

=========================  ============================================================================
event                      is told when
=========================  ============================================================================
`CallRetryScheduled`       an attempt of a call in process has failed, and another one follows
`CallSucceeded`            a call has succeeded after retries
`CallGaveUp`               a call has failed for good, or was refused by its budget or its breaker
`CallDeferred`             a call has ended because its next attempt lies beyond the deadline
``RequestRetryScheduled``  a request under RFC 0049 is sent again (`redrive.orchestrator`)
``RequestNotRetried``      it is not
``Job...``, ``Worker...``  see the table of `redrive.observe.jobs`
``Cron...``                something has become of an occurrence (`redrive.observe.schedules`)
=========================  ============================================================================

Classes are named by who it is about and what became of it: ``Call...`` in process, ``Request...`` under the
orchestrator, ``Job...`` for durable work, ``Cron...`` for what makes it. A call that succeeds at once tells nothing.
Neither does an error that is none of its policy's business, nor a call that leaves the retrying to another one above:
that one tells. A job tells each of its attempts, since somebody else may be asking for each.

**Around a wait, or an attempt.** A sink may return a context manager. It is entered before the wait that the event is
about and exited once after it, also when the wait is cancelled or interrupted; each event has its own, so that calls at
the same time share none. That of `JobStarted` is around the handler, and meets what the handler raises; that of
`JobsEnqueuing` is around the storing. Where nothing follows it is entered and exited at once. What its exit returns is
ignored: a sink cannot swallow an error or a cancellation. ::

    @observe.add
    @contextmanager
    def span(event):
        with tracer.start_as_current_span(type(event).__name__):
            yield

**A sink that carries** has an attribute ``carries = True``. What its manager is entered as (a text, such as the W3C
``traceparent``) is kept with the job: from `JobsEnqueuing` on with those that are new, from `JobStarted` on for the
next attempt, in whatever process that runs. There it finds it in ``JobStarted.trace``. Where several sinks carry, the
last one is kept.

**Few values, many values.** ``Event.labels`` names the fields that are fit for the labels of a metric. `Bounded` keeps
even these from growing without end, and `redrive.observe.measures` makes the numbers for all systems of metrics.

**A sink that fails** breaks nothing. Its first error goes to the logger ``redrive.observe``, and the call goes on; the
sink is told further events. What a sink does itself is not told to it, so that one that calls a retried function does
not hear itself.

Sinks are called where the thing happens, in its thread or task, synchronously: they should be quick and must not block
an event loop. While a failure is told, ``sys.exception()`` is the exception, for those who want more than the failure
as data; events about waits do not hold it, since nothing that waits may hold an error and its frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redrive.observe.attempts import (
        JobDied,
        JobLeaseLost,
        JobReleased,
        JobRescued,
        JobRetryScheduled,
        JobSnoozed,
        JobStarted,
        JobSucceeded,
        JobSuspended,
    )
    from redrive.observe.events import CallDeferred, CallEvent, CallGaveUp, CallRetryScheduled, CallSucceeded, Event
    from redrive.observe.jobs import JobCancelled, JobCaught, JobEnqueued, JobEvent, JobsEnqueuing
    from redrive.observe.labels import Bounded
    from redrive.observe.schedules import CronEvent, CronMissed, CronQueued, CronSkipped, CronStarted
    from redrive.observe.sinks import Registration, Sink, Wait, add, around, carried, log, only, tell
    from redrive.observe.workers import WorkerDutyFailed, WorkerStarted, WorkerStopped

__all__ = [
    "Bounded",
    "CallDeferred",
    "CallEvent",
    "CallGaveUp",
    "CallRetryScheduled",
    "CallSucceeded",
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
    "JobLeaseLost",
    "JobReleased",
    "JobRescued",
    "JobRetryScheduled",
    "JobSnoozed",
    "JobStarted",
    "JobSucceeded",
    "JobSuspended",
    "JobsEnqueuing",
    "Registration",
    "Sink",
    "Wait",
    "WorkerDutyFailed",
    "WorkerStarted",
    "WorkerStopped",
    "add",
    "around",
    "carried",
    "log",
    "only",
    "tell",
]

_HOMES = {
    "Event": "events",
    "Bounded": "labels",
    "JobCancelled": "jobs",
    "JobCaught": "jobs",
    "JobEnqueued": "jobs",
    "JobEvent": "jobs",
    "JobsEnqueuing": "jobs",
}


def _home(name: str) -> str:
    for start, home in (("Call", "events"), ("Worker", "workers"), ("Cron", "schedules"), ("Job", "attempts")):
        if name.startswith(start):
            return _HOMES.get(name, home)
    return _HOMES.get(name, "sinks")


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    """Load a public name at its first use: a call that tells nothing needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'redrive.observe' has no attribute {name!r}")
    from importlib import import_module

    home = import_module(f"redrive.observe.{_home(name)}")
    globals().update({each: getattr(home, each) for each in home.__all__ if each in __all__})
    return globals()[name]
