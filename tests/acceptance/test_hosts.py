"""Failovers of two real servers that both stand in the URL: one is stopped, and the other one promoted."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgres
from tests.acceptance.processes import LONG, Deployment, stage
from tests.acceptance.servers import PostgresServer, pair

pytestmark = pytest.mark.acceptance

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
