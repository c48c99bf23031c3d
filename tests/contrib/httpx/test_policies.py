"""Which policy a request goes by, and what a transport accepts as one."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

import httpx
import pytest

import redrive
from redrive.contrib.httpx import AsyncRetryTransport, RetryTransport, failure_of
from redrive.errors import CircuitOpen, PolicyValueError
from redrive.policy import Failure, Jitter, Policy, Rule, Stage
from redrive.policy.backoff_kinds import Constant
from redrive.policy.failure import Lasting
from redrive.retrying import Hedge, disabled, http, isolated
from tests.contrib.httpx.server import RESET_AFTER, RESET_BEFORE, HttpServer, answer

UNSENT = Lasting(stage=Stage.NOT_SENT)
STEADY = Policy(attempts=3, backoff=Constant(1), jitter=Jitter.none)


def count(colour, policy, *script, method="GET", **request):
    """Return the number of times that a server executes a request under a policy."""
    with HttpServer(*script) as server, contextlib.suppress(httpx.TransportError):
        colour.send(colour.retrying(policy), method, server.url, **request)
    return len(server.executed)


# --------------------------------------------------------------------------------------------------------- whose policy


def test_the_transport_of_the_other_client_is_named():
    """A client asks its transport for methods of its own colour; the error has the class that has them."""

    async def get(transport):
        await httpx.AsyncClient(transport=transport).get("http://localhost/")

    with pytest.raises(AttributeError, match=r"in redrive: AsyncRetryTransport, for an httpx.AsyncClient$"):
        asyncio.run(get(RetryTransport()))
    with pytest.raises(AttributeError, match=r"in redrive: RetryTransport, for an httpx.Client$"):
        httpx.Client(transport=AsyncRetryTransport()).get("http://localhost/")


@pytest.mark.parametrize("kind", [RetryTransport, AsyncRetryTransport])
def test_an_unknown_option_of_a_transport_is_answered(kind):
    """The retries are those of the policy."""
    with pytest.raises(
        TypeError, match=r'^RetryTransport\(\) has no option retries=: .* RetryTransport\("5 100ms 5s"\)$'
    ):
        kind(retries=3)
    with pytest.raises(TypeError, match=r"has no option metods=: did you mean methods=\?$"):
        kind(metods=["POST"])


def test_without_a_policy_there_are_three_attempts(colour):
    """By default there are three attempts."""
    assert 3 == count(colour, None, *[answer(503)] * 5)


def test_a_request_may_bring_its_own_policy(colour):
    """Requests may have their own policy in the extension `redrive`."""
    assert 2 == count(colour, STEADY, *[answer(503)] * 5, extensions={"redrive": Policy(attempts=2)})


def test_a_policy_can_be_overridden(colour):
    """`transport.policy.override` reaches the requests made inside of it."""
    with STEADY.override(attempts=1), Policy(attempts=7).override(attempts=8):
        assert 1 == count(colour, STEADY, *[answer(503)] * 5)
    assert 3 == count(colour, STEADY, *[answer(503)] * 5)


def test_retries_can_be_switched_off(colour):
    """Under `redrive.disabled()` a transport sends each request once."""
    with disabled():
        assert 1 == count(colour, STEADY, *[answer(503)] * 5)


def test_an_extension_that_is_no_policy_is_refused(colour):
    """Extensions that are not a policy are refused by name."""
    with pytest.raises(TypeError, match="extensions={'redrive': 3}: give a redrive.Policy"):
        count(colour, STEADY, extensions={"redrive": 3})


def test_a_policy_may_have_limits(colour):
    """Policies with a limit, as of `at_least`, are accepted and classify requests."""
    policy = STEADY.at_least("2s")

    assert [3, 1] == [count(colour, policy, *[RESET_AFTER] * 9, method=method) for method in ("GET", "POST")]
    assert [2, 2] == colour.clock.waits


def test_two_policies_are_refused():
    """Two policies that would both have to read requests are refused, with what to do instead."""
    with pytest.raises(PolicyValueError, match="give the transport one, or retry the function"):
        RetryTransport(Policy(attempts=9) & STEADY)


# -------------------------------------------------------------------------------------------------------- what it says


@pytest.mark.parametrize(
    ("on", "calls"),
    [
        ("HTTP_503", [2, 1]),
        (httpx.TransportError, [1, 2]),
        ((httpx.TransportError, "HTTP_503"), [2, 2]),
        (lambda error: isinstance(error, httpx.HTTPStatusError), [2, 1]),
        (lambda error: "MINE" if isinstance(error, httpx.TransportError) else None, [1, 2]),
        (lambda error: Failure.of(error, stage=Stage.NOT_SENT), [2, 2]),
    ],
    ids=["status", "errors", "both", "function", "reason", "failure"],
)
def test_on_restricts_the_retried_failures(colour, on, calls):
    """Policies may restrict what is retried, by names or by a function."""
    policy = STEADY.with_(on=on)

    assert calls == [count(colour, policy, answer(503)), count(colour, policy, RESET_AFTER)]


@pytest.mark.parametrize("on", [lambda _: True, lambda _: "MINE", httpx.TransportError], ids=["yes", "reason", "class"])
def test_on_does_not_make_a_request_repeatable(colour, on):
    """Whatever `on` matches, a POST with unknown effect is not sent again."""
    assert 1 == count(colour, STEADY.with_(on=on), RESET_AFTER, method="POST")


def test_rules_can_name_statuses(colour):
    """Rules can name a status."""
    policy = STEADY.with_(rules=[Rule("HTTP_429", attempts=5)])

    assert [3, 5] == [count(colour, policy, *[answer(status)] * 9) for status in (503, 429)]


@pytest.mark.parametrize(("idempotent", "calls"), [(None, [2, 1]), (True, [2, 2]), (False, [1, 1])])
def test_the_idempotence_of_a_policy_holds_for_all_requests(colour, idempotent, calls):
    """`idempotent` of a policy holds for all requests; left open, it is that of the request."""
    policy = STEADY.with_(idempotent=idempotent)

    assert calls == [count(colour, policy, RESET_AFTER, method=method) for method in ("GET", "POST")]


def test_a_budget_is_spent(colour):
    """Requests draw on the budget that the policy names."""
    with isolated():
        shared = redrive.retrying.budget("shop", redrive.retrying.TokenBudget(capacity=5, cost=5))
        calls = [count(colour, STEADY.with_(budget="shop"), *[answer(503)] * 5) for _ in range(2)]

        assert ([2, 1], 0) == (calls, shared.left)


def test_a_breaker_refuses(colour):
    """Open breakers raise `CircuitOpen`, since no request was sent."""
    settings = redrive.retrying.BreakerSettings(volume_threshold=1)
    with isolated():
        redrive.retrying.breaker("shop", settings)
        policy = STEADY.with_(breaker="shop", attempts=1)
        count(colour, policy, answer(503))

        with pytest.raises(CircuitOpen, match="GET 127.0.0.1 was not called"):
            count(colour, policy)


# ---------------------------------------------------------------------------------------------------- what is no policy


@pytest.mark.parametrize("transport", [RetryTransport, AsyncRetryTransport])
@pytest.mark.parametrize(
    ("policy", "error", "match"),
    [
        (3, TypeError, r"Transport\(\) takes a policy or a directive, not 3"),
        ("5 1s catch clean_up", PolicyValueError, "Transport: catch='clean_up'"),
        ("five", redrive.errors.PolicySyntaxError, "five"),
    ],
)
def test_invalid_policies_are_refused_at_creation(transport, policy, error, match):
    """Transports refuse invalid policies when they are made."""
    with pytest.raises(error, match=match):
        transport(policy)


def test_only_async_transports_hedge():
    """Blocking transports refuse hedges and name the transport that makes them."""
    with pytest.raises(PolicyValueError, match="only AsyncRetryTransport makes copies of a request"):
        RetryTransport(Policy(hedge=Hedge("1s"), idempotent=True))


# ----------------------------------------------------------------------------------- functions that call a plain client


def fails(method, step, **request):
    """Return the exception of a plain client."""
    with HttpServer(step) as server, pytest.raises(httpx.HTTPError) as caught:
        httpx.request(method, server.url, verify=ssl.create_default_context(), **request).raise_for_status()
    return caught.value


@pytest.mark.parametrize(
    ("method", "step", "headers", "expected"),
    [
        ("GET", answer(503), {}, ("HTTP_503", Stage.ANSWERED, None)),
        ("POST", answer(503), {}, ("HTTP_503", Stage.IN_FLIGHT, None)),
        ("POST", answer(404), {}, ("HTTP_404", Stage.ANSWERED, Lasting(stage=Stage.IN_FLIGHT))),
        ("GET", answer(404), {}, ("HTTP_404", Stage.ANSWERED, Lasting())),
        ("GET", answer(302), {}, ("HTTP_302", Stage.ANSWERED, Lasting())),
        ("GET", RESET_BEFORE, {}, ("ERROR", Stage.ANSWERED, None)),
        ("POST", RESET_BEFORE, {}, ("ERROR", Stage.IN_FLIGHT, None)),
        ("POST", RESET_BEFORE, {http.IDEMPOTENCY_KEY: '"one"'}, ("ERROR", Stage.ANSWERED, None)),
    ],
)
def test_errors_of_a_plain_client_are_read(method, step, headers, expected):
    """`failure_of` marks the requests that may be repeated, for policies without knowledge of requests."""
    failure = failure_of(fails(method, step, headers=headers))

    assert expected == (failure.reason, failure.stage, failure.lasting)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (httpx.ConnectError("refused"), ("ERROR", Stage.NOT_SENT, None)),
        (httpx.ConnectTimeout("late"), ("TIMEOUT", Stage.NOT_SENT, None)),
        (httpx.PoolTimeout("full"), ("TIMEOUT", Stage.NOT_SENT, None)),
        (httpx.ReadTimeout("late"), ("TIMEOUT", Stage.IN_FLIGHT, None)),
        (httpx.UnsupportedProtocol("ftp"), ("ERROR", Stage.NOT_SENT, UNSENT)),
        (
            httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]"),
            ("ERROR", Stage.NOT_SENT, UNSENT),
        ),
    ],
)
def test_errors_are_read_by_their_class(error, expected):
    """Without other evidence, the class of an exception gives the stage."""
    failure = failure_of(error)

    assert expected == (failure.reason, failure.stage, failure.lasting)


@pytest.mark.parametrize("error", [ValueError("mine"), TimeoutError("whose?"), httpx.InvalidURL("none")])
def test_other_errors_are_not_read(error):
    """Exceptions that do not come from a request are not described."""
    assert None is failure_of(error)


def test_a_retried_function_uses_the_evidence_of_the_transport(colour):
    """Retried functions around a transport read its evidence: a POST in flight is not sent again."""
    transport = colour.retrying("5 1s")

    @redrive.retry("2 1s", on=failure_of)
    def sync(client):
        return client.post(server.url).raise_for_status()

    @redrive.retry("2 1s", on=failure_of)
    async def nonsync(client):
        return (await client.post(server.url)).raise_for_status()

    with HttpServer(RESET_AFTER) as server, pytest.raises(httpx.TransportError) as caught:
        colour.run(transport, nonsync if colour.is_async else sync)

    assert 1 == len(server.executed)
    assert "not_idempotent" == caught.value.__retry__.rule
