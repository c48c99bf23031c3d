"""Workers over a long time: their memory, and their work beside a transaction with an old snapshot."""

from __future__ import annotations

import contextlib
import re
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgres
from tests.acceptance.chaos import audit, ended, load, marks, sized
from tests.acceptance.processes import LONG, Deployment, WorkerProcess

pytestmark = marks

BATCH = sized(1_500, 5_000)


@pytest.fixture(name="stage", params=["sqlite", "postgres"])
def _stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """Return the app of the chaos tests."""
    with load(tmp_path, request.param) as stage:
        stage.lease_for = LONG
        yield stage


def megabytes(process: WorkerProcess, field: str) -> float:
    """Return a figure of Linux for a process: ``VmRSS``, its memory now, or ``VmHWM``, its peak."""
    status = Path(f"/proc/{process.popen.pid}/status").read_text()
    return int(re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)[1]) / 1024


def test_a_worker_that_runs_many_jobs_uses_constant_memory(stage: Deployment):
    """After the first tenth it does not grow by more than a few megabytes, and it never has more than 150."""
    rounds = sized(10, 200)
    worker = stage.ready_worker("--concurrency", "100")
    first, succeeded = 0.0, 0
    for number in range(rounds):
        jobs = stage.module.bare.enqueue_many(range(BATCH))
        ended(stage, after_id=jobs[0].id - 1)
        # A count of all jobs would not exceed 10,000; see `App.jobs.stats`.
        succeeded += stage.app.jobs.stats(after_id=jobs[0].id - 1).succeeded
        first = first or (megabytes(worker, "VmRSS") if number + 1 >= rounds // 10 else 0.0)
    most = megabytes(worker, "VmHWM")
    worker.send(signal.SIGTERM)

    assert (0, rounds * BATCH) == (worker.ended(), succeeded)
    assert first + 15 > most < 150


@contextlib.contextmanager
def held_snapshot(stage: Deployment) -> Iterator[None]:
    """Hold a read transaction open."""
    if stage.kind == "sqlite":
        with contextlib.closing(sqlite3.connect(stage.folder / "jobs.db", isolation_level=None)) as db:
            db.execute("BEGIN")
            seen = db.execute("SELECT count(*) FROM redrive_jobs").fetchone()
            yield
            assert seen == db.execute("SELECT count(*) FROM redrive_jobs").fetchone()
        return
    schema = (stage.folder / "url").read_text().rpartition("schema=")[2]
    with postgres.connect(autocommit=False) as db:
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute(f"SET LOCAL search_path = {schema}")
        seen = db.execute("SELECT count(*) FROM redrive_jobs").fetchone()
        yield
        assert seen == db.execute("SELECT count(*) FROM redrive_jobs").fetchone()


@pytest.mark.night  # test_a_held_snapshot_does_not_slow_claims measures the statements that it would slow
def test_a_held_snapshot_does_not_stop_workers(stage: Deployment):
    """While a transaction that began before them all stays open, wave after wave of jobs is worked off."""
    jobs = stage.module.flaky.enqueue_many(range(10))
    stage.ready_worker("--concurrency", "50")
    ended(stage)
    with held_snapshot(stage):
        for _ in range(sized(5, 100)):
            jobs += stage.module.flaky.enqueue_many(range(sized(100, 500)))
            ended(stage)
    jobs += stage.module.flaky.enqueue_many(range(10))
    ended(stage)

    audit(stage, [job.id for job in jobs])
