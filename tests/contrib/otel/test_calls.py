"""Spans of calls in process: one for each attempt of a call that was retried."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from redrive import Backoff, Policy, observe
from redrive.contrib import otel
from redrive.policy import Failure

MOMENT = timedelta(milliseconds=1)
POLICY = Policy(on=ConnectionError, attempts=3, backoff=Backoff.constant("1ms"))


def failing(times: int):
    """Return a function that fails a number of times."""
    left = [times]

    def fetch() -> str:
        if left[0]:
            left[0] -= 1
            raise ConnectionError("connection refused")
        return "done"

    return fetch


def described(spans: InMemorySpanExporter) -> list[tuple[int, StatusCode, bool]]:
    """Return number and status of each span, and True if it is linked to the previous one."""
    before = [None, *spans.get_finished_spans()]
    return [
        (
            span.attributes["redrive.attempt"],
            span.status.status_code,
            [link.context.span_id for link in span.links] == [previous.context.span_id] if previous else not span.links,
        )
        for previous, span in zip(before, spans.get_finished_spans(), strict=False)
    ]


def test_each_attempt_of_a_retried_call_is_a_span(spans: InMemorySpanExporter):
    """Failed attempts have the status of an error; each is linked to the previous one, and they do not overlap."""
    POLICY.call(failing(2))
    times = [at for span in spans.get_finished_spans() for at in (span.start_time, span.end_time)]

    assert [(1, StatusCode.ERROR, True), (2, StatusCode.ERROR, True), (3, StatusCode.UNSET, True)] == described(spans)
    assert sorted(times) == times
    assert "connection refused" == spans.get_finished_spans()[0].events[0].attributes["exception.message"]


def test_asynchronous_calls_have_the_same_spans(spans: InMemorySpanExporter):
    """Concurrent calls do not link to each other's attempts."""

    async def scenario() -> None:
        async def fetch(left: list[int]) -> None:
            if left[0]:
                left[0] -= 1
                raise ConnectionError

        await asyncio.gather(*[POLICY.acall(fetch, [1]) for _ in range(3)])

    asyncio.run(scenario())
    finished = {span.context.span_id: span for span in spans.get_finished_spans()}
    linked = [link.context.span_id for span in finished.values() for link in span.links]

    assert [1, 1, 1, 2, 2, 2] == sorted(span.attributes["redrive.attempt"] for span in finished.values())
    assert 3 == len(set(linked))
    assert [1, 1, 1] == [finished[span_id].attributes["redrive.attempt"] for span_id in linked]


def test_a_call_that_gives_up_ends_with_its_last_attempt(spans: InMemorySpanExporter):
    """Its last span has the outcome; a later call of the same function is not linked to it."""
    fetch = failing(9)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            POLICY.call(fetch)
    finished = spans.get_finished_spans()

    assert [1, 2, 3] * 2 == [span.attributes["redrive.attempt"] for span in finished]
    assert ("gave up", ()) == (finished[2].attributes["redrive.outcome"], finished[3].links)


def test_an_interrupted_call_leaves_nothing_to_the_next(spans: InMemorySpanExporter):
    """Cancelled during its wait, a call emits no end; the next call of that name is not linked to it."""
    slow = POLICY.with_(backoff=Backoff.constant("1h"))

    async def scenario() -> None:
        async def fetch() -> None:
            raise ConnectionError

        for _ in range(2):
            call = asyncio.ensure_future(slow.acall(fetch))
            while not call.done() and len(spans.get_finished_spans()) <= len(finished):
                await asyncio.tasks.sleep(0)
            finished.append(1)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    finished: list[int] = []
    asyncio.run(scenario())

    assert [(1, ()), (1, ())] == [
        (span.attributes["redrive.attempt"], span.links) for span in spans.get_finished_spans()
    ]


def test_a_call_that_succeeds_at_once_has_no_span(spans: InMemorySpanExporter):
    """Calls without a retry make no span."""
    POLICY.call(failing(0))

    assert () == spans.get_finished_spans()


def test_a_sink_added_during_a_call_starts_at_the_next_event(provider, exporter: InMemorySpanExporter):
    """Sinks added during a call make a span without length and link, because they have not seen its first attempt."""
    event = observe.CallSucceeded(name="fetch", attempts=2, elapsed=POLICY.backoff.delay, waited=POLICY.backoff.delay)
    with observe.only(otel.Tracing(provider)):
        observe.emit(event)
    (span,) = exporter.get_finished_spans()

    assert (2, ()) == (span.attributes["redrive.attempt"], span.links)


def test_a_call_that_was_never_made_has_no_span(spans: InMemorySpanExporter):
    """Breakers that refuse a call end it without an attempt."""
    observe.emit(
        observe.CallGaveUp(
            name="fetch", attempts=0, elapsed=timedelta(0), waited=timedelta(0), rule="breaker", why="it is open"
        )
    )

    assert () == spans.get_finished_spans()


def test_an_interrupted_call_of_another_number_is_no_link(spans: InMemorySpanExporter):
    """Third attempts are not linked to the first attempt of another call."""
    POLICY.call(failing(1))
    failure = Failure((), "bad", "RESULT")
    first = observe.CallRetryScheduled(
        name="fetch",
        attempt=1,
        failure=failure,
        delay=timedelta(0),
        rule="backoff",
        waited=timedelta(0),
        elapsed=MOMENT,
    )
    observe.emit(first)
    observe.emit(observe.CallSucceeded(name="fetch", attempts=3, elapsed=MOMENT, waited=timedelta(0)))
    last = spans.get_finished_spans()[-1]

    assert (3, ()) == (last.attributes["redrive.attempt"], last.links)
