"""Failovers of two real servers that both stand in the URL: one is stopped, and the other one promoted."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redrive.clock import SystemClock
from redrive.errors import StoreBusy, StoreError, StoreOutcomeUnknown
from tests import postgres
from tests.acceptance.processes import LONG, Deployment, stage
from tests.acceptance.servers import PostgresServer, pair

pytestmark = pytest.mark.acceptance

ENOUGH = 5.0
"""Seconds within which a caller goes on after a failover."""

Pair = tuple[PostgresServer, PostgresServer]


@pytest.fixture(name="servers")
def _servers() -> Iterator[Pair]:
    """Start a primary and a standby."""
    with pair() as made:
        yield made


@pytest.fixture(name="fleet")
def _fleet(servers: Pair, tmp_path: Path) -> Iterator[Deployment]:
    """Return the app of the acceptance tests, with both servers."""
    hosts = ",".join(str(each.folder) for each in servers)
    url = servers[0].url(schema=postgres.fresh(), host=hosts, target_session_attrs="read-write")
    with stage(tmp_path, "postgres", url=url) as made:
        made.lease_for = LONG
        yield made


def ready(fleet: Deployment, servers: Pair) -> None:
    """Wait until the standby has the tables."""
    fleet.app.open()
    fleet.until(servers[1].has_caught_up_with(servers[0]))


def test_a_worker_that_starts_during_a_failover_waits(fleet: Deployment, servers: Pair):
    """Its log has the reason of each server; it runs jobs as soon as one of them writes."""
    primary, standby = servers
    ready(fleet, servers)
    fleet.module.quick.enqueue(1)
    fleet.until(standby.has_caught_up_with(primary))
    primary.freeze()
    worker = fleet.worker()
    fleet.until(lambda: worker.logged(r"the worker waits for its database, .* s more: .*no answer within 2.0 s"))
    assert worker.logged("5432: is a standby, and target_session_attrs=read-write")
    assert not worker.logged("Traceback")
    standby.promote()
    fleet.until(lambda: worker.logged("serves all queues"))
    assert worker.logged("the database can be reached")
    primary.thaw()
    fleet.app.close()
    fleet.until(lambda: bool(fleet.executions))
    worker.send(signal.SIGTERM)

    assert 0 == worker.ended()


def test_a_worker_that_waits_ends_at_a_signal(fleet: Deployment, servers: Pair):
    """As one that has started does, with the status 0."""
    ready(fleet, servers)
    servers[0].freeze()
    worker = fleet.worker("--wait", "1h")
    fleet.until(lambda: worker.logged("waits for its database"))
    worker.send(signal.SIGTERM)

    assert 0 == worker.ended()


def test_a_worker_without_a_wait_ends_at_once(fleet: Deployment, servers: Pair):
    """Its error has the reasons, and its status is 1."""
    ready(fleet, servers)
    servers[0].freeze()
    worker = fleet.worker("--wait", "0")

    assert 1 == worker.ended()
    assert worker.logged("redrive: PostgreSQL .* cannot be reached.*no answer within 2.0 s")
    assert not worker.logged("waits for its database")


def test_a_worker_whose_server_is_a_standby_waits_for_its_promotion(servers: Pair, tmp_path: Path):
    """Without a choice of servers it says that its server is read only, and asks whether it is a standby."""
    primary, standby = servers
    schema = postgres.fresh()
    with stage(tmp_path, "postgres", url=primary.url(schema=schema)) as fleet:
        ready(fleet, servers)
        (tmp_path / "url").write_text(standby.url(schema=schema))
        worker = fleet.worker()
        fleet.until(lambda: worker.logged("waits for its database.* is read only: is it a standby"))
        standby.promote()
        fleet.until(lambda: worker.logged("serves all queues"))
        worker.send(signal.SIGTERM)

        assert 0 == worker.ended()


@pytest.mark.night
def test_commits_that_wait_for_a_standby_hold_up_calls_and_workers(servers: Pair, tmp_path: Path):
    """While a synchronous standby is away, calls of both drivers end without an answer, a worker lives, and one that
    starts waits; sessions do not add up. All go on when it is back."""
    primary, standby = servers
    url = primary.url(schema=postgres.fresh(), timeout="4s")
    with stage(tmp_path, "postgres", url=url) as fleet, asyncio.Runner() as runner:
        workers = [fleet.ready_worker()]
        primary.set("synchronous_standby_names", "'ANY 1 (*)'")
        fleet.until(lambda: primary.ask("SELECT sync_state FROM pg_stat_replication") == [("quorum",)])
        standby.stop()
        for call in _calls(fleet, runner) * 3:
            with pytest.raises((StoreOutcomeUnknown, StoreBusy)):
                call()
        workers.append(fleet.worker())
        fleet.until(lambda: workers[1].logged("waits for its database"))
        sessions = len(primary.ask("SELECT FROM pg_stat_activity"))
        standby.start()
        fleet.until(lambda: workers[1].logged("serves all queues"))
        fleet.all_ended()
        for each in workers:
            each.send(signal.SIGTERM)

        assert [0, 0] == [each.ended() for each in workers]
        assert sessions < 40


@pytest.mark.night
@pytest.mark.realtime
def test_callers_and_workers_go_on_after_each_failover(fleet: Deployment, servers: Pair):
    """The primary stops where it stands and stays so; callers of both drivers and a worker go on in five seconds. And
    back: the old primary becomes the standby of the new one, and is promoted in turn."""
    ready(fleet, servers)
    worker = fleet.ready_worker()
    old, new = servers
    with asyncio.Runner() as runner:
        for _ in range(2):
            _enqueue_both(fleet, runner)
            fleet.all_ended()
            fleet.until(new.has_caught_up_with(old))
            old.freeze()
            new.promote()
            began = SystemClock.monotonic()
            with concurrent.futures.ThreadPoolExecutor() as pool:
                took = list(pool.map(_until_acknowledged, _calls(fleet, runner), [began] * 2))
            number = len(fleet.executions)
            fleet.until(lambda number=number: len(fleet.executions) > number)
            assert SystemClock.monotonic() - began < ENOUGH + 1, took
            assert max(took) < ENOUGH
            fleet.all_ended()
            old.thaw()
            old.stop()
            old.rejoin(new)
            old, new = new, old
    worker.send(signal.SIGTERM)

    assert 0 == worker.ended()
    assert not worker.logged("Traceback")


def _calls(fleet: Deployment, runner: asyncio.Runner) -> list[Callable[[], object]]:
    task = fleet.module.quick
    return [lambda: task.enqueue(1), lambda: runner.run(task.aenqueue(1))]


def _enqueue_both(fleet: Deployment, runner: asyncio.Runner) -> None:
    for call in _calls(fleet, runner):
        call()


def _until_acknowledged(call: Callable[[], object], began: float) -> float:
    """Call until a call succeeds; return the seconds since an instant."""
    while True:
        with contextlib.suppress(StoreError):
            call()
            return SystemClock.monotonic() - began


@pytest.mark.night
def test_commands_on_a_standby_ask_whether_it_is_one(servers: Pair, tmp_path: Path):
    """Of a database without tables too, where PostgreSQL's own text is about a transaction mode."""
    primary, standby = servers
    schema = postgres.fresh()
    with stage(tmp_path, "postgres", url=primary.url(schema=schema)) as fleet:
        ready(fleet, servers)
        fleet.module.quick.enqueue(1)
        fleet.until(standby.has_caught_up_with(primary))
        for name, arguments in (
            (schema, ["enqueue", "work:app", "quick", "--args", "[1]"]),
            (schema, ["jobs", "cancel", "work:app", "1"]),
            (postgres.fresh(), ["enqueue", "work:app", "quick", "--args", "[1]"]),
            (postgres.fresh(), ["db", "migrate", "work:app"]),
        ):
            (tmp_path / "url").write_text(standby.url(schema=name))
            command = fleet.run(sys.executable, "-m", "redrive", *arguments)
            status = command.ended()

            assert 0 != status, arguments
            assert command.logged("is read only: is it a standby"), command.log.read_text()
