"""An increment under the orchestrator, against a real server: applied exactly once, not at all, or
ended as ambiguous.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive import observe
from redrive.contrib.couchbase import read_error_map
from redrive.errors import AmbiguousTimeout, UnambiguousTimeout
from redrive.orchestrator import BestEffort, FailFast, Orchestrator, ResponseOrphaned
from redrive.policy import Backoff
from tests.contrib.couchbase.rig.client import KvError
from tests.contrib.couchbase.rig.frames import REQUEST, Opcode
from tests.contrib.couchbase.rig.proxy import FaultProxy
from tests.contrib.couchbase.rig.stage import run_on_rig

pytestmark = pytest.mark.acceptance

REFUSALS = {
    0x09: "KV_LOCKED",
    0x86: "KV_TEMPORARY_FAILURE",
    0x85: "KV_TEMPORARY_FAILURE",
    0xA2: "KV_SYNC_WRITE_IN_PROGRESS",
    0xA4: "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS",
    0x07: "KV_NOT_MY_VBUCKET",
    0x88: "KV_COLLECTION_OUTDATED",
}


def test_without_faults_an_increment_is_applied_once(memcached):
    """Undisturbed increments are sent once and count once."""

    async def _steps(stage):
        ended = await stage.increment()
        return ended.error, stage.client.sends, await stage.counter()

    assert (None, 1, 1) == run_on_rig(memcached, _steps)


@pytest.mark.parametrize("status", REFUSALS, ids=hex)
def test_a_refusal_is_retried_and_counts_once(memcached, status):
    """Increments that the server refuses three times are sent four times and count once."""

    async def _steps(stage):
        stage.fails("answer", status=status, times=3)
        ended = await stage.increment()
        return ended.error, ended.request.retry_attempts, ended.reasons, stage.client.sends, await stage.counter()

    assert (None, 3, [REFUSALS[status]], 4, 1) == run_on_rig(memcached, _steps)


@pytest.mark.parametrize("status", [0x01, 0x30, 0x34, 0x82, 0x83, 0xA1, 0xFF], ids=hex)
def test_any_other_status_is_raised_at_once(memcached, status):
    """Other statuses are neither retried nor applied."""

    async def _steps(stage):
        stage.fails("answer", status=status)
        ended = await stage.increment()
        return type(ended.error), ended.verdict_reason, stage.client.sends, await stage.counter()

    assert (KvError, None, 1, 0) == run_on_rig(memcached, _steps)


def test_a_connection_cut_before_the_server_is_not_retried(memcached):
    """Increments that are lost before the server are not repeated, since their effect is unknown."""

    async def _steps(stage):
        stage.fails("cut_before")
        ended = await stage.increment()
        return ended.verdict_reason, ended.request.is_ambiguous, stage.client.sends, await stage.counter()

    assert ("SOCKET_CLOSED_WHILE_IN_FLIGHT", True, 1, 0) == run_on_rig(memcached, _steps)


def test_a_connection_cut_after_the_server_is_not_retried(memcached):
    """Increments with a lost response are not repeated: the counter stays at one."""

    async def _steps(stage):
        stage.fails("cut_after")
        ended = await stage.increment()
        return ended.verdict_reason, ended.request.is_ambiguous, stage.client.sends, await stage.counter()

    assert ("SOCKET_CLOSED_WHILE_IN_FLIGHT", True, 1, 1) == run_on_rig(memcached, _steps)


def test_an_increment_declared_idempotent_is_applied_twice(memcached):
    """Increments declared idempotent are applied twice."""

    async def _steps(stage):
        stage.fails("cut_after")
        ended = await stage.increment(idempotent=True, read_only=False)
        return ended.error, ended.reasons, await stage.counter()

    assert (None, ["SOCKET_CLOSED_WHILE_IN_FLIGHT"], 2) == run_on_rig(memcached, _steps)


def test_a_read_that_is_lost_is_sent_again(memcached):
    """Reads with a broken connection use a new one."""

    async def _steps(stage):
        stage.fails("cut_after", times=2)
        ended = await stage.get()
        return ended.frame.value, ended.reasons, stage.client.sends, stage.client.connections

    assert (b"0", ["SOCKET_CLOSED_WHILE_IN_FLIGHT"], 3, 3) == run_on_rig(memcached, _steps)


def test_a_held_response_is_an_ambiguous_timeout(memcached):
    """Held responses cause an ambiguous timeout and an orphan; nothing is sent again."""
    seen = []

    async def _steps(stage):
        stage.fails("hold")
        ended = await stage.increment(timeout="500ms")
        stage.proxy.release()
        await stage.get()  # comes after the orphan on the same connection
        orphans = [frame.opcode for frame in stage.client.orphans]
        return type(ended.error), stage.client.sends, orphans, await stage.counter(), ended.request

    with observe.only(seen.append):
        *steps, request = run_on_rig(memcached, _steps)
    assert [AmbiguousTimeout, 2, [Opcode.INCREMENT], 1] == steps
    assert [(ResponseOrphaned, request.id, request.dispatched_from, request.dispatched_on)] == [
        (type(event), event.id, event.local_address, event.channel_id) for event in seen
    ]


def test_a_swallowed_request_is_an_ambiguous_timeout(memcached):
    """Swallowed requests cause an ambiguous timeout, too."""

    async def _steps(stage):
        stage.fails("swallow")
        ended = await stage.increment(timeout="500ms")
        return type(ended.error), await stage.counter()

    assert (AmbiguousTimeout, 0) == run_on_rig(memcached, _steps)


def test_refused_until_the_end_is_an_unambiguous_timeout(memcached):
    """Requests that the server refuses until the deadline time out as unambiguous."""

    async def _steps(stage):
        stage.fails("answer", status=0x86, times=2)
        ended = await stage.increment(timeout="1s", retry_strategy=BestEffort(Backoff.listed([0, "1h"])))
        return type(ended.error), ended.reasons, await stage.counter()

    assert (UnambiguousTimeout, ["KV_TEMPORARY_FAILURE"], 0) == run_on_rig(memcached, _steps)


def test_after_one_loss_every_timeout_is_ambiguous(memcached):
    """After one loss every later timeout is ambiguous."""

    async def _steps(stage):
        stage.fails("cut_after")
        stage.fails("answer", status=0x86, times=1000)
        ended = await stage.increment(timeout="500ms", idempotent=True, read_only=False)
        return type(ended.error), await stage.counter()

    assert (AmbiguousTimeout, 1) == run_on_rig(memcached, _steps)


def test_a_frame_cut_short_is_sent_again(memcached):
    """Frames that were cut short are always retried, and count once."""

    async def _steps(stage):
        stage.client.break_after = 30
        await next(iter(stage.client._connections)).close()
        ended = await stage.increment()
        return ended.error, ended.reasons, stage.client.sends, await stage.counter()

    assert (None, ["MEMD_WRITE_FAILURE"], 2, 1) == run_on_rig(memcached, _steps, Orchestrator(strategy=FailFast()))


def test_a_fail_fast_strategy_raises_the_refusal(memcached):
    """Under fail fast the caller gets the server's error, and nothing is applied."""

    async def _steps(stage):
        stage.fails("answer", status=0x09)
        ended = await stage.increment()
        return ended.verdict_reason, ended.error.verdict.error, ended.request.retry_attempts, await stage.counter()

    refused = run_on_rig(memcached, _steps, Orchestrator(strategy=FailFast()))

    assert ("KV_LOCKED", "DocumentLocked", 0, 0) == refused


def test_an_unknown_status_is_retried_if_the_error_map_allows_it(memcached):
    """Unknown statuses are retried if the error map has a retry attribute, whatever its delays."""
    entry = {
        "name": "DUMMY",
        "attrs": ["auto-retry"],
        "retry": {"strategy": "constant", "interval": 9000, "after": 9000},
    }
    reading = read_error_map(json.dumps({"version": 1, "revision": 1, "errors": {"7ff0": entry}}))

    async def _steps(stage):
        stage.fails("answer", status=0x7FF0, times=3)
        ended = await stage.increment()
        return ended.request.retry_attempts, ended.reasons, await stage.counter()

    assert (3, ["KV_ERROR_MAP_RETRY_INDICATED"], 1) == run_on_rig(memcached, _steps, error_map=reading.error_map)


def test_a_rewritten_read_is_retried(memcached):
    """Reads with a status rewritten to a refusal are repeated."""

    async def _steps(stage):
        stage.fails("rewrite", status=0xA2)
        ended = await stage.get()
        return ended.frame.value, ended.reasons

    assert (b"0", ["KV_SYNC_WRITE_IN_PROGRESS"]) == run_on_rig(memcached, _steps)


@pytest.mark.case("not_my_vbucket/config_in_body_changes_route")
def test_a_newer_configuration_in_the_response_is_followed_at_once(memcached):
    """NOT_MY_VBUCKET with a configuration that moves the key is followed at once, without a recorded retry."""

    async def _steps(stage):
        async with FaultProxy(memcached.host, memcached.port) as other:
            stage.fails("answer", status=0x07, value=json.dumps({"node": other.endpoint}).encode())
            ended = await stage.increment()
            counts = len(stage.proxy.seen), len(other.seen)
            return ended.error, ended.request.retry_attempts, counts, await stage.counter()

    assert (None, 0, (1, 1), 1) == run_on_rig(memcached, _steps)


@pytest.mark.case("not_my_vbucket/never_surfaced")
def test_not_my_vbucket_is_never_raised(memcached):
    """NOT_MY_VBUCKET for ever is a timeout that names the reason, not an error of its own."""

    async def _steps(stage):
        stage.fails("answer", status=0x07, times=10**6)
        ended = await stage.increment(timeout="300ms")  # the fifth wait is one of 500 ms, and is cut
        return type(ended.error), ended.reasons, await stage.counter()

    assert (UnambiguousTimeout, ["KV_NOT_MY_VBUCKET"], 0) == run_on_rig(memcached, _steps)


@pytest.mark.case("not_my_vbucket/rfc0005_legacy_pacing")
def test_not_my_vbucket_is_paced_by_controlled_backoff(memcached):
    """NOT_MY_VBUCKET uses RFC 0049's controlled backoff, also under fail fast."""

    async def _steps(stage):
        stage.fails("answer", status=0x07, times=3)
        ended = await stage.increment(retry_strategy=FailFast())
        return [each.delay.total_seconds() * 1000 for each in ended.request.history if each.delay is not None]

    assert [1, 10, 50] == run_on_rig(memcached, _steps)


FAULTS = st.lists(
    st.sampled_from(
        [
            ("answer", 0x86),
            ("answer", 0x09),
            ("answer", 0x07),
            ("answer", 0x01),
            ("cut_before", 0),
            ("cut_after", 0),
            ("swallow", 0),
            ("hold", 0),
        ]
    ),
    max_size=4,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(faults=FAULTS)
def test_no_fault_applies_an_increment_twice(memcached, faults):
    """Successes have counted once, definite failures not at all, and all others are ambiguous."""

    async def _steps(stage):
        for kind, status in faults:
            stage.fails(kind, status=status)
        ended = await stage.increment(timeout="40ms")
        stage.proxy.release()
        return ended, await stage.counter()

    ended, counter = run_on_rig(memcached, _steps, Orchestrator(strategy=BestEffort(lambda _: "1ms")))

    if ended.error is None:
        assert 1 == counter
    elif ended.request.is_ambiguous:
        assert counter in {0, 1}
    else:
        assert 0 == counter


def test_the_proxy_passes_requests_to_its_server(memcached):
    """Requests without a fault reach the server unchanged."""

    async def _steps(stage):
        await stage.increment()
        [frame] = stage.proxy.forwarded
        return frame.magic, frame.opcode, frame.key == stage.key

    assert (REQUEST, Opcode.INCREMENT, True) == run_on_rig(memcached, _steps)
