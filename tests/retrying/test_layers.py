"""Layers of retries in other tasks and threads: an inner call and the call around it make the attempts of one."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import trio

import redrive
from redrive.policy import Backoff, Policy
from tests.retrying.helpers import Busy, Script, checkpoint

SIX = Policy(on=Busy, attempts=6, backoff=Backoff.constant(0))
DEADLINES = {"no deadline": SIX, "a deadline": SIX.with_(deadline="1h"), "a timeout": SIX.with_(attempt_timeout="1h")}


def in_thread(call):
    """Call a function in a new thread with a copy of the context, and raise its error here."""
    ended = []

    def work():
        try:
            call()
        except Busy as error:
            ended.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
    thread.start()
    thread.join()
    if ended:
        raise ended[0]


async def gathered(inner, _plain):
    """Await two calls side by side, and raise the first error."""
    await asyncio.gather(inner(), checkpoint())


async def collected(inner, _plain):
    """Collect the errors of calls side by side, and raise one later."""
    found = await asyncio.gather(inner(), return_exceptions=True)
    raise found[0]


async def collected_and_dropped(inner, _plain):
    """Collect the errors of calls side by side, and drop them."""
    await asyncio.gather(inner(), return_exceptions=True)


async def grouped(inner, _plain):
    """Run a call in a task group."""
    async with asyncio.TaskGroup() as group:
        group.create_task(inner())


async def timed(inner, _plain):
    """Run a call under a time limit of asyncio, which starts a task before Python 3.12."""
    await asyncio.wait_for(inner(), 60)


async def in_executor(_inner, plain):
    """Run a call in a thread of the event loop, without its context."""
    await asyncio.get_running_loop().run_in_executor(None, plain)


async def in_own_pool(_inner, plain):
    """Run a call in a thread of a pool, without its context."""
    with ThreadPoolExecutor(1) as pool:
        await asyncio.get_running_loop().run_in_executor(pool, plain)


async def to_thread(_inner, plain):
    """Run a call in a thread with the context."""
    await asyncio.to_thread(plain)


async def translated(inner, _plain):
    """Raise the error of a task in another class."""
    try:
        await asyncio.create_task(inner())
    except Busy as error:
        raise Translated from error


class Translated(Busy):
    """An error of the caller's own."""


WAYS = [gathered, collected, collected_and_dropped, grouped, timed, in_executor, in_own_pool, to_thread, translated]


def both(script, policy=SIX):
    """Return the inner call as a coroutine function and as a plain one, without its scope."""
    return redrive.retry(policy)(script.as_async()), redrive.retry(policy)(script)


@pytest.mark.parametrize("outer", DEADLINES.values(), ids=DEADLINES)
@pytest.mark.parametrize("way", WAYS)
def test_two_layers_in_other_tasks_and_threads_are_one(way, outer):
    """A call and a call in another task or thread below it make the attempts of one, with a deadline and without."""
    script = Script(Busy())
    inner, plain = both(script)

    @redrive.retry(outer.with_(groups="any"))
    async def call():
        await way(inner, plain)

    with suppress(Busy, BaseExceptionGroup):
        asyncio.run(call())
    assert 6 == script.calls


@pytest.mark.parametrize("outer", DEADLINES.values(), ids=DEADLINES)
@pytest.mark.parametrize("form", ["call", "block"])
def test_calls_and_blocks_count_what_their_tasks_have_tried(form, outer):
    """Where a policy calls or runs a block, an inner call in a task and the policy make the attempts of one."""
    script = Script(Busy())
    inner, _ = both(script)

    async def call():
        await asyncio.create_task(inner())

    async def block():
        async for attempt in outer:
            with attempt:
                await call()

    with pytest.raises(Busy):
        asyncio.run(outer.acall(call) if form == "call" else block())
    assert 6 == script.calls


@pytest.mark.parametrize("outer", [SIX, SIX.with_(deadline="1h")])
def test_two_layers_in_a_plain_thread_are_one(outer):
    """A plain function whose call runs in a thread with its context makes the attempts of one layer."""
    script = Script(Busy())
    _, plain = both(script)

    with pytest.raises(Busy):
        redrive.retry(outer)(lambda: in_thread(plain))()
    assert 6 == script.calls


@pytest.mark.parametrize("outer", [SIX, SIX.with_(deadline="1h")])
def test_two_layers_in_a_nursery_are_one(outer):
    """Under trio the tasks of a nursery and their threads make the attempts of one layer with the call above."""
    script = Script(Busy())
    inner, plain = both(script)

    @redrive.retry(outer.with_(groups="any"))
    async def call(work):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)

    for work in (inner, lambda: trio.to_thread.run_sync(plain)):
        script.calls = 0
        with suppress(Busy, BaseExceptionGroup):
            trio.run(call, work)
        assert 6 == script.calls


@pytest.mark.parametrize("outer", [SIX, SIX.with_(deadline="1h")])
def test_a_fallback_has_one_number_of_calls(outer):
    """What falls back to a second call makes one call of each in each attempt, with a deadline and without."""
    first, second = Script(Busy()), Script(Busy())

    @redrive.retry(outer)
    def call():
        try:
            redrive.retry(SIX)(first)()
        except Busy:
            redrive.retry(SIX)(second)()

    with pytest.raises(Busy):
        call()
    assert [6, 6] == [first.calls, second.calls]


def test_the_end_names_the_calls_below():
    """The note of a call that ends because of the attempts below it says that these count."""
    inner, _ = both(Script(Busy()))

    @redrive.retry(SIX)
    async def call():
        await asyncio.create_task(inner())

    with pytest.raises(Busy) as caught:
        asyncio.run(call())
    record = caught.value.__retry__
    assert (1, "attempts") == (record.attempts, record.rule)
    assert "6 of 6 attempts failed, 5 of them in calls below" in record.why


def test_a_shorter_inner_layer_leaves_the_rest():
    """An inner call of two attempts leaves the other four of six to the call above it, two at a time."""
    script = Script(Busy())
    inner, _ = both(script, SIX.with_(attempts=2))

    @redrive.retry(SIX)
    async def call():
        await asyncio.create_task(inner())

    with pytest.raises(Busy):
        asyncio.run(call())
    assert 6 == script.calls


@pytest.mark.parametrize("both_of", ["inner", "outer"])
def test_tasks_multiply_with_nested_both(both_of):
    """With `nested="both"` on either call all attempts are made."""
    script = Script(Busy())
    three = SIX.with_(attempts=3)
    inner, _ = both(script, three.with_(nested="both") if both_of == "inner" else three)

    @redrive.retry(three.with_(nested="both") if both_of == "outer" else three)
    async def call():
        await asyncio.create_task(inner())

    with pytest.raises(Busy):
        asyncio.run(call())
    assert 9 == script.calls


def test_an_error_object_that_is_raised_again_counts_once():
    """One error object that every call raises, as mocks do, has the attempts of the present call only."""
    error = Busy()
    calls = []

    @redrive.retry(SIX)
    def call():
        calls.append(1)
        raise error

    for _ in range(3):
        with pytest.raises(Busy):
            call()
    assert 18 == len(calls)


def test_a_clock_of_tests_does_not_hide_the_calls_below(clock):
    """In virtual time that stands still the attempts below count as in real time."""
    script = Script(Busy())
    inner, _ = both(script)

    async def call():
        await asyncio.create_task(inner())

    with pytest.raises(Busy):
        asyncio.run(redrive.retry(SIX)(call)())
    assert 6 == script.calls
