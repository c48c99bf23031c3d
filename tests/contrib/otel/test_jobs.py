"""Spans of durable jobs: one for each enqueue and each attempt, linked across retries."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from redrive import App, CatchRequest, observe
from redrive.contrib import otel
from redrive.errors import Cancel, Snooze
from redrive.stores.operations import jobs
from redrive.stores.query import writes
from redrive.testing import drain
from tests.runtime.helpers import PATIENCE, app_on, working


def links(span) -> list[tuple[str, int]]:
    """Return the links of a span by their role."""
    return [(link.attributes["redrive.link"], link.context.span_id) for link in span.links]


def test_each_attempt_is_a_span_linked_to_the_enqueue_and_to_the_one_before(app: App, spans: InMemorySpanExporter):
    """Three attempts have three traces; each is linked to the enqueue and to the previous attempt."""

    @app.task(retry="5 1s", queue="mail")
    def work() -> None:
        if len(spans.get_finished_spans()) < 3:
            raise ConnectionError("connection refused")

    number = work.enqueue().id
    drain(app)
    enqueue, first, second, third = spans.get_finished_spans()

    assert ("enqueue work", SpanKind.PRODUCER) == (enqueue.name, enqueue.kind)
    assert [("process work", SpanKind.CONSUMER)] * 3 == [(each.name, each.kind) for each in (first, second, third)]
    assert [("enqueue", enqueue.context.span_id)] == links(first)
    assert [("enqueue", enqueue.context.span_id), ("previous attempt", first.context.span_id)] == links(second)
    assert [("enqueue", enqueue.context.span_id), ("previous attempt", second.context.span_id)] == links(third)
    assert 4 == len({span.context.trace_id for span in (enqueue, first, second, third)})
    assert [None] * 3 == [span.parent for span in (first, second, third)]
    assert {
        "messaging.system": "redrive",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(number),
        "redrive.task": "work",
        "redrive.attempt": 2,
        "redrive.waited": 0.0,
        "redrive.delay": pytest.approx(1.0, abs=0.5),
    } == dict(second.attributes)


def test_an_error_is_recorded_and_is_the_status(app: App, spans: InMemorySpanExporter):
    """Failed attempts have the exception and the status of an error; successful ones have neither."""

    @app.task(retry="1 1s")
    def work() -> None:
        if len(spans.get_finished_spans()) == 1:
            raise ConnectionError("connection refused")

    work.enqueue()
    drain(app)
    _, failed, succeeded = spans.get_finished_spans()

    assert (StatusCode.ERROR, "ConnectionError: connection refused") == (
        failed.status.status_code,
        failed.status.description,
    )
    assert ["exception"] == [event.name for event in failed.events]
    assert (StatusCode.UNSET, ()) == (succeeded.status.status_code, succeeded.events)


@pytest.mark.parametrize(("signal", "outcome"), [(Snooze("1h"), "snoozed"), (Cancel("enough"), "cancelled")])
def test_a_signal_is_no_error(app: App, spans: InMemorySpanExporter, signal, outcome):
    """Handlers that snooze or cancel their job have not failed."""

    @app.task
    def work() -> None:
        raise signal

    work.enqueue()
    drain(app, within="1s")
    _, span = spans.get_finished_spans()

    assert (StatusCode.UNSET, outcome) == (span.status.status_code, span.attributes["redrive.outcome"])


def test_spans_of_a_handler_are_children_of_its_attempt(
    app: App, spans: InMemorySpanExporter, provider: TracerProvider
):
    """In the handler the span of its attempt is the current one; after the drain it is not."""

    @app.task
    def work() -> None:
        with provider.get_tracer("mine").start_as_current_span("mine"):
            """Below the attempt."""

    work.enqueue()
    drain(app)
    _, mine, attempt = spans.get_finished_spans()

    assert attempt.context.span_id == mine.parent.span_id
    assert trace.INVALID_SPAN == trace.get_current_span()


def test_an_enqueue_is_in_the_trace_of_its_caller(app: App, spans: InMemorySpanExporter, provider: TracerProvider):
    """It is a child of the current span; a batch is one span with the number of jobs, and each job is linked to it."""

    @app.task
    def work(number: int) -> None:
        """Return at once."""

    with provider.get_tracer("mine").start_as_current_span("mine") as mine:
        work.enqueue_many([1, 2])
    drain(app)
    enqueue, _, *attempts = spans.get_finished_spans()

    assert mine.get_span_context().span_id == enqueue.parent.span_id
    assert 2 == enqueue.attributes["messaging.batch.message_count"]
    assert [[("enqueue", enqueue.context.span_id)]] * 2 == [links(each) for each in attempts]


def test_a_catch_job_is_linked_to_what_it_catches(app: App, spans: InMemorySpanExporter):
    """Catch jobs are linked to the enqueue and to the last attempt of the dead job."""

    @app.task
    def recover(request: CatchRequest) -> None:
        """Handle the dead job."""

    @app.task(retry="0 1s catch recover")
    def work() -> None:
        raise ValueError

    work.enqueue()
    drain(app)
    enqueue, died, caught = spans.get_finished_spans()

    assert [("enqueue", enqueue.context.span_id), ("previous attempt", died.context.span_id)] == links(caught)


def test_a_job_that_was_enqueued_untraced_is_linked_to_its_attempts(app: App, provider: TracerProvider, exporter):
    """Without a span of the enqueue, the attempts are linked to each other."""

    @app.task(retry="1 1s")
    def work() -> None:
        raise ValueError

    work.enqueue()
    with observe.only(otel.Tracing(provider)):
        drain(app)
    first, second = exporter.get_finished_spans()

    assert ([], [("previous attempt", first.context.span_id)]) == (links(first), links(second))


def test_without_an_sdk_no_trace_is_stored(app: App):
    """Without an SDK the API makes no spans, so there is nothing to link to."""

    @app.task(retry="1 1s")
    def work() -> None:
        raise ValueError

    with observe.only(otel.Tracing()):
        number = work.enqueue().id
        drain(app)

    assert None is app.store.run(jobs.trace(number))


def test_an_unreadable_trace_is_no_link(app: App, spans: InMemorySpanExporter):
    """Stored traces of another format, such as another tracer's, do not fail the attempt."""

    @app.task
    def work() -> None:
        """Return at once."""

    with observe.only():
        work.enqueue()
        app.store.run(writes(jobs.put_traces)([(1, "what is this")]))
    drain(app)
    (span,) = spans.get_finished_spans()

    assert [] == links(span)


def test_a_stopped_worker_ends_the_span_once(tmp_path: Path, spans: InMemorySpanExporter):
    """Interrupted attempts have one span, which has ended and is not an error."""
    app = app_on(tmp_path)

    async def scenario() -> None:
        runs = asyncio.Event()

        @app.task
        async def work() -> None:
            runs.set()
            await asyncio.Event().wait()

        async with working(app):
            await work.aenqueue()
            await asyncio.wait_for(runs.wait(), PATIENCE)

    asyncio.run(scenario())
    app.close()
    attempts = [span for span in spans.get_finished_spans() if span.kind is SpanKind.CONSUMER]

    assert ["interrupted"] == [span.attributes["redrive.outcome"] for span in attempts]
    assert StatusCode.UNSET is attempts[0].status.status_code
