"""Conformance cases that need real processes: workers and producers that are killed, without clean-up."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from redrive.app.app import App
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import AttemptOutcome, Filter
from redrive.runtime.failpoints import POINTS

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

SOURCES = Path(__file__).parents[2] / "src"
PATIENCE = 90
"""Seconds until a test gives up."""

WORK = """
import os, signal
from redrive import App, CatchRequest, Context

app = App("sqlite:///jobs.db", heartbeat_every="200ms", lease_for="600ms")

@app.task(retry="2 100ms")
async def die(how: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL) if how == "kill" else os._exit(3)

@app.task(retry="2 100ms")
async def harmless(number: int) -> int:
    return number

@app.task(retry="3 50ms")
def flaky(number: int, context: Context) -> int:
    if context.failures < 2:
        raise RuntimeError("not yet")
    return number

@app.task(retry="1 50ms catch recover")
def hopeless(number: int) -> None:
    raise RuntimeError("never")

@app.task
def recover(request: CatchRequest) -> None: ...

@app.task
async def slow(number: int) -> int:
    import asyncio
    await asyncio.sleep(0.1)
    return number
"""

PRODUCER = """
import time
from itertools import count, cycle
from work import flaky, harmless, hopeless, slow

for number, task in zip(count(), cycle([harmless, flaky, hopeless, slow])):
    print(task.enqueue(number).id, flush=True)
    time.sleep(0.05)
"""


class ProgramFolder:
    """A folder with a program, its database, and the processes that a test has started there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "work.py").write_text(WORK)
        (folder / "producer.py").write_text(PRODUCER)
        self.processes: list[subprocess.Popen[str]] = []
        self.until = time.monotonic() + PATIENCE

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Start a Python process in the folder; what it prints goes to ``out.txt``."""
        with (self.folder / "out.txt").open("a") as out:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=self.folder,
                env=os.environ | {"PYTHONPATH": str(SOURCES)} | environment,
                stdout=out,
                text=True,
            )
        self.processes.append(process)
        return process

    def worker(self, *, dies: str | None = None) -> subprocess.Popen[str]:
        """Start a worker, with the named point at which it kills itself, if any."""
        fault = {} if dies is None else {"REDRIVE_FAULT": dies}
        return self.start("-m", "redrive", "worker", "work:app", "--quiet", **fault)

    def acknowledged(self) -> list[int]:
        """Return the ids that the producer has printed, each after its enqueue had returned."""
        return [int(line) for line in (self.folder / "out.txt").read_text().splitlines(keepends=True) if "\n" in line]

    def wait(self, condition) -> None:
        """Poll every few milliseconds until the condition holds, or the patience ends."""
        while not condition():
            assert time.monotonic() < self.until, "patience has ended"
            time.sleep(0.02)

    def close(self) -> None:
        """End what still runs."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()


@pytest.fixture
def shop(tmp_path):
    """Return a folder with a program to be run."""
    shop = ProgramFolder(tmp_path)
    yield shop
    shop.close()


@pytest.fixture
def work(shop, monkeypatch):
    """Import the program of the folder here too, and return its app and its tasks."""
    monkeypatch.chdir(shop.folder)
    names: dict = {"__name__": "work"}
    exec(compile(WORK, "work.py", "exec"), names)  # noqa: S102 - the test's own text
    yield names
    names["app"].close()


@pytest.mark.case("D19")
@pytest.mark.parametrize(("how", "status"), [("kill", -signal.SIGKILL), ("exit", 3)])
def test_a_job_that_kills_its_process_is_bounded(shop, work, how, status):
    """After three killed workers the job is dead as poison; all jobs beside it succeed with no attempt spent."""
    app: App = work["app"]
    killer = work["die"].enqueue(how)
    neighbours = work["harmless"].enqueue_many(range(3))
    jobs = [killer, *neighbours]

    def is_over() -> bool:
        return all(job.refresh().state in FINAL for job in jobs)

    deaths = []
    while not is_over():
        worker = shop.worker()
        shop.wait(lambda worker=worker: worker.poll() is not None or is_over())
        deaths += [worker.returncode] if worker.returncode is not None else []

    assert [status] * 3 == deaths
    assert [(AttemptOutcome.LOST, reason) for reason in ("WORKER_LOST", "WORKER_LOST", "POISON")] == [
        (attempt.outcome, attempt.reason) for attempt in killer.attempts
    ]
    assert (State.DEAD, "POISON") == (killer.state, killer.record.reason)
    assert [(State.SUCCEEDED, 0)] * 3 == [(job.state, job.record.failures) for job in neighbours]
    assert 0 == app.jobs.stats().unfinished


@pytest.mark.case("I3")
def test_acknowledged_jobs_end_after_process_kills(shop, work):
    """Each job with a returned enqueue ends after its producer and some workers were killed:
    after a claim, before and after a settle, and from outside."""
    app: App = work["app"].open()
    producer = shop.start("producer.py")
    for point in POINTS:
        doomed = shop.worker(dies=point)
        shop.wait(lambda doomed=doomed: doomed.poll() is not None)

        assert -signal.SIGKILL == doomed.returncode

    victim = shop.worker()
    seen = app.jobs.stats().succeeded
    shop.wait(lambda: app.jobs.stats().succeeded > seen and len(shop.acknowledged()) >= 100)
    for process in (victim, producer):
        process.kill()
        process.wait()
    shop.worker()
    shop.wait(lambda: app.jobs.stats().unfinished == 0)
    acknowledged = shop.acknowledged()
    jobs = {job.id: job for job in app.jobs.select(Filter(limit=1_000_000))}

    assert set() == set(acknowledged) - set(jobs)
    assert set() == {job.state for job in jobs.values()} - FINAL
    assert {"WORKER_LOST"} <= {attempt.reason for number in acknowledged for attempt in app.job(number).attempts}
    assert {State.DEAD} == {job.state for job in jobs.values() if job.task == "hopeless"}
