"""A trace across processes: one enqueues, a second runs the first attempt, and a third runs the second attempt."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redrive import App

WORKER = Path(__file__).with_name("tracing_worker.py")


@pytest.mark.acceptance
def test_links_lead_over_processes(tmp_path: Path, spans: InMemorySpanExporter):
    """In one process the second attempt is linked to the first and to the enqueue of two other processes."""
    url, out = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "spans"
    out.touch()
    app = App(url)

    @app.task(retry="1 1s")
    async def work() -> None:
        """Return at once; it runs in another process."""

    work.enqueue()
    app.close()
    for _ in range(2):
        subprocess.run([sys.executable, WORKER, url, out], check=True, timeout=60)
    (enqueue,) = [format(span.context.span_id, "016x") for span in spans.get_finished_spans()]
    first, second = map(msgspec.json.decode, out.read_text().splitlines())

    assert (1, {"enqueue": enqueue}) == (first["attempt"], first["links"])
    assert (2, {"enqueue": enqueue, "previous attempt": first["span"]}) == (second["attempt"], second["links"])
