"""Workers that are killed or stopped under load, on each store."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.runtime.failpoints import POINTS
from tests import postgres
from tests.acceptance.chaos import (
    acknowledged,
    audit,
    ended,
    everything,
    load,
    marks,
    produce,
    progress,
    sized,
)
from tests.acceptance.processes import PATIENCE, Deployment

pytestmark = marks


@pytest.fixture(name="stage", params=["sqlite", "postgres"])
def _stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """Return the app of the chaos tests."""
    with load(tmp_path, request.param) as stage:
        yield stage


def test_workers_that_are_killed_under_load_lose_nothing(stage: Deployment):
    """Kill -9 at each named point and at any moment; all jobs that a killed producer had enqueued end."""
    producer = produce(stage)
    neighbour = stage.ready_worker("--concurrency", "10")
    for _ in range(sized(1, 20)):
        statuses = [stage.worker("--concurrency", "5", fault=point).ended() for point in POINTS]
        progress(stage, 50)
        neighbour.send(signal.SIGKILL)

        assert [-signal.SIGKILL] * (len(POINTS) + 1) == [*statuses, neighbour.ended()]
        neighbour = stage.ready_worker("--concurrency", "10")
    producer.send(signal.SIGKILL)
    producer.ended()
    ended(stage)
    neighbour.send(signal.SIGTERM)

    assert 0 == neighbour.ended()
    assert 50 < len(acknowledged(stage))
    audit(stage)


@contextlib.contextmanager
def writes_wait(stage: Deployment) -> Iterator[None]:
    """Block all writes within this block: other writers wait."""
    if stage.kind == "sqlite":
        with contextlib.closing(
            sqlite3.connect(stage.folder / "jobs.db", timeout=PATIENCE, isolation_level=None)
        ) as db:
            db.execute("BEGIN IMMEDIATE")
            yield
            db.execute("ROLLBACK")
        return
    with postgres.connect(autocommit=False) as db:
        db.execute(f"LOCK TABLE {_schema(stage)}.redrive_jobs IN SHARE ROW EXCLUSIVE MODE")
        yield
        db.rollback()


def _schema(stage: Deployment) -> str:
    return (stage.folder / "url").read_text().rpartition("schema=")[2].partition("&")[0]


def _is_settling(stage: Deployment) -> bool:
    """Do the handlers' endings wait to be written?"""
    if stage.kind == "sqlite":
        return True  # a lane of its own waits for the file's lock
    with postgres.connect() as db:
        rows = db.execute(
            "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s",
            [f"UPDATE \"{_schema(stage)}\".redrive_jobs SET%state = 'succeeded'%"],
        ).fetchall()
    return bool(rows)


@pytest.mark.night  # tests/stores/conformance refuses each late write, and the crossings make them
def test_late_writes_of_a_suspended_worker_change_nothing(stage: Deployment):
    """Stop a worker while it settles a batch, until its leases have expired and all its jobs have run elsewhere:
    each of its outcomes is refused.

    On PostgreSQL it is stopped in the transaction that holds the rows of its jobs, and even within a statement, between
    the reply to its Parse and its Bind."""
    sleeper = stage.worker("--concurrency", "200")
    jobs = stage.module.hold.enqueue_many(range(sized(20, 200)))
    progress(stage, len(jobs))
    with writes_wait(stage):
        stage.go()
        stage.until(lambda: len(stage.noted("done")) == len(jobs))
        stage.until(lambda: _is_settling(stage))
        sleeper.send(signal.SIGSTOP)
        os.waitpid(sleeper.popen.pid, os.WUNTRACED)
    living = stage.worker()
    ended(stage)
    before = everything(stage.app)
    sleeper.send(signal.SIGCONT)
    stage.until(lambda: all(sleeper.logged(rf"job {job.id} .*: its lease was lost") for job in jobs))
    for each in (sleeper, living):
        each.send(signal.SIGTERM)

    assert [0, 0] == [each.ended() for each in (sleeper, living)]
    assert [["lost", "succeeded"]] * len(jobs) == [[each.outcome for each in job.attempts] for job in jobs]
    assert before == everything(stage.app)
    audit(stage, [job.id for job in jobs])
