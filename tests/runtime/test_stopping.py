"""Reasons for which a handler has to stop: a cancelled job, a timeout, a stopped worker."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from datetime import timedelta
from typing import Any

import pytest

from redrive import App, Context, SoftTimeout, Stop
from redrive.app.attempts.handle import AttemptHandle
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Failed, Succeeded
from redrive.errors import LeaseLost, TaskDefinitionError
from redrive.policy import Stage
from redrive.runtime import heartbeat as heartbeat_module
from redrive.runtime.executor import Executor
from redrive.runtime.heartbeat import LOOK, Heartbeat
from redrive.runtime.threads import ThreadPool
from redrive.stores.operations import leases
from redrive.stores.operations.leases import Ending
from tests.runtime.helpers import (
    PATIENCE,
    Recorded,
    Registered,
    app_on,
    came,
    failure,
    register,
    run_due,
    take,
    working,
)

pytestmark = pytest.mark.filterwarnings("error")


def linked(app: App, soft_for: float | None = None) -> AttemptHandle:
    """Return the link of an attempt without a worker."""
    app.task(name="send")(lambda: None).enqueue()
    (claim,) = take(app)
    return AttemptHandle(claim, app.store, app.now, lambda value: None, soft_for)


# ------------------------------------------------------------------------------------------------------------ the link


def test_a_user_created_context_is_never_stopped():
    """Handlers can be tested without a worker."""
    context = Context(1, "send", 1, 0, "1.1", "key", None, None)  # type: ignore[arg-type]
    context.heartbeat({"done": 1})
    asyncio.run(context.aheartbeat())

    assert (False, None) == (context.should_stop, context.stop_reason)


def test_a_lost_attempt_stays_lost(app: App):
    """Once lost, an attempt stays lost after a shutdown; any other reason is replaced by the next."""
    link = linked(app)
    seen = [link.reason]
    for why in (Stop.SHUTDOWN, Stop.TIMEOUT, Stop.LOST, Stop.SHUTDOWN):
        link.stop(why)
        seen.append(link.reason)

    assert [None, Stop.SHUTDOWN, Stop.TIMEOUT, Stop.LOST, Stop.LOST] == seen


def test_a_soft_timeout_needs_no_notification(app: App):
    """Compare with the clock in the link itself."""
    assert (None, Stop.TIMEOUT) == (linked(app, 3600).reason, linked(App("memory://"), 0).reason)


# ------------------------------------------------------------------------------------------------------------ cancelled


def test_checks_run_twice_a_second_between_heartbeats(app: App, monkeypatch: pytest.MonkeyPatch):
    """By default nine checks run per heartbeat, so that a handler sees a cancel within a second (D30)."""
    heartbeat = Heartbeat(app, Registered(app), Recorded())
    done: list[str] = []
    waits: list[float] = []
    monkeypatch.setattr(heartbeat, "_look", lambda: done.append("look"))
    monkeypatch.setattr(heartbeat, "_beat", lambda: done.append("beat"))
    monkeypatch.setattr(heartbeat, "_stop", _Waits(waits, 20))
    heartbeat._run()

    assert ["look"] * 9 + ["beat"] + ["look"] * 9 + ["beat"] == done
    assert {LOOK} == set(waits)


class _Waits:
    """An event that is set after a number of waits."""

    def __init__(self, waits: list[float], count: int) -> None:
        self.waits, self.count = waits, count

    def wait(self, seconds: float) -> bool:
        """Note for how long."""
        self.waits.append(seconds)
        return len(self.waits) > self.count


def test_a_heartbeat_without_attempts_does_not_check(app: App, monkeypatch: pytest.MonkeyPatch):
    """Idle workers send a heartbeat every few seconds, and run no other query."""
    asked: list[Any] = []
    heartbeat = Heartbeat(app, Registered(app), Recorded())
    monkeypatch.setattr(app.store, "run", asked.append)
    heartbeat._look()
    heartbeat._report()

    assert [] == asked


def test_a_check_finds_lost_attempts(app: App):
    """Find lost attempts without a write."""
    worker = register(app)
    app.task(name="send")(lambda number: None).enqueue_many(range(2))
    first, second = take(app, 2, worker=worker)
    app.job(first.id).cancel()
    attempts = Recorded({first.lease_id, second.lease_id})
    before = app.workers.select()
    Heartbeat(app, Registered(app, worker), attempts)._look()

    assert ([frozenset({first.lease_id})], before) == (attempts.calls_lost, app.workers.select())


@pytest.fixture
def calm(tmp_path):
    """Return an app with a heartbeat per hour, so that only checks find a cancel."""
    app = app_on(tmp_path, heartbeat_every="1h", lease_for="2h")
    yield app
    app.close()


def test_a_handler_in_a_thread_sees_that_its_job_was_cancelled(calm: App, monkeypatch: pytest.MonkeyPatch):
    """Handlers poll ctx.should_stop; a value that they return afterwards changes no state (D30)."""
    monkeypatch.setattr(heartbeat_module, "LOOK", 0.005)
    started, seen = threading.Event(), []

    @calm.task
    def work(context: Context) -> str:
        """Work until stopped."""
        started.set()
        while not context.should_stop:
            pass
        seen.append(context.stop_reason)
        with pytest.raises(LeaseLost):
            context.heartbeat()
        stopped.set()
        return "late"

    stopped = threading.Event()
    job = work.enqueue()

    async def run() -> None:
        """Run it on an event loop."""
        async with working(calm, concurrency=1), asyncio.timeout(PATIENCE):
            await came(started)
            await job.acancel("enough")
            await came(stopped)

    asyncio.run(run())

    assert ([Stop.LOST], State.CANCELLED) == (seen, job.refresh().state)
    assert ["cancelled"] == [each.outcome for each in job.attempts]


def test_a_coroutine_is_cancelled_and_its_slot_is_free(calm: App, monkeypatch: pytest.MonkeyPatch):
    """Cancel the coroutine, which need not poll."""
    monkeypatch.setattr(heartbeat_module, "LOOK", 0.005)
    seen = []

    async def run() -> str:
        """Run it on an event loop."""
        started = asyncio.Event()

        @calm.task
        async def work(number: int, context: Context) -> str:
            """Wait for ever, at first."""
            if number == 2:
                return "next"
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                seen.append(context.stop_reason)
            return "never"

        job = await work.aenqueue(1)
        async with working(calm, concurrency=1), asyncio.timeout(PATIENCE):
            await started.wait()
            await job.acancel()
            return await (await work.aenqueue(2)).aresult()

    assert ("next", [Stop.LOST]) == (asyncio.run(run()), seen)


# ------------------------------------------------------------------------------------------------------------ shutdown


def test_a_shutdown_is_seen_at_once(filed: App):
    """Handlers may finish, and those that poll can hurry: no attempt is interrupted before the drain timeout."""
    started, seen = threading.Event(), []

    @filed.task
    def work(context: Context) -> str:
        """Work until stopped."""
        started.set()
        while not context.should_stop:
            pass
        seen.append(context.stop_reason)
        return "finished"

    job = work.enqueue()

    async def run() -> None:
        """Run it on an event loop."""
        from redrive.runtime.worker import Worker

        worker = Worker(filed, shutdown_timeout=timedelta(hours=1))
        async with asyncio.timeout(PATIENCE):
            running = asyncio.create_task(worker.run())
            await came(started)
            worker.stop()
            await running

    asyncio.run(run())

    assert ([Stop.SHUTDOWN], "finished") == (seen, job.result())


# ------------------------------------------------------------------------------------------------------------- timeouts


def test_a_coroutine_is_interrupted_by_its_soft_timeout(app: App):
    """Let the handler clean up, and use the value that it then returns as its result."""
    seen = []

    @app.task(timeout="1h", soft_timeout="1ms")
    async def work(context: Context) -> str:
        """Wait for ever, and clean up."""
        try:
            await asyncio.Event().wait()
        except SoftTimeout:
            seen.append(context.stop_reason)
        return "half of it"

    work.enqueue()

    assert (Succeeded(b'"half of it"'), [Stop.TIMEOUT]) == (run_due(app), seen)


def test_a_soft_timeout_that_is_not_caught_is_a_timeout(app: App):
    """After an uncaught soft timeout the outcome is unknown, as after a hard one; the text names the soft one."""

    @app.task(soft_timeout="1ms")
    async def work() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    work.enqueue()
    outcome = run_due(app)
    failed = failure(outcome)

    assert ("TIMEOUT", Stage.IN_FLIGHT, "redrive.errors.SoftTimeout") == (
        failed.reason,
        failed.stage,
        failed.error_type,
    )
    assert "the soft timeout of 0.001 s has passed" == failed.message
    assert isinstance(outcome, Failed)
    assert "softly" not in outcome.traceback.partition("work")[0]


def test_a_hard_timeout_comes_after_a_soft_one(app: App):
    """If the handler continues after its soft timeout, the hard timeout cancels it."""

    @app.task(timeout="20ms", soft_timeout="1ms")
    async def work() -> None:
        """Ignore the hint."""
        try:
            await asyncio.Event().wait()
        except SoftTimeout:
            await asyncio.Event().wait()

    work.enqueue()
    failed = failure(run_due(app))

    assert ("TIMEOUT", "the attempt took longer than 0.02 s") == (failed.reason, failed.message)


def test_a_thread_sees_its_soft_timeout(app: App):
    """Set the flag that a thread polls, since it cannot be interrupted."""

    @app.task(timeout="1h", soft_timeout="1ms")
    def work(context: Context) -> str:
        """Work until stopped."""
        while not context.should_stop:
            pass
        return str(context.stop_reason)

    work.enqueue()
    with contextlib.closing(ThreadPool(1, "handler")) as pool:
        assert Succeeded(b'"timeout"') == run_due(app, pool)


def test_a_thread_that_outlives_its_hard_timeout_is_notified(app: App):
    """After the timeout the thread continues, but its effects are no longer those of its job."""
    ended, seen = threading.Event(), []

    @app.task(timeout="1ms")
    def work(context: Context) -> None:
        """Work until stopped."""
        while not context.should_stop:
            pass
        seen.append(context.stop_reason)
        ended.set()

    work.enqueue()
    with contextlib.closing(ThreadPool(1, "handler")) as pool:
        failed = failure(run_due(app, pool))
        assert ended.wait(PATIENCE)

    assert ("TIMEOUT", [Stop.LOST]) == (failed.reason, seen)


def test_a_decorated_coroutine_has_a_soft_timeout_too(app: App):
    """If a plain function returns a coroutine, it is awaited with the soft timeout."""

    def decorated():
        """Return a coroutine."""
        return asyncio.Event().wait()

    app.task(name="work", soft_timeout="1ms")(decorated).enqueue()

    assert "TIMEOUT" == failure(run_due(app)).reason


@pytest.mark.parametrize(("soft", "hard"), [("30s", "30s"), ("31s", "30s"), ("0s", None), (0, "1s")])
def test_a_soft_timeout_that_cannot_be_soft_is_refused(app: App, soft, hard):
    """Soft timeouts are positive and shorter than the hard one; the message names the task."""
    with pytest.raises(TaskDefinitionError, match=r"'work'.*soft timeout"):
        app.task(name="work", timeout=hard, soft_timeout=soft)(lambda: None)


# ----------------------------------------------------------------------------------------------------- unknown attempts


def test_stopping_an_unknown_attempt_does_nothing(app: App):
    """Ignore the stop of an attempt that may have ended just now."""
    executor = Executor(app, None)
    executor.stop(Stop.LOST, [4711])

    assert ([], False) == (executor.contexts.unwritten(), executor.contexts.ends_by_itself(4711))


def test_the_soft_timeout_of_an_ended_job_is_only_logged(filed: App, caplog):
    """Log why an outcome under a lost lease was refused: cancelled, or lost."""
    filed.task(name="send")(lambda number: None).enqueue_many(range(2))
    worker = register(filed)
    first, second = take(filed, 2, worker=worker)
    filed.job(first.id).cancel()
    filed.store.run(leases.settle([Ending(second, Succeeded(), 0.0)]))
    again = [Ending(first, Succeeded(), 0.0), Ending(second, Failed(failure_of("x")), 0.0)]
    settled = filed.store.run(leases.settle(again))

    assert ({first.lease_id, second.lease_id}, {first.lease_id}) == (settled.lost, settled.cancelled)


def failure_of(message: str):
    """Return a failure."""
    from redrive.policy import Failure

    return Failure((), message)


def test_an_idle_worker_opens_the_connection_of_its_heartbeat_once(app: App, monkeypatch: pytest.MonkeyPatch):
    """Idle workers open it at their first check, so that the first jobs do not wait for the import of a driver."""
    heartbeat = Heartbeat(app, Registered(app), Recorded())
    asked: list[str] = []
    monkeypatch.setattr(app.store, "run", lambda operation, *, timeout: asked.append(operation.name))
    monkeypatch.setattr(heartbeat, "_stop", _Waits([], 9))
    heartbeat._run()

    assert ["held"] == asked
