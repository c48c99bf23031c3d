"""Handlers that keep the event loop of their worker from running are logged."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from redrive import App, Flow, retry
from redrive.runtime import blocked_loop
from redrive.runtime.blocked_loop import BlockedLoop
from redrive.runtime.worker import Worker
from redrive.testing import VirtualClock, using

HOW = (
    "; await what it waits for (asyncio.sleep, an async client, asyncio.to_thread), or make the handler a def, which "
    "runs in a thread"
)


@pytest.fixture
def app() -> Iterator[App]:
    """Return an app in memory by the real clock, as workers have it."""
    made = App("memory://")
    yield made
    made.close()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[BlockedLoop]:
    """Return the looks of the workers that are made, for which each moment without a turn counts as blocked."""
    made: list[BlockedLoop] = []
    begin = BlockedLoop.__init__

    def init(self: BlockedLoop, *args: Any) -> None:
        begin(self, *args)
        made.append(self)

    monkeypatch.setattr(BlockedLoop, "__init__", init)
    monkeypatch.setattr(blocked_loop, "NOTICED", 0.0)
    return made


def blocking(looks: list[BlockedLoop]) -> None:
    """Keep the event loop until another thread has looked at it, and looked again."""

    def look() -> None:
        for _ in range(3):
            looks[0].look()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the log has about blocked loops."""
    texts = [record.getMessage() for record in caplog.records if record.name == "redrive.worker"]
    return [text for text in texts if text.startswith("the event loop has not run for ")]


def run(app: App) -> None:
    """Run a worker until nothing is left."""
    asyncio.run(Worker(app, until_empty=True).run())


def test_a_handler_that_blocks_the_loop_is_logged_once(
    app: App, looks: list[BlockedLoop], caplog: pytest.LogCaptureFixture
):
    """The log names the task and the line, and what to do; further jobs of the task are not logged."""

    @app.task
    async def fetch(url: str) -> None:
        blocking(looks)

    fetch.enqueue_many(["a", "b"])
    run(app)

    (text,) = logged(caplog)
    assert "and no other handler goes on: task 'fetch' blocks it in " in text
    assert f"{__file__}, line " in text
    assert text.endswith(HOW)


def in_a_task(looks: list[BlockedLoop]) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return a handler of which another asyncio task blocks the loop."""

    async def other() -> None:
        blocking(looks)

    async def gather() -> None:
        await asyncio.gather(other())

    return gather


def test_a_task_of_asyncio_is_named_by_its_line(app: App, looks: list[BlockedLoop], caplog: pytest.LogCaptureFixture):
    """A task that a handler has started is no attempt."""
    app.task(in_a_task(looks)).enqueue()
    run(app)

    (text,) = logged(caplog)
    assert f"and no other handler goes on: a function blocks it in {__file__}, line " in text


def test_the_body_of_a_workflow_is_named(app: App, looks: list[BlockedLoop], caplog: pytest.LogCaptureFixture):
    """A body runs in an asyncio task of its own."""

    @app.workflow()
    async def body(flow: Flow) -> None:
        blocking(looks)

    body.start()
    run(app)

    (text,) = logged(caplog)
    assert "task 'body' blocks it in " in text
    assert text.endswith(
        "; a body waits by flow.sleep() and works in its steps; a step awaits what it waits for, or is a def, "
        "which runs in a thread"
    )


def test_a_handler_in_a_thread_blocks_nothing(app: App, looks: list[BlockedLoop], caplog: pytest.LogCaptureFixture):
    """The log names only code of the user that runs in the loop; without a loop there is nothing to see."""

    @app.task
    def plain() -> None:
        blocking(looks)

    BlockedLoop(app, None).look()  # type: ignore[arg-type]
    looks.clear()
    plain.enqueue()
    run(app)

    assert [] == logged(caplog)


def test_a_wait_of_a_retried_function_is_named_by_the_line_of_the_user(
    app: App, looks: list[BlockedLoop], caplog: pytest.LogCaptureFixture
):
    """The line of the wrapper, which redrive makes, says nothing."""

    class Blocking(VirtualClock):
        """A clock whose waits keep the thread busy."""

        def sleep(self, seconds: float) -> None:
            """Wait in the thread of the caller."""
            blocking(looks)

    @retry("1 1s", on=ValueError)
    def fail() -> None:
        raise ValueError

    @app.task
    async def fetch() -> None:
        with contextlib.suppress(ValueError), using(clock=Blocking()):
            fail()

    fetch.enqueue()
    run(app)

    (text,) = logged(caplog)
    assert f"task 'fetch' blocks it in {__file__}, line " in text
