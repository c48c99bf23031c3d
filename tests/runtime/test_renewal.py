"""Workers after another database server has taken over: they register again, and begin again from what is stored."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redrive import App, Context, Flow, observe
from redrive.errors import StoreUnreachable
from redrive.stores.drivers.postgres.settings import parse_url
from redrive.stores.operations import workers
from tests import postgres
from tests.runtime.helpers import PATIENCE, until, working


@pytest.fixture
def app() -> Iterator[App]:
    """Yield an app on PostgreSQL with quick heartbeats."""
    with postgres.lent() as url:
        app = App(url, heartbeat_every="200ms", lease_for="60s")
        yield app
        app.close()


def take_over(app: App, *statements: str) -> None:
    """Let another server take over, in which these statements have changed the tables."""
    with postgres.connect() as connection:
        connection.execute(f'SET search_path = "{parse_url(app.url).schema}"')
        for each in statements:
            connection.execute(each)
    app.store._timeline.meet("7 00000002")


Replaced = observe.WorkerServerReplaced


@pytest.fixture
def events() -> Iterator[list[Replaced]]:
    """Return the events about servers that have taken over."""
    found: list[Replaced] = []

    def sink(event: object) -> None:
        if isinstance(event, Replaced):
            found.append(event)

    added = observe.add(sink)
    yield found
    added.remove()


async def work(app: App, body: Callable[[], Any]) -> Any:
    """Await a coroutine beside a worker."""
    async with working(app), asyncio.timeout(PATIENCE):
        return await body()


def test_attempts_run_again_under_a_new_id(app: App, events: list[Replaced]):
    """Stop the attempts, give their jobs back with no attempt spent, and run them again."""
    calls: list[int] = []

    @app.task
    async def send(number: int) -> str:
        calls.append(number)
        if len(calls) == 1:
            await asyncio.Event().wait()
        return "again"

    async def body() -> str:
        job = await send.aenqueue(1)
        await until(lambda: bool(calls))
        before = app.workers.select()[0].id
        await asyncio.to_thread(take_over, app)
        answer = await job.aresult(timeout=PATIENCE)
        (row,) = app.workers.select()
        assert row.id >> workers.SALT_BITS > before
        return answer

    assert "again" == asyncio.run(work(app, body))
    (attempt,) = app.job(1).attempts
    assert ([1, 1], 1, 0) == (calls, attempt.number, app.job(1).record.crashes)
    assert [(1, 0, 0, 0)] == [(each.dropped, each.kept, each.starts_lost, each.ends_lost) for each in events[:1]]


def test_an_attempt_that_must_not_run_twice_goes_on(app: App, events: list[Replaced], monkeypatch: pytest.MonkeyPatch):
    """Keep a started attempt of a task that is not idempotent, through two changes of the server."""
    calls: list[int] = []
    ids: list[tuple[int, ...]] = []
    renew = workers.renew

    def recorded(before: tuple[int, ...], *args: Any, **options: Any) -> Any:
        ids.append(before)
        return renew(before, *args, **options)

    monkeypatch.setattr(workers, "renew", recorded)

    @app.task(idempotent=False)
    async def pay() -> str:
        calls.append(1)
        await go.wait()
        return "paid"

    go = asyncio.Event()

    async def body() -> str:
        job = await pay.aenqueue()
        await until(lambda: bool(calls))
        for place in range(2):
            await asyncio.to_thread(take_over, app)
            await until(lambda place=place: len(events) > place)
        go.set()
        return await job.aresult(timeout=PATIENCE)

    assert ("paid", [1]) == (asyncio.run(work(app, body)), calls)
    assert {(0, 1)} == {(each.dropped, each.kept) for each in events[:2]}
    # The second server may have the worker under its first id.
    assert [(events[0].before,), (events[0].before, events[1].before)] == sorted(set(ids))


@pytest.mark.parametrize(("idempotent", "expected"), [(False, 1), (None, 2)])
def test_a_lost_end_is_written_again_or_runs_again(
    app: App, events: list[Replaced], idempotent: bool | None, expected: int
):
    """Write the end of an attempt that must not run twice again; run another one again."""
    calls: list[int] = []

    @app.task(idempotent=idempotent)
    async def pay() -> str:
        calls.append(1)
        return "paid"

    lose = (
        """
        UPDATE redrive_jobs SET state = 'running', lease_id = success_lease_id, worker_id = success_worker_id,
            success_lease_id = NULL, success_worker_id = NULL, finished_at = NULL
        """,
        "DELETE FROM redrive_results",
    )

    async def body() -> str:
        job = await pay.aenqueue()
        await job.aresult(timeout=PATIENCE)
        await asyncio.to_thread(take_over, app, *lose)
        answer = await job.aresult(timeout=PATIENCE)
        # An end that is written again can be read before the worker has registered again.
        await until(lambda: bool(events))
        return answer

    assert ("paid", expected) == (asyncio.run(work(app, body)), len(calls))
    assert [0 if idempotent is False else 1] == [each.ends_lost for each in events[:1]]


def test_a_run_with_a_lost_step_is_replayed_from_what_is_stored(app: App):
    """Replay a run whose first step is lost while its second one runs, with or without knowledge of the change."""
    calls: list[str] = []
    go = asyncio.Event()

    async def first() -> int:
        calls.append("first")
        return 1

    async def second() -> int:
        calls.append("second")
        if calls.count("second") == 1:
            await go.wait()
        return 2

    @app.workflow()
    async def flow(flow: Flow) -> int:
        return await flow.step(first) + await flow.step(second)

    async def body() -> int:
        run = await flow.astart(id="r")
        await until(lambda: "second" in calls)
        with postgres.connect() as connection:
            connection.execute(f'SET search_path = "{parse_url(app.url).schema}"')
            connection.execute("DELETE FROM redrive_steps")
        go.set()
        return await run.aresult(f"{PATIENCE}s")

    assert 3 == asyncio.run(work(app, body))
    assert ["first", "second", "first", "second"] == calls
    assert ["1", "2"] == [row.path for row in app.runs.get("flow", "r").timeline()]
    assert ((), 0) == (app.job(1).attempts[:-1], app.job(1).record.crashes)


def test_a_run_with_a_lost_step_before_a_call_is_replayed_from_what_is_stored(app: App):
    """Start no child behind the lost step: give the run back, with no attempt spent."""
    calls: list[str] = []

    async def first() -> int:
        calls.append("first")
        return 1

    @app.workflow()
    async def child(flow: Flow) -> int:
        calls.append("child")
        return 2

    @app.workflow()
    async def flow(flow: Flow) -> int:
        number = await flow.step(first)
        if calls == ["first"]:
            with postgres.connect() as connection:
                connection.execute(f'SET search_path = "{parse_url(app.url).schema}"')
                connection.execute("DELETE FROM redrive_steps")
        return number + await flow.call(child)

    async def body() -> int:
        return await (await flow.astart(id="r")).aresult(f"{PATIENCE}s")

    assert 3 == asyncio.run(work(app, body))
    assert ["first", "first", "child"] == calls
    assert ((), 0) == (app.job(1).attempts[:-1], app.job(1).record.crashes)


def test_the_worker_writes_nothing_before_it_has_registered_again(app: App, monkeypatch: pytest.MonkeyPatch):
    """Refuse claims and ends until then, and try to register until the database answers."""
    refusals = [StoreUnreachable("down"), StoreUnreachable("down")]
    calls: list[int] = []
    renew = workers.renew

    def flaky(*args: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return renew(*args, **options)

    monkeypatch.setattr(workers, "renew", flaky)

    @app.task
    async def send() -> str:
        calls.append(1)
        if len(calls) == 1:
            await asyncio.to_thread(take_over, app)
        return "sent"

    async def body() -> str:
        return await (await send.aenqueue()).aresult(timeout=PATIENCE)

    assert ("sent", []) == (asyncio.run(work(app, body)), refusals)
    assert [1, 1] == calls


def test_writes_in_the_transaction_of_a_dropped_attempt_are_not_doubled(app: App, events: list[Replaced]):
    """Roll back the block of a handler in a thread whose lease was given back, and commit that of its next attempt."""
    calls: list[int] = []

    @app.task
    def send(ctx: Context) -> None:
        calls.append(1)
        with ctx.transaction() as connection:
            connection.execute("INSERT INTO receipts VALUES (1)")
            if len(calls) == 1:
                take_over(app)
                assert given_back.wait(PATIENCE)

    given_back = threading.Event()

    async def body() -> None:
        job = await send.aenqueue()
        await until(lambda: bool(events))
        given_back.set()
        await job.aresult(timeout=PATIENCE)

    with postgres.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS receipts; CREATE TABLE receipts (number int)")
        asyncio.run(work(app, body))
        rows = connection.execute("SELECT count(*) FROM receipts").fetchone()
        connection.execute("DROP TABLE receipts")

    assert ([1, 1], (1,)) == (calls, rows)
