"""A server that stands still or dies: timeouts that are ambiguous or not, and the circuit breaker."""

from __future__ import annotations

import asyncio

import pytest

from redrive.errors import AmbiguousTimeout, UnambiguousTimeout
from redrive.orchestrator import BreakerSettings, BreakerStatus, FailFast, Orchestrator
from tests.contrib.couchbase.rig.client import KvClient, Operation
from tests.contrib.couchbase.rig.frames import REQUEST, Frame, Opcode
from tests.contrib.couchbase.rig.stage import run_on_rig

pytestmark = pytest.mark.acceptance

NOOP = Operation("noop", Frame(REQUEST, Opcode.NOOP))


@pytest.mark.case("memcached_1_6_18/stopped_process")
def test_an_increment_of_a_stopped_server_is_ambiguous(own_memcached):
    """Increments on a stopped server time out as ambiguous; when it continues, it counts once."""

    async def _steps(stage):
        stage.server.stop()
        ended = await stage.increment(timeout="500ms")
        stage.server.resume()
        await stage.get()
        return type(ended.error), [frame.opcode for frame in stage.client.orphans], await stage.counter()

    assert (AmbiguousTimeout, [Opcode.INCREMENT], 1) == run_on_rig(own_memcached, _steps)


def test_a_read_of_a_stopped_server_is_unambiguous(own_memcached):
    """Reads that time out in flight are unambiguous."""

    async def _steps(stage):
        stage.server.stop()
        ended = await stage.get(timeout="500ms")
        stage.server.resume()
        return type(ended.error), ended.request.dispatched_to == stage.client.endpoint

    assert (UnambiguousTimeout, True) == run_on_rig(own_memcached, _steps)


@pytest.mark.case("memcached_1_6_18/killed_process")
def test_a_dead_server_is_an_unambiguous_timeout(own_memcached):
    """Requests to a dead server are never sent, and time out as unambiguous."""

    async def _steps(stage):
        stage.server.kill()
        async with KvClient(stage.server.endpoint) as client:
            stage.client = client
            ended = await stage.increment(timeout="500ms")
        return type(ended.error), ended.reasons, client.sends

    assert (UnambiguousTimeout, ["SOCKET_NOT_AVAILABLE"], 0) == run_on_rig(own_memcached, _steps)


def test_a_write_to_a_server_that_dies_in_flight_is_not_repeated(own_memcached):
    """Increments that were in flight when the server died are not repeated."""

    async def _steps(stage):
        stage.server.stop()
        running = asyncio.ensure_future(stage.increment())
        await stage.proxy.passed_on.wait()
        stage.server.kill()
        ended = await running
        return ended.verdict_reason, ended.request.is_ambiguous, stage.client.sends

    assert ("SOCKET_CLOSED_WHILE_IN_FLIGHT", True, 1) == run_on_rig(own_memcached, _steps)


WAKING = BreakerSettings(volume_threshold=3, sleep_window="2s")
SLEEPING = BreakerSettings(volume_threshold=3, sleep_window="1h")


def test_timeouts_open_the_breaker_and_a_canary_closes_it(own_memcached):
    """Three timeouts open the breaker: a fourth request is not sent; when the server goes on, the next one is."""
    orchestrator = Orchestrator(breaker=WAKING)

    async def _steps(stage):
        breaker = orchestrator.breaker(stage.client.endpoint)
        breaker.reset()  # forget the request that has set the counter
        stage.server.stop()
        for _ in range(3):
            await stage.increment(timeout="300ms")
        opened = breaker.status
        refused = await stage.increment(timeout="300ms", retry_strategy=FailFast())
        sent = stage.client.sends
        stage.server.resume()
        ended = await stage.increment(timeout="5s")
        return opened, type(refused.error).__name__, sent, ended.error, ended.reasons, breaker.status

    signals = run_on_rig(own_memcached, _steps, orchestrator)

    assert (
        BreakerStatus.OPEN,
        "CircuitOpen",
        3,
        None,
        ["CIRCUIT_BREAKER_OPEN"],
        BreakerStatus.CLOSED,
    ) == signals


def test_while_the_breaker_is_open_a_timeout_is_unambiguous(own_memcached):
    """Increments that met only an open breaker time out as unambiguous."""
    orchestrator = Orchestrator(breaker=SLEEPING)

    async def _steps(stage):
        orchestrator.breaker(stage.client.endpoint).reset()
        stage.server.stop()
        for _ in range(3):
            await stage.increment(timeout="300ms")
        ended = await stage.increment(timeout="300ms")
        stage.server.resume()
        return type(ended.error), ended.reasons, stage.client.sends

    assert (UnambiguousTimeout, ["CIRCUIT_BREAKER_OPEN"], 3) == run_on_rig(own_memcached, _steps, orchestrator)


def test_a_noop_finds_the_server_alive_again(own_memcached):
    """After SIGCONT a NOOP over the same connection is answered, behind what was asked before it."""

    async def _steps(stage):
        stage.server.stop()
        await stage.get(timeout="300ms")
        stage.server.resume()
        ended = await stage.run(NOOP)
        return ended.frame.status, stage.client.connections, len(stage.client.orphans)

    assert (0, 1, 1) == run_on_rig(own_memcached, _steps)
