"""Plain functions that return a coroutine, which nothing would await or retry."""

from __future__ import annotations

import asyncio
import functools
import types
from unittest import mock

import pytest
import trio

import redrive
from redrive.errors import CoroutineReturned, PolicyValueError
from redrive.policy import Backoff, Policy
from redrive.policy.classify import refuse_coroutine
from redrive.retrying import Hedge, Limiter
from tests.retrying.helpers import Busy

POLICY = Policy(on=(Busy, Exception), attempts=3, backoff=Backoff.constant(0))


async def fail(*_):
    """Fail at once."""
    raise Busy


class Client:
    """A client with a method that passes its call on."""

    async def get(self):
        """Fail."""
        raise Busy

    def delegate(self):
        """Return the coroutine of another method."""
        return self.get()


def passed_on(function):
    """Return a plain wrapper."""

    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


@functools.singledispatch
async def generic(_):
    """Fail for each class."""
    raise Busy


KINDS = {
    "lambda": lambda: fail(),  # noqa: PLW0108 - the subject
    "delegate": Client().delegate,
    "wraps": passed_on(fail),
    "singledispatch": passed_on(functools.partial(generic, 1)),
    "AsyncMock": mock.AsyncMock(side_effect=Busy),
    "task": lambda: asyncio.ensure_future(fail()),
}


def block(function):
    """Call a function in a block."""
    for attempt in POLICY:
        with attempt:
            attempt.result = function()


FORMS = {
    "decorated": lambda function: redrive.retry(POLICY)(function)(),
    "prepared": lambda function: redrive.retry(POLICY.with_(deadline="1h"))(function)(),
    "call": POLICY.call,
    "outcome": POLICY.outcome,
    "block": block,
    "limiter": lambda function: Limiter(concurrency=1)(passed_on(function))(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_a_coroutine_that_nothing_awaits_is_refused(form, kind):
    """It is closed, a task is cancelled, and the error names a form that awaits it; it is not retried."""

    async def main():
        # A mock is known for a coroutine function before it is called.
        with pytest.raises((CoroutineReturned, PolicyValueError), match=r"policy\.a(call|outcome)") as caught:
            FORMS[form](KINDS[kind])
        return caught.value

    error = asyncio.run(main())
    assert not hasattr(error, "__retry__")


@pytest.mark.parametrize("kind", KINDS)
def test_acall_retries_what_returns_a_coroutine(kind):
    """`acall` awaits what the function returns, and retries it."""
    with pytest.raises(Busy) as caught:
        asyncio.run(POLICY.acall(KINDS[kind]))
    assert 3 == caught.value.__retry__.attempts


PLAIN = {
    "names": POLICY,
    "classifier": POLICY.with_(on=lambda error: True),
    "hedge": POLICY.with_(hedge=Hedge("1h"), idempotent=True),
    "deadline": POLICY.with_(deadline="1h"),
}


@pytest.mark.parametrize("policy", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("form", ["acall", "aoutcome"])
@pytest.mark.parametrize("under", ["asyncio", "trio"])
def test_a_plain_function_is_not_awaited(policy, form, under):
    """A function that returns nothing to await is called once, whatever the policy retries."""
    calls = []

    def plain(word):
        calls.append(word)
        return word

    async def main():
        await getattr(policy, form)(plain, "a")

    with pytest.raises(PolicyValueError, match=rf"plain.* is a plain function.* write `policy\.{form[1:]}\(\.\.\.\)`$"):
        asyncio.run(main()) if under == "asyncio" else trio.run(main)

    assert ["a"] == calls


@pytest.mark.parametrize("under", ["asyncio", "trio"])
def test_whatever_can_be_awaited_is_awaited(under):
    """Objects with `__await__`, and generators that are coroutines, are results to be awaited."""

    class Ready:
        def __await__(self):
            yield from ()
            return 7

    @types.coroutine
    def old():
        yield from ()
        return 8

    async def main():
        return [await POLICY.acall(each) for each in (Ready, lambda: Ready(), old, lambda: old())]  # noqa: PLW0108

    assert [7, 7, 8, 8] == (asyncio.run(main()) if under == "asyncio" else trio.run(main))


def test_an_object_that_can_be_awaited_may_be_a_result():
    """An object that is no coroutine, such as a pool that is awaited to open it, is returned."""

    class Pool:
        def __await__(self):
            yield

    pool = Pool()
    assert pool is redrive.retry(POLICY)(lambda: pool)()
    assert 7 == refuse_coroutine(7, fail)


def test_a_coroutine_without_a_close_is_refused():
    """An object with the methods of a coroutine is refused, also if it cannot be closed."""

    class Odd:
        def __await__(self):
            yield

        def send(self, value):
            raise StopIteration

    with pytest.raises(CoroutineReturned):
        refuse_coroutine(Odd(), fail)


def test_a_function_is_checked_until_it_has_returned():
    """The first result is checked, also after failures; then the wrapper calls the function itself."""
    results = [Busy(), 1, 2]

    @redrive.retry(POLICY)
    def function():
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    before = function.__closure__[function.__code__.co_freevars.index("_rd_call")].cell_contents
    assert 1 == function()
    after = function.__closure__[function.__code__.co_freevars.index("_rd_call")].cell_contents
    assert (True, 2) == (before is not after and after is function.__wrapped__, function())


@functools.singledispatch
def load(key):
    """Return a value at once."""
    return "plain"


@load.register
async def _(key: int):
    """Return a value later."""


@pytest.mark.parametrize(
    "function", [load, functools.partial(load), functools.lru_cache(load)], ids=["singledispatch", "partial", "cache"]
)
def test_a_function_that_calls_others_is_always_checked(function):
    """One that returned a value may return a coroutine for another argument."""
    call = redrive.retry(POLICY)(function)

    assert "plain" == call("a")
    with pytest.raises(CoroutineReturned):
        call(1)
