"""Clocks step: that of the database, which rules, and that of a worker, which does not matter."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests import postgres
from tests.acceptance.chaos import audit, ended, everything, load, marks, sized
from tests.acceptance.processes import LONG, PATIENCE, Deployment, WorkerProcess
from tests.debian import needed

# The crossings, tests/stores/drivers/test_sqlite_clock.py and the simulation step clocks that are not real.
pytestmark = [*marks, pytest.mark.night]


def faketime() -> str | None:
    """Return the library that shifts the time of a process, if it is installed."""
    return next(map(str, Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)


SKEWED = """
import sys
from datetime import timedelta
from redrive.clock import SystemClock

real, wrong = SystemClock.now, timedelta(hours=float(sys.argv.pop(1)))
SystemClock.now = lambda self: real(self) + wrong

from redrive.cli import main
main()
"""


@pytest.fixture(name="stage", params=["sqlite", "postgres"])
def _stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """Return the app of the chaos tests."""
    with load(tmp_path, request.param) as stage:
        stage.lease_for = LONG
        yield stage


def step(stage: Deployment, hours: float) -> None:
    """Shift the clock of the database for all processes."""
    if stage.kind == "sqlite":
        with contextlib.closing(sqlite3.connect(stage.folder / "jobs.db", timeout=PATIENCE)) as db:
            db.executescript(
                "BEGIN IMMEDIATE; DROP VIEW redrive_clock; CREATE VIEW redrive_clock AS SELECT"
                " CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000"
                f" + {round(hours * 3600000000)} AS now; COMMIT"
            )
        return
    schema = (stage.folder / "url").read_text().rpartition("schema=")[2]
    with postgres.connect() as db:
        db.execute(
            f"CREATE OR REPLACE VIEW {schema}.redrive_clock AS"
            f" SELECT clock_timestamp() + make_interval(secs => {hours * 3600}) AS now"
        )


def test_the_clock_of_the_database_steps(stage: Deployment):
    """After steps of an hour forward and two hours back, jobs that were enqueued in between have run, none is lost,
    and none has ended twice."""
    held = stage.module.hold.enqueue_many(range(20))
    for _ in range(2):
        stage.ready_worker("--concurrency", "20")
    stage.until(lambda: len(stage.executions) == len(held))
    jobs = [*held]
    for _ in range(sized(1, 10)):
        for hours in (1, -1, 0):
            step(stage, hours)
            more = stage.module.flaky.enqueue_many(range(20))
            stage.until(lambda more=more: {"succeeded"} == {job.refresh().state for job in more})
            jobs += more
    stage.go()
    ended(stage)

    assert list(range(len(held))) == [job.result() for job in held]
    audit(stage, [job.id for job in jobs])


def test_a_step_of_the_clock_of_a_machine_is_not_followed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """On SQLite, after any step of the clock, no running job is lost, due jobs run, and a job that is due in 50 minutes
    waits."""
    monkeypatch.setenv("BEAT", "1s")
    with load(tmp_path, "sqlite") as stage:
        stage.lease_for = "5s"
        held = stage.module.hold.enqueue_many(range(10))
        for _ in range(2):
            stage.ready_worker("--concurrency", "10")
        stage.until(lambda: len(stage.executions) == len(held))
        stage.until(lambda: _anchored(stage))
        late = stage.module.quick.options(delay="50m").enqueue(1)
        jobs = [*held]
        for seconds in (20, 3600, -3600):
            step(stage, seconds / 3600)
            more = stage.module.quick.enqueue_many(range(20))
            stage.until(lambda more=more: {"succeeded"} == {job.refresh().state for job in more})
            jobs += more
            beats = {each.id: each.heartbeat_at for each in stage.app.workers.select()}
            stage.until(
                lambda beats=beats: all(beats[each.id] < each.heartbeat_at for each in stage.app.workers.select())
            )
        stage.go()
        stage.until(lambda: {"succeeded"} == {job.refresh().state for job in held})

        assert "ready" == late.refresh().state
        assert ["succeeded"] * len(jobs) == [each.outcome for job in jobs for each in job.attempts]


def _anchored(stage: Deployment) -> bool:
    with contextlib.closing(sqlite3.connect(stage.folder / "jobs.db", timeout=PATIENCE)) as db:
        return bool(db.execute("SELECT 1 FROM redrive_meta WHERE key = 'clock'").fetchall())


def test_the_clock_of_a_worker_does_not_matter(stage: Deployment):
    """With one worker five hours ahead and another five hours behind, retries are due by the clock of the database,
    and no lease is lost."""
    _check_work_of(
        [stage.run(sys.executable, "-c", SKEWED, hours, "worker", "work:app") for hours in ("5", "-5")], stage
    )


def test_the_clock_of_a_workers_machine_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Shift every clock in these processes, but not that of PostgreSQL."""
    with load(tmp_path, "postgres") as stage:
        stage.lease_for = LONG
        workers = []
        for hours in ("+5h", "-5h"):
            with monkeypatch.context() as environment:
                environment.setenv("LD_PRELOAD", needed("libfaketime", faketime))
                environment.setenv("FAKETIME", hours)
                environment.setenv("DONT_FAKE_MONOTONIC", "1")
                workers.append(stage.worker())
        _check_work_of(workers, stage)


def _check_work_of(workers: list[WorkerProcess], stage: Deployment) -> None:
    began = datetime.now(UTC)
    for worker in workers:
        stage.until(lambda worker=worker: worker.logged("serves all queues"))
    jobs = [*stage.module.flaky.enqueue_many(range(20)), *stage.module.hopeless.enqueue_many(range(5))]
    ended(stage)
    attempts = [each for _, history in everything(stage.app).values() for each in history]
    instants = [each.started_at for each in attempts] + [each.finished_at for each in attempts]

    assert {"succeeded", "failed"} == {each.outcome for each in attempts}
    assert began - timedelta(seconds=1) <= min(instants)
    assert max(instants) <= datetime.now(UTC) + timedelta(seconds=1)
    audit(stage, [job.id for job in jobs])
