"""Metrics for Prometheus: what has happened in this process, and how full the queues are.

One call in a worker, or in whatever process is scraped::

    from redrive.contrib import prometheus

    prometheus.metrics(app)

From the events come counters and histograms (`redrive.observe.measures`). They are of this process, so each process
that runs or enqueues jobs is scraped. `Collector` gives gauges of the database: jobs by queue and by what they are
doing, how long the first has been due, workers alive. Those are the same wherever they are asked for: one process is
enough, and where several are scraped, take the maximum and not the sum.

**The price of a scrape** is bounded. The gauges are read once in `EVERY`, however often somebody scrapes, from indexes
of jobs that have not ended, and no further than ten thousand jobs of a queue
(`redrive.stores.operations.queue_metrics`).

**The number of series** is bounded: labels are names of tasks, queues and calls, outcomes, reasons and rules; none is
an id or a text. Each has a number of values that it may take, 100 unless you say otherwise, and what comes later is
counted as ``other``.
"""

from __future__ import annotations

from collections import Counter as Sums
from collections.abc import Iterator
from datetime import timedelta
from threading import Lock, Thread
from types import TracebackType
from typing import Self
from wsgiref.simple_server import WSGIServer

import prometheus_client
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector as BaseCollector

from redrive import observe
from redrive.app.app import App
from redrive.clock import Clock, SystemClock
from redrive.errors import ConfigurationError, StoreError
from redrive.observe import Bounded, Event
from redrive.observe.logs import logger
from redrive.observe.measures import BUCKETS, METRICS, Metric, measures
from redrive.stores.operations.clock import difference
from redrive.stores.operations.queue_metrics import Depths, DepthState, depths

__all__ = ["EVERY", "Collector", "Metrics", "Served", "metrics", "serve"]

log = logger("redrive.prometheus")

EVERY = timedelta(seconds=10)
"""How long what was read of the database is given out again."""


class Metrics:
    """The sink that counts and measures.

    Args:
        registry: where its metrics are registered.
        limit: distinct values of each label.

    Raises:
        ValueError: they are registered there already.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, limit: int = 100) -> None:
        self._bounded = Bounded(limit)
        self._counters: dict[str, prometheus_client.Counter] = {}
        self._histograms: dict[str, prometheus_client.Histogram] = {}
        for each in METRICS:
            name = _name(each)
            if each.seconds:
                self._histograms[each.name] = prometheus_client.Histogram(
                    name, each.help, each.labels, registry=registry, buckets=BUCKETS
                )
            else:
                self._counters[each.name] = prometheus_client.Counter(name, each.help, each.labels, registry=registry)

    def __call__(self, event: Event) -> None:
        """Book what an event adds."""
        for each in measures(event):
            pairs = zip(each.metric.labels, each.values, strict=True)
            values = [self._bounded.value(label, value) for label, value in pairs]
            if each.metric.seconds:
                self._histograms[each.metric.name].labels(*values).observe(each.amount)
            else:
                self._counters[each.metric.name].labels(*values).inc(each.amount)


def _name(metric: Metric) -> str:
    name = metric.name.replace(".", "_")
    return f"{name}_seconds" if metric.seconds else name


class Collector(BaseCollector):
    """Gauges of the database, read when somebody scrapes.

    Args:
        app: whose.
        every: how long what was read is given out again.
        limit: distinct queues; the others are added up as ``other``.
        clock: tells when it is time to read again.
    """

    def __init__(self, app: App, *, every: timedelta = EVERY, limit: int = 100, clock: Clock | None = None) -> None:
        self._app = app
        self._every = every.total_seconds()
        self._bounded = Bounded(limit)
        self._clock = clock or SystemClock()
        self._lock = Lock()
        self._read_at = float("-inf")
        self._read: tuple[GaugeMetricFamily, ...] = ()

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Say nothing in advance: registering it must not open the database."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Give what there is, read now or a moment ago; where the database is away, only that it is."""
        with self._lock:
            now = self._clock.monotonic()
            if now >= self._read_at + self._every:
                self._read, self._read_at = self._gauges(), now
            return iter(self._read)

    def _gauges(self) -> tuple[GaugeMetricFamily, ...]:
        up = GaugeMetricFamily("redrive_store_up", "Could the database be read?")
        try:
            full = self._app.store.run(depths(now=self._app.now()))
            alive = [worker for worker in self._app.workers.select() if worker.expires_at > full.at]
            off = self._app.store.run(difference()) if self._app.store.local else timedelta(0)
        except StoreError as error:
            log.warning("the queues cannot be read: %s", error)
            up.add_metric([], 0)
            return (up,)
        up.add_metric([], 1)
        workers = GaugeMetricFamily("redrive_workers", "Workers that are alive.", value=len(alive))
        slots = sum(worker.concurrency for worker in alive)
        capacity = GaugeMetricFamily("redrive_worker_slots", "Attempts that these can run at once.", value=slots)
        failing = GaugeMetricFamily(
            "redrive_workers_failing",
            "Workers that are alive, with a background duty that fails because of a defect.",
            value=sum(worker.trouble is not None for worker in alive),
        )
        clock = GaugeMetricFamily(
            "redrive_clock_step_seconds",
            "By how much the clock of the machine was set without being followed yet; always 0 on PostgreSQL.",
            value=off.total_seconds(),
        )
        return (up, workers, capacity, failing, clock, self._jobs(full), self._oldest(full))

    def _jobs(self, full: Depths) -> GaugeMetricFamily:
        sums: Sums[tuple[str, str]] = Sums()
        for line in full.queues:
            sums[self._bounded.value("queue", line.queue), line.standing.value] += line.jobs
        family = GaugeMetricFamily(
            "redrive_queue_jobs", "Jobs that have not ended, and dead ones.", labels=["queue", "standing"]
        )
        for labels, jobs in sums.items():
            family.add_metric(labels, jobs)
        return family

    def _oldest(self, full: Depths) -> GaugeMetricFamily:
        ages: dict[str, float] = {}
        for line in full.queues:
            if line.standing is DepthState.DUE and line.oldest_at is not None:
                queue = self._bounded.value("queue", line.queue)
                ages[queue] = max(ages.get(queue, 0.0), (full.at - line.oldest_at).total_seconds())
        family = GaugeMetricFamily(
            "redrive_queue_oldest_due_seconds", "How long the first job of a queue has been due.", labels=["queue"]
        )
        for queue, age in ages.items():
            family.add_metric([queue], age)
        return family


def metrics(
    app: App | None = None, *, registry: CollectorRegistry = REGISTRY, limit: int = 100, every: timedelta = EVERY
) -> observe.Registration[Metrics]:
    """Count and measure from now on, and give gauges of an app's database.

    Args:
        app: whose database; None for no gauges.
        registry: where all is registered.
        limit: distinct values of each label; what comes later is counted as ``other``.
        every: how long what was read of the database is given out again.

    Returns:
        The registration of the sink.

    Raises:
        ValueError: this was called before for the same registry.
    """
    sink = Metrics(registry, limit=limit)
    if app is not None:
        registry.register(Collector(app, every=every, limit=limit))
    return observe.add(sink)


class Served:
    """A server that Prometheus scrapes, in a thread that ends with the process, or with a ``with`` block.

    Attributes:
        url: where.
    """

    def __init__(self, url: str, server: WSGIServer, thread: Thread) -> None:
        self.url = url
        self._server = server
        self._thread = thread

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self.close()


def serve(address: str, *, registry: CollectorRegistry = REGISTRY) -> Served:
    """Let Prometheus scrape this process.

    Args:
        address: ``HOST:PORT``; without a host it is the loopback interface, and with port 0 any port that is free.
        registry: what is shown.

    Returns:
        The server, and its URL.

    Raises:
        ConfigurationError: the address cannot be read, or cannot be bound.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdecimal():
        message = f"{address!r} is no address to serve metrics at: give HOST:PORT, such as 127.0.0.1:9464"
        raise ConfigurationError(message)
    try:
        server, thread = prometheus_client.start_http_server(int(port), host, registry)
    except (OSError, OverflowError) as error:
        message = f"metrics cannot be served at {address}: {error}"
        raise ConfigurationError(message) from error
    shown = f"[{host}]" if ":" in host else host
    return Served(f"http://{shown}:{server.server_port}/metrics", server, thread)
