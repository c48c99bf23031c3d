"""Shared parts of the chaos tests: an app under load, its receiver, and the audit of both afterwards.

Each scenario has the same steps: processes work, a fault occurs, the processes recover, and finally the `audit`
compares three independent records: the acknowledgements to producers (``acknowledged.log``), the executions of
handlers (``executions.log``, the receiver), and the database of redrive.

The short form is part of ``make test``. ``make chaos`` sets ``REDRIVE_CHAOS=long``, which makes the numbers larger."""

from __future__ import annotations

import collections
import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from redrive import App, Filter
from redrive.engine.lifecycle import FINAL
from redrive.engine.records import AttemptRecord, JobRecord
from redrive.errors import StoreError
from tests.acceptance import processes
from tests.acceptance.processes import Deployment, WorkerProcess, uid

LONG_FORM = os.environ.get("REDRIVE_CHAOS") == "long"

EVERYTHING = 10_000_000
"""A limit above the number of jobs of any test."""

marks = [pytest.mark.acceptance, pytest.mark.chaos, pytest.mark.slow]
"""Marks of every chaos test."""

long_only = pytest.mark.skipif(not LONG_FORM, reason="takes minutes: make chaos")


def sized(short: int, long: int) -> int:
    """Return the number for the form of the test that runs."""
    return long if LONG_FORM else short


WORK = '''
"""The app of the chaos tests; workers and producers import it as ``work``."""

import asyncio
import os
from pathlib import Path

from redrive import App, CatchRequest, Context

HERE = Path(__file__).parent
app = App(
    (HERE / "url").read_text(),
    heartbeat_every=os.environ.get("BEAT", "200ms"),
    lease_for=os.environ.get("LEASE_FOR", "15s"),
)
receiver = os.open(HERE / "executions.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(*words: object) -> None:
    """Write one line, whole; it outlives the process."""
    os.write(receiver, (" ".join(map(str, words)) + "\\n").encode())


@app.task
async def quick(number: int, context: Context) -> int:
    """Do little."""
    note("run", context.attempt_uid)
    return number


@app.task
def threaded(number: int, context: Context) -> int:
    """Do little, in a thread."""
    note("run", context.attempt_uid)
    return number


@app.task(retry="3 20ms")
async def flaky(number: int, context: Context) -> int:
    """Fail twice."""
    note("run", context.attempt_uid)
    if context.failures < 2:
        raise RuntimeError("not yet")
    return number


@app.task(retry="1 20ms catch recover")
async def hopeless(number: int, context: Context) -> None:
    """Fail always."""
    note("run", context.attempt_uid)
    raise RuntimeError("never")


@app.task
async def recover(request: CatchRequest[int], context: Context) -> None:
    """Take what is hopeless."""
    note("run", context.attempt_uid)


@app.task
async def brief(number: int, context: Context) -> int:
    """Take a while."""
    note("run", context.attempt_uid)
    await asyncio.sleep(0.05)
    return number


@app.task
async def hold(number: int, context: Context) -> int:
    """Wait for the test, in the first execution only."""
    note("run", context.attempt_uid)
    while context.attempt == 1 and not (HERE / "go").exists():
        await asyncio.sleep(0.01)
    note("done", context.attempt_uid)
    return number


@app.task
async def bare(number: int) -> None:
    """Do nothing, and leave no trace."""
'''

PRODUCER = """
import itertools, sys, time
from pathlib import Path
from redrive.errors import StoreError
from work import brief, flaky, hopeless, quick, threaded

pause = float(sys.argv[1])
with open("acknowledged.log", "a") as log:
    for number, task in zip(itertools.count(), itertools.cycle([quick, flaky, threaded, hopeless, brief])):
        if Path("enough").exists():
            break
        try:
            print(task.enqueue(number).id, file=log, flush=True)
        except StoreError as error:
            print("refused:", error, file=sys.stderr, flush=True)
        time.sleep(pause)
"""


@contextlib.contextmanager
def load(folder: Path, kind: str, *, url: str | None = None) -> Iterator[Deployment]:
    """Return the app in a folder, and stop it at the end."""
    with processes.stage(folder, kind, work=WORK, url=url) as stage:
        yield stage


def produce(stage: Deployment, *, pause: float = 0.002) -> WorkerProcess:
    """Start a producer, which enqueues all kinds of jobs until `enough` or a signal."""
    return stage.run(sys.executable, "-c", PRODUCER, str(pause))


def enough(stage: Deployment, *producers: WorkerProcess) -> None:
    """End producers in good order."""
    (stage.folder / "enough").touch()
    assert [0] * len(producers) == [each.ended() for each in producers]


def acknowledged(stage: Deployment) -> list[int]:
    """Return the jobs with an enqueue that had returned before the fault hit their producer."""
    log = stage.folder / "acknowledged.log"
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [int(line) for line in lines if line.endswith("\n")]


def progress(stage: Deployment, more: int) -> None:
    """Wait until this number of further attempts has begun."""
    reached = len(stage.executions) + more
    stage.until(lambda: len(stage.executions) >= reached)


def ended(stage: Deployment, *, after_id: int = 0) -> None:
    """Wait until no unfinished job is left, through interruptions of the database, with few polls.

    Args:
        stage: the app and its processes.
        after_id: check only jobs with a larger id, if there are very many."""

    def is_over() -> bool:
        time.sleep(0.05)
        try:
            return stage.app.jobs.stats(after_id=after_id).unfinished == 0
        except StoreError:
            return False

    stage.until(is_over)


def everything(app: App) -> dict[int, tuple[JobRecord, tuple[AttemptRecord, ...]]]:
    """Return all jobs with their histories, for a comparison with a later state."""
    jobs = app.jobs.select(Filter(oldest_first=True, limit=EVERYTHING))
    return {job.id: (job, app.job(job.id).attempts) for job in jobs}


def audit(stage: Deployment, enqueued: Iterable[int] | None = None) -> None:
    """Check what holds after any fault, when all jobs have ended.

    Args:
        stage: the app and its processes.
        enqueued: the jobs that producers know to be enqueued; by default those of `produce`."""
    kept = everything(stage.app)
    attempts = [attempt for _, history in kept.values() for attempt in history]
    leases = {uid(attempt): attempt for attempt in attempts}
    executed = stage.executions
    succeeded = collections.Counter(each.job_id for each in attempts if each.outcome == "succeeded")

    assert () == (found := stage.app.database.verify()), found
    # Nothing acknowledged is lost, and everything has come to an end.
    assert set() == set(acknowledged(stage) if enqueued is None else enqueued) - set(kept)
    assert set() == {job.state for job, _ in kept.values()} - set(FINAL)
    # The receiver counts what the leases count: each ran once, and what did not run was lost before it began.
    assert len(set(executed)) == len(executed)
    assert set() == set(executed) - set(leases)
    assert set() == {each.outcome for name, each in leases.items() if name not in set(executed)} - {"lost"}
    # Each success is one.
    assert {job.id for job, _ in kept.values() if job.state == "succeeded"} == set(succeeded)
    assert set() == set(succeeded.values()) - {1}
    assert [] == [job.id for job, _ in kept.values() if job.task == "hopeless" and job.caught_at is None]
