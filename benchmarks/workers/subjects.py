"""redrive with handlers of several kinds, as many worker processes and slots as are asked for."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.processes import Process, wait
from benchmarks.subjects.redrive import PATH, URL, Redrive, RedriveOnPostgres, RedriveOnSQLite
from redrive.app.app import App
from redrive.app.tasks.task import Task

__all__ = ["BUSY", "KINDS", "REGISTERED", "app", "early", "fleet"]

REGISTERED = PATH + "SELECT count(*) FROM redrive_workers WHERE stopped_at IS NULL"

BUSY = 0.001
"""Seconds of processor time that a busy handler takes."""

KINDS = ("async", "def", "busy", "failing")


def define(app: App) -> dict[str, Task[..., Any, Any]]:
    """Register a task of each kind: a coroutine and a function that do nothing, and a coroutine that computes.

    Jobs of ``failing`` are dead after one attempt, with three exceptions that were raised from each other. Those of
    ``silent`` are not counted.

    Args:
        app: where.

    Returns:
        The tasks by their kinds.
    """
    meters: list[Meter] = []

    def mark(sent_at: float) -> None:
        if not meters:
            meters.append(Meter.given())
        meters[0].mark(sent_at)

    @app.task(name="async")
    async def noop(sent_at: float) -> None:
        mark(sent_at)

    @app.task(name="def")
    def function(sent_at: float) -> None:
        mark(sent_at)

    @app.task(name="busy")
    async def busy(sent_at: float) -> None:
        until = time.thread_time() + BUSY
        while time.thread_time() < until:
            pass
        mark(sent_at)

    @app.task(name="failing")
    async def failing(sent_at: float) -> None:
        mark(sent_at)
        _pay()

    @app.task(name="silent")
    async def silent() -> None:
        pass

    return {"async": noop, "def": function, "busy": busy, "failing": failing, "silent": silent}


def _pay() -> None:
    try:
        _send()
    except ConnectionError as error:
        raise RuntimeError("the payment was not sent") from error


def _send() -> None:
    _request()


def _request() -> None:
    try:
        _connect()
    except OSError as error:
        raise ConnectionError("the bank cannot be reached") from error


def _connect() -> None:
    raise OSError("connection refused")


app = App(os.environ.get(URL, "memory://"))
"""What a worker process loads."""

define(app)


class _Kind(Redrive):
    module = __name__
    kind: str

    def define(self, app: App) -> None:
        """Register the tasks; those of one kind are enqueued."""
        self._tasks = define(app)
        self._task = self._tasks[self.kind]


REST = 1.0
"""Seconds for which registered workers rest before they may start: their first looks."""


PAUSE = "INSERT INTO redrive_queues (name, paused_at) VALUES ('default', now())"
RESUME = 'DELETE FROM redrive_queues; NOTIFY "redrive.redrive"'


class _OnPostgres(_Kind, RedriveOnPostgres):
    """All workers begin at once: a process needs as much processor time to start as for thousands of jobs."""

    def prepare(self, place: Place) -> None:
        """Pause the queue."""
        place.ask(PATH + PAUSE)

    def started(self, processes: Sequence[Process]) -> None:
        """Wait until all workers are idle, and make the queue a plain one again."""
        wait("the registration", lambda: int(self._place.ask(REGISTERED)) == len(processes), *processes)
        time.sleep(REST)
        self._place.ask(PATH + RESUME)


class _OnSQLite(_Kind, RedriveOnSQLite):
    pass


class _Early(_OnPostgres):
    """The sessions of the worker have planned their statements in an empty database, before the jobs are enqueued."""

    def enqueue_many(self, count: int) -> None:
        """Keep the number of jobs for later."""
        self._count = count

    def prepare(self, place: Place) -> None:
        """Leave the tables empty."""

    def started(self, processes: Sequence[Process]) -> None:
        """Let the worker execute a job that is not counted, then enqueue the jobs."""
        self._tasks["silent"].enqueue().result(timeout=30)
        self._place.ask(PATH + PAUSE)
        super().enqueue_many(self._count)
        super().started(processes)


def early() -> Redrive:
    """Return a subject with the jobs of `fleet("postgres", "async")`, enqueued when its worker is there."""
    subject = _Early()
    subject.kind = "async"
    return subject


def fleet(store: str, kind: str, concurrency: int | None = None) -> Redrive:
    """Return a subject.

    Args:
        store: ``sqlite`` or ``postgres``.
        kind: of its handlers, one of `KINDS`.
        concurrency: slots of each worker; None for the default.
    """
    subject = _OnPostgres() if store == "postgres" else _OnSQLite()
    subject.kind, subject.concurrency = kind, concurrency
    return subject
