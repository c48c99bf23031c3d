"""Start and stop hooks of a worker, and the resources that start hooks open for handlers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest

from redrive import App, Context
from redrive.errors import JobDead, StartHookError, TaskDefinitionError
from redrive.runtime import hooks
from redrive.runtime.worker import Worker
from redrive.testing import drain
from tests.runtime.helpers import PATIENCE, came, ended, working


def run_and_stop(app: App) -> None:
    """Run a worker until its start hooks have run, and stop it."""

    async def run() -> None:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(PATIENCE):
            await worker.started.wait()
            worker.stop()
            await running

    asyncio.run(run())


def test_handlers_receive_what_start_hooks_return(filed: App):
    """Sync and async handlers find the resources of all start hooks, plain and with a yield, in ``ctx.resources``."""

    @filed.on_start
    def plain() -> dict[str, Any]:
        return {"plain": 1}

    @filed.on_start
    async def coroutine() -> dict[str, Any]:
        return {"coroutine": 2}

    @filed.on_start
    def generator() -> Iterator[dict[str, Any]]:
        yield {"generator": 3}

    @filed.on_start
    async def async_generator() -> AsyncIterator[dict[str, Any]]:
        yield {"async_generator": 4}

    @filed.on_start
    def nothing() -> None:
        """Return nothing."""

    @filed.task
    def in_a_thread(ctx: Context) -> dict[str, int]:
        return dict(ctx.resources)

    @filed.task
    async def on_the_loop(ctx: Context) -> dict[str, int]:
        return dict(ctx.resources)

    async def run() -> list[dict[str, int]]:
        jobs = [in_a_thread.enqueue(), on_the_loop.enqueue()]
        async with working(filed):
            return [await job.aresult(timeout=PATIENCE) for job in jobs]

    assert [{"plain": 1, "coroutine": 2, "generator": 3, "async_generator": 4}] * 2 == asyncio.run(run())


def test_hooks_run_in_order_and_end_in_reverse_order(filed: App):
    """Stop hooks run after the last handler, the last one first; then generators continue, the last one first."""
    calls: list[str] = []

    @filed.on_start
    def first() -> Iterator[None]:
        calls.append("first")
        yield
        calls.append("first closed")

    @filed.on_start
    async def second() -> AsyncIterator[dict[str, int]]:
        calls.append("second")
        yield {"number": 5}
        calls.append("second closed")

    @filed.on_stop
    def stop_one(resources: Mapping[str, Any]) -> None:
        calls.append(f"stop one {resources['number']}")

    @filed.on_stop
    async def stop_two() -> None:
        calls.append("stop two")

    @filed.task
    async def work() -> None:
        calls.append("work")

    async def run() -> None:
        job = work.enqueue()
        async with working(filed):
            await ended(job)

    asyncio.run(run())
    assert ["first", "second", "work", "stop two", "stop one 5", "second closed", "first closed"] == calls


def test_a_hook_receives_the_resources_of_the_hooks_before_it(filed: App):
    """Parameters of start hooks receive what was returned so far."""
    seen: list[dict[str, Any]] = []

    @filed.on_start
    def settings() -> dict[str, str]:
        return {"url": "redis://"}

    @filed.on_start
    async def client(resources: Mapping[str, Any]) -> None:
        seen.append(dict(resources))

    run_and_stop(filed)
    assert [{"url": "redis://"}] == seen


def test_sync_hooks_of_a_worker_share_a_thread(filed: App):
    """Both halves of a generator and a stop hook run in one thread, which is not that of the event loop."""
    threads: set[int] = set()

    @filed.on_start
    def open_() -> Iterator[None]:
        threads.add(threading.get_ident())
        yield
        threads.add(threading.get_ident())

    @filed.on_stop
    def close() -> None:
        threads.add(threading.get_ident())

    run_and_stop(filed)
    assert 1 == len(threads)
    assert threading.get_ident() not in threads


def test_an_error_of_a_start_hook_ends_the_worker(filed: App):
    """The message names hook, error and line; no later hook runs, stop hooks run, and no worker is registered."""
    calls: list[str] = []

    @filed.on_start
    def first() -> Iterator[None]:
        yield
        calls.append("first closed")

    @filed.on_start
    def broken() -> None:
        raise ConnectionRefusedError("redis is down")

    @filed.on_start
    def later() -> None:
        calls.append("later")

    @filed.on_stop
    def stop() -> None:
        calls.append("stop")

    message = r"broken failed: ConnectionRefusedError: redis is down \(.*test_hooks.py, line \d+\)"
    with pytest.raises(StartHookError, match=message):
        asyncio.run(Worker(filed).run())
    assert ["stop", "first closed"] == calls
    assert () == filed.workers.select()


def test_stop_iteration_of_a_start_hook_ends_the_worker(filed: App):
    """A future cannot carry it, so that the worker would wait forever."""

    @filed.on_start
    def first() -> None:
        next(iter(()))

    with pytest.raises(StartHookError, match="first failed: RuntimeError: the function raised StopIteration"):
        asyncio.run(Worker(filed).run())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "returned int; it returns nothing, or a dictionary of resources by name"),
        ({1: "pool"}, "returned dict; it returns nothing, or a dictionary of resources by name"),
        ({"pool": 2}, "returned 'pool', which an earlier hook has returned"),
    ],
)
def test_a_start_hook_with_another_result_is_refused(filed: App, value: object, message: str):
    """Results other than mappings with texts as keys, and repeated names, end the worker with one line."""
    filed.on_start(lambda: {"pool": 1})
    filed.on_start(lambda: value)

    with pytest.raises(StartHookError, match=message):
        asyncio.run(Worker(filed).run())


def test_a_generator_that_does_not_yield_is_refused(filed: App):
    """Start hooks that end before their yield are an error, because the resources are missing."""

    @filed.on_start
    def early() -> Iterator[None]:
        if threading.active_count() > 0:
            return
        yield

    with pytest.raises(StartHookError, match="has a yield, but ended without reaching it"):
        asyncio.run(Worker(filed).run())


def test_a_second_yield_is_logged(filed: App, caplog: pytest.LogCaptureFixture):
    """The worker reads one value; a generator with more is closed, sync or async."""

    @filed.on_start
    def twice() -> Iterator[None]:
        yield
        yield

    @filed.on_start
    async def twice_async() -> AsyncIterator[None]:
        yield
        yield

    run_and_stop(filed)
    assert ["yields a second time" in each for each in caplog.messages if "yield" in each] == [True, True]


def test_an_error_of_a_stop_hook_does_not_stop_the_others(filed: App, caplog: pytest.LogCaptureFixture):
    """Errors of stop hooks are logged with their tracebacks, and the next ones run."""
    calls: list[str] = []

    @filed.on_stop
    def first() -> None:
        calls.append("first")

    @filed.on_stop
    def broken() -> None:
        raise OSError("flush failed")

    run_and_stop(filed)
    (error,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert ["first"] == calls
    assert "broken failed while the worker stopped: OSError: flush failed" in error.getMessage()
    assert "Traceback" in error.getMessage()


def test_a_stop_hook_that_hangs_is_left_behind(
    filed: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """The worker waits for a stop hook for a limited time."""
    monkeypatch.setattr(hooks, "STOP_LIMIT", 0.01)

    @filed.on_stop
    async def hang() -> None:
        await asyncio.Event().wait()

    run_and_stop(filed)
    assert any("hang has not ended within 0.01 s" in each for each in caplog.messages)


def test_a_stop_during_a_start_hook_claims_nothing(filed: App):
    """The first stop lets the start hook finish; then the stop hooks run, and no job."""
    begun, go = threading.Event(), threading.Event()
    calls: list[str] = []

    @filed.on_start
    def slow() -> None:
        begun.set()
        go.wait(PATIENCE)
        calls.append("started")

    @filed.on_stop
    def stop() -> None:
        calls.append("stopped")

    task = filed.task(name="work")(lambda: calls.append("ran"))

    async def run() -> None:
        worker = Worker(filed)
        running = asyncio.create_task(worker.run())
        await came(begun)
        worker.stop()
        go.set()
        async with asyncio.timeout(PATIENCE):
            await running

    task.enqueue()
    asyncio.run(run())
    assert ["started", "stopped"] == calls


def test_a_second_stop_cancels_a_start_hook(filed: App):
    """Start hooks that wait forever do not keep the worker; their generator is closed."""
    calls: list[str] = []

    async def run() -> None:
        begun = asyncio.Event()

        @filed.on_start
        async def forever() -> AsyncIterator[None]:
            begun.set()
            try:
                await asyncio.Event().wait()
                yield
            finally:
                calls.append("cleaned up")

        filed.on_stop(lambda: calls.append("stopped"))
        worker = Worker(filed)
        running = asyncio.create_task(worker.run())
        await begun.wait()
        worker.stop()
        worker.stop()
        async with asyncio.timeout(PATIENCE):
            await running

    asyncio.run(run())
    assert ["cleaned up", "stopped"] == calls


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda one, two: None, r"takes \(one, two\); a hook of @app.on_start takes nothing, or one parameter"),
        (lambda *, pool: None, r"takes \(pool\); a hook of @app.on_start takes nothing, or one parameter"),
        (5, "5 is no function; write @app.on_start above a function"),
    ],
)
def test_functions_that_cannot_be_hooks_are_refused(app: App, function: Any, message: str):
    """Hooks are functions with one parameter for the resources or none; others are refused at import."""
    with pytest.raises(TaskDefinitionError, match=message):
        app.on_start(function)


def test_a_stop_hook_with_a_yield_is_refused(app: App):
    """Generators belong to ``on_start``, as the message states."""

    def generator() -> Iterator[None]:
        yield

    with pytest.raises(TaskDefinitionError, match="decorate it with @app.on_start"):
        app.on_stop(generator)


def test_a_missing_resource_is_named(app: App):
    """Reading a resource that no hook has returned raises a KeyError with the names that exist."""
    app.on_start(lambda: {"pool": 1})

    @app.task
    def work(ctx: Context) -> None:
        assert "db" not in ctx.resources
        assert (1, "Resources(pool)") == (len(ctx.resources), repr(ctx.resources))
        ctx.resources["db"]

    job = work.enqueue()
    drain(app)
    with pytest.raises(JobDead, match="has returned the resource 'db'; resources: 'pool'"):
        job.result(timeout=0)


def test_drain_takes_resources_of_the_test(app: App):
    """With ``resources=`` handlers receive fakes and no hook runs; without it hooks run as in a worker."""
    calls: list[str] = []

    @app.on_start
    def real() -> Iterator[dict[str, str]]:
        calls.append("opened")
        yield {"mail": "real"}
        calls.append("closed")

    @app.task
    def send(ctx: Context) -> str:
        return str(ctx.resources["mail"])

    faked, sent = send.enqueue(), None
    drain(app, resources={"mail": "fake"})
    assert ("fake", []) == (faked.result(timeout=0), calls)
    sent = send.enqueue()
    drain(app)
    assert ("real", ["opened", "closed"]) == (sent.result(timeout=0), calls)
