"""Real worker processes on a real database, and a record of executions that is independent of redrive.

Every handler first writes one line, synced to the disk. The line names its execution (``<job>.<lease>``), so that the
records of redrive can be compared with the executions."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import IO

from redrive import App, Filter
from redrive.engine.records import AttemptRecord, JobRecord
from tests import postgres

CHECKOUT = Path(__file__).parents[2]

PATIENCE = 90
"""Seconds after which a waiting test fails."""

SHORT, LONG = "1s", "30s"
"""Leases: for tests that wait for their end, and for those in which they must last on a busy machine."""

WORK = '''
"""The app of the acceptance tests; the workers import it as ``work``."""

import asyncio
import concurrent.futures
import os
import signal
import sys
import time
from pathlib import Path

from redrive import App, CatchRequest, Context

HERE = Path(__file__).parent
app = App((HERE / "url").read_text(), heartbeat_every="200ms", lease_for=os.environ.get("LEASE_FOR", "15s"))


def note(*words: object) -> None:
    """Write one line and see it on the disk."""
    file = os.open(HERE / "executions.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (" ".join(map(str, words)) + "\\n").encode())
    os.fsync(file)
    os.close(file)


def released() -> bool:
    """Return True if the test lets handlers continue."""
    return (HERE / "go").exists()


@app.task
async def quick(number: int, context: Context) -> int:
    """Do little."""
    note("run", context.attempt_uid)
    await asyncio.sleep(0)
    return number


@app.task
async def hold(number: int, context: Context) -> str:
    """Wait for the test, in the first execution only."""
    note("run", context.attempt_uid)
    try:
        while context.attempt == 1 and not released():
            await asyncio.sleep(0.005)
    except asyncio.CancelledError:
        note("stopped", context.attempt_uid)
        raise
    return f"execution {context.attempt}"


@app.task
def hold_in_thread(number: int, context: Context) -> str:
    """Wait for the test, in a thread."""
    note("run", context.attempt_uid)
    while context.attempt == 1 and not released():
        time.sleep(0.005)
    return f"execution {context.attempt}"


@app.task
async def hog(number: int, context: Context) -> str:
    """Wait for the test, and block the event loop."""
    note("run", context.attempt_uid)
    while context.attempt == 1 and not released():
        time.sleep(0.005)
    return f"execution {context.attempt}"


@app.task
def spin(number: int, context: Context) -> str:
    """Compute until the test releases it, in a thread."""
    note("run", context.attempt_uid)
    while context.attempt == 1 and not released():
        sum(range(1000))
    return f"execution {context.attempt}"


def compute() -> None:
    """Compute now and then until the test releases it, or until the worker is gone."""
    worker = os.getppid()
    while os.getppid() == worker and not released():
        sum(range(1000))
        time.sleep(0.001)


@app.task
async def spin_in_pool(number: int, context: Context) -> str:
    """Compute in another process until the test releases it, with a heartbeat now and then."""
    note("run", context.attempt_uid)
    if context.attempt == 1:
        with concurrent.futures.ProcessPoolExecutor(1) as pool:
            computing = asyncio.get_running_loop().run_in_executor(pool, compute)
            while not computing.done():
                await context.aheartbeat({"computing": True})
                await asyncio.wait([computing], timeout=0.01)
    return f"execution {context.attempt}"


@app.task
def book(number: int, dies: list[str], context: Context) -> str:
    """Write a row and complete, in one transaction; die at a point that differs from attempt to attempt."""
    note("run", context.attempt_uid)
    point = dies[context.attempt - 1] if context.attempt <= len(dies) else "never"

    def pass_by(here: str) -> None:
        if here == point:
            os.kill(os.getpid(), signal.SIGKILL)

    with context.transaction() as connection:
        pass_by("before the write")
        connection.execute(f"INSERT INTO orders VALUES ({number}, '{context.attempt_uid}')")
        pass_by("before the commit")
        context.set_result(f"order {number}")
    pass_by("after the commit")
    return f"order {number}"


@app.task
async def kill(number: int, context: Context) -> None:
    """End the process, without clean-up."""
    note("run", context.attempt_uid)
    os._exit(9)


@app.task
async def leave(number: int, context: Context) -> None:
    """End the event loop of the worker, as an error in a callback does."""
    note("run", context.attempt_uid)
    asyncio.get_running_loop().call_soon(sys.exit, 3)
    await asyncio.Event().wait()


@app.task(idempotent=False, retry="5 1s catch recover")
async def once(number: int, context: Context) -> None:
    """Wait for ever; it must never run twice."""
    note("run", context.attempt_uid)
    await asyncio.Event().wait()


@app.task
async def recover(request: CatchRequest[int], context: Context) -> None:
    """Take what was lost."""
    note("caught", request.job_id, request.request)
'''


@dataclass
class WorkerProcess:
    """A worker process that the test has started."""

    popen: subprocess.Popen[bytes]
    log: Path

    def logged(self, pattern: str) -> bool:
        """Return True if it has logged a line with this pattern."""
        return bool(re.findall(pattern, self.log.read_text()))

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.popen.send_signal(number)

    @property
    def alive(self) -> bool:
        """Return True if it still runs."""
        return self.popen.poll() is None

    def ended(self) -> int:
        """Wait for its end, and return its status."""
        return self.popen.wait(PATIENCE)


@dataclass
class Deployment:
    """A folder with an app, its database, its worker processes and the record of executions."""

    folder: Path
    module: ModuleType
    processes: list[WorkerProcess] = field(default_factory=list)
    lease_for: str = SHORT
    kind: str = "sqlite"

    @property
    def app(self) -> App:
        """Return the app in this process."""
        app: App = self.module.app
        return app

    # ------------------------------------------------------------------------------------------------ processes

    def run(self, *command: str, fault: str | None = None, stdout: int | None = None) -> WorkerProcess:
        """Start a process in the folder; it ends with the test at the latest."""
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src"), "LEASE_FOR": self.lease_for}
        if fault:
            environment["REDRIVE_FAULT"] = fault
        log = self.folder / f"process{len(self.processes)}.log"
        with log.open("wb") as file:
            popen = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=stdout or file, stderr=file)
        self.processes.append(WorkerProcess(popen, log))
        return self.processes[-1]

    def worker(self, *options: str, fault: str | None = None) -> WorkerProcess:
        """Start a worker."""
        return self.run(sys.executable, "-m", "redrive", "worker", "work:app", *options, fault=fault)

    def ready_worker(self, *options: str) -> WorkerProcess:
        """Start a worker, and wait until it serves."""
        worker = self.worker(*options)
        self.until(lambda: worker.logged("serves all queues"))
        return worker

    def stop(self, process: WorkerProcess) -> None:
        """Stop a process where it stands, as a suspended machine does, but not within a transaction.

        The lock of an SQLite file belongs to a process: one that is stopped while it writes keeps all others waiting.
        """
        if self.kind != "sqlite":
            process.send(signal.SIGSTOP)
            os.waitpid(process.popen.pid, os.WUNTRACED)
            return
        connection = sqlite3.connect(self.folder / "jobs.db", timeout=PATIENCE, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        process.send(signal.SIGSTOP)
        os.waitpid(process.popen.pid, os.WUNTRACED)
        connection.execute("ROLLBACK")
        connection.close()

    def close(self) -> None:
        """End what still runs."""
        for process in self.processes:
            if process.alive:
                process.send(signal.SIGKILL)
                process.send(signal.SIGCONT)
            process.ended()
            with contextlib.suppress(AttributeError):
                _closed(process.popen.stdout)
        self.app.close()

    # -------------------------------------------------------------------------------------------------- waiting

    def until(self, holds: Callable[[], bool], *, patience: float = PATIENCE) -> None:
        """Wait some seconds until something holds; where it does not, show what the processes have logged."""
        deadline = time.monotonic() + patience
        while not (held := timed(holds))[0]:
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {each.log.name}\n{each.log.read_text()}" for each in self.processes)
                message = f"waited for {patience} s\n{self.app.jobs.stats()}\n{logs}"
                raise AssertionError(message)
            # The processes that the test waits for need the processor more than this one does.
            time.sleep(min(0.005 + 3 * held[1], 0.2))

    def all_ended(self) -> None:
        """Wait until the workers have no unfinished job."""
        self.until(lambda: self.app.jobs.stats().unfinished == 0)

    def go(self) -> None:
        """Let waiting handlers continue."""
        (self.folder / "go").touch()

    # -------------------------------------------------------------------------------------------------- records

    def noted(self, kind: str) -> list[str]:
        """Return the lines of the handlers, in order."""
        log = self.folder / "executions.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line.partition(" ")[2] for line in lines if line.partition(" ")[0] == kind]

    @property
    def executions(self) -> list[str]:
        """Which executions have started."""
        return self.noted("run")

    def jobs(self) -> tuple[JobRecord, ...]:
        """Return all jobs, oldest first."""
        return self.app.jobs.select(Filter(oldest_first=True, limit=10_000))

    def leases(self, *outcomes: str) -> set[str]:
        """Return the executions that redrive has recorded with this outcome."""
        return {uid(each) for job in self.jobs() for each in self.app.job(job.id).attempts if each.outcome in outcomes}


def timed(holds: Callable[[], bool]) -> tuple[bool, float]:
    """Return an answer, and the seconds that it took."""
    began = time.monotonic()
    return holds(), time.monotonic() - began


def uid(attempt: AttemptRecord) -> str:
    """Return the name of an execution, as its handler writes it."""
    return f"{attempt.job_id}.{attempt.lease_id}"


def _closed(stream: IO[bytes] | None) -> None:
    if stream is not None:
        stream.close()


@contextlib.contextmanager
def stage(folder: Path, kind: str = "sqlite", *, work: str = WORK, url: str | None = None) -> Iterator[Deployment]:
    """Write the app into a folder, on a store of this kind, and stop all processes at the end."""
    (folder / "url").write_text(url or (f"sqlite:///{folder}/jobs.db" if kind == "sqlite" else postgres.url()))
    path = folder / "work.py"
    path.write_text(work)
    spec = importlib.util.spec_from_file_location("work", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stage = Deployment(folder, module, kind=kind)
    try:
        yield stage
    finally:
        stage.close()


class Fleet:
    """One worker at a time, which is killed and started again.

    Args:
        name: the module of the app in this folder. Its environment has ``NAME_URL`` and ``NAME_HOME``.
        url: of the database.
        folder: for the log of the workers, and for the ledger, to which functions of steps write a line each.
    """

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self._name, self._folder = name, folder
        prefix = name.upper()
        self._environment = {
            **os.environ, f"{prefix}_URL": url, f"{prefix}_HOME": str(folder), "PYTHONPATH": str(CHECKOUT),
        }  # fmt: skip
        self.kills = 0
        self._worker: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start a worker."""
        command = [sys.executable, "-m", "redrive", "worker", f"tests.acceptance.{self._name}:app"]
        with (self._folder / "worker.log").open("ab") as log:
            self._worker = subprocess.Popen(command, env=self._environment, stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        """Kill it."""
        assert self._worker is not None
        self._worker.kill()
        self._worker.wait()
        self.kills += 1

    def stop(self) -> None:
        """End the last one."""
        if self._worker is not None:
            self._worker.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._worker.wait(15)
            self._worker.kill()
            self._worker.wait()

    def lines(self) -> list[str]:
        """Return what the functions of steps have written until now."""
        ledger = self._folder / "ledger"
        return ledger.read_text().splitlines() if ledger.exists() else []

    @property
    def log(self) -> str:
        """What the workers have logged."""
        return (self._folder / "worker.log").read_text()
