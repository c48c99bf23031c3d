"""The time limits of attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from redrive.engine.outcome import Failed, Snoozed
from redrive.errors import Snooze
from redrive.policy import Stage
from redrive.runtime import handlers
from redrive.runtime.handlers import AttemptTimeout, TimeLimits, outcome_of, softly
from redrive.testing import VirtualClock
from tests.runtime.helpers import ManualClock

SHORT, LONG = timedelta(milliseconds=5), timedelta(hours=1)


async def ended(running: Awaitable[object]) -> object:
    """Return the result, or the type of the error."""
    try:
        return await running
    except BaseException as error:  # noqa: BLE001 - the answer
        return type(error)


async def for_ever() -> None:
    """Wait until cancelled."""
    await asyncio.Event().wait()


async def at_once() -> str:
    """Return without a wait."""
    return "quick"


async def begun(*running: Awaitable[object]) -> list[asyncio.Task[object]]:
    """Begin to await these."""
    tasks = [asyncio.ensure_future(ended(each)) for each in running]
    await VirtualClock().asleep(0)
    return tasks


def test_each_attempt_of_a_row_ends_at_its_own_limit(monkeypatch: pytest.MonkeyPatch):
    """Attempts that have begun later end later, and the row goes when its last attempt has ended."""
    time = ManualClock()
    monkeypatch.setattr(handlers, "_monotonic", time)

    async def scenario() -> None:
        limits = TimeLimits()
        first, quick = await begun(limits.within(LONG, for_ever()), limits.within(LONG, at_once()))
        time.seconds += 1
        (second,) = await begun(limits.within(LONG, for_ever()))
        time.seconds += LONG.total_seconds() - 1
        limits._look(LONG)

        assert [AttemptTimeout, "quick"] == [await first, await quick]
        assert not second.done()
        time.seconds += 1
        limits._look(LONG)
        assert AttemptTimeout is await second
        assert {} == limits._rows

    asyncio.run(scenario())


def test_an_attempt_is_cancelled_by_the_event_loop():
    """At the end of its time, without a further call."""
    assert AttemptTimeout is asyncio.run(ended(TimeLimits().within(SHORT, for_ever())))


def test_many_attempts_take_one_timer():
    """The event loop has one timer for all attempts with the same limit."""

    async def scenario() -> None:
        limits, loop = TimeLimits(), asyncio.get_running_loop()
        before = len(loop._scheduled)
        tasks = await begun(*(limits.within(LONG, for_ever()) for _ in range(10)))
        timers = len(loop._scheduled) - before
        for task in tasks:
            task.cancel()
        answers = await asyncio.gather(*tasks)

        assert (1, [asyncio.CancelledError] * 10) == (timers, answers)
        assert {LONG: {}} == limits._rows

    asyncio.run(scenario())


def test_a_cancellation_by_others_comes_first(monkeypatch: pytest.MonkeyPatch):
    """Attempts that are cancelled when their time is over too are cancelled, as with `asyncio.timeout`."""
    time = ManualClock()
    monkeypatch.setattr(handlers, "_monotonic", time)

    async def scenario() -> None:
        limits = TimeLimits()
        (task,) = await begun(limits.within(LONG, for_ever()))
        time.seconds += LONG.total_seconds()
        limits._look(LONG)
        task.cancel()

        assert asyncio.CancelledError is await task

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answer", "expected"), [(None, "late"), (TimeoutError("mine"), AttemptTimeout), (OSError("mine"), OSError)]
)
def test_a_handler_may_end_otherwise_after_its_limit(answer: Exception | None, expected: object):
    """Late results and errors count; a timeout of its own counts as that of the attempt. No cancellation is left."""

    async def late() -> str:
        try:
            await for_ever()
        except asyncio.CancelledError:
            if answer is not None:
                raise answer from None
        return "late"

    async def scenario() -> None:
        outcome = await ended(TimeLimits().within(SHORT, late()))
        task = asyncio.current_task()
        assert task is not None
        assert (expected, 0) == (outcome, task.cancelling())

    asyncio.run(scenario())


def within(running: Callable[[], Awaitable[object]]) -> Awaitable[object]:
    """Await a handler with a time limit."""
    return TimeLimits().within(SHORT, running())


def with_soft(running: Callable[[], Awaitable[object]]) -> Awaitable[object]:
    """Await a handler with a soft timeout."""
    return softly(running(), SHORT.total_seconds())


@pytest.mark.parametrize("limited", [within, with_soft])
@pytest.mark.parametrize(
    ("error", "reason"),
    [(RuntimeError("mine"), "TIMEOUT"), (ConnectionRefusedError(), "TIMEOUT"), (NameError(), "PROGRAMMING_ERROR")],
)
def test_an_error_after_a_limit_is_in_flight(
    limited: Callable[[Callable[[], Awaitable[object]]], Awaitable[object]], error: Exception, reason: str
):
    """The cleanup of a handler proves nothing about the call that was interrupted; elsewhere the error says more."""

    async def late() -> None:
        try:
            await for_ever()
        finally:
            raise error

    with pytest.raises(type(error)) as raised:
        asyncio.run(limited(late))  # type: ignore[arg-type]
    first, again = outcome_of(raised.value), outcome_of(raised.value)

    assert isinstance(first, Failed)
    assert isinstance(again, Failed)
    failure = first.failure
    assert (reason, Stage.IN_FLIGHT) == (failure.reason, failure.stage)
    assert failure.lasting is None or failure.lasting.stage is Stage.IN_FLIGHT
    assert Stage.IN_FLIGHT is not again.failure.stage


@pytest.mark.parametrize("limited", [within, with_soft])
def test_a_handler_may_snooze_after_its_limit(
    limited: Callable[[Callable[[], Awaitable[object]]], Awaitable[object]],
):
    """What a handler asks for is no failure."""

    async def late() -> None:
        try:
            await for_ever()
        finally:
            raise Snooze("1m")

    with pytest.raises(Snooze) as raised:
        asyncio.run(limited(late))  # type: ignore[arg-type]

    assert isinstance(outcome_of(raised.value), Snoozed)


def test_limits_go_on_in_another_event_loop():
    """Rows with a timer that has died with its event loop are not used in the next one."""
    limits = TimeLimits()
    first = asyncio.run(ended(limits.within(SHORT, at_once())))
    second = asyncio.run(ended(limits.within(SHORT, for_ever())))

    assert ("quick", AttemptTimeout) == (first, second)
