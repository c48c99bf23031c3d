"""Runs on PostgreSQL, with a worker: transactions of both colours, and child runs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from redrive import App, Flow, SyncFlow
from redrive.runtime.worker import Worker
from tests import postgres


def insert(connection: Any, number: int) -> int:
    """Write a receipt by psycopg."""
    connection.execute("CREATE TABLE IF NOT EXISTS receipts (number int)")
    connection.execute("INSERT INTO receipts VALUES (%s)", (number,))
    return number


async def insert_async(connection: Any, number: int) -> int:
    """Write a receipt by asyncpg."""
    await connection.execute("CREATE TABLE IF NOT EXISTS receipts (number int)")
    await connection.execute("INSERT INTO receipts VALUES ($1)", number)
    return number


def test_steps_commit_with_writes_of_both_colours():
    """Coroutines receive a connection of asyncpg, functions one of psycopg; a parent adds up its children."""
    with postgres.lent() as url:
        app = App(url)

        @app.workflow()
        async def both(flow: Flow) -> int:
            first = await flow.transaction(insert_async, 1)
            flow.set("first", first)
            return first + await flow.transaction(insert, 2)

        @app.workflow()
        def threaded(flow: SyncFlow) -> int:
            return flow.transaction(insert, 3)

        @app.workflow()
        async def parent(flow: Flow) -> int:
            return await flow.call(both) + await flow.call(threaded)

        run = parent.start(id="p")

        async def work() -> int:
            worker = Worker(app)
            running = asyncio.create_task(worker.run())
            found = await run.aresult("20s")
            worker.stop()
            await running
            return found

        found = asyncio.run(work())
        transaction = app.store.begin()
        rows = transaction.connection.execute("SELECT number FROM receipts ORDER BY number").fetchall()
        transaction.connection.execute("DROP TABLE receipts")
        transaction.commit()
        value = app.runs.get("both", "parent/p/1").value("first", int)
        app.close()

    assert 6 == found
    assert [(1,), (2,), (3,)] == rows
    assert 1 == value


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_transaction_waits_for_an_operator_who_has_locked_its_run(colour: str):
    """Steps in transactions are written after an operator's lock of their run, and called once."""
    with postgres.lent() as url, postgres.connect(autocommit=False) as operator:
        app = App(url)
        calls: list[int] = []

        def release() -> None:
            postgres.until_blocked(operator)
            operator.commit()

        def locked(number: int) -> int:
            calls.append(number)
            operator.execute(f'SELECT FROM "{app.store.settings.schema}".redrive_jobs FOR UPDATE')
            threading.Thread(target=release).start()
            return number

        def charge(_connection: Any, number: int) -> int:
            return locked(number)

        async def charge_async(_connection: Any, number: int) -> int:
            return locked(number)

        @app.workflow()
        async def pays(flow: Flow) -> int:
            return await flow.transaction(charge if colour == "sync" else charge_async, 1)

        run = pays.start()

        async def work() -> int:
            worker = Worker(app)
            running = asyncio.create_task(worker.run())
            found = await run.aresult("20s")
            worker.stop()
            await running
            return found

        assert (1, [1]) == (asyncio.run(work()), calls)
        app.close()
