"""Idempotency keys: one for a call, on all its attempts and copies."""

from __future__ import annotations

import httpx
import pytest

import redrive
from redrive.policy import Policy
from redrive.retrying import Hedge
from tests.contrib.httpx.server import RESET_AFTER, SLOW_HEAD, HttpServer, answer


def keys(server):
    """Return the keys that the server got."""
    return [each.headers.get("idempotency-key") for each in server.executed]


def test_all_attempts_have_the_same_key(colour):
    """Requests that need a key get one for all attempts, and may be repeated."""
    with HttpServer(answer(503), RESET_AFTER) as server:
        response = colour.send(colour.retrying("2 1s", idempotency_key=True), "POST", server.url)
    first, *others = keys(server)

    assert 200 == response.status_code
    assert first.startswith('"')
    assert [first, first] == others


def test_each_call_has_its_own_key(colour):
    """Sent twice by its caller, the same request is two calls with two keys, and stays as it was."""
    transport = colour.retrying("2 1s", idempotency_key=True)
    request = httpx.Request("POST", "http://127.0.0.1/")

    def both(client):
        client.send(request)
        return client.send(request)

    async def aboth(client):
        await client.send(request)
        return await client.send(request)

    with HttpServer() as server:
        request.url = httpx.URL(server.url)
        colour.run(transport, aboth if colour.is_async else both)

    assert 2 == len(set(keys(server)))
    assert "idempotency-key" not in request.headers


def test_the_users_key_is_kept(colour):
    """Keys of the request are kept."""
    with HttpServer(answer(503)) as server:
        transport = colour.retrying("2 1s", idempotency_key=True)
        colour.send(transport, "POST", server.url, headers={"Idempotency-Key": '"mine"'})

    assert ['"mine"', '"mine"'] == keys(server)


@pytest.mark.parametrize(("method", "option"), [("GET", True), ("PUT", True), ("POST", False)])
def test_methods_that_may_be_repeated_get_no_key(colour, method, option):
    """No key for a method that may be repeated anyway, and none unless it is asked for."""
    with HttpServer() as server:
        colour.send(colour.retrying("2 1s", idempotency_key=option), method, server.url)

    assert [None] == keys(server)


def test_a_function_makes_the_key(colour):
    """Functions can make the key from the request, or none."""

    def order_of(request):
        return request.headers.get("X-Order")

    with HttpServer() as server:
        transport = colour.retrying("2 1s", idempotency_key=order_of)
        colour.send(transport, "POST", server.url, headers={"X-Order": "order 7"})
        again = colour.retrying("2 1s", idempotency_key=order_of)
        colour.send(again, "POST", server.url)

    assert ['"order 7"', None] == keys(server)


def test_a_key_is_not_made_for_each_attempt_of_a_call_above(sync):
    """Under a call that is retried a new key would be another one each time, so it is refused."""
    transport = sync.retrying("2 1s", idempotency_key=True)

    @redrive.retry("2 1s", on=httpx.TransportError)
    def pay(client):
        return client.post("http://127.0.0.1/")

    with pytest.raises(RuntimeError, match="make it before the call, or from attempt.uid"):
        sync.run(transport, pay)


HEDGED = Policy(attempts=2, hedge=Hedge("100ms"))


@pytest.mark.parametrize(("method", "option", "calls"), [("POST", True, 2), ("GET", False, 2)])
def test_copies_have_the_same_key(acolour, method, option, calls):
    """Requests that may be repeated are hedged, the copy wins if the first is slow, and both have the same key."""
    with HttpServer(SLOW_HEAD) as server:
        response = acolour.send(acolour.retrying(HEDGED, idempotency_key=option), method, server.url)

    assert (200, calls) == (response.status_code, len(keys(server)))
    assert 1 == len(set(keys(server)))


@pytest.mark.parametrize("content", [None, b"body"])
def test_requests_that_may_not_be_repeated_are_not_hedged(acolour, content):
    """Policies with a hedge make no copies of a POST without a key."""
    with HttpServer(RESET_AFTER) as server, pytest.raises(httpx.TransportError):
        acolour.send(acolour.retrying(HEDGED), "POST", server.url, content=content)

    assert [None] == keys(server)


def test_a_stream_is_not_hedged(acolour):
    """Two copies cannot read the same stream."""

    async def body():
        yield b"body"

    with HttpServer() as server:
        response = acolour.send(acolour.retrying(HEDGED), "PUT", server.url, content=body())

    assert (200, [b"body"]) == (response.status_code, [each.body for each in server.executed])
