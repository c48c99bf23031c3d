"""Tests of calls in threads below calls in an event loop, and the other way: what the inner call has stored arrives."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import redrive
from redrive.errors.foreign import mark_of, set_mark
from redrive.policy import Backoff

ATTEMPTS = 5
AT_ONCE = Backoff.constant(0)


def to_thread(call: Callable[[], None]) -> Awaitable[None]:
    """Call in a thread that has the context."""
    return asyncio.to_thread(call)


def in_executor(call: Callable[[], None]) -> Awaitable[None]:
    """Call in a thread without the context."""
    return asyncio.get_running_loop().run_in_executor(None, call)


def in_loop_of_another(call: Callable[[], None]) -> Awaitable[None]:
    """Call in an event loop for which a thread waits."""
    loop = asyncio.get_running_loop()

    async def called() -> None:
        call()

    return asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(called(), loop).result())


# asyncio raises a new error for a bare `TimeoutError`, and for no other class.
ERRORS = [
    lambda: TimeoutError("lost"),
    TimeoutError,
    lambda: TimeoutError(110, "lost"),
    lambda: ConnectionResetError("lost"),
]


@pytest.mark.parametrize("way", [to_thread, in_executor, in_loop_of_another])
@pytest.mark.parametrize("make", ERRORS, ids=lambda make: repr(make()))
def test_layers_with_a_thread_between_them_count_as_one(way: Any, make: Callable[[], OSError]):
    """The attempts of the inner call are those of the outer one."""
    calls = []

    @redrive.retry(on=OSError, attempts=ATTEMPTS, idempotent=True, backoff=AT_ONCE)
    def inner() -> None:
        calls.append(1)
        raise make()

    @redrive.retry(on=OSError, attempts=ATTEMPTS, idempotent=True, backoff=AT_ONCE)
    async def outer() -> None:
        await way(inner)

    with pytest.raises(OSError) as found:
        asyncio.run(outer())

    assert ATTEMPTS == len(calls)
    assert (type(make()), str(make())) == (type(found.value), str(found.value))


@pytest.mark.parametrize("way", [to_thread, in_executor, in_loop_of_another])
@pytest.mark.parametrize("make", ERRORS, ids=lambda make: repr(make()))
def test_a_declaration_holds_across_threads(way: Any, make: Callable[[], OSError]):
    """A function that is declared `idempotent=False` is called once."""
    calls = []

    @redrive.retry(on=OSError, idempotent=False)
    def book() -> None:
        calls.append(1)
        raise make()

    @redrive.retry(on=OSError, idempotent=True, backoff=AT_ONCE)
    async def outer() -> None:
        await way(book)

    with pytest.raises(OSError):
        asyncio.run(outer())

    assert [1] == calls


def in_a_thread(call: Callable[[], None]) -> None:
    """Call in another thread."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_the_arguments_of_a_timeout_stay_equal():
    """Several marks are carried by one argument, also through pickling."""
    error, other = TimeoutError("lost"), TimeoutError(5)

    def mark() -> None:
        for name in ("first", "second"):
            set_mark(error, name, name)
            set_mark(other, name, name)

    in_a_thread(mark)
    new, copied = TimeoutError(*error.args), pickle.loads(pickle.dumps(TimeoutError(*error.args)))

    assert (("lost",), "lost", "TimeoutError('lost')") == (error.args, str(error), repr(error))
    assert ["first", "second", None] == [mark_of(new, name) for name in ("first", "second", "third")]
    assert "second" == mark_of(copied, "second")
    assert (5,) == other.args
    assert "first" == mark_of(other, "first")
    assert None is mark_of(TimeoutError(*other.args), "first")


def test_a_program_without_threads_keeps_its_arguments():
    """No error crosses a thread where there is only one."""
    error = TimeoutError()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "active_count", lambda: 1)
        set_mark(error, "name", "value")

    assert () == error.args
    assert "value" == mark_of(error, "name")
