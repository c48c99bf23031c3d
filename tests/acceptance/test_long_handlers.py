"""Handlers that outlast many leases: while their worker lives, no other worker takes them."""

from __future__ import annotations

import json
import signal
from datetime import datetime

import pytest

from redrive.policy import parse_duration
from tests.acceptance.processes import Deployment

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

LONG = ("spin", "spin_in_pool", "hog", "hold", "hold_in_thread")
"""CPU in a thread, CPU in another process, a blocked event loop; and batch-mates that wait."""

LEASE = "2s"
"""A handler that keeps the processor busy, beside three other workers, must not keep its own from beating in time."""


def last_beat(stage: Deployment, worker_id: int) -> datetime:
    """Return the time of the last heartbeat of a worker."""
    return next(worker.heartbeat_at for worker in stage.app.workers.select() if worker.id == worker_id)


def _three_leases(stage: Deployment, worker_id: int) -> None:
    """Wait until the busy worker has beaten for three leases more."""
    began = last_beat(stage, worker_id)
    stage.until(lambda: last_beat(stage, worker_id) >= began + 3 * parse_duration(LEASE))


@pytest.mark.case("D22")
def test_a_long_healthy_handler_is_never_rescued(stage: Deployment):
    """Three leases long, and three more while its worker drains, with three idle workers looking: one attempt each."""
    stage.lease_for = LEASE
    busy = stage.worker()
    stage.until(lambda: busy.logged("serves all queues"))
    (worker,) = stage.app.workers.select()
    jobs = [stage.app.tasks[name].enqueue(0) for name in LONG if name != "hog"]
    stage.until(lambda: len(stage.executions) == len(LONG) - 1)
    jobs.append(stage.module.hog.enqueue(0))  # last, because it lets no other handler begin
    stage.until(lambda: len(stage.executions) == len(LONG))
    for _ in range(3):
        stage.worker()
    _three_leases(stage, worker.id)
    busy.send(signal.SIGTERM)
    _three_leases(stage, worker.id)
    stage.go()
    stage.all_ended()

    assert ["execution 1"] * len(LONG) == [job.result() for job in jobs]
    assert [["succeeded"]] * len(LONG) == [[each.outcome for each in job.attempts] for job in jobs]
    assert {worker.id} == {each.worker_id for job in jobs for each in job.attempts}
    assert {"computing": True} == json.loads(jobs[1].progress.details)
