"""requests and aiohttp under a policy: what a server gets, for both clients alike."""

from __future__ import annotations

import gc
import io
import re
import socket
from contextlib import ExitStack, suppress
from datetime import timedelta

import pytest

import redrive
from redrive.contrib.http.models import for_models
from redrive.engine.lifecycle import State
from redrive.errors import CircuitOpen, PolicyValueError
from redrive.policy import Backoff, Failure, Policy, Rule, Stage, known
from redrive.policy.failure import Lasting
from redrive.retrying import BreakerSettings, Hedge, disabled, http, isolated
from redrive.testing import VirtualClock, drain, using
from tests.contrib.http.conftest import Proxy
from tests.contrib.httpx.server import (
    HALF_BODY,
    HALF_HEAD,
    RESET_AFTER,
    RESET_BEFORE,
    SLOW_BODY,
    SLOW_HEAD,
    HttpServer,
    answer,
    chunked,
)
from tests.contrib.httpx.test_stages import _Hanging as Hanging
from tests.contrib.httpx.test_stages import _page as documented

KEY = {http.IDEMPOTENCY_KEY: '"one"'}
REQUESTS = {
    "GET": {"method": "GET"},
    "POST": {"method": "POST", "data": b"body"},
    "POST with a key": {"method": "POST", "data": b"body", "headers": KEY},
}
STEADY = Policy(attempts=3, backoff=Backoff.constant(1), jitter="none")

# Tests use certificates that are not trusted.
pytestmark = pytest.mark.filterwarnings("ignore:Unverified HTTPS request")


def count(client, policy, *script, method="GET", **request):
    """Return the number of times that a server executes a request under a policy."""
    with HttpServer(*script) as server, suppress(client.errors):
        client.send(policy, method, server.url, **request)
    return len(server.executed)


# ------------------------------------------------------------------------------------------------------- how far it got


class Play:
    """One request with a first attempt that fails."""

    def __init__(self, client, stack, monkeypatch, self_signed):
        self.client = client
        self._stack = stack
        self._monkeypatch = monkeypatch
        self._self_signed = self_signed
        self.server = None

    def scripted(self, step, **request):
        """Send to a server that runs this step first."""
        return self._send(HttpServer(step), **request)

    def _send(self, server, *, name="127.0.0.1", **request):
        self.server = self._stack.enter_context(server)
        return self.client.send("1 1s", url=self.server.url.replace("127.0.0.1", name), **request)

    def refused(self, **request):
        """Send to a port without a listener."""
        server = HttpServer(listens=False)
        self.client.clock.actions.append(server.listen)
        return self._send(server, **request)

    def not_found(self, **request):
        """Send while no name can be resolved."""

        def unknown(*_, **__):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        self._monkeypatch.setattr(socket, "getaddrinfo", unknown)
        self.client.clock.actions.append(self._monkeypatch.undo)
        return self._send(HttpServer(), name="localhost", **request)

    def not_trusted(self, **request):
        """Use a self-signed certificate."""
        return self._send(HttpServer(tls=self._self_signed), verify=True, **request)

    def broken_tls(self, **request):
        """Send to a server that closes the connection in the handshake."""
        return self._send(Hanging(tls=self._self_signed), **request)


PLAYS = {
    "name not found": [Play.not_found],
    "connection refused": [Play.refused],
    "TLS handshake broken off": [Play.broken_tls],
    "certificate not trusted": [Play.not_trusted],
    "reset before the request was read": [lambda play, **more: play.scripted(RESET_BEFORE, **more)],
    "reset after the request was read": [lambda play, **more: play.scripted(RESET_AFTER, **more)],
    "half a head": [lambda play, **more: play.scripted(HALF_HEAD, **more)],
    "half a body": [lambda play, **more: play.scripted(HALF_BODY, **more)],
    "no head in time": [lambda play, **more: play.scripted(SLOW_HEAD, hasty=True, **more)],
    "no body in time": [lambda play, **more: play.scripted(SLOW_BODY, hasty=True, **more)],
    "503": [lambda play, **more: play.scripted(answer(503), **more)],
    "429, 425, 421 or 408": [
        lambda play, status=status, **more: play.scripted(answer(status), **more) for status in (429, 425, 421, 408)
    ],
    "409": [lambda play, **more: play.scripted(answer(409), **more)],
    "404 or 501": [lambda play, status=status, **more: play.scripted(answer(status), **more) for status in (404, 501)],
}


# Python's http.client takes a head that breaks off for a whole one.
WHOLE = ("requests", "half a head")


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("name", PLAYS)
def test_requests_are_repeated_as_documented(client, name, kind, monkeypatch, self_signed):
    """A server executes a request as often as the table of httpx has it."""
    row = [1, 1, 1] if (client.name, name) == WHOLE else documented()[name]
    expected = row[list(REQUESTS).index(kind)]
    for play in PLAYS[name]:
        with ExitStack() as stack:
            scenario = Play(client, stack, monkeypatch, self_signed)
            with suppress(client.errors):
                play(scenario, **REQUESTS[kind])
            # An error of urllib3 has its pool in a cycle, whose connections end with it.
            gc.collect()
        assert [REQUESTS[kind]["method"]] * expected == [each.method for each in scenario.server.executed]


@pytest.mark.parametrize(("method", "expected"), [("GET", 3), ("POST", 1)])
def test_a_connection_that_is_closed_was_in_flight(client, method, expected):
    """A connection that the server closes without an answer is repeated if the method allows it."""
    assert expected == count(client, "2 1s", *[lambda _: False] * 2, method=method)


@pytest.mark.parametrize(
    "first",
    [b"HTTP/1.1 503 Busy\r\n\r\n", b"HTTP/1.1 407 Who?\r\nContent-Length: 0\r\n\r\n", b"", None],
    ids=["503", "407", "close", "silent"],
)
def test_a_proxy_that_opens_no_tunnel_has_sent_nothing(client, self_signed, first):
    """A POST is repeated if the proxy refuses the tunnel, breaks off, or does not answer in time."""
    with HttpServer(tls=self_signed) as server, Proxy(first) as proxy:
        hasty = "connect" if first is None else False
        got = client.send("1 1s", "POST", server.url, data=b"body", proxy=proxy.url, hasty=hasty)

    assert (200, 2, ["POST"]) == (got.status, proxy.connects, [each.method for each in server.executed])


def test_a_proxy_that_is_down_has_sent_nothing(client):
    """A POST is repeated if there is no connection to the proxy."""
    with socket.socket() as closed, HttpServer() as server:
        closed.bind(("127.0.0.1", 0))
        error = client.caught(
            "2 1s", "POST", server.url, data=b"x", proxy=f"http://127.0.0.1:{closed.getsockname()[1]}"
        )

    assert (3, [Stage.NOT_SENT] * 3) == (
        error.__retry__.attempts,
        [each.failure.stage for each in error.__retry__.timeline],
    )


# --------------------------------------------------------------------------------------------------- answers and hints


def test_a_hint_is_a_lower_bound(client):
    """The next attempt does not come before the server asks for it."""
    with HttpServer(answer(429, Retry_After="20")) as server:
        got = client.send("2 1s", "POST", server.url)

    assert ([20], "ok") == (client.clock.waits, got.record.rule)


def test_the_last_answer_is_returned(client):
    """A caller gets the last answer with its body, and the record of the attempts."""
    with HttpServer(*[answer(503, b"sorry")] * 9) as server:
        got = client.send(STEADY, "GET", server.url)

    assert (503, b"sorry", 3) == (got.status, got.body, got.record.attempts)
    assert ["HTTP_503"] * 3 == [each.failure.reason for each in got.record.timeline]


def test_a_truncated_failed_answer_is_repeated_by_its_status(client):
    """If the body of the last failed answer breaks off, its reader gets the error."""
    broken = chunked(503, b"half", ends=False)
    with HttpServer(broken, broken, broken, broken) as server:
        client.caught("1 1s", "GET", server.url)

    assert 2 == len(server.executed)


def test_requests_to_models_are_repeated(client):
    """A policy for models is idempotent, and reads the headers of AI services."""
    assert 2 == count(client, for_models(STEADY), answer(529, retry_after_ms="3500"), method="POST")
    assert 1 == count(client, for_models(STEADY), answer(503, x_should_retry="false"), method="POST")
    assert [3.5] == client.clock.waits


def test_each_hop_of_a_redirect_is_retried(client):
    """A redirect is two requests, and each has its own attempts."""
    with HttpServer(answer(503), answer(302, Location="/there"), answer(503), answer()) as server:
        got = client.send("1 1s", "GET", server.url)

    assert 200 == got.status
    assert ["/", "/", "/there", "/there"] == [each.target for each in server.executed]


def test_a_post_is_not_sent_again_because_its_redirect_fails(client):
    """The target of a redirect is a request of its own, so the request before it is sent once."""
    with HttpServer(answer(302, Location="/there"), *[answer(503)] * 9) as server:
        got = client.send("2 1s", "POST", server.url, data=b"x")

    assert (503, ["POST", "GET", "GET", "GET"]) == (got.status, [each.method for each in server.executed])


# ---------------------------------------------------------------------------------------------------------------- keys


def test_all_attempts_have_the_same_key(client):
    """A request that needs a key gets one for all its attempts, and the next one another."""
    with HttpServer(RESET_AFTER, answer(503), answer(), answer()) as server:
        for method in ("POST", "POST", "GET"):
            client.send("3 1s", method, server.url, options={"idempotency_key": True})
    keys = [each.headers.get("idempotency-key") for each in server.executed]

    assert keys[0] == keys[1] == keys[2]
    assert (2, None) == (len({keys[0], keys[3]}), keys[4])


def test_a_key_may_come_from_a_function(client):
    """A function of the request returns the unique part of the key, and a key that is there is kept."""
    options = {"idempotency_key": lambda request: f"{request.method}-7"}
    with HttpServer(answer(503)) as server:
        client.send("3 1s", "POST", server.url, options=options)
        client.send("3 1s", "POST", server.url, options=options, headers={http.IDEMPOTENCY_KEY: "mine"})
        client.send("3 1s", "POST", server.url, options={"idempotency_key": lambda _: None})

    assert ['"POST-7"'] * 2 + ["mine", None] == [each.headers.get("idempotency-key") for each in server.executed]


# -------------------------------------------------------------------------------------------------------------- bodies


class Pipe(io.RawIOBase):
    """A file that cannot seek."""

    def __init__(self, data):
        super().__init__()
        self._data = io.BytesIO(data)

    def readable(self):
        """Say yes."""
        return True

    def readinto(self, buffer):
        """Read."""
        return self._data.readinto(buffer)


def standing(data, place):
    """Return a file that stands at a place."""
    file = io.BytesIO(data)
    file.seek(place)
    return file


def generated(client):
    """Return a body that can be read once."""
    if client.name == "requests":
        return (part for part in (b"he", b"llo"))

    async def parts():
        yield b"he"
        yield b"llo"

    return parts()


@pytest.mark.parametrize("step", [answer(503), RESET_AFTER], ids=["503", "lost"])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda _: b"hello", b"hello"),
        (lambda _: "hello", b"hello"),
        (lambda _: io.BytesIO(b"hello"), b"hello"),
        (lambda _: standing(b"hello", 2), b"llo"),
        (lambda folder: (folder / "a").write_bytes(b"hello") and (folder / "a").open("rb"), b"hello"),
        (lambda _: {"a": "b"}, b"a=b"),
    ],
    ids=["bytes", "text", "file", "half read", "on disk", "form"],
)
def test_a_body_that_can_be_read_again_is_sent_again(client, step, body, expected, tmp_path):
    """Each attempt sends the same body; a file from where it stood."""
    data = body(tmp_path)
    with HttpServer(step, step) as server:
        client.send("2 1s", "PUT", server.url, data=data)
    if hasattr(data, "close"):
        data.close()

    assert [expected] * 3 == [each.body for each in server.executed]


@pytest.mark.parametrize("step", [answer(503), RESET_AFTER], ids=["503", "lost"])
@pytest.mark.parametrize("body", [generated, lambda _: Pipe(b"hello")], ids=["generator", "pipe"])
def test_a_body_that_was_read_is_not_sent_again(client, step, body):
    """A stream is sent once, never as an empty or a shorter one; the record names the reason."""
    with HttpServer(step) as server:
        try:
            record = client.send("2 1s", "PUT", server.url, data=body(client)).record
        except client.errors as error:
            record = error.__retry__

    assert [b"hello"] == [each.body for each in server.executed]
    assert ("permanent", "stream that has been read") == (
        record.rule,
        re.search("stream that .* read(?= and)", record.why)[0],
    )


@pytest.mark.parametrize("body", [generated, lambda _: Pipe(b"hello")], ids=["generator", "pipe"])
def test_a_stream_that_was_not_read_is_sent(client, body):
    """A stream is sent by the second attempt if the first had no connection."""
    server = HttpServer(listens=False)
    client.clock.actions.append(server.listen)
    with server:
        client.send("2 1s", "POST", server.url, data=body(client))

    assert [b"hello"] == [each.body for each in server.executed]


# --------------------------------------------------------------------------------------------------- whose policy it is


@pytest.mark.parametrize(
    ("fields", "calls"),
    [
        ({"on": "HTTP_404"}, [3, 1]),
        ({"rules": [Rule("HTTP_404")]}, [3, 1]),
        ({"on": lambda _: True}, [3, 1]),
        ({"on": lambda _: "HTTP_404"}, [3, 1]),
        ({"on": lambda _: 0.01}, [3, 1]),
        ({"on": lambda error: Failure.of(error, stage=Stage.NOT_SENT)}, [3, 3]),
        ({"idempotent": True, "on": "HTTP_404"}, [3, 3]),
        ({}, [1, 1]),
    ],
    ids=["reason", "rule", "yes", "name", "delay", "failure", "idempotent", "none"],
)
def test_an_answer_that_a_policy_names_is_retried(client, fields, calls):
    """A status that is named is retried, in whatever way, but not after a POST: it may have had an effect."""
    script = [answer(404), answer(404)]

    assert calls == [count(client, STEADY.with_(**fields), *script, method=method) for method in ("GET", "POST")]


def test_statuses_and_methods_can_be_chosen(client):
    """The options of the client replace the statuses and the methods."""
    named = {"options": {"statuses": [404, 423]}}

    assert [2, 1] == [count(client, STEADY, answer(status), **named) for status in (404, 503)]
    assert 2 == count(client, STEADY, answer(503), method="POST", options={"methods": ["POST"]})
    assert 1 == count(client, STEADY, answer(503), options={"methods": ["POST"]})
    assert 1 == count(client, STEADY, RESET_AFTER, options={"methods": ["POST"]})


def test_a_success_can_be_rejected(client):
    """`on_result` sees each answer, also a good one."""

    def rejects(response):
        return response.headers["X-Ready"] == "no"

    assert 2 == count(client, STEADY.with_(on_result=rejects), answer(X_Ready="no"), answer(X_Ready="yes"))
    assert 2 == count(client, STEADY.with_(on="HTTP_202"), answer(202))


def test_without_a_policy_there_are_three_attempts(client):
    """By default there are three attempts."""
    assert 3 == count(client, None, *[answer(503)] * 5)


def test_a_policy_can_be_overridden_or_switched_off(client):
    """`policy.override` and `redrive.disabled` reach the requests made inside of them."""
    with STEADY.override(attempts=2):
        assert 2 == count(client, STEADY, *[answer(503)] * 5)
    with disabled():
        assert 1 == count(client, STEADY, *[answer(503)] * 5)


def test_a_breaker_refuses(client):
    """An open breaker raises `CircuitOpen`, and no request is sent."""
    with isolated():
        redrive.retrying.breaker("shop", BreakerSettings(volume_threshold=1))
        policy = STEADY.with_(breaker="shop", attempts=1)
        count(client, policy, answer(503))

        with pytest.raises(CircuitOpen, match="GET 127.0.0.1 was not called"), HttpServer() as server:
            client.send(policy, "GET", server.url)


@pytest.mark.parametrize(
    ("policy", "options", "error", "match"),
    [
        (3, {}, TypeError, r"\(\) takes a policy or a directive, not 3"),
        ("5 1s catch clean_up", {}, PolicyValueError, "catch='clean_up'"),
        ("five", {}, redrive.errors.PolicySyntaxError, "five"),
        (Policy(hedge=Hedge("1s"), idempotent=True), {}, PolicyValueError, "only AsyncRetryTransport makes copies"),
        (STEADY, {"statuses": [999]}, PolicyValueError, "999 is no status"),
        (STEADY, {"methods": ["CONNECT"]}, PolicyValueError, "it opens a tunnel"),
        (Policy(attempts=9) & STEADY, {}, PolicyValueError, "two policies cannot both read"),
    ],
)
def test_what_is_not_valid_is_refused_at_creation(client, policy, options, error, match):
    """Policies and options are checked when they are given, and not at the first failure."""
    with pytest.raises(error, match=match):
        client.send(policy, "GET", "http://127.0.0.1:9/", options=options)


# ---------------------------------------------------------------------------------------------- other layers of retries


def test_a_retried_function_retries_alone(client):
    """Under a function that is retried the client makes one attempt each time."""
    policy = STEADY.with_(on=Exception)
    with HttpServer(*[answer(503)] * 9) as server, using(clock=client.clock):

        def ask():
            got = client.send("5 1s", "GET", server.url)
            assert "nested" == got.record.rule
            raise OSError(got.status)

        with pytest.raises(OSError, match="503"):
            policy.call(ask)

    assert 3 == len(server.executed)


@pytest.mark.parametrize(
    ("method", "step", "key", "expected"),
    [
        ("GET", answer(503, Retry_After="7"), None, ("HTTP_503", Stage.ANSWERED, timedelta(seconds=7), None)),
        ("POST", answer(503), None, ("HTTP_503", Stage.IN_FLIGHT, None, None)),
        ("POST", answer(503), "one", ("HTTP_503", Stage.ANSWERED, None, None)),
        ("GET", answer(404), None, ("HTTP_404", Stage.ANSWERED, None, Lasting())),
        ("POST", answer(404), None, ("HTTP_404", Stage.ANSWERED, None, Lasting(stage=Stage.IN_FLIGHT))),
        ("POST", RESET_AFTER, None, ("ERROR", Stage.IN_FLIGHT, None, None)),
        ("POST", HALF_BODY, None, ("ERROR", Stage.IN_FLIGHT, None, None)),
    ],
    ids=["503", "503 POST", "503 key", "404", "404 POST", "lost", "half"],
)
def test_errors_of_a_plain_client_are_described(client, method, step, key, expected):
    """Errors of a plain client are described wherever a policy meets them, and by `failure_of`."""
    with HttpServer(*[step] * 2) as server, pytest.raises(client.errors) as raised:
        client.plain(method, server.url, key=key)
    described, read = known.describe(raised.value), client.module.failure_of(raised.value)

    assert expected == (described.reason, described.stage, described.hint, described.lasting)
    assert expected == (read.reason, read.stage, read.hint, read.lasting)


def test_other_errors_are_not_read(client):
    """Exceptions that do not come from a request are not described, and options are checked."""
    assert None is client.module.failure_of(ValueError("mine"))
    assert None is client.module.failure_of(TimeoutError("whose?"))
    with pytest.raises(PolicyValueError, match="999"):
        client.module.failure_of(statuses=[999])


def test_a_job_with_a_plain_client_waits_as_long_as_the_server_asks(client):
    """A job is repeated after a 503, not before its hint, and ends at a 404, which it would get again."""
    app = redrive.App("memory://", clock=VirtualClock())

    @app.task(retry="5 1s")
    def ask() -> None:
        client.plain("GET", server.url)

    with HttpServer(answer(503, Retry_After="70"), answer(), answer(404)) as server:
        later = ask.enqueue()
        took = drain(app).took
        never = ask.enqueue()
        drain(app)

    assert [(State.SUCCEEDED, 2), (State.DEAD, 1)] == [
        (job.refresh().state, len(job.attempts)) for job in (later, never)
    ]
    assert timedelta(seconds=70) == took
