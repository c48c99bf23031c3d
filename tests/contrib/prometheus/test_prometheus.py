"""Prometheus: counters of events, gauges of the database, and the server for scrapes."""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from collections.abc import Iterator
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from redrive import App, observe
from redrive.contrib import prometheus
from redrive.errors import ConfigurationError, StoreUnreachable
from redrive.observe.logs import OF_APP
from redrive.stores.operations import queues, workers
from redrive.testing import VirtualClock, drain


@pytest.fixture
def registry() -> CollectorRegistry:
    """Return a registry that only this test uses."""
    return CollectorRegistry()


@pytest.fixture
def app() -> Iterator[App]:
    """Return an app in memory with virtual time."""
    app = App("memory://", clock=VirtualClock())
    yield app
    app.close()


@pytest.fixture
def collector(app: App, registry: CollectorRegistry) -> prometheus.Collector:
    """Return a collector with the app's clock."""
    collector = prometheus.Collector(app, clock=app.clock, limit=3)
    registry.register(collector)
    return collector


def test_attempts_are_counted_by_their_outcome(app: App, registry: CollectorRegistry):
    """Count two jobs, each of which is retried once and then dies."""

    @app.task(retry="1 1s", queue="mail")
    def work() -> None:
        raise ConnectionError

    with prometheus.metrics(registry=registry):
        work.enqueue_many([(), ()])
        drain(app)
    labels = {"task": "work", "queue": "mail", "kind": "task"}

    def value(name: str, **more: str) -> float | None:
        return registry.get_sample_value(name, labels | more)

    assert 2 == value("redrive_jobs_enqueued_total")
    assert 2 == value("redrive_job_attempts_total", outcome="retried", reason="ERROR")
    assert 2 == value("redrive_job_attempts_total", outcome="died", reason="ERROR")
    assert 2 == value("redrive_job_duration_seconds_count", outcome="died")
    assert 4 == value("redrive_job_waiting_seconds_count")


def test_the_number_of_series_is_bounded(registry: CollectorRegistry):
    """Count a hundred of ten thousand tasks by name, and the others together."""
    with prometheus.metrics(registry=registry):
        for number in range(10_000):
            observe.emit(observe.JobCaught(task=f"task-{number}", queue="q", job_id=number, catch_id=number))
    lines = [
        line for line in generate_latest(registry).decode().splitlines() if line.startswith("redrive_jobs_caught_t")
    ]

    assert 101 == len(lines)
    assert 'redrive_jobs_caught_total{kind="task",queue="q",task="other"} 9900.0' in lines


def test_gauges_show_queue_depths_and_workers(app: App, registry: CollectorRegistry, collector):
    """Gauges show jobs by queue and state, the age of the oldest due job, and the live workers."""

    @app.task
    def work() -> None:
        """Do not run."""

    work.enqueue_many([(), ()])
    work.options(delay="1h").enqueue()
    app.store.run(workers.register("w", concurrency=7, lease_for=timedelta(seconds=15), now=app.now()))
    app.clock.advance(10)

    assert 2 == registry.get_sample_value("redrive_queue_jobs", {"queue": "default", "standing": "due"})
    assert 1 == registry.get_sample_value("redrive_queue_jobs", {"queue": "default", "standing": "later"})
    assert 10 == registry.get_sample_value("redrive_queue_oldest_due_seconds", {"queue": "default"})
    assert (1, 7) == tuple(registry.get_sample_value(name) for name in ("redrive_workers", "redrive_worker_slots"))
    assert 0 == registry.get_sample_value("redrive_workers_failing")
    app.clock.advance(10)
    assert 0 == registry.get_sample_value("redrive_workers")


def test_a_count_that_reached_its_limit_is_marked(
    app: App, registry: CollectorRegistry, collector, monkeypatch: pytest.MonkeyPatch
):
    """A gauge beside the count says whether there may be more jobs; delayed jobs of one task hide no due ones."""

    @app.task
    def a_reminder() -> None:
        """Do not run."""

    @app.task
    def send() -> None:
        """Do not run."""

    monkeypatch.setattr(queues, "MOST", 3)
    a_reminder.options(delay="30d").enqueue_many([()] * 5)
    send.enqueue_many([(), ()])
    names = ("redrive_queue_jobs", "redrive_queue_jobs_capped")
    shown = [
        tuple(registry.get_sample_value(name, {"queue": "default", "standing": each}) for name in names)
        for each in ("due", "later")
    ]

    assert [(2, 0), (3, 1)] == shown


def test_queues_beyond_the_limit_are_summed(app: App, registry: CollectorRegistry, collector):
    """With a limit of three names, the jobs of the other seven queues are added up, and so is their age."""

    @app.task
    def work() -> None:
        """Do not run."""

    for number in range(10):
        work.options(queue=f"q{number}").enqueue()
    counts = [
        sample for metric in collector.collect() for sample in metric.samples if sample.name == "redrive_queue_jobs"
    ]

    assert {"q0": 1, "q1": 1, "q2": 1, "other": 7} == {each.labels["queue"]: each.value for each in counts}
    assert 0 == registry.get_sample_value("redrive_queue_oldest_due_seconds", {"queue": "other"})


def test_scrapes_share_a_cached_read_of_the_database(app: App, collector, monkeypatch):
    """Within ten seconds the cached values are returned."""
    reads = []
    monkeypatch.setattr(app.store, "run", lambda operation: reads.append(operation.name) or real(operation))
    real = type(app.store).run.__get__(app.store)
    for _ in range(3):
        list(collector.collect())
    app.clock.advance(9.9)
    list(collector.collect())
    within = len(reads)
    app.clock.advance(0.1)
    list(collector.collect())

    assert (3, 6) == (within, len(reads))


def test_an_unreachable_database_fails_no_scrape(app: App, registry: CollectorRegistry, collector, monkeypatch):
    """If the database is unavailable, one gauge shows it, the others are missing, and the counters remain."""

    def away(_: object) -> None:
        raise StoreUnreachable("away")

    monkeypatch.setattr(app.store, "run", away)

    assert 0 == registry.get_sample_value("redrive_store_up")
    assert None is registry.get_sample_value("redrive_workers")


def test_registering_opens_no_database(tmp_path, registry: CollectorRegistry):
    """Only the first scrape opens it."""
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    with prometheus.metrics(app, registry=registry):
        assert [] == list(tmp_path.iterdir())
        generate_latest(registry)
        assert [] != list(tmp_path.iterdir())
    app.close()


@pytest.mark.parametrize("address", [":0", "127.0.0.1:0"])
def test_metrics_are_served_on_loopback_by_default(registry: CollectorRegistry, address):
    """Without a host the server binds the loopback interface; its response is Prometheus's text format."""
    prometheus.PrometheusMetrics(registry)
    with prometheus.serve(address, registry=registry) as served:
        assert served.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(served.url, timeout=30) as reply:  # noqa: S310 - our own
            assert "redrive_job_attempts" in reply.read().decode()


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:", "127.0.0.1:99999", "localhost:http"])
def test_an_address_that_cannot_be_served_is_named(registry: CollectorRegistry, address):
    """Its error contains the address, in one line."""
    with pytest.raises(ConfigurationError) as raised:
        prometheus.serve(address, registry=registry)

    assert address in str(raised.value)
    assert 1 == len(str(raised.value).splitlines())


def test_the_gauges_can_be_read_in_any_thread(app: App, registry: CollectorRegistry, collector):
    """Scrapes run in a thread of the server, not in the one in which the app was made."""
    assert 1 == asyncio.run(asyncio.to_thread(registry.get_sample_value, "redrive_store_up"))


@pytest.fixture
def both(app: App) -> Iterator[dict[str, App]]:
    """Return two apps by their names."""
    other = App("memory://", clock=VirtualClock())
    yield {"a": app, "b": other}
    other.close()


def test_metrics_of_several_apps_have_the_name_of_the_app(both: dict[str, App], registry: CollectorRegistry):
    """Counters have that of the worker that emits the event, gauges that of the database."""
    for name, app in both.items():
        app.task(name="work")(lambda: None)
        app.named("work").enqueue_many([()] * (1 if name == "a" else 2))
    labels = {"queue": "default", "standing": "due"}
    with prometheus.metrics(both, registry=registry):
        due = [registry.get_sample_value("redrive_queue_jobs", {"app": name, **labels}) for name in both]
        for name, app in both.items():
            token = OF_APP.set(name)
            drain(app)
            OF_APP.reset(token)
        text = generate_latest(registry).decode()
    labels = {"task": "work", "queue": "default", "kind": "task", "outcome": "succeeded", "reason": ""}
    ended = [registry.get_sample_value("redrive_job_attempts_total", {"app": name, **labels}) for name in both]

    assert ([1, 2], [1, 2]) == (due, ended)
    assert 1 == text.count("# TYPE redrive_store_up gauge")


def test_a_database_without_an_answer_leaves_out_its_own_gauges(
    both: dict[str, App], registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
):
    """A scrape ends, no second thread asks meanwhile, and the gauges are back when the database has answered."""
    asked, answers = [], threading.Event()
    gauges = prometheus.Collector._gauges

    def slow(self: prometheus.Collector) -> object:
        if self._app is both["b"]:
            asked.append(1)
            answers.wait(60)
        return gauges(self)

    monkeypatch.setattr(prometheus.Collector, "_gauges", slow)
    monkeypatch.setattr(prometheus, "PATIENCE", 0.05)
    with prometheus.metrics(both, registry=registry):
        first = [registry.get_sample_value("redrive_store_up", {"app": name}) for name in both]
        again = registry.get_sample_value("redrive_workers", {"app": "b"})
        answers.set()
        monkeypatch.setattr(prometheus, "PATIENCE", 60)
        last = registry.get_sample_value("redrive_store_up", {"app": "b"})

    assert ([1, 0], None, 1, 1) == (first, again, last, len(asked))


def test_an_error_of_a_reading_is_that_of_the_scrape(
    both: dict[str, App], registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
):
    """As with one app."""

    def fail(_: prometheus.Collector) -> object:
        raise ValueError("a defect")

    monkeypatch.setattr(prometheus.Collector, "_gauges", fail)
    with prometheus.metrics(both, registry=registry), pytest.raises(ValueError, match="a defect"):
        generate_latest(registry)
