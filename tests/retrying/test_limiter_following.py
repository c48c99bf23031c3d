"""Limiters that follow their target: a rate that adapts, and calls that are not sent."""

from __future__ import annotations

import asyncio
import contextlib
import random  # noqa: TID251 - seeded, so that this test is the same each time
import threading

import pytest

import redrive
from redrive import Backoff, Policy
from redrive.errors import Overloaded, PolicyValueError, RetryAfter
from redrive.policy import Failure
from redrive.policy.overload import AdaptiveRate
from redrive.retrying import Adaptive, Limiter, Shedding
from redrive.retrying.context import _in_force, using
from redrive.retrying.limiter import FollowingRate
from redrive.testing import VirtualClock
from tests.retrying.helpers import Busy, JumpingClock, LoopClock, Other, Script
from tests.retrying.test_limiter import together


class Throttled(Exception):
    """An error of an overloaded target."""


class ThrottlingTarget:
    """Bears so many calls in a second, and throttles the rest.

    Attributes:
        served: when it answered.
        throttled: how often it did not.
    """

    def __init__(self, bears, clock):
        self.served, self.throttled = [], 0
        self._bears, self._clock = bears, clock

    def __call__(self):
        """Answer, or throttle."""
        now = self._clock.monotonic()
        if len([at for at in self.served if at > now - 1]) >= self._bears:
            self.throttled += 1
            raise Throttled
        self.served.append(now)
        return 1


class Steady(AdaptiveRate):
    """A rate that stays as it is."""

    def report(self, now, *, throttled):
        """Hear nothing."""


def steady(rate, **fields):
    """Return a limiter with an adaptive rate that has settled."""
    limiter = Limiter(rate=Adaptive(Throttled, **fields), name="slow")
    limiter._following._state = Steady(0.0, rate=rate, room=5)
    return limiter


def drive(limited, clock, seconds, gap):
    """Call again and again for a while; how many calls there were in each second."""
    counts = [0] * (seconds + 1)
    while clock.monotonic() < seconds:
        clock.advance(gap)
        with contextlib.suppress(Throttled):
            limited()
        counts[min(int(clock.monotonic()), seconds)] += 1
    return counts[:seconds]


def test_an_adaptive_rate_limits_nothing_before_the_first_refusal(clock):
    """Adaptive rates limit nothing before the first throttled answer."""
    limiter = Limiter(rate=Adaptive())
    limited = limiter(Script(1))
    for _ in range(1000):
        limited()

    assert [] == clock.slept
    assert limiter.rate is None


def test_an_adaptive_rate_converges_to_the_capacity_of_the_target(clock):
    """Adaptive rates settle at about 10 calls a second for a target that accepts 10 of 100."""
    target = ThrottlingTarget(10, clock)
    limiter = Limiter(rate=Adaptive(Throttled))
    counts = drive(limiter(target), clock, seconds=60, gap=0.01)
    alone = ThrottlingTarget(10, clock)
    drive(alone, clock, seconds=120, gap=0.01)

    assert 7 <= sum(counts[20:]) / 40 <= 14
    assert target.throttled < alone.throttled / 10
    assert 0.5 <= limiter.rate <= 20


def test_an_adaptive_rate_recovers(clock):
    """Adaptive rates grow again when the target accepts more."""
    target = ThrottlingTarget(5, clock)
    limiter = Limiter(rate=Adaptive(Throttled))
    limited = limiter(target)
    drive(limited, clock, seconds=20, gap=0.01)
    before, target._bears = limiter.rate, 1000
    drive(limited, clock, seconds=40, gap=0.01)

    assert limiter.rate > 5 * before


THROTTLING = {
    "class": (Throttled, Throttled()),
    "name": (f"{__name__}.Throttled", Throttled()),
    "reason": ((), RetryAfter("1s")),
    "function": (lambda error: isinstance(error, Throttled), Throttled()),
    "classifier": (lambda error: "THROTTLED", Busy()),
    "failure": (lambda error: Failure.of(error, reason="THROTTLED"), Busy()),
    "in a group": (Throttled, ExceptionGroup("both", [Busy(), Throttled()])),
}


@pytest.mark.parametrize("how", THROTTLING)
def test_a_throttled_answer_is_recognised(clock, how):
    """Throttled answers are recognised by class, name, reason, or a function."""
    throttles, error = THROTTLING[how]
    limiter = Limiter(rate=Adaptive(throttles) if throttles else Adaptive())
    with pytest.raises(type(error)), limiter:
        raise error

    assert 0.5 == limiter.rate


@pytest.mark.parametrize(
    ("throttles", "error"),
    [
        (Throttled, Busy()),
        (lambda error: "BUSY", Busy()),
        (lambda error: None, Busy()),
        ("RETRY_AFTER", RetryAfter("soon")),
        (Throttled, asyncio.CancelledError()),
    ],
)
def test_another_answer_is_no_refusal(clock, throttles, error):
    """Any other failure, one that cannot be read, and a cancellation leave the rate alone."""
    limiter = Limiter(rate=Adaptive(throttles))
    with pytest.raises(type(error)), limiter:
        raise error

    assert limiter.rate is None


def test_a_result_may_be_a_refusal(clock):
    """Results may be throttled answers, too; a block has no result."""
    limiter = Limiter(rate=Adaptive(on_result=lambda status: status == 429))
    with limiter:
        """A block."""
    assert 200 == limiter(Script(200))()
    assert limiter.rate is None
    assert 429 == limiter(Script(429))()

    assert 0.5 == limiter.rate


def test_answers_of_a_coroutine_function_count(jump):
    """Answers of awaited calls count as those of others."""
    limiter = Limiter(rate=Adaptive(Throttled, on_result=lambda status: status == 429))
    answers = []

    async def main():
        with pytest.raises(Throttled):
            await limiter(Script(Throttled()).as_async())()
        answers.append(await limiter(Script(429).as_async())())
        async with limiter:
            return LoopClock().monotonic()

    assert pytest.approx(4, abs=0.01) == jump(main)
    assert [429] == answers


def test_waiting_tasks_proceed_one_by_one(jump):
    """Ten tasks at two calls a second are done after five seconds, and none is let through early."""
    times, limiter = [], steady(2)

    async def work():
        async with limiter:
            times.append(LoopClock().monotonic())

    jump(lambda: together([work] * 10))

    assert 10 == len(times)
    assert pytest.approx(0.5, abs=0.01) == times[0]
    assert all(count <= 2 * at + 0.01 for count, at in enumerate(sorted(times), 1))


def test_a_turn_past_the_deadline_is_not_waited_for(clock):
    """Calls with a turn at the adaptive rate behind the deadline fail at once, without a call."""
    script = Script(1)
    limited = steady(0.5)(script)

    with pytest.raises(TimeoutError, match="'slow' has no place for another 2 s"):
        Policy(on=Busy, deadline=1).call(limited)

    assert ([], 0) == (clock.slept, script.calls)


def test_a_virtual_clock_of_microseconds_comes_to_an_end():
    """Waits that are shorter than the clock's grain do not go on for ever."""
    clock = VirtualClock()
    limited = steady(3000)(Script(1))
    with using(clock=clock):
        for _ in range(100):
            limited()

    assert 0.03 <= clock.monotonic() <= 0.2


def test_threads_follow_one_target(clock):
    """Threads share one adaptive rate; none is lost and none waits for ever."""
    done = []
    limited = steady(1000)(lambda: done.append(1))

    def work():
        with using(clock=clock):
            for _ in range(50):
                limited()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert 200 == len(done)


FORMS = {
    "decorated": lambda policy, function: redrive.retry(policy)(function)(),
    "called": lambda policy, function: policy.call(function),
    "under another": lambda policy, function: Policy(attempts=1, on=Busy, nested="both").call(
        redrive.retry(policy)(function)
    ),
    "in a generator": lambda policy, function: list(redrive.retry(policy)(lambda: (yield function()))()),
    "a generator under another": lambda policy, function: Policy(attempts=1, on=Busy, nested="both").call(
        lambda: list(redrive.retry(policy)(lambda: (yield function()))())
    ),
    "decorated coroutine": lambda policy, function: asyncio.run(redrive.retry(policy)(_awaited(function))()),
    "above another": lambda policy, function: redrive.retry(policy)(
        lambda: Policy(on=Other, attempts=1).call(lambda: 1) and function()
    )(),
}


def _awaited(function):
    async def call():
        return function()

    return call


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scoped", [False, True])
def test_a_retry_may_cost_more(form, scoped):
    """Retries take `retry_cost` tokens, in every form of call."""
    taken = []

    class RecordingRate(FollowingRate):
        def take(self, now, room, *, is_retry):
            taken.append(is_retry)
            return 0.0

    limiter = Limiter(rate=Adaptive(retry_cost=5))
    limiter._rate = limiter._following = RecordingRate(Adaptive())
    policy = Policy(on=Busy, attempts=3, backoff=Backoff.constant(0), nested="both")
    with using(clock=JumpingClock()) if scoped else contextlib.nullcontext():
        FORMS[form](policy, limiter(Script(Busy(), Busy(), 1)))
        with limiter:
            """Take an attempt without a policy."""

    assert [False, True, True, False] == taken


def test_a_costly_retry_waits_longer(clock):
    """At 1 call a second and 5 tokens for a retry, the first attempt waits 1 s and the second 5 s."""
    starts = []

    @steady(1, retry_cost=5)
    def call():
        starts.append(clock.monotonic())
        raise Busy

    Policy(on=Busy, attempts=2, backoff=Backoff.constant(0)).outcome(call)

    assert pytest.approx([1, 6], abs=0.01) == starts


# ------------------------------------------------------------------------------------------------------------ shedding


def test_accepted_calls_are_not_shed(clock):
    """Targets that accept everything get everything, including failures that count as answers."""
    limiter = Limiter(shed=Shedding())
    limited = limiter(Script(*[1, Busy()] * 500))
    for _ in range(1000):
        with contextlib.suppress(Busy):
            limited()

    assert 0 == limiter.rejection


def test_a_target_that_is_down_gets_few_calls(clock):
    """Of a thousand calls to a target that accepts none, a few are sent; afterwards it gets all again."""
    down, up, limiter = Script(ConnectionError()), Script(1), Limiter(shed=Shedding(window="10s"), name="payments")
    errors = []
    for _ in range(1000):
        clock.advance(0.01)
        with pytest.raises((Overloaded, ConnectionError)) as caught:
            limiter(down)()
        errors.append(caught.value)
    refused = [error for error in errors if isinstance(error, Overloaded)]

    assert 0 < down.calls < 50
    assert 1000 == down.calls + len(refused)
    assert {True} == {0 < error.rejection < 1 for error in refused}
    assert "the limiter 'payments' refuses" in str(refused[0])
    clock.advance(30)
    assert 0 == limiter.rejection
    assert [1] * 100 == [limiter(up)() for _ in range(100)]


def test_about_twice_as_much_as_is_accepted_is_sent(clock):
    """Targets that accept 10 of 100 calls a second get about 20."""
    accepted, sent = [], 0

    def target():
        nonlocal sent
        sent += 1
        if len([at for at in accepted if at > clock.monotonic() - 1]) >= 10:
            raise ConnectionError
        accepted.append(clock.monotonic())

    limited = Limiter(shed=Shedding(2, window="20s"))(target)
    with _in_force(roll=random.Random(7).random):
        for _ in range(100 * 120):
            clock.advance(0.01)
            with contextlib.suppress(ConnectionError, Overloaded):
                limited()

    assert 1.8 <= sent / len(accepted) <= 2.3


def test_calls_without_a_turn_do_not_count_against_the_target(clock):
    """Calls that missed their turn do not count against the target."""
    limiter = Limiter(rate=0.01, shed=Shedding())
    policy = Policy(on=Busy, deadline=5)
    policy.call(limiter(Script(1)))
    for _ in range(20):
        with pytest.raises(TimeoutError):
            policy.call(limiter(Script(1)))

    assert 0 == limiter.rejection


def test_a_coroutine_function_is_shed(jump):
    """Coroutine functions are refused like plain ones, without taking a slot."""
    limiter = Limiter(concurrency=1, shed=Shedding())

    async def main():
        refused = 0
        for _ in range(200):
            try:
                await limiter(Script(ConnectionError()).as_async())()
            except Overloaded:
                refused += 1
            except ConnectionError:
                pass
        return refused

    assert jump(main) > 100
    assert 1 == limiter._free


@pytest.mark.parametrize(
    "arguments",
    [
        {"rate": 1, "shed": 2},
        {"rate": Adaptive(), "burst": 2},
        {"rate": Adaptive(), "concurrency": 0},
    ],
    ids=str,
)
def test_a_limiter_that_follows_is_checked_too(arguments):
    """Invalid combinations with an adaptive rate or shedding are refused."""
    with pytest.raises(PolicyValueError):
        Limiter(**arguments)
