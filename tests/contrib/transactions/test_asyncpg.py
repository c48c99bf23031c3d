"""Transactions of asyncpg whose session ends between two statements, or whose task is cancelled in one."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from redrive.contrib.asyncpg import failure_of, transaction, transactional
from redrive.policy import Backoff, Policy, Stage
from tests import postgres
from tests.contrib.transactions.conftest import Table
from tests.proxy import PATIENCE, FaultKind

POLICY = Policy(attempts=4, backoff=Backoff.constant("1ms"))


def wire(table: Table, **changes: object) -> dict[str, object]:
    """Return the arguments of a connection whose session a test finds."""
    settings = {"application_name": table.name}
    return {
        "host": postgres.server(),
        "user": "postgres",
        "database": "postgres",
        "ssl": False,
        "server_settings": settings,
        **changes,
    }


async def in_block(source, work):
    """Run a transaction as a block."""
    async for attempt in POLICY.with_(on=failure_of):
        with attempt:
            async with transaction(source) as connection:
                await work(connection)


def decorated(source, work):
    """Run a transaction as a decorated function."""
    return transactional(source, POLICY)(work)()


@pytest.mark.parametrize("run", [decorated, in_block])
@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("noticed", [True, False])
def test_a_session_that_ends_between_two_statements_is_replaced(table, run, pooled, noticed):
    """The transaction is repeated, whether the event loop has noticed the end or the next statement meets it."""
    attempts = []

    async def work(connection):
        attempts.append(1)
        await connection.execute(table.insert)
        if len(attempts) == 1:
            ended = asyncio.Event()
            connection.add_termination_listener(lambda _: ended.set())
            await asyncio.to_thread(table.kill)
            if noticed:
                await ended.wait()
        await connection.execute("SELECT 1")

    async def main():
        if not pooled:
            await run(lambda: asyncpg.connect(**wire(table)), work)
            return
        async with asyncpg.create_pool(**wire(table), min_size=1, max_size=1) as pool:
            await run(pool, work)

    asyncio.run(main())

    assert (2, [1]) == (len(attempts), table.rows)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (asyncpg.InterfaceError("connection is closed"), "CONNECTION_FAILURE"),
        (
            asyncpg.InterfaceError("cannot call Connection.execute(): connection has been released back to the pool"),
            "CONNECTION_FAILURE",
        ),
        (
            asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress"),
            "CONNECTION_FAILURE",
        ),
        (asyncpg.InterfaceError("cannot perform operation: another operation is in progress"), None),
        (asyncpg.InternalClientError("unknown error in protocol implementation"), None),
    ],
)
def test_the_texts_of_a_lost_connection(error, reason):
    """Lost connections have a text and no code; other errors of use are failures of the program."""
    failure = failure_of(error)

    assert reason == (failure and failure.reason)
    assert failure is None or failure.stage is Stage.IN_FLIGHT


def waiting(table: Table) -> int:
    """Return how many statements of the tested sessions are waiting."""
    return table.ask(
        f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{table.name}' AND state = 'active' "  # noqa: S608 - a name of the test's own
        "AND query LIKE 'SELECT pg_sleep%'"
    )[0][0]


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("killed", [True, False])
def test_the_statement_of_a_cancelled_task_ends_on_the_server(table, pooled, killed):
    """The server runs it no longer when the task has ended; a session that is lost by then is no error."""

    async def work(connection):
        await connection.execute(table.insert)
        await connection.execute("SELECT pg_sleep(600)")

    async def main():
        async with asyncpg.create_pool(**wire(table), min_size=1, max_size=1) as pool:
            source = pool if pooled else lambda: asyncpg.connect(**wire(table))
            task = asyncio.ensure_future(transactional(source, POLICY)(work)())
            while not await asyncio.to_thread(waiting, table):
                pass
            if killed:
                table.kill()
            task.cancel()
            await asyncio.wait([task])
            left = waiting(table)
            # The pool has its only connection back.
            return task.cancelled(), left, await pool.fetchval("SELECT 1")

    assert (True, 0, 1) == asyncio.run(main())
    assert [] == table.rows


def test_a_cancelled_transaction_that_has_no_statement_left_closes_its_connection(table):
    """A task that is cancelled before its transaction has begun gives its connection back."""

    async def main():
        async with asyncpg.create_pool(**wire(table), min_size=1, max_size=1) as pool:
            block = transaction(pool)
            await block.__aenter__()
            await block._adapter._block.rollback()
            block._adapter._block = None
            await block.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)
            return await pool.fetchval("SELECT 1")

    assert 1 == asyncio.run(main())


@pytest.mark.parametrize("pooled", [True, False])
def test_a_second_cancellation_closes_the_connection(table, proxy, pooled):
    """While the answer to the first one does not arrive, a second one ends the task and frees the place in the pool."""
    far = wire(table, host=proxy.host, port=proxy.port)
    fault = proxy.on(FaultKind.HOLD, when=b"pg_sleep")
    used = []

    async def work(connection):
        used.append(connection)
        await connection.execute("SELECT pg_sleep(600)")

    async def main():
        pool = await asyncpg.create_pool(**far, min_size=1, max_size=1)
        try:
            source = pool if pooled else lambda: asyncpg.connect(**far)
            task = asyncio.ensure_future(transactional(source, POLICY)(work)())
            await asyncio.to_thread(fault.wait_hit)
            task.cancel()
            # The server has ended the statement; its answer is on the way.
            await asyncio.to_thread(fault.wait_answered)
            task.cancel()
            await asyncio.wait([task])
            closed = pooled or used[0].is_closed()
            return task.cancelled(), closed, await asyncio.wait_for(pool.fetchval("SELECT 1"), PATIENCE)
        finally:
            fault.release()
            pool.terminate()

    assert (True, True, 1) == asyncio.run(main())


@pytest.mark.parametrize(("left", "within"), [(None, 5), (30.0, 5), (3.0, 3), (0.0, 0.5), (-1.0, 0.5)])
def test_the_rollback_of_a_cancelled_task_has_the_time_that_is_left(table, monkeypatch, left, within):
    """A deadline bounds it; when its time is over, a moment remains for the request to the server."""
    bounds = []
    monkeypatch.setattr("redrive.contrib.asyncpg.seconds_left", lambda: left)

    async def waiting_for(rollback, seconds):
        bounds.append(seconds)
        await rollback

    async def main():
        block = transaction(lambda: asyncpg.connect(**wire(table)))
        await block.__aenter__()
        monkeypatch.setattr("redrive.contrib.asyncpg.asyncio.wait_for", waiting_for)
        await block.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)

    asyncio.run(main())

    assert [within] == bounds


def test_a_deadline_ends_although_the_server_does_not_answer(table, proxy):
    """The rollback of an attempt that has taken too long does not outlast the deadline by seconds."""
    far = wire(table, host=proxy.host, port=proxy.port)
    fault = proxy.on(FaultKind.HOLD, when=b"pg_sleep")
    used = []

    @transactional(lambda: asyncpg.connect(**far), POLICY.with_(deadline="500ms", attempt_timeout="100ms"))
    async def work(connection):
        used.append(connection)
        await connection.execute("SELECT pg_sleep(600)")

    with pytest.raises(TimeoutError):
        asyncio.run(work())

    fault.release()
    assert used[0].is_closed()
