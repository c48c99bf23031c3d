"""A bulk operation in a process that is killed, on a real server."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from redrive import Filter
from redrive.engine.bulk import BulkState
from redrive.engine.lifecycle import State
from tests.acceptance.processes import stage

pytestmark = pytest.mark.acceptance

JOBS = 400

CARRY = """
import redrive.engine.bulk
redrive.engine.bulk.BATCH = 50
import work
work.app.operations.finish(1)
"""


def test_another_process_goes_on_after_a_kill(tmp_path: Path):
    """Processes that are killed leave whole batches; a worker goes on behind them, and each job is changed once."""
    with stage(tmp_path, "postgres") as deployment:
        app, on = deployment.app, deployment.app.operations
        ids = [job.id for job in deployment.module.quick.options(delay="1h").enqueue_many(range(JOBS))]
        on.start(on.preview("cancel", Filter(task="quick", limit=JOBS), why="wrong prices"))
        carrier = deployment.run(sys.executable, "-c", CARRY)
        deployment.until(lambda: on.get(1).done >= 100)
        carrier.send(signal.SIGKILL)
        carrier.ended()
        left = on.get(1)
        deployment.worker("--queue", "other")
        deployment.until(lambda: on.get(1).state is BulkState.DONE)

        assert (BulkState.RUNNING, 0) == (left.state, left.done % 50)
        assert (JOBS, 0) == (on.get(1).done, on.get(1).kept)
        assert ids == [number for line in on.batches(1) for number in line.ids]
        assert {("wrong prices", State.CANCELLED)} == {
            (job.note, job.state) for job in app.jobs.select(Filter(task="quick", limit=JOBS))
        }
