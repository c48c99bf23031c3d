"""PostgreSQL behind pgbouncer in transaction mode, where each transaction may get another session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from redrive.clock import SystemClock
from redrive.engine.outcome import Succeeded
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, jobs, leases, workers
from redrive.stores.operations.leases import Ending
from redrive.stores.store import Store
from tests import debian, postgres
from tests.debian import needed
from tests.stores.helpers import LONG, new


@pytest.fixture
def url() -> str:
    """Return the URL of a store behind pgbouncer."""
    program = needed("pgbouncer", lambda: debian.program("pgbouncer"))
    return postgres.url(host=postgres.pool(program), port="6432", pgbouncer="on")


@pytest.fixture(params=["sync", "async"])
def store(request: pytest.FixtureRequest, url: str) -> Iterator[Store]:
    """Open a store behind pgbouncer, with one colour for `run`."""
    opened = open_store(url)
    with asyncio.Runner() as runner:
        if request.param == "async":
            opened.run = lambda operation: runner.run(opened.arun(operation))  # type: ignore[method-assign,assignment]
        yield opened
        opened.close()


def test_jobs_are_enqueued_claimed_and_settled(store: Store):
    """Everything works, though no session is ever the same: many times, so that statements would have been prepared."""
    worker = store.run(workers.register("w", concurrency=1, lease_for=LONG))
    for _ in range(20):
        store.run(jobs.enqueue([new(), new()]))
        claims = store.run(leases.claim(worker, 2, lease_for=LONG)).claims
        store.run(leases.settle([Ending(claim, Succeeded(b"1"), 0.0) for claim in claims]))

    assert 40 == store.run(admin.stats()).succeeded


def test_operations_at_once_share_few_sessions(url: str):
    """Ten operations at the same time go through three sessions, and none is mixed up with another."""
    store = open_store(url)

    async def run() -> list[int]:
        """Enqueue ten times at once, twenty times over."""
        ids = []
        for _ in range(20):
            placed = await asyncio.gather(*(store.arun(jobs.enqueue([new()])) for _ in range(10)))
            ids += [number for each in placed for number in each.ids]
        return ids

    ids = asyncio.run(run())
    due = store.run(admin.stats()).due
    store.close()

    assert (200, 200) == (due, len(set(ids)))


@pytest.mark.parametrize("wanted", ["read-write", "primary", "prefer-standby"])
def test_the_kind_of_a_server_is_asked_for_through_pgbouncer(url: str, wanted: str):
    """A pool reports the state of a session that it had before, so both drivers ask."""
    store = open_store(f"{url}&target_session_attrs={wanted}")
    asyncio.run(store.arun(admin.stats()))
    store.run(admin.stats())
    store.close()


def test_no_worker_listens_through_pgbouncer(url: str):
    """No session lasts, so workers poll; with a direct way to the server one listens there, and has a lock."""
    store, direct = open_store(url), open_store(f"{url}&direct={postgres.server()}:5432")
    lasting = (store.lasting, direct.lasting)

    async def watch(watched: Store, seconds: float) -> bool:
        """Watch from the start, and return True if an enqueue is reported within these seconds."""
        news = watched.watch(SystemClock(), lock_id=5)
        async with asyncio.timeout(90):
            await anext(news)
        await watched.arun(jobs.enqueue([new()]))
        try:
            async with asyncio.timeout(seconds):
                await anext(news)
        except TimeoutError:
            return False
        finally:
            await news.aclose()
        return True

    received = (asyncio.run(watch(store, 0.3)), asyncio.run(watch(direct, 90)))
    store.close()
    direct.close()

    assert (False, True) == lasting
    assert (False, True) == received


def test_handlers_use_their_connections_again(url: str):
    """Nothing is undone in a session that serves others too: their prepared statements stay."""
    with contextlib.closing(open_store(url)) as store:
        for _ in range(3):
            loan = store.begin()
            loan.connection.execute("SELECT 1")
            loan.run(jobs.enqueue([new()]))
            loan.commit()
        kept = len(store._transactions._idle._kept)

        async def block() -> int:
            """Use one connection of a coroutine twice."""
            for _ in range(2):
                loan = await store.abegin()
                await loan.connection.fetch("SELECT $1::bigint", 1)
                await loan.run(jobs.enqueue([new()]))
                await loan.commit()
            (lender,) = store._transactions._lenders.values()
            return len(lender.idle._kept)

        akept = asyncio.run(block())
        assert (1, 1, 5) == (kept, akept, store.run(admin.stats()).due)
