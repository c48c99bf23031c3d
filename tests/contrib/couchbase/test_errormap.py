"""The error map of a key-value server."""

from __future__ import annotations

import json
import logging
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.contrib.couchbase import ErrorMap, RetrySpec, SdkError, classify_kv, read_error_map
from redrive.contrib.couchbase.errormap import RETRY_ATTRIBUTES, ErrorMapEntry, Remark

UNKNOWN = 0xFF
SECOND = timedelta(seconds=1)


def document(**errors):
    """Return an error map with these entries; a code is written as ``xff``."""
    return json.dumps(
        {"version": 2, "revision": 3, "errors": {key.removeprefix("x"): each for key, each in errors.items()}}
    )


def map_with(*attributes):
    """Return an error map with one status and these attributes."""
    return read_error_map(document(xff={"name": "X", "desc": "an x", "attrs": list(attributes)})).error_map


@pytest.mark.parametrize("attribute", sorted(RETRY_ATTRIBUTES))
def test_a_retry_attribute_asks_the_orchestrator(attribute):
    """Each of the three retry attributes is a retry indication."""
    assert "KV_ERROR_MAP_RETRY_INDICATED" == classify_kv(UNKNOWN, "get", error_map=map_with(attribute)).reason


def test_the_no_retry_attribute_precedes_retry():
    """Entries with no-retry are not retried, whatever their other attributes."""
    assert None is classify_kv(UNKNOWN, "get", error_map=map_with("retry-now", "no-retry")).reason


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ((), SdkError.COUCHBASE_EXCEPTION),
        (("temp",), SdkError.TEMPORARY_FAILURE),
        (("auth", "temp"), SdkError.AUTHENTICATION_FAILURE),
        (("rate-limit", "temp"), SdkError.RATE_LIMITED),
        (("item-locked",), SdkError.DOCUMENT_LOCKED),
        (("invalid-input",), SdkError.INVALID_ARGUMENT),
        (("internal",), SdkError.INTERNAL_SERVER_FAILURE),
    ],
)
def test_attributes_name_the_error_and_nothing_more(attributes, error):
    """Without a retry attribute nothing is retried, temp included; the others select the error."""
    verdict = classify_kv(UNKNOWN, "get", error_map=map_with(*attributes))

    assert (None, error) == (verdict.reason, verdict.error)


@pytest.mark.parametrize("attribute", ["special-handling", "conn-state-invalidated"])
def test_unknown_connection_attributes_close_the_connection(attribute):
    """Attributes that concern the connection close it."""
    assert classify_kv(UNKNOWN, "get", error_map=map_with(attribute)).closes


def test_an_entry_can_ask_for_a_newer_configuration():
    """fetch-config refreshes and does not retry by itself."""
    verdict = classify_kv(UNKNOWN, "get", error_map=map_with("fetch-config"))

    assert (True, None) == (verdict.refreshes, verdict.reason)


@pytest.mark.parametrize("status", [0x09, 0x31, 0x82])
def test_a_known_status_does_not_use_the_error_map(status):
    """Known statuses do not use the error map."""
    error_map = ErrorMap(2, 1, {status: ErrorMapEntry(status, attributes=frozenset({"retry-now"}))})

    assert None is classify_kv(status, "unlock", error_map=error_map).reason


def test_without_a_map_an_unknown_status_surfaces_by_its_number():
    """Without a map an unknown status is named in the message."""
    verdict = classify_kv(UNKNOWN, "get")

    assert (None, "unknown status 0xff") == (verdict.reason, verdict.detail)


def test_unknown_attributes_are_kept_apart():
    """Unknown attributes are skipped, and the others apply."""
    entry = map_with("brand-new", "retry-later").entries[UNKNOWN]

    assert (True, ("brand-new",)) == (entry.indicates_retry, entry.unknown_attributes)


@pytest.mark.parametrize("key", ["zz", "1fff0", "-1", "+9", " 9", "0_9", ""])
def test_an_invalid_status_drops_only_its_entry(key):
    """Entries with a key that is no sixteen-bit hexadecimal number are skipped with a warning."""
    reading = read_error_map(document(**{key: {"name": "Z"}, "xfff0": {"name": "R", "attrs": ["retry-now"]}}))

    assert ((key,), [0xFFF0]) == (reading.error_map.ignored, list(reading.error_map.entries))
    assert [logging.WARNING, logging.DEBUG] == [remark.level for remark in reading.remarks]


def test_an_invalid_entry_is_dropped_alone():
    """Entries that are no object are skipped."""
    assert ("9",) == read_error_map(document(x9="locked", x10={})).error_map.ignored


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": None, "attrs": ["retry-now"]}, "name: null is no text"),
        ({"desc": 7, "attrs": ["retry-now"]}, "desc: 7 is no text"),
        ({"attrs": ["retry-now", None]}, "attrs: null is no text"),
        ({"attrs": ["retry-now"], "retry": "soon"}, "retry: Expected `object`, got `str`"),
        (
            {"attrs": ["retry-now"], "retry": {"strategy": "x", "interval": 1, "after": 1}},
            'retry: "x" is no strategy (known: constant, linear, exponential)',
        ),
    ],
)
def test_an_invalid_field_is_dropped_alone(fields, problem):
    """Fields that cannot be read are named in a warning; the others are kept."""
    reading = read_error_map(document(x99=fields))
    entry = reading.error_map.entries[0x99]

    assert (True, (problem,)) == (entry.indicates_retry, entry.problems)
    assert Remark(logging.WARNING, f"the error map's entry 0x99: {problem}") == reading.remarks[0]


def test_null_attributes_are_an_empty_list():
    """Entries with null attributes keep their name."""
    entry = read_error_map(document(x99={"name": "X", "attrs": None})).error_map.entries[0x99]

    assert ("X", frozenset(), ("attrs: null is no list",)) == (entry.name, entry.attributes, entry.problems)


@pytest.mark.parametrize("version", ["null", '"2"', "true", "1.5", "9" * 5000])
def test_an_invalid_version_is_dropped_alone(version):
    """Maps without a version or a revision are usable, and older than any other."""
    body = f'{{"version":{version},"errors":{{"99":{{"attrs":["retry-now"]}}}}}}'
    found = read_error_map(body).error_map

    assert (0, 0, [0x99]) == (found.version, found.revision, list(found.entries))


def test_a_status_that_is_given_twice_is_named():
    """Of two entries for one status the last one counts, with a warning."""
    reading = read_error_map('{"version":1,"revision":1,"errors":{"99":{"name":"a"},"99":{"name":"b"}}}')

    assert "b" == reading.error_map.entries[0x99].name
    assert "the error map's 99: given more than once, the last one counts" == reading.remarks[0].text


@pytest.mark.parametrize(
    "body",
    ["null", '{"errors":null}', "[" * 100_000, "", "{not json", "[]", '{"version": 1}', b"\xff\xfe", '{"version":"1"}'],
)
def test_an_unreadable_error_map_is_ignored(body):
    """Answers that cannot be read are a logged problem, not an exception."""
    reading = read_error_map(body)

    assert (None, True, logging.WARNING) == (reading.error_map, bool(reading.problem), reading.remarks[0].level)


def test_a_refused_error_map_request_is_ignored():
    """Statuses other than success are reported with their number."""
    assert "KV error map negotiation failed (status 0x81)" == read_error_map("{}", status=0x81).problem


@pytest.mark.parametrize(
    "retry",
    [
        {"strategy": "fibonacci", "interval": 1, "after": 1},
        {"strategy": "linear"},
        {"strategy": "linear", "interval": -1, "after": 1},
        {"strategy": "linear", "interval": 10**30, "after": 1},
        "soon",
        None,
    ],
)
def test_a_retry_object_that_cannot_be_read_is_left_out(retry):
    """It is not used by default, so that the entry is kept without it."""
    entry = read_error_map(document(x99={"name": "X", "attrs": ["retry-now"], "retry": retry})).error_map.entries[0x99]

    assert (None, True) == (entry.spec, entry.indicates_retry)


def test_a_higher_revision_is_newer():
    """Of two maps of a node the higher revision wins, whatever their versions."""
    assert (True, False) == (
        ErrorMap(1, 4).supersedes(ErrorMap(2, 1)),
        ErrorMap(2, 1).supersedes(ErrorMap(2, 1)),
    )


@pytest.mark.parametrize(
    ("spec", "delays"),
    [
        (RetrySpec("constant", SECOND, 2 * SECOND), [2, 1, 1, 1]),
        (RetrySpec("constant", SECOND, 2 * SECOND, ceil=SECOND / 2), [2, 0.5, 0.5, 0.5]),
        (RetrySpec("linear", SECOND, 2 * SECOND, ceil=2 * SECOND), [2, 1, 2, 2]),
        (RetrySpec("exponential", SECOND / 100, SECOND), [1, 0.01, 0.1, 1]),
        (RetrySpec("exponential", SECOND / 1000, SECOND), [1, 0.001, 0.001, 0.001]),
    ],
)
def test_the_delays_of_the_server_can_be_computed(spec, delays):
    """Delays follow the server's kind: constant, linear or exponential, up to the ceiling."""
    assert delays == [spec.delay(retries).total_seconds() for retries in range(4)]


@given(
    st.sampled_from(["constant", "linear", "exponential"]),
    st.integers(0, 10**6),
    st.none() | st.integers(0, 10**6),
    st.integers(1, 10**5),
)
def test_no_delay_exceeds_the_ceiling(strategy, interval, ceil, retries):
    """However many retries there were, the delay is a time span, and the ceiling bounds it."""
    millisecond = timedelta(milliseconds=1)
    top = None if ceil is None else ceil * millisecond

    delay = RetrySpec(strategy, interval * millisecond, SECOND, top).delay(retries)

    assert timedelta(0) <= delay <= (timedelta.max if top is None else top)


def test_attempts_end_before_the_longest_duration():
    """Attempts begin before the longest duration has passed, and never at it."""
    spec = RetrySpec("constant", SECOND, SECOND, max_duration=3 * SECOND)

    assert [0, 1, 2] == [at.total_seconds() for at in spec.attempts()]


def test_attempts_without_a_longest_duration_never_overflow():
    """Delays that grow without a bound end where time spans do, and not in an error."""
    spec = RetrySpec("exponential", 1000 * SECOND, SECOND)

    assert [timedelta(0), SECOND] == list(spec.attempts())[:2]
