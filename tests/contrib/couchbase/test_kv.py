"""Statuses of the key-value service."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.contrib.couchbase import Profile, SdkError, classify_kv
from redrive.contrib.couchbase.kv import ERRORS, RETRIES, is_known
from redrive.contrib.couchbase.operations import OPERATIONS, Family
from redrive.orchestrator import RetryReason
from redrive.policy import Stage

OF_RFC_0049 = {
    0x07: "KV_NOT_MY_VBUCKET",
    0x88: "KV_COLLECTION_OUTDATED",
    0x09: "KV_LOCKED",
    0x86: "KV_TEMPORARY_FAILURE",
    0xA2: "KV_SYNC_WRITE_IN_PROGRESS",
    0xA4: "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS",
}


def test_the_strict_profile_is_the_list_of_the_rfc():
    """For an ordinary operation the strict profile retries RFC 0049's six statuses and no other."""
    verdicts = {status: classify_kv(status, "upsert", profile=Profile.STRICT) for status in range(0x100)}

    assert OF_RFC_0049 == {status: each.reason for status, each in verdicts.items() if each.reason}


def test_the_extended_profile_has_three_more_statuses():
    """In the extended profile busy, unknown scope and a bucket without data are retried."""
    extended = {status for status in range(0x100) if classify_kv(status, "upsert").reason}

    assert {0x85, 0x8C, 0x0D} == extended - set(OF_RFC_0049)


def test_only_a_bucket_without_data_asks_for_a_newer_configuration():
    """0x0d is retried after the configuration has been fetched anew."""
    assert {0x0D} == {status for status in range(0x100) if classify_kv(status, "get").refreshes}


@pytest.mark.parametrize("operation", [row.name for row in OPERATIONS.values() if row.family is Family.DCP])
def test_the_change_stream_is_never_retried(operation):
    """No status sends a DCP command to the orchestrator."""
    verdicts = [classify_kv(status, operation, profile=profile) for status in range(0x100) for profile in Profile]

    assert {None} == {verdict.reason for verdict in verdicts}


@pytest.mark.parametrize(("profile", "reason"), [(Profile.STRICT, "KV_TEMPORARY_FAILURE"), (Profile.EXTENDED, None)])
def test_bootstrap_commands_are_not_retried(profile, reason):
    """In the extended profile bootstrap commands are left to the owner of the connection."""
    assert reason == classify_kv(0x86, "select_bucket", profile=profile).reason


def test_unlocking_a_locked_document_is_a_mismatch():
    """0x09 in answer to an unlock is a CAS mismatch, and is not retried."""
    verdict = classify_kv(0x09, "unlock")

    assert (None, SdkError.CAS_MISMATCH) == (verdict.reason, verdict.error)


@pytest.mark.parametrize("status", [0x88, 0x8C])
def test_asking_for_a_collection_that_is_not_there_surfaces(status):
    """To the question for a collection's id, "unknown" is the answer."""
    assert None is classify_kv(status, "get_collection_id").reason


@pytest.mark.parametrize("operation", ["range_scan_continue", "range_scan_cancel"])
@pytest.mark.parametrize(("profile", "retried"), [(Profile.STRICT, True), (Profile.EXTENDED, False)])
def test_a_step_of_a_range_scan_does_not_move(operation, profile, retried):
    """Not my vbucket ends a range scan, which begins anew elsewhere; RFC 0049 does not know range scans."""
    assert retried == (classify_kv(0x07, operation, profile=profile).reason is not None)


@pytest.mark.parametrize(
    ("operation", "cas", "error"),
    [
        ("insert", None, SdkError.DOCUMENT_EXISTS),
        ("insert", 5, SdkError.DOCUMENT_EXISTS),
        ("replace", 5, SdkError.CAS_MISMATCH),
        ("remove", None, SdkError.CAS_MISMATCH),
        ("increment", 0, SdkError.DOCUMENT_EXISTS),
    ],
)
def test_exists_is_a_cas_mismatch_only_with_a_cas(operation, cas, error):
    """0x02 means that the document exists, or a CAS mismatch if the request had a CAS."""
    assert error is classify_kv(0x02, operation, cas=cas).error


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ("insert", SdkError.DOCUMENT_EXISTS),
        ("append", SdkError.DOCUMENT_NOT_FOUND),
        ("prepend", SdkError.DOCUMENT_NOT_FOUND),
        ("upsert", SdkError.NOT_STORED),
    ],
)
def test_not_stored_depends_on_the_operation(operation, error):
    """0x05 means that an insert found the document, or that an append did not."""
    assert error is classify_kv(0x05, operation).error


def test_a_response_is_an_answer():
    """Statuses are definite answers, except for the ambiguous one (0xa3)."""
    stages = {status: classify_kv(status, "upsert").stage for status in range(0x100)}

    assert {0xA3: Stage.IN_FLIGHT} == {status: stage for status, stage in stages.items() if stage is not Stage.ANSWERED}


def test_success_is_no_failure():
    """Success, on a deleted document or in parts, has neither a reason nor an error."""
    verdicts = [classify_kv(status, "mutate_in") for status in (0x00, 0xCC, 0xCD, 0xD3)]

    assert [(None, None)] * 4 == [(verdict.reason, verdict.error) for verdict in verdicts]


@given(st.integers(0, 0xFFFF), st.sampled_from(sorted(OPERATIONS)) | st.text(), st.sampled_from(Profile))
def test_the_strict_profile_retries_no_more_than_the_extended_except_scans(status, operation, profile):
    """Only scans and bootstrap commands are retried by the strict profile and not by the extended one."""
    strict, extended = (classify_kv(status, operation, profile=each).reason for each in Profile)
    known = OPERATIONS.get(operation)

    assert strict in {None, extended} or known.family in {Family.SCAN, Family.BOOTSTRAP}


def test_every_retried_status_has_an_error():
    """Statuses in the list of retries have an error, too."""
    assert all(is_known(status) and ERRORS[status].error for status in RETRIES)


def test_every_reason_is_registered():
    """Reasons of the rows are registered."""
    assert all(RetryReason.parse(row.reason).name == row.reason for row in RETRIES.values())
