"""Awaiting what may be ended from outside."""

from __future__ import annotations

import pytest

from redrive.clock import SystemClock
from redrive.orchestrator.interrupt import Interrupt, Interrupted
from tests.retrying.helpers import LoopClock
from tests.retrying.orchestrator.helpers import together


def test_a_result_is_handed_on(run):
    """Operations that end by themselves return their result, and ending them afterwards does nothing."""

    async def seven():
        return 7

    async def main():
        interrupt = Interrupt()
        result = await interrupt.run(seven(), lambda: 0.0)
        interrupt()
        return result

    assert 7 == run(main)


def test_an_error_is_handed_on(run):
    """Timeouts of the awaited operation pass unchanged."""

    async def late():
        raise TimeoutError("mine")

    async def main():
        await Interrupt().run(late())

    with pytest.raises(TimeoutError, match="mine"):
        run(main)


def test_the_timeout_ends_the_operation(jump):
    """It is ended when its time is up, and not before."""

    async def main():
        clock = LoopClock()
        began = clock.monotonic()
        with pytest.raises(Interrupted):
            await Interrupt().run(clock.asleep(3600), lambda: began + 2 - clock.monotonic())
        return clock.monotonic() - began

    assert 2 == round(jump(main), 2)


def test_without_a_limit_nothing_ends_it(jump):
    """Something that may take as long as it likes does."""

    async def main():
        return await Interrupt().run(LoopClock().asleep(10**6), lambda: None)

    assert None is jump(main)


def test_a_timer_that_expires_early_does_not_end_the_operation(jump):
    """If the timer expires before the clock, the operation continues, and the clock is read again and again."""
    answers = [0.5, 0.5, 0.25, 0.0001, 0.0]
    asked = []

    def left():
        asked.append(answers[min(len(asked), len(answers) - 1)])
        return asked[-1]

    async def main():
        clock = LoopClock()
        began = clock.monotonic()
        with pytest.raises(Interrupted):
            await Interrupt().run(clock.asleep(3600), left)
        return clock.monotonic() - began

    assert (0.751, answers) == (round(jump(main), 3), asked)


def test_an_operation_can_be_ended_twice(jump):
    """Second calls change nothing, at once or after the first has taken effect."""

    async def main():
        interrupt, ended = Interrupt(), []

        async def cleanup():
            try:
                await SystemClock().asleep(3600)
            finally:
                interrupt()

        async def wait():
            with pytest.raises(Interrupted):
                await interrupt.run(cleanup())
            ended.append(True)

        async def end():
            await SystemClock().asleep(1)
            interrupt()
            interrupt()

        await together(wait, end)
        return ended

    assert [True] == jump(main)
