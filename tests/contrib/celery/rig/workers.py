"""Real workers of Celery, the ledger of what they do, and a client that sends them tasks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery import Celery

RIG = Path(__file__).parent
CHECKOUT = RIG.parents[3]

PATIENCE = 120
"""Seconds after which a waiting test fails."""


class Shop:
    """A queue of its own on a broker, its workers and their ledger.

    Args:
        folder: for the ledger and the logs.
        broker: the URL of the broker.
        backend: the URL of the result backend.
        **environment: further variables of the workers.
    """

    def __init__(self, folder: Path, broker: str, backend: str, **environment: str) -> None:
        self.folder, self.ledger = folder, folder / "ledger"
        queue = f"q{os.getpid()}{time.monotonic_ns()}"
        self._environment = {"BROKER": broker, "BACKEND": backend, "LEDGER": str(self.ledger), "QUEUE": queue}
        self._environment |= environment
        # Without results: an object for one would keep a connection.
        self._client = Celery("client", broker=broker, backend="disabled://", set_as_current=False)
        self._client.conf.update(
            task_default_queue=queue, broker_transport_options=json.loads(environment.get("TRANSPORT", "{}"))
        )
        self._results = Celery("results", backend=backend, set_as_current=False)
        self.workers: list[Worker] = []

    def start(self, *options: str, **environment: str) -> Worker:
        """Start a worker with two processes, and wait until it takes messages."""
        worker = self.launch(*options, **environment)
        wait_for(lambda: worker.logged(" ready.") or not worker.alive, worker.text)
        assert worker.alive, worker.text()
        return worker

    def launch(self, *options: str, **environment: str) -> Worker:
        """Start a worker."""
        worker = Worker(self.folder / f"worker{len(self.workers)}.log", {**self._environment, **environment}, options)
        self.workers.append(worker)
        return worker

    def send(self, task: str, *args: object, **options: Any) -> str:
        """Send a task, and return its id."""
        return str(self._client.send_task(f"shop.{task}", args, **options).id)

    def end_of(self, task_id: str) -> tuple[str, object]:
        """Wait for the end of a task, and return its state and its result."""
        read = self._results.backend.get_task_meta
        wait_for(lambda: read(task_id)["status"] in {"SUCCESS", "FAILURE", "REVOKED"}, self.story)
        meta = read(task_id)
        return meta["status"], meta["result"]

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

    def wait_for_catch(self, task_id: str) -> None:
        """Wait until a task has given up, and its catch task has succeeded; the one may be written after the other."""
        self.wait("caught", task_id)
        self.wait("event", "TaskGaveUp", task_id)

    def rules(self, task_id: str) -> list[str]:
        """Return the rules of the decisions about a call, in order."""
        return [row[4] for row in self.rows("event") if row[3] == task_id and row[2] != "TaskLost"]

    def story(self) -> str:
        """Return the ledger and the logs, for a test that fails."""
        ledger = self.ledger.read_text() if self.ledger.exists() else "no ledger"
        return "\n".join([ledger, *(each.text() for each in self.workers)])

    def close(self) -> None:
        """End all workers."""
        for each in self.workers:
            each.kill()
        self._client.close()
        self._results.close()


class Worker:
    """A process of ``celery worker`` with its children."""

    def __init__(self, log: Path, environment: dict[str, str], options: tuple[str, ...]) -> None:
        self.log = log
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "shop",
            "worker",
            "-l",
            "INFO",
            "-c",
            "2",
            "-n",
            f"{log.stem}@h",
        ]
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat", *options]
        paths = os.pathsep.join([str(CHECKOUT / "src"), str(RIG)])
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=RIG,
                env={**os.environ, "PYTHONPATH": paths, **environment},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def text(self) -> str:
        """Return its log."""
        return self.log.read_text()

    def logged(self, text: str) -> bool:
        """Return True if its log has a text."""
        return text in self.text()

    @property
    def alive(self) -> bool:
        """True while it runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Stop it as a deployment does: it finishes what runs, and gives the rest back."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE)

    def kill(self) -> None:
        """Kill it and its children, without a chance to clean up."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def wait_for(condition: Callable[[], object], explain: Callable[[], str]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.05)
