"""Connections, exceptions of HTTP clients, HTTP statuses, gRPC; operations and verdicts."""

from __future__ import annotations

import asyncio
import socket
from datetime import timedelta

import httpx
import pytest

from redrive.contrib.couchbase import (
    Profile,
    SdkError,
    Verdict,
    classify_event,
    classify_exception,
    classify_grpc,
    classify_http_status,
    is_idempotent,
    payload_timeout,
    rpc,
    transport,
)
from redrive.contrib.couchbase.verdict import SUCCESS
from redrive.policy import Failure, GiveUp, History, Policy, Retry, Stage
from redrive.retrying.orchestrator import RetryReason
from redrive.testing import VirtualClock

LOST = "SOCKET_CLOSED_WHILE_IN_FLIGHT"


def judged(error):
    """What an exception comes to: reason and stage."""
    verdict = classify_exception(Failure.of(error))
    return verdict.reason, verdict.stage


@pytest.mark.parametrize("event", transport.EVENTS)
def test_an_event_in_flight_is_no_reason_to_repeat_a_write(event):
    """The stage of each event agrees with the flag of its reason: what was not sent may be repeated."""
    verdict = classify_event(event)

    assert verdict.repeats_mutations == (verdict.stage is Stage.NOT_SENT)


@pytest.mark.parametrize(
    ("error", "reason", "stage"),
    [
        (httpx.ConnectError("refused"), "SOCKET_NOT_AVAILABLE", Stage.NOT_SENT),
        (httpx.ConnectError("[SSL: WRONG_VERSION_NUMBER]"), "TLS_ERROR", Stage.NOT_SENT),
        (httpx.PoolTimeout("full"), "SOCKET_NOT_AVAILABLE", Stage.NOT_SENT),
        (httpx.ReadTimeout("late"), LOST, Stage.IN_FLIGHT),
        (httpx.RemoteProtocolError("Server disconnected without sending a response."), LOST, Stage.IN_FLIGHT),
        (httpx.LocalProtocolError("bad header"), None, Stage.ANSWERED),
        (httpx.InvalidURL("no"), None, Stage.ANSWERED),
        (httpx.StreamConsumed(), None, Stage.ANSWERED),
        (ConnectionRefusedError(), "SOCKET_NOT_AVAILABLE", Stage.NOT_SENT),
        (ConnectionResetError(), LOST, Stage.IN_FLIGHT),
        (socket.gaierror(-2, "unknown"), "SOCKET_NOT_AVAILABLE", Stage.NOT_SENT),
        (asyncio.IncompleteReadError(b"", 24), LOST, Stage.IN_FLIGHT),
        (TimeoutError(), LOST, Stage.IN_FLIGHT),
        (ValueError("mine"), None, Stage.ANSWERED),
    ],
)
def test_exceptions_are_told_by_how_far_the_request_got(error, reason, stage):
    """Before the first byte everything may be repeated; after it, only what is idempotent; the rest is not retried."""
    assert (reason, stage) == judged(error)


def test_a_status_that_proves_nothing_is_not_retried_for_writes():
    """502, 503 and 504 may come after the work: only what is idempotent is sent again."""
    verdicts = {status: classify_http_status(status, idempotent=False).reason for status in (429, 502, 503, 504)}

    assert {429: "SERVICE_RESPONSE_CODE_INDICATED", 502: None, 503: None, 504: None} == verdicts


def test_a_service_may_promise_that_it_has_done_nothing():
    """A status that is a refusal by contract allows a write to be sent again."""
    assert classify_http_status(503, idempotent=False, refusals=(503,)).repeats_mutations


@pytest.mark.parametrize(("status", "error"), [(200, None), (404, SdkError.COUCHBASE_EXCEPTION)])
def test_other_statuses_are_final(status, error):
    """A status that asks for nothing is a success or a failure, and not retried."""
    verdict = classify_http_status(status, idempotent=True)

    assert (None, error) == (verdict.reason, verdict.error)


def test_a_hint_is_a_floor_for_a_policy():
    """Retry-After goes into the failure's hint, which no policy undercuts."""
    verdict = classify_http_status(429, idempotent=False, after=timedelta(minutes=1))
    clock = VirtualClock()

    decision = Policy(deadline=None).decide(History(1, clock.now()), verdict.failure(), clock.now(), 0.0)

    assert isinstance(decision, Retry)
    assert timedelta(minutes=1) == decision.delay


# ----------------------------------------------------------------------------------------------------------------- gRPC


@pytest.mark.parametrize(("dispatched", "repeats"), [(True, False), (False, True)])
def test_unavailable_is_repeated_for_writes_only_if_it_was_not_sent(dispatched, repeats):
    """UNAVAILABLE proves nothing by itself."""
    verdict = classify_grpc("UNAVAILABLE", read_only=False, dispatched=dispatched)

    assert ("SERVICE_NOT_AVAILABLE", repeats) == (verdict.reason, verdict.repeats_mutations)


def test_a_locked_document_is_retried():
    """The precondition LOCKED is the reason KV_LOCKED."""
    assert "KV_LOCKED" == classify_grpc("FAILED_PRECONDITION", read_only=False, violation="LOCKED").reason


def test_ok_is_a_success():
    """The code OK has neither a reason nor an error."""
    assert SUCCESS == classify_grpc("OK", read_only=False)


@pytest.mark.parametrize("code", ["FAILED_PRECONDITION", "NEVER_HEARD_OF"])
def test_what_nobody_knows_is_final(code):
    """Unknown preconditions and codes are not retried."""
    verdict = classify_grpc(code, read_only=True, violation="NEW")

    assert (None, SdkError.COUCHBASE_EXCEPTION) == (verdict.reason, verdict.error)


def test_every_reason_is_registered():
    """The reasons of the rows are names that the registry knows."""
    rows = (*transport.EVENTS.values(), *rpc.CODES.values(), *rpc.PRECONDITIONS.values())

    assert all(row.reason is None or RetryReason.parse(row.reason).name == row.reason for row in rows)


# ------------------------------------------------------------------------------------------------------------ verdicts


def test_a_verdict_without_a_reason_is_not_for_the_orchestrator():
    """No reason means: do not ask. Neither the orchestrator nor a policy retries it."""
    verdict = Verdict(None, SdkError.CAS_MISMATCH)
    clock = VirtualClock()
    decision = Policy().decide(History(1, clock.now()), verdict.failure(), clock.now(), 0.5)

    assert (None, None, False) == (verdict.classified(), verdict.repeats_mutations, verdict.permits(idempotent=True))
    assert isinstance(decision, GiveUp)


def test_a_verdict_with_a_reason_is_a_failure_with_a_stage():
    """What the orchestrator hears is the reason and how far the request got."""
    failure = classify_event("closed in flight").classified()

    assert (LOST, Stage.IN_FLIGHT, "closed in flight") == (failure.reason, failure.stage, failure.message)


def test_success_asks_for_nothing():
    """The verdict of a success has no reason and no error."""
    assert (None, None, Stage.ANSWERED) == (SUCCESS.reason, SUCCESS.error, SUCCESS.stage)


# ---------------------------------------------------------------------------------------------------------- operations


@pytest.mark.parametrize(
    ("service", "operation", "options", "idempotent"),
    [
        ("kv", "get", {}, True),
        ("kv", "upsert", {}, False),
        ("kv", "never_heard_of", {}, False),
        ("query", "", {"readonly": True}, True),
        ("query", "", {"readonly": False}, False),
        ("search", "", {}, True),
        ("manager", "", {"method": "DELETE"}, False),
        ("never_heard_of", "", {}, False),
    ],
)
def test_only_what_is_listed_is_idempotent(service, operation, options, idempotent):
    """Whatever RFC 0049 does not list is not idempotent."""
    assert idempotent == is_idempotent(service, operation, options)


@pytest.mark.parametrize(("profile", "idempotent"), [(Profile.STRICT, False), (Profile.EXTENDED, True)])
def test_what_the_list_forgot_is_in_the_extended_profile(profile, idempotent):
    """The operation exists only reads, and stands in the extended list."""
    assert idempotent == is_idempotent("kv", "exists", profile=profile)


@pytest.mark.parametrize(("elapsed", "left"), [(0, 75), (5, 70), (80, 0)])
def test_the_server_gets_what_is_left(elapsed, left):
    """The timeout in the body of a request shrinks from dispatch to dispatch, to zero at the least."""
    assert timedelta(seconds=left) == payload_timeout(timedelta(seconds=75), timedelta(seconds=elapsed))
