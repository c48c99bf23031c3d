"""State is per call: threads, tasks and functions share policies without seeing one another."""

from __future__ import annotations

import asyncio
import threading

import pytest

import redrive
from redrive.policy import Backoff, Policy
from redrive.retrying.context import using
from tests.retrying.helpers import Busy, JumpingClock, Script, checkpoint

AT_ONCE = Policy(on=Busy, attempts=3, backoff=Backoff.constant(0))
DOUBLING = Policy(on=Busy, attempts=4, deadline=None, backoff=Backoff.exponential(1), jitter="none")


@pytest.mark.case("isolation.01")
def test_tasks_share_a_policy(clock):
    """Four tasks under one policy that each fail twice make three attempts each, in every form."""

    async def block(function):
        async for attempt in AT_ONCE:
            with attempt:
                return await function()
        return None

    async def main(form):
        scripts = [Script(Busy(), Busy(), number) for number in range(4)]
        results = await asyncio.gather(*(form(script.as_async()) for script in scripts))
        return results, [script.calls for script in scripts]

    for form in (block, AT_ONCE.acall, lambda function: redrive.retry(AT_ONCE)(function)()):
        assert ([0, 1, 2, 3], [3] * 4) == asyncio.run(main(form))


def test_tasks_share_a_function():
    """Four tasks in one decorated function that each fail twice make three attempts each."""
    calls = dict.fromkeys("abcd", 0)

    @redrive.retry(AT_ONCE)
    async def call(name):
        calls[name] += 1
        await checkpoint()
        if calls[name] < 3:
            raise Busy
        return name

    async def main():
        return await asyncio.gather(*map(call, "abcd"))

    assert ["a", "b", "c", "d"] == asyncio.run(main())
    assert {3} == set(calls.values())


@pytest.mark.case("isolation.02")
def test_threads_do_not_see_one_another():
    """Threads read their own attempt numbers in the same loop."""
    second, started, seen = threading.Event(), threading.Event(), []

    def first_thread():
        for attempt in AT_ONCE:
            with attempt:
                if attempt.number == 1:
                    raise Busy
                second.set()
                started.wait(5)
                seen.append(attempt.number)

    def other_thread():
        second.wait(5)
        for attempt in AT_ONCE:
            with attempt:
                assert 1 == attempt.number
                started.set()

    threads = [threading.Thread(target=target) for target in (first_thread, other_thread)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [2] == seen


@pytest.mark.case("isolation.03")
def test_each_call_has_its_own_delays():
    """Three calls at a time each wait 1, 2 and 4 s."""

    async def main():
        slept = []

        async def one():
            clock = JumpingClock()
            with using(clock=clock):
                await DOUBLING.aoutcome(Script(Busy()).as_async())
            slept.append(clock.slept)

        await asyncio.gather(one(), one(), one())
        return slept

    assert [[1.0, 2.0, 4.0]] * 3 == asyncio.run(main())


@pytest.mark.case("isolation.04")
def test_decorrelated_delays_are_independent():
    """Two calls that interleave under one decorrelated backoff draw as each would alone."""
    policy = Policy(on=Busy, attempts=5, deadline=None, backoff=Backoff.decorrelated(1, 1000))

    def alone():
        clock = JumpingClock()
        with using(clock=clock, sample=0.5):
            policy.outcome(Script(Busy()))
        return clock.slept

    async def main():
        async def one():
            clock = JumpingClock()
            with using(clock=clock, sample=0.5):
                await policy.aoutcome(Script(Busy()).as_async())
            return clock.slept

        return await asyncio.gather(one(), one())

    assert [alone(), alone()] == asyncio.run(main())


def test_a_thousand_calls_interleaved_are_a_thousand_calls_alone():
    """Calls have the same delays interleaved with a thousand others as alone."""
    policy = DOUBLING.with_(attempts=6)

    def steps(number):
        return [Busy()] * (number % 6) + [number]

    def alone(number):
        clock = JumpingClock()
        with using(clock=clock):
            return policy.call(Script(*steps(number))), clock.slept

    async def one(number):
        clock = JumpingClock()
        with using(clock=clock):
            return await policy.acall(Script(*steps(number)).as_async()), clock.slept

    async def main():
        return await asyncio.gather(*map(one, range(1000)))

    assert [alone(number) for number in range(1000)] == asyncio.run(main())


def test_a_call_in_a_call_has_its_own_count():
    """Retried functions that call another one under the same policy do not share attempts."""
    inner = Script(1, Busy(), Busy(), 1)
    outer = Script(Busy(), Busy(), 1)
    both = AT_ONCE.with_(nested="both")

    @redrive.retry(both)
    def call():
        redrive.retry(both)(inner)()
        return outer()

    assert 1 == call()
    assert (5, 3) == (inner.calls, outer.calls)
