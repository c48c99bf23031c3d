"""Limiters: so many calls at once, and so many in a time."""

from __future__ import annotations

import asyncio
import threading

import pytest
import trio

import redrive
from redrive import Backoff, Policy
from redrive.clock import SystemClock, in_trio
from redrive.errors import PolicyValueError
from redrive.retrying import Limiter
from redrive.retrying.limiter import _AsyncioWaiter, _TrioWaiter
from tests.retrying.helpers import Busy, LoopClock, Script


async def together(works):
    """Run all at once."""
    if in_trio():
        async with trio.open_nursery() as nursery:
            for work in works:
                nursery.start_soon(work)
    else:
        await asyncio.gather(*(work() for work in works))


class Inside:
    """Counts the callers inside at the same time.

    Attributes:
        most: the largest number.
        order: the callers in order."""

    def __init__(self):
        self.most = self.now = 0
        self.order = []

    async def stay(self, caller, seconds):
        """Be inside for a while."""
        self.now += 1
        self.most = max(self.most, self.now)
        self.order.append(caller)
        await LoopClock().asleep(seconds)
        self.now -= 1


def test_a_limiter_bounds_concurrent_tasks(jump):
    """Ten tasks and three places: never more than three inside, and they come in as they asked."""
    inside, limiter = Inside(), Limiter(concurrency=3)
    stay = limiter(inside.stay)

    async def main():
        await together([(lambda caller=caller: stay(caller, 1)) for caller in range(10)])
        return LoopClock().monotonic()

    assert 4 == pytest.approx(jump(main))
    assert 3 == inside.most
    assert list(range(10)) == sorted(inside.order)


def test_slots_are_passed_on_in_order(jump):
    """Slots are handed over in the order of the requests."""
    inside, limiter = Inside(), Limiter(concurrency=1)

    async def work(caller):
        await LoopClock().asleep(caller / 10)
        async with limiter:
            await inside.stay(caller, 5)

    jump(lambda: together([(lambda caller=caller: work(caller)) for caller in range(5)]))

    assert [0, 1, 2, 3, 4] == inside.order


def test_a_cancelled_waiter_takes_no_slot(jump):
    """Cancelled waiters leave the queue, and the slot goes to the next."""
    inside, limiter = Inside(), Limiter(concurrency=1)

    async def impatient():
        await LoopClock().asleep(0.1)
        with pytest.raises(TimeoutError):
            await Policy(on=Busy, attempts=1, attempt_timeout=0.5).acall(limiter(inside.stay), "impatient", 1)

    async def patient():
        await LoopClock().asleep(0.2)
        await limiter(inside.stay)("patient", 1)

    jump(lambda: together([lambda: limiter(inside.stay)("first", 2), impatient, patient]))

    assert ["first", "patient"] == inside.order


def test_a_slot_given_to_a_cancelled_waiter_is_passed_on():
    """Slots that were handed to a waiter at the moment of its cancellation are free again."""
    limiter = Limiter(concurrency=1)
    limiter.__enter__()

    class WokenWaiter:
        woken = False

        def wake(self):
            self.woken = True
            return True

    waiter = limiter._ask(WokenWaiter)
    limiter.__exit__(None, None, None)
    assert waiter.woken
    limiter._withdraw(waiter)

    assert 1 == limiter._free


def test_threads_share_a_limiter_with_tasks():
    """Threads and the tasks of two event loops pass one limiter, two at a time."""
    limiter, lock, count = Limiter(concurrency=2), threading.Lock(), {"now": 0, "most": 0, "done": 0}

    def enter():
        with lock:
            count["now"] += 1
            count["most"] = max(count["most"], count["now"])

    def leave():
        with lock:
            count["now"] -= 1
            count["done"] += 1

    @limiter
    def sync_work():
        enter()
        leave()

    @limiter
    async def async_work():
        enter()
        await SystemClock().asleep(0)
        leave()

    async def tasks():
        await together([async_work] * 50)

    threads = [threading.Thread(target=lambda: [sync_work() for _ in range(50)]) for _ in range(3)]
    threads += [threading.Thread(target=lambda: asyncio.run(tasks())), threading.Thread(target=lambda: trio.run(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert {"now": 0, "done": 250} == {"now": count["now"], "done": count["done"]}
    assert count["most"] <= 2
    assert 2 == limiter._free


def test_a_closed_event_loop_gets_no_slot(run):
    """Slots are not handed to a waiter of a closed event loop."""
    limiter = Limiter(concurrency=1)
    limiter.__enter__()

    async def ask():
        limiter._ask(_TrioWaiter if in_trio() else _AsyncioWaiter)

    run(ask)
    limiter.__exit__(None, None, None)

    assert 1 == limiter._free


def test_a_rate_spreads_calls(clock):
    """Ten calls a second are a tenth of a second apart."""
    call = Limiter(rate=10)(Script(1))
    for _ in range(4):
        call()

    assert pytest.approx([0.1, 0.1, 0.1]) == clock.slept


def test_a_burst_goes_at_once(clock):
    """After a quiet time a burst is let through, and what was not used before it is not saved up."""
    call = Limiter(rate=10, burst=3)(Script(1))
    clock.advance(100)
    for _ in range(5):
        call()

    assert pytest.approx([0.1, 0.1]) == clock.slept


def test_a_rate_limits_tasks(jump):
    """Tasks that come together go one after the other."""
    times, limiter = [], Limiter(rate=2, concurrency=5)

    async def work():
        async with limiter:
            times.append(LoopClock().monotonic())

    jump(lambda: together([work] * 4))

    assert pytest.approx([0, 0.5, 1, 1.5]) == times


def test_a_wait_past_the_deadline_is_not_started(clock):
    """Calls with a turn behind the deadline fail at once, without a call or a taken turn."""
    script, limiter = Script(1), Limiter(rate=0.1, concurrency=1, name="slow")
    limited = limiter(script)
    policy = Policy(on=Busy, deadline=5)
    policy.call(limited)

    with pytest.raises(TimeoutError, match=r"'slow' has no place for another 10 s"):
        policy.call(limited)

    assert 1 == script.calls
    assert [] == clock.slept
    clock.advance(10)
    assert 1 == policy.call(limited)


def test_a_thread_waits_for_a_slot_until_the_deadline(clock):
    """Threads that get no slot before their deadline fail with a timeout, and leave the queue."""
    limiter = Limiter(concurrency=1, name="full")
    limiter.__enter__()
    policy = Policy(on=Busy, deadline=5)

    def late():
        clock.advance(5)
        with limiter:
            raise AssertionError

    with pytest.raises(TimeoutError, match="'full' had no place before the deadline"):
        policy.call(late)

    limiter.__exit__(None, None, None)
    assert 1 == limiter._free


def test_an_interrupted_wait_for_the_rate_frees_the_slot(jump, clock, monkeypatch):
    """Interrupts between slot and turn free the slot."""
    limiter = Limiter(concurrency=1, rate=0.1)

    def interrupted(seconds):
        raise KeyboardInterrupt

    async def main():
        async def work():
            async with limiter:
                """Done."""

        await work()
        await Policy(on=Busy, attempts=1, attempt_timeout=1).aoutcome(work)

    jump(main)
    assert 1 == limiter._free

    monkeypatch.setattr(clock, "sleep", interrupted)
    limiter = Limiter(concurrency=1, rate=0.1)(Script(1))
    limiter()
    with pytest.raises(KeyboardInterrupt):
        limiter()
    with pytest.raises(KeyboardInterrupt):  # and no deadlock
        limiter()


def test_a_thread_that_is_interrupted_while_it_waits_leaves_the_queue():
    """Interrupts of a wait for a slot are raised, and the slot is free for the next."""
    limiter = Limiter(concurrency=1)
    limiter.__enter__()

    class InterruptedWaiter:
        def wait_for(self, seconds):
            raise KeyboardInterrupt

    waiter = limiter._ask(InterruptedWaiter)
    with pytest.raises(KeyboardInterrupt):
        limiter._await_in_thread(waiter)
    limiter.__exit__(None, None, None)

    assert 1 == limiter._free


def test_each_attempt_passes_the_limiter(clock):
    """Around the function, the limiter sees every attempt."""
    call = redrive.retry(on=Busy, attempts=3, backoff=Backoff.constant(0))(Limiter(rate=1)(Script(Busy(), Busy(), 1)))

    assert 1 == call()
    assert pytest.approx([1, 1]) == clock.slept


def test_a_limited_function_keeps_its_name():
    """Limited functions keep their name and remain coroutine functions."""

    async def work():
        """Work."""

    limited = Limiter(rate=1)(work)

    assert ("work", "Work.") == (limited.__name__, limited.__doc__)
    assert redrive.retry(on=Busy)(limited) is not limited


@pytest.mark.parametrize(
    "arguments", [{}, {"concurrency": 0}, {"rate": -1}, {"rate": 1, "burst": 0}, {"concurrency": True}], ids=str
)
def test_a_limiter_needs_a_limit(arguments):
    """Limiters without a limit, or with one that is not positive, are refused."""
    with pytest.raises(PolicyValueError):
        Limiter(**arguments)
