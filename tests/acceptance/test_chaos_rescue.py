"""Delay until the jobs of a dead worker run again, with the default settings of an app."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.acceptance.chaos import audit, ended, load, long_only, marks, progress
from tests.acceptance.processes import Deployment, WorkerProcess

# tests/runtime/test_dead_workers.py proves that the dead are found; here are the seconds that it takes.
pytestmark = [*marks, pytest.mark.night]

JOBS = 10


@pytest.fixture(name="stage", params=["sqlite", "postgres"])
def _stage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    """Return the app of the chaos tests, with the default lease and heartbeat."""
    monkeypatch.setenv("BEAT", "5s")
    with load(tmp_path, request.param) as stage:
        stage.lease_for = "15s"
        yield stage


STRANGER = """
import os, sys
from redrive.engine.records import Process
from redrive.runtime import registration

registration.present = lambda: Process("elsewhere", os.getpid(), None)

from redrive.cli import main
main()
"""
"""A worker without a sign that it is on this machine."""


def _longest_gap(stage: Deployment, victim: WorkerProcess, number: signal.Signals) -> timedelta:
    """Send a worker that runs ten jobs a signal; how long is it until the last of them runs again elsewhere?"""
    jobs = stage.module.hold.enqueue_many(range(JOBS))
    stage.until(lambda: len(stage.executions) == JOBS)
    stage.ready_worker()
    sent_at = datetime.now(UTC)
    victim.send(number)
    progress(stage, JOBS)
    ended(stage)

    assert [["lost", "succeeded"]] * JOBS == [[each.outcome for each in job.attempts] for job in jobs]
    audit(stage, [job.id for job in jobs])
    return max(job.attempts[1].started_at for job in jobs) - sent_at


@pytest.mark.realtime
def test_the_jobs_of_a_killed_worker_run_again_within_three_seconds(stage: Deployment):
    """Another worker sees that the process is gone."""
    assert timedelta(seconds=3) >= _longest_gap(stage, stage.worker(), signal.SIGKILL)


def _stranger(stage: Deployment) -> WorkerProcess:
    return stage.run(sys.executable, "-c", STRANGER, "worker", "work:app")


@pytest.mark.parametrize("stage", ["postgres"], indirect=True)
@pytest.mark.realtime
def test_the_jobs_of_a_worker_that_was_killed_elsewhere_run_again_within_three_seconds(stage: Deployment):
    """PostgreSQL sees it: the lock of its session is free."""
    assert timedelta(seconds=3) >= _longest_gap(stage, _stranger(stage), signal.SIGKILL)


@long_only
@pytest.mark.parametrize("stage", ["sqlite"], indirect=True)
@pytest.mark.realtime
def test_the_jobs_of_a_worker_that_dies_undetected_run_again_within_twenty_seconds(stage: Deployment):
    """Without a sign of its death the jobs of a worker run again after its lease of 15 s."""
    assert timedelta(seconds=20) >= _longest_gap(stage, _stranger(stage), signal.SIGKILL)


@long_only
@pytest.mark.realtime
def test_the_jobs_of_a_silent_worker_run_again_within_twenty_seconds(stage: Deployment):
    """Run the jobs of a worker again that is silent, though its process and its session exist."""
    victim = stage.worker()

    assert timedelta(seconds=20) >= _longest_gap(stage, victim, signal.SIGSTOP)
