"""PostgreSQL ends sessions, stops, or is killed, while workers and producers are busy with it."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from redrive.errors import StoreError
from tests.acceptance.chaos import acknowledged, audit, ended, enough, everything, load, marks, produce, progress, sized
from tests.acceptance.processes import LONG, Deployment
from tests.acceptance.servers import PostgresServer, own

pytestmark = marks

CLAIMING = "%redrive_jobs AS job SET%state = 'running'%"
SETTLING = "%redrive_jobs%SET%state = 'succeeded'%"
LISTENING = "%pg_try_advisory_lock%"


@pytest.fixture(scope="module", name="server")
def _server() -> Iterator[PostgresServer]:
    """Start a server that only these tests use."""
    with own(Path(tempfile.mkdtemp(prefix="redrive-chaos-"))) as server:
        yield server


@pytest.fixture(name="stage")
def _stage(server: PostgresServer, tmp_path: Path) -> Iterator[Deployment]:
    """Return the app of the chaos tests on that server, with leases longer than the faults."""
    with load(tmp_path, "postgres", url=server.url()) as stage:
        stage.lease_for = LONG
        yield stage


def _stop_workers(stage: Deployment) -> None:
    """Check that the processes that ran all the time end in good order."""
    for each in stage.processes:
        if each.alive:
            each.send(signal.SIGTERM)

    assert {0} == {each.ended() for each in stage.processes}


# tests/stores/drivers/test_postgres_unknown.py ends sessions at each statement; a settle is where a job could be lost.
@pytest.mark.parametrize(
    "role", [pytest.param(CLAIMING, marks=pytest.mark.night), SETTLING], ids=["claimer", "settler"]
)
def test_sessions_terminated_during_a_transaction_lose_no_job(stage: Deployment, server: PostgresServer, role: str):
    """pg_terminate_backend of sessions that are just claiming, or just settling: the workers live on, and no attempt
    is lost for it."""
    stage.ready_worker("--concurrency", "20")
    stage.ready_worker("--concurrency", "20")
    producer = produce(stage, pause=0.001)
    victims: list[int] = []
    # A worker that meets nothing but ended sessions rests longer and longer, up to five seconds.
    stage.until(lambda: len(_with(victims, server.terminate(role))) >= sized(10, 60), patience=sized(60, 600))
    progress(stage, 50)
    enough(stage, producer)
    ended(stage)
    _stop_workers(stage)

    audit(stage)
    assert [] == [each for _, history in everything(stage.app).values() for each in history if each.outcome == "lost"]


def test_an_outage_longer_than_the_lease_is_not_counted_as_a_crash(server: PostgresServer, tmp_path: Path, monkeypatch):
    """After two outages longer than a lease no worker counts as dead, and no attempt is lost. Workers cannot know
    whether others reach the database, so they have given their attempts back, and run them again."""
    monkeypatch.setenv("BEAT", "500ms")
    with load(tmp_path, "postgres", url=server.url()) as stage:
        stage.lease_for = "3s"
        jobs = stage.module.hold.enqueue_many(range(20))
        for _ in range(2):
            stage.ready_worker("--concurrency", "10")
        stage.until(lambda: len(stage.executions) == len(jobs))
        for _ in range(2):
            server.stop()
            back_at = time.monotonic() + 5
            stage.until(lambda back_at=back_at: time.monotonic() > back_at)
            server.start()
            stage.until(lambda: len(stage.app.workers.select()) == 2)
            beats = {each.id: each.heartbeat_at for each in stage.app.workers.select()}
            stage.until(
                lambda beats=beats: all(each.heartbeat_at > beats[each.id] for each in stage.app.workers.select())
            )
        stage.go()
        ended(stage)
        _stop_workers(stage)

        assert list(range(20)) == [job.result() for job in jobs]
        assert {"released", "succeeded"} == {each.outcome for job in jobs for each in job.attempts}
        assert [0] * 20 == [job.record.crashes for job in jobs]
        audit(stage, [job.id for job in jobs])


def test_a_terminated_listener_is_replaced(stage: Deployment, server: PostgresServer):
    """pg_terminate_backend of the listening session: another one listens soon, and holds the lock."""
    stage.ready_worker()
    for number in range(sized(3, 30)):
        stage.until(lambda: len(server.sessions(LISTENING)) == 1)
        (before,) = server.sessions(LISTENING)
        server.terminate(LISTENING)
        stage.until(lambda before=before: server.sessions(LISTENING) not in ([], [before]))
        job = stage.module.quick.enqueue(number)
        ended(stage)

        assert number == job.result()
    stage.until(lambda: [True] == [worker.locked for worker in stage.app.workers.select()])
    _stop_workers(stage)
    audit(stage)


def _with(known: list[int], more: list[int]) -> list[int]:
    known += more
    return known


DISASTERS: dict[str, Callable[[PostgresServer], object]] = {
    "immediate": PostgresServer.restart,
    "kill -9": PostgresServer.kill,
    "kill -9 of sessions": lambda server: server.kill_sessions(LISTENING),
}


@pytest.mark.case("D24")
# The kill of the whole server is the hardest of them.
@pytest.mark.parametrize(
    "disaster", [pytest.param(each, marks=() if each == "kill -9" else pytest.mark.night) for each in DISASTERS]
)
def test_postgres_restarts_while_jobs_run(stage: Deployment, server: PostgresServer, disaster: str):
    """Kill the server repeatedly while jobs run, others wait, and producers continue: the workers reconnect,
    no acknowledged job and no attempt is lost, and no ended job runs again."""
    running, waiting, workers = sized(40, 500), sized(200, 2_000), sized(2, 4)
    held = stage.module.hold.enqueue_many(range(running))
    for _ in range(workers):
        stage.worker("--concurrency", str(running // workers + 20))
    stage.until(lambda: len(stage.executions) == running)
    more = stage.module.brief.enqueue_many(range(waiting))
    producer = produce(stage, pause=0.01)
    for _ in range(sized(2, 5)):
        progress(stage, 20)
        DISASTERS[disaster](server)
        progress(stage, 20)
    stage.go()
    enough(stage, producer)
    ended(stage)

    assert list(range(running)) == [job.result() for job in held]
    assert list(range(waiting)) == [job.result() for job in more]
    assert workers + 1 == len(stage.processes)
    _stop_workers(stage)
    audit(stage, [*acknowledged(stage), *(job.id for job in (*held, *more))])
    assert [["succeeded"]] * running == [[each.outcome for each in job.attempts] for job in held]


def _all_are_mine(server: PostgresServer, taken: list[psycopg.Connection]) -> bool:
    """Throw the others out, and take their connections before they come back; have we all of them?"""
    others = [[each.info.backend_pid for each in taken]]
    out = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND pid <> ALL (%s)"
    )
    gone = taken[0].execute(out, others).fetchall()
    with contextlib.suppress(psycopg.OperationalError):
        while True:
            taken.append(server.connect())
    return not gone


def test_a_worker_waits_for_a_server_without_free_connections(stage: Deployment, server: PostgresServer):
    """While all connections are taken, an enqueue raises an error, and the worker waits; it continues when
    connections are free again."""
    stage.ready_worker()
    jobs = stage.module.brief.enqueue_many(range(sized(50, 500)))
    progress(stage, 10)
    taken = [server.connect()]
    stage.until(lambda: _all_are_mine(server, taken))
    with pytest.raises(StoreError, match="cannot be reached.*too many clients"):
        stage.module.quick.enqueue(0)
    stage.until(lambda: stage.processes[0].logged("waits: .*too many clients"))
    for each in taken:
        each.close()
    ended(stage)
    _stop_workers(stage)

    audit(stage, [job.id for job in jobs])
