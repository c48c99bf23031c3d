"""A retrying transport in a retried function: its attempts count, also where it answers with a status."""

from __future__ import annotations

import asyncio
import pickle
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

import redrive
from redrive.contrib.httpx import AsyncRetryTransport, RetryTransport
from redrive.policy import Backoff, Policy
from redrive.retrying.plan import Plan

THREE = Policy(on=httpx.HTTPError, attempts=3, backoff=Backoff.constant(0), jitter="none", idempotent=True)
DEADLINES = [None, "1h"]


class Shop:
    """A server that answers each request with 503, and clients of it that retry."""

    def __init__(self, deadline: str | None, inner: Policy = THREE) -> None:
        self.requests = 0
        self._policy = inner.with_(deadline=deadline)

    def ask(self) -> httpx.Response:
        """Send a request."""
        with httpx.Client(transport=RetryTransport(self._policy, httpx.MockTransport(self._handle))) as client:
            return client.get("http://shop/")

    async def aask(self) -> httpx.Response:
        """Send a request from a coroutine."""
        transport = AsyncRetryTransport(self._policy, httpx.MockTransport(self._handle))
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.get("http://shop/")

    def get(self) -> None:
        """Send a request, and raise an error of httpx's own for the status."""
        self.ask().raise_for_status()

    async def aget(self) -> None:
        """Send a request from a coroutine, and raise an error of httpx's own for the status."""
        (await self.aask()).raise_for_status()

    def _handle(self, _: httpx.Request) -> httpx.Response:
        self.requests += 1
        return httpx.Response(503)


async def direct(shop: Shop) -> None:
    """Ask on the stack of the call above."""
    await shop.aget()


async def gathered(shop: Shop) -> None:
    """Ask in a task."""
    await asyncio.gather(shop.aget())


async def collected(shop: Shop) -> None:
    """Ask in a task, and raise its error later."""
    (error,) = await asyncio.gather(shop.aget(), return_exceptions=True)
    assert isinstance(error, httpx.HTTPStatusError)
    raise error


async def answered(shop: Shop) -> None:
    """Ask in a task, and read the status here."""
    (response,) = await asyncio.gather(shop.aask())
    response.raise_for_status()


async def grouped(shop: Shop) -> None:
    """Ask in a task group."""
    async with asyncio.TaskGroup() as group:
        group.create_task(shop.aget())


async def limited(shop: Shop) -> None:
    """Ask within a time."""
    await asyncio.wait_for(shop.aget(), 60)


async def threaded(shop: Shop) -> None:
    """Ask in a thread that has the context."""
    await asyncio.to_thread(shop.get)


async def executed(shop: Shop) -> None:
    """Ask in a thread without the context."""
    await asyncio.get_running_loop().run_in_executor(None, shop.get)


async def wrapped(shop: Shop) -> None:
    """Ask in a task, and raise another error for its error."""
    try:
        await asyncio.gather(shop.aget())
    except httpx.HTTPStatusError as error:
        raise httpx.HTTPError("the shop is closed") from error


PLACES = [direct, gathered, collected, answered, grouped, limited, threaded, executed, wrapped]


@pytest.mark.parametrize("deadline", DEADLINES)
@pytest.mark.parametrize("place", PLACES)
def test_a_status_does_not_multiply_the_attempts(place, deadline):
    """The error that `raise_for_status` makes of a transport's last answer counts as the error of the transport."""
    shop = Shop(deadline)

    with pytest.raises((httpx.HTTPError, BaseExceptionGroup)):
        asyncio.run(redrive.retry(THREE.with_(deadline=deadline, groups="any"))(place)(shop))
    assert 3 == shop.requests


@pytest.mark.parametrize("deadline", DEADLINES)
def test_a_status_in_a_pool_of_threads_does_not_multiply_the_attempts(deadline):
    """The same holds for a plain function and a pool of threads."""
    shop = Shop(deadline)

    @redrive.retry(THREE.with_(deadline=deadline))
    def book() -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(shop.get).result()

    with pytest.raises(httpx.HTTPStatusError):
        book()
    assert 3 == shop.requests


def test_a_shorter_transport_leaves_the_rest():
    """A transport of two attempts leaves the other four of six to the call above it, two at a time."""
    shop = Shop(None, THREE.with_(attempts=2))

    with pytest.raises(httpx.HTTPStatusError) as caught:
        asyncio.run(redrive.retry(THREE.with_(attempts=6))(gathered)(shop))
    assert 6 == shop.requests
    assert "6 of 6 attempts failed, 3 of them in calls below" in caught.value.__retry__.why


@pytest.mark.parametrize("asks", ["ask", "aask"])
def test_a_response_that_is_rejected_counts(asks):
    """A call that rejects the answer by ``on_result`` counts what the transport has done for it."""
    shop = Shop(None)
    policy = THREE.with_(on=ValueError, on_result=lambda response: response.status_code >= 500)

    sync, nonsync = redrive.retry(policy)(shop.ask), redrive.retry(policy)(shop.aask)
    response = sync() if asks == "ask" else asyncio.run(nonsync())
    assert (3, 503) == (shop.requests, response.status_code)


def test_both_layers_may_retry_a_status():
    """With ``nested="both"`` all attempts are made."""
    shop = Shop(None)

    with pytest.raises(httpx.HTTPStatusError):
        asyncio.run(redrive.retry(THREE.with_(nested="both"))(gathered)(shop))
    assert 9 == shop.requests


def test_a_response_that_is_kept_counts_once():
    """A response of an earlier call, which is rejected again, has no attempts of the present call."""
    kept = Shop(None).ask()
    calls = []

    @redrive.retry(THREE)
    def book() -> None:
        calls.append(1)
        kept.raise_for_status()

    with pytest.raises(httpx.HTTPStatusError):
        book()
    assert 3 == len(calls)


def test_a_response_can_be_pickled():
    """The response of a transport that has given up can be sent to another process, as any of httpx."""
    assert 503 == pickle.loads(pickle.dumps(Shop(None).ask())).status_code


def test_an_error_of_httpx_is_decided_in_full():
    """`Plan.quick` leaves each error of httpx to `Policy.decide`, before which the attempts below are counted."""
    response = httpx.Response(503, request=httpx.Request("GET", "http://shop/"))
    error = httpx.HTTPStatusError("503", request=response.request, response=response)

    assert Plan(THREE, "book").quick(error, 1, 0.0, lambda: 0.5) is None
