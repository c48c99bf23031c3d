"""The metrics of redrive, and what each event adds to them, for every system of metrics.

A sink for such a system creates its instruments from `METRICS` and adds what `measures` yields for each event. Labels
are the fields that an event declares as such, so that no id and no error text becomes one. A metric has one series for
each combination of its labels, so `Bounded` limits the number of values of a label.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from redrive.forks import ForkSafeLock
from redrive.observe.events import CallDeferred, CallGaveUp, CallRetryScheduled, CallSucceeded, CronEvent, Event
from redrive.observe.jobs import JobCaught, JobEnqueued, JobEvent, JobStarted, WorkerDutyFailed, WorkerServerReplaced
from redrive.observe.tasks import TaskEvent

OTHER = "other"


class Bounded:
    """A filter that replaces label values beyond a limit.

    Args:
        limit: distinct values of each label, `OTHER` not counted.
    """

    def __init__(self, limit: int = 100) -> None:
        if limit < 1:
            raise ValueError(f"a label needs room for one value at least, got limit={limit}")
        self._limit = limit
        self._known: dict[str, set[str]] = {}
        self._lock = ForkSafeLock()

    def value(self, label: str, value: str) -> str:
        """Return the value under which to count, which is the given one or `OTHER`."""
        known = self._known.get(label)
        if known is not None and value in known:
            return value
        with self._lock:
            known = self._known.setdefault(label, set())
            if len(known) < self._limit:
                known.add(value)
            return value if value in known else OTHER


@dataclass(frozen=True, slots=True)
class Metric:
    """A counter or a histogram."""

    name: str
    labels: tuple[str, ...]
    help: str
    #: True for a histogram of durations, False for a counter.
    seconds: bool = False


@dataclass(frozen=True, slots=True)
class Measure:
    """The addition of one event to a metric."""

    metric: Metric
    #: 1, or a number of seconds.
    amount: float
    #: The values of the metric's labels, in their order.
    values: tuple[str, ...]


ENQUEUED = Metric("redrive.jobs.enqueued", ("task", "queue", "kind"), "Jobs that were stored.")
CAUGHT = Metric("redrive.jobs.caught", ("task", "queue", "kind"), "Dead jobs that a catch task has taken.")
ATTEMPTS = Metric(
    "redrive.job.attempts", ("task", "queue", "kind", "outcome", "reason"), "Attempts of jobs, by what became of them."
)
TOOK = Metric("redrive.job.duration", ("task", "queue", "kind", "outcome"), "How long attempts took.", seconds=True)
WAITED = Metric(
    "redrive.job.waiting", ("task", "queue", "kind"), "How long attempts waited after they were due.", seconds=True
)
RETRIES = Metric("redrive.call.retries", ("call", "rule"), "Retries of calls in process.")
CALLS = Metric("redrive.calls", ("call", "outcome", "rule"), "Calls in process that were retried, by how they ended.")
TASKS = Metric(
    "redrive.task.attempts",
    ("task", "outcome", "rule"),
    "Attempts of tasks of Celery and actors of Dramatiq that failed.",
)
OCCURRENCES = Metric(
    "redrive.cron.occurrences", ("schedule", "outcome"), "Occurrences of crons, by what became of them."
)
DUTIES = Metric("redrive.worker.duty.failures", ("duty",), "Failures of background duties of workers.")
FAILOVERS = Metric("redrive.worker.failovers", (), "Database servers that have taken over, as workers have met them.")
LOST = Metric(
    "redrive.worker.failover.lost", ("what",), "Starts and ends of attempts that a server lacked when it took over."
)

METRICS = (ENQUEUED, CAUGHT, ATTEMPTS, TOOK, WAITED, RETRIES, CALLS, TASKS, OCCURRENCES, DUTIES, FAILOVERS, LOST)


def measures(event: Event) -> Iterator[Measure]:  # noqa: C901, PLR0912 - one case for each kind of event
    """Yield what an event adds to the metrics."""
    match event:
        case JobStarted(task=task, queue=queue, kind=kind):
            yield Measure(WAITED, event.waited.total_seconds(), (task, queue, kind))
        case JobEnqueued(task=task, queue=queue, kind=kind):
            yield Measure(ENQUEUED, 1, (task, queue, kind))
        case JobCaught(task=task, queue=queue, kind=kind):
            yield Measure(CAUGHT, 1, (task, queue, kind))
        case JobEvent(task=task, queue=queue, kind=kind):
            why = next((getattr(event, label) for label in ("reason", "hold") if label in event.labels), "")
            yield Measure(ATTEMPTS, 1, (task, queue, kind, event.outcome, why))
            took = getattr(event, "took", None)
            if took is not None:
                yield Measure(TOOK, took.total_seconds(), (task, queue, kind, event.outcome))
        case TaskEvent(task=task, rule=rule):
            yield Measure(TASKS, 1, (task, event.outcome, rule))
        case CronEvent(schedule=schedule):
            yield Measure(OCCURRENCES, 1, (schedule, event.outcome))
        case WorkerDutyFailed(duty=duty):
            yield Measure(DUTIES, 1, (duty,))
        case WorkerServerReplaced(starts_lost=starts, ends_lost=ends):
            yield Measure(FAILOVERS, 1, ())
            yield Measure(LOST, starts, ("start",))
            yield Measure(LOST, ends, ("end",))
        case CallRetryScheduled(name=name, rule=rule):
            yield Measure(RETRIES, 1, (name, rule))
        case CallSucceeded(name=name):
            yield Measure(CALLS, 1, (name, event.outcome, ""))
        case CallGaveUp(name=name, rule=rule) | CallDeferred(name=name, rule=rule):
            yield Measure(CALLS, 1, (name, event.outcome, rule))
        case _:
            return
