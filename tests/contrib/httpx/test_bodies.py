"""Bodies of requests: sent again from where they began, or not at all."""

from __future__ import annotations

import io

import httpx
import pytest

from redrive.contrib.httpx import RetryTransport
from redrive.testing import using
from tests.contrib.httpx.server import RESET_AFTER, HttpServer, answer


class Unseekable(io.BytesIO):
    """A file that cannot go back."""

    def seekable(self):
        """Return False."""
        return False


def positioned():
    """Return a file that was read in part."""
    file = io.BytesIO(b"head body")
    file.seek(5)
    return file


def once(colour):
    """Return a body that exists once, in the type of the colour."""

    def sync():
        yield b"bo"
        yield b"dy"

    async def nonsync():
        yield b"bo"
        yield b"dy"

    return nonsync() if colour.is_async else sync()


def post(colour, server, policy="2 1s", **request):
    """PUT a body, which may be sent again if it can be."""
    return colour.send(colour.retrying(policy), "PUT", server.url, **request)


@pytest.mark.parametrize("request_", [{"content": b"body"}, {"content": "body"}, {"data": {"a": "b"}}, {"json": [1]}])
def test_bytes_are_sent_again(colour, request_):
    """Bodies of bytes are the same at each attempt."""
    with HttpServer(answer(503), RESET_AFTER) as server:
        post(colour, server, **request_)
    first = server.executed[0].body

    assert first
    assert [first] * 3 == [each.body for each in server.executed]


def test_forms_with_files_are_sent_again(colour):
    """Forms with a file are the same at each attempt."""
    with HttpServer(answer(503)) as server:
        post(colour, server, files={"file": positioned()})
    first, second = (each.body for each in server.executed)

    assert b"head body" in first
    assert first == second


@pytest.mark.parametrize(
    "make", [positioned, lambda: [b"bo", b"dy"], lambda: (b"body",)], ids=["a file", "a list", "a tuple"]
)
def test_rereadable_bodies_are_sent_again(sync, make):
    """Files are sent from their first position, and lists from their beginning, at each attempt."""
    headers = {"Transfer-Encoding": "chunked"}
    with HttpServer(answer(503), RESET_AFTER) as server:
        post(sync, server, content=make(), headers=headers)

        assert [b"body"] * 3 == [each.body for each in server.executed]


def test_a_stream_is_sent_once(colour):
    """Streams that were read are not sent again: the last answer is returned, and the record has the reason."""
    with HttpServer(answer(503)) as server:
        response = post(colour, server, content=once(colour))

    assert (503, [b"body"]) == (response.status_code, [each.body for each in server.executed])
    assert "the body of the request is a stream that has been read and cannot be read again" == (
        response.extensions["redrive"].why
    )


def test_the_error_notes_that_a_stream_is_sent_once(colour):
    """Exceptions after a stream was read have the reason in their note."""
    with HttpServer(RESET_AFTER) as server, pytest.raises(httpx.TransportError) as caught:
        post(colour, server, content=once(colour))

    assert "is a stream that has been read and cannot be read again" in caught.value.__notes__[0]


@pytest.mark.parametrize("request_", [{"content": Unseekable(b"body")}, {"files": {"file": Unseekable(b"body")}}])
def test_a_file_that_cannot_go_back_is_sent_once(sync, request_):
    """Files that cannot seek are streams."""
    with HttpServer(answer(503)) as server:
        assert 503 == post(sync, server, **request_).status_code

        assert 1 == len(server.executed)


def test_a_user_defined_stream_is_sent_once(sync):
    """Streams of a user's class are not read twice."""

    class UserStream(httpx.SyncByteStream):
        def __iter__(self):
            yield b"body"

    with HttpServer(answer(503)) as server:
        request = httpx.Request("PUT", server.url, stream=UserStream(), headers={"Content-Length": "4", "Host": "test"})
        response = sync.run(sync.retrying("2 1s"), lambda client: client.send(request))

        assert (503, 1) == (response.status_code, len(server.executed))


def test_an_unread_stream_is_sent_again(colour):
    """Requests with a stream are retried as long as no byte of it was sent."""
    server = HttpServer(listens=False)
    colour.clock.actions.append(server.listen)
    with server:
        response = post(colour, server, content=once(colour))

        assert (200, [b"body"]) == (response.status_code, [each.body for each in server.executed])


def test_a_final_error_of_a_stream_request_is_not_retried(colour):
    """Answers 404 are not retried, whatever the body."""
    with HttpServer(answer(404)) as server:
        response = post(colour, server, content=once(colour))

    assert "not_matched" == response.extensions["redrive"].rule


def test_an_inner_transport_can_read_the_content(sync):
    """Inner transports can read `request.content`, as without the transport."""
    seen = []

    class ReadingTransport(httpx.BaseTransport):
        def handle_request(self, request):
            seen.append(request.content)
            return httpx.Response(200)

    with using(clock=sync.clock), httpx.Client(transport=RetryTransport(inner=ReadingTransport())) as client:
        client.post("http://test/", content=b"body")

    assert [b"body"] == seen
