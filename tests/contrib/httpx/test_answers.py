"""Answers: what the caller gets, and that no connection is held or lost on the way."""

from __future__ import annotations

import httpx
import pytest

import redrive
from redrive.policy import Policy
from redrive.retrying import Record
from tests.contrib.httpx.server import HALF_BODY, RESET_AFTER, SLOW_BODY, HttpServer, answer, chunked

ONE = httpx.Limits(max_connections=1)
LARGE = b"x" * 200_000

# httpx leaves generators of bodies behind that are closed before their end, and trio complains of that.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Async generator 'httpx:ResourceWarning", "ignore:Async generator 'httpcore:ResourceWarning"
)


@pytest.mark.parametrize("body", [b"", b"try later", LARGE], ids=["empty", "short", "large"])
def test_the_last_answer_is_returned_as_httpx_would(colour, body):
    """After the last attempt the last answer is returned whole, with its record."""
    with HttpServer(*[answer(503, body, X_Answer=str(number)) for number in range(3)]) as server:
        response = colour.send(colour.retrying("2 1s", colour.inner(limits=ONE)), "GET", server.url)
    record = response.extensions["redrive"]

    assert (503, "2", body) == (response.status_code, response.headers["X-Answer"], response.content)
    assert (3, "attempts") == (record.attempts, record.rule)
    assert ["HTTP_503"] * 3 == [each.failure.reason for each in record.timeline]
    assert 0 <= response.elapsed.total_seconds()


def test_the_last_answer_is_complete_without_a_length(colour):
    """Last answers that were read in part are returned whole."""
    with HttpServer(*[chunked(503, LARGE, b"end")] * 2) as server:
        response = colour.send(colour.retrying("1 1s", colour.inner(limits=ONE)), "GET", server.url)

    assert (503, LARGE + b"end") == (response.status_code, response.content)


def test_a_client_closes_the_transport_inside(colour):
    """Closing a client closes its connections, whether or not it was used as a context manager."""
    closed = []

    class ClosingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
        def close(self):
            closed.append("sync")

        async def aclose(self):
            closed.append("async")

    async def aclose(client):
        await client.aclose()

    colour.run(colour.retrying(None, ClosingTransport()), aclose if colour.is_async else lambda client: client.close())

    assert {"async" if colour.is_async else "sync"} == set(closed)


def test_a_success_has_its_record(colour):
    """Responses after retries have a record with the name of their host."""
    with HttpServer(answer(503)) as server:
        response = colour.send(colour.retrying("2 1s"), "GET", server.url)
    record = response.extensions["redrive"]

    assert isinstance(record, Record)
    assert (200, 2, "ok", "GET 127.0.0.1") == (response.status_code, record.attempts, record.rule, record.function)


def test_an_error_has_its_note(colour):
    """Exceptions of httpx surface with their request, one note and the record."""
    with HttpServer(RESET_AFTER) as server, pytest.raises(httpx.TransportError) as caught:
        colour.send(colour.retrying("2 1s"), "POST", server.url, content=b"body")

    assert "it may not be repeated because it is not idempotent" in caught.value.__notes__[0]
    assert "not_idempotent" == caught.value.__retry__.rule
    assert server.url == str(caught.value.request.url)


@pytest.mark.parametrize("step", [answer(503, b"try later"), chunked(503, b"try ", b"later")], ids=["length", "chunks"])
def test_the_connection_is_used_again(colour, step):
    """Small failed answers are read, with or without a length, so that their connection serves the next attempt."""
    with HttpServer(step) as server:
        response = colour.send(colour.retrying("2 1s"), "GET", server.url)

        assert (200, 1) == (response.status_code, server.connections)


def test_a_misdirected_request_gets_another_connection(colour):
    """After a 421 the connection is not used again, since it leads to the wrong server."""
    with HttpServer(answer(421)) as server:
        response = colour.send(colour.retrying("2 1s"), "GET", server.url)

        assert (200, 2) == (response.status_code, server.connections)


@pytest.mark.parametrize("step", [answer(503, LARGE), chunked(503, LARGE, LARGE)], ids=["length", "chunks"])
def test_a_large_failed_answer_is_closed(colour, step):
    """Large failed answers are closed before the next attempt, which gets the only connection."""
    with HttpServer(step) as server:
        response = colour.send(colour.retrying("2 1s", colour.inner(limits=ONE)), "GET", server.url)

        assert (200, 2) == (response.status_code, server.connections)


def test_a_waiting_call_holds_no_connection(colour):
    """While a call waits, another one can use the only connection."""
    with HttpServer(answer(503)) as server:
        transport = colour.retrying("2 1s", colour.inner(limits=ONE))

        def both(client):
            colour.clock.actions.append(lambda: client.get(server.url + "other"))
            return client.get(server.url)

        response = colour.run(transport, both)

        assert (200, ["/", "/other", "/"]) == (response.status_code, [each.target for each in server.executed])


def test_a_rejected_result_is_closed(colour):
    """Answers that the policy's `on_result` rejects are closed before the next attempt."""
    policy = Policy(on_result=lambda response: response.headers["X-Ready"] == "no", attempts=3)
    with HttpServer(answer(200, LARGE, X_Ready="no"), answer(200, X_Ready="yes")) as server:
        response = colour.send(colour.retrying(policy, colour.inner(limits=ONE)), "GET", server.url)

    assert "yes" == response.headers["X-Ready"]


# ------------------------------------------------------------------------------------------------------ half an answer


def test_a_long_body_is_left_to_the_caller(colour):
    """Long bodies are not retried when they break off: the reader gets httpx's error, and a note that names read=."""
    with HttpServer(chunked(200, b"half", ends=False)) as server, pytest.raises(httpx.RemoteProtocolError) as broken:
        colour.send(colour.retrying("2 1s"), "GET", server.url)

    assert 1 == len(server.executed)
    (note,) = broken.value.__notes__
    assert note.startswith("not retried: the answer has begun, and the transport reads only bodies of a known length")
    assert "RetryTransport(read=None)" in note


def test_all_bodies_are_read_on_request(colour):
    """With `read=None` every body is part of the attempt."""
    with HttpServer(chunked(200, b"half", ends=False), chunked(200, b"who", b"le")) as server:
        response = colour.send(colour.retrying("2 1s", read=None), "GET", server.url)

        assert (b"whole", 2) == (response.content, len(server.executed))


def test_another_protocol_is_never_read(colour):
    """With `read=None` the connection of an answer that switches protocols is left to the caller."""

    def switched(connection):
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
        return bool(connection.recv(1024))

    headers = {"Connection": "upgrade", "Upgrade": "echo"}
    with HttpServer(switched) as server:
        response = colour.send(colour.retrying("2 1s", read=None), "GET", server.url, stream=True, headers=headers)

        assert 101 == response.status_code


def test_no_body_is_read_on_request(colour):
    """With `read=0` the head of a good answer is returned before its body is there."""
    with HttpServer(SLOW_BODY) as server:
        response = colour.send(colour.retrying("2 1s", read=0), "GET", server.url, stream=True)

        assert 200 == response.status_code


def test_a_truncated_failed_answer_keeps_its_status(colour):
    """Failed answers with a broken body are retried by status; the reader of the last one gets httpx's error."""
    broken = chunked(503, b"half", ends=False)
    with HttpServer(broken, broken) as server, pytest.raises(httpx.RemoteProtocolError):
        colour.send(colour.retrying("1 1s"), "GET", server.url)
    with HttpServer(broken, broken) as again:
        response = colour.send(colour.retrying("1 1s"), "GET", again.url, stream=True)

    assert 2 == len(server.executed)
    assert (503, ["HTTP_503"] * 2) == (
        response.status_code,
        [each.failure.reason for each in response.extensions["redrive"].timeline],
    )


def test_a_truncated_body_that_is_not_repeated_raises_the_error_of_httpx(colour):
    """If half an answer to a POST came, the call ends with httpx's error, not with half a response."""
    with (
        HttpServer(HALF_BODY) as server,
        pytest.raises(httpx.RemoteProtocolError, match="without sending complete message"),
    ):
        colour.send(colour.retrying("2 1s"), "POST", server.url)

    assert 1 == len(server.executed)


# ---------------------------------------------------------------------------------------------- several requests a call


def test_each_hop_of_a_redirect_is_retried(colour):
    """Redirects are two requests, and each has its own attempts."""
    script = [answer(503), answer(302, Location="/there"), answer(503), answer()]
    with HttpServer(*script) as server:
        response = colour.run(colour.retrying("1 1s"), lambda client: client.get(server.url), follow_redirects=True)

        assert 200 == response.status_code
        assert ["/", "/", "/there", "/there"] == [each.target for each in server.executed]


class Token(httpx.Auth):
    """Sends a token when it is asked for one."""

    def auth_flow(self, request):
        """Ask, and ask again with the token."""
        response = yield request
        if response.status_code == 401:
            request.headers["Authorization"] = "token"
            yield request


def test_authentication_continues_after_401(colour):
    """Answers 401 are not retried but go to the authentication, and its requests are retried."""
    with HttpServer(answer(401), answer(503), answer()) as server:
        response = colour.run(colour.retrying("1 1s"), lambda client: client.get(server.url), auth=Token())

        assert 200 == response.status_code
        assert [None, "token", "token"] == [each.headers.get("authorization") for each in server.executed]


def test_a_retried_function_retries_alone(colour):
    """Under a function that is retried the transport makes one attempt each time, and the record names the function."""
    transport = colour.retrying("5 1s")

    @redrive.retry("2 1s", on=httpx.HTTPStatusError)
    def sync(client):
        return client.get(server.url).raise_for_status()

    @redrive.retry("2 1s", on=httpx.HTTPStatusError)
    async def nonsync(client):
        return (await client.get(server.url)).raise_for_status()

    with HttpServer(*[answer(503)] * 9) as server, pytest.raises(httpx.HTTPStatusError) as caught:
        colour.run(transport, nonsync if colour.is_async else sync)

    assert 3 == len(server.executed)
    assert "nested" == caught.value.response.extensions["redrive"].rule


def test_the_users_trace_callbacks_are_called(colour):
    """Trace callbacks of the request get the same events as without the transport."""
    traced = []

    async def asynchronous(name, info):
        traced.append(name)

    trace = asynchronous if colour.is_async else lambda name, info: traced.append(name)
    with HttpServer(answer(503)) as server:
        colour.send(colour.retrying("1 1s"), "GET", server.url, extensions={"trace": trace})

    assert 2 == traced.count("http11.send_request_headers.started")
    assert 1 == traced.count("connection.connect_tcp.complete")
