"""Requests: their flags, their time, their history, and that they end once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

import redrive
from redrive.errors import (
    AmbiguousTimeout,
    ClientClosed,
    PolicyError,
    RequestCancelled,
    TooManyInRetry,
    UnambiguousTimeout,
)
from redrive.orchestrator import Request, RequestAttemptRecord, RetryReason, timed_out
from redrive.policy import Policy, Reason, Stage
from tests.retrying.helpers import checkpoint
from tests.retrying.orchestrator.helpers import SpanOf, together

MILLISECOND = timedelta(milliseconds=1)
MARKS = {
    "nothing": lambda attempt: None,
    "sent": lambda attempt: attempt.dispatch(),
    "not sent": lambda attempt: attempt.undispatch(),
    "answered": lambda attempt: attempt.answer(),
    "answered vaguely": lambda attempt: attempt.answer(definite=False),
    **{f"stage {stage.name}": lambda attempt, stage=stage: attempt.stand(stage) for stage in Stage},
    "failed KV_LOCKED": lambda attempt: attempt.fail(RetryReason.KV_LOCKED),
    "failed UNKNOWN": lambda attempt: attempt.fail(RetryReason.UNKNOWN),
}
"""What can be said of an attempt, in words."""


@pytest.mark.parametrize(
    ("idempotent", "read_only", "expected"),
    [(True, None, True), (False, None, False), (True, False, False), (False, True, True)],
)
def test_read_only_defaults_to_idempotent(idempotent, read_only, expected):
    """By default an idempotent request counts as read-only."""
    assert expected is Request(idempotent=idempotent, read_only=read_only).read_only


def test_a_request_always_has_a_context():
    """Requests always have a context for strategies."""
    assert [{}, {"robot": True}] == [Request(context=None).context, Request(context={"robot": True}).context]


def test_the_context_is_a_copy():
    """Later changes of the caller to its mapping, or of a strategy to the request's, stay there."""
    given = {"robot": True}
    Request(context=given).context.clear()
    assert {"robot": True} == given


def test_ids_are_unlike_each_other():
    """Requests without a given id get one that no other request has."""
    assert (True, "mine") == (Request().id != Request().id, Request(id="mine").id)


class TestRequestTime:
    """A request has one time for all its attempts."""

    def test_the_remaining_time_decreases(self, clock):
        """Remaining time decreases below zero, and the deadline does not move."""
        request = Request(timeout="100ms")
        clock.advance(0.15)
        assert -0.05 == pytest.approx(request.remaining)
        assert datetime(2026, 1, 1, 0, 0, 0, 100_000, UTC) == request.deadline

    def test_a_timeout_may_be_zero(self, clock):
        """Requests with a timeout of zero have no time left."""
        assert 0.0 == Request(timeout=0).remaining

    def test_without_a_timeout_there_is_no_remaining_time(self):
        """Requests without a timeout have neither a deadline nor remaining time."""
        assert (None, None, None) == (Request().remaining, Request().deadline, Request().attempt.remaining)

    def test_the_remaining_time_of_an_attempt_is_not_negative(self, clock):
        """Attempts never have a negative remaining time."""
        request = Request(timeout="100ms")
        clock.advance(1)
        assert 0.0 == request.attempt.remaining

    @pytest.mark.parametrize(("timeout", "expected"), [(None, 30.0), (100, 30.0), (7, 7.0)])
    def test_a_retried_call_around_it_bounds_it(self, clock, timeout, expected):
        """Earlier deadlines of an enclosing policy apply to the request."""
        policy = Policy(on=OSError, deadline="30s")
        assert expected == policy.call(lambda: Request(timeout=timeout).remaining)

    def test_a_timeout_is_a_duration(self):
        """Invalid timeouts are refused."""
        with pytest.raises(PolicyError, match="tomorrow"):
            Request(timeout="tomorrow")


class TestHistory:
    """What has happened is kept."""

    def test_reasons_are_ordered_and_unique(self):
        """Each reason stands there once, in the order of its first appearance; retries are counted all."""
        request = Request()
        names = ["NODE_NOT_AVAILABLE", "KV_LOCKED", "NODE_NOT_AVAILABLE"]
        for name in names:
            request.record_retry(RetryReason.of(name), MILLISECOND)
            request.begin_next()
        assert (3, names[:2]) == (request.retry_attempts, [reason.name for reason in request.retry_reasons])

    def test_attempts_are_kept_as_values(self, clock):
        """Each attempt is kept with its reason, delay, stage, endpoint and times."""
        request = Request()
        clock.advance(0.003)
        request.attempt.dispatch("node1")
        clock.advance(0.007)
        request.attempt.fail(RetryReason.KV_LOCKED)
        request.record_retry(RetryReason.KV_LOCKED, MILLISECOND)
        request.begin_next()
        times = {"dispatched_after": timedelta(milliseconds=3), "ended_after": timedelta(milliseconds=10)}
        first = RequestAttemptRecord(1, Reason.of("KV_LOCKED"), MILLISECOND, True, True, "node1", **times)
        assert (first, RequestAttemptRecord(2)) == request.history
        assert (False, False) == (first.is_ambiguous, request.is_ambiguous)

    @pytest.mark.parametrize(
        ("end", "expected"),
        [
            (lambda request: request.succeed(1), (True, False, None)),
            (lambda request: request.fail(OSError("mine")), (True, False, None)),
            (lambda request: request.cancel(), (True, True, "CANCELLED")),
            (lambda request: request.fail(ClientClosed()), (True, True, "SHUTDOWN")),
            (lambda request: request.fail(TooManyInRetry()), (True, True, "TOO_MANY_REQUESTS_IN_RETRY")),
            (lambda request: request.fail(AmbiguousTimeout("late")), (True, True, "TIMEOUT")),
            (lambda request: request.fail(UnambiguousTimeout("late")), (True, True, "TIMEOUT")),
            (lambda _: None, (False, False, None)),
        ],
    )
    def test_the_record_says_how_a_request_ended(self, end, expected):
        """A record has whether the request has ended, and the reason of an end without an answer; so has its error."""
        request = Request()
        end(request)
        records = [request.record, getattr(request._error, "__retry__", request.record)]
        assert [expected] * 2 == [(each.completed, each.cancelled, each.cancellation) for each in records]

    def test_the_record_has_a_one_line_note(self, clock):
        """Records have a note with all important facts in one line."""
        request = Request("upsert", id="7f3a", endpoint="node1")
        assert "upsert (7f3a): never sent in 0s, not retried" == request.record.note
        request.attempt.dispatch("node1")
        clock.advance(0.012)
        assert "upsert (7f3a): sent once in 12ms, not retried, last sent to node1" == request.record.note

    def test_the_representation_shows_the_state(self):
        """In a debugger a request shows its state."""
        request = Request("get", id="1")
        request.succeed()
        assert ["<Request get 2: attempt 1>", "<Request get 1: completed>"] == [
            repr(Request("get", id="2")),
            repr(request),
        ]


class TestAmbiguity:
    """Whether something has changed is proved, not guessed."""

    @pytest.mark.parametrize(
        ("marks", "ambiguous"),
        [
            ("nothing", False),
            ("sent", True),
            ("sent, not sent", False),
            ("sent, answered", False),
            ("sent, answered vaguely", True),
            ("stage NOT_SENT", False),
            ("stage IN_FLIGHT", True),
            ("stage ANSWERED", False),
            ("answered vaguely, stage ANSWERED", True),
            ("sent, failed KV_LOCKED", False),
            ("sent, failed UNKNOWN", True),
            ("stage IN_FLIGHT, failed KV_LOCKED", True),
            ("answered vaguely, failed KV_LOCKED", True),
        ],
    )
    def test_marks_decide_about_ambiguity(self, marks, ambiguous):
        """Mutations are ambiguous if they were sent without a definite answer; without marks the reason decides."""
        request = Request()
        for word in marks.split(", "):
            MARKS[word](request.attempt)
        assert ambiguous is request.is_ambiguous

    def test_a_read_is_never_in_doubt(self):
        """Reads are never ambiguous."""
        request = Request(read_only=True)
        request.attempt.dispatch()
        assert False is request.is_ambiguous

    def test_ambiguity_stays(self):
        """Ambiguity does not end with a definite answer to a later attempt."""
        request = Request(idempotent=True, read_only=False)
        request.attempt.dispatch()
        request.begin_next().answer()
        assert isinstance(timed_out(request), AmbiguousTimeout)


class TestEnd:
    """A request ends exactly once."""

    def test_the_first_end_counts(self):
        """Only the first end counts; later calls return False and change nothing."""
        request = Request()
        assert [True, False, False, False] == [
            request.succeed(7),
            request.succeed(8),
            request.fail(OSError()),
            request.cancel(),
        ]
        assert 7 == request.result()

    @pytest.mark.case("orchestrator/cancel_is_exactly_once")
    def test_two_cancellations_are_one(self):
        """Two cancellations complete the request once."""
        called = []
        request = Request(on_completed=called.append)
        assert ([True, False], [request]) == ([request.cancel(), request.cancel()], called)

    @pytest.mark.case("orchestrator/cancel_vs_complete_race")
    def test_a_cancellation_and_an_answer_are_one_end(self, run, clock):
        """Of an answer and a cancellation at the same time one wins, whichever, and is heard of once."""
        called, wins = [], []

        async def main():
            request = Request(on_completed=called.append)

            async def end(which):
                await checkpoint()
                wins.append(which())

            await together(partial(end, request.cancel), partial(end, request.succeed))
            return request

        request = run(main)
        assert ([request], [False, True]) == (called, sorted(wins))

    def test_an_error_is_raised(self):
        """`result` raises the error of a failed request."""
        request = Request("get")
        assert True is request.cancel()
        with pytest.raises(RequestCancelled, match="get was cancelled") as caught:
            request.result()
        assert "CANCELLED" == caught.value.cancellation

    def test_before_the_end_there_is_no_result(self):
        """`result` raises RuntimeError before the end."""
        with pytest.raises(RuntimeError, match="no result yet"):
            Request().result()

    @pytest.mark.parametrize("end", [Request.succeed, Request.cancel], ids=["succeeded", "cancelled"])
    @pytest.mark.parametrize("retries", [0, 2])
    def test_spans_always_get_the_number_of_retries(self, end, retries):
        """Spans get the number of retries, zero included, and end once."""
        span = SpanOf()
        request = Request(span=span)
        for _ in range(retries):
            request.record_retry(RetryReason.KV_LOCKED, MILLISECOND)
        end(request)
        end(request)
        assert ({"couchbase.retries": retries}, 1) == (span.attributes, span.ends)

    def test_a_callback_is_called_once(self):
        """Callbacks are called once, with the completed request."""
        called = []
        request = Request(on_completed=called.append)
        request.succeed()
        request.cancel()
        assert ([request], True) == (called, request.completed)

    def test_ended_attempts_do_not_keep_the_request_in_memory(self):
        """After the end an attempt has no time, and does not keep its request in memory."""
        request = Request(timeout=1)
        request.succeed()
        request.attempt.dispatch("node1")
        assert (None, None) == (request.attempt.remaining, request.attempt._owner)

    def test_an_error_of_others_is_left_alone(self):
        """Errors without a decision of the orchestrator have no record."""
        error = OSError()
        Request().fail(error)
        assert (False, False) == (hasattr(error, "__retry__"), hasattr(error, "__notes__"))

    def test_an_error_carries_one_note(self):
        """Errors raised for a second request have its note, and keep the notes of other code."""
        error = OSError()
        error.add_note("mine")
        requests = [Request(id=name) for name in ("first", "second")]
        for request in requests:
            request.attempt.fail(RetryReason.UNKNOWN)
            request.fail(error)
        assert ["mine", requests[1].record.note] == error.__notes__
        assert "second" == error.__retry__.id


def test_the_deadline_below_a_call_is_not_the_requests_own(clock):
    """Making a request publishes nothing: only sending it does."""
    Request(timeout=1)
    assert None is redrive.deadline()
