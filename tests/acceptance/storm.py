"""Faults at random, and an app of several parts that is audited after them.

A `Part` is a section of the app, a section of its producer, and an audit. All parts run in the same workers, on the
same database, at the same time. The records are as in `tests.acceptance.chaos`: the acknowledgements to the producer,
the lines of the handlers, and the database.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from redrive.errors import StoreError
from tests.acceptance import processes
from tests.acceptance.processes import Deployment, WorkerProcess
from tests.acceptance.servers import PostgresServer

WORK = '''
"""The app of the storm; workers and the producer import it as ``work``."""

import asyncio
import os
from pathlib import Path

import msgspec

import redrive
from redrive import App, Context

HERE = Path(__file__).parent
app = App((HERE / "url").read_text(), heartbeat_every="200ms", lease_for=os.environ.get("LEASE_FOR", "15s"))
receiver = os.open(HERE / "executions.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(*words: object) -> None:
    """Write one line, whole; it outlives the process."""
    os.write(receiver, (" ".join(map(str, words)) + "\\n").encode())
'''

PRODUCER = """
import itertools, sys, time
from pathlib import Path

import work
from redrive.errors import OutcomeUnknown, StoreError

log = open("acknowledged.log", "a")


def insist(call, *words):
    '''Repeat a call that is safe to repeat until it has been acknowledged.'''
    while True:
        try:
            call()
        except StoreError:
            time.sleep(0.05)
        else:
            print(*words, file=log, flush=True)
            return


def attempt(call, *words):
    '''Make a call once, and record whether it was acknowledged.'''
    try:
        call()
    except OutcomeUnknown:
        pass
    except StoreError:
        time.sleep(0.05)
    else:
        print(*words, file=log, flush=True)
"""

PRODUCING = """
pause = float(sys.argv[1])
for number in itertools.count():
    if Path("enough").exists():
        break
    for each in producers:
        each(number)
    time.sleep(pause)
for each in last:
    each()
"""


class Part:
    """A section of the app.

    Attributes:
        work: its source.
        producer: a function of the next number, as source, whose name is appended to ``producers``.
    """

    work: str
    producer: str

    def settled(self, stage: Deployment) -> bool:
        """Return True if nothing of this part is left to be done."""
        raise NotImplementedError

    def audit(self, stage: Deployment, storm: Storm) -> None:
        """Check what holds after any fault."""
        raise NotImplementedError


@contextlib.contextmanager
def load(folder: Path, kind: str, parts: Sequence[Part], *, url: str | None = None) -> Iterator[Deployment]:
    """Return an app of these parts in a folder, and stop it at the end."""
    with processes.stage(folder, kind, work=WORK + "".join(part.work for part in parts), url=url) as stage:
        yield stage


def produce(stage: Deployment, parts: Sequence[Part], pause: float) -> WorkerProcess:
    """Start the producer of these parts, which goes on until `enough`."""
    source = PRODUCER + "producers, last = [], []\n" + "".join(part.producer for part in parts) + PRODUCING
    return stage.run(sys.executable, "-c", source, str(pause))


def acknowledged(stage: Deployment, kind: str) -> list[str]:
    """Return the rest of the producer's lines of a kind, in order."""
    lines = (stage.folder / "acknowledged.log").read_text().splitlines()
    return [line.partition(" ")[2] for line in lines if line.partition(" ")[0] == kind]


class Storm:
    """Workers, and what happens to them.

    Args:
        stage: the app.
        workers: how many there are, again and again.
        seed: of the order of the faults.
        server: restarted, too; None where there is none.
    """

    def __init__(self, stage: Deployment, workers: int, seed: int, server: PostgresServer | None = None) -> None:
        self.stage = stage
        self.rng = random.Random(seed)
        self.stopped: set[int] = set()
        self.faults: list[str] = []
        self._server = server
        self._living = [self._worker() for _ in range(workers)]
        self._possible: list[Callable[[], None]] = [self._kill, self._stop]
        if server is not None:
            self._possible.append(self._restart)

    def blow(self, seconds: float) -> None:
        """Let each kind of fault happen at least once, and then any of them, until the time is over."""
        end = time.monotonic() + seconds
        order = self.rng.sample(self._possible, len(self._possible))
        while order or time.monotonic() < end:
            fault = order.pop() if order else self.rng.choice(self._possible)
            self.faults.append(fault.__name__)
            self._moves(self.rng.randrange(2_000, 6_000))
            fault()

    def end(self) -> None:
        """End the workers in good order."""
        self._living = [self._serving(each) for each in self._living]
        for each in self._living:
            each.send(signal.SIGTERM)

        assert [0] * len(self._living) == [each.ended() for each in self._living]

    def _worker(self) -> WorkerProcess:
        return self.stage.worker("--concurrency", "20")

    def _serving(self, worker: WorkerProcess) -> WorkerProcess:
        """Wait until a worker handles signals; one that found no server when it started is started again."""
        self.stage.until(lambda: worker.logged("serves all queues") or worker.popen.poll() is not None)
        return worker if worker.popen.poll() is None else self._serving(self._worker())

    def _moves(self, lines: int) -> None:
        """Wait until handlers have written so many bytes more."""
        log = self.stage.folder / "executions.log"
        reached = log.stat().st_size + lines
        self.stage.until(lambda: log.stat().st_size >= reached)

    def _kill(self) -> None:
        victim = self.rng.randrange(len(self._living))
        self._living[victim].send(signal.SIGKILL)
        self._living[victim].ended()
        self._living[victim] = self._worker()

    def _stop(self) -> None:
        """Suspend a worker for longer than its lease."""
        chosen = self.rng.randrange(len(self._living))
        victim = self._living[chosen] = self._serving(self._living[chosen])
        self.stopped.add(victim.popen.pid)
        self.stage.stop(victim)
        over = time.monotonic() + 1.5 * float(self.stage.lease_for.removesuffix("s"))
        self.stage.until(lambda: time.monotonic() > over)
        victim.send(signal.SIGCONT)

    def _restart(self) -> None:
        assert self._server is not None
        self._server.restart()


def calm(stage: Deployment, parts: Sequence[Part], *, patience: float) -> None:
    """Wait until nothing is left to be done, through interruptions of the database."""

    def over() -> bool:
        time.sleep(0.1)
        try:
            return all(part.settled(stage) for part in parts)
        except StoreError:
            return False

    stage.until(over, patience=patience)


def check(stage: Deployment) -> None:
    """Check that ``redrive check`` finds nothing."""
    command = (sys.executable, "-m", "redrive", "check", "work:app")
    done = stage.run(*command)

    assert 0 == done.ended(), done.log.read_text()


def pid(words: str) -> int:
    """Return the process that wrote a line, which ends with its id."""
    return int(words.rpartition(" ")[2])
