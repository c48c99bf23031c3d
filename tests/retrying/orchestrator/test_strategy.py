"""Strategies: best effort, fail fast, and failing fast on what will not go away."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.errors import AuthenticationFailure, CollectionNotFound, PolicyValueError, ScopeNotFound, TerminalFailure
from redrive.orchestrator import (
    BestEffort,
    FailFast,
    FailFastOnTerminalError,
    Request,
    RetryAction,
    RetryReason,
    TerminalErrors,
)
from redrive.policy import Jitter

NO_NODE = RetryReason.NODE_NOT_AVAILABLE


def answer(strategy, request, reason):
    """Return a strategy's answer without a wait."""
    asked = strategy.retry_after(request, reason)
    with pytest.raises(StopIteration) as ended:
        asked.send(None)
    return ended.value.value


@pytest.mark.parametrize(
    ("idempotent", "reason", "retried"),
    [
        (False, "UNKNOWN", False),
        (True, "UNKNOWN", True),
        (False, "KV_LOCKED", True),
        (True, "KV_LOCKED", True),
        (False, "SOCKET_CLOSED_WHILE_IN_FLIGHT", False),
    ],
)
def test_best_effort_retries_what_is_safe(idempotent, reason, retried):
    """Best effort retries idempotent requests for every reason, others for reasons that allow it."""
    action = answer(BestEffort(), Request(idempotent=idempotent), RetryReason.of(reason))
    assert action == (RetryAction("1ms") if retried else None)


def test_best_effort_ends_with_its_backoff():
    """Calculators without further delays end the retrying."""
    strategy = BestEffort(BestEffort().backoff.take(0))
    assert None is answer(strategy, Request(idempotent=True), RetryReason.UNKNOWN)


def test_fail_fast_retries_nothing():
    """Not even what is idempotent."""
    assert None is answer(FailFast(), Request(idempotent=True), RetryReason.KV_LOCKED)


def test_strategies_show_what_they_are():
    """Strategies show their calculator and jitter in their repr."""
    shown = [repr(BestEffort(len)), repr(FailFast())]
    assert [f"BestEffort({len!r}, jitter={Jitter.none!r})", "FailFast()"] == shown


class TestTerminal:
    """Draft revision 16: some causes will not go away."""

    @pytest.mark.parametrize(
        ("reason", "kind"),
        [
            ("AUTHENTICATION_ERROR", AuthenticationFailure),
            ("TLS_ERROR", TerminalFailure),
            ("BUCKET_ACCESS_ERROR", TerminalFailure),
            ("SCOPE_NOT_FOUND", ScopeNotFound),
            ("COLLECTION_NOT_FOUND", CollectionNotFound),
        ],
    )
    def test_a_terminal_reason_ends_with_its_error(self, reason, kind):
        """Terminal reasons end the request with their own error."""
        action = answer(FailFastOnTerminalError(), Request("get", idempotent=True), RetryReason.of(reason))
        error = action.translate(OSError())
        assert (None, kind, f"get is not retried: {reason}") == (action.duration, type(error), str(error))

    def test_other_reasons_use_best_effort(self):
        """Other reasons are decided as by best effort."""
        strategy = FailFastOnTerminalError(lambda _: "7ms")
        assert RetryAction("7ms") == answer(strategy, Request(), RetryReason.KV_LOCKED)

    def test_errors_may_be_others(self):
        """Clients can replace the errors, for the reasons that they name."""
        strategy = FailFastOnTerminalError(errors={"KV_LOCKED": KeyError})
        assert KeyError is type(answer(strategy, Request(), RetryReason.KV_LOCKED).translate(OSError()))

    def test_the_nth_terminal_failure_ends_the_request(self):
        """With nth=3 the third terminal failure ends the request; other failures do not count."""
        request, strategy, answers = Request(idempotent=True), FailFastOnTerminalError(nth=3), []
        for name in ("TLS_ERROR", "KV_LOCKED", "TLS_ERROR", "TLS_ERROR"):
            action = answer(strategy, request, RetryReason.of(name))
            answers.append(action.duration is not None)
            request.record_retry(RetryReason.of(name), timedelta(0))
            request.begin_next()
        assert [True, True, True, False] == answers

    def test_nth_zero_is_refused(self):
        """nth=0 is refused."""
        with pytest.raises(PolicyValueError, match="nth=0"):
            FailFastOnTerminalError(nth=0)


class TestTerminalErrors:
    """What connections are failing from."""

    def test_requests_fail_for_what_connections_fail_from(self):
        """While a connection fails from something terminal, that is the reason."""
        errors = TerminalErrors()
        errors.failed("node1", RetryReason.of("TLS_ERROR"))
        assert RetryReason.of("TLS_ERROR") == errors.reason_for(NO_NODE)

    def test_the_first_reason_in_the_order_is_reported(self):
        """If several connections fail, the reason is the one that stands first in the draft."""
        errors = TerminalErrors()
        errors.failed("node1", RetryReason.of("SCOPE_NOT_FOUND"))
        errors.failed("node2", RetryReason.of("AUTHENTICATION_ERROR"))
        assert "AUTHENTICATION_ERROR" == errors.reason_for(NO_NODE).name

    def test_success_clears_the_failures(self):
        """After a success requests fail for their own reasons again; clearing twice is allowed."""
        errors = TerminalErrors()
        errors.failed("node1", RetryReason.of("TLS_ERROR"))
        errors.succeeded("node1")
        errors.succeeded("node1")
        assert NO_NODE == errors.reason_for(NO_NODE)

    def test_other_failures_are_not_kept(self):
        """Refused connections are no terminal failure."""
        errors = TerminalErrors()
        errors.failed("node1", NO_NODE)
        assert NO_NODE == errors.reason_for(NO_NODE)
