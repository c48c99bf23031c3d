"""The server process of a worker's heartbeat is stopped: its kernel acknowledges, and it never answers."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import Deployment, WorkerProcess, stage
from tests.acceptance.servers import PostgresServer, own

HEART = "heart"
"""The name of the worker's synchronous sessions, of which only the heartbeat has any."""

LEASE = "3s"


class Stopped:
    """Processes that are suspended, and continue at the end."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def stop(self, *numbers: int) -> None:
        """Stop processes where they stand."""
        for number in numbers:
            os.kill(number, signal.SIGSTOP)
            self.numbers.append(number)

    def resume(self) -> None:
        """Continue all of them."""
        for number in self.numbers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGCONT)
        self.numbers = []


@pytest.fixture(name="server")
def _server() -> Iterator[PostgresServer]:
    """Start a separate server."""
    with own(Path(tempfile.mkdtemp(prefix="redrive-silence-"))) as server:
        yield server


@pytest.fixture(name="stopped")
def _stopped(server: PostgresServer) -> Iterator[Stopped]:
    """Stop a process with SIGSTOP, and continue it before the server is stopped."""
    stopped = Stopped()
    yield stopped
    stopped.resume()


@pytest.fixture(name="stage")
def _stage(server: PostgresServer, tmp_path: Path) -> Iterator[Deployment]:
    """Return an app on that server, with short leases."""
    with stage(tmp_path, "postgres", url=server.url()) as opened:
        opened.lease_for = LEASE
        yield opened


def hearts(server: PostgresServer) -> list[int]:
    """Return the server processes of the heartbeat connection of the named worker."""
    return [row[0] for row in server.ask("SELECT pid FROM pg_stat_activity WHERE application_name = %s", HEART)]


def fleet(stage: Deployment, server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> WorkerProcess:
    """Start a worker with a job that runs, and then another worker; return the first one."""
    monkeypatch.setenv("PGAPPNAME", HEART)
    worker = stage.ready_worker("--shutdown-timeout", "1s")
    monkeypatch.delenv("PGAPPNAME")
    stage.module.hold.enqueue(1)
    stage.until(lambda: len(stage.executions) == 1)
    stage.ready_worker()
    stage.until(lambda: len(hearts(server)) == 1)
    return worker


def beats(stage: Deployment) -> dict[int, object]:
    """Return the time of the last heartbeat of each worker."""
    return {each.id: each.heartbeat_at for each in stage.app.workers.select()}


def test_a_heartbeat_without_a_reply_is_repeated_on_another_connection(
    stage: Deployment, server: PostgresServer, stopped: Stopped, monkeypatch: pytest.MonkeyPatch
):
    """Run the job once without a loss, and end the worker when it is stopped."""
    worker = fleet(stage, server, monkeypatch)
    stopped.stop(*hearts(server))
    stage.until(lambda: len(hearts(server)) == 2)
    before = beats(stage)
    stage.until(lambda: all(when != before[number] for number, when in beats(stage).items()))
    stage.go()
    stage.all_ended()
    worker.send(signal.SIGTERM)

    assert 0 == worker.ended()
    assert [["succeeded"]] == [[each.outcome for each in stage.app.job(job.id).attempts] for job in stage.jobs()]
    assert 1 == len(stage.executions)


def test_a_worker_without_a_connection_ends_its_attempts_before_other_workers_start_them(
    stage: Deployment, server: PostgresServer, stopped: Stopped, monkeypatch: pytest.MonkeyPatch
):
    """If no connection can be opened, the handler is cancelled, then its job runs again, with no attempt spent.
    The worker ends when it is stopped during the outage."""
    worker = fleet(stage, server, monkeypatch)
    leader = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    stopped.stop(*hearts(server), leader)
    stage.until(lambda: len(stage.executions) == 2)
    lines = (stage.folder / "executions.log").read_text().splitlines()
    worker.send(signal.SIGTERM)
    status = worker.ended()
    stopped.resume()
    stage.go()
    stage.all_ended()
    (job,) = stage.jobs()

    assert [f"run {stage.executions[0]}", f"stopped {stage.executions[0]}", f"run {stage.executions[1]}"] == lines
    assert 0 == status
    outcomes = [each.outcome for each in stage.app.job(job.id).attempts]
    assert ["released"] * (len(outcomes) - 1) + ["succeeded"] == outcomes
    assert job.crashes == 0
