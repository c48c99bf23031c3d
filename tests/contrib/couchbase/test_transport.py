"""Connections, exceptions of HTTP clients, HTTP statuses, gRPC; operations and verdicts."""

from __future__ import annotations

import asyncio
import socket
from datetime import timedelta

import httpx
import httpx2
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
from redrive.errors import PolicyValueError, RequestCancelled
from redrive.orchestrator import Orchestrator, Request, RetryReason
from redrive.policy import Failure, GiveUp, History, Policy, Retry, Stage
from redrive.testing import VirtualClock

LOST = "SOCKET_CLOSED_WHILE_IN_FLIGHT"


def judged(error):
    """Return the reason and the stage of an exception."""
    verdict = classify_exception(Failure.of(error))
    return verdict.reason, verdict.stage


@pytest.mark.parametrize("event", transport.EVENTS)
def test_an_event_in_flight_is_no_reason_to_repeat_a_write(event):
    """Stages agree with the flags of the reasons: only requests that were not sent may be repeated."""
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
        (httpx2.RemoteProtocolError("Server disconnected without sending a response."), LOST, Stage.IN_FLIGHT),
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
def test_exceptions_are_classified_by_the_stage_of_the_request(error, reason, stage):
    """Before the first byte everything may be repeated; after it, only what is idempotent; the rest is not retried."""
    assert (reason, stage) == judged(error)


def test_an_inconclusive_status_is_not_retried_for_writes():
    """502, 503 and 504 may come after the work: only what is idempotent is sent again."""
    verdicts = {status: classify_http_status(status, idempotent=False).reason for status in (429, 502, 503, 504)}

    assert {429: "SERVICE_RESPONSE_CODE_INDICATED", 502: None, 503: None, 504: None} == verdicts


def test_a_misdirected_request_may_be_sent_again():
    """421 allows to repeat a write, since the wrong server has refused it."""
    verdict = classify_http_status(421, idempotent=False)

    assert ("SERVICE_RESPONSE_CODE_INDICATED", Stage.ANSWERED) == (verdict.reason, verdict.stage)


def test_a_service_may_promise_that_it_has_done_nothing():
    """Statuses that are refusals by contract allow to repeat a write."""
    assert classify_http_status(503, idempotent=False, refusals=(503,)).repeats_mutations


@pytest.mark.parametrize(("status", "error"), [(200, None), (404, SdkError.COUCHBASE_EXCEPTION)])
def test_other_statuses_are_final(status, error):
    """Other statuses are a success or a failure, and are not retried."""
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


@pytest.mark.parametrize(
    ("read_only", "dispatched", "reason", "repeats"),
    [
        (False, True, LOST, False),
        (False, False, "SERVICE_NOT_AVAILABLE", True),
        (True, True, "SERVICE_NOT_AVAILABLE", False),
    ],
)
def test_unavailable_is_repeated_for_writes_only_if_it_was_not_sent(read_only, dispatched, reason, repeats):
    """UNAVAILABLE is repeated for writes only with a proof, as its reason requires."""
    verdict = classify_grpc("UNAVAILABLE", read_only=read_only, dispatched=dispatched)

    assert (reason, repeats, SdkError.SERVICE_NOT_AVAILABLE) == (
        verdict.reason,
        verdict.repeats_mutations,
        verdict.error,
    )


@pytest.mark.parametrize("code", rpc.CODES)
@pytest.mark.parametrize("dispatched", [True, False])
def test_the_reason_of_a_write_allows_a_retry_only_with_a_proof(code, dispatched):
    """Clients that pass only the name of the reason never repeat a write that may have run."""
    verdict = classify_grpc(code, read_only=False, dispatched=dispatched)
    allows = verdict.reason is not None and RetryReason.of(verdict.reason).allows_non_idempotent_retry

    assert not (allows and verdict.stage is Stage.IN_FLIGHT)


def test_an_upsert_that_may_have_run_is_sent_once():
    """UNAVAILABLE after the dispatch ends an upsert as ambiguous."""
    request = Request("upsert", timeout="100ms", clock=VirtualClock())
    sent = 0

    async def main():
        nonlocal sent
        orchestrator = Orchestrator()
        orchestrator.begin(request)
        again = True
        while again:
            request.attempt.dispatch("node1")
            sent += 1
            reason = classify_grpc("UNAVAILABLE", read_only=False).reason
            again = await orchestrator.maybe_retry(request, reason)

    with pytest.raises(RequestCancelled, match=LOST):
        asyncio.run(main())
    assert (1, True) == (sent, request.is_ambiguous)


@pytest.mark.parametrize(
    ("dispatched", "error"), [(True, SdkError.AMBIGUOUS_TIMEOUT), (False, SdkError.UNAMBIGUOUS_TIMEOUT)]
)
def test_a_deadline_before_sending_is_unambiguous(dispatched, error):
    """DEADLINE_EXCEEDED of a write is ambiguous, unless it is proved that the call was never sent."""
    assert error is classify_grpc("DEADLINE_EXCEEDED", read_only=False, dispatched=dispatched).error


@pytest.mark.parametrize(
    ("code", "violation", "error"),
    [
        ("RESOURCE_EXHAUSTED", "", SdkError.RATE_LIMITED),
        ("FAILED_PRECONDITION", "", SdkError.INTERNAL_SERVER_FAILURE),
        ("FAILED_PRECONDITION", "NOT_LOCKED", SdkError.DOCUMENT_NOT_LOCKED),
        ("FAILED_PRECONDITION", "FLUSH_DISABLED", SdkError.BUCKET_NOT_FLUSHABLE),
    ],
)
def test_codes_and_preconditions_name_the_error(code, violation, error):
    """Codes and preconditions without a retry select the error."""
    verdict = classify_grpc(code, read_only=False, violation=violation)

    assert (None, error) == (verdict.reason, verdict.error)


def test_a_locked_document_is_retried():
    """LOCKED as a precondition is the reason KV_LOCKED."""
    assert "KV_LOCKED" == classify_grpc("FAILED_PRECONDITION", read_only=False, violation="LOCKED").reason


def test_ok_is_a_success():
    """OK has neither a reason nor an error."""
    assert SUCCESS == classify_grpc("OK", read_only=False)


@pytest.mark.parametrize("code", ["FAILED_PRECONDITION", "NEVER_HEARD_OF"])
def test_unknown_codes_are_final(code):
    """Unknown preconditions and codes are not retried."""
    verdict = classify_grpc(code, read_only=True, violation="NEW")

    assert (None, SdkError.COUCHBASE_EXCEPTION) == (verdict.reason, verdict.error)


def test_every_reason_is_registered():
    """Reasons of the rows are registered."""
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
    """Verdicts with a reason become failures with a reason and a stage."""
    failure = classify_event("closed in flight").classified()

    assert (LOST, Stage.IN_FLIGHT, "closed in flight") == (failure.reason, failure.stage, failure.message)


def test_success_needs_no_retry():
    """Verdicts of a success have no reason and no error."""
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
        ("http", "", {"method": "GET"}, True),
        ("http", "", {"method": "PUT"}, False),
        ("http", "", {}, False),
    ],
)
def test_only_what_is_listed_is_idempotent(service, operation, options, idempotent):
    """Whatever RFC 0049 does not list is not idempotent."""
    assert idempotent == is_idempotent(service, operation, options)


@pytest.mark.parametrize("service", ["never_heard_of", "", "Query"])
def test_an_unknown_service_is_refused(service):
    """Unknown services are refused with the names of the known ones."""
    with pytest.raises(PolicyValueError, match=f"{service!r} is no service of Couchbase: give one of kv, query"):
        is_idempotent(service, options={"readonly": True})


@pytest.mark.parametrize(("profile", "idempotent"), [(Profile.STRICT, False), (Profile.EXTENDED, True)])
def test_exists_is_read_only_in_the_extended_profile(profile, idempotent):
    """`exists` is in the extended list of read-only operations."""
    assert idempotent == is_idempotent("kv", "exists", profile=profile)


@pytest.mark.parametrize(("elapsed", "left"), [(0, 75), (5, 70), (80, 0)])
def test_the_server_gets_the_remaining_time(elapsed, left):
    """Timeouts in the body of a request decrease from dispatch to dispatch, to zero at the least."""
    assert timedelta(seconds=left) == payload_timeout(timedelta(seconds=75), timedelta(seconds=elapsed))
