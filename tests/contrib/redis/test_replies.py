"""Classification of redis-py's errors."""

from __future__ import annotations

import pytest
import redis
from redis import exceptions
from redis._parsers.base import BaseParser

from redrive.contrib.redis import REPLIES, failure_of
from redrive.contrib.redis.replies import code_of
from redrive.policy import Stage


@pytest.mark.parametrize("code", sorted(set(REPLIES) - {"WATCH"}))
def test_every_code_is_read_from_what_the_library_makes_of_it(code):
    """redis-py removes the code for errors with their own class, and keeps it in the message of others."""
    rest = "3999 127.0.0.1:6381" if code in {"ASK", "MOVED"} else "some words"
    error = BaseParser.parse_error(f"{code} {rest}")

    assert code_of(error) == code


@pytest.mark.parametrize("code", sorted(REPLIES))
def test_a_reply_is_an_answer(code):
    """Its stage is *answered*, and it is a candidate only if a retry may succeed."""
    error = exceptions.WatchError("x") if code == "WATCH" else exceptions.ResponseError(f"{code} x")
    failure = failure_of(error)

    assert failure.reason == REPLIES[code].reason
    assert failure.stage is Stage.ANSWERED
    assert REPLIES[code].retryable is (failure.lasting is None)


def test_the_code_is_found_in_an_error_of_a_pipeline():
    """redis-py puts the command before it."""
    error = exceptions.ResponseError("Command # 2 (INCR list) of pipeline caused error: WRONGTYPE Operation against")

    assert code_of(error) == "WRONGTYPE"


def test_an_unknown_reply_is_final():
    """Unknown replies give no evidence that a retry may succeed."""
    assert failure_of(exceptions.ResponseError("NEWCODE something")).lasting is not None


def test_without_proof_a_connection_was_lost_in_flight():
    """Refused connections and exhausted pools are not sent; all others are in flight."""
    refused = exceptions.ConnectionError("Error 111 connecting to localhost:6379.")
    refused.__cause__ = ConnectionRefusedError(111, "Connection refused")

    assert failure_of(exceptions.ConnectionError("gone")).stage is Stage.IN_FLIGHT
    assert failure_of(exceptions.TimeoutError("slow")).reason == "TIMEOUT"
    assert failure_of(refused).stage is Stage.NOT_SENT
    assert failure_of(exceptions.MaxConnectionsError("Too many connections")).stage is Stage.NOT_SENT


def test_a_refused_connection_of_an_unwrapped_client_is_classified():
    """`failure_of` also classifies errors of unwrapped clients, in a user's own retry."""
    with pytest.raises(redis.ConnectionError) as caught:
        redis.Redis(port=1, retry=None).ping()

    assert failure_of(caught.value).stage is Stage.NOT_SENT


def test_errors_of_other_libraries_are_not_described():
    """Errors of other libraries and of arguments have no description."""
    assert failure_of(ValueError("x")) is None
    assert failure_of(exceptions.DataError("x")) is None
