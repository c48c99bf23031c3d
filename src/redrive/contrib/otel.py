"""Traces and metrics for OpenTelemetry, of calls in process and of jobs.

Two sinks, which can be added independently::

    from redrive import observe
    from redrive.contrib import otel

    observe.add(otel.Tracing())
    observe.add(otel.OpenTelemetryMetrics())

They use OpenTelemetry's API only. Without a configured SDK nothing is recorded, and nothing is stored with jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from redrive import observe
from redrive.clock import SystemClock
from redrive.contrib import extra
from redrive.engine.counters import BUCKETS
from redrive.errors import Cancel, Snooze
from redrive.observe.logs import OF_APP
from redrive.observe.measures import METRICS, measures
from redrive.policy import Failure

with extra("otel"):
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = ["OpenTelemetryMetrics", "Tracing"]

_PROPAGATOR = TraceContextTextMapPropagator()
# Stands for the span of an enqueue that was not traced.
_NONE = "-"

_MICROSECOND = timedelta(microseconds=1)


class OpenTelemetryMetrics:
    """A sink that updates counters and histograms.

    Args:
        provider: the meter provider; by default the global one.
        limit: the number of distinct values of each label; further values are counted as ``other``.
    """

    def __init__(self, provider: MeterProvider | None = None, *, limit: int = 100) -> None:
        meter = metrics.get_meter("redrive", meter_provider=provider)
        self._bounded = observe.Bounded(limit)
        self._update: dict[str, Callable[[float, Mapping[str, str]], None]] = {}
        for each in METRICS:
            name, text = each.name, each.help
            self._update[name] = (
                meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=BUCKETS).record
                if each.seconds
                else meter.create_counter(name, "1", text).add
            )

    def __call__(self, event: observe.Event) -> None:
        """Add the numbers of an event."""
        for each in measures(event):
            pairs = zip(each.metric.labels, each.values, strict=True)
            attributes = {label: self._bounded.value(label, value) for label, value in pairs}
            if app := OF_APP.get():
                attributes["app"] = app
            self._update[each.metric.name](each.amount, attributes)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The previous attempt of a call, for the span of the next."""

    number: int
    span: SpanContext
    # The end of the wait after it, in nanoseconds since 1970.
    wait_ended_at: int


# The last attempt of each call that is being retried in this context, by the name of the called function.
_CALLS: ContextVar[Mapping[str, _Attempt]] = ContextVar("redrive.contrib.otel", default=MappingProxyType({}))


class Tracing:
    """A sink that makes spans.

    Args:
        provider: the tracer provider; by default the global one.
    """

    carries = True

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("redrive", tracer_provider=provider)

    def __call__(self, event: observe.Event) -> AbstractContextManager[Any] | None:
        """Make the span of an event, or return the span that surrounds the following attempt or wait."""
        match event:
            case observe.JobsEnqueuing():
                return self._enqueue(event)
            case observe.JobStarted():
                return self._attempt(event)
            case observe.CallRetryScheduled():
                return self._retry(event)
            case observe.CallSucceeded():
                self._last(event, None)
            case observe.CallGaveUp() | observe.CallDeferred():
                self._last(event, event.failure)
            case _:
                pass
        return None

    @contextmanager
    def _enqueue(self, event: observe.JobsEnqueuing) -> Iterator[str | None]:
        attributes = _messaging("enqueue", "send", event.task, event.queue)
        if event.count > 1:
            attributes["messaging.batch.message_count"] = event.count
        name = f"enqueue {event.task}"
        with self._tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes) as span:
            yield _traceparent_of(span)

    @contextmanager
    def _attempt(self, event: observe.JobStarted) -> Iterator[str | None]:
        enqueued, previous = _parse_stored(event.trace)
        attributes = _messaging("process", "process", event.task, event.queue) | {
            "messaging.message.id": str(event.job_id),
            "redrive.attempt": event.attempt,
            "redrive.waited": event.waited.total_seconds(),
        }
        if event.origin is not None:
            attributes["redrive.origin"] = event.origin
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
            own = _traceparent_of(span)
            try:
                yield None if own is None else f"{enqueued or _NONE} {own}"
            except BaseException as error:
                _mark(span, error)
                raise

    @contextmanager
    def _retry(self, event: observe.CallRetryScheduled) -> Iterator[None]:
        span = self._call(event.name, event.attempt, event.elapsed, event.failure)
        span.set_attribute("redrive.rule", event.rule)
        span.end()
        try:
            yield
        finally:
            done = _Attempt(event.attempt, span.get_span_context(), _now())
            _CALLS.set(MappingProxyType({**_CALLS.get(), event.name: done}))

    def _last(
        self, event: observe.CallSucceeded | observe.CallGaveUp | observe.CallDeferred, failure: Failure | None
    ) -> None:
        if event.attempts:
            span = self._call(event.name, event.attempts, event.elapsed, failure)
            span.set_attribute("redrive.outcome", event.outcome)
            span.end()
        _CALLS.set(MappingProxyType({name: each for name, each in _CALLS.get().items() if name != event.name}))

    def _call(self, name: str, number: int, elapsed: timedelta, failure: Failure | None) -> Span:
        """Start the span of an attempt that has just ended."""
        now, before = _now(), _CALLS.get().get(name)
        if before is not None and before.number != number - 1:
            # It belongs to another call, which was interrupted.
            before = None
        began = now - elapsed // _MICROSECOND * 1000 if number == 1 else before.wait_ended_at if before else now
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
    """Return the attributes that OpenTelemetry's conventions for messaging define."""
    app = OF_APP.get()
    # Written out, because the conventions are not stable yet.
    return {
        **({"redrive.app": app} if app else {}),
        "messaging.system": "redrive",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
        "redrive.task": task,
    }


def _mark(span: Span, error: BaseException) -> None:
    """Record an exception of a handler on its span; signals and the stop of a worker are not errors."""
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


def _traceparent_of(span: Span) -> str | None:
    """Return the ``traceparent`` of a span; None without an SDK."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span, Context()))
    return carrier.get("traceparent")


def _parse_stored(stored: str | None) -> tuple[str | None, str | None]:
    """Return the ``traceparent`` of the enqueue and of the last attempt; None where it is missing."""
    enqueued, _, previous = (stored or "").partition(" ")
    return (None if enqueued in {"", _NONE} else enqueued), previous or None


def _link(parent: str | None, role: str) -> Link | None:
    if parent is None:
        return None
    context = trace.get_current_span(_PROPAGATOR.extract({"traceparent": parent}, Context())).get_span_context()
    return Link(context, {"redrive.link": role}) if context.is_valid else None


def _now() -> int:
    now: datetime = SystemClock().now()
    return int(now.timestamp() * 1_000_000) * 1000
