"""Threads take calls from one queue, and hand results back in batches."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent import futures
from contextvars import ContextVar
from typing import Any, TypeVar

import pytest

from redrive.app.attempts.effects import CURRENT as EFFECTS
from redrive.app.attempts.effects import Effects
from redrive.runtime.threads import ThreadPool, Threads, carry_context
from tests.runtime.helpers import PATIENCE, until

R = TypeVar("R")


def nothing() -> None:
    """Do nothing."""


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine function as a test."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


@contextlib.contextmanager
def blocked() -> Iterator[tuple[Callable[[], str], threading.Event]]:
    """Return a call that lasts until the end of the block, and the event that it sets when it begins."""
    begun, release = threading.Event(), threading.Event()

    def call() -> str:
        begun.set()
        assert release.wait(PATIENCE)
        return "long"

    try:
        yield call, begun
    finally:
        release.set()


@contextlib.asynccontextmanager
async def pool_of(limit: int):
    """Return a pool, and close it."""
    with contextlib.closing(ThreadPool(limit, "test")) as pool:
        yield pool


async def ended(*futures: asyncio.Future[Any]) -> list[Any]:
    """Return the results of calls, which end soon."""
    async with asyncio.timeout(PATIENCE):
        return await asyncio.gather(*futures, return_exceptions=True)


@on_a_loop
async def test_results_and_errors_come_back():
    """The future of a call has the result or the error of its function."""
    error = ValueError("7")

    def fails() -> None:
        raise error

    async with pool_of(2) as pool:
        assert [7, error] == await ended(pool.start(lambda: 7, nothing), pool.start(fails, nothing))


@on_a_loop
async def test_short_calls_share_a_thread_and_a_wake_up(monkeypatch: pytest.MonkeyPatch):
    """Calls that wait together are run by one thread, and the event loop is woken at most twice for their results."""
    loop = asyncio.get_running_loop()
    wake_ups = []
    async with pool_of(1) as pool:
        with blocked() as (long, begun):
            first = pool.start(long, nothing)
            await asyncio.to_thread(begun.wait, PATIENCE)
            shorts = [pool.start(threading.get_ident, nothing) for _ in range(100)]
            ran = threading.Event()
            last = pool.start(ran.set, nothing)
            wakes = loop.call_soon_threadsafe
            monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *call: (wake_ups.append(call), wakes(*call))[1])
        # The loop takes no result before all are there, however often the thread is interrupted.
        ran.wait(PATIENCE)
        found = await ended(first, *shorts, last)

    assert 1 == len(set(found[1:-1]))
    # The calls of a closed loop and of asyncio.to_thread() are not counted.
    assert 1 <= len(wake_ups) <= 3


@pytest.mark.parametrize("place", [0, 1, 5, 10])
@on_a_loop
async def test_a_long_call_holds_up_no_short_one(place: int):
    """Short calls before and behind a long one end while it lasts."""
    with blocked() as (long, _):
        async with pool_of(2) as pool:
            shorts: list[asyncio.Future[int]] = []
            for number in range(11):
                if number == place:
                    pool.start(long, nothing)
                shorts.append(pool.start(lambda number=number: number, nothing))  # type: ignore[misc]

            assert [*range(11)] == await ended(*shorts)


@on_a_loop
async def test_a_result_leaves_a_pool_that_is_full():
    """Results come back although each thread has a long call and further calls wait."""
    with blocked() as (long, begun):
        async with pool_of(1) as pool:
            short = pool.start(lambda: 7, nothing)
            pool.start(long, nothing)
            waits = pool.start(lambda: 8, nothing)

            assert [7] == await ended(short)
            assert begun.wait(PATIENCE)
            assert not waits.done()


@on_a_loop
async def test_results_come_back_while_long_and_short_calls_alternate():
    """No result waits for a long call, wherever the threads were when it began."""
    async with pool_of(30) as pool:
        for _ in range(20):
            with contextlib.ExitStack() as stack:
                longs = [stack.enter_context(blocked())[0] for _ in range(10)]
                calls = [call for long in longs for call in (nothing, nothing, long, nothing)]
                futures = [pool.start(call, nothing) for call in calls]

                assert [None] * 30 == await ended(
                    *[future for future, call in zip(futures, calls, strict=True) if call is nothing]
                )
            assert ["long"] * 10 == [each for each in await ended(*futures) if each]


@on_a_loop
async def test_no_more_threads_run_than_the_limit():
    """Further calls wait for a thread."""
    async with pool_of(2) as pool:
        with blocked() as (long, _):
            futures = [pool.start(long, nothing) for _ in range(5)]
            await until(lambda: 2 == sum(each.name.startswith("test_") for each in threading.enumerate()))
        assert ["long"] * 5 == await ended(*futures)


@on_a_loop
async def test_a_cancelled_call_that_has_not_begun_never_begins():
    """Its end is reported, so that nothing waits for it."""
    begun, ends = [], threading.Event()
    async with pool_of(1) as pool:
        with blocked() as (long, _):
            first = pool.start(long, nothing)
            second = pool.start(lambda: begun.append(2), ends.set)
            second.cancel()
        await ended(first)
        assert ends.wait(PATIENCE)

    assert [] == begun


@on_a_loop
async def test_closing_a_pool_ends_its_threads_and_drops_waiting_calls():
    """Calls that wait are cancelled, idle threads end, and others end behind their call."""
    ends: list[int] = []
    pool = ThreadPool(2, "closing")
    with blocked() as (long, begun), blocked() as (longer, also_begun):
        await ended(pool.start(nothing, nothing))
        running, other = pool.start(long, nothing), pool.start(longer, nothing)
        assert begun.wait(PATIENCE)
        assert also_begun.wait(PATIENCE)
        waiting = pool.start(nothing, lambda: ends.append(3))
        pool.close()

        assert (True, [3]) == (waiting.cancelled(), ends)
    assert ["long", "long"] == await ended(running, other)
    await until(lambda: not [each for each in threading.enumerate() if each.name.startswith("closing")])


@on_a_loop
async def test_a_pool_without_threads_reports_that_none_can_be_started(monkeypatch: pytest.MonkeyPatch):
    """The call raises and is not run later; the next one may succeed."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    begun: list[int] = []
    async with pool_of(2) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                pool.start(lambda: begun.append(1), nothing)
        await ended(pool.start(lambda: begun.append(2), nothing))

        with blocked() as (long, _), monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            first, second = pool.start(long, nothing), pool.start(lambda: begun.append(3), nothing)
        await ended(first, second)

    assert [2, 3] == begun


def test_a_pool_serves_one_event_loop_after_another():
    """Results go to the event loop in which the call was started."""
    with contextlib.closing(ThreadPool(1, "test")) as pool:

        async def ask(number: int) -> int:
            return await pool.start(lambda: number, nothing)

        assert [1, 2] == [asyncio.run(ask(1)), asyncio.run(ask(2))]


@on_a_loop
async def test_the_stop_of_a_thread_is_reported_once():
    """Functions that wait for an attempt are called when its last thread has stopped, and at once if none runs."""
    calls: list[str] = []
    async with pool_of(3) as pool:
        threads = Threads(pool)
        threads.when_stopped(7, lambda: calls.append("none runs"))
        with blocked() as (second, _):
            with blocked() as (first, _):
                one, two = threads.start(7, first), threads.start(7, second)
                other = threads.start(8, first)
                assert {7, 8} == set(threads.running)
                threads.when_stopped(7, lambda: calls.append("stopped"))
            await ended(one, other)
            assert ({7}, ["none runs"]) == (set(threads.running), calls)
        await ended(two)

        await until(lambda: ["none runs", "stopped"] == calls)
        assert set() == set(threads.running)


class Interpreters(futures.ThreadPoolExecutor):
    """A pool whose threads take what can be pickled, as the interpreters of Python 3.14 do."""


@pytest.fixture
def attempt() -> Iterator[Effects]:
    """Return the effects of an attempt, which runs in this context; its threads have the context."""
    carry_context()
    effects = Effects()
    token = EFFECTS.set(effects)
    yield effects
    EFFECTS.reset(token)


def in_thread(call: Callable[[], R]) -> R:
    """Return what a function returns in a thread of its own."""
    found: list[R] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    assert "run" not in vars(thread), "the thread keeps the context"
    return found[0]


def in_timer(call: Callable[[], R]) -> R:
    """Return what a function returns in a subclass of a thread."""
    found: list[R] = []
    timer = threading.Timer(0, lambda: found.append(call()))
    timer.start()
    timer.join()
    return found[0]


def in_pool(call: Callable[[], R]) -> R:
    """Return what a function returns in a pool."""
    with futures.ThreadPoolExecutor(1) as pool:
        return next(iter(pool.map(lambda _: call(), [1])))


@pytest.mark.parametrize("way", [in_thread, in_timer, in_pool])
def test_a_thread_of_an_attempt_has_a_copy_of_its_context(
    attempt: Effects, way: Callable[[Callable[[], object]], object]
):
    """A thread sees the variables of the attempt that has started it, and what it sets is its own."""
    assert attempt is way(EFFECTS.get)
    way(lambda: EFFECTS.set(None))
    assert attempt is EFFECTS.get()


@pytest.mark.usefixtures("attempt")
def test_a_thread_of_a_pool_has_the_context_of_each_call():
    """A thread that a call of an attempt has started runs later calls without that attempt."""
    mine = EFFECTS.get()
    with futures.ThreadPoolExecutor(1) as pool:
        assert mine is pool.submit(EFFECTS.get).result()
        assert contextvars.Context().run(pool.submit, EFFECTS.get).result() is None
        other = contextvars.copy_context()
        other.run(EFFECTS.set, second := Effects())
        assert second is other.run(pool.submit, EFFECTS.get).result()


def test_a_thread_outside_of_attempts_starts_as_ever():
    """Nothing changes for threads that are started elsewhere, however often the context is carried."""
    carry_context()
    start = threading.Thread.start
    carry_context()
    variable = ContextVar("variable", default="default")
    variable.set("set")
    expected = "set" if getattr(sys.flags, "thread_inherit_context", False) else "default"
    assert [start, expected, expected] == [threading.Thread.start, in_thread(variable.get), in_pool(variable.get)]


def test_other_interpreters_get_no_context():
    """The context cannot be sent to another interpreter, which takes what can be pickled."""
    program = """
import concurrent.futures, contextvars, threading
class InterpreterPoolExecutor(concurrent.futures.ThreadPoolExecutor): pass
concurrent.futures.InterpreterPoolExecutor = InterpreterPoolExecutor
from redrive.app.attempts.effects import CURRENT, Effects
from redrive.runtime.threads import carry_context
carry_context()
CURRENT.set(Effects())
for pool in InterpreterPoolExecutor(1), concurrent.futures.ThreadPoolExecutor(1):
    contextvars.Context().run(lambda: pool.submit(int).result())
    print(pool.submit(CURRENT.get).result() is not None)
"""
    assert ["False", "True"] == subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.split()
