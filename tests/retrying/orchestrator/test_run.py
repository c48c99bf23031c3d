"""`Orchestrator.run`: a whole request, from the first attempt to its answer."""

from __future__ import annotations

import contextvars
import gc
import weakref
from datetime import timedelta
from functools import partial

import pytest

import redrive
from redrive.clock import SystemClock
from redrive.errors import (
    AmbiguousTimeout,
    CircuitOpen,
    ClientClosed,
    RequestCancelled,
    UnambiguousTimeout,
)
from redrive.orchestrator import (
    BestEffort,
    BreakerSettings,
    BreakerStatus,
    FailFast,
    Orchestrator,
    Request,
    RetryReason,
)
from redrive.orchestrator.interrupt import Interrupt
from redrive.policy import Failure, Policy, Stage
from redrive.policy.failure import Lasting
from tests.retrying.orchestrator.helpers import (
    FixedStrategy,
    Refusal,
    ScriptedServer,
    SpanOf,
    cancelled_after,
    events,
    together,
)

LOCKED = Refusal("KV_LOCKED")


def marking(orchestrator):
    """Return `run` for senders that call `dispatch` themselves."""
    return partial(orchestrator.run, marks=True)


async def forever(request, attempt):
    """Send to a server that never answers."""
    attempt.dispatch("node1")
    await SystemClock().asleep(3600)


class TestAnswers:
    """A request that gets its answer."""

    def test_success_at_once(self, run, clock, caplog):
        """Successful requests cause no wait, record or event."""
        server, request = ScriptedServer("ok"), Request()
        assert "ok" == run(Orchestrator().run, request, server)
        assert (1, 0, [], []) == (len(server.sent), request.retry_attempts, clock.slept, events(caplog))

    def test_success_after_failures(self, run, clock):
        """It is sent again after each failure; what was retried and why can be read from the request."""
        server, request, span = ScriptedServer(LOCKED, Refusal("KV_NOT_MY_VBUCKET"), LOCKED, "ok"), None, SpanOf()
        request = Request(span=span)
        assert "ok" == run(Orchestrator().run, request, server)
        assert ([0.001, 0.01, 0.004], 4) == (clock.slept, len(server.sent))
        assert (["KV_LOCKED", "KV_NOT_MY_VBUCKET"], 3) == (
            [reason.name for reason in request.retry_reasons],
            request.retry_attempts,
        )
        assert ({"couchbase.retries": 3}, 1) == (span.attributes, span.ends)

    def test_an_answer_from_elsewhere(self, jump):
        """Results that other code sets while the request is sent are returned at once."""

        async def main():
            request, answers = Request(), []

            async def ask():
                answers.append(await Orchestrator().run(request, forever))

            async def complete():
                await SystemClock().asleep(1)
                request.succeed("from elsewhere")

            await together(ask, complete)
            return answers, round(request.elapsed.total_seconds())

        assert (["from elsewhere"], 1) == jump(main)

    def test_a_late_answer_is_an_answer(self, run, clock):
        """Answers after the deadline are returned if the timeout was not raised yet."""

        async def send(request, attempt):
            await request.clock.asleep(5)
            return "late"

        assert "late" == run(Orchestrator().run, Request(timeout=1), send)

    def test_a_failure_after_the_end_changes_nothing(self, run, clock):
        """If the request was completed while sending failed, the failure is not looked at."""

        async def send(request, attempt):
            request.succeed("first")
            raise LOCKED

        assert "first" == run(Orchestrator().run, Request(), send)


class TestAttemptTime:
    """One time for all attempts."""

    def test_attempts_get_the_remaining_time(self, run, clock):
        """Attempts get the remaining time, which decreases each time."""
        left = []

        async def send(request, attempt):
            left.append(attempt.remaining)
            if len(left) < 4:
                raise LOCKED

        run(Orchestrator().run, Request(timeout="2500ms"), send)
        assert [2.5, 2.499, 2.497, 2.493] == pytest.approx(left)

    def test_an_adapter_reads_the_deadline(self, run, clock):
        """`redrive.deadline` below the sending function is the request's."""

        async def send(request, attempt):
            return redrive.deadline().remaining

        assert 2.5 == run(Orchestrator().run, Request(timeout="2500ms"), send)
        assert 75.0 == run(Orchestrator().run, Request(), send)

    def test_a_policy_inside_leaves_the_retrying_to_it(self, run, clock):
        """Retried functions inside the sending function make one attempt each time."""
        calls = []

        @redrive.retry("5 1s", on=Refusal)
        async def inner():
            calls.append(1)
            if len(calls) < 3:
                raise Refusal("KV_LOCKED")
            return "ok"

        async def send(request, attempt):
            return await inner()

        assert ("ok", 3) == (run(Orchestrator().run, Request("get"), send), len(calls))

    def test_after_the_end_no_event_is_emitted(self, run, clock):
        """After a request the scope is restored."""
        run(Orchestrator().run, Request(), ScriptedServer("ok"))
        assert None is redrive.deadline()

    @pytest.mark.parametrize(
        ("options", "kind"),
        [({"read_only": True}, UnambiguousTimeout), ({}, AmbiguousTimeout)],
        ids=["read", "write"],
    )
    def test_an_attempt_is_cut_off(self, jump, options, kind):
        """Attempts are cancelled at the deadline; a mutation is then ambiguous."""

        async def main():
            request = Request(timeout="2500ms", **options)
            with pytest.raises(kind) as caught:
                await Orchestrator().run(request, forever)
            return request, caught.value

        request, error = jump(main)
        assert (2.5, None) == (pytest.approx(request.elapsed.total_seconds(), abs=0.01), error.__cause__)

    def test_a_timeout_without_marks_is_careful(self, jump):
        """Without marks an attempt counts as sent."""

        async def silent(request, attempt):
            await SystemClock().asleep(3600)

        async def main():
            with pytest.raises(AmbiguousTimeout):
                await Orchestrator().run(Request(timeout=1), silent)
            with pytest.raises(UnambiguousTimeout):
                await Orchestrator().run(Request(timeout=1), silent, marks=True)
            return True

        assert True is jump(main)

    def test_the_timeout_is_the_answer(self, run, clock):
        """Requests that fail until their deadline time out, with the last failure as the cause."""
        server = ScriptedServer(Refusal("SERVICE_NOT_AVAILABLE"))
        request = Request(timeout="50ms", idempotent=True)
        with pytest.raises(UnambiguousTimeout) as caught:
            run(Orchestrator(strategy=FixedStrategy("1ms")).run, request, server)
        assert (50, "SERVICE_NOT_AVAILABLE", 50) == (
            request.retry_attempts,
            str(caught.value.__cause__),
            len(server.sent),
        )

    def test_without_time_no_attempt_is_sent(self, run, clock):
        """Requests without any time left are not sent."""
        server = ScriptedServer("ok")
        with pytest.raises(UnambiguousTimeout):
            run(Orchestrator().run, Request(timeout=0), server)
        assert [] == server.sent

    def test_an_error_named_timeout_is_an_error(self, run, clock):
        """`TimeoutError` of the sender is classified like any other error."""
        with pytest.raises(TimeoutError, match="mine"):
            run(Orchestrator().run, Request(timeout=1), ScriptedServer(TimeoutError("mine")))


class TestFailures:
    """What the sender raises is classified."""

    def test_unclassified_errors_are_raised(self, run, clock, caplog):
        """Errors without a reason are raised unchanged, without events."""
        error, request = KeyError("typo"), Request()
        with pytest.raises(KeyError) as caught:
            run(Orchestrator().run, request, ScriptedServer(error))
        assert (error, [], True, False) == (
            caught.value,
            events(caplog),
            request.completed,
            hasattr(error, "__retry__"),
        )

    def test_a_refused_retry_raises_the_real_error(self, run, clock):
        """Refused retries raise the server's error with the record of the request."""
        with pytest.raises(Refusal) as caught:
            run(Orchestrator(strategy=FailFast()).run, Request("upsert", id="7"), ScriptedServer(Refusal("KV_LOCKED")))
        assert ["upsert (7): sent once in 0s, not retried, last sent to node1"] == caught.value.__notes__

    @pytest.mark.parametrize(
        ("answer", "retried"),
        [
            (None, False),
            ("kv_locked", True),
            (RetryReason.KV_LOCKED, True),
            (Failure((), reason="KV_LOCKED"), True),
            (Failure((), reason="UNKNOWN"), False),
        ],
        ids=str,
    )
    def test_a_classifier_may_return_a_reason_or_a_failure(self, run, clock, answer, retried):
        """Classifiers may return a reason, its name, a failure, or None."""
        seen = []

        def classify(request, error):
            seen.append((request.operation, type(error)))
            return answer

        orchestrator = Orchestrator(classify=classify)
        server = ScriptedServer(OSError(), "ok")
        if retried:
            assert "ok" == run(orchestrator.run, Request("upsert"), server)
        else:
            with pytest.raises(OSError):
                run(orchestrator.run, Request("upsert"), server)
        assert [("upsert", OSError)] == seen

    @pytest.mark.parametrize(
        ("stage", "asked", "dispatched"),
        [(Stage.NOT_SENT, True, False), (Stage.ANSWERED, True, True), (Stage.IN_FLIGHT, False, True)],
    )
    def test_a_classifier_may_return_the_stage(self, run, clock, stage, asked, dispatched):
        """Stages of a failure decide whether the strategy is asked about a mutation."""
        strategy = FixedStrategy(None)
        orchestrator = Orchestrator(strategy=strategy, classify=lambda *_: Failure((), reason="UNKNOWN", stage=stage))
        request = Request()
        with pytest.raises(OSError):
            run(orchestrator.run, request, ScriptedServer(OSError(), marks=False))
        assert (asked, dispatched) == (bool(strategy.reasons), request.history[0].dispatched)

    def test_a_mutation_lost_in_flight_is_not_sent_again(self, run, clock):
        """Mutations with a broken connection fail, whatever the strategy."""
        server = ScriptedServer(Refusal("SOCKET_CLOSED_WHILE_IN_FLIGHT"), "ok")
        with pytest.raises(Refusal):
            run(marking(Orchestrator(strategy=FixedStrategy())), Request(), server)
        assert 1 == len(server.sent)

    def test_a_read_that_was_lost_is_sent_again(self, run, clock):
        """Reads with a broken connection are retried."""
        server = ScriptedServer(Refusal("SOCKET_CLOSED_WHILE_IN_FLIGHT"), "ok")
        assert "ok" == run(marking(Orchestrator()), Request(idempotent=True), server)

    def test_an_inconclusive_answer_is_ambiguous(self, run, clock):
        """Indefinite answers (of a gateway) are retried if idempotent, and stay ambiguous until the end."""
        server = ScriptedServer(Refusal("SERVICE_NOT_AVAILABLE", definite=False), LOCKED)
        with pytest.raises(AmbiguousTimeout):
            run(marking(Orchestrator()), Request(idempotent=True, read_only=False, timeout="50ms"), server)

    def test_a_failure_names_its_reason_exactly(self, run, clock):
        """Failures keep the exact name of their reason, also one that only policies know."""
        request = Request(idempotent=True)
        orchestrator = Orchestrator(classify=lambda *_: Failure((), reason="TIMEOUT"))
        run(orchestrator.run, request, ScriptedServer(OSError(), "ok"))
        assert ["TIMEOUT"] == [reason.name for reason in request.retry_reasons]

    def test_a_hint_of_the_server_is_a_floor(self, run, clock):
        """Hints of the server are a lower bound of the wait."""
        hints = iter([Failure((), reason="KV_LOCKED", hint=timedelta(seconds=each)) for each in (3, 0.1)])
        orchestrator = Orchestrator(strategy=FixedStrategy("1s"), classify=lambda *_: next(hints))
        run(orchestrator.run, Request(), ScriptedServer(OSError(), OSError(), "ok"))
        assert [3.0, 1.0] == clock.slept

    @pytest.mark.parametrize("change", [{"permanent": "gone"}, {"candidate": False}, {"lasting": Lasting()}], ids=str)
    def test_a_failure_that_is_final_surfaces(self, run, clock, caplog, change):
        """Final failures are raised at once, whatever their reason."""
        failure = Failure((), reason="KV_NOT_MY_VBUCKET")._replace(**change)
        with pytest.raises(OSError):
            run(Orchestrator(classify=lambda *_: failure).run, Request(), ScriptedServer(OSError()))
        assert [] == events(caplog)

    def test_errors_of_redrive_end_the_request(self, run, clock):
        """Errors of an inner orchestrator are not retried, whatever the classifier returns."""
        orchestrator = Orchestrator(classify=lambda *_: "KV_LOCKED")
        server = ScriptedServer(UnambiguousTimeout("inner"))
        with pytest.raises(UnambiguousTimeout, match="inner"):
            run(orchestrator.run, Request(), server)
        assert 1 == len(server.sent)


class TestEnds:
    """Other ends."""

    def test_cancelled_by_the_caller(self, jump):
        """`Request.cancel` ends what is out at once."""

        async def main():
            request = Request("get")

            async def ask():
                with pytest.raises(RequestCancelled, match="get was cancelled"):
                    await Orchestrator().run(request, forever)

            async def cancel():
                await SystemClock().asleep(1)
                request.cancel()

            await together(ask, cancel)
            return round(request.elapsed.total_seconds())

        assert 1 == jump(main)

    def test_a_cancellation_from_outside_passes(self, jump):
        """Cancelling the task cancels the request, and its span ends once."""
        span = SpanOf()

        async def main():
            request = Request(span=span)
            await cancelled_after(5, lambda: Orchestrator().run(request, forever))
            return request

        request = jump(main)
        assert (True, 1, timedelta(seconds=5)) == (
            request.completed,
            span.ends,
            timedelta(seconds=round(request.elapsed.total_seconds())),
        )

    def test_closed_while_waiting(self, jump):
        """Closing the orchestrator ends a wait with `ClientClosed`."""

        async def main():
            orchestrator = Orchestrator(strategy=FixedStrategy("1h"), timeout=None)

            async def ask():
                with pytest.raises(ClientClosed):
                    await orchestrator.run(Request(), ScriptedServer(Refusal("KV_LOCKED")))

            async def close():
                await SystemClock().asleep(1)
                orchestrator.close()

            await together(ask, close)
            return orchestrator.in_retry

        assert 0 == jump(main)

    def test_closing_lets_sent_requests_finish(self, jump):
        """Closing the orchestrator does not cancel requests that were sent."""

        async def main():
            orchestrator, answers = Orchestrator(), []

            async def send(request, attempt):
                await SystemClock().asleep(2)
                return "ok"

            async def ask():
                answers.append(await orchestrator.run(Request(), send))

            async def close():
                await SystemClock().asleep(1)
                orchestrator.close()

            await together(ask, close)
            return answers

        assert ["ok"] == jump(main)

    def test_a_request_that_has_ended_is_not_sent(self, run, clock):
        """Requests that were cancelled before are not sent."""
        request, server = Request(), ScriptedServer("ok")
        request.cancel()
        with pytest.raises(RequestCancelled):
            run(Orchestrator().run, request, server)
        assert [] == server.sent

    def test_requests_have_separate_counts(self, jump):
        """Requests have their own counts, also a hundred at once."""

        async def main():
            orchestrator = Orchestrator(strategy=BestEffort(lambda _: "1s"))
            requests = [Request() for _ in range(100)]
            servers = [ScriptedServer(*[LOCKED] * (number % 3), "ok") for number in range(100)]
            pairs = zip(requests, servers, strict=True)
            await together(*[lambda pair=pair: orchestrator.run(*pair) for pair in pairs])
            return [request.retry_attempts for request in requests]

        assert [number % 3 for number in range(100)] == jump(main)

    def test_a_request_that_succeeded_is_freed_at_once(self, run, clock):
        """Answered requests leave no garbage to collect."""

        async def main():
            request = Request(timeout=1)
            await Orchestrator().run(request, ScriptedServer("ok"))
            return weakref.ref(request)

        gc.disable()
        try:
            assert None is run(main)()
        finally:
            gc.enable()

    def test_a_run_can_be_closed_in_another_context(self, clock):
        """Coroutines may be closed in another context, as the garbage collector does."""
        request = Request()

        async def stuck(request, attempt):
            await NeverReady()

        call = Orchestrator(timeout=None).run(request, stuck)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Interrupt, "run", lambda self, awaitable, left=None: awaitable)
            contextvars.copy_context().run(call.send, None)
        call.close()
        assert True is request.completed


class NeverReady:
    """Waits for ever, without an event loop."""

    def __await__(self):
        yield


class TestBreaker:
    """A circuit breaker for each endpoint."""

    SETTINGS = BreakerSettings(volume_threshold=2, sleep_window="1s")

    def test_an_open_breaker_is_a_reason(self, run, clock):
        """Requests that the breaker refuses are retried, and sent when the breaker admits them."""
        orchestrator, server = (
            Orchestrator(strategy=FixedStrategy("400ms"), breaker=self.SETTINGS),
            ScriptedServer("ok"),
        )
        opened(orchestrator)
        request = Request()
        assert "ok" == run(marking(orchestrator), request, server)
        assert (["CIRCUIT_BREAKER_OPEN"], [0.4, 0.4, 0.4], BreakerStatus.CLOSED) == (
            [reason.name for reason in request.retry_reasons],
            clock.slept,
            orchestrator.breaker("node1").status,
        )

    def test_a_refused_request_was_not_sent(self, run, clock):
        """With fail fast the caller gets the breaker's refusal, and an attempt that was never dispatched."""
        orchestrator = Orchestrator(strategy=FailFast(), breaker=self.SETTINGS)
        opened(orchestrator)
        request = Request(endpoint="node1")
        with pytest.raises(CircuitOpen) as caught:
            run(orchestrator.run, request, ScriptedServer("ok", marks=False))
        assert (False, timedelta(seconds=1, microseconds=1)) == (
            request.history[0].dispatched,
            caught.value.retry_after,
        )

    def test_one_request_that_times_out_is_one_failure(self, jump):
        """Ten dispatches of one request, nine answered and the last timed out, are one failure for the breaker."""

        async def main():
            orchestrator = Orchestrator(strategy=FixedStrategy("10ms"), breaker=BreakerSettings(volume_threshold=10))

            async def send(request, attempt):
                if attempt.number == 10:
                    await forever(request, attempt)
                attempt.dispatch("node1")
                raise Refusal("KV_LOCKED")

            with pytest.raises(UnambiguousTimeout):
                await orchestrator.run(Request(read_only=True, timeout=1), send, marks=True)
            state = orchestrator.breaker("node1")._state
            return state.successes, state.failures

        assert (9, 1) == jump(main)

    def test_timeouts_open_the_breaker(self, jump):
        """Two requests that time out open the breaker; a third is refused without being sent."""

        async def main():
            orchestrator = Orchestrator(strategy=FailFast(), breaker=self.SETTINGS)
            for _ in range(2):
                with pytest.raises(AmbiguousTimeout):
                    await orchestrator.run(Request(timeout=1), forever, marks=True)
            with pytest.raises(CircuitOpen):
                await orchestrator.run(Request(timeout=1), forever, marks=True)
            return orchestrator.breaker("node1").status, orchestrator.breaker("node2").status

        assert (BreakerStatus.OPEN, BreakerStatus.CLOSED) == jump(main)

    def test_there_are_no_breakers_by_default(self):
        """By default there are no breakers."""
        assert None is Orchestrator().breaker("node1")


def opened(orchestrator):
    """Open the breaker of ``node1``."""
    for permit in [orchestrator.breaker("node1").admit() for _ in range(2)]:
        permit.failed()


def test_a_policy_around_it_bounds_it(run, clock):
    """Deadlines of an enclosing retried call apply to the request."""

    async def call():
        await Orchestrator(timeout=None).run(Request("get"), ScriptedServer(Refusal("KV_LOCKED")))

    async def main():
        await Policy(on=OSError, deadline="1s").acall(call)

    with pytest.raises(UnambiguousTimeout, match="get timed out after 1s"):
        run(main)
