"""Adapter for the group ``python_clients`` of ``couchbase.json``: the meaning of psycopg's and redis-py's errors.

Cases that need a server and a proxy (a reply that is lost, a COMMIT that is lost) have their tests in `tests/contrib`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import redis

from redrive.contrib import psycopg as databases
from redrive.contrib import redis as caches
from redrive.contrib.redis.replies import REPLIES, mark
from redrive.contrib.sqlstate import Fate, condition_of
from redrive.contrib.sqlstate import mark as mark_fate
from redrive.policy import Failure, History, Policy, Retry, Stage
from tests.conformance.adapters.vocabulary import UnknownWord, demand, read, word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.conformance.loading import Case

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAGES: dict[str | None, str] = {"dispatch": "not_sent", "in_flight": "in_flight", "answered": "answered"}
"""The file's names of stages, and ours."""
DATABASE_WHEN: dict[str | None, Fate | None] = {
    None: None,
    "in flight": None,
    "connecting": Fate.UNOPENED,
    "in a transaction": Fate.ROLLED_BACK,
    "at commit": Fate.UNKNOWN,
}
"""The moment of an error of PostgreSQL, and the note of redrive's transactions on it; a lone statement has no note."""
REDIS_WHEN: dict[str | None, Stage | None] = {
    None: None,
    "connecting": Stage.NOT_SENT,
    "before sending": Stage.NOT_SENT,
    "in flight": Stage.IN_FLIGHT,
    "reading": Stage.IN_FLIGHT,
}
"""The moment of an error of redis-py, and the stage that redrive's client notes on it."""


def python_client(case: Case) -> None:
    """Check the reason, the stage, and whether a call that is not idempotent may be repeated."""
    data = read(case.data, "group", "input", "expected")
    expected = read(data["expected"], "retry_reason", "non_idempotent_ok", "unit", "like", "stage")
    demand(expected, "retry_reason", "non_idempotent_ok", "like", "stage")
    failure, elsewhere = _failure(data["input"])
    if "retry_reason" in expected:
        assert expected["retry_reason"] == (failure.reason if failure.candidate else None)
    if "stage" in expected:
        assert word(expected["stage"], STAGES) == failure.stage.value
    if "non_idempotent_ok" in expected:
        assert expected["non_idempotent_ok"] == _is_retried(failure)
    if "like" in expected:
        assert word(expected["like"], LIKE)(failure, elsewhere)
    if "unit" in expected:  # the server has rolled back, so that only the whole can be repeated
        row = condition_of(read(data["input"], "sqlstate", "when")["sqlstate"])
        assert word(expected["unit"], {"whole transaction": True, "statement": False}) == row.answers


def _failure(given: Mapping[str, Any]) -> tuple[Failure, bool]:
    """Return what the policy of a client reads from an error, and whether another connection has to be taken."""
    given = read(given, "sqlstate", "when", "error")
    if "sqlstate" in given and "error" in given:
        raise UnknownWord("'sqlstate' beside 'error'")
    if "sqlstate" in given:
        error: Exception = type("Raised", (psycopg.OperationalError,), {"sqlstate": given["sqlstate"]})("it failed")
        fate = word(given.get("when"), DATABASE_WHEN)
        if fate is not None:
            mark_fate(error, fate)
        read_error, elsewhere = databases.failure_of, condition_of(given["sqlstate"]).ends_session
    else:
        error = _redis_error(given["error"])
        stage = word(given.get("when"), REDIS_WHEN)
        if stage is not None:
            mark(error, stage)
        read_error = caches.failure_of
        elsewhere = given["error"] in REPLIES and REPLIES[given["error"]].reconnect
    return Policy(on=read_error).classify(error), elsewhere


def _redis_error(name: str) -> Exception:
    """Return an error by its code in an error reply, or by its class in redis-py."""
    if name in REPLIES:
        return redis.exceptions.ResponseError(f"{name} it was refused")
    kind = getattr(redis.exceptions, name, None) if isinstance(name, str) else None
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        raise UnknownWord(f"{name!r} (known: codes of error replies, and the exceptions of redis-py)")
    return kind("it failed")


def _is_retried(failure: Failure) -> bool:
    """Return True if a policy that has read this failure would repeat a call that is not idempotent."""
    policy = Policy(on=Exception, idempotent=False)
    return isinstance(policy.decide(History(1, NOW), failure, NOW, 0.5), Retry)


LIKE: Mapping[str | None, Callable[[Failure, bool], bool]] = {
    "KV_LOCKED": lambda failure, elsewhere: _is_retried(failure) and not elsewhere,
    "KV_NOT_MY_VBUCKET": lambda failure, elsewhere: _is_retried(failure) and elsewhere,
}
"""The meaning of the two reasons: try again later; or ask another server."""
