"""Several processes on one store: no operation is refused, and every job is claimed once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.stores.operations import admin
from tests.stores.helpers import Harness

ROOT = Path(__file__).parents[3]
CONTENDER = ROOT / "tests" / "stores" / "contender.py"
PROCESSES = 4
ROUNDS = 40


@pytest.mark.slow
def test_processes_share_a_store(shared: Harness):
    """Processes that enqueue, claim and settle simultaneously get no error and no job twice."""
    reports = contend(shared, PROCESSES)
    enqueued = [number for report in reports for number in report["enqueued"]]
    claimed = [tuple(pair) for report in reports for pair in report["claimed"]]
    rest = [(claim.id, claim.lease_id) for claim in shared.claim(10_000)]
    counted = shared.do(admin.stats(now=shared.now))

    assert list(range(1, PROCESSES * ROUNDS * 2 + 1)) == sorted(enqueued)
    assert sorted(enqueued) == sorted(number for number, _ in claimed + rest)
    assert len(claimed + rest) == len({lease for _, lease in claimed + rest})
    assert (len(claimed), len(rest)) == (counted.succeeded, counted.running)


def contend(store: Harness, count: int) -> list[dict[str, list]]:
    """Start the processes, release them when all are ready, and collect their reports."""
    command = [sys.executable, str(CONTENDER), store.url, store.colour, str(ROUNDS)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, env=environment, **pipes) for _ in range(count)]
    try:
        for process in running:
            assert "ready\n" == process.stdout.readline(), process.stderr.read()
        for process in running:
            process.stdin.write("go\n")
            process.stdin.flush()
        ended = [process.communicate(timeout=120) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [""] * count == [errors for _, errors in ended]
    return [json.loads(answer) for answer, _ in ended]
