"""Metrics for Prometheus: counters of the events in this process, and gauges of the queues.

One call in a worker, or in any process that is scraped::

    from redrive.contrib import prometheus

    prometheus.metrics(app)

In a process with several apps, ``prometheus.metrics({"shop_a": app_a, "shop_b": app_b})`` adds the label ``app``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future
from datetime import timedelta
from threading import Thread
from typing import Self
from wsgiref.simple_server import WSGIServer

from redrive import observe
from redrive.app.app import App
from redrive.clock import Clock, SystemClock
from redrive.contrib import extra
from redrive.engine.counters import BUCKETS
from redrive.engine.records import Count
from redrive.errors import ConfigurationError, StoreError
from redrive.forks import ForkSafeLock
from redrive.observe import Bounded, Event
from redrive.observe.logs import OF_APP, logger
from redrive.observe.measures import METRICS, Metric, measures
from redrive.stores.operations.clock import difference
from redrive.stores.operations.queues import Depths, DepthState, counted, depths

with extra("prometheus"):
    import prometheus_client
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector as BaseCollector

__all__ = ["EVERY", "Collector", "PrometheusMetrics", "Served", "metrics", "serve"]

log = logger("redrive.prometheus")

EVERY = timedelta(seconds=10)
"""The time for which values of the database are cached."""

# Seconds that a scrape waits for the databases of several apps.
PATIENCE = 5.0


class PrometheusMetrics:
    """A sink that updates counters and histograms.

    Args:
        registry: the registry of its metrics.
        limit: the number of distinct values of each label.
        by_app: add the label ``app``, for a process with workers of several apps: the app whose worker emits an event.

    Raises:
        ValueError: the metrics are registered already.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, limit: int = 100, by_app: bool = False) -> None:
        self._bounded = Bounded(limit)
        self._by_app = by_app
        more = ("app",) if by_app else ()
        self._counters: dict[str, prometheus_client.Counter] = {}
        self._histograms: dict[str, prometheus_client.Histogram] = {}
        for each in METRICS:
            name = _name(each)
            if each.seconds:
                self._histograms[each.name] = prometheus_client.Histogram(
                    name, each.help, each.labels + more, registry=registry, buckets=BUCKETS
                )
            else:
                self._counters[each.name] = prometheus_client.Counter(
                    name, each.help, each.labels + more, registry=registry
                )

    def __call__(self, event: Event) -> None:
        """Add the numbers of an event."""
        for each in measures(event):
            pairs = zip(each.metric.labels, each.values, strict=True)
            values = [self._bounded.value(label, value) for label, value in pairs]
            if self._by_app:
                values.append(OF_APP.get())
            if each.metric.seconds:
                self._histograms[each.metric.name].labels(*values).observe(each.amount)
            else:
                self._counters[each.metric.name].labels(*values).inc(each.amount)


def _name(metric: Metric) -> str:
    name = metric.name.replace(".", "_")
    return f"{name}_seconds" if metric.seconds else name


class Collector(BaseCollector):
    """A collector of gauges of the database, which are read during a scrape.

    Args:
        app: the app with the database.
        every: the time for which values are cached.
        limit: the number of distinct queues; the others are added up as ``other``.
        clock: the clock of the cache.
    """

    def __init__(self, app: App, *, every: timedelta = EVERY, limit: int = 100, clock: Clock | None = None) -> None:
        self._app = app
        self._every = every.total_seconds()
        self._bounded = Bounded(limit)
        self._clock = clock or SystemClock()
        self._lock = ForkSafeLock()
        self._read_at = float("-inf")
        self._read: tuple[GaugeMetricFamily, ...] = ()

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Return no metrics: registration must not open the database."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the gauges, cached or read now; if the database is unavailable, only ``redrive_store_up``."""
        with self._lock:
            now = self._clock.monotonic()
            if now >= self._read_at + self._every:
                self._read, self._read_at = self._gauges(), now
            return iter(self._read)

    def _gauges(self) -> tuple[GaugeMetricFamily, ...]:
        try:
            full = self._app.store.run(depths(now=self._app.now()))
            alive = [worker for worker in self._app.workers.select() if worker.expires_at > full.at]
            off = self._app.store.run(difference()) if self._app.store.local else timedelta(0)
        except StoreError as error:
            log.warning("the queues cannot be read: %s", error)
            return (_up(0),)
        workers = GaugeMetricFamily("redrive_workers", "Workers that are alive.", value=len(alive))
        slots = sum(worker.concurrency for worker in alive)
        capacity = GaugeMetricFamily(
            "redrive_worker_slots", "Attempts that the live workers can run at once.", value=slots
        )
        failing = GaugeMetricFamily(
            "redrive_workers_failing",
            "Workers that are alive and have a failing background duty.",
            value=sum(worker.trouble is not None for worker in alive),
        )
        clock = GaugeMetricFamily(
            "redrive_clock_step_seconds",
            "Difference by which the machine's clock was set and which the store has not adopted yet; 0 on PostgreSQL.",
            value=off.total_seconds(),
        )
        return (_up(1), workers, capacity, failing, clock, *self._jobs(full), self._oldest(full))

    def _jobs(self, full: Depths) -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        sums: dict[tuple[str, str], Count] = defaultdict(lambda: Count(0))
        for queue in {line.queue: None for line in full.queues}:
            for state, count in counted(full.queues, queue).items():
                if count != Count(0):
                    sums[self._bounded.value("queue", queue), state.value] += count
        jobs = GaugeMetricFamily(
            "redrive_queue_jobs",
            "Jobs that have not ended, and dead jobs; at least as many if redrive_queue_jobs_capped is 1.",
            labels=["queue", "standing"],
        )
        capped = GaugeMetricFamily(
            "redrive_queue_jobs_capped",
            "1 if the count of these jobs has reached its limit, so that there may be more, otherwise 0.",
            labels=["queue", "standing"],
        )
        for labels, count in sums.items():
            jobs.add_metric(labels, count.value)
            capped.add_metric(labels, count.capped)
        return jobs, capped

    def _oldest(self, full: Depths) -> GaugeMetricFamily:
        ages: dict[str, float] = {}
        for line in full.queues:
            if line.standing is DepthState.DUE and line.oldest_at is not None:
                queue = self._bounded.value("queue", line.queue)
                ages[queue] = max(ages.get(queue, 0.0), (full.at - line.oldest_at).total_seconds())
        family = GaugeMetricFamily(
            "redrive_queue_oldest_due_seconds",
            "Time for which the oldest due job of a queue has been due.",
            labels=["queue"],
        )
        for queue, age in ages.items():
            family.add_metric([queue], age)
        return family


def _up(value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily("redrive_store_up", "1 if the database could be read, otherwise 0.", value=value)


class _Collectors(BaseCollector):
    """The gauges of several apps, each with the label ``app``.

    Each database is read by a thread of its own, so that one that does not answer leaves out its own gauges only.
    """

    def __init__(self, collectors: Mapping[str, Collector]) -> None:
        self._collectors = collectors
        self._readings: dict[str, Future[Iterable[GaugeMetricFamily]]] = {}

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Return no metrics: registration must not open the database."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the gauges of all apps."""
        readings = {name: self._reading(name) for name in self._collectors}
        futures.wait(readings.values(), timeout=PATIENCE)
        found: dict[str, GaugeMetricFamily] = {}
        for name, reading in readings.items():
            for each in reading.result() if reading.done() else (_up(0),):
                family = found.setdefault(each.name, GaugeMetricFamily(each.name, each.documentation))
                family.samples += [sample._replace(labels={"app": name, **sample.labels}) for sample in each.samples]
        return iter(found.values())

    def _reading(self, name: str) -> Future[Iterable[GaugeMetricFamily]]:
        """Begin to read a database, unless an earlier reading has not ended."""
        known = self._readings.get(name)
        if known is not None and not known.done():
            return known
        reading = self._readings[name] = Future()

        def read() -> None:
            """Set the result; the function of the thread."""
            try:
                reading.set_result(tuple(self._collectors[name].collect()))
            except Exception as error:  # noqa: BLE001 - raised by the scrape
                reading.set_exception(error)

        Thread(target=read, name="redrive-gauges", daemon=True).start()
        return reading


def metrics(
    app: App | Mapping[str, App] | None = None,
    *,
    registry: CollectorRegistry = REGISTRY,
    limit: int = 100,
    every: timedelta = EVERY,
) -> observe.Registration[PrometheusMetrics]:
    """Add the sink, and register the gauges of an app's database.

    Args:
        app: the app with the database; None for no gauges. Several apps by their names: all metrics then have the label
            ``app``.
        registry: the registry of all metrics.
        limit: the number of distinct values of each label; further values are counted as ``other``.
        every: the time for which values of the database are cached.

    Returns:
        The registration of the sink.

    Raises:
        ValueError: the registry has these metrics already.
    """
    sink = PrometheusMetrics(registry, limit=limit, by_app=isinstance(app, Mapping))
    if isinstance(app, Mapping):
        collectors = {name: Collector(each, every=every, limit=limit) for name, each in app.items()}
        registry.register(_Collectors(collectors))
    elif app is not None:
        registry.register(Collector(app, every=every, limit=limit))
    return observe.add(sink)


class Served:
    """A server for scrapes by Prometheus, in a thread that ends with the process or at the end of a ``with`` block.

    `url` is the address of the metrics.
    """

    def __init__(self, url: str, server: WSGIServer, thread: Thread) -> None:
        self.url = url
        self._server = server
        self._thread = thread

    def close(self) -> None:
        """Stop the server and its thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(address: str, *, registry: CollectorRegistry = REGISTRY) -> Served:
    """Serve the metrics of this process to Prometheus.

    Args:
        address: ``HOST:PORT``; the default host is the loopback interface, and port 0 selects a free port.
        registry: the registry of the metrics.

    Raises:
        ConfigurationError: the address is invalid, or cannot be bound.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdecimal():
        raise ConfigurationError(f"{address!r} is not an address for metrics: give HOST:PORT, such as 127.0.0.1:9464")
    try:
        server, thread = prometheus_client.start_http_server(int(port), host, registry)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"metrics cannot be served at {address}: {error}") from error
    shown = f"[{host}]" if ":" in host else host
    return Served(f"http://{shown}:{server.server_port}/metrics", server, thread)
