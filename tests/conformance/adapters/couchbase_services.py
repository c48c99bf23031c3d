"""Adapters for the services of ``couchbase.json``: the verdict on a response, an exception or a lost connection.

A case with the status ``rfc`` must hold under both profiles; any other is about the extended one. Divergences document
what the SDKs do instead.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

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
    rpc,
)
from redrive.contrib.couchbase.kv import is_known
from redrive.contrib.couchbase.transport import EVENTS
from redrive.errors import PolicyValueError
from redrive.orchestrator import FailFastOnTerminalError
from redrive.policy import Backoff, Failure, GiveUp, History, Policy, Stage
from tests.conformance.adapters.couchbase_runs import Run, run
from tests.conformance.adapters.couchbase_strategies import reason_of, strategy_of
from tests.conformance.adapters.couchbase_words import Reading, error_name, parts, same_error, text
from tests.conformance.adapters.vocabulary import NOTES, UnknownWord, read, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from redrive.contrib.couchbase import Verdict
    from tests.conformance.loading import Case

Json = dict[str, Any]

NOTED = NOTES | {"group", "divergence"}
START = datetime(2026, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
GENERIC = "CouchbaseException"


@contextmanager
def _reading(case: Case, fields: tuple[str, ...], outcomes: tuple[str, ...]) -> Iterator[tuple[Reading, Reading]]:
    """Yield the input and the outcome of a case; afterwards, check that every field of both has been read."""
    data, expected = parts(case, fields, outcomes)
    yield data, expected
    data.finish()
    expected.finish()


def _profiles(case: Case) -> tuple[Profile, ...]:
    return tuple(Profile) if case.data["status"] == "rfc" else (Profile.EXTENDED,)


# ---------------------------------------------------------------------------------------------------------- comparisons

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
"""Fields of an outcome that are about one verdict. ``why`` is for human readers."""


def _check(verdict: Verdict, expected: Reading) -> None:
    expected.get("why")
    for name in expected:
        if name in _CHECKS:
            _CHECKS[name](verdict, expected[name])


def _raises(verdict: Verdict, error: str) -> None:
    generic = re.fullmatch(r"generic error naming (\w+)", text(error, "the name of an error"))
    if generic:
        assert GENERIC == verdict.error
        assert generic[1] in verdict.detail
    else:
        _surfaces(verdict, error)
    assert None is verdict.reason


def _reason(verdict: Verdict, reason: str | None) -> None:
    assert (None if reason is None else reason_of(reason).name) == verdict.reason


def _surfaces(verdict: Verdict, error: str) -> None:
    name = error_name(error, "terminal")
    assert (GENERIC if name == "terminal" else name) == (None if verdict.error is None else verdict.error.value)


def _prepares(verdict: Verdict, words: str) -> None:
    if "re-prepare" not in text(words):
        raise UnknownWord(f"before_retry {words!r} (known: ... re-prepare ...)")
    assert verdict.prepares


def _closes(verdict: Verdict, closes: bool) -> None:
    assert closes == verdict.closes


def _refreshes(verdict: Verdict, refreshes: bool) -> None:
    assert refreshes == verdict.refreshes


def _succeeds(verdict: Verdict, ok: bool) -> None:
    assert ok == (verdict.error is None)


def _differs(verdict: Verdict, reason: str) -> None:
    assert reason_of(reason).name != verdict.reason


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


def _errors(data: Reading) -> tuple[ServiceError, ...]:
    if "errors" in data:
        return read_service_errors(json.dumps({"errors": data["errors"]}))
    return read_service_errors(_body(data["body"]))


def _body(content: Any) -> str:
    """Return a body, which a case may give as a text or as its JSON content."""
    return content if isinstance(content, str) else "" if content is None else json.dumps(content)


def _status(content: Any) -> int:
    """Return a status of the key-value service, from a number or hexadecimal digits."""
    if isinstance(content, int) and not isinstance(content, bool):
        return content
    if re.fullmatch(r"0x[0-9a-fA-F]{1,4}", text(content, "a number, 0x86")):
        return int(content, 16)
    raise UnknownWord(f"status {content!r} (known: a number, 0x86)")


# ----------------------------------------------------------------------------------------------------------- key-value


def kv_status(case: Case) -> None:
    """Check the verdict on a status for an operation."""
    fields = ("status", "op", "cas", "in_flight", "response_opaque")
    with _reading(case, fields, (*_VERDICT, "only_if", "both")) as (data, expected):
        if "response_opaque" in data:
            verdict = classify_event(word(data["response_opaque"], {"unknown": "unknown opaque"}))
            _check(verdict, expected)
            assert [expected["both"]] * len(data["in_flight"]) == [verdict.reason] * len(data["in_flight"])
            return
        status = _status(data["status"])
        error_map = _error_map_with(status, expected["only_if"]) if "only_if" in expected else None
        for profile in _profiles(case):
            verdict = classify_kv(
                status, data.get("op", "get"), cas=data.get("cas"), error_map=error_map, profile=profile
            )
            _check(verdict, expected)


def _error_map_with(status: int, condition: str) -> ErrorMap:
    found = re.fullmatch(r"not known and map says ([\w-]+)", text(condition))
    if not found:
        raise UnknownWord(f"only_if {condition!r} (known: not known and map says ATTRIBUTE)")
    return _map_with(status, {"attrs": [found[1]]})


def _map_with(status: int, fields: Mapping[str, Any]) -> ErrorMap:
    entry = {"name": "CASE", "desc": "of the case", **fields}
    reading = read_error_map(json.dumps({"version": 2, "revision": 1, "errors": {f"{status:x}": entry}}))
    assert reading.error_map is not None
    return reading.error_map


def error_map_decision(case: Case) -> None:
    """Check the effect of a server's error map on a status."""
    fields = ("status", "op", "attrs", "strategy", "known", "idempotent")
    with _reading(case, fields, (*_VERDICT, "outcome")) as (data, expected):
        status, operation = _status(data["status"]), data.get("op", "get")
        if data.get("known", is_known(status)) != is_known(status):
            raise UnknownWord(
                f"known={data['known']} (status {status} is {'known' if is_known(status) else 'not known'})"
            )
        error_map = None if data["attrs"] is None else _map_with(status, {"attrs": data["attrs"]})
        strategy = strategy_of(data["strategy"]) if data.get("strategy") is not None else None
        idempotent = data.get("idempotent", is_idempotent("kv", operation))
        for profile in _profiles(case):
            verdict = classify_kv(status, operation, error_map=error_map, profile=profile)
            _check(verdict, expected)
        if "outcome" in expected:
            ended = run([verdict], forever=True, strategy=strategy, idempotent=idempotent)
            assert expected["outcome"] == _ended(ended, expected["outcome"])


def _ended(ended: Run, content: str) -> str:
    """Return the words of the case if the run ended as they describe; otherwise the actual ending."""
    found = re.fullmatch(r"RequestCanceled\(NO_MORE_RETRIES\((\w+)\)\)", text(content))
    if found:  # redrive raises the error of the server, not "no more retries"
        verdict = getattr(ended.error, "verdict", None)
        return (
            content
            if verdict is not None and (found[1], 0) == (verdict.reason, ended.request.retry_attempts)
            else repr(ended)
        )
    if content in ("ok", "timeout"):
        holds = ended.error is None if content == "ok" else isinstance(ended.error, TimeoutError)
        return content if holds else repr(ended.error)
    name = error_name(content)
    verdict = getattr(ended.error, "verdict", None)
    return (
        content
        if same_error(name, ended.error) or (verdict is not None and verdict.error == name)
        else repr(ended.error)
    )


def idempotency(case: Case) -> None:
    """Check whether an operation is in the list; ``configurable``: whether only the extended profile has it."""
    with _reading(case, ("service", "op", "options"), ("idempotent", "configurable", "raises")) as (data, expected):
        options = Reading(data.get("options") or {}, ("readonly", "method"))
        given = {name: options[name] for name in options}
        service, operation = text(data["service"]), data.get("op") or ""
        if "raises" in expected:
            word(expected["raises"], {"InvalidArgument": None})
            with pytest.raises(PolicyValueError):
                is_idempotent(service, operation, given)
            return
        strict, extended = (
            is_idempotent(service, operation, given, profile=profile) for profile in (Profile.STRICT, Profile.EXTENDED)
        )
        if "idempotent" in expected:
            assert expected["idempotent"] == strict
        assert expected.get("configurable", False) == (strict != extended)


_EVENTS = {
    "ECONNREFUSED": "connection refused",
    "connect refused": "connection refused",
    "ETIMEDOUT": "connect timeout",
    "ENOTFOUND": "not resolved",
    "DNS failure": "not resolved",
    "vbucket has no active node": "no active node",
    "no query node in config": "no such service",
    "write on a session already closed": "closed before write",
    "pipeline queue full": "queue full",
    "pipeline overloaded": "queue full",
    "send queue full": "queue full",
    "write queue full": "queue full",
    "circuit breaker open": "circuit open",
    "read timeout": "timeout in flight",
    "SASL AUTH_ERROR": "authentication failed",
    "TLS handshake failed": "tls failed",
    **{name: name for name in EVENTS},
}
_NO_NODE = re.compile(r"no (?:\w+) node in (?:the )?config")
_BROKEN = {"EOF", "ECONNRESET", "EPIPE", "connection reset", "broken pipe", "socket closed", "connection closed"}
"""Events that break a connection, before or after the request has left."""


def kv_transport(case: Case) -> None:
    """Check the verdict on an event below the level of responses."""
    outcomes = (*_VERDICT, "retry", "stage", "non_idempotent_ok")
    with _reading(case, ("event", "bytes_written", "dispatched", "op", "idempotent"), outcomes) as (data, expected):
        verdict = classify_event(_event_of(data))
        idempotent = data.get("idempotent", is_idempotent("kv", data.get("op") or ""))
        _check(verdict, expected)
        if "retry" in expected:
            assert expected["retry"] == verdict.permits(idempotent=idempotent)
        if "non_idempotent_ok" in expected:
            assert expected["non_idempotent_ok"] == verdict.repeats_mutations
        if "stage" in expected:
            assert word(expected["stage"], _STAGES) == verdict.stage.value


_STAGES = {"dispatch": "not_sent", "not_sent": "not_sent", "in_flight": "in_flight", "answered": "answered"}


def _event_of(data: Reading) -> str:
    """Return the event, after checking that its account of the request agrees with the rest of the case."""
    content = text(data["event"])
    written = data.get("bytes_written")
    left = data.get("dispatched", None if written is None else written > 0)
    if content in _BROKEN:
        if left is None:
            raise UnknownWord(f"{content} with neither dispatched nor bytes_written: had the request left?")
        return "closed in flight" if left else "closed before write"
    name = "no such service" if _NO_NODE.fullmatch(content) else word(content, _EVENTS)
    stage = EVENTS[name].stage
    if left is not None and name != "short write" and left == (stage is Stage.NOT_SENT):
        raise UnknownWord(f"{content} with {'something' if left else 'nothing'} sent (known: it is {stage.value})")
    return name


# ----------------------------------------------------------------------------------------------------------- error map

_DOCUMENT = ("version", "revision", "errors", "future")


def error_map_parse(case: Case) -> None:
    """Check the parts of an error map that can be read."""
    fields = (*_DOCUMENT, "raw", "status", "requested", "got", "have")
    with _reading(case, fields, (*_READINGS, "use")) as (data, expected):
        if "have" in data:
            have, got = (_map_of({"errors": {}, **data[which]}) for which in ("have", "got"))
            assert expected["use"] == ("got" if got.supersedes(have) else "have")
            return
        raw = _body(data["raw"]) if "raw" in data else json.dumps(_document(data))
        reading = read_error_map(raw, status=data.get("status") or 0)
        if data.get("requested") is not None and reading.error_map is not None:
            assert reading.error_map.version <= data["requested"]
        for name in expected:
            _READINGS[name](reading, expected[name])


def _document(data: Reading) -> Any:
    return data["got"] if "got" in data else {name: data[name] for name in _DOCUMENT if name in data}


def _map_of(document: Mapping[str, Any]) -> ErrorMap:
    found = read_error_map(json.dumps(document)).error_map
    assert found is not None
    return found


def _can_be_read(reading: Any, ok: bool) -> None:
    assert ok == (reading.error_map is not None)


def _goes_on(reading: Any, goes_on: bool) -> None:  # there is an answer, and no exception
    assert goes_on == (reading.error_map is None and bool(reading.problem))


def _skips_entry(reading: Any, choice: str) -> None:
    if "skip entry, warn, keep the rest" not in text(choice):
        raise UnknownWord(f"ok_or_rejected {choice!r} (known: ... skip entry, warn, keep the rest)")
    assert (1, True, "WARN") == (len(reading.error_map.ignored), bool(reading.error_map.entries), _levels(reading)[0])


def _check_problem(reading: Any, problem: str) -> None:
    assert text(problem).lower() == reading.problem.lower()


def _levels(reading: Any) -> list[str]:
    return [{10: "DEBUG", 30: "WARN"}[remark.level] for remark in reading.remarks]


def _check_level(reading: Any, level: str) -> None:
    assert [level] == _levels(reading)


def _check_levels(reading: Any, events: list[str]) -> None:  # the names are those of another SDK
    content = [re.fullmatch(r"(?:ErrorMap\w+ )?(DEBUG|WARN)(?: \(.*\))?", text(event)) for event in events]
    if None in content:
        raise UnknownWord(f"events {events!r} (known: ErrorMap... DEBUG or WARN)")
    assert [found[1] for found in content if found] == _levels(reading)


def _map(reading: Any) -> ErrorMap:
    assert reading.error_map is not None, reading.problem
    found: ErrorMap = reading.error_map
    return found


def _of_version(reading: Any, version: int) -> None:
    assert version == _map(reading).version


def _of_revision(reading: Any, revision: int) -> None:
    assert revision == _map(reading).revision


def _with_entries(reading: Any, count: int) -> None:
    assert count == len(_map(reading).entries)


def _ignores(reading: Any, keys: list[str]) -> None:
    assert keys == list(_map(reading).ignored)


def _finds(reading: Any, entries: Mapping[str, Any]) -> None:
    for key, entry in entries.items():
        _check_entry(_map(reading).entries.get(_status(key if key.startswith("0x") else f"0x{key}")), entry)


_READINGS: dict[str, Callable[[Any, Any], None]] = {
    "ok": _can_be_read,
    "connection_continues_without_map": _goes_on,
    "ok_or_rejected": _skips_entry,
    "error": _check_problem,
    "event": _check_problem,
    "severity": _check_level,
    "events": _check_levels,
    "version": _of_version,
    "revision": _of_revision,
    "count": _with_entries,
    "ignored_keys": _ignores,
    "lookup": _finds,
}


def _check_entry(entry: Any, content: Any) -> None:
    if content is None:
        assert None is entry
        return
    expected = Reading(content, ("retry", "unknown_attrs", "attrs", "attrs_count", "spec", "name", "desc"))
    assert entry is not None, f"no entry for {content}"
    attributes = entry.attributes | set(entry.unknown_attributes)
    found = {
        "retry": entry.indicates_retry,
        "unknown_attrs": list(entry.unknown_attributes),
        "attrs": attributes,
        "attrs_count": len(attributes),
        "name": entry.name,
        "desc": entry.description,
        "spec": entry.spec,
    }
    for name in expected:
        value = expected[name]
        if name == "spec" and value is not None:
            spec = Reading(value, ("strategy", "interval_ms", "after_ms", "max_duration_ms", "ceil_ms"))
            value = _spec({key.removesuffix("_ms").replace("_", "-"): spec[key] for key in spec})
        assert (set(value) if name == "attrs" else value) == found[name], name


def error_map_retry_spec(case: Case) -> None:
    """Check the helper that computes the server's preferred delay, and that it is not used by default."""
    fields = ("spec", "retry_count", "status", "times", "strategy", "op")
    outcomes = ("delay_ms", "attempt_times_ms", "retry_attempts", "reasons", "delays_ms")
    with _reading(case, fields, outcomes) as (data, expected):
        if "strategy" in data:
            _check_not_used(data, expected)
            return
        spec = _spec(_retry_object(data["spec"]))
        if "delay_ms" in expected:
            retries = data["retry_count"]
            assert expected["delay_ms"] == (None if spec is None else spec.delay(retries) / MILLISECOND)
        if "attempt_times_ms" in expected:
            given = None if spec is None else [at / MILLISECOND for at in spec.attempts()]
            assert expected["attempt_times_ms"] == given


_RETRY = ("strategy", "interval", "after", "ceil", "max-duration")


def _retry_object(content: Any) -> Json:
    """Return the retry object of an entry, which a case may write as ``exponential 2 after 50``."""
    if isinstance(content, str):
        found = re.fullmatch(r"(\w+) (\d+) after (\d+)(?: ceil (\d+))?(?: max(?:-duration)? (\d+))?", content)
        if not found:
            raise UnknownWord(f"spec {content!r} (known: STRATEGY N after N ceil N max N)")
        values = [found[1], *(None if each is None else int(each) for each in found.groups()[1:])]
        return {name: value for name, value in zip(_RETRY, values, strict=True) if value is not None}
    fields = Reading(content, _RETRY)
    return {name: fields[name] for name in fields}


def _spec(retry: Json) -> RetrySpec | None:
    """Return the same specification as a client reads it from the map of its server."""
    return _map_with(0x7FF0, {"attrs": ["auto-retry"], "retry": retry}).entries[0x7FF0].spec


def _check_not_used(data: Reading, expected: Reading) -> None:
    status, operation = _status(data["status"]), data.get("op", "upsert")
    error_map = _map_with(status, {"attrs": ["auto-retry"], "retry": _retry_object(data["spec"])})
    verdict = classify_kv(status, operation, error_map=error_map)
    idempotent = is_idempotent("kv", operation)
    ended = run([verdict] * data["times"], strategy=strategy_of(data["strategy"]), idempotent=idempotent)
    found = {
        "retry_attempts": ended.request.retry_attempts,
        "reasons": [reason.name for reason in ended.request.retry_reasons],
        "delays_ms": ended.delays,
    }
    assert {name: expected[name] for name in expected} == {name: found[name] for name in expected}


# ------------------------------------------------------------------------------------------------- query and analytics


def query(case: Case) -> None:
    """Check the verdict on a response of the query service."""
    fields = ("http_status", "errors", "body", "readonly", "rows_delivered", "timeout_ms", "attempt_2_starts_at_ms")
    with _reading(case, fields, (*_VERDICT, "payload_timeout_ms_attempt_2")) as (data, expected):
        if "payload_timeout_ms_attempt_2" in expected:
            left = payload_timeout(data["timeout_ms"] * MILLISECOND, data["attempt_2_starts_at_ms"] * MILLISECOND)
            assert expected["payload_timeout_ms_attempt_2"] == left / MILLISECOND
            return
        status, errors, rows = data["http_status"], _errors(data), data.get("rows_delivered", 0)
        for profile in _profiles(case):
            reads, writes = (
                classify_query(status, errors, readonly=readonly, rows_delivered=rows, profile=profile)
                for readonly in (True, False)
            )
            if expected.get("idempotent_only"):  # so the case is about a statement that reads
                assert False is writes.permits(idempotent=False)
                _check(reads, expected)
            else:
                _check(reads if data.get("readonly") else writes, expected)


def service_error_parse(case: Case) -> None:
    """Check the errors read from a body; ``context`` and ``problems`` are compared by name only."""
    read(case.data, "input", "expected", notes=NOTED)
    if not isinstance(case.data["expected"], list):
        raise UnknownWord(f"expected {case.data['expected']!r} (known: a list of errors)")
    data = Reading(case.data["input"], ("body",))
    expected = [
        Reading(each, ("code", "msg", "retry", "reason", "context", "problems")) for each in case.data["expected"]
    ]
    found = [_as_case(error) for error in read_service_errors(_body(data["body"]))]
    asked = [{"code", "msg", "retry", "reason"} | set(each) for each in expected]
    given = [
        {name: error[name] for name in error if place >= len(asked) or name in asked[place]}
        for place, error in enumerate(found)
    ]
    assert [dict(each) for each in expected] == given


def _as_case(error: ServiceError) -> Json:
    received = {"code": error.code, "msg": error.message, "retry": error.retry is True}
    cause = {"reason": dict(error.cause)} if error.cause else {}
    return {**received, **cause, "context": dict(error.context), "problems": len(error.problems)}


_LOOP = ("max_retries", "responses", "timeout_ms", "remaining_ms", "delay_ms")


def analytics(case: Case) -> None:
    """Check the verdict on a response of the analytics service, and how the enterprise client continues."""
    fields = ("http_status", "errors", "body", "readonly", "rows_delivered", "forever", "profile", "exception", *_LOOP)
    given = case.data["input"]
    if "profile" in given or "exception" in given:
        kind, outcomes = _enterprise, ("retry", "reported_code", "raises")
    elif set(_LOOP) & set(given):
        kind, outcomes = _enterprise_loop, ("raises", "num_attempts", "last_errors_in_context")
    else:
        kind, outcomes = _operational, (*_VERDICT, "raises_at_timeout")
    with _reading(case, fields, outcomes) as (data, expected):
        kind(case, data, expected)


def _operational(case: Case, data: Reading, expected: Reading) -> None:
    readonly, errors, status = data.get("readonly", False), _errors(data), data.get("http_status", 400)
    forever, rows = data.get("forever", False), data.get("rows_delivered", 0)
    for profile in _profiles(case):
        verdict = classify_analytics(
            errors, http_status=status, readonly=readonly, rows_delivered=rows, profile=profile
        )
        _check(verdict, expected)
        if "raises_at_timeout" in expected:
            if not forever:
                raise UnknownWord("raises_at_timeout without forever: a timeout needs a failure that stays")
            idempotent = is_idempotent("analytics", options={"readonly": readonly}, profile=profile)
            ended = run([verdict], forever=True, idempotent=idempotent)
            assert error_name(expected["raises_at_timeout"]) == type(ended.error).__name__


def _enterprise(_: Case, data: Reading, expected: Reading) -> None:
    if "exception" in data:
        verdict, reported = _of_exception(data["exception"]), None
        word(data.get("profile", "enterprise_analytics"), {"enterprise_analytics": None})
    else:
        word(data["profile"], {"enterprise_analytics": None})
        verdict, reported = classify_enterprise_analytics(data["http_status"], _errors(data))
    idempotent = is_idempotent("analytics", options={"readonly": data.get("readonly", False)})
    if "retry" in expected:
        ended = run([verdict], strategy=FailFastOnTerminalError(), idempotent=idempotent)
        assert expected["retry"] == (ended.error is None and ended.request.retry_attempts > 0)
    if "raises" in expected:
        assert error_name(expected["raises"]) == verdict.error
    if "reported_code" in expected:
        assert expected["reported_code"] == (None if reported is None else reported.code)


def _enterprise_loop(_: Case, data: Reading, expected: Reading) -> None:
    if "responses" in data:
        word(data["responses"], {"all retriable for ever": None})
    errors = (ServiceError(23000, "a", retry=True),)
    failure = classify_enterprise_analytics(400, errors)[0].failure()
    delay = data.get("delay_ms", 100) * MILLISECOND
    bounds = [data[name] for name in ("timeout_ms", "remaining_ms") if data.get(name) is not None]
    attempts = data["max_retries"] + 1 if data.get("max_retries") is not None else 10**6
    data.get("max_retries")
    limit = min(bounds) * MILLISECOND if bounds else None
    policy = Policy(attempts=attempts, deadline=limit, backoff=Backoff.constant(delay), jitter="none")
    made, now = 1, START
    while not isinstance(decision := policy.decide(History(made, START), failure, now, 0.5), GiveUp):
        made, now = made + 1, now + decision.delay
    if "raises" in expected:
        content = text(expected["raises"])
        name = error_name(re.sub(r" immediately.*", "", content))
        assert name == ("Timeout" if decision.rule == "deadline" else "QueryError")
        if "immediately" in content:
            assert START == now
    if "num_attempts" in expected:
        assert expected["num_attempts"] == made
    if "last_errors_in_context" in expected:
        assert expected["last_errors_in_context"] == bool(failure.message)


# ----------------------------------------------------------------------------------------------------- search and views


def search(case: Case) -> None:
    """Check the verdict on a response of the search service."""
    with _reading(case, ("http_status", "body"), _VERDICT) as (data, expected):
        for profile in _profiles(case):
            _check(classify_search(data["http_status"], _body(data["body"]), profile=profile), expected)


def views(case: Case) -> None:
    """Check the verdict on a response of the view service."""
    with _reading(case, ("http_status", "body"), (*_VERDICT, "sequence", *_OBSERVED)) as (data, expected):
        body = _body(data["body"])
        observed = {name: expected[name] for name in _OBSERVED if name in expected}
        for profile in _profiles(case):
            verdict = classify_views(data["http_status"], body, profile=profile)
            _check(verdict, expected)
            if "jvm" in observed:  # of those observed, the Java SDK is the one that has the list
                assert observed["jvm"] == verdict.reason
            if "sequence" in expected:
                _check_sequence(text(expected["sequence"]), body, profile)


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


_MODULES = ("httpx", "ssl", "socket", "builtins", "asyncio", "http.client")


def _of_exception(content: Any) -> Verdict:
    if content in _FRAMES:
        return classify_event(_FRAMES[content])
    found = re.fullmatch(r"(?:([\w.]+)\.)?(\w+)(?:\('(.*)'\))?", text(content))
    if not found or (found[1] or "builtins") not in _MODULES:
        raise UnknownWord(
            f"exception {content!r} (known: those of {', '.join(_MODULES)}, and {', '.join(sorted(_FRAMES))})"
        )
    kind = getattr(import_module(found[1] or "builtins"), found[2], None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        raise UnknownWord(f"exception {content!r} (known: those of {', '.join(_MODULES)})")
    try:
        error = kind(found[3] or "it failed")
    except TypeError as problem:
        raise UnknownWord(f"exception {content!r}, which cannot be made of a message") from problem
    return classify_exception(Failure.of(error))


def http_transport(case: Case) -> None:
    """Check the verdict on an exception or a status of HTTP."""
    fields = ("exception", "method", "status", "retry_after_s", "timeout_left_ms")
    outcomes = (*_VERDICT, "non_idempotent_ok", "unless", "delay_floor_ms", "outcome", "stage")
    with _reading(case, fields, outcomes) as (data, expected):
        verdict = _of_exception(data["exception"]) if "exception" in data else _of_status(data, expected)
        _check(verdict, expected)
        if "non_idempotent_ok" in expected:
            assert expected["non_idempotent_ok"] == verdict.repeats_mutations
        if "stage" in expected:
            assert word(expected["stage"], _STAGES) == verdict.stage.value
        if "delay_floor_ms" in expected:
            assert expected["delay_floor_ms"] == (None if verdict.after is None else verdict.after / MILLISECOND)
        if "outcome" in expected:
            if "fail now" not in text(expected["outcome"]):
                raise UnknownWord(f"outcome {expected['outcome']!r} (known: ... fail now ...)")
            policy = Policy(deadline=data["timeout_left_ms"] * MILLISECOND)
            assert isinstance(policy.decide(History(1, START), verdict.failure(), START, 0.5), GiveUp)


def _of_status(data: Reading, expected: Reading) -> Verdict:
    after = timedelta(seconds=data["retry_after_s"]) if data.get("retry_after_s") is not None else None
    status, idempotent = data["status"], is_idempotent("manager", options={"method": text(data["method"])})
    if "unless" in expected:
        if not re.search(r"not processed|nothing (?:was )?done|refused", text(expected["unless"])):
            raise UnknownWord(f"unless {expected['unless']!r} (known: service contract says ... not processed)")
        promised = classify_http_status(status, idempotent=idempotent, after=after, refusals={status})
        assert promised.reason is not None
    return classify_http_status(status, idempotent=idempotent, after=after)


def grpc(case: Case) -> None:
    """Check the verdict on a gRPC status."""
    fields = ("code", "read_only", "idempotent", "violation", "dispatched", "responses")
    with _reading(case, fields, (*_VERDICT, "dispatches", "retry", "outcome")) as (data, expected):
        read_only, dispatched = data.get("read_only", False), data.get("dispatched", True)
        content = data["responses"] if "responses" in data else [_code(data)]
        answers = [_grpc_answer(each, read_only=read_only, dispatched=dispatched) for each in content]
        ended = run(answers, idempotent=data.get("idempotent", read_only))
        watched = {
            "dispatches": lambda: ended.dispatches,
            "retry_attempts": lambda: ended.request.retry_attempts,
            "retry": lambda: ended.request.retry_attempts > 0,
        }
        for name in [name for name in watched if name in expected]:
            assert expected[name] == watched[name]()
        if "outcome" in expected:
            assert expected["outcome"] == _ended(ended, expected["outcome"])
        _check(
            answers[0],
            Reading({name: expected[name] for name in expected if name not in watched}, (*_VERDICT, "outcome")),
        )


def _code(data: Reading) -> str:
    violation = data.get("violation")
    return text(data["code"]) + (f" {violation}" if violation else "")


def _grpc_answer(content: Any, *, read_only: bool, dispatched: bool) -> Verdict:
    """Return a code, with its violation behind it; or the violation alone."""
    code, _, violation = text(content).partition(" ")
    if code in rpc.PRECONDITIONS:
        code, violation = "FAILED_PRECONDITION", code
    if not re.fullmatch(r"[A-Z_]+", code) or (violation and not re.fullmatch(r"\w+", violation)):
        raise UnknownWord(f"response {content!r} (known: gRPC codes and preconditions)")
    return classify_grpc(code, read_only=read_only, violation=violation, dispatched=dispatched)
