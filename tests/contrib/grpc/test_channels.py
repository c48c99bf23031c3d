"""Channels that retry calls, tested by the calls that a real server has received."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest

from redrive import observe
from redrive.contrib.grpc import channel, describe, read_service_config
from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Policy, Stage
from redrive.retrying import Hedge
from tests.contrib.grpc.conftest import AT_ONCE
from tests.contrib.grpc.rig.server import fail

PATIENT = Policy(attempts=2000, backoff=Backoff.constant("10ms"))
ROOT = Path(__file__).parents[3]


@contextlib.contextmanager
def healing(heal):
    """Call a function at the first retry, and record all failures."""
    failures = []

    def hear(event):
        if isinstance(event, observe.CallRetryScheduled):
            failures.append(event.failure)
            if len(failures) == 1:
                heal()

    with observe.add(hear):
        yield failures


# ------------------------------------------------------------------------------------- retried calls


def test_an_unavailable_call_without_proof_is_made_once(colour, server):
    """UNAVAILABLE does not prove that the server has not executed the call."""
    server.steps = [fail("UNAVAILABLE", "try elsewhere")]

    with pytest.raises(grpc.RpcError) as caught:
        colour.call(colour.channel(server.port))

    assert server.calls == [b"order"]
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert describe(caught.value).stage is Stage.IN_FLIGHT
    assert "not idempotent" in caught.value.__notes__[-1]


def test_an_idempotent_call_is_made_again(colour, server):
    """Its metadata contains the number of earlier attempts."""
    server.steps = [fail("UNAVAILABLE")] * 2

    assert colour.call(colour.channel(server.port, AT_ONCE.with_(idempotent=True))) == b"order"
    assert [seen.get("grpc-previous-rpc-attempts") for seen in server.metadata] == [None, "1", "2"]


def test_the_users_metadata_stays(colour, server):
    """Every attempt sends the caller's metadata."""
    server.steps = [fail("UNAVAILABLE")]

    colour.call(colour.channel(server.port, AT_ONCE.with_(idempotent=True)), metadata=(("tenant", "a"),))

    assert [seen["tenant"] for seen in server.metadata] == ["a", "a"]


@pytest.mark.parametrize("kind", [tuple, list, iter, lambda pairs: (pair for pair in pairs)])
def test_metadata_of_an_iterator_is_sent_with_each_attempt(colour, server, kind):
    """Metadata that can be read once only is sent with every attempt."""
    server.steps = [fail("UNAVAILABLE")]

    colour.call(colour.channel(server.port, AT_ONCE.with_(idempotent=True)), metadata=kind([("tenant", "a")]))

    assert [seen["tenant"] for seen in server.metadata] == ["a", "a"]


def test_a_refused_connection_is_proof(colour, server, proxy):
    """Nothing was sent, so even a call that is not idempotent is repeated."""
    port = proxy.port
    proxy.refuse()

    with healing(proxy.accept) as failures:
        assert colour.call(colour.channel(port, PATIENT)) == b"order"

    assert {failure.stage for failure in failures} == {Stage.NOT_SENT}
    assert server.calls == [b"order"]


def test_the_details_of_a_refused_connection_are_no_proof(colour, server):
    """Gateways pass on the details of their own calls: this call did arrive."""
    details = "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.7:443: Connection refused"
    server.steps = [fail("UNAVAILABLE", details)]

    with pytest.raises(grpc.RpcError) as caught:
        colour.call(colour.channel(server.port))

    assert describe(caught.value).stage is Stage.IN_FLIGHT
    assert server.calls == [b"order"]


def test_a_connection_that_is_lost_with_the_call_is_no_proof(colour, server, proxy):
    """Here the method was running."""

    def cut(request, context):
        proxy.cut()
        yield request

    server.steps = [cut]

    with pytest.raises(grpc.RpcError) as caught:
        colour.call(colour.channel(proxy.port))

    assert describe(caught.value).stage is Stage.IN_FLIGHT
    assert server.calls == [b"order"]


def test_a_killed_server_is_in_flight_first_and_not_sent_then(colour):
    """Calls during which the server dies are in flight; later calls find no server and are not sent."""
    program = Path("tests/contrib/grpc/rig/server.py")
    command = [sys.executable, str(ROOT / program)]
    failed = []
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        made = colour.channel(int(running.stdout.readline()))
        failed.append(failure(colour, made, b"die"))
        running.wait()
        output = running.stdout.read().split()
    while describe(failed[-1]).stage is Stage.IN_FLIGHT and len(failed) < 1000:
        failed.append(failure(colour, made, b"again"))

    assert output == ["die"]
    assert describe(failed[0]).stage is Stage.IN_FLIGHT
    assert describe(failed[-1]).stage is Stage.NOT_SENT
    assert "after 4 attempts" in failed[-1].__notes__[-1]


def failure(colour, made, request):
    """Return the error of a call."""
    with pytest.raises(grpc.RpcError) as caught:
        colour.call(made, request)
    return caught.value


def test_other_codes_are_not_repeated(colour, server):
    """Only codes that the policy names are retried; ABORTED is an answer, so it needs no proof."""
    server.steps = [fail("ABORTED"), fail("ABORTED")]

    with pytest.raises(grpc.RpcError):
        colour.call(colour.channel(server.port))
    assert colour.call(colour.channel(server.port, AT_ONCE.with_(on="GRPC_ABORTED"))) == b"order"
    assert len(server.calls) == 3


# ---------------------------------------------------------------------------------------------- hints of the server


@pytest.mark.parametrize(
    "trailer",
    [
        ("grpc-retry-pushback-ms", "20"),
        (
            "grpc-status-details-bin",
            b"\x08\x0e\x1a\x33\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12\x07\x0a\x05\x10\x80\xda\xc4\x09",
        ),
    ],
    ids=["pushback", "RetryInfo"],
)
def test_a_call_with_pushback_is_retried(colour, server, trailer):
    """Its time is the shortest wait and proves an answer, so the call is retried."""
    server.steps = [fail("UNAVAILABLE", trailers=(trailer,))]

    with healing(lambda: None) as failures:
        assert colour.call(colour.channel(server.port)) == b"order"

    assert failures[0].stage is Stage.ANSWERED
    assert failures[0].hint.total_seconds() == 0.02


def test_negative_pushback_is_final(colour, server):
    """Negative pushbacks are final, also for calls that may be repeated."""
    server.steps = [fail("UNAVAILABLE", trailers=(("grpc-retry-pushback-ms", "-1"),))]

    with pytest.raises(grpc.RpcError):
        colour.call(colour.channel(server.port, AT_ONCE.with_(idempotent=True)))

    assert len(server.calls) == 1


def test_a_response_that_has_begun_is_committed(colour, server):
    """Response headers, which the caller may have seen, commit the call (gRFC A6)."""
    server.steps = [fail("UNAVAILABLE", headers=(("shard", "7"),))]

    with pytest.raises(grpc.RpcError) as caught:
        colour.call(colour.channel(server.port, AT_ONCE.with_(idempotent=True)))

    assert "committed" in describe(caught.value).permanent


# --------------------------------------------------------------------------------------------------------------- time


def test_the_remaining_time_is_the_timeout_of_an_attempt(colour, server):
    """Each attempt's timeout is the time until the policy's deadline."""
    server.steps = [fail("UNAVAILABLE")]

    colour.call(colour.channel(server.port, AT_ONCE.with_(idempotent=True, deadline="300s")))

    assert all(290 < left < 301 for left in server.remaining)


def test_a_timeout_of_the_call_is_for_all_its_attempts(colour, server):
    """It becomes the deadline of the policy, so that no wait exceeds it."""
    server.steps = [fail("UNAVAILABLE")] * 9
    made = colour.channel(
        server.port, Policy(attempts=9, backoff=Backoff.constant("1h"), jitter="none", idempotent=True)
    )

    with pytest.raises(grpc.RpcError) as caught:
        colour.call(made, timeout=200)

    assert len(server.calls) == 1
    assert 190 < server.remaining[0] < 201
    assert "deadline" in caught.value.__notes__[-1]


@pytest.mark.realtime
def test_a_slow_call_ends_in_time_and_is_not_repeated(colour, server):
    """It is in flight, because the method may still be running."""
    released = threading.Event()

    def slow(request, context):
        released.wait(60)
        yield request

    server.steps = [slow]
    made = colour.channel(server.port, AT_ONCE.with_(on=("GRPC_DEADLINE_EXCEEDED", "TIMEOUT")))

    with pytest.raises((grpc.RpcError, TimeoutError)):
        colour.call(made, timeout=0.2)

    released.set()
    assert len(server.calls) == 1


# ------------------------------------------------------------------------------------------------------------ streams


def test_a_stream_is_begun_again_until_its_first_message(colour, server):
    """All messages of the successful attempt arrive in order, once."""
    server.steps = [fail("UNAVAILABLE")]

    assert colour.stream(colour.channel(server.port, AT_ONCE.with_(idempotent=True))) == ([b"order"] * 3, None)
    assert len(server.calls) == 2


def test_a_stream_that_breaks_is_not_repeated(colour, server):
    """After its first message a stream is not retried."""
    server.steps = [fail("UNAVAILABLE", after=1)]

    got, error = colour.stream(colour.channel(server.port, AT_ONCE.with_(idempotent=True)))

    assert got == [b"order"]
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert len(server.calls) == 1


def test_a_stream_that_never_begins_raises_its_error(colour, server):
    """Raise the error of the last attempt."""
    server.steps = [fail("UNAVAILABLE", f"attempt {number}") for number in range(1, 5)]

    got, error = colour.stream(colour.channel(server.port, AT_ONCE.with_(idempotent=True)))

    assert ([], "attempt 4") == (got, error.details())


def test_an_empty_stream_is_a_success(colour, server):
    """Streams without messages succeed."""
    server.steps = [lambda request, context: iter(())]

    assert colour.stream(colour.channel(server.port)) == ([], None)


def test_the_default_deadline_does_not_end_a_stream(colour, server):
    """By default the 45 s of a policy bound its retries, not a stream."""
    colour.stream(colour.channel(server.port))
    colour.stream(colour.channel(server.port, AT_ONCE.with_(deadline="300s")))

    assert server.remaining[0] is None
    assert 290 < server.remaining[1] < 301


def test_requests_in_a_list_are_sent_again(colour, server):
    """Requests in a list are sent again."""
    server.steps = [fail("UNAVAILABLE")]

    assert colour.collect(colour.channel(server.port, AT_ONCE.with_(idempotent=True)), [b"a", b"b"]) == b"ab"
    assert server.calls == [b"ab", b"ab"]


def test_requests_of_an_iterator_are_sent_once(colour, server):
    """Calls with an exhausted iterator are not repeated: the second would be a different call."""
    server.steps = [fail("UNAVAILABLE")]

    with pytest.raises(grpc.RpcError):
        colour.collect(colour.channel(server.port, AT_ONCE.with_(idempotent=True)), iter([b"a", b"b"]))

    assert server.calls == [b"ab"]


def test_requests_that_are_written_one_by_one_are_sent_once(server):
    """``grpcio`` starts the call before the first request is written."""

    async def calls():
        """Make the calls."""
        from redrive.contrib.grpc import aio_channel

        async with aio_channel(server.address, AT_ONCE) as made:
            call = made.stream_unary("/shop.Orders/Collect")()
            await call.write(b"a")
            await call.write(b"b")
            await call.done_writing()
            return await call

    assert asyncio.run(calls()) == b"ab"


def test_a_bidirectional_stream_is_not_retried(server):
    """Calls that stream in both directions are not retried."""
    with channel(server.address, AT_ONCE.with_(idempotent=True)) as made:
        assert list(made.stream_stream("/shop.Orders/Talk")(iter([b"a"]))) == [b"a"] * 3


# ---------------------------------------------------------------------------------------------------- service configs

CONFIG = """{
    "methodConfig": [{
        "name": [{"service": "shop.Orders", "method": "Place"}],
        "retryPolicy": {
            "maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
            "retryableStatusCodes": ["UNAVAILABLE"]
        }
    }],
    "retryThrottling": {"maxTokens": 4, "tokenRatio": 0.5}
}"""


def test_a_service_config_lists_the_retried_methods(colour, server):
    """Listed codes are retried without proof, because the owner has chosen them; other methods are not retried."""
    made = colour.channel(server.port, read_service_config(CONFIG))
    server.steps = [fail("UNAVAILABLE")]

    assert colour.call(made) == b"order"
    server.steps = [fail("UNAVAILABLE")]
    with pytest.raises(grpc.RpcError):
        colour.call(made, method="/shop.Orders/Cancel")

    assert len(server.calls) == 3


def test_the_throttle_is_shared_by_all_calls_to_a_server(colour, server):
    """Retries stop at half of the tokens: after four and three tokens, two allow no retry."""
    server.steps = [fail("UNAVAILABLE")] * 9
    made = [colour.channel(server.port, read_service_config(CONFIG)) for _ in range(2)]

    for each in made:
        with pytest.raises(grpc.RpcError):
            colour.call(each)

    assert len(server.calls) == 3


def test_only_cancellable_calls_are_hedged(server):
    """Hedge a call of which the first copy hangs: the second copy succeeds."""
    released = threading.Event()

    def hang(request, context):
        released.wait(60)
        yield request

    server.steps = [hang]

    async def calls():
        """Make the calls."""
        from redrive.contrib.grpc import aio_channel

        policy = Policy(attempts=1, idempotent=True, hedge=Hedge("10ms", 2))
        async with aio_channel(server.address, policy) as made:
            return await made.unary_unary("/shop.Orders/Place")(b"order")

    try:
        assert asyncio.run(calls()) == b"order"
    finally:
        released.set()
    assert len(server.calls) == 2


# ---------------------------------------------------------------------------------------------------- channel interface


def test_a_future_is_already_done(server):
    """Sync retries run inside the call that returns the future."""
    server.steps = [fail("ABORTED"), fail("ABORTED")]
    with channel(server.address, AT_ONCE.with_(on="GRPC_ABORTED", attempts=2)) as made:
        future = made.unary_unary("/shop.Orders/Place").future(b"order")
        response, call = made.unary_unary("/shop.Orders/Place").with_call(b"order")

    assert future.done()
    assert future.exception().code() is grpc.StatusCode.ABORTED
    assert (b"order", grpc.StatusCode.OK) == (response, call.code())


def test_a_stream_is_a_call_as_well(server):
    """Streams provide their metadata and their status."""
    with channel(server.address, AT_ONCE) as made:
        stream = made.unary_stream("/shop.Orders/Stream")(b"order")
        assert list(stream) == [b"order"] * 3
        assert stream.code() is grpc.StatusCode.OK


def test_unsupported_uses_are_refused(colour):
    """Each message contains the solution."""
    with pytest.raises(PolicyValueError, match="leave it out"):
        colour.channel(1, options=[("grpc.enable_retries", 1)])
    with pytest.raises(PolicyValueError, match="a combination"):
        colour.channel(1, Policy(on="GRPC_ABORTED") >> AT_ONCE.with_(on="GRPC_ABORTED"))
    with pytest.raises(PolicyValueError, match="aio_channel"):
        channel("localhost:1", Policy(attempts=1, idempotent=True, hedge=Hedge("10ms", 2)))


def test_a_secure_channel_is_made_with_credentials(colour):
    """Credentials have the same effect as in ``grpcio``."""
    made = colour.channel(1, AT_ONCE.with_(attempts=1), credentials=grpc.ssl_channel_credentials())

    with pytest.raises(grpc.RpcError) as caught:
        colour.call(made, timeout=5)

    assert describe(caught.value).stage is Stage.NOT_SENT
