"""Workers without notifications of new jobs, with late ones, or without the task."""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests import postgres
from tests.acceptance.chaos import audit, ended, load, long_only, marks
from tests.acceptance.processes import LONG, Deployment

pytestmark = marks

POLL = timedelta(seconds=1)
"""Polling interval of an idle worker."""

GENEROUS = timedelta(seconds=2)
"""Tolerance for a busy machine."""


def _wait(stage: Deployment) -> timedelta:
    """Enqueue one job; how long did it wait for its worker?"""
    job = stage.module.quick.enqueue(0)
    ended(stage)
    return job.attempts[0].started_at - job.record.enqueued_at


@pytest.mark.case("D60")
@pytest.mark.realtime
def test_without_notifications_a_job_starts_within_one_interval(tmp_path: Path):
    """With ``notify=off`` the worker receives no notification, and polls."""
    with load(tmp_path, "postgres", url=postgres.url(notify="off")) as stage:
        stage.lease_for = LONG
        stage.ready_worker()

        assert [] == [wait for wait in [_wait(stage) for _ in range(3)] if wait > POLL + GENEROUS]
        audit(stage, [job.id for job in stage.jobs()])


@pytest.mark.case("D60")
@pytest.mark.realtime
def test_with_a_listener_a_job_starts_at_once(tmp_path: Path):
    """Half of the jobs start within 50 ms, by the clock of the database."""
    with load(tmp_path, "postgres") as stage:
        stage.lease_for = LONG
        stage.ready_worker()
        waits = sorted(_wait(stage) for _ in range(11))

        assert timedelta(milliseconds=50) > waits[5]


class Wire:
    """A TCP proxy of a server that can be made to drop all data without a reset.

    Args:
        folder: folder of the server's socket."""

    def __init__(self, folder: str) -> None:
        self.cut = False
        self.connections = 0
        self._target = f"{folder}/.s.PGSQL.5432"
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more."""
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self.connections += 1
                self.cut = False
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._target)
                threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        mine = self.connections
        with contextlib.suppress(OSError), near, far:
            while True:
                for source in select.select([near, far], [], [])[0]:
                    words = source.recv(65536)
                    if not words:
                        return
                    if not (self.cut or mine != self.connections):
                        (far if source is near else near).sendall(words)


@pytest.fixture(name="wire")
def _wire() -> Iterator[Wire]:
    """Return a proxy to the server of the tests."""
    wire = Wire(postgres.server())
    yield wire
    wire.close()


@long_only
def test_a_listener_without_a_connection_is_replaced(tmp_path: Path, wire: Wire):
    """Drop its connection without a reset: it is replaced, and until then jobs start by polling."""
    with load(tmp_path, "postgres", url=postgres.url(direct=f"127.0.0.1:{wire.port}")) as stage:
        stage.lease_for = LONG
        stage.ready_worker()
        wire.cut = True

        assert POLL + GENEROUS > _wait(stage)
        stage.until(lambda: wire.connections == 2)
        assert POLL + GENEROUS > _wait(stage)


WITHOUT = """
import work
from redrive import App

app = App((work.HERE / "url").read_text(), heartbeat_every="200ms")
"""


@pytest.mark.case("D60")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_job_of_an_unknown_task_waits_for_a_worker_with_the_task(tmp_path: Path, kind: str):
    """Workers without the task leave the job where it is, with this as its reason; one that has the task
    runs it at once."""
    with load(tmp_path, kind) as stage:
        stage.lease_for = LONG
        (tmp_path / "without.py").write_text(WITHOUT)
        ignorant = stage.run(sys.executable, "-m", "redrive", "worker", "without:app")
        job = stage.module.quick.enqueue(7)
        stage.until(lambda: ignorant.logged("serves all queues"))
        stage.until(lambda: "no live worker has the task 'quick'" in job.refresh().why)
        record = job.record
        stage.ready_worker()
        ended(stage)

        assert ("ready", 0, 0) == (record.state, record.attempt, record.failures)
        assert (record.enqueued_at, None) == (record.scheduled_at, record.hold)
        assert (7, 1) == (job.result(), len(job.attempts))
        audit(stage, [job.id])
