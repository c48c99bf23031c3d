"""The handler's writes and its completion: both or neither, and never under a lost lease (D26)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import App, CatchRequest, Context, Snooze
from redrive.app.attempts.handle import AttemptHandle
from redrive.clock import SystemClock
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Failed, Outcome, Succeeded
from redrive.engine.records import Filter
from redrive.errors import ConfigurationError, LeaseLost, StoreBusy
from redrive.runtime.executor import Executor
from redrive.runtime.threads import ThreadPool
from redrive.stores.drivers.sqlite.transactions import SQLiteTransaction
from redrive.testing import VirtualClock, drain
from tests.runtime.helpers import PATIENCE, came, ended, run_due, take, until, working


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """Return an app on a file, with a clock that stands still until a test moves it."""
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal", clock=VirtualClock())
    app.open()
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
        connection.execute("CREATE TABLE orders (number INTEGER)")
    connection.close()
    yield app
    app.close()


def orders(app: App) -> list[int]:
    """Return the rows that handlers have written."""
    loan = app.store.begin()
    rows = loan.connection.execute("SELECT number FROM orders ORDER BY number").fetchall()
    loan.rollback()
    return [row[0] for row in rows]


def settled(app: App) -> list[tuple[State, object]]:
    """Return the states of the jobs, oldest first."""
    return [(job.state, job.reason) for job in sorted(app.jobs.select(), key=lambda job: job.id)]


# ------------------------------------------------------------------------------------------------------------- (a) both


@pytest.mark.case("D26")
def test_a_thread_commits_both(app: App):
    """Commit the row of the handler and the success with its result together (a)."""

    @app.task
    def work(number: int, context: Context) -> str:
        """Write and complete."""
        with context.transaction() as connection:
            connection.execute("INSERT INTO orders VALUES (?)", [number])
            context.set_result(f"order {number}")
        return f"order {number}"

    job = work.enqueue(7)
    drain(app)

    assert ([7], "order 7") == (orders(app), job.result())
    assert ["succeeded"] == [each.outcome for each in job.attempts]


@pytest.mark.case("D26")
def test_a_coroutine_commits_both(app: App):
    """Commit both with ``async with``; the handler may return None afterwards."""

    @app.task
    async def work(number: int, context: Context) -> str | None:
        """Write and complete."""
        async with context.transaction() as connection:
            connection.execute("INSERT INTO orders VALUES (?)", [number])
            context.set_result(f"order {number}")
        return None

    job = work.enqueue(7)
    drain(app)

    assert ([7], "order 7") == (orders(app), job.result())


def test_the_job_is_completed_when_the_block_ends(app: App):
    """Code after the block sees the job completed, and may do what need not be done twice."""
    seen = []

    @app.task
    def work(context: Context) -> None:
        """Read the row after the block."""
        with context.transaction():
            pass
        seen.append(app.job(context.job_id).state)

    work.enqueue()
    drain(app)

    assert [State.SUCCEEDED] == seen


def test_a_job_can_be_enqueued_with_both(app: App):
    """Create the next job if and only if this one completes."""
    tries: list[None] = []

    @app.task
    def following() -> None:
        """Run as the next step."""

    @app.task
    def work(context: Context) -> None:
        """Enqueue the next step over the same connection."""
        with context.transaction() as connection:
            following.enqueue(using=connection)
            tries.append(None)
            if len(tries) == 1:
                raise Snooze(0)

    work.enqueue()
    drain(app)

    assert [("work", State.SUCCEEDED), ("following", State.SUCCEEDED)] == [
        (job.task, job.state) for job in sorted(app.jobs.select(), key=lambda job: job.id)
    ]


WRITES = {
    "enqueue": lambda app, context: app.tasks["following"].options(immediate=True).enqueue(),
    "enqueue_many": lambda app, context: app.tasks["following"].options(immediate=True).enqueue_many([()]),
    "aenqueue": lambda app, context: asyncio.run(app.tasks["following"].aenqueue()),
    "enqueue in a thread that inherits the context": lambda app, context: asyncio.run(
        asyncio.to_thread(app.tasks["following"].options(immediate=True).enqueue)
    ),
    "cancel": lambda app, context: app.job(context.job_id).cancel(),
    "cancel jobs": lambda app, context: app.jobs.cancel(Filter(task="following")),
    "pause": lambda app, context: app.queue("default").pause(),
    "heartbeat": lambda app, context: context.heartbeat(force=True),
    "another App on the file": lambda app, context: through_another(app),
}


def through_another(app: App) -> None:
    """Enqueue through another App on the same database."""
    with contextlib.closing(App(app.url)) as made:
        made.task(name="following")(lambda: None).enqueue()


@pytest.mark.parametrize("write", WRITES)
def test_a_write_outside_the_transaction_is_refused_at_once(app: App, write: str):
    """On SQLite a write on another connection inside the block is refused, and the block continues."""

    @app.task
    def following() -> None:
        """Run as the next step."""

    @app.task
    def work(context: Context) -> None:
        """Write beside the transaction, and then in it."""
        with context.transaction() as connection:
            with pytest.raises(StoreBusy, match=r"would wait for itself.*using=connection"):
                WRITES[write](app, context)
            assert 1 == app.jobs.stats().running
            following.enqueue(using=connection)
        following.enqueue()

    work.enqueue()
    with contextlib.closing(ThreadPool(1, "handler")) as pool:
        run_due(app, pool)

    assert [("work", State.SUCCEEDED), *[("following", State.READY)] * 2] == [
        (job.task, job.state) for job in sorted(app.jobs.select(), key=lambda job: job.id)
    ]


def test_a_coroutine_that_writes_outside_its_transaction_is_refused_at_once(app: App):
    """Refuse it with ``async with`` and in tasks that the block starts; later writes of these tasks are allowed."""
    later: list[asyncio.Task[object]] = []

    @app.task
    async def following() -> None:
        """Run as the next step."""

    @app.task
    async def work(context: Context) -> None:
        """Write beside the transaction."""
        ended = asyncio.Event()

        async def write_later() -> None:
            """Write when the transaction has ended."""
            await ended.wait()
            await following.aenqueue()

        async with context.transaction():
            with pytest.raises(StoreBusy, match="using=connection"):
                await following.options(immediate=True).aenqueue()
            with pytest.raises(StoreBusy, match="using=connection"):
                await asyncio.create_task(following.options(immediate=True).aenqueue())
            await context.aheartbeat("half")
            later.append(asyncio.create_task(write_later()))
        ended.set()
        await later[0]

    work.enqueue()
    drain(app)

    assert [("work", State.SUCCEEDED), ("following", State.SUCCEEDED)] == [
        (job.task, job.state) for job in sorted(app.jobs.select(), key=lambda job: job.id)
    ]


def test_a_write_of_another_handler_is_allowed(app: App):
    """Enqueues of another handler wait for the end of an open transaction."""
    opened, asked = threading.Event(), threading.Event()

    @app.task
    def following() -> None:
        """Run as the next step."""

    @app.task
    def holds(context: Context) -> None:
        """Hold the transaction open until the other handler is about to enqueue."""
        with context.transaction():
            opened.set()
            assert asked.wait(PATIENCE)

    @app.task
    def enqueues() -> None:
        """Enqueue while the transaction is open."""
        assert opened.wait(PATIENCE)
        asked.set()
        following.options(immediate=True).enqueue()

    holds.enqueue()
    enqueues.enqueue()

    async def run() -> list[Outcome]:
        """Run both handlers at the same time."""
        with contextlib.closing(ThreadPool(2, "handler")) as pool:
            return await asyncio.gather(*[Executor(app, pool).run(claim) for claim in take(app, 2)])

    assert [Succeeded, Succeeded] == [type(each) for each in asyncio.run(run())]
    assert "following" in {job.task for job in app.jobs.select()}


def test_a_catch_takes_its_job_with_both(app: App):
    """Catch the dead job in the same transaction."""

    @app.task(retry="0 catch recover")
    def work() -> None:
        """Fail."""
        raise ValueError("boom")

    @app.task
    def recover(request: CatchRequest, context: Context) -> None:
        """Write and complete."""
        with context.transaction() as connection:
            connection.execute("INSERT INTO orders VALUES (1)")

    job = work.enqueue()
    drain(app)

    assert ([1], True) == (orders(app), job.refresh().caught_at is not None)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_concurrent_handlers_get_transactions_in_turn(app: App, colour: str):
    """Twenty handlers of one worker commit one after the other, each in its first attempt."""

    def work(number: int, context: Context) -> None:
        with context.transaction() as connection:
            connection.execute("INSERT INTO orders VALUES (?)", [number])

    async def awork(number: int, context: Context) -> None:
        """Open a transaction in a coroutine, with a pause for the others."""
        async with context.transaction() as connection:
            connection.execute("INSERT INTO orders VALUES (?)", [number])
            await SystemClock().asleep(0)

    task = app.task(name="work", retry="0")(work if colour == "sync" else awork)
    jobs = [task.enqueue(number) for number in range(20)]

    async def run() -> None:
        """Run a worker until all have ended."""
        async with asyncio.timeout(PATIENCE), working(app, concurrency=20):
            await ended(*jobs)

    asyncio.run(run())

    assert list(range(20)) == orders(app)
    assert [["succeeded"]] * 20 == [[each.outcome for each in app.job(job.id).attempts] for job in jobs]


# ---------------------------------------------------------------------------------------------------------- (b) neither


@pytest.mark.case("D26")
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_an_error_undoes_both(app: App, colour: str):
    """Raised inside the block, it undoes the writes and is decided by the policy; the next attempt writes once (b)."""

    def write(connection: sqlite3.Connection, context: Context) -> None:
        connection.execute("INSERT INTO orders VALUES (?)", [context.attempt])
        if context.attempt == 1:
            raise ValueError("boom")

    def work(context: Context) -> None:
        with context.transaction() as connection:
            write(connection, context)

    async def awork(context: Context) -> None:
        """Raise in the transaction of a coroutine."""
        async with context.transaction() as connection:
            write(connection, context)

    app.task(name="work", retry="1 1s")(work if colour == "sync" else awork).enqueue()
    drain(app)

    assert ([2], [(State.SUCCEEDED, None)]) == (orders(app), settled(app))
    assert ["failed", "succeeded"] == [each.outcome for each in app.job(1).attempts]


def test_a_result_that_cannot_be_stored_undoes_both(app: App):
    """Refuse the result when it is set."""

    @app.task
    def work(context: Context) -> object:
        """Give what is no result."""
        with context.transaction() as connection:
            connection.execute("INSERT INTO orders VALUES (1)")
            context.set_result(object())

    work.enqueue()
    drain(app)

    assert ([], [State.DEAD]) == (orders(app), [state for state, _ in settled(app)])


def test_a_transaction_may_be_tried_again(app: App):
    """After a rollback the attempt is open; a result of the first transaction is forgotten."""

    @app.task
    def work(context: Context) -> str | None:
        """Try twice."""
        for number in (1, 2):
            try:
                with context.transaction() as connection:
                    connection.execute("INSERT INTO orders VALUES (?)", [number])
                    if number == 1:
                        context.set_result("first")
                        raise KeyError("once more")  # noqa: TRY301 - as handlers do
            except KeyError:
                continue
        return None

    job = work.enqueue()
    drain(app)

    assert ([2], None) == (orders(app), job.result())


def test_a_cancelled_coroutine_undoes_both(app: App):
    """If the hard timeout interrupts the block, it is rolled back, and no lock stays."""

    @app.task(timeout="20ms")
    async def work(context: Context) -> None:
        """Write, and wait for ever."""
        async with context.transaction() as connection:
            connection.execute("INSERT INTO orders VALUES (1)")
            await asyncio.Event().wait()

    work.enqueue()
    drain(app)

    assert ([], [(State.DEAD, "TIMEOUT")]) == (orders(app), settled(app))


# ------------------------------------------------------------------------------------------------------- (d) lease lost


@pytest.mark.case("D26")
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_lost_attempt_cannot_begin(app: App, colour: str):
    """On SQLite a lease can be lost only before the transaction begins, which holds the lock (d)."""
    seen: list[str] = []

    def work(context: Context) -> None:
        app.job(context.job_id).cancel()
        try:
            with context.transaction():
                seen.append("inside")
        except LeaseLost as error:
            seen.append(str(error).replace(context.attempt_uid, "1"))
            raise

    async def awork(context: Context) -> None:
        """Begin a transaction in a coroutine."""
        app.job(context.job_id).cancel()
        try:
            async with context.transaction():
                seen.append("inside")
        except LeaseLost as error:
            seen.append(str(error).replace(context.attempt_uid, "1"))
            raise

    app.task(name="work", retry="1 1s")(work if colour == "sync" else awork).enqueue()
    drain(app)

    assert (["attempt 1 is over: what it does from now on changes nothing"], State.CANCELLED) == (
        seen,
        app.job(1).state,
    )
    app.store.begin().rollback()


@pytest.mark.case("D26")
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_lease_that_is_lost_in_the_block_undoes_everything(app: App, colour: str):
    """If the lease is lost during the block, the completion fails and rolls back the writes (d)."""

    def lose(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO orders VALUES (1)")
        connection.execute("UPDATE redrive_jobs SET lease_id = lease_id + 100")

    def work(context: Context) -> None:
        with context.transaction() as connection:
            lose(connection)

    async def awork(context: Context) -> None:
        """Write in the transaction of a coroutine."""
        async with context.transaction() as connection:
            lose(connection)

    app.task(name="work")(work if colour == "sync" else awork).enqueue()
    outcome = run_due(app)

    assert isinstance(outcome, Failed)
    assert ("redrive.errors.LeaseLost", []) == (outcome.failure.error_type, orders(app))


def test_a_thread_past_its_timeout_commits_nothing(app: App):
    """After its timeout the attempt has failed: a later commit of its thread is rolled back."""
    inside, go, ended, seen = threading.Event(), threading.Event(), threading.Event(), []

    @app.task(timeout="1ms")
    def work(context: Context) -> None:
        """Commit too late."""
        try:
            with context.transaction() as connection:
                connection.execute("INSERT INTO orders VALUES (1)")
                inside.set()
                go.wait(PATIENCE)
        except LeaseLost as error:
            seen.append(error)
        finally:
            ended.set()

    work.enqueue()
    with contextlib.closing(ThreadPool(1, "handler")) as pool:
        outcome = run_due(app, pool)
        go.set()
        assert ended.wait(PATIENCE)

    assert isinstance(outcome, Failed)
    assert ("TIMEOUT", inside.is_set(), []) == (outcome.failure.reason, len(seen) == 1 or not seen, orders(app))


# ----------------------------------------------------------------------------------------------------- after the commit


def after(app: App, caplog: pytest.LogCaptureFixture, handler) -> list[str]:
    """Run a handler with a transaction that has completed the job with the result 1; return the log."""

    @app.task(name="work", retry="3 1s")
    async def work(context: Context):
        """Complete the job, and continue."""
        async with context.transaction():
            context.set_result(1)
        return await handler(context)

    job = work.enqueue()
    drain(app)

    assert (1, ["succeeded"]) == (job.result(), [each.outcome for each in job.attempts])
    return [record.getMessage() for record in caplog.records if record.name == "redrive.worker"]


def test_returning_another_result_is_logged(app: App, caplog):
    """Results that are returned too late to be stored log an error with the correct way."""

    async def handler(_: Context) -> int:
        """Return another result."""
        return 2

    (message,) = after(app, caplog, handler)

    assert "job 1: the result that its handler returned after ctx.transaction() is not kept" in message
    assert "ctx.set_result()" in message


def test_returning_the_same_result_is_allowed(app: App, caplog):
    """Handlers may return the result that they set in the transaction, as their annotation promises."""

    async def handler(_: Context) -> int:
        """Return the stored result."""
        return 1

    assert [] == after(app, caplog, handler)


def test_an_error_after_the_transaction_is_only_logged(app: App, caplog):
    """After the job has succeeded, an error of its handler is not retried."""

    async def handler(_: Context) -> int:
        """Fail."""
        raise ValueError("boom")

    (message,) = after(app, caplog, handler)

    assert "job 1: its handler failed after its transaction: boom" in message


def test_a_signal_after_the_transaction_is_only_logged(app: App, caplog):
    """Log that the completed job cannot be snoozed."""

    async def handler(_: Context) -> int:
        """Want to come back."""
        raise Snooze("1h")

    (message,) = after(app, caplog, handler)

    assert "job 1: its transaction has completed it; it cannot become Snoozed" in message


def test_a_second_transaction_is_refused(app: App, caplog):
    """Completed attempts refuse a second transaction, and a heartbeat."""

    async def handler(context: Context) -> int:
        """Begin another."""
        with pytest.raises(LeaseLost, match=r"attempt 1\.\d+ was completed by its own transaction"):
            async with context.transaction():
                pass
        with pytest.raises(LeaseLost):
            await context.aheartbeat()
        return 1

    assert [] == after(app, caplog, handler)


def test_a_transaction_in_a_transaction_is_refused(app: App):
    """Refuse the inner transaction, which would wait for its own lock."""

    @app.task
    def work(context: Context) -> None:
        """Nest."""
        with context.transaction(), pytest.raises(ConfigurationError, match="open already"), context.transaction():
            pass

    work.enqueue()

    assert isinstance(run_due(app), Succeeded)


def test_a_result_after_the_block_is_refused(app: App):
    """Elsewhere it is returned."""

    @app.task
    def work(context: Context) -> None:
        """Give it too early."""
        context.set_result(1)

    work.enqueue()
    outcome = run_due(app)

    assert isinstance(outcome, Failed)
    assert "set_result() belongs inside `with ctx.transaction()`" in outcome.failure.message


def test_a_user_created_context_has_no_transaction():
    """Contexts that were created by hand have no job to complete."""
    context = Context(1, "send", 1, 0, "1.1", "key", None, None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="belongs to no attempt"):
        context.transaction()
    with pytest.raises(ConfigurationError, match="belongs to no attempt"):
        context.set_result(1)


# ------------------------------------------------------------------------------------------------------- with a worker


def test_a_handler_that_has_completed_its_job_is_not_stopped(filed: App):
    """Completed attempts have no lease, and may continue: they are not stopped."""
    completed, go, seen = threading.Event(), threading.Event(), []

    @filed.task
    def work(context: Context) -> str:
        """Complete the job, and continue."""
        with context.transaction():
            context.set_result("done")
        completed.set()
        assert go.wait(PATIENCE)
        seen.append(context.stop_reason)
        return "done"

    async def run() -> None:
        """Run it on an event loop."""
        job = await work.aenqueue()
        async with working(filed) as worker, asyncio.timeout(PATIENCE):
            await came(completed)
            first = filed.workers.select()[0].heartbeat_at
            await until(lambda: filed.workers.select()[0].heartbeat_at > first + 3 * filed.terms.heartbeat_every)
            go.set()
            await until(lambda: not worker.abandoned)
            assert "done" == await job.aresult()

    asyncio.run(run())

    assert [None] == seen


def test_an_interrupt_after_the_commit_gives_no_job_back(filed: App, caplog):
    """If the worker is interrupted while the handler cleans up, the job stays completed."""

    async def run() -> None:
        """Run it on an event loop."""
        completed = asyncio.Event()

        @filed.task
        async def work(context: Context) -> str:
            """Complete, and wait."""
            async with context.transaction():
                context.set_result("done")
            completed.set()
            await asyncio.Event().wait()
            return "never"

        await work.aenqueue()
        async with working(filed), asyncio.timeout(PATIENCE):
            await completed.wait()

    asyncio.run(run())

    assert ("done", ["succeeded"]) == (filed.job(1).result(), [each.outcome for each in filed.job(1).attempts])
    assert [] == [message for message in caplog.messages if "lease" in message]


def test_a_cancellation_during_a_commit_waits_for_its_outcome(app: App, monkeypatch: pytest.MonkeyPatch):
    """Finish a commit during which the task is cancelled: the attempt counts as ended."""
    committing, go = threading.Event(), threading.Event()
    real = SQLiteTransaction.commit

    def slowly(loan: SQLiteTransaction) -> None:
        committing.set()
        assert go.wait(PATIENCE)
        real(loan)

    monkeypatch.setattr(SQLiteTransaction, "commit", slowly)
    app.task(name="work")(lambda: None).enqueue()
    (claim,) = take(app)
    link = AttemptHandle(claim, app.store, app.now, lambda value: None, None)
    context = Context(1, "work", 1, 0, link.uid, "key", claim.started_at, None, link)

    async def run() -> None:
        """Cancel the task while it commits."""

        async def complete() -> None:
            """Complete the job."""
            async with context.transaction():
                pass

        task = asyncio.ensure_future(complete())
        await came(committing)
        task.cancel()
        asyncio.get_running_loop().call_soon(go.set)
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())

    assert (True, State.SUCCEEDED) == (link.ended, app.job(1).state)


def test_a_store_without_a_second_connection_is_refused():
    """Stores in memory have one connection; the message names the stores that work."""
    app = App("memory://", clock=VirtualClock())

    @app.task
    def work(context: Context) -> None:
        """Ask for a transaction."""
        with context.transaction():
            pass

    job = work.enqueue()
    drain(app)

    assert "ctx.transaction() needs sqlite:///app.db" in str(job.refresh().record.error)
    app.close()
