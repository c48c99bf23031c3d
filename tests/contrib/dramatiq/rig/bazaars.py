"""Real workers of Dramatiq, the ledger of what they do, and a client that sends them messages."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker

from tests.contrib.celery.rig.workers import CHECKOUT, PATIENCE, wait_for
from tests.contrib.celery.rig.workers import RIG as OTHER

RIG = Path(__file__).parent


class Bazaar:
    """A queue of its own on a broker, its workers and their ledger.

    Args:
        folder: for the ledger and the logs.
        url: that of the broker.
        **environment: further variables of the workers.
    """

    def __init__(self, folder: Path, url: str, **environment: str) -> None:
        self.folder, self.ledger = folder, folder / "ledger"
        self.queue = f"q{os.getpid()}{time.monotonic_ns()}"
        self._environment = {"BROKER": url, "LEDGER": str(self.ledger), "QUEUE": self.queue, **environment}
        if url.startswith("redis"):
            self._client = RedisBroker(url=url, namespace=self.queue, middleware=[])
        else:
            self._client = RabbitmqBroker(url=url, middleware=[], confirm_delivery=True)
        self._client.declare_queue(self.queue)
        self.workers: list[Worker] = []

    def start(self, **environment: str) -> Worker:
        """Start a worker with one process of four threads, and wait until it takes messages."""
        worker = self.launch(**environment)
        wait_for(lambda: "is ready for action" in worker.text() or not worker.alive, worker.text)
        assert worker.alive, worker.text()
        return worker

    def launch(self, **environment: str) -> Worker:
        """Start a worker."""
        log = self.folder / f"worker{len(self.workers)}.log"
        worker = Worker(log, {**self._environment, **environment})
        self.workers.append(worker)
        return worker

    def send(self, actor: str, *args: object, **options: Any) -> str:
        """Send a message, and return its id."""
        message = dramatiq.Message(queue_name=self.queue, actor_name=actor, args=args, kwargs={}, options=options)
        return str(self._client.enqueue(message).message_id)

    def rows(self, *words: object) -> list[list[Any]]:
        """Return the lines of the ledger that begin with these words, each as the time, the process, and the rest."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        found = [json.loads(line) for line in lines]
        return [[at, pid, *more[len(words) :]] for at, pid, *more in found if more[: len(words)] == list(words)]

    def count(self, *words: object) -> int:
        """Return the number of these lines."""
        return len(self.rows(*words))

    def wait(self, *words: object, times: int = 1) -> list[list[Any]]:
        """Wait until the ledger has such lines, and return them."""
        wait_for(lambda: self.count(*words) >= times, self.story)
        return self.rows(*words)

    def rules(self, message_id: str) -> list[str]:
        """Return the rules of the decisions about a call, in order."""
        return [row[4] for row in self.rows("event") if row[3] == message_id]

    def story(self) -> str:
        """Return the ledger and the logs, for a test that fails."""
        ledger = self.ledger.read_text() if self.ledger.exists() else "no ledger"
        return "\n".join([ledger, *(each.text() for each in self.workers)])

    def close(self) -> None:
        """End all workers."""
        for each in self.workers:
            each.kill()
        self._client.close()


class Worker:
    """The command ``dramatiq``: a main process, and one process with four threads."""

    def __init__(self, log: Path, environment: dict[str, str]) -> None:
        self.log = log
        command = [sys.executable, "-m", "dramatiq", "bazaar", "-p", "1", "-t", "4"]
        paths = os.pathsep.join([str(CHECKOUT / "src"), str(RIG), str(OTHER)])
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=RIG,
                env={**os.environ, "PYTHONPATH": paths, "dramatiq_queue_prefetch": "4", **environment},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def text(self) -> str:
        """Return its log."""
        return self.log.read_text()

    @property
    def alive(self) -> bool:
        """True while it runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Stop it as a deployment does."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE)

    def kill(self) -> None:
        """Kill all its processes, without a chance to clean up."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
