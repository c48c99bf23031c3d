"""Tests of times: never earlier than a server asks, and never longer than the deadline."""

from __future__ import annotations

from datetime import timedelta

import anyio
import httpcore
import httpx
import pytest

import redrive
from redrive.policy import Jitter, Policy, Stage
from redrive.policy.backoff_kinds import Constant
from tests.contrib.httpx.server import RESET_AFTER, SLOW_HEAD, HttpServer, Listener, answer

STEADY = Policy(attempts=2, backoff=Constant(1), jitter=Jitter.none, deadline=None)
DATE = "Sun, 06 Nov 1994 08:49:37 GMT"

# -------------------------------------------------------------------------------------------------- as the server says


@pytest.mark.parametrize(
    ("given", "wait"),
    [
        ("20", 20),
        ("0", 1),
        ("Sun, 06 Nov 1994 08:51:37 GMT", 120),
        ("Sunday, 06-Nov-94 08:51:37 GMT", 120),
        ("Sun Nov  6 08:51:37 1994", 120),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 1),
        ("soon", 1),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_a_call_waits_for_retry_after(sync, given, wait, status):
    """Retry-After is a floor, in each form, and its dates are compared with the `Date` of the answer."""
    with HttpServer(answer(status, Retry_After=given, Date=DATE)) as server:
        sync.send(sync.retrying(STEADY), "GET", server.url)

    assert [wait] == sync.clock.waits


def test_a_retry_date_without_a_response_date_uses_the_clock(colour):
    """Without a `Date` in the answer, the present instant is that of the clock in force."""
    at = colour.clock.now() + timedelta(seconds=90)
    with HttpServer(answer(503, Retry_After=at.strftime("%a, %d %b %Y %H:%M:%S GMT"))) as server:
        colour.send(colour.retrying(STEADY), "GET", server.url)

    assert [90] == colour.clock.waits


def test_a_function_can_return_the_delay(colour):
    """Delays that `on` returns replace the backoff and what the server asks for."""
    with HttpServer(answer(503, Retry_After="20")) as server:
        colour.send(colour.retrying(STEADY.with_(on=lambda _: 0.25)), "GET", server.url)

    assert [0.25] == colour.clock.waits


@pytest.mark.parametrize("jitter", ["none", "full", "equal"])
def test_no_limit_shortens_a_hint(sync, jitter):
    """httpx-retries and urllib3 cut a long Retry-After to their own maximum and ask early; no backoff cuts ours."""
    policy = Policy(attempts=2, backoff=redrive.Backoff.exponential("100ms", "5s"), jitter=jitter, deadline=None)
    with HttpServer(answer(503, Retry_After="3600")) as server:
        sync.send(sync.retrying(policy), "GET", server.url)

    assert [3600] == sync.clock.waits


@pytest.mark.parametrize("limit", [{"deadline": "1m"}, {"max_hint": "1m"}])
def test_a_call_that_may_not_wait_so_long_gives_up(colour, limit):
    """If the policy has no time for the wait, the answer is returned at once, without an early attempt."""
    with HttpServer(answer(503, Retry_After="3600")) as server:
        response = colour.send(colour.retrying(STEADY.with_(**limit)), "GET", server.url)

    assert (503, [], 1) == (response.status_code, colour.clock.waits, len(server.executed))


# ------------------------------------------------------------------------------------------------------ handing it down


class Looking(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Notes the timeouts of each attempt, takes a while, and has no good news."""

    def __init__(self, clock, took=0.0):
        self.seen = []
        self._clock = clock
        self._took = took

    def handle_request(self, request):
        """Look, and let time pass."""
        self.seen.append(dict(request.extensions["timeout"]))
        self._clock.advance(self._took)
        return httpx.Response(503)

    async def handle_async_request(self, request):
        """Do the same as `handle_request`."""
        return self.handle_request(request)


def sooner(colour, *times):
    """In async code httpx ends a step a little before redrive would cut it off."""
    return [time - 0.05 if colour.is_async else time for time in times]


def test_the_deadline_is_passed_to_the_request(colour):
    """Each attempt's timeouts are the rest of the deadline, and at most those of the request."""
    inner = Looking(colour.clock, took=1)
    timeout = httpx.Timeout(None, connect=6)
    policy = Policy(attempts=9, deadline=10, backoff=Constant(3), jitter="none")
    colour.send(colour.retrying(policy, inner), "GET", "http://test/", timeout=timeout)

    assert sooner(colour, 10, 6, 2) == [seen["read"] for seen in inner.seen]
    assert [6, *sooner(colour, 6, 2)] == [seen["connect"] for seen in inner.seen]
    assert [seen["read"] for seen in inner.seen] == [seen["write"] for seen in inner.seen]
    assert [seen["read"] for seen in inner.seen] == [seen["pool"] for seen in inner.seen]


def test_the_attempt_timeout_is_passed_to_the_request(colour):
    """`attempt_timeout` limits each attempt."""
    inner = Looking(colour.clock)
    colour.send(colour.retrying(STEADY.with_(attempt_timeout=4), inner), "GET", "http://test/")

    assert sooner(colour, 4, 4) == [seen["read"] for seen in inner.seen]


def test_an_enclosing_deadline_is_passed_to_the_request(colour):
    """Deadlines of an outer call count, too."""
    inner = Looking(colour.clock)

    def above(client):
        return Policy(deadline=7, attempts=1, on=ValueError).call(client.get, "http://test/")

    async def aabove(client):
        return await Policy(deadline=7, attempts=1, on=ValueError).acall(client.get, "http://test/")

    colour.run(colour.retrying(STEADY, inner), aabove if colour.is_async else above)

    assert sooner(colour, 7, 7 - 1) == [seen["read"] for seen in inner.seen]


def test_without_a_deadline_timeouts_are_those_of_the_request(colour):
    """Without a deadline, the timeouts of the request are unchanged."""
    inner = Looking(colour.clock)
    colour.send(colour.retrying(STEADY, inner), "GET", "http://test/", timeout=httpx.Timeout(None, read=3))

    assert {"connect": None, "read": 3, "write": None, "pool": None} == inner.seen[0]


def test_each_step_gets_what_the_steps_before_have_left(sync):
    """After a slow connect the read has less time: the timeouts are updated at each step."""
    timeouts = []

    def trace(name, info):
        if name.endswith(".started"):
            timeouts.append((name, sync.request_timeout["read"]))
            sync.clock.advance(1)

    class Peeking(httpx.HTTPTransport):
        def handle_request(self, request):
            sync.request_timeout = request.extensions["timeout"]
            return super().handle_request(request)

    with HttpServer() as server:
        policy = Policy(deadline=10, attempts=2)
        sync.send(sync.retrying(policy, Peeking()), "GET", server.url, extensions={"trace": trace})
    reads = [left for name, left in timeouts if name in _STEPS]

    assert [10, 9, 8, 7] == reads


_STEPS = (
    "connection.connect_tcp.started",
    "http11.send_request_headers.started",
    "http11.send_request_body.started",
    "http11.receive_response_headers.started",
)

# -------------------------------------------------------------------------------------------------- what is cut off


class Deaf(Listener):
    """Accepts connections, and begins no TLS."""

    def _talk(self, connection, number, step):
        while connection.recv(1024):
            pass


def stages(error):
    """Return the stage of each attempt."""
    return [each.failure.stage for each in error.__retry__.timeline]


def test_an_attempt_without_an_answer_was_in_flight(sync):
    """Requests of method POST without an answer within the attempt's timeout are not sent again."""
    policy = STEADY.with_(attempt_timeout="50ms")
    with HttpServer(SLOW_HEAD) as server, pytest.raises(httpx.ReadTimeout) as caught:
        sync.send(sync.retrying(policy), "POST", server.url)

    assert (1, "not_idempotent") == (len(server.executed), caught.value.__retry__.rule)
    assert [Stage.IN_FLIGHT] == stages(caught.value)


def test_an_attempt_that_never_connects_was_not_sent(colour):
    """Requests of method POST that hang in the TLS handshake are sent again."""
    timeout = httpx.Timeout(60, connect=0.05)
    with Deaf() as server, pytest.raises(httpx.ConnectTimeout) as caught:
        colour.send(colour.retrying(STEADY), "POST", server.url.replace("http", "https"), timeout=timeout)

    assert [Stage.NOT_SENT] * 2 == stages(caught.value)


class HangingTransport(httpx.AsyncBaseTransport):
    """Comes as far as a step of httpcore's, and no further."""

    def __init__(self, step):
        self._step = step

    async def handle_async_request(self, request):
        """Never come back."""
        await request.extensions["trace"](self._step, {"request": httpcore.Request("POST", "http://test/")})
        await anyio.sleep_forever()


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("connection.start_tls.started", [Stage.NOT_SENT, Stage.NOT_SENT]),
        ("http11.send_request_headers.started", [Stage.IN_FLIGHT]),
        ("http2.send_request_headers.started", [Stage.IN_FLIGHT]),
    ],
)
def test_a_cancelled_attempt_has_the_stage_of_httpcore(acolour, step, expected):
    """If redrive itself cancels an attempt, the steps of httpcore decide whether it may be repeated."""
    policy = STEADY.with_(attempt_timeout="10ms")
    with pytest.raises(TimeoutError, match="attempt . of POST test took longer than 10ms") as caught:
        acolour.send(acolour.retrying(policy, HangingTransport(step)), "POST", "http://test/")

    assert expected == stages(caught.value)


def test_a_tunnel_that_is_not_opened_is_no_request(colour):
    """CONNECT requests to a proxy do not count as the request: a POST behind one is sent again."""
    with HttpServer(RESET_AFTER, answer(502)) as server, pytest.raises(httpx.TransportError) as caught:
        colour.send(colour.retrying(STEADY, colour.inner(proxy=server.url)), "POST", "https://shop.test/")

    assert ["CONNECT", "CONNECT"] == [each.method for each in server.executed]
    assert [Stage.NOT_SENT] * 2 == stages(caught.value)


def test_a_cancellation_passes(acolour):
    """Cancelled tasks end at once, and send no further request."""

    async def cancelled(client):
        async with anyio.create_task_group() as group:
            group.start_soon(client.get, server.url)
            await anyio.to_thread.run_sync(server.has_executed.wait, 60)
            group.cancel_scope.cancel()

    with HttpServer(SLOW_HEAD) as server:
        acolour.run(acolour.retrying(STEADY), cancelled)

    assert (1, []) == (len(server.executed), acolour.clock.waits)
