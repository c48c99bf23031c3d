"""The official SDK's errors, read rightly. The exceptions are the SDK's own, built by its own code."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from datetime import timedelta

import pytest

from redrive.contrib.couchbase import Profile, SdkError
from redrive.policy import Backoff, Policy, Stage
from tests.contrib.couchbase.sdk_errors import exceptions, kv_error, needed, query_error, service_error

sdk = needed("redrive.contrib.couchbase.sdk")

AMBIGUOUS, UNAMBIGUOUS = 13, 14
LOST = "SOCKET_CLOSED_WHILE_IN_FLIGHT"


@pytest.mark.parametrize("reason", ["key_value_locked", "key_value_temporary_failure"])
def test_true_error_restores_ambiguous_timeouts(reason):
    """`true_error` restores ambiguous timeouts that the SDK raises as the class of a past reason."""
    raised = kv_error(AMBIGUOUS, reasons=[reason], attempts=2)
    true = sdk.true_error(raised)

    assert not isinstance(raised, exceptions.AmbiguousTimeoutException)  # if this fails, the SDK has been mended
    assert exceptions.AmbiguousTimeoutException is type(true)
    assert (AMBIGUOUS, raised, raised.error_context) == (true.error_code, true.__cause__, true.error_context)


def test_the_reasons_stay_in_the_context():
    """True errors still have the reasons of the SDK's retries."""
    raised = kv_error(AMBIGUOUS, reasons=["key_value_locked"], attempts=2)

    report = sdk.report_of(sdk.true_error(raised))

    assert (SdkError.AMBIGUOUS_TIMEOUT, 2, ["KV_LOCKED"]) == (
        report.error,
        report.retry_attempts,
        [reason.name for reason in report.retry_reasons],
    )
    assert "10.0.0.1:11210" == report.last_dispatched_to
    assert "AmbiguousTimeout: the SDK retried 2 times (KV_LOCKED), last sent to 10.0.0.1:11210" == report.note


@pytest.mark.parametrize(
    "raised", [kv_error(103, reasons=["key_value_locked"]), kv_error(101), kv_error(999), query_error(17)]
)
def test_an_error_of_the_right_class_is_left_alone(raised):
    """Errors with matching class and code, or an unknown code, are returned unchanged."""
    assert raised is sdk.true_error(raised)


def test_an_error_without_context_has_an_empty_report():
    """Exceptions without code and context have an empty report and are not retried."""
    raised = exceptions.CouchbaseException(message="odd")
    report = sdk.report_of(raised)

    assert (None, SdkError.COUCHBASE_EXCEPTION, 0, (), None) == (
        report.code,
        report.error,
        report.retry_attempts,
        report.retry_reasons,
        report.last_dispatched_to,
    )
    assert "CouchbaseException: the SDK did not retry, last sent to no node that it names" == report.note
    assert (None, "odd") == (sdk.verdict_of(raised).reason, sdk.verdict_of(raised).detail)


@pytest.mark.parametrize(
    ("code", "stage"), [(AMBIGUOUS, Stage.IN_FLIGHT), (UNAMBIGUOUS, Stage.ANSWERED), (4, Stage.NOT_SENT)]
)
def test_the_code_determines_the_stage(code, stage):
    """Codes decide the stage: ambiguous timeouts are in flight, and requests without a service were not sent."""
    assert stage is sdk.verdict_of(kv_error(code, to=None)).stage


@pytest.mark.parametrize(("read_only", "reason"), [(True, "SERVICE_NOT_AVAILABLE"), (False, LOST)])
def test_a_request_with_a_node_in_its_context_was_sent(read_only, reason):
    """Requests count as sent if the context names a node, whatever the code."""
    verdict = sdk.verdict_of(kv_error(4, to="10.0.0.1:18098"), read_only=read_only)

    assert (reason, Stage.IN_FLIGHT) == (verdict.reason, verdict.stage)


def test_a_read_that_timed_out_is_not_ambiguous():
    """Reads are never ambiguous, whatever the SDK's code."""
    assert SdkError.UNAMBIGUOUS_TIMEOUT is sdk.verdict_of(kv_error(AMBIGUOUS), read_only=True).error


BODY = '{"errors":[{"code":%d,"msg":"x","retry":true}]}'


@pytest.mark.parametrize(
    ("raised", "reason", "error"),
    [
        (query_error(5, body=BODY % 99999), "QUERY_ERROR_RETRYABLE", SdkError.COUCHBASE_EXCEPTION),
        (query_error(5, first=(4050, "gone")), "QUERY_PREPARED_STATEMENT_FAILURE", SdkError.PREPARED_STATEMENT_FAILURE),
        (query_error(UNAMBIGUOUS, body=BODY % 99999), None, SdkError.UNAMBIGUOUS_TIMEOUT),
        (query_error(8, http_status=200), None, SdkError.PARSING_FAILURE),
        (query_error(2, http_status=0), "SOCKET_CLOSED_WHILE_IN_FLIGHT", SdkError.REQUEST_CANCELED),
        (
            service_error("AnalyticsErrorContext", 5, 400, BODY % 23000),
            "ANALYTICS_TEMPORARY_FAILURE",
            SdkError.TEMPORARY_FAILURE,
        ),
        (service_error("SearchErrorContext", 5, 429), "SEARCH_TOO_MANY_REQUESTS", SdkError.COUCHBASE_EXCEPTION),
        (service_error("ViewErrorContext", 5, 302), "VIEWS_NO_ACTIVE_PARTITION", SdkError.COUCHBASE_EXCEPTION),
        (service_error("HTTPErrorContext", 5, 429), "SERVICE_RESPONSE_CODE_INDICATED", SdkError.COUCHBASE_EXCEPTION),
    ],
)
def test_an_answer_is_classified_by_the_rules_of_its_service(raised, reason, error):
    """Answers are classified by the rules of their service; without an answer the code decides."""
    verdict = sdk.verdict_of(raised)

    assert (reason, error) == (verdict.reason, verdict.error)


def test_the_profile_and_delivered_rows_are_passed_on():
    """Profile and delivered rows are passed on: delivered rows prevent every retry."""
    raised = query_error(5, body=BODY % 99999)

    assert (None, None) == (
        sdk.verdict_of(raised, profile=Profile.STRICT).reason,
        sdk.verdict_of(raised, rows_delivered=1).reason,
    )


# ------------------------------------------------------------------------------------------------------ under a policy

POLICY = Policy(on=sdk.failure_of, attempts=3, backoff=Backoff.constant(0), jitter="none")


def calls_until_the_end(policy, *raised):
    """Return the number of calls of a function that raises these errors, one for each call, and then returns."""
    script, calls = [*raised, None], []

    def ask():
        calls.append(1)
        if error := script[len(calls) - 1]:
            raise error

    with suppress(exceptions.CouchbaseException, ValueError):
        policy.call(ask)
    return len(calls)


@pytest.mark.parametrize(
    ("raised", "calls"),
    [
        (query_error(5, body=BODY % 99999), 2),
        (kv_error(UNAMBIGUOUS), 2),
        (kv_error(103), 2),
        (kv_error(AMBIGUOUS, reasons=["key_value_locked"]), 1),
        (kv_error(101), 1),
        (ValueError("mine"), 1),
    ],
)
def test_a_policy_repeats_unambiguous_failures(raised, calls):
    """failure_of as a policy's classifier retries refusals and unambiguous timeouts, and no ambiguous ones."""
    assert calls == calls_until_the_end(POLICY, raised)


def test_an_idempotent_call_repeats_an_ambiguous_timeout():
    """Idempotent calls repeat an ambiguous timeout."""
    assert 2 == calls_until_the_end(POLICY.with_(idempotent=True), kv_error(AMBIGUOUS))


def test_a_failure_has_the_types_of_the_true_error():
    """Rules that name the SDK's timeout match although the SDK has raised another class."""
    failure = sdk.failure_of(kv_error(AMBIGUOUS, reasons=["key_value_locked"]))

    assert ("couchbase.exceptions.AmbiguousTimeoutException", "TIMEOUT", Stage.IN_FLIGHT) == (
        failure.error_type,
        failure.reason,
        failure.stage,
    )


# --------------------------------------------------------------------------------------------------------- the real one


@pytest.mark.acceptance
def test_a_missing_cluster_is_an_unambiguous_timeout():
    """Without a cluster the real SDK raises code 14 with an empty context."""
    cluster = needed("acouchbase.cluster")
    options = needed("couchbase.options")
    auth = needed("couchbase.auth")
    with socket.socket() as taken:  # bound and not listening: whoever connects is refused
        taken.bind(("127.0.0.1", 0))
        timeouts = options.ClusterTimeoutOptions(bootstrap_timeout=timedelta(milliseconds=200))
        given = options.ClusterOptions(auth.PasswordAuthenticator("user", "password"), timeout_options=timeouts)

        async def _connect():
            await cluster.AsyncCluster.connect(f"couchbase://127.0.0.1:{taken.getsockname()[1]}", given)

        with pytest.raises(exceptions.UnAmbiguousTimeoutException) as raised:
            asyncio.run(_connect())

    report = sdk.report_of(raised.value)
    assert (UNAMBIGUOUS, SdkError.UNAMBIGUOUS_TIMEOUT, None) == (report.code, report.error, report.last_dispatched_to)
