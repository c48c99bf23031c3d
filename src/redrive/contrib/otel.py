"""Traces and metrics for OpenTelemetry, of both halves of redrive.

Two sinks, each of which may be added alone::

    from redrive import observe
    from redrive.contrib import otel

    observe.add(otel.Tracing())
    observe.add(otel.Metrics())

Only OpenTelemetry's API is used; where no SDK is configured, nothing is recorded, and nothing is kept with jobs.

**Jobs.** An enqueue is a span of kind PRODUCER, in the trace of whoever enqueues; a batch is one span. Each attempt is
a span of kind CONSUMER around the handler, in a trace of its own: a job may wait for days, and be retried for more, and
a trace that long is of no use to anybody. It has *links* instead: to the enqueue, and to the attempt before it, in
whatever process that was. For that the W3C ``traceparent`` of both is kept with the job. A catch job has the links of
the job that it catches.

The attributes are those of OpenTelemetry's conventions for messaging as far as they fit (``messaging.system`` is
``redrive``, the destination is the queue, the message the job), and ``redrive.…`` beside them. A span is named after
the task and not the queue, as the conventions would have it: one queue runs many tasks.

**Calls in process.** A call that succeeds at once has no span, since it tells nothing. Of one that is retried, each
attempt is a span of the trace in which it was made, linked to the attempt before. They are made when an attempt has
failed, or the call has ended, with the times at which they began; so what an attempt did itself is not *below* its span
but beside it.

**A span ends once**, when the handler has returned, has raised, or was interrupted because its worker stops; what is
decided about the job afterwards is in the metrics and the logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram, MeterProvider
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from redrive.clock import SystemClock
from redrive.errors import Cancel, Snooze
from redrive.observe import (
    Bounded,
    CallDeferred,
    CallGaveUp,
    CallRetryScheduled,
    CallSucceeded,
    Event,
    JobsEnqueuing,
    JobStarted,
)
from redrive.observe.measures import BUCKETS, METRICS, measures
from redrive.policy import Failure

__all__ = ["Metrics", "Tracing"]

_PROPAGATOR = TraceContextTextMapPropagator()
_NONE = "-"
"""Stands for the span of an enqueue that nobody has traced."""

_MICROSECOND = timedelta(microseconds=1)


class Metrics:
    """The sink that counts and measures.

    Args:
        provider: of meters; by default the one that is set globally.
        limit: distinct values of each label; what comes later is counted as ``other``.
    """

    def __init__(self, provider: MeterProvider | None = None, *, limit: int = 100) -> None:
        meter = metrics.get_meter("redrive", meter_provider=provider)
        self._bounded = Bounded(limit)
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for each in METRICS:
            if each.seconds:
                self._histograms[each.name] = meter.create_histogram(
                    each.name, "s", each.help, explicit_bucket_boundaries_advisory=BUCKETS
                )
            else:
                self._counters[each.name] = meter.create_counter(each.name, "1", each.help)

    def __call__(self, event: Event) -> None:
        """Book what an event adds."""
        for each in measures(event):
            pairs = zip(each.metric.labels, each.values, strict=True)
            attributes = {label: self._bounded.value(label, value) for label, value in pairs}
            if each.metric.seconds:
                self._histograms[each.metric.name].record(each.amount, attributes)
            else:
                self._counters[each.metric.name].add(each.amount, attributes)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An attempt of a call, as the next one has to know it."""

    number: int
    span: SpanContext
    again_at: int
    """When the wait after it was over, in nanoseconds since 1970."""


_CALLS: ContextVar[Mapping[str, _Attempt]] = ContextVar("redrive.contrib.otel", default=MappingProxyType({}))
"""The last attempt of each call that is being retried here, by the name of what is called."""


class Tracing:
    """The sink that makes spans.

    Args:
        provider: of tracers; by default the one that is set globally.
    """

    carries = True

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("redrive", tracer_provider=provider)

    def __call__(self, event: Event) -> AbstractContextManager[Any] | None:
        """Make the span of an event, or begin the one that is to be around what follows."""
        match event:
            case JobsEnqueuing():
                return self._enqueue(event)
            case JobStarted():
                return self._attempt(event)
            case CallRetryScheduled():
                return self._retry(event)
            case CallSucceeded():
                self._last(event, None)
            case CallGaveUp() | CallDeferred():
                self._last(event, event.failure)
            case _:
                pass
        return None

    # ---------------------------------------------------------------------------------------------------------- jobs

    @contextmanager
    def _enqueue(self, event: JobsEnqueuing) -> Iterator[str | None]:
        attributes = _messaging("enqueue", "send", event.task, event.queue)
        if event.count > 1:
            attributes["messaging.batch.message_count"] = event.count
        name = f"enqueue {event.task}"
        with self._tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes) as span:
            yield _written(span)

    @contextmanager
    def _attempt(self, event: JobStarted) -> Iterator[str | None]:
        enqueued, previous = _read(event.trace)
        attributes = _messaging("process", "process", event.task, event.queue) | {
            "messaging.message.id": str(event.job_id),
            "redrive.attempt": event.attempt,
            "redrive.waited": event.waited.total_seconds(),
        }
        if event.delay is not None:
            attributes["redrive.delay"] = event.delay.total_seconds()
        links = [_link(enqueued, "enqueue"), _link(previous, "previous attempt")]
        with self._tracer.start_as_current_span(
            f"process {event.task}",
            context=Context(),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[link for link in links if link is not None],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            own = _written(span)
            try:
                yield None if own is None else f"{enqueued or _NONE} {own}"
            except BaseException as error:
                _mark(span, error)
                raise

    # --------------------------------------------------------------------------------------------------------- calls

    @contextmanager
    def _retry(self, event: CallRetryScheduled) -> Iterator[None]:
        span = self._call(event.name, event.attempt, event.elapsed, event.failure)
        span.set_attribute("redrive.rule", event.rule)
        span.end()
        try:
            yield
        finally:
            done = _Attempt(event.attempt, span.get_span_context(), _now())
            _CALLS.set(MappingProxyType({**_CALLS.get(), event.name: done}))

    def _last(self, event: CallSucceeded | CallGaveUp | CallDeferred, failure: Failure | None) -> None:
        if event.attempts:
            span = self._call(event.name, event.attempts, event.elapsed, failure)
            span.set_attribute("redrive.outcome", event.outcome)
            span.end()
        _CALLS.set(MappingProxyType({name: each for name, each in _CALLS.get().items() if name != event.name}))

    def _call(self, name: str, number: int, elapsed: timedelta, failure: Failure | None) -> Span:
        """The span of an attempt that has just ended."""
        now, before = _now(), _CALLS.get().get(name)
        if before is not None and before.number != number - 1:
            before = None  # of another call, which was interrupted
        began = now - elapsed // _MICROSECOND * 1000 if number == 1 else before.again_at if before else now
        link = None if before is None else Link(before.span, {"redrive.link": "previous attempt"})
        span = self._tracer.start_span(
            f"call {name}",
            attributes={"redrive.attempt": number},
            links=[] if link is None else [link],
            start_time=began,
        )
        if failure is not None:
            details = {"exception.type": failure.error_type, "exception.message": failure.message}
            span.add_event("exception", details)
            span.set_status(Status(StatusCode.ERROR, failure.message or failure.reason))
        return span


def _messaging(operation: str, kind: str, task: str, queue: str) -> dict[str, str | int | float]:
    """Attributes by OpenTelemetry's conventions for messaging; they are not stable yet, and written out here."""
    return {
        "messaging.system": "redrive",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
        "redrive.task": task,
    }


def _mark(span: Span, error: BaseException) -> None:
    """Say how a handler ended that did not return. A signal is none of its errors, and neither is a worker's stop."""
    match error:
        case Snooze():
            span.set_attribute("redrive.outcome", "snoozed")
        case Cancel():
            span.set_attribute("redrive.outcome", "cancelled")
        case Exception():
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        case _:
            span.set_attribute("redrive.outcome", "interrupted")


def _written(span: Span) -> str | None:
    """The ``traceparent`` of a span; None where no SDK has made it."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span, Context()))
    return carrier.get("traceparent")


def _read(kept: str | None) -> tuple[str | None, str | None]:
    """The ``traceparent`` of the enqueue and that of the last attempt, as far as there are any."""
    enqueued, _, previous = (kept or "").partition(" ")
    return (None if enqueued in {"", _NONE} else enqueued), previous or None


def _link(parent: str | None, what: str) -> Link | None:
    if parent is None:
        return None
    context = trace.get_current_span(_PROPAGATOR.extract({"traceparent": parent}, Context())).get_span_context()
    return Link(context, {"redrive.link": what}) if context.is_valid else None


def _now() -> int:
    now: datetime = SystemClock().now()
    return int(now.timestamp() * 1_000_000) * 1000
