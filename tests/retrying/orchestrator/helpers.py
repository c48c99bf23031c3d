"""Helpers for the tests of the orchestrator: errors with reasons, strategies that record, and a scripted sender."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio

from redrive.clock import in_trio
from redrive.orchestrator import Request, RetryAction, RetryReason
from tests.retrying.helpers import checkpoint


class Refusal(Exception):
    """A refusal of a server, with the client's reason for it."""

    def __init__(self, reason: str, *, definite: bool | None = None) -> None:
        super().__init__(reason)
        self.retry_reason = reason
        self.definite = definite


class FixedStrategy:
    """A strategy that always answers the same, and remembers what it was asked."""

    def __init__(self, answer: Any = "1ms") -> None:
        self.reasons: list[RetryReason] = []
        self._answer = answer

    async def retry_after(self, request: Request, reason: RetryReason, /) -> RetryAction | None:
        """Answer."""
        self.reasons.append(reason)
        if isinstance(self._answer, Exception):
            raise self._answer
        if self._answer is None or isinstance(self._answer, RetryAction):
            return self._answer
        return RetryAction(self._answer)


class ScriptedServer:
    """Sends by a script: an exception is raised, any other value is returned; the last step is repeated.

    Attributes:
        sent: the clock's reading at each attempt.
    """

    def __init__(self, *steps: Any, marks: bool = True, endpoint: str | None = "node1") -> None:
        self.sent: list[float] = []
        self._steps = steps
        self._marks = marks
        self._endpoint = endpoint

    async def __call__(self, request: Request, attempt: Any) -> Any:
        """Do the next step."""
        step = self._steps[min(len(self.sent), len(self._steps) - 1)]
        self.sent.append(request.clock.monotonic())
        await checkpoint()
        if self._marks:
            attempt.dispatch(self._endpoint)
            if getattr(step, "definite", None) is not None:
                attempt.answer(definite=step.definite)
        if isinstance(step, BaseException):
            raise step
        return step


class SpanOf:
    """A span that remembers."""

    def __init__(self) -> None:
        self.attributes: dict[str, int] = {}
        self.ends = 0

    def set_attribute(self, key: str, value: int, /) -> None:
        """Note something."""
        self.attributes[key] = value

    def end(self) -> None:
        """It is over."""
        self.ends += 1


def events(caplog: Any) -> list[tuple[str, str]]:
    """Name and level of each event that was logged."""
    return [(type(record.event).__name__, record.levelname) for record in caplog.records if hasattr(record, "event")]


async def together(*functions):
    """Run coroutine functions at the same time, under the library that runs."""
    if in_trio():
        async with trio.open_nursery() as nursery:
            for function in functions:
                nursery.start_soon(function)
    else:
        await asyncio.gather(*[function() for function in functions])


async def cancelled_after(seconds, function):
    """Cancel a task from outside and see that its cancellation passes."""
    if in_trio():
        with trio.move_on_after(seconds) as scope:
            await function()
        assert scope.cancelled_caught
    else:
        task = asyncio.ensure_future(function())
        await asyncio.sleep(seconds)  # noqa: TID251 - on a loop whose timers need no time
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
