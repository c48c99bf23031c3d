"""Adapter for the group ``python_clients`` of ``couchbase.json``: what the errors of psycopg and redis-py mean.

The cases that need a server and a proxy (a reply that is lost, a COMMIT that is lost) are told in `tests/contrib`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import redis

from redrive.contrib import psycopg as databases
from redrive.contrib import redis as caches
from redrive.contrib.redis.replies import REPLIES
from redrive.contrib.sqlstate import row_of
from redrive.policy import History, Policy, Retry
from tests.conformance.adapters.vocabulary import UnknownWord, demand, read, word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redrive.policy import Failure
    from tests.conformance.loading import Case

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAGES = {"dispatch": "not_sent", "in_flight": "in_flight"}
"""The file's names of stages, and ours."""


def python_client(case: Case) -> None:
    """The reason, the stage, and whether a call that is not idempotent may be made again."""
    data = read(case.data, "group", "input", "expected")
    expected = read(data["expected"], "retry_reason", "non_idempotent_ok", "unit", "like", "stage")
    demand(expected, "retry_reason", "non_idempotent_ok", "like", "stage")
    failure, elsewhere = _failure(data["input"])
    if "retry_reason" in expected:
        assert expected["retry_reason"] == (None if failure.candidate is False else failure.reason)
    if "stage" in expected:
        assert word(expected["stage"], STAGES) == failure.stage.value
    if "non_idempotent_ok" in expected:
        assert expected["non_idempotent_ok"] == _is_retried(failure)
    if "like" in expected:
        assert word(expected["like"], LIKE)(failure, elsewhere)
    if "unit" in expected:  # the server has rolled back, so that only the whole can be repeated
        assert expected["unit"] == ("whole transaction" if row_of(data["input"]["sqlstate"]).answers else "statement")


def _failure(given: Mapping[str, Any]) -> tuple[Failure, bool]:
    """What an error means, and whether another connection has to be taken."""
    read(given, "sqlstate", "when", "error")
    if "sqlstate" in given:
        error = type("Raised", (psycopg.OperationalError,), {"sqlstate": given["sqlstate"]})("it failed")
        found, elsewhere = databases.failure_of(error), row_of(given["sqlstate"]).leaves
    else:
        raised = word(given["error"], REDIS)()
        found = caches.failure_of(raised)
        elsewhere = given["error"] in REPLIES and REPLIES[given["error"]].elsewhere
    if found is None:
        raise UnknownWord(str(given))
    return found, elsewhere


def _is_retried(failure: Failure) -> bool:
    policy = Policy(on=Exception, idempotent=False)
    return isinstance(policy.decide(History(1, NOW), failure, NOW, 0.5), Retry)


REDIS: Mapping[str, Callable[[], Exception]] = {
    "READONLY": lambda: redis.exceptions.ReadOnlyError("You can't write against a read only replica."),
    "TimeoutError": lambda: redis.exceptions.TimeoutError("Timeout reading from socket"),
}

LIKE: Mapping[str, Callable[[Failure, bool], bool]] = {
    "KV_LOCKED": lambda failure, elsewhere: _is_retried(failure) and not elsewhere,
    "KV_NOT_MY_VBUCKET": lambda failure, elsewhere: _is_retried(failure) and elsewhere,
}
"""What the two reasons mean: try again later; and: not here, ask another server."""
