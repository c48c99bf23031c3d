"""HTTP: what may be repeated, what answers mean, and idempotency keys."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import redrive
from redrive.policy import Backoff, Failure, GiveUp, History, Policy, Retry, Stage, hints
from redrive.retrying import http
from redrive.retrying.context import using
from redrive.retrying.http import IDEMPOTENCY_KEY, failure_of, idempotency_key, is_idempotent
from tests.retrying.helpers import START, JumpingClock, Script

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
KEYED = {IDEMPOTENCY_KEY: '"k"'}
AT_ONCE = Backoff.constant(0)
PLAIN = Policy(deadline=None, backoff=AT_ONCE)


class StatusError(Exception):
    """An answer that is no success, as HTTP clients raise it.

    Attributes:
        method: of the request.
        sent: headers of the request.
        status: of the answer.
        headers: of the answer.
    """

    def __init__(self, method, status, *, sent=(), headers=()) -> None:
        super().__init__(f"{status}")
        self.method, self.status, self.sent, self.headers = method, status, sent, headers


def read(error):
    """Return the failure of an answer, as a user's classifier."""
    if not isinstance(error, StatusError):
        return None
    return failure_of(error.method, error.status, error.headers, sent=error.sent, error=error)


def decided(failure, **fields):
    """Return the decision of a policy that does not know the request."""
    return PLAIN.with_(**fields).decide(History(1, START), failure, START, 0.0)


# ------------------------------------------------------------------------------------------------------------ requests


@pytest.mark.parametrize(
    ("method", "headers", "expected"),
    [
        ("GET", {}, True),
        ("get", {}, True),
        ("QUERY", {}, True),
        ("POST", {}, False),
        ("PATCH", {}, False),
        ("CONNECT", {}, False),
        ("LOCK", {}, False),
        ("MADE-UP", {}, False),
        ("POST", KEYED, True),
        ("PATCH", [("accept", "*/*"), ("IDEMPOTENCY-KEY", "k")], True),
        ("MADE-UP", KEYED, True),
        ("CONNECT", KEYED, False),
        ("POST", {IDEMPOTENCY_KEY: ' "" '}, False),
        ("POST", {IDEMPOTENCY_KEY: ""}, False),
        ("POST", {"X-Idempotency": "k"}, False),
    ],
)
def test_requests_that_may_be_repeated(method, headers, expected):
    """Requests may be repeated by their method, or by a key that is not empty; unknown methods are not idempotent."""
    assert expected is is_idempotent(method, headers)


# ------------------------------------------------------------------------------------------------------------- answers


@given(st.sampled_from(["GET", "POST"]), st.integers(100, 399))
def test_success_is_no_failure(method, status):
    """Statuses below 400 are no failure."""
    assert None is failure_of(method, status)


@pytest.mark.parametrize(
    ("status", "get", "post", "keyed"),
    [
        (400, "not_matched", "not_matched", "not_matched"),
        (401, "not_matched", "not_matched", "not_matched"),
        (404, "not_matched", "not_matched", "not_matched"),
        (408, "retry", "retry", "retry"),
        (409, "not_matched", "not_matched", "retry"),
        (412, "not_matched", "not_matched", "not_matched"),
        (421, "retry", "retry", "retry"),
        (422, "not_matched", "not_matched", "not_matched"),
        (425, "retry", "retry", "retry"),
        (429, "retry", "retry", "retry"),
        (500, "retry", "not_idempotent", "retry"),
        (501, "not_matched", "not_matched", "not_matched"),
        (502, "retry", "not_idempotent", "retry"),
        (503, "retry", "not_idempotent", "retry"),
        (504, "retry", "not_idempotent", "retry"),
        (505, "not_matched", "not_matched", "not_matched"),
        (507, "retry", "not_idempotent", "retry"),
        (511, "not_matched", "not_matched", "not_matched"),
        (599, "retry", "not_idempotent", "retry"),
        (600, "retry", "not_idempotent", "retry"),
        (99, "retry", "not_idempotent", "retry"),
    ],
)
def test_answers_are_repeated_by_status_and_method(status, get, post, keyed):
    """For each status a GET, a POST and a POST with a key are repeated or not, with the rule."""
    answers = [failure_of("GET", status), failure_of("POST", status), failure_of("POST", status, sent=KEYED)]
    rules = ["retry" if isinstance(each, Retry) else each.rule for each in map(decided, answers)]

    assert [get, post, keyed] == rules


def test_requests_can_be_declared_idempotent():
    """With ``idempotent=True`` a policy repeats a POST of unknown effect."""
    assert isinstance(decided(failure_of("POST", 503), idempotent=True), Retry)


def test_an_answer_is_data():
    """Failures have the status in their reason and the request in their message."""
    expected = Failure((), "HTTP status 503 for POST", "HTTP_503", Stage.IN_FLIGHT)

    assert expected == failure_of("post", 503, now=NOW)


def test_an_exception_can_give_the_failure_its_classes():
    """Exceptions give the failure their classes and message, and a hint where the headers have none."""
    error = StatusError("GET", 503)
    error.retry_after = 7
    failure = failure_of("GET", 503, error=error)
    from_headers = failure_of("GET", 503, {"Retry-After": "9"}, error=error)

    assert ("503", "HTTP_503", timedelta(seconds=7)) == (failure.message, failure.reason, failure.hint)
    assert failure.error_type.endswith(".StatusError")
    assert timedelta(seconds=9) == from_headers.hint


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "30"}, 30),
        ([("x", "y"), ("retry-after", "30")], 30),
        ({"RETRY-AFTER": "Fri, 20 Nov 2026 12:01:00 GMT"}, 60),
        ({"Retry-After": "Fri, 20 Nov 2026 12:01:00 GMT", "Date": "Fri, 20 Nov 2026 12:00:45 GMT"}, 15),
        ({"Retry-After": "soon"}, None),
        ([("Retry-After", "soon"), ("Retry-After", "5")], 5),
    ],
)
def test_retry_after_becomes_the_hint(headers, seconds):
    """``Retry-After`` becomes the hint, in all its forms; what cannot be read is no hint."""
    hint = failure_of("GET", 503, headers, now=NOW).hint

    assert seconds == (None if hint is None else hint.total_seconds())


@pytest.mark.parametrize(
    ("status", "headers", "options", "rules"),
    [
        (503, {"x-should-retry": "false"}, {}, ["permanent", "permanent"]),
        (429, {"x-should-retry": "false"}, {}, ["permanent", "permanent"]),
        (503, {"x-should-retry": "false"}, {"statuses": [503]}, ["permanent", "permanent"]),
        (400, {"x-should-retry": "true"}, {}, ["retry", "retry"]),
        (503, {"x-should-retry": "true"}, {}, ["retry", "retry"]),
        (400, {"x-should-retry": "true"}, {"statuses": [503]}, ["not_matched", "not_matched"]),
        (400, {"x-should-retry": "true"}, {"methods": ["GET"]}, ["retry", "not_matched"]),
        (503, {}, {}, ["retry", "not_idempotent"]),
    ],
)
def test_the_word_of_a_server_counts_if_it_is_read(status, headers, options, rules):
    """`x-should-retry` forbids a retry, and asks for one where the user's statuses and methods do not exclude it."""
    failures = [failure_of(method, status, headers, hints=hints.ai, **options) for method in ("GET", "POST")]
    found = ["retry" if isinstance(each, Retry) else each.rule for each in map(decided, failures)]

    assert rules == found
    assert None is failure_of("GET", 200, headers, hints=hints.ai)
    assert None is failure_of("POST", status, headers, **options).permanent


def test_the_clock_in_force_dates_an_answer():
    """Without an instant the present one is taken, on the clock that is in force."""
    headers = {"Retry-After": "Thu, 01 Jan 2026 00:01:00 GMT"}
    with using(clock=JumpingClock()):
        assert timedelta(minutes=1) == failure_of("GET", 429, headers).hint
    assert None is not failure_of("GET", 429, headers).hint


def test_a_policy_obeys_answers():
    """Decorated functions wait for the hint, and repeat only what is allowed."""
    clock = JumpingClock()
    script = Script(StatusError("GET", 503, headers={"Retry-After": "3"}), StatusError("GET", 502), "done")
    with using(clock=clock):
        assert "done" == redrive.retry(on=read, backoff=Backoff.constant(1), jitter="none")(script)()

    assert [3, 1] == clock.slept


def test_a_final_answer_leaves_no_record():
    """Answers that a retry would not change are raised without a record."""
    script = Script(StatusError("GET", 404))
    with pytest.raises(StatusError) as raised:
        redrive.retry(on=read)(script)()

    assert 1 == script.calls
    assert not hasattr(raised.value, "__notes__")


# ---------------------------------------------------------------------------------------------------------------- keys


@pytest.mark.case("stage.http_methods.13")
def test_statuses_about_a_key_are_classified():
    """409 is retried while the first request runs; 422 and 400 are final and name the problem of the key."""
    running, reused, missing = (
        failure_of("POST", 409, sent=KEYED),
        failure_of("POST", 422, sent=KEYED),
        failure_of("POST", 400),
    )

    assert (Stage.ANSWERED, None) == (running.stage, running.permanent)
    assert isinstance(decided(running), Retry)
    assert GiveUp(
        "HTTP_422: the content is wrong, or the Idempotency-Key was used for another one before", "not_matched"
    ) == decided(reused)
    assert GiveUp(
        "HTTP_400: the request is wrong, or the server wants an Idempotency-Key with it", "not_matched"
    ) == decided(missing)


class KeyedServer:
    """Processes a POST once for each key, loses its first answers, and remembers the keys.

    Attributes:
        keys: of all requests, in order.
        done: of those that it has processed.
    """

    def __init__(self, lost=2) -> None:
        self.keys, self.done, self._lost = [], set(), lost

    def post(self, headers):
        """Process a request."""
        self.keys.append(headers[IDEMPOTENCY_KEY])
        self.done.add(headers[IDEMPOTENCY_KEY])
        if self.keys.count(headers[IDEMPOTENCY_KEY]) <= self._lost:
            raise StatusError("POST", 504, sent=headers)
        return "done"


POLICY = Policy(on=read, attempts=4, backoff=AT_ONCE)


def by_call(server):
    """Return the key of a call from its argument."""
    return POLICY.call(server.post, {IDEMPOTENCY_KEY: idempotency_key()})


def by_decorator(server):
    """Return the key of a decorated function's call."""
    return redrive.retry(POLICY)(server.post)({IDEMPOTENCY_KEY: idempotency_key()})


def by_block(server):
    """Return the key of a loop."""
    for attempt in POLICY:
        with attempt:
            return server.post({IDEMPOTENCY_KEY: idempotency_key(attempt.uid)})
    return None


@pytest.mark.case("stage.http_methods.12")
@pytest.mark.parametrize("form", [by_call, by_decorator, by_block])
def test_a_key_belongs_to_a_call(form):
    """All attempts of one call send the same key, and the next call sends another: each takes effect once."""
    server = KeyedServer()

    assert ["done", "done"] == [form(server), form(server)]
    first, second = server.keys[:3], server.keys[3:]
    assert (1, 1, 2) == (len(set(first)), len(set(second)), len(server.done))
    assert 3 == len(first) == len(second)


@pytest.mark.case("stage.http_methods.12")
def test_a_new_key_is_refused_inside_of_a_retried_call():
    """New keys inside of a retried function are refused at once."""

    def send():
        return idempotency_key()

    for form in (redrive.retry(POLICY)(send), lambda: POLICY.call(send), lambda: _in_block(send)):
        with pytest.raises(RuntimeError, match="inside of .*, which is retried, would be another one for each attempt"):
            form()
    with pytest.raises(RuntimeError, match="make it before the call, or from attempt.uid"):
        asyncio.run(redrive.retry(POLICY)(_asend)())


async def _asend():
    return idempotency_key()


def _in_block(function):
    for attempt in Policy(on=ValueError):
        with attempt:
            function()


def test_a_call_that_is_not_retried_may_make_a_key():
    """Under a policy of one attempt there is nothing to differ from."""
    assert idempotency_key() != Policy(on=ValueError, attempts=1).call(idempotency_key)


def test_keys_are_unlike_one_another():
    """Each new key is a random UUID in quotes."""
    keys = {idempotency_key() for _ in range(100)}

    assert 100 == len(keys)
    assert {('"', '"', 38, "4")} == {(key[0], key[-1], len(key), key[15]) for key in keys}


@pytest.mark.parametrize(("uid", "expected"), [("job-7", '"job-7"'), ('a"b\\c d', '"a\\"b\\\\c d"')])
def test_a_key_can_be_derived_from_arguments(uid, expected):
    """Ids of jobs and loops become the text of a structured header."""
    assert expected == idempotency_key(uid)


@pytest.mark.parametrize("uid", ["", "a\nb", "käse"])
def test_an_invalid_header_value_is_no_key(uid):
    """Keys must be printable ASCII and not empty."""
    with pytest.raises(ValueError, match="cannot be an idempotency key"):
        idempotency_key(uid)


def test_a_key_makes_a_request_repeatable():
    """Keys from the helper make a request repeatable."""
    assert http.is_idempotent("POST", {IDEMPOTENCY_KEY: idempotency_key()})
