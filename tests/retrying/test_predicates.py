"""Classifiers and predicates that are coroutine functions: awaited where calls are awaited, refused elsewhere."""

from __future__ import annotations

import asyncio
import functools

import httpx
import pytest

import redrive
from redrive.contrib.httpx import AsyncRetryTransport, RetryTransport
from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Policy
from redrive.retrying import Adaptive, Limiter, SharedBreaker, Shedding, disabled
from tests.retrying.helpers import Busy, Other, Script, checkpoint

AT_ONCE = Policy(attempts=3, backoff=Backoff.constant(0))


async def is_busy(error):
    """Return True for one kind of errors, after other tasks have run."""
    await checkpoint()
    return isinstance(error, Busy)


async def is_none(result):
    """Return True for one result, after other tasks have run."""
    await checkpoint()
    return result is None


class Asking:
    """An object with calls that must be awaited."""

    async def __call__(self, error):
        """Return True for one kind of errors."""
        return await is_busy(error)

    async def method(self, error):
        """Return True for one kind of errors."""
        return await is_busy(error)


COROUTINE_FUNCTIONS = {
    "function": is_busy,
    "partial": functools.partial(is_busy),
    "object": Asking(),
    "method": Asking().method,
    "partial of an object": functools.partial(Asking()),
}

AWAITING = {
    "decorated": redrive.retry,
    "with a deadline": lambda policy: redrive.retry(policy.with_(deadline="1h")),
    "acall": lambda policy: lambda function: lambda: policy.acall(function),
    "hedged": lambda policy: redrive.retry(policy.with_(idempotent=True, hedge=redrive.retrying.Hedge("1h"))),
}


@pytest.mark.parametrize("form", AWAITING.values(), ids=AWAITING)
@pytest.mark.parametrize("asked", COROUTINE_FUNCTIONS.values(), ids=COROUTINE_FUNCTIONS)
def test_a_classifier_is_awaited(asked, form, run):
    """Async classifiers decide in async forms."""
    script = Script(Busy(), Other())
    with pytest.raises(Other):
        run(form(AT_ONCE.with_(on=asked))(script.as_async()))

    assert 2 == script.calls


@pytest.mark.parametrize("form", AWAITING.values(), ids=AWAITING)
def test_a_predicate_is_awaited(form, run):
    """Async predicates decide in async forms."""
    script = Script(None, 0)

    assert 0 == run(form(AT_ONCE.with_(on_result=is_none))(script.as_async()))
    assert 2 == script.calls


def test_an_async_generator_awaits_its_classifier(run):
    """Async generators are retried by an async classifier."""
    script = Script(Busy(), "item", Other())
    left = []

    @redrive.retry(AT_ONCE.with_(on=is_busy))
    async def items():
        yield script()

    async def main():
        left.extend([item async for item in items()])
        with pytest.raises(Other):
            left.extend([item async for item in items()])

    run(main)

    assert (["item"], 3) == (left, script.calls)


def test_an_attempt_that_is_cut_off_is_asked_about(run):
    """Timeouts of attempts are passed to an async classifier as failures in flight."""
    asked = []

    async def ask(error):
        asked.append(type(error))
        return True

    policy = AT_ONCE.with_(on=ask, attempt_timeout="1ms", idempotent=True, attempts=2)

    async def hang():
        while True:
            await checkpoint()

    with pytest.raises(TimeoutError) as caught:
        run(redrive.retry(policy)(hang))

    assert [TimeoutError, TimeoutError] == asked
    assert "TIMEOUT" == caught.value.__retry__.timeline[0].failure.reason


def test_several_predicates_are_asked(run):
    """In a combination plain predicates are called and async ones are awaited."""
    policy = AT_ONCE.with_(on_result=is_none) | AT_ONCE.with_(on_result=lambda result: result == 0)
    script = Script(None, 0, 1)

    assert 1 == run(redrive.retry(policy)(script.as_async()))


def test_predicates_are_not_called_while_disabled(run):
    """Inside of `disabled` neither an async classifier nor an async predicate is called."""

    async def never(_):
        raise AssertionError

    policy = AT_ONCE.with_(on=never, on_result=never)

    async def main():
        with disabled():
            assert await policy.acall(Script(None).as_async()) is None
            await policy.acall(Script(Busy()).as_async())

    with pytest.raises(Busy):
        run(main)


def generator():
    """Yield one item."""
    yield


ASYNC_POLICIES = {
    "on": AT_ONCE.with_(on=is_busy),
    "on_result": AT_ONCE.with_(on_result=is_none),
    "in a combination": AT_ONCE.with_(on=Busy) | AT_ONCE.with_(on_result=is_none),
    "limited": AT_ONCE.with_(on=is_busy).at_least(1),
}


@pytest.mark.parametrize("policy", ASYNC_POLICIES.values(), ids=ASYNC_POLICIES)
def test_a_plain_function_is_refused_when_it_is_decorated(policy):
    """Plain functions with an async predicate are refused at decoration, by name."""
    with pytest.raises(PolicyValueError, match=r"test_a_plain_function.*on.* is a coroutine function.* cannot await"):

        @redrive.retry(policy)
        def plain():
            """Never called."""


@pytest.mark.parametrize("asked", COROUTINE_FUNCTIONS.values(), ids=COROUTINE_FUNCTIONS)
def test_every_kind_of_coroutine_function_is_recognised(asked):
    """Partials, methods and objects with awaited calls are refused like functions."""
    with pytest.raises(PolicyValueError, match="which a plain function cannot await"):
        redrive.retry(AT_ONCE.with_(on=asked))(Script(Busy()))


def test_a_generator_is_refused_when_it_is_decorated():
    """Generators cannot await a classifier and are refused."""
    with pytest.raises(PolicyValueError, match="which a generator cannot await"):
        redrive.retry(AT_ONCE.with_(on=is_busy))(generator)


@pytest.mark.parametrize("policy", ASYNC_POLICIES.values(), ids=ASYNC_POLICIES)
def test_a_call_and_a_block_are_refused_at_their_first_use(policy, run):
    """`policy.call`, `policy.outcome` and blocks of both colours refuse before anything is called."""
    script = Script(None)

    async def block():
        async for attempt in policy:
            with attempt:
                script()

    for use in (policy.call, policy.outcome):
        with pytest.raises(PolicyValueError, match="which a plain function cannot await"):
            use(script)
    with pytest.raises(PolicyValueError, match="which a block cannot await"):
        next(iter(policy))
    with pytest.raises(PolicyValueError, match="which a block cannot await"):
        run(block)

    assert 0 == script.calls


def hidden(function):
    """Return a plain function that returns what a coroutine function does."""

    def call(asked):
        return function(asked)

    return call


def test_an_awaitable_returned_by_a_plain_function_is_refused():
    """Plain predicates that return a coroutine are refused when called, in every form."""
    for policy in (AT_ONCE.with_(on=hidden(is_busy)), AT_ONCE.with_(on_result=hidden(is_none))):
        script = Script(Busy() if policy.on else None)
        with pytest.raises(PolicyValueError, match="returned an awaitable"):
            policy.call(script)
        with pytest.raises(PolicyValueError, match="returned an awaitable"):
            asyncio.run(redrive.retry(policy)(script.as_async())())
        assert 2 == script.calls


def test_a_future_is_refused_too():
    """Awaitables that are no coroutine are refused, too."""

    class Awaitable:
        def __await__(self):
            yield

    with pytest.raises(PolicyValueError, match="returned an awaitable"):
        AT_ONCE.with_(on_result=lambda _: Awaitable()).call(Script(None))


def test_an_async_classifier_above_is_not_asked():
    """Below a call with an async classifier a plain call retries by itself."""
    script = Script(Busy(), Busy(), "answer")
    inner = redrive.retry(AT_ONCE.with_(on=Busy))(script)

    @redrive.retry(AT_ONCE.with_(on=is_busy))
    async def outer():
        return inner()

    assert "answer" == asyncio.run(outer())
    assert 3 == script.calls


def test_transports_await_or_refuse():
    """In httpx the async transport awaits a classifier; the plain one refuses it."""

    async def is_status(error):
        await checkpoint()
        return isinstance(error, httpx.HTTPStatusError)

    policy = AT_ONCE.with_(on=is_status)
    statuses = [503, 503, 200]
    inner = httpx.MockTransport(lambda _: httpx.Response(statuses.pop(0)))

    async def main():
        async with httpx.AsyncClient(transport=AsyncRetryTransport(policy, inner)) as client:
            return (await client.get("http://example.test/")).status_code

    assert 200 == asyncio.run(main())
    with pytest.raises(PolicyValueError, match="which a plain function cannot await"):
        RetryTransport(policy, inner)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SharedBreaker(counts=is_busy),
        lambda: Adaptive(is_busy),
        lambda: Adaptive(on_result=is_none),
        lambda: Shedding(refusals=is_busy),
    ],
    ids=["breaker", "rate", "results of a rate", "shedding"],
)
def test_synchronous_components_refuse_coroutine_functions(make):
    """Breakers, adaptive rates and shedding refuse predicates that would have to be awaited."""
    with pytest.raises(PolicyValueError, match="is a coroutine function, which cannot be awaited here"):
        make()


def test_a_limiter_refuses_an_awaitable():
    """Predicates of a limiter that return an awaitable are refused."""
    limiter = Limiter(rate=Adaptive(on_result=hidden(is_none)))
    with pytest.raises(PolicyValueError, match="returned an awaitable"):
        limiter(Script(None))()
