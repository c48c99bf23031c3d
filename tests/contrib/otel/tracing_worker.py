"""A worker process that writes spans to a file and stops after one attempt: ``tracing_worker.py DATABASE SPANS``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from redrive import App, observe
from redrive.contrib import otel
from redrive.runtime.worker import Worker

OUT = Path(sys.argv[2]).open("a")  # noqa: SIM115 - until the process ends
app = App(sys.argv[1])


@app.task(retry="1 1s")
async def work() -> None:
    """Fail at the first attempt."""
    if OUT.tell() == 0:
        raise ConnectionError


def written(span: ReadableSpan) -> str:
    """Return a span as one line."""
    line = {
        "attempt": span.attributes["redrive.attempt"],
        "span": format(span.context.span_id, "016x"),
        "links": {link.attributes["redrive.link"]: format(link.context.span_id, "016x") for link in span.links},
    }
    return msgspec.json.encode(line).decode() + "\n"


async def main() -> None:
    """Run until an attempt has ended."""
    provider = TracerProvider()
    worker = Worker(app)

    def stop(event: observe.Event) -> None:
        """Stop after one attempt, whatever its outcome."""
        if isinstance(event, observe.JobRetryScheduled | observe.JobSucceeded):
            worker.stop()

    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=OUT, formatter=written)))
    with observe.add(stop), observe.add(otel.Tracing(provider)):
        await worker.run()
    app.close()


asyncio.run(main())
