"""Adapters for the services of ``couchbase.json``: what a response, an exception or a lost connection comes to.

A case whose status is ``rfc`` must hold under both profiles; any other is about the extended one. Divergences document
what the SDKs do instead.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from redrive.contrib.couchbase import (
    ErrorMap,
    Profile,
    RetrySpec,
    ServiceError,
    classify_analytics,
    classify_enterprise_analytics,
    classify_event,
    classify_exception,
    classify_grpc,
    classify_http_status,
    classify_kv,
    classify_query,
    classify_search,
    classify_views,
    is_idempotent,
    payload_timeout,
    read_error_map,
    read_service_errors,
)
from redrive.policy import Backoff, Failure, GiveUp, History, Policy, Stage
from redrive.retrying.orchestrator import FailFast, FailFastOnTerminalError, RetryAction
from tests.conformance.adapters.couchbase_runs import run
from tests.conformance.adapters.vocabulary import NOTES, UnknownWord, demand, read, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from redrive.contrib.couchbase import Verdict
    from tests.conformance.loading import Case

NOTED = NOTES | {"group", "divergence"}
START = datetime(2026, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
GENERIC = "CouchbaseException"


def _input(case: Case, *fields: str) -> Mapping[str, Any]:
    read(case.data, "input", "expected", notes=NOTED)
    return read(case.data["input"], *fields)


def _expected(case: Case, *fields: str) -> Mapping[str, Any]:
    expected = read(case.data["expected"], *fields)
    demand(expected, *fields)
    return expected


def _profiles(case: Case) -> tuple[Profile, ...]:
    return tuple(Profile) if case.data["status"] == "rfc" else (Profile.EXTENDED,)


# ---------------------------------------------------------------------------------------------------- what is compared

_VERDICT = (
    "retry_reason",
    "reason",
    "raises",
    "raises_if_not_retried",
    "close_connection",
    "refresh_config",
    "ok",
    "not",
    "retry_attempts",
    "idempotent_only",
    "before_retry",
    "orchestrator_called",
    "why",
)
"""Fields of an outcome that are said of one verdict. ``why`` is for people."""


def _check(verdict: Verdict, expected: Mapping[str, Any]) -> None:
    for name in expected:
        if name in _CHECKS:
            _CHECKS[name](verdict, expected[name])


def _raises(verdict: Verdict, error: str) -> None:
    generic = re.fullmatch(r"generic error naming (\w+)", error)
    if generic:
        assert GENERIC == verdict.error
        assert generic[1] in verdict.detail
    else:
        assert (GENERIC if error == "terminal" else error) == verdict.error
    assert verdict.reason is None


def _reason(verdict: Verdict, reason: str | None) -> None:
    assert reason == verdict.reason


def _surfaces(verdict: Verdict, error: str) -> None:
    assert error == verdict.error


def _prepares(verdict: Verdict, words: str) -> None:
    if "re-prepare" not in words:
        raise UnknownWord(words)
    assert verdict.prepares


def _closes(verdict: Verdict, closes: bool) -> None:
    assert closes == verdict.closes


def _refreshes(verdict: Verdict, refreshes: bool) -> None:
    assert refreshes == verdict.refreshes


def _succeeds(verdict: Verdict, ok: bool) -> None:
    assert ok == (verdict.error is None)


def _differs(verdict: Verdict, reason: str) -> None:
    assert reason != verdict.reason


def _retries(verdict: Verdict, attempts: int) -> None:
    assert attempts == run([verdict]).request.retry_attempts


def _idempotent_only(verdict: Verdict, only: bool) -> None:
    assert (only, True) == (not verdict.permits(idempotent=False), verdict.permits(idempotent=True))


def _asks(verdict: Verdict, asked: bool) -> None:
    assert asked == (verdict.classified() is not None)


_CHECKS: dict[str, Callable[[Verdict, Any], None]] = {
    "retry_reason": _reason,
    "reason": _reason,
    "raises": _raises,
    "raises_if_not_retried": _surfaces,
    "close_connection": _closes,
    "refresh_config": _refreshes,
    "ok": _succeeds,
    "not": _differs,
    "retry_attempts": _retries,
    "idempotent_only": _idempotent_only,
    "before_retry": _prepares,
    "orchestrator_called": _asks,
}


def _errors(data: Mapping[str, Any]) -> tuple[ServiceError, ...]:
    return read_service_errors(json.dumps(data["errors"])) if "errors" in data else read_service_errors(data["body"])


# ----------------------------------------------------------------------------------------------------------- key-value


def kv_status(case: Case) -> None:
    """What a status comes to for an operation."""
    data = _input(case, "status", "op", "cas", "in_flight", "response_opaque")
    expected = _expected(case, *_VERDICT, "only_if", "both")
    if "response_opaque" in data:
        verdict = classify_event(word(data["response_opaque"], {"unknown": "unknown opaque"}))
        _check(verdict, expected)
        assert [expected["both"]] * len(data["in_flight"]) == [verdict.reason] * len(data["in_flight"])
        return
    for profile in _profiles(case):
        error_map = _map_that_says(data["status"], expected["only_if"]) if "only_if" in expected else None
        verdict = classify_kv(data["status"], data["op"], cas=data.get("cas"), error_map=error_map, profile=profile)
        _check(verdict, expected)


def _map_that_says(status: int, condition: str) -> ErrorMap:
    found = re.fullmatch(r"not known and map says ([\w-]+)", condition)
    if not found:
        raise UnknownWord(condition)
    return _map_with(status, [found[1]])


def _map_with(status: int, attributes: list[str]) -> ErrorMap:
    entry = {"name": "CASE", "desc": "of the case", "attrs": attributes}
    reading = read_error_map(json.dumps({"version": 2, "revision": 1, "errors": {f"{status:x}": entry}}))
    assert reading.error_map is not None
    return reading.error_map


def error_map_decision(case: Case) -> None:
    """What a server's error map does to a status."""
    data = _input(case, "status", "op", "attrs", "strategy", "known")
    expected = _expected(case, *_VERDICT, "outcome")
    error_map = None if data["attrs"] is None else _map_with(data["status"], data["attrs"])
    for profile in _profiles(case):
        verdict = classify_kv(data["status"], data.get("op", "get"), error_map=error_map, profile=profile)
        _check(verdict, expected)
    if "outcome" in expected:
        found = re.fullmatch(r"RequestCanceled\(NO_MORE_RETRIES\((\w+)\)\)", expected["outcome"])
        strategy = word(data["strategy"], {"fail_fast": FailFast()})
        ended = run([verdict], forever=True, strategy=strategy)
        assert found  # ours raises what the server said, not "no more retries"
        assert (found[1], 0) == (ended.error.verdict.reason, ended.request.retry_attempts)


def idempotency(case: Case) -> None:
    """Whether an operation is in the list; ``configurable``: whether only the extended profile has it."""
    data = _input(case, "service", "op", "options")
    expected = _expected(case, "idempotent", "configurable")
    strict, extended = (
        is_idempotent(data["service"], data.get("op", ""), data.get("options", {}), profile=profile)
        for profile in (Profile.STRICT, Profile.EXTENDED)
    )
    assert expected["idempotent"] == strict
    assert expected.get("configurable", False) == (strict != extended)


_EVENTS = {
    "ECONNREFUSED": "connection refused",
    "vbucket has no active node": "no active node",
    "no query node in config": "no such service",
    "short write": "short write",
    "write on a session already closed": "closed before write",
    "queue full": "queue full",
    "pipeline queue full": "queue full",
    "pipeline overloaded": "queue full",
    "send queue full": "queue full",
    "write queue full": "queue full",
    "circuit breaker open": "circuit open",
    "circuit open": "circuit open",
    "unknown opaque": "unknown opaque",
}


def kv_transport(case: Case) -> None:
    """What happens below a response."""
    data = _input(case, "event", "bytes_written", "dispatched", "op")
    expected = _expected(case, *_VERDICT, "retry")
    event = data["event"]
    if event == "EOF":
        name = "closed in flight" if data["dispatched"] else "closed before write"
    else:
        name = word(event, _EVENTS)
    verdict = classify_event(name)
    _check(verdict, expected)
    if "bytes_written" in data:
        assert (data["bytes_written"] == 0) == (verdict.stage is Stage.NOT_SENT)
    if "retry" in expected:
        assert expected["retry"] == verdict.permits(idempotent=is_idempotent("kv", data["op"]))


# ----------------------------------------------------------------------------------------------------------- error map


def error_map_parse(case: Case) -> None:
    """What can be read of an error map."""
    data = _input(case, "version", "revision", "errors", "raw", "status", "requested", "got", "have", "future")
    expected = _expected(case, *_READINGS, "use")
    if "have" in data:
        have, got = (read_error_map(json.dumps({"errors": {}, **data[which]})).error_map for which in ("have", "got"))
        assert have
        assert got
        assert word(expected["use"], {"got": True, "have": False}) == got.supersedes(have)
        return
    reading = read_error_map(_raw(data), status=data.get("status", 0))
    _check_reading(reading, expected)


def _raw(data: Mapping[str, Any]) -> str:
    if "raw" in data:
        raw: str = data["raw"]
        return raw
    return json.dumps(data.get("got", data))


def _check_reading(reading: Any, expected: Mapping[str, Any]) -> None:
    for name in expected:
        _READINGS[name](reading, expected[name])


def _can_be_read(reading: Any, ok: bool) -> None:
    assert ok == (reading.error_map is not None)


def _goes_on(reading: Any, goes_on: bool) -> None:  # there is an answer, and no exception
    assert goes_on == (reading.error_map is None and bool(reading.problem))


def _skips_entry(reading: Any, choice: str) -> None:
    if "skip entry, warn, keep the rest" not in choice:
        raise UnknownWord(choice)
    assert (1, True, "WARN") == (len(reading.error_map.ignored), bool(reading.error_map.entries), _levels(reading)[0])


def _told_problem(reading: Any, problem: str) -> None:
    assert problem.lower() == reading.problem.lower()


def _levels(reading: Any) -> list[str]:
    return [{10: "DEBUG", 30: "WARN"}[remark.level] for remark in reading.remarks]


def _told_level(reading: Any, level: str) -> None:
    assert [level] == _levels(reading)


def _told_levels(reading: Any, events: list[str]) -> None:  # the names are those of another SDK
    assert [word(event.split()[1], {"DEBUG": "DEBUG", "WARN": "WARN"}) for event in events] == _levels(reading)


def _of_version(reading: Any, version: int) -> None:
    assert version == reading.error_map.version


def _of_revision(reading: Any, revision: int) -> None:
    assert revision == reading.error_map.revision


def _with_entries(reading: Any, count: int) -> None:
    assert count == len(reading.error_map.entries)


def _ignores(reading: Any, keys: list[str]) -> None:
    assert keys == list(reading.error_map.ignored)


def _finds(reading: Any, entries: Mapping[str, Any]) -> None:
    for key, entry in entries.items():
        _check_entry(reading.error_map.entries.get(int(key, 16)), entry)


_READINGS: dict[str, Callable[[Any, Any], None]] = {
    "ok": _can_be_read,
    "connection_continues_without_map": _goes_on,
    "ok_or_rejected": _skips_entry,
    "error": _told_problem,
    "event": _told_problem,
    "severity": _told_level,
    "events": _told_levels,
    "version": _of_version,
    "revision": _of_revision,
    "count": _with_entries,
    "ignored_keys": _ignores,
    "lookup": _finds,
}


def _check_entry(entry: Any, expected: Mapping[str, Any] | None) -> None:
    if expected is None:
        assert entry is None
        return
    read(expected, "retry", "unknown_attrs", "attrs", "spec", "name", "desc")
    if "retry" in expected:
        assert expected["retry"] == entry.indicates_retry
    if "unknown_attrs" in expected:
        assert expected["unknown_attrs"] == list(entry.unknown_attributes)
    if "attrs" in expected:
        assert set(expected["attrs"]) == entry.attributes | set(entry.unknown_attributes)
    if "name" in expected:
        assert expected["name"] == entry.name
    if "desc" in expected:
        assert expected["desc"] == entry.description
    if "spec" in expected:
        spec = read(expected["spec"], "strategy", "interval_ms", "after_ms", "max_duration_ms", "ceil_ms")
        assert _spec({key.removesuffix("_ms").replace("_", "-"): value for key, value in spec.items()}) == entry.spec


def error_map_retry_spec(case: Case) -> None:
    """The helper that computes what the server would like, and that it is not used by default."""
    data = _input(case, "spec", "retry_count", "status", "times", "strategy")
    expected = _expected(case, "delay_ms", "attempt_times_ms", "retry_attempts", "reasons", "delays_ms")
    if "strategy" in data:
        _check_not_used(data, expected)
        return
    spec = _spec(read(data["spec"], "strategy", "interval", "after", "ceil", "max-duration"))
    if "delay_ms" in expected:
        assert expected["delay_ms"] * MILLISECOND == spec.delay(data["retry_count"])
    if "attempt_times_ms" in expected:
        assert [at * MILLISECOND for at in expected["attempt_times_ms"]] == list(spec.attempts())


def _spec(data: Mapping[str, Any]) -> RetrySpec:
    spans = (data[name] for name in ("interval", "after"))
    bounds = (data.get(name) for name in ("ceil", "max-duration"))
    return RetrySpec(
        data["strategy"],
        *(each * MILLISECOND for each in spans),
        *(None if each is None else each * MILLISECOND for each in bounds),
    )


def _check_not_used(data: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    said = re.fullmatch(r"(\w+) (\d+) after (\d+)", data["spec"])
    fixed = re.fullmatch(r"fixed (\d+) ms", data["strategy"])
    if not (said and fixed):
        raise UnknownWord(f"{data['spec']}, {data['strategy']}")
    retry = {"strategy": said[1], "interval": int(said[2]), "after": int(said[3])}
    entry = {"name": "CASE", "attrs": ["auto-retry"], "retry": retry}
    body = json.dumps({"version": 1, "revision": 1, "errors": {f"{data['status']:x}": entry}})
    verdict = classify_kv(data["status"], "upsert", error_map=read_error_map(body).error_map)
    ended = run([verdict] * data["times"], strategy=lambda _request, _reason: RetryAction(f"{fixed[1]}ms"))
    assert expected["retry_attempts"] == ended.request.retry_attempts
    assert expected["reasons"] == [reason.name for reason in ended.request.retry_reasons]
    assert expected["delays_ms"] == ended.delays


# ------------------------------------------------------------------------------------------------- query and analytics


def query(case: Case) -> None:
    """What a response of the query service comes to."""
    data = _input(case, "http_status", "errors", "body", "rows_delivered", "timeout_ms", "attempt_2_starts_at_ms")
    expected = _expected(case, *_VERDICT, "payload_timeout_ms_attempt_2")
    if "timeout_ms" in data:
        left = payload_timeout(data["timeout_ms"] * MILLISECOND, data["attempt_2_starts_at_ms"] * MILLISECOND)
        assert expected["payload_timeout_ms_attempt_2"] * MILLISECOND == left
        return
    for profile in _profiles(case):
        rows = data.get("rows_delivered", 0)
        _check(classify_query(data["http_status"], _errors(data), rows_delivered=rows, profile=profile), expected)


def service_error_parse(case: Case) -> None:
    """The errors that can be read of a body."""
    data = _input(case, "body")
    assert case.data["expected"] == list(_as_told(read_service_errors(data["body"])))


def _as_told(errors: tuple[ServiceError, ...]) -> Iterator[dict[str, Any]]:
    for error in errors:
        told = {"code": error.code, "msg": error.message, "retry": error.retry is True}
        yield {**told, "reason": dict(error.cause)} if error.cause else told


_LOOP = ("max_retries", "responses", "timeout_ms", "remaining_ms", "delay_ms")


def analytics(case: Case) -> None:
    """What a response of the analytics service comes to, and how the enterprise client goes on."""
    data = _input(case, "http_status", "errors", "readonly", "forever", "profile", "exception", *_LOOP)
    if "profile" in data or "exception" in data:
        _enterprise(case, data)
    elif set(_LOOP) & set(data):
        _enterprise_loop(case, data)
    else:
        _operational(case, data)


def _operational(case: Case, data: Mapping[str, Any]) -> None:
    expected = _expected(case, *_VERDICT, "raises_at_timeout")
    readonly = data.get("readonly", False)
    for profile in _profiles(case):
        verdict = classify_analytics(_errors(data), readonly=readonly, profile=profile)
        _check(verdict, expected)
        if "raises_at_timeout" in expected:
            idempotent = is_idempotent("analytics", options={"readonly": readonly}, profile=profile)
            ended = run([verdict], forever=data["forever"], idempotent=idempotent)
            assert expected["raises_at_timeout"] == type(ended.error).__name__


def _enterprise(case: Case, data: Mapping[str, Any]) -> None:
    expected = _expected(case, "retry", "reported_code", "raises")
    if "exception" in data:
        verdict, reported = _of_exception(data["exception"]), None
    else:
        word(data["profile"], {"enterprise_analytics": None})
        verdict, reported = classify_enterprise_analytics(data["http_status"], _errors(data))
    assert expected["retry"] == (run([verdict], strategy=FailFastOnTerminalError()).error is None)
    if "raises" in expected:
        assert expected["raises"] == verdict.error
    if "reported_code" in expected:
        assert reported
        assert expected["reported_code"] == reported.code


def _enterprise_loop(case: Case, data: Mapping[str, Any]) -> None:
    expected = _expected(case, "raises", "num_attempts", "last_errors_in_context")
    if "responses" in data:
        word(data["responses"], {"all retriable for ever": None})
    errors = (ServiceError(23000, "a", retry=True),)
    failure = classify_enterprise_analytics(400, errors)[0].failure()
    delay = data.get("delay_ms", 100) * MILLISECOND
    bound = data.get("timeout_ms", data.get("remaining_ms"))
    attempts = data["max_retries"] + 1 if "max_retries" in data else 10**6
    limit = None if bound is None else bound * MILLISECOND
    policy = Policy(attempts=attempts, deadline=limit, backoff=Backoff.constant(delay), jitter="none")
    made, now = 1, START
    while not isinstance(decision := policy.decide(History(made, START), failure, now, 0.5), GiveUp):
        made, now = made + 1, now + decision.delay
    rule = "deadline" if expected["raises"].startswith("Timeout") else "attempts"
    assert rule == decision.rule
    if "num_attempts" in expected:
        assert expected["num_attempts"] == made
    if "immediately" in expected["raises"]:
        assert now == START
    if "last_errors_in_context" in expected:
        assert expected["last_errors_in_context"] == bool(failure.message)


# ----------------------------------------------------------------------------------------------------- search and views


def search(case: Case) -> None:
    """What a response of the search service comes to."""
    data = _input(case, "http_status", "body")
    expected = _expected(case, *_VERDICT)
    for profile in _profiles(case):
        _check(classify_search(data["http_status"], data["body"], profile=profile), expected)


def views(case: Case) -> None:
    """What a response of the view service comes to."""
    data = _input(case, "http_status", "body")
    expected = _expected(case, *_VERDICT, "sequence", *_OBSERVED)
    for profile in _profiles(case):
        verdict = classify_views(data["http_status"], data["body"], profile=profile)
        _check(verdict, expected)
        if _OBSERVED[0] in expected:  # of those observed, the Java SDK is the one that has the list
            assert expected[_OBSERVED[0]] == verdict.reason
        if "sequence" in expected:
            _check_sequence(expected["sequence"], data["body"], profile)


_OBSERVED = ("jvm", "go", "cxx", "dotnet")


def _check_sequence(words: str, body: str, profile: Profile) -> None:
    found = re.fullmatch(r"(\d+) x(\d+) then (\d+) => (\d+) dispatches, 1 result", words)
    if not found:
        raise UnknownWord(words)
    status, times, last, dispatches = map(int, found.groups())
    answers = [classify_views(each, body, profile=profile) for each in [*[status] * times, last]]
    ended = run(answers, idempotent=True)
    assert (dispatches, None) == (ended.dispatches, ended.error)


# ------------------------------------------------------------------------------------------------------- HTTP and gRPC

_FRAMES = {
    "h2 GOAWAY last_stream_id < ours": "stream not processed",
    "h2 GOAWAY last_stream_id >= ours": "closed in flight",
    "h2 REFUSED_STREAM": "stream not processed",
    "h2 RST_STREAM REFUSED_STREAM": "stream not processed",
}


def _of_exception(text: str) -> Verdict:
    if text in _FRAMES:
        return classify_event(_FRAMES[text])
    found = re.fullmatch(r"(?:([\w.]+)\.)?(\w+)(?:\('(.*)'\))?", text)
    if not found:
        raise UnknownWord(text)
    kind = getattr(import_module(found[1] or "builtins"), found[2], None)
    if kind is None:
        raise UnknownWord(text)
    return classify_exception(Failure.of(kind(found[3] or "it failed")))


def http_transport(case: Case) -> None:
    """What an exception or a status of HTTP comes to."""
    data = _input(case, "exception", "method", "status", "retry_after_s", "timeout_left_ms")
    expected = _expected(case, *_VERDICT, "non_idempotent_ok", "unless", "delay_floor_ms", "outcome")
    if "exception" in data:
        verdict = _of_exception(data["exception"])
        _check(verdict, expected)
        if "non_idempotent_ok" in expected:
            assert expected["non_idempotent_ok"] == verdict.repeats_mutations
        return
    after = timedelta(seconds=data["retry_after_s"]) if "retry_after_s" in data else None
    idempotent = is_idempotent("manager", options={"method": data["method"]})
    verdict = classify_http_status(data["status"], idempotent=idempotent, after=after)
    _check(verdict, expected)
    if "unless" in expected:
        promised = classify_http_status(data["status"], idempotent=idempotent, refusals={data["status"]})
        assert (None, False) == (verdict.reason, promised.reason is None)
    if "delay_floor_ms" in expected:
        assert expected["delay_floor_ms"] * MILLISECOND == verdict.after
    if "outcome" in expected:
        if "fail now" not in expected["outcome"]:
            raise UnknownWord(expected["outcome"])
        policy = Policy(deadline=data["timeout_left_ms"] * MILLISECOND)
        assert isinstance(policy.decide(History(1, START), verdict.failure(), START, 0.5), GiveUp)


def grpc(case: Case) -> None:
    """What a gRPC status comes to."""
    data = _input(case, "code", "read_only", "violation", "responses")
    expected = _expected(case, *_VERDICT, "dispatches")
    if "responses" in data:
        answers = [_grpc_answer(response) for response in data["responses"]]
        ended = run(answers)
        assert (expected["dispatches"], None) == (ended.dispatches, ended.error)
        assert expected["retry_attempts"] == ended.request.retry_attempts
        return
    read_only = data.get("read_only", False)
    _check(classify_grpc(data["code"], read_only=read_only, violation=data.get("violation", "")), expected)


def _grpc_answer(response: str) -> Verdict:
    code = "OK" if response == "OK" else "FAILED_PRECONDITION"
    return classify_grpc(code, read_only=False, violation="" if code == "OK" else response)
