"""The middleware for aiohttp: what only it has."""

from __future__ import annotations

import asyncio
import contextlib
import io

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver

from redrive.contrib.aiohttp import FailedAnswer, failure_of, retry
from redrive.policy import Backoff, Policy, Stage
from redrive.testing import using
from tests.contrib.http.conftest import OfAiohttp
from tests.contrib.httpx.server import HALF_BODY, RESET_AFTER, SLOW_HEAD, HttpServer, answer, chunked

CUT = chunked(200, b"half", ends=False)
LARGE = b"x" * 200_000
STEADY = Policy(attempts=3, backoff=Backoff.constant(1), jitter="none")


def run(function, *script, policy=STEADY, options=None, **session):
    """Run an async function with a client that retries and the address of a server; return its result."""

    async def main():
        middlewares = [retry(policy, **options or {})]
        async with aiohttp.ClientSession(**{"middlewares": middlewares, **session}) as client:
            return await function(client, server.url)

    with HttpServer(*script) as server, using(clock=OfAiohttp().clock):
        result = asyncio.run(main())
    return result, len(server.executed)


# -------------------------------------------------------------------------------------------- the session of the client


@pytest.mark.parametrize("way", ["await", "wait_for", "task"])
def test_the_repetition_of_aiohttp_does_not_multiply(way):
    """Aiohttp calls the middlewares once more after a lost connection, and gets the same error again."""

    async def ask(client, url):
        sent = {"await": lambda call: call, "wait_for": lambda call: asyncio.wait_for(call, 60), "task": asyncio.gather}
        with pytest.raises(aiohttp.ClientError) as raised:
            await sent[way](client.get(url))
        async with client.get(url) as response:
            return raised.value.__retry__.attempts, response.status

    assert ((3, 200), 4) == run(ask, *[RESET_AFTER] * 3)


def test_each_call_may_lose_its_connection():
    """The error of one call is not that of the next one in the same task."""

    async def ask(client, url):
        attempts = []
        for method in ("GET", "POST", "GET", "PUT"):
            with pytest.raises(aiohttp.ClientError) as raised:
                await client.request(method, url)
            attempts.append(raised.value.__retry__.attempts)
        return attempts

    assert ([3, 1, 3, 3], 10) == run(ask, *[RESET_AFTER] * 99)


def test_the_total_timeout_of_the_session_ends_the_call():
    """When the session's time is over, no further attempt is made."""

    async def ask(client, url):
        with pytest.raises(TimeoutError):
            await client.get(url)

    _, requests = run(ask, *[SLOW_HEAD] * 9, timeout=aiohttp.ClientTimeout(total=0.3))

    assert requests <= 1


def test_a_total_timeout_within_an_attempt_is_permanent(of_aiohttp):
    """A plain TimeoutError of an attempt is that of the session."""

    async def over(request, handler):
        raise TimeoutError

    async def ask(client, url):
        with pytest.raises(TimeoutError) as raised:
            await client.get(url)
        return raised.value.__retry__

    record, requests = run(ask, middlewares=[retry(STEADY), over])

    assert ("permanent", 1, 0) == (record.rule, record.attempts, requests)
    assert "the total timeout of the session is over" in record.why


class Never(AbstractResolver):
    """Finds no name, and does not say so."""

    async def resolve(self, host, port=0, family=0):
        """Wait for ever."""
        await asyncio.Event().wait()

    async def close(self):
        """Do nothing."""


def test_an_attempt_that_never_connects_was_not_sent():
    """An attempt that the policy cuts off while it looks for the name was not sent, so a POST is repeated."""
    policy = STEADY.with_(attempts=2, attempt_timeout="50ms")

    async def ask(client, _):
        async with aiohttp.ClientSession(
            middlewares=[retry(policy)], connector=aiohttp.TCPConnector(resolver=Never())
        ) as lost:
            with pytest.raises(TimeoutError) as raised:
                await lost.post("http://shop.example/")
        return [each.failure.stage for each in raised.value.__retry__.timeline]

    assert ([Stage.NOT_SENT] * 2, 0) == run(ask)


def test_a_status_is_raised_for_the_last_answer_only():
    """`raise_for_status=True` of a session sees the last answer."""

    async def ask(client, url):
        async with client.get(url) as good:
            assert 200 == good.status
        with pytest.raises(aiohttp.ClientResponseError) as raised:
            await client.get(url)
        return raised.value.status

    assert (503, 5) == run(ask, answer(503), answer(), *[answer(503)] * 3, raise_for_status=True)


def test_other_middlewares_stand_around_the_call_or_the_attempt():
    """A middleware before ours sees one call, and one after it each attempt."""
    seen = []

    def noting(name):
        async def note(request, handler):
            seen.append(name)
            return await handler(request)

        return note

    async def ask(client, url):
        async with client.get(url) as response:
            return response.status

    run(ask, answer(503), middlewares=[noting("call"), retry(STEADY), noting("attempt")])

    assert ["call", "attempt", "attempt"] == seen


def test_one_request_may_have_its_own_middleware():
    """A request brings its policy in its own list of middlewares."""

    async def ask(client, url):
        async with client.get(url, middlewares=[retry(STEADY.with_(attempts=2))]) as response:
            return response.__retry__.attempts

    assert (2, 2) == run(ask, *[answer(503)] * 5)


# ---------------------------------------------------------------------------------------------------- bodies of answers


async def whole(response):
    """Read at once."""
    return await response.read()


async def text(response):
    """Read as text."""
    return (await response.text()).encode()


async def content(response):
    """Read from the stream."""
    return await response.content.read()


async def chunks(response):
    """Read in chunks."""
    return b"".join([part async for part in response.content.iter_chunked(1)])


async def lines(response):
    """Read in lines."""
    return b"".join([part async for part in response.content])


@pytest.mark.parametrize("read", [64 * 1024, None, 0])
@pytest.mark.parametrize("reader", [whole, text, content, chunks, lines])
def test_a_body_that_was_read_is_left_to_its_reader(reader, read):
    """Whatever was read within the attempt, the caller reads the body in any way."""

    async def ask(client, url):
        async with client.get(url) as response:
            return await reader(response)

    for step in (answer(200, b"a\nb\n"), chunked(200, b"a\n", b"b\n"), answer(404, b"a\nb\n")):
        assert (b"a\nb\n", 1) == run(ask, step, options={"read": read})
    assert (b"a\nb\n", 3) == run(ask, *[answer(503, b"a\nb\n")] * 3, options={"read": read})


async def quietly(client, url):
    """Read an answer, and return its body or the error."""
    try:
        async with client.get(url) as response:
            return await response.read()
    except aiohttp.ClientError as error:
        return error


def test_a_long_body_is_left_to_the_caller():
    """A body without a length is a part of the attempt only with `read=None`, and a short one not with `read=0`."""
    assert isinstance(run(quietly, CUT)[0], aiohttp.ClientPayloadError)
    assert (b"ok", 2) == run(quietly, CUT, options={"read": None})
    assert isinstance(run(quietly, HALF_BODY, options={"read": 0})[0], aiohttp.ClientPayloadError)
    assert (LARGE, 1) == run(quietly, answer(200, LARGE))
    assert (LARGE, 1) == run(quietly, answer(200, LARGE), options={"read": None})


def test_a_stream_of_events_stays_a_stream():
    """With `read=None` a stream of events is left to the caller."""

    async def ask(client, url):
        async with client.get(url) as response:
            assert b"data: 1\n" == await response.content.readline()
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()

    events = chunked(200, b"data: 1\n", ends=False, content_type="text/event-stream")

    assert (None, 1) == run(ask, events, options={"read": None})


def test_a_waiting_call_holds_no_connection():
    """While a call waits, another one can use the only connection."""
    clock = OfAiohttp().clock

    async def main(url):
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(middlewares=[retry(STEADY)], connector=connector) as client:
            clock.actions.append(lambda: quietly(client, url))
            return await quietly(client, url)

    with HttpServer(answer(503, b"sorry")) as server, using(clock=clock):
        assert b"ok" == asyncio.run(main(server.url))
    assert 3 == len(server.executed)


def test_a_large_failed_answer_is_closed():
    """A failed answer that is not short is closed before the next attempt, and the last one is left to the caller."""
    assert (b"ok", 2) == run(quietly, answer(503, LARGE))
    assert (LARGE, 3) == run(quietly, *[answer(503, LARGE)] * 3)


@pytest.mark.parametrize("read", [64 * 1024, None])
def test_websockets_work(read):
    """A websocket is opened through the middleware, and its messages are not taken for a body."""

    async def echo(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    async def main():
        app = web.Application()
        app.router.add_get("/", echo)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        client = aiohttp.ClientSession(middlewares=[retry(STEADY, read=read)])
        async with client, client.ws_connect(url) as socket:
            await socket.send_str("hello")
            said = await socket.receive_str()
        await runner.cleanup()
        return said

    assert "hello" == asyncio.run(main())


# --------------------------------------------------------------------------------------------------- bodies of requests


class Own(aiohttp.payload.Payload):
    """A payload of the user, which can be written once."""

    def decode(self, *_):
        """Refuse."""
        raise TypeError

    async def write(self, writer):
        """Write the rest."""
        await writer.write(self._value.pop())


async def parts():
    """Yield a body."""
    yield b"hel"
    yield b"lo"


def form(body, **options):
    """Return a form with a file."""
    made = aiohttp.FormData()
    made.add_field("text", "a")
    made.add_field("file", body, **options)
    return made


def mixed():
    """Return a multipart body with a stream in it."""
    made = aiohttp.MultipartWriter()
    made.append(b"a")
    made.append(parts())
    return made


@pytest.mark.parametrize("step", [answer(503), RESET_AFTER], ids=["503", "lost"])
@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (lambda: form(io.BytesIO(b"hello"), filename="x"), 3),
        (lambda: form(b"hello", filename="x"), 3),
        (mixed, 1),
        (lambda: Own([b"hello"]), 1),
        (parts, 1),
    ],
    ids=["file", "bytes", "part", "own", "generator"],
)
def test_a_form_is_sent_again_if_its_parts_can_be(step, body, sent):
    """A form is repeated with its files, and not with a stream in it or a payload that nothing is known about."""

    async def ask(client, url):
        with contextlib.suppress(aiohttp.ClientError):
            await client.put(url, data=body())

    with HttpServer(step, step) as server, using(clock=OfAiohttp().clock):

        async def main():
            async with aiohttp.ClientSession(middlewares=[retry(STEADY)]) as client:
                await ask(client, server.url)

        asyncio.run(main())
    bodies = [each.body for each in server.executed]

    assert sent == len(bodies)
    assert [b"hello" in each for each in bodies] == [True] * sent


# ----------------------------------------------------------------------------------------------------- policies, errors


def test_functions_of_a_policy_may_be_coroutine_functions():
    """The middleware awaits the functions that choose, and gives them the answer."""

    async def on(error):
        return isinstance(error, FailedAnswer) and "no" == error.response.headers.get("X-Ready")

    async def on_result(response):
        return response.status == 404

    async def ask(client, url):
        async with client.get(url) as response:
            return response.status

    policy = STEADY.with_(on=on, on_result=on_result)

    assert (200, 3) == run(ask, answer(503, X_Ready="no"), answer(404), answer(), policy=policy)


def test_a_cancelled_call_ends():
    """A cancellation is no failure, also while the call waits for an answer."""

    async def ask(client, url):
        task = asyncio.ensure_future(client.get(url))
        await asyncio.to_thread(server.has_executed.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with HttpServer(*[SLOW_HEAD] * 9) as server:

        async def main():
            async with aiohttp.ClientSession(middlewares=[retry(STEADY)]) as client:
                await ask(client, server.url)

        asyncio.run(main())
    assert 1 == len(server.executed)


def test_the_answer_before_a_redirect_counts():
    """The error for the target of a redirect is judged by the first request."""

    async def ask(client, url):
        found = []
        for method in ("POST", "GET"):
            async with client.request(method, url) as response:
                with pytest.raises(aiohttp.ClientResponseError) as raised:
                    response.raise_for_status()
            found.append(failure_of(raised.value).stage)
        return found

    script = [answer(303, Location="/there"), answer(503)] * 2
    stages, _ = run(ask, *script, middlewares=[])

    assert [Stage.IN_FLIGHT, Stage.ANSWERED] == stages


@pytest.mark.parametrize(
    ("error", "stage"),
    [
        (aiohttp.ServerDisconnectedError(), Stage.IN_FLIGHT),
        (aiohttp.ConnectionTimeoutError("late"), Stage.NOT_SENT),
        (aiohttp.SocketTimeoutError("late"), Stage.IN_FLIGHT),
        (aiohttp.ClientPayloadError("half"), Stage.IN_FLIGHT),
        (aiohttp.ClientOSError(104, "reset"), Stage.IN_FLIGHT),
        (aiohttp.ServerFingerprintMismatch(b"a", b"b", "host", 1), Stage.NOT_SENT),
    ],
)
def test_errors_are_read_by_their_class(error, stage):
    """Without other evidence, the class of an exception gives the stage."""
    assert stage is failure_of(error).stage
    assert isinstance(error, aiohttp.ServerFingerprintMismatch) is (failure_of(error).lasting is not None)


def test_one_redirect_too_many_is_no_status():
    """Aiohttp gives that error the status 0; another attempt would be redirected alike."""

    async def ask(client, url):
        with pytest.raises(aiohttp.TooManyRedirects) as raised:
            await client.post(url, max_redirects=2)
        return failure_of(raised.value)

    failure, requests = run(ask, *[answer(302, Location="/there")] * 9)

    assert ("ERROR", Stage.IN_FLIGHT, 2) == (failure.reason, failure.stage, requests)
    assert Stage.IN_FLIGHT is failure.lasting.stage


def test_an_answer_that_cannot_be_read_is_no_status():
    """Aiohttp invents the status of an answer that is no HTTP; the request was in flight."""
    garbage = lambda connection: connection.sendall(b"no HTTP at all\r\n\r\n")  # noqa: E731

    async def ask(client, url):
        with pytest.raises(aiohttp.ClientResponseError) as raised:
            await client.post(url)
        return raised.value.__retry__.timeline[0].failure

    failure, requests = run(ask, garbage)

    assert ("ERROR", Stage.IN_FLIGHT, 1) == (failure.reason, failure.stage, requests)
