"""Metrics for OpenTelemetry: attempts by outcome, their duration and wait, and calls in process."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from redrive import App, Backoff, Policy, observe
from redrive.contrib import otel
from redrive.testing import drain


@pytest.fixture
def reader() -> InMemoryMetricReader:
    """Return the reader of the metrics."""
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader: InMemoryMetricReader):
    """Return a meter provider."""
    provider = MeterProvider([reader], shutdown_on_exit=False)
    yield provider
    provider.shutdown()


def points(reader: InMemoryMetricReader, name: str) -> dict[tuple[str, ...], float]:
    """Return the values of a metric by its attributes; of a histogram, the counts."""
    found = {}
    for resource in reader.get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if metric.name == name:
                    for point in metric.data.data_points:
                        key = tuple(str(value) for value in point.attributes.values())
                        found[key] = getattr(point, "value", None) or point.count
    return found


def test_attempts_are_counted_and_measured(app: App, provider: MeterProvider, reader: InMemoryMetricReader):
    """Count each attempt once, by task, queue, outcome and reason, but not by job id."""

    @app.task(retry="2 1s")
    def work() -> None:
        raise ConnectionError

    with observe.only(otel.OpenTelemetryMetrics(provider)):
        work.enqueue_many([(), ()])
        drain(app)

    assert {("work", "default", "task"): 2} == points(reader, "redrive.jobs.enqueued")
    job = ("work", "default", "task")
    assert {(*job, "retried", "ERROR"): 4, (*job, "died", "ERROR"): 2} == points(reader, "redrive.job.attempts")
    assert {(*job, "retried"): 4, (*job, "died"): 2} == points(reader, "redrive.job.duration")
    assert {job: 6} == points(reader, "redrive.job.waiting")


def test_calls_in_process_are_counted(provider: MeterProvider, reader: InMemoryMetricReader):
    """Count retries by the rule that chose the delay, and ends by the outcome of the call."""

    def fetch() -> None:
        raise ConnectionError

    with observe.only(otel.OpenTelemetryMetrics(provider)):
        Policy(on=ConnectionError, attempts=3, backoff=Backoff.constant(0)).outcome(fetch)

    assert [("backoff", 2)] == [(key[1], count) for key, count in points(reader, "redrive.call.retries").items()]
    assert [("gave up", "attempts", 1)] == [(*key[1:], count) for key, count in points(reader, "redrive.calls").items()]


def test_the_number_of_series_is_bounded(provider: MeterProvider, reader: InMemoryMetricReader):
    """Count a hundred of ten thousand queues by name, and the others together."""
    with observe.only(otel.OpenTelemetryMetrics(provider)):
        for number in range(10_000):
            observe.emit(observe.JobCaught(task="work", queue=f"tenant-{number}", job_id=number, catch_id=number))
    counted = points(reader, "redrive.jobs.caught")

    assert (101, 9_900) == (len(counted), counted["work", "other", "task"])
