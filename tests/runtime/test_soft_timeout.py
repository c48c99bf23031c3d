"""A soft timeout is raised inside the coroutine, once, and never mistaken for another cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from redrive.errors import SoftTimeout
from redrive.runtime.handlers import softly
from tests.runtime.helpers import PATIENCE

SOON = 0.001
"""Seconds after which a wait without an end fails."""


def run(handler: Callable[[], Coroutine[Any, Any, Any]], seconds: float = SOON) -> Any:
    """Run a handler under a soft timeout."""

    async def patiently() -> Any:
        """Do not wait for ever."""
        async with asyncio.timeout(PATIENCE):
            return await softly(handler(), seconds)

    return asyncio.run(patiently())


async def for_ever() -> None:
    """Wait for what never comes."""
    await asyncio.Event().wait()


def test_a_quick_handler_is_not_interrupted():
    """Values go through, and the timer is gone."""

    async def handler() -> str:
        """Await something, and return."""
        return await asyncio.sleep(0, "done")  # noqa: TID251 - no time passes

    assert "done" == run(handler, 3600)


def test_errors_go_through():
    """Exceptions of the handler pass through."""

    async def handler() -> None:
        """Raise."""
        await asyncio.sleep(0)  # noqa: TID251 - no time passes
        raise KeyError("boom")

    with pytest.raises(KeyError):
        run(handler, 3600)


def test_the_timeout_is_raised_where_the_handler_waits():
    """Raise an ordinary exception there: the handler can catch it and continue."""

    async def handler() -> str:
        """Clean up, which takes another while."""
        try:
            await for_ever()
        except SoftTimeout as error:
            await asyncio.sleep(0)  # noqa: TID251 - no time passes
            return str(error)
        return "never"

    assert "the soft timeout of 0.001 s has passed" == run(handler)


def test_the_soft_timeout_may_be_uncaught():
    """Raise the exception out of the handler if it is not caught."""
    with pytest.raises(SoftTimeout):
        run(for_ever)


def test_the_soft_timeout_is_raised_once():
    """After the exception the handler has until the hard timeout to clean up."""

    async def handler() -> list[bool]:
        """Wait again."""
        seen = []
        for span in (None, 20 * SOON):
            try:
                async with asyncio.timeout(span):
                    await for_ever()
            except TimeoutError as error:
                seen.append(isinstance(error, SoftTimeout))
        return seen

    assert [True, False] == run(handler)


def test_the_task_is_not_cancelled_after_a_soft_timeout():
    """Take back the cancellation of the task, so that timeouts and task groups of the handler work afterwards."""

    async def handler() -> int:
        """Count the cancellations."""
        try:
            await for_ever()
        except SoftTimeout:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))  # noqa: TID251 - no time passes
        task = asyncio.current_task()
        assert task
        return task.cancelling()

    assert 0 == run(handler)


def test_a_wait_inside_a_wait_is_interrupted():
    """If the handler has its own timeout around the wait, that timeout lets the exception through."""

    async def handler() -> str:
        """Wait with a limit."""
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(for_ever(), for_ever())
        except SoftTimeout:
            return "hurried"
        return "never"

    assert "hurried" == run(handler)


def test_another_cancellation_stays_a_cancellation():
    """Cancellations by other code stay cancellations, before the soft timeout and at the same moment."""

    async def cancelled(soft: float) -> bool:
        """Cancel the task from outside; a soft timeout of 0 fires in the same pass of the loop."""
        started = asyncio.Event()

        async def handler() -> None:
            """Start, and wait."""
            started.set()
            await for_ever()

        task = asyncio.ensure_future(softly(handler(), soft))
        await started.wait()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert [True, True] == [asyncio.run(cancelled(soft)) for soft in (3600, 0)]


def test_a_handler_may_await_a_plain_future():
    """Drive any awaitable, such as a plain future."""

    async def main() -> str:
        """Await a future that is set later."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        loop.call_soon(future.set_result, "set")
        return await softly(future, 3600)

    assert "set" == asyncio.run(main())
