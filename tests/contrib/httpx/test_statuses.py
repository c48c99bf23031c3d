"""Statuses and methods that a user names: in a policy, as options of a transport, and for a plain client."""

from __future__ import annotations

import asyncio
import contextlib
import pickle

import httpx
import pytest

import redrive
from redrive.contrib.httpx import AsyncRetryTransport, RetryTransport, failure_of
from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Policy, Rule, reading
from tests.contrib.httpx.server import HttpServer, answer
from tests.contrib.httpx.test_policies import STEADY, count

NAMING = {
    "reason": {"on": "HTTP_404"},
    "among others": {"on": (httpx.TransportError, "HTTP_404")},
    "yes": {"on": lambda _: True},
    "delay": {"on": lambda _: 0.01},
    "name": {"on": lambda _: "HTTP_404"},
    "rule": {"rules": [Rule("HTTP_404")]},
    "rule of a class": {"on": httpx.HTTPStatusError, "rules": [Rule("HTTP_404")]},
    "result": {"on": httpx.TransportError, "on_result": lambda response: response.status_code == 404},
    "only a result": {"on_result": lambda response: response.status_code == 404},
}


@pytest.mark.parametrize("fields", NAMING.values(), ids=NAMING)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_answer_that_a_policy_names_is_retried(colour, fields, method):
    """A status that is named is retried, in whatever way, but not after a POST: it may have had an effect."""
    calls = count(colour, STEADY.with_(**fields), answer(404), answer(404), method=method)

    assert {"GET": 3, "POST": 1}[method] == calls


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 412, 418, 422, 423, 501, 505, 511])
def test_every_status_can_be_named(colour, status):
    """Each status that is not retried by itself is retried if it is named; its hint is a lower bound."""
    policy = STEADY.with_(on=f"HTTP_{status}")

    assert 2 == count(colour, policy, answer(status, Retry_After="9"))
    assert 2 == count(colour, policy.with_(idempotent=True), answer(status), method="POST")
    assert 1 == count(colour, STEADY, answer(status))
    assert [9] == colour.clock.waits[:1]


def test_a_success_can_be_named(colour):
    """A status below 400 is a failed attempt for a policy that names it, and its last answer is returned."""
    assert 2 == count(colour, STEADY.with_(on="HTTP_202"), answer(202))
    assert 1 == count(colour, STEADY.with_(on="HTTP_202"), answer(202), method="POST")
    assert 1 == count(colour, STEADY, answer(202))


def test_an_asked_function_may_be_a_coroutine_function():
    """An async transport awaits the functions that choose answers."""

    async def on(error):
        return isinstance(error, httpx.ConnectError)

    async def on_result(response):
        return response.status_code == 404

    async def requests(policy):
        seen = []

        def reply(request):
            seen.append(request)
            return httpx.Response(404)

        async with httpx.AsyncClient(transport=AsyncRetryTransport(policy, httpx.MockTransport(reply))) as client:
            await client.get("http://test/")
        return len(seen)

    policy = Policy(attempts=2, backoff=Backoff.constant(0))
    results, errors = {"on_result": on_result}, {"on": on}
    chosen = [results, errors, {**results, **errors}, {**errors, "on_result": _is_404}]
    assert [2, 1, 2, 2] == [asyncio.run(requests(policy.with_(**each))) for each in chosen]


def _is_404(response):
    return response.status_code == 404


def test_a_refusal_names_the_reason(colour):
    """The record of an answer that is not retried has its status, not only the class of an exception."""
    with HttpServer(answer(402)) as server:
        record = colour.send(colour.retrying(STEADY), "GET", server.url).extensions["redrive"]

    name = f"HTTP_402 ({httpx.__name__}.HTTPStatusError)"
    assert f"{name} is not one of the failures that this policy retries" == record.why


@pytest.mark.parametrize(
    ("options", "method", "status", "calls"),
    [
        ({"statuses": [404, 503]}, "GET", 404, 2),
        ({"statuses": [404]}, "GET", 503, 1),
        ({"statuses": [404]}, "POST", 404, 1),
        ({"statuses": [404], "methods": ["get", "post"]}, "POST", 404, 2),
        ({"methods": ["GET"]}, "PUT", 503, 1),
        ({"methods": ["GET"]}, "POST", 429, 1),
        ({"methods": ["POST"]}, "POST", 503, 2),
        ({"statuses": range(200, 300)}, "GET", 200, 3),
        ({"statuses": []}, "GET", 503, 1),
    ],
)
def test_statuses_and_methods_are_options(options, method, status, calls):
    """Transports and `failure_of` take the statuses and the methods that users of urllib3 name, with one meaning."""
    answers = []

    def reply(request):
        answers.append(request)
        return httpx.Response(status if len(answers) < 2 or status == 200 else 201)

    policy = Policy(attempts=3, backoff=Backoff.constant(0))
    with httpx.Client(transport=RetryTransport(policy, httpx.MockTransport(reply), **options)) as client:
        client.request(method, "http://test/")
    assert calls == len(answers)
    if status == 200:
        return
    answers.clear()

    @redrive.retry(policy.with_(on=failure_of(**options)))
    def call():
        with httpx.Client(transport=httpx.MockTransport(reply)) as client:
            return client.request(method, "http://test/").raise_for_status()

    with contextlib.suppress(httpx.HTTPStatusError):
        call()
    assert calls == len(answers)


@pytest.mark.parametrize(("method", "error", "calls"), [("PUT", httpx.ReadError, 1), ("PUT", httpx.ConnectError, 3)])
def test_methods_hold_for_lost_connections(method, error, calls):
    """A request of another method is repeated only if it was not sent."""
    sent = []

    def reply(request):
        sent.append(request)
        raise error("gone")

    policy = Policy(attempts=3, backoff=Backoff.constant(0))
    inner = httpx.MockTransport(reply)
    with httpx.Client(transport=RetryTransport(policy, inner, methods=["GET"])) as client, pytest.raises(error):
        client.request(method, "http://test/")

    assert calls == len(sent)


@pytest.mark.parametrize("make", [RetryTransport, AsyncRetryTransport, failure_of])
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"statuses": [404, 999]}, "statuses: 999 is no status of HTTP: give whole numbers from 200 to 599"),
        ({"statuses": ["404"]}, "statuses: '404' is no status"),
        ({"statuses": [True]}, "statuses: True is no status"),
        ({"statuses": 404}, r"statuses=404: give a list, as in statuses=\[404, 503\]"),
        ({"methods": ["GTE"]}, "methods: 'GTE' is no method of HTTP that can be repeated"),
        ({"methods": ["CONNECT"]}, "it opens a tunnel"),
        ({"methods": "GET"}, "methods='GET': give a list"),
        ({"methods": [1]}, "methods: 1 is no method"),
    ],
)
def test_unknown_statuses_and_methods_are_refused(make, options, match):
    """A status or a method that does not exist is an error where it is given."""
    with pytest.raises(PolicyValueError, match=match):
        make(**options)


@pytest.mark.parametrize("name", ["HTTP_999", "HTTP_40", "HTTP_5XX", "HTTP_4044", "HTTP_100", "HTTP_0404"])
def test_unknown_statuses_in_policies_are_refused(name):
    """The reason of a status that does not exist is an error where the policy is made."""
    with pytest.raises(PolicyValueError, match=f"{name} names no status of HTTP"):
        Policy(on=name)
    with pytest.raises(PolicyValueError, match=f"{name} names no status of HTTP"):
        Rule(name)


# ------------------------------------------------------------------------------------------ functions of a plain client


class ShopError(Exception):
    """An error of the application."""


PLAIN = [
    ({"on": "HTTP_404"}, "GET", 3),
    ({"on": "HTTP_404"}, "POST", 1),
    ({"on": "HTTP_404", "idempotent": True}, "POST", 3),
    ({"on": httpx.HTTPStatusError}, "GET", 3),
    ({"on": httpx.HTTPStatusError}, "POST", 1),
    ({"on": lambda _: True}, "GET", 3),
    ({"on": lambda _: True}, "POST", 1),
    ({"on": reading(failure_of, "HTTP_404")}, "GET", 3),
    ({"on": reading(failure_of, "HTTP_404")}, "POST", 1),
    ({"on": reading(failure_of, httpx.HTTPStatusError)}, "GET", 1),
    ({"on": failure_of}, "GET", 1),
    ({"on": OSError}, "GET", 1),
]


def requests_of(method, fields, chain=lambda error: error):
    """Return how often a function that raises for a 404 is called under a policy; a coroutine function as often."""
    seen = []
    policy = Policy(attempts=3, backoff=Backoff.constant(0), **fields)

    def fail():
        seen.append(method)
        try:
            httpx.Response(404, request=httpx.Request(method, "http://test/")).raise_for_status()
        except httpx.HTTPStatusError as error:
            made = chain(error)
            raise made from made.__cause__

    async def afail():
        fail()

    with contextlib.suppress(httpx.HTTPStatusError, ShopError):
        policy.call(fail)
    with contextlib.suppress(httpx.HTTPStatusError, ShopError):
        asyncio.run(policy.acall(afail))
    return len(seen) / 2


@pytest.mark.parametrize(("fields", "method", "calls"), PLAIN, ids=range(len(PLAIN)))
def test_names_hold_for_a_plain_client(fields, method, calls):
    """A function is called again for a status that its policy names, as far as the request may be repeated."""
    assert calls == requests_of(method, fields)


@pytest.mark.parametrize("on", ["HTTP_404", ShopError, lambda _: True], ids=["reason", "class", "function"])
def test_an_error_that_is_raised_from_a_status_has_it(on):
    """An error of the application that was raised ``from`` one of httpx has its status."""

    def wrapped(error):
        made = ShopError()
        made.__cause__ = error
        return made

    def chained(method):
        return requests_of(method, {"on": on}, wrapped)

    assert [3, 1] == [chained(method) for method in ("GET", "POST")]


def test_a_classifier_with_statuses_survives_pickling():
    """`failure_of` with options goes to other processes, as functions do."""
    read = pickle.loads(pickle.dumps(failure_of(statuses=[404])))
    request = httpx.Request("GET", "http://test/")
    error = httpx.HTTPStatusError("", request=request, response=httpx.Response(404, request=request))

    assert None is read(error).lasting
    assert None is not failure_of(error).lasting
