"""Waiting for the results of several jobs at once."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import App, GiveUp
from redrive.app.tasks import waiting
from redrive.errors import JobCancelled, JobDead, JobNotFound, ResultTimeout
from redrive.runtime.worker import Worker
from redrive.stores.operations import workers
from redrive.testing import drain


@pytest.fixture
def double(app: App):
    """Return a task."""

    @app.task
    def double(number: int) -> int | None:
        """Return twice the number, None for zero, and refuse negative ones."""
        if number < 0:
            raise GiveUp("negative")
        return 2 * number or None

    return double


def test_results_are_in_the_order_of_the_jobs(app: App, double, monkeypatch: pytest.MonkeyPatch):
    """Results of several jobs come as one list, in either colour and in any number of reads."""
    jobs = double.enqueue_many([3, 0, 2])
    drain(app)

    assert [6, None, 4] == app.results(jobs)
    monkeypatch.setattr(waiting, "BATCH", 2)
    assert [4, 6, 4] == asyncio.run(app.aresults([jobs[2], jobs[0], jobs[2]], timeout="5s"))
    assert [] == app.results([])


def test_the_first_failure_is_raised(app: App, double):
    """Jobs that have no result raise their error, unless errors are asked for as values."""
    jobs = double.enqueue_many([1, -1, 2])
    jobs[2].cancel("enough")
    drain(app)

    with pytest.raises(JobDead, match=r"job 2 \(double\) gave up: negative"):
        app.results(jobs)
    first, second, third = app.results(jobs, return_exceptions=True)
    assert (2, JobDead, JobCancelled) == (first, type(second), type(third))
    assert "job 3 (double) was cancelled: enough" == str(third)


def test_unfinished_jobs_are_counted_when_the_time_is_over(app: App, double):
    """Timeouts name the number of jobs that have not ended, and why the first one has not."""
    jobs = double.enqueue_many([1, 2])
    drain(app)
    jobs += double.options(delay="1h").enqueue_many([3, 4])

    with pytest.raises(ResultTimeout, match=r"^2 of 4 jobs have not ended after 0s: job 3 is ready: .*due in 1h"):
        app.results(jobs, timeout="0s")
    with pytest.raises(ResultTimeout, match="^2 of 4 jobs have not ended after 10ms"):
        asyncio.run(app.aresults(jobs, timeout="10ms"))


IN_MEMORY = (
    "no worker is alive; a database in memory needs a worker in this process: redrive.runtime.worker.Worker(app).run()"
)


def test_a_wait_without_a_worker_is_logged_once(
    app: App, double, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """After three seconds the log names the job and what is missing, and so does the text of the timeout."""
    assert 3.0 == waiting.PATIENCE
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    job = double.enqueue(1)
    waits = [
        lambda: job.result(timeout="30ms"),
        lambda: asyncio.run(job.aresult(timeout="30ms")),
        lambda: app.results([job], timeout="30ms"),
        lambda: asyncio.run(app.aresults([job], timeout="30ms")),
    ]

    for wait in waits:
        caplog.clear()
        with pytest.raises(ResultTimeout) as error:
            wait()

        assert (
            str(error.value).endswith(f"is ready after 30ms: due since 0ms, {IN_MEMORY}")
            or str(error.value) == f"1 of 1 jobs have not ended after 30ms: job 1 is ready: due since 0ms, {IN_MEMORY}"
        )
        assert [f"job 1 (double) is waited for, and is due since 0ms without a worker for it: {IN_MEMORY}"] == [
            record.getMessage() for record in caplog.records
        ]
        assert ["WARNING"] == [record.levelname for record in caplog.records]


def test_a_wait_names_the_command_that_starts_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A database of several processes needs another command for each that is missing."""
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    app = App(f"sqlite:///{tmp_path}/app.db")
    app.reference = "shop:app"
    job = app.task(name="send", queue="mail")(lambda: None).enqueue()

    with pytest.raises(
        ResultTimeout, match=r"no worker is alive; run: redrive worker shop:app \(of sqlite:////.*/app.db\)$"
    ):
        job.result(timeout="10ms")
    app.store.run(workers.register("w", queues=("letters",), concurrency=1, lease_for=timedelta(hours=1)))
    with pytest.raises(ResultTimeout, match=r"queue 'mail'; run: redrive worker shop:app --queue mail \(of"):
        job.result(timeout="10ms")
    assert ["no worker is alive", "no live worker serves queue 'mail'"] == [
        record.getMessage().partition("for it: ")[2].partition(";")[0] for record in caplog.records
    ]
    app.close()


def test_a_wait_for_a_job_that_is_not_due_is_not_logged(
    app: App, double, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A worker may start until then."""
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)

    with pytest.raises(ResultTimeout, match=r"job 1 is ready after 10ms: scheduled: due in 1h$"):
        double.options(delay="1h").enqueue(1).result(timeout="10ms")

    assert [] == caplog.records


def test_a_missing_job_is_not_found(app: App, double):
    """Jobs that do not exist are named at once, however long the timeout."""
    with pytest.raises(JobNotFound, match="there is no job 404"):
        app.results([double.enqueue(1), app.job(404)], timeout="1h")


def test_a_job_that_was_rolled_back_is_not_found(tmp_path: Path):
    """Jobs of a transaction that was rolled back are not waited for."""
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def send() -> None:
        """Do nothing."""

    app.open()
    connection = sqlite3.connect(tmp_path / "jobs.db")
    job = send.enqueue(using=connection)
    connection.rollback()
    connection.close()

    with pytest.raises(JobNotFound, match="there is no job 1"):
        app.results([job])
    app.close()


def test_results_arrive_while_a_worker_runs(tmp_path: Path):
    """Threads that wait get the results of jobs that a worker runs at that time."""
    app = App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")

    @app.task
    def square(number: int) -> int:
        """Return the square."""
        return number * number

    jobs = square.enqueue_many(range(20))
    found: list[int] = []
    waiter = threading.Thread(target=lambda: found.extend(app.results(jobs, timeout="30s")))
    waiter.start()

    async def work() -> None:
        """Work until the thread has its results."""
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(waiter.join)
        worker.stop()
        await running

    asyncio.run(work())
    assert [number * number for number in range(20)] == found
    app.close()
