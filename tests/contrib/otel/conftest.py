"""Fixtures for OpenTelemetry: an SDK in memory, and its recorded spans."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redrive import App, observe
from redrive.contrib import otel
from redrive.testing import VirtualClock


@pytest.fixture
def app() -> Iterator[App]:
    """Return an app in memory with virtual time."""
    app = App("memory://", clock=VirtualClock())
    yield app
    app.close()


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    """Return the exporter that receives ended spans."""
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    """Return a tracer provider."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.fixture
def spans(exporter: InMemorySpanExporter, provider: TracerProvider) -> Iterator[InMemorySpanExporter]:
    """Add the tracing sink; ended spans are in `get_finished_spans`."""
    with observe.only(otel.Tracing(provider)):
        yield exporter
