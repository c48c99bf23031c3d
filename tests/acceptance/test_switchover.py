"""A switch-over behind a fixed address: a standby is promoted while connections to the old primary stay open."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.errors import StoreError
from tests import postgres
from tests.acceptance.processes import LONG, Deployment, stage
from tests.acceptance.servers import PostgresServer, Proxy, pair

pytestmark = pytest.mark.acceptance


SESSIONS = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"


@pytest.fixture(name="servers")
def _servers() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """Start a primary and a standby."""
    with pair() as made:
        yield made


@pytest.fixture(name="proxy")
def _proxy(servers: tuple[PostgresServer, PostgresServer]) -> Iterator[Proxy]:
    """Open a proxy before the primary."""
    opened = Proxy(servers[0].folder)
    yield opened
    opened.close()


@pytest.fixture(name="fleet")
def _fleet(proxy: Proxy, tmp_path: Path) -> Iterator[Deployment]:
    """Return the app of the acceptance tests, with the address of the proxy."""
    url = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?schema={postgres.fresh()}"
    with stage(tmp_path, "postgres", url=url) as made:
        made.lease_for = LONG
        yield made


def _enqueue(fleet: Deployment) -> bool:
    """Enqueue a job, and return True if the database took it."""
    with contextlib.suppress(StoreError):
        fleet.module.quick.enqueue(1)
        return True
    return False


def test_a_worker_goes_on_after_a_switch_over(
    fleet: Deployment, servers: tuple[PostgresServer, PostgresServer], proxy: Proxy
):
    """Sessions of the old primary, which refuses to write, are replaced by ones of the new primary, all of them."""
    primary, standby = servers
    worker = fleet.ready_worker()
    fleet.module.quick.enqueue_many(range(20))
    fleet.all_ended()
    primary.set("default_transaction_read_only", "on")
    fleet.until(standby.has_caught_up_with(primary))
    standby.promote()
    proxy.target = standby.folder
    fleet.until(lambda: _enqueue(fleet))
    number = len(fleet.executions)
    fleet.module.quick.enqueue_many(range(20))
    fleet.all_ended()
    # The listener is checked every ten seconds.
    fleet.until(lambda: not primary.ask(SESSIONS))
    worker.send(signal.SIGTERM)

    assert 0 == worker.ended()
    assert len(fleet.executions) >= number + 20


def test_a_worker_goes_on_when_its_address_led_to_a_standby(
    fleet: Deployment, servers: tuple[PostgresServer, PostgresServer], proxy: Proxy
):
    """Sessions that were opened to a standby are replaced, and not kept until it is promoted."""
    primary, standby = servers
    worker = fleet.ready_worker()
    fleet.module.quick.enqueue(0)
    fleet.all_ended()
    fleet.until(standby.has_caught_up_with(primary))
    proxy.target = standby.folder
    primary.ask(f"WITH open AS MATERIALIZED ({SESSIONS}) SELECT pg_terminate_backend(pid) FROM open")  # noqa: S608 - above
    fleet.until(lambda: not _enqueue(fleet))
    fleet.until(lambda: worker.logged("read only"))
    assert fleet.app.jobs.stats().succeeded
    proxy.target = primary.folder
    fleet.until(lambda: _enqueue(fleet))
    fleet.all_ended()
    worker.send(signal.SIGTERM)

    assert 0 == worker.ended()
