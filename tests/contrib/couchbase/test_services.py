"""Query, analytics, search and views; and the bodies that they send."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.contrib.couchbase import (
    Profile,
    SdkError,
    ServiceError,
    analytics,
    bodies,
    classify_analytics,
    classify_enterprise_analytics,
    classify_query,
    classify_search,
    classify_views,
    query,
    read_service_errors,
)
from redrive.contrib.couchbase.service import AllCodes
from redrive.orchestrator import RetryReason
from redrive.policy import Stage

TEMPORARY = "VIEWS_TEMPORARY_FAILURE"


def one(code, message="x", **fields):
    """Return one error in the service's form."""
    return (ServiceError(code, message, **fields),)


# ------------------------------------------------------------------------------------------------------------- bodies


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        (b'{"errors":[{"code":1,"msg":"m"},{"code":2}]}', (ServiceError(1, "m"), ServiceError(2, ""))),
        ('{"code":1,"msg":"m","retriable":true}', one(1, "m", retry=True)),
        ('{"code":1,"msg":"m","retry":false,"retriable":true}', one(1, "m", retry=False)),
        ("[]", ()),
        (" \n", ()),
        ("12: down\n", one(12, "down")),
        (b"\xff", one(0, "Failed to decode error: \ufffd")),
        ('"text"', one(0, 'Failed to decode error: "text"')),
    ],
)
def test_errors_are_read_in_every_form(body, errors):
    """Errors are read from an object with errors, an error, an array, or a text."""
    assert errors == read_service_errors(body)


def test_code_zero_differs_from_a_missing_cause():
    """Causes with code 0 differ from missing causes."""
    assert [7, None] == [error.cause_code for error in (ServiceError(1, "m", None, {"code": 7}), ServiceError(1, "m"))]


@pytest.mark.parametrize(
    ("body", "code", "message", "problem"),
    [
        ('{"errors":[{"code":4040,"msg":"m","retry":"yes"}]}', 4040, "m", 'retry: "yes" is neither true nor false'),
        ('{"errors":[{"code":4040,"msg":"m","retriable":1}]}', 4040, "m", "retriable: 1 is neither true nor false"),
        ('{"errors":[{"code":"4040","msg":"m"}]}', 4040, "m", 'code: "4040" is no whole number; read as 4040'),
        ('{"errors":[{"code":4040.0,"msg":"m"}]}', 4040, "m", "code: 4040.0 is no whole number; read as 4040"),
        ('{"errors":[{"code":"x","msg":"m"}]}', 0, "m", 'code: "x" is no whole number; there is no code'),
        ('{"errors":[{"code":true,"msg":"m"}]}', 0, "m", "code: true is no whole number; there is no code"),
        ('{"errors":[{"code":1e400,"msg":"m"}]}', 0, "m", "code: Infinity is no whole number; there is no code"),
        ('{"code":' + "9" * 5000 + ',"msg":"m"}', 0, "m", "code: Infinity is no whole number; there is no code"),
        ('{"errors":[{"code":4040,"msg":null}]}', 4040, "", "msg: null is no text"),
        ('{"errors":[{"code":4040,"msg":["a"]}]}', 4040, '["a"]', 'msg: ["a"] is no text'),
        ('{"errors":[{"code":4040,"msg":"m","reason":"r"}]}', 4040, "m", 'reason: "r" is no object'),
        ('{"errors":null,"code":4040,"msg":"m"}', 4040, "m", "errors: null is no list"),
        ('{"errors":"e","code":4040,"msg":"m"}', 4040, "m", 'errors: "e" is no list'),
        ('{"errors":null}', 0, 'Failed to decode error: {"errors":null}', "errors: null is no list"),
        ('{"errors":{"code":4040,"msg":"m"}}', 4040, "m", "errors: one error instead of a list"),
        ('{"errors":[[{"code":4040,"msg":"m"}]]}', 4040, "m", "errors[0]: a list in the list of errors"),
        ('{"errors":[null,{"code":4040,"msg":"m"}]}', 4040, "m", "errors[0]: null is no object"),
        ('{"errors":[null]}', 0, "Failed to decode error: null", "errors[0]: null is no object"),
        ('{"errors":["4040: m"]}', 4040, "m", 'errors[0]: "4040: m" is no object'),
        ('{"errors":["m"]}', 0, "m", 'errors[0]: "m" is no object'),
        ("[7]", 0, "Failed to decode error: 7", "[0]: 7 is no object"),
        ('{"code":1,"code":4040,"msg":"m"}', 4040, "m", "code: given more than once, the last value counts"),
        (
            '{"errors":[],"errors":[{"code":4040,"msg":"m"}]}',
            4040,
            "m",
            "errors: given more than once, the last one counts",
        ),
    ],
)
def test_a_malformed_field_is_dropped_alone(body, code, message, problem):
    """Malformed fields are named in the detail; the others are kept."""
    error = read_service_errors(body)[0]

    assert (code, message, None, (problem,)) == (error.code, error.message, error.retry, error.problems)
    assert f"{code} {message} (cannot be read: {problem})" == classify_query(400, (error,)).detail


def test_one_malformed_error_does_not_affect_the_others():
    """In a list of errors each is read by itself."""
    errors = read_service_errors('{"errors":[{"code":1,"msg":"a"},{"code":[],"msg":2},7,{"code":3,"retry":true}]}')

    assert [(1, "a", None), (0, "2", None), (0, "Failed to decode error: 7", None), (3, "", True)] == [
        (error.code, error.message, error.retry) for error in errors
    ]


def test_unknown_fields_are_kept_as_context():
    """Unknown fields, and a reason that is no object, are kept as context."""
    (error,) = read_service_errors('{"errors":[{"code":1,"msg":"m","sev":4,"reason":"r","column":null}]}')

    assert {"sev": 4, "column": None, "reason": "r"} == error.context


@pytest.mark.parametrize(("sent", "code"), [(17014, 17014), ("17014", 17014), ([1], None), (None, None)], ids=repr)
def test_a_malformed_code_of_a_cause_is_dropped_alone(sent, code):
    """Codes of a cause may be numbers or texts of digits; others are None."""
    assert code == ServiceError(12009, "m", None, {"code": sent}).cause_code
    error = SdkError.DML_FAILURE if code is None else SdkError.DOCUMENT_NOT_FOUND
    assert error is classify_query(400, one(12009, cause={"code": sent})).error


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["errors", "code", "msg", "retry", "reason", "x"]), inner)
        ),
    )
)
def test_no_document_is_an_exception(document):
    """Whatever JSON a service sends, it can be read and judged."""
    errors = read_service_errors(json.dumps(document))

    assert isinstance(classify_query(400, errors).detail, str)


@given(st.text() | st.binary())
def test_no_body_is_an_exception(body):
    """Whatever a service sends, its errors are a tuple."""
    assert isinstance(read_service_errors(body), tuple)


# -------------------------------------------------------------------------------------------------------------- query


def test_a_forgotten_statement_is_prepared_again():
    """Forgotten prepared statements are retried as another request."""
    verdict = classify_query(400, one(4050))

    assert ("QUERY_PREPARED_STATEMENT_FAILURE", True) == (verdict.reason, verdict.prepares)


@pytest.mark.parametrize(("profile", "reason"), [(Profile.STRICT, None), (Profile.EXTENDED, "QUERY_ERROR_RETRYABLE")])
def test_the_servers_flag_counts_in_the_extended_profile(profile, reason):
    """retry: true is believed by the extended profile only."""
    assert reason == classify_query(400, one(99999, retry=True), profile=profile).reason


def test_an_index_that_is_not_found_is_not_retried_for_its_flag():
    """12016 carries retry: true and never succeeds."""
    verdict = classify_query(400, one(12016, retry=True))

    assert (None, SdkError.INDEX_NOT_FOUND) == (verdict.reason, verdict.error)


@pytest.mark.parametrize(
    ("profile", "readonly", "reason"),
    [
        (Profile.STRICT, True, None),
        (Profile.EXTENDED, True, "SERVICE_NOT_AVAILABLE"),
        (Profile.EXTENDED, False, "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
    ],
)
def test_a_gateways_unavailable_is_retried_only_for_reads(profile, readonly, reason):
    """503 without a body is retried only for reads, and the reason of a write reflects that."""
    verdict = classify_query(503, (), readonly=readonly, profile=profile)

    assert (reason, False) == (verdict.reason, verdict.permits(idempotent=False))


def test_success_has_no_verdict():
    """Responses without errors and with status 200 are successes."""
    assert (None, None) == (classify_query(200, ()).error, classify_analytics((), http_status=200).error)


@pytest.mark.parametrize("verdict", [classify_query(500, ()), classify_analytics((), http_status=500)])
def test_a_failure_without_an_error_is_final(verdict):
    """Failures without an error are final and name their HTTP status."""
    assert (None, SdkError.COUCHBASE_EXCEPTION, "HTTP status 500 without an error") == (
        verdict.reason,
        verdict.error,
        verdict.detail,
    )


@pytest.mark.parametrize("errors", [one(4040), one(5000, "queryport.indexNotFound"), one(1, retry=True)])
def test_nothing_is_retried_after_the_first_delivered_row(errors):
    """After the first row that reached the caller nothing is retried."""
    assert None is classify_query(200, errors, rows_delivered=1).reason


@pytest.mark.parametrize(
    ("code", "message", "error"),
    [
        (1065, "Unrecognized parameter: query_context", SdkError.FEATURE_NOT_AVAILABLE),
        (1065, "Unrecognized parameter: foo", SdkError.INVALID_ARGUMENT),
        (2120, "x", SdkError.AUTHENTICATION_FAILURE),
        (5000, "GSI index foo not found", SdkError.INDEX_NOT_FOUND),
        (13014, "x", SdkError.AUTHENTICATION_FAILURE),
        (17014, "x", SdkError.DOCUMENT_NOT_FOUND),
        (123456, "x", SdkError.COUCHBASE_EXCEPTION),
    ],
)
def test_codes_of_the_query_service_name_the_error(code, message, error):
    """Codes without a retry select the error, some together with a text."""
    assert error is classify_query(400, one(code, message)).error


@given(st.integers(0, 10**6), st.text(), st.none() | st.booleans(), st.sampled_from(Profile))
def test_every_code_has_an_error(code, message, retry, profile):
    """Tables of query and analytics have a row for every code."""
    errors = one(code, message, retry=retry)

    assert None not in {classify_query(400, errors, profile=profile).error, classify_analytics(errors).error}


# ---------------------------------------------------------------------------------------------------------- analytics


@pytest.mark.parametrize(
    ("readonly", "error"), [(True, SdkError.UNAMBIGUOUS_TIMEOUT), (False, SdkError.AMBIGUOUS_TIMEOUT)]
)
def test_a_timeout_of_the_service_is_ambiguous_for_what_writes(readonly, error):
    """21002 is ambiguous for statements that write."""
    verdict = classify_analytics(one(21002), readonly=readonly)

    assert (error, Stage.IN_FLIGHT) == (verdict.error, verdict.stage)


def test_rows_forbid_a_retry_of_analytics_too():
    """After the first row that reached the caller nothing is retried."""
    assert None is classify_analytics(one(23000), rows_delivered=1).reason


def test_enterprise_analytics_retries_only_if_all_errors_are_retriable():
    """Enterprise Analytics retries only if all errors are retriable; otherwise the first other error is raised."""
    errors = (ServiceError(23000, "a", retry=True), ServiceError(24000, "b"))

    verdict, reported = classify_enterprise_analytics(400, errors)

    assert (None, SdkError.QUERY_ERROR, 24000) == (verdict.reason, verdict.error, reported.code)


@pytest.mark.parametrize(
    ("status", "errors", "outcome"),
    [
        (200, (), (None, None)),
        (500, (), (None, SdkError.QUERY_ERROR)),
        (400, one(20000, retry=True), (None, SdkError.INVALID_CREDENTIAL)),
        (503, (), ("ANALYTICS_TEMPORARY_FAILURE", SdkError.QUERY_ERROR)),
    ],
)
def test_enterprise_analytics_checks_statuses_and_two_codes_before_flags(status, errors, outcome):
    """HTTP statuses and two codes are judged before flags."""
    verdict, _ = classify_enterprise_analytics(status, errors)

    assert outcome == (verdict.reason, verdict.error)


# --------------------------------------------------------------------------------------------------- search and views


def test_too_many_searches_are_retried():
    """429 without the name of a limit is retried."""
    assert "SEARCH_TOO_MANY_REQUESTS" == classify_search(429, "busy").reason


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (400, "index not found", SdkError.INDEX_NOT_FOUND),
        (403, "", SdkError.AUTHENTICATION_FAILURE),
        (500, "", SdkError.INTERNAL_SERVER_FAILURE),
        (404, "", SdkError.COUCHBASE_EXCEPTION),
    ],
)
def test_statuses_of_search_name_the_error(status, body, error):
    """Statuses without a retry select the error, some together with a text."""
    assert error is classify_search(status, body).error


@pytest.mark.parametrize(
    ("status", "body", "strict", "extended"),
    [
        (404, '{"reason":"missing"}', TEMPORARY, TEMPORARY),
        (404, '{"reason" : "missing"}', None, TEMPORARY),
        (500, '{"error":"{not_found, missing_named_view}"}', None, None),
        (500, '{"error":"{not_found,\\n missing_named_view}"}', TEMPORARY, None),
        (500, '{"error":"{not_found,\n\tmissing_named_view}"}', TEMPORARY, None),
        (500, '{"error": "badarg"}', None, None),
        (302, "", "VIEWS_NO_ACTIVE_PARTITION", "VIEWS_NO_ACTIVE_PARTITION"),
        (401, "", TEMPORARY, TEMPORARY),
    ],
)
def test_the_strict_profile_accepts_only_the_literals_of_the_rfc(status, body, strict, extended):
    """Only the extended profile accepts other blanks than the RFC's."""
    verdicts = [classify_views(status, body, profile=profile).reason for profile in Profile]

    assert [strict, extended] == verdicts


@given(st.integers(100, 999), st.text(), st.sampled_from(Profile))
def test_every_status_has_a_verdict(status, body, profile):
    """Tables of search and views have a row for every status; only 2xx is no failure."""
    verdicts = [classify(status, body, profile=profile) for classify in (classify_search, classify_views)]

    assert [status in range(200, 300)] * 2 == [verdict.error is None for verdict in verdicts]


# --------------------------------------------------------------------------------------------------------- the tables


def test_every_reason_is_registered():
    """Reasons of the rows are registered."""
    rows = (*query.RETRIES, *analytics.RETRIES, *analytics.ENTERPRISE.values(), *bodies.SEARCH, *bodies.VIEWS)

    assert all(row.reason is None or RetryReason.parse(row.reason).name == row.reason for row in rows)


def test_each_code_has_its_error_and_verdict():
    """Rows may apply to every code but some."""
    assert (True, False) == (1 in AllCodes(but=(2,)), 2 in AllCodes(but=(2,)))
