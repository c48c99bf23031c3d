"""Handlers that are killed around their commit: each job's row is there exactly once."""

from __future__ import annotations

import signal

import pytest

from tests.acceptance.processes import Deployment

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

DEATHS = [
    [],
    ["before the write"],
    ["before the commit"],
    ["after the commit"],
    ["before the commit", "after the commit"],
]
"""Where each job dies, attempt by attempt. Not three times in a row: that would be poison."""


@pytest.mark.case("D26")
def test_a_row_is_written_once_whenever_its_worker_dies(stage: Deployment):
    """Restart the worker after each SIGKILL: one row per job exists, from the attempt that succeeded."""
    loan = stage.app.store.begin()
    loan.connection.execute("CREATE TABLE orders (number INTEGER, attempt TEXT)")
    loan.commit()
    jobs = stage.module.book.enqueue_many(enumerate(DEATHS))
    statuses = set()
    while stage.app.jobs.stats().unfinished:
        worker = stage.worker("--concurrency", "1")
        stage.until(lambda worker=worker: not worker.alive or stage.app.jobs.stats().unfinished == 0)
        if not worker.alive:
            statuses.add(worker.ended())
    loan = stage.app.store.begin()
    rows = loan.connection.execute("SELECT number, attempt FROM orders").fetchall()
    loan.rollback()

    assert [f"order {number}" for number in range(len(DEATHS))] == [job.result() for job in jobs]
    assert sorted(rows) == [(number, *_attempts(job, "succeeded")) for number, job in enumerate(jobs)]
    assert {-signal.SIGKILL} == statuses
    # After the commit there is nothing to be lost any more, and nothing runs again.
    assert [len(each) - each.count("after the commit") for each in DEATHS] == [
        len(_attempts(job, "lost")) for job in jobs
    ]


def _attempts(job, outcome: str) -> list[str]:
    """Return the attempts with this outcome."""
    return [f"{each.job_id}.{each.lease_id}" for each in job.attempts if each.outcome == outcome]
