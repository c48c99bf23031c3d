"""The adapter for requests: what only it has."""

from __future__ import annotations

import io
import pickle
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import HTTPDigestAuth

from redrive.contrib.requests import RetryAdapter, failure_of
from redrive.errors import ConfigurationError
from redrive.policy import Backoff, Policy, Stage, known
from redrive.policy.failure import Lasting
from redrive.retrying import http
from redrive.testing import using
from tests.contrib.httpx.server import HALF_BODY, RESET_AFTER, HttpServer, answer, chunked

CUT = chunked(200, b"half", ends=False)
LARGE = b"x" * 200_000
STEADY = Policy(attempts=3, backoff=Backoff.constant(1), jitter="none")


@pytest.fixture
def session(of_requests):
    """Yield a session that retries, and waits in no time."""
    with using(clock=of_requests.clock), of_requests.session(of_requests.adapter(STEADY)) as made:
        yield made


# ---------------------------------------------------------------------------------------------------- bodies of answers


@pytest.mark.parametrize("step", [HALF_BODY, CUT], ids=["length", "chunks"])
def test_a_body_is_a_part_of_the_attempt(session, step):
    """An answer whose body breaks off is a failed attempt, with a length and without."""
    with HttpServer(step, answer()) as server:
        assert b"ok" == session.get(server.url).content
        assert 2 == len(server.executed)


@pytest.mark.parametrize("step", [HALF_BODY, CUT], ids=["length", "chunks"])
def test_a_streamed_body_is_left_to_the_caller(session, step):
    """With `stream=True` the caller reads the body, and gets the error if it breaks off."""
    with HttpServer(step) as server:
        response = session.get(server.url, stream=True)

        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            list(response.iter_content(10))
        assert 1 == len(server.executed)


def test_half_an_answer_to_a_post_raises_the_error_of_requests(session):
    """If half an answer to a POST came, the call ends with the error of requests, not with half a response."""
    with HttpServer(HALF_BODY) as server, pytest.raises(requests.exceptions.ChunkedEncodingError) as raised:
        session.post(server.url)

    assert ("not_idempotent", 1) == (raised.value.__retry__.rule, len(server.executed))


@pytest.mark.parametrize("body", [b"sorry", LARGE], ids=["short", "large"])
def test_the_last_failed_answer_can_be_streamed(session, body):
    """The last failed answer has its body, also if it is streamed."""
    with HttpServer(*[answer(503, body)] * 3) as server:
        response = session.get(server.url, stream=True)

        assert body == b"".join(response.iter_content(1000))
    assert 3 == len(server.executed)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body", [b"sorry", LARGE], ids=["short", "large"])
def test_a_waiting_call_holds_no_connection(of_requests, stream, body):
    """While a call waits, another one can use the only connection; a large answer that is streamed is closed."""
    adapter = of_requests.adapter(STEADY, pool_maxsize=1, pool_block=True)
    with HttpServer(answer(503, body), answer(), answer()) as server, of_requests.session(adapter) as session:
        if not (stream and body is LARGE):
            of_requests.clock.actions.append(lambda: session.get(server.url + "other"))
        with using(clock=of_requests.clock):
            response = session.get(server.url, stream=stream)

        assert (200, b"ok") == (response.status_code, response.content)


@pytest.mark.parametrize(("status", "connections"), [(421, 2), (503, 1)])
def test_a_misdirected_request_gets_another_connection(session, status, connections):
    """After a 421 the connection is not used again, since it leads to the wrong server; after a 503 it is."""
    with HttpServer(answer(status)) as server:
        assert (200, connections) == (session.get(server.url).status_code, server.connections)


# ------------------------------------------------------------------------------------------------------------- requests


def test_the_request_of_the_user_is_not_changed(session):
    """A prepared request keeps its headers and its body, and is that of the response and of the error."""
    session.get_adapter("http://").__dict__["_key"] = True
    body = (part for part in [b"a", b"b"])
    with HttpServer(answer(), RESET_AFTER) as server:
        request = requests.Request("POST", server.url, data=body).prepare()
        response = session.send(request)
        with pytest.raises(requests.ConnectionError) as raised:
            session.send(requests.Request("POST", server.url, data=iter([b"c"])).prepare())

    assert (body, None) == (request.body, request.headers.get(http.IDEMPOTENCY_KEY))
    assert (body, request.url) == (response.request.body, response.request.url)
    assert "POST" == raised.value.request.method


def test_a_header_may_be_bytes(session):
    """A key in bytes makes a request repeatable, too."""
    with HttpServer(answer(503)) as server:
        assert 200 == session.post(server.url, headers={"Idempotency-Key": b"one"}).status_code


def test_hooks_and_authentication_see_the_last_answer(session):
    """A hook is called once, and the requests of an authentication are retried."""
    challenge = answer(401, WWW_Authenticate='Digest realm="shop", nonce="1", qop="auth"')
    seen = []
    with HttpServer(answer(503), challenge, answer(503), answer()) as server:
        hooks = {"response": lambda response, **_: seen.append(response.status_code)}
        response = session.get(server.url, auth=HTTPDigestAuth("me", "secret"), hooks=hooks)

    assert (200, 4) == (response.status_code, len(server.executed))
    assert 200 in seen
    assert 503 not in seen


def test_a_file_without_a_place_is_sent_once(session):
    """A file that cannot tell where it stands is sent once."""

    class Strange(io.BytesIO):
        def tell(self):
            raise OSError("where?")

    with HttpServer(answer(503)) as server:
        assert 503 == session.put(server.url, data=Strange(b"hello")).status_code

    assert [b"hello"] == [each.body for each in server.executed]


def test_threads_share_an_adapter(session):
    """Calls of several threads have counters of their own."""
    with HttpServer(*[answer(503)] * 4) as server, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: session.get(server.url).status_code, range(4)))

    assert ([200] * 4, 8) == (found, len(server.executed))


@pytest.mark.parametrize("on", [None, requests.RequestException])
def test_a_wrong_address_is_not_tried_again(of_requests, on):
    """An address that cannot be used is an error at once, whatever class the policy names."""
    with pytest.raises(requests.exceptions.InvalidProxyURL) as raised:
        of_requests.send(STEADY.with_(on=on), "GET", "http://127.0.0.1:9/", proxy="http:///")

    assert [] == of_requests.clock.waits
    assert Lasting(stage=Stage.NOT_SENT) == failure_of(raised.value).lasting
    for error in (requests.exceptions.InvalidSchema(), requests.exceptions.MissingSchema()):
        assert known.describe(error).lasting is not None


# -------------------------------------------------------------------------------------------------------------- options


def test_the_retries_of_urllib3_are_refused():
    """`max_retries` is refused as an option and as an attribute, because both would retry."""
    with pytest.raises(ConfigurationError, match="max_retries: leave it at 0"):
        RetryAdapter("1 1s", max_retries=3)
    adapter = RetryAdapter("1 1s", max_retries=0, pool_maxsize=2)
    for wrong in (2, urllib3.Retry(2)):
        adapter.max_retries = wrong
        with pytest.raises(ConfigurationError, match="max_retries"):
            adapter.send(requests.Request("GET", "http://127.0.0.1:9/").prepare())


def test_a_session_can_be_pickled(of_requests):
    """A session goes to another process with the policy and the options of its adapters."""
    adapter = of_requests.adapter(STEADY.with_(attempts=2), idempotency_key=True, statuses=[404])
    session = pickle.loads(pickle.dumps(of_requests.session(adapter)))
    with HttpServer(answer(404), answer(404)) as server, using(clock=of_requests.clock), session:
        assert 404 == session.post(server.url).status_code

    assert 2 == len(server.executed)
    assert "idempotency-key" in server.executed[0].headers


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, [(10, 10), (6, 6)]),
        (7.5, [(7.5, 7.5), (6, 6)]),
        ((3, None), [(3, 10), (3, 6)]),
        (urllib3.Timeout(connect=8, read=2), [(8, 2), (6, 2)]),
    ],
)
def test_the_deadline_is_passed_to_the_request(of_requests, monkeypatch, given, expected):
    """The timeouts of each attempt are at most the rest of the deadline, and without one those of the request."""
    seen = []

    def look(_, request, stream, timeout, **__):
        seen.append(timeout)
        of_requests.clock.advance(1)
        raise requests.ConnectionError(request=request)

    monkeypatch.setattr(HTTPAdapter, "send", look)
    for deadline in (10, None):
        policy = Policy(attempts=2, deadline=deadline, backoff=Backoff.constant(3), jitter="none")
        with using(clock=of_requests.clock), pytest.raises(requests.ConnectionError):
            of_requests.session(RetryAdapter(policy)).get("http://test/", timeout=given)

    assert [*expected, given, given] == seen


# --------------------------------------------------------------------------------------------- errors of a plain client


def test_the_error_of_a_redirect_says_nothing_about_the_first_request(session):
    """If the target of a redirect cannot be reached, the POST before it was accepted."""
    with socket.socket() as closed, HttpServer() as server:
        closed.bind(("127.0.0.1", 0))
        there = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        for method, stage in (("POST", Stage.IN_FLIGHT), ("GET", Stage.ANSWERED)):
            server._script = [answer(302, Location=there)]
            with pytest.raises(requests.ConnectionError) as raised:
                requests.request(method, server.url, timeout=60)

            assert stage is failure_of(raised.value).stage is known.describe(raised.value).stage


def test_an_error_made_by_hand_is_no_answer():
    """An HTTPError without a response is an error like others."""
    assert "ERROR" == known.describe(requests.HTTPError("mine")).reason
    assert Stage.IN_FLIGHT is failure_of(requests.HTTPError("mine")).stage
