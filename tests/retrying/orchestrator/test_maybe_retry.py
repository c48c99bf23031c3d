"""`Orchestrator.maybe_retry`: what is asked in which order, and what comes of it."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

import redrive
from redrive.clock import SystemClock
from redrive.errors import (
    AmbiguousTimeout,
    ClientClosed,
    RequestCancelled,
    TooManyInRetry,
    UnambiguousTimeout,
)
from redrive.orchestrator import (
    BestEffort,
    FailFast,
    Orchestrator,
    Request,
    RequestNotRetried,
    RequestRetryScheduled,
    RetryAction,
    RetryReason,
)
from redrive.policy import Reason
from tests.retrying.helpers import checkpoint
from tests.retrying.orchestrator.helpers import FixedStrategy, Refusal, cancelled_after, events, together

SCHEDULED = ("RequestRetryScheduled", "DEBUG")
REFUSED = ("RequestNotRetried", "INFO")
KV_LOCKED = RetryReason.KV_LOCKED
LOST = RetryReason.SOCKET_CLOSED_WHILE_IN_FLIGHT


class TestOrder:
    """The steps, one after the other."""

    def test_a_completed_request_is_left_alone(self, run, clock, caplog):
        """Completed requests cause no question, record, event or wait."""
        strategy = FixedStrategy()
        request = Request(retry_strategy=strategy)
        request.succeed()
        assert False is run(Orchestrator().maybe_retry, request, KV_LOCKED)
        assert ([], [], 0, []) == (strategy.reasons, events(caplog), request.retry_attempts, clock.slept)

    def test_always_retry_beats_every_strategy(self, run, clock):
        """Reasons that are always retried use the controlled backoff without a strategy."""
        strategy = FixedStrategy(None)
        request = Request(retry_strategy=strategy)

        async def main():
            return [await Orchestrator().maybe_retry(request, RetryReason.KV_NOT_MY_VBUCKET) for _ in range(7)]

        assert [True] * 7 == run(main)
        assert ([], [0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 1.0]) == (strategy.reasons, clock.slept)

    def test_always_retry_beats_the_guard(self, run, clock):
        """Reasons with only the flag "always retry" pass the stage check, too."""
        request = Request()
        request.attempt.dispatch()
        assert True is run(Orchestrator().maybe_retry, request, Reason("TEST_ODD", always_retry=True))

    def test_mutations_lost_in_flight_are_refused_before_user_code(self, run, clock):
        """Mutations that were sent and not answered are refused without asking a strategy."""
        strategy, error = FixedStrategy(), ConnectionResetError()
        request = Request(retry_strategy=strategy)
        request.attempt.dispatch()
        with pytest.raises(ConnectionResetError) as caught:
            run(Orchestrator().maybe_retry, request, LOST, error)
        assert ([], error, 0) == (strategy.reasons, caught.value, request.retry_attempts)

    @pytest.mark.parametrize("options", [{"idempotent": True}, {"may_repeat_in_flight": True}], ids=str)
    def test_the_guard_can_be_opened(self, run, clock, options):
        """Idempotent requests pass the stage check, and so do those with `may_repeat_in_flight`."""
        strategy = FixedStrategy()
        request = Request(retry_strategy=strategy, **options)
        request.attempt.dispatch()
        assert True is run(Orchestrator().maybe_retry, request, LOST)
        assert [LOST] == strategy.reasons

    @pytest.mark.parametrize("answered", [True, False])
    def test_unsent_and_answered_mutations_pass_the_guard(self, run, clock, answered):
        """Mutations that were never sent, or have a definite answer, are passed to the strategy."""
        strategy = FixedStrategy()
        request = Request(retry_strategy=strategy)
        if answered:
            request.attempt.answer()
        assert True is run(Orchestrator().maybe_retry, request, RetryReason.UNKNOWN)
        assert [RetryReason.UNKNOWN] == strategy.reasons

    @pytest.mark.parametrize("reason", ["SERVICE_NOT_AVAILABLE", "UNKNOWN"])
    def test_an_answer_that_proves_nothing_does_not_pass_the_guard(self, run, clock, reason):
        """Mutations with an indefinite answer are refused, although the reason allows a retry."""
        strategy = FixedStrategy()
        request = Request(retry_strategy=strategy)
        request.attempt.answer(definite=False)
        with pytest.raises(RequestCancelled):
            run(Orchestrator().maybe_retry, request, reason)
        assert ([], True) == (strategy.reasons, request.is_ambiguous)

    @pytest.mark.parametrize(
        "name", ["SOCKET_CLOSED_WHILE_IN_FLIGHT", "socket_close_in_flight", "HTTP_SEND_REQUEST_FAILED"]
    )
    def test_a_reason_name_can_imply_in_flight(self, run, clock, name):
        """Clients that pass only the name of an in-flight reason get the stage check, and the timeout is ambiguous."""
        strategy = FixedStrategy()
        request = Request(retry_strategy=strategy)
        with pytest.raises(RequestCancelled):
            run(Orchestrator().maybe_retry, request, name)
        assert ([], True) == (strategy.reasons, request.is_ambiguous)

    def test_a_partly_delivered_request_is_not_sent_again(self, run, clock):
        """Once a part of the result has reached the caller, even an always-retry reason ends the request."""
        request = Request(idempotent=True)
        request.attempt.deliver()
        with pytest.raises(RequestCancelled, match="KV_NOT_MY_VBUCKET"):
            run(Orchestrator().maybe_retry, request, RetryReason.KV_NOT_MY_VBUCKET)

    def test_disabled_retries_are_disabled_for_requests(self, run, clock):
        """Under `redrive.disabled` nothing is sent again."""
        with redrive.disabled(), pytest.raises(RequestCancelled):
            run(Orchestrator().maybe_retry, Request(), RetryReason.KV_NOT_MY_VBUCKET)

    def test_the_requests_strategy_comes_first(self, run, clock):
        """Requests with a strategy use it instead of the orchestrator's."""
        with pytest.raises(RequestCancelled):
            run(Orchestrator(strategy=BestEffort()).maybe_retry, Request(retry_strategy=FailFast()), KV_LOCKED)

    def test_without_any_strategy_there_is_best_effort(self, run, clock):
        """By default an orchestrator uses best effort."""
        assert True is run(Orchestrator().maybe_retry, Request(), KV_LOCKED)

    @pytest.mark.parametrize("name", ["KV_LOCKED", "key_value_locked"])
    def test_a_reason_may_be_named(self, run, clock, name):
        """Reasons may be given by name in any spelling, and the strategy gets the reason."""
        strategy = FixedStrategy()
        run(Orchestrator(strategy=strategy).maybe_retry, Request(), name)
        assert [KV_LOCKED] == strategy.reasons

    def test_a_retry_is_recorded_and_emitted_before_the_wait(self, run, clock, caplog):
        """Reason and delay are recorded in the attempt and in an event before the wait, which uses the clock."""
        request = Request("upsert", service="kv", id="7", endpoint="node1", context={"user": 3}, timeout="2500ms")
        request.attempt.dispatch("node1", local_address="10.0.0.9:50000", channel_id="c1")
        deadline, error = request.deadline, Refusal("KV_LOCKED")
        orchestrator = Orchestrator(strategy=FixedStrategy("200ms"))
        assert True is run(orchestrator.maybe_retry, request, KV_LOCKED, error)
        wait = timedelta(milliseconds=200)
        assert ([0.2], 1, (KV_LOCKED,), deadline) == (
            clock.slept,
            request.retry_attempts,
            request.retry_reasons,
            request.deadline,
        )
        assert (wait, 2) == (request.history[0].delay, request.attempt.number)
        (record,) = caplog.records
        event = RequestRetryScheduled(
            reason=KV_LOCKED,
            reasons=(KV_LOCKED,),
            delay=wait,
            attempts=1,
            id="7",
            operation="upsert",
            service="kv",
            endpoint="node1",
            local_address="10.0.0.9:50000",
            channel_id="c1",
            context={"user": 3},
            timeout=timedelta(seconds=2.5),
            idempotent=False,
            cause=error,
        )
        assert (event, logging.DEBUG) == (record.event, record.levelno)
        assert (
            "upsert is retried in 200ms: reason=KV_LOCKED, retries=1, id=7, service=kv, endpoint=node1, "
            "local_address=10.0.0.9:50000, channel_id=c1, timeout=2s500ms, idempotent=False, context={'user': 3}, "
            "cause=Refusal('KV_LOCKED'), reasons so far=[KV_LOCKED]"
        ) == record.getMessage()

    def test_zero_is_a_delay(self, run, clock):
        """Strategies that return a delay of zero get a retry."""
        assert True is run(Orchestrator(strategy=FixedStrategy(0)).maybe_retry, Request(), KV_LOCKED)
        assert [0.0] == clock.slept

    def test_no_event_is_made_without_a_listener(self, run, clock, caplog):
        """With its logger at WARNING no event is made."""
        caplog.set_level(logging.WARNING, logger="redrive.orchestrator")
        run(Orchestrator().maybe_retry, Request(), KV_LOCKED)
        assert [] == caplog.records


class TestDeadline:
    """All waiting ends at the deadline."""

    @pytest.mark.parametrize("reason", [KV_LOCKED, RetryReason.KV_NOT_MY_VBUCKET])
    def test_after_a_capped_wait_it_times_out(self, run, clock, reason, caplog):
        """Waits past the deadline are cut to it, and nothing is sent afterwards; also for always-retry reasons."""
        request = Request(timeout="2500ms", retry_strategy=lambda request, reason: RetryAction("1s"))
        for _ in range(5):
            request.record_retry(reason, timedelta(0))
        clock.advance(2)
        with pytest.raises(UnambiguousTimeout):
            run(Orchestrator().maybe_retry, request, reason)
        assert ([0.5], 6, [SCHEDULED]) == (clock.slept, request.retry_attempts, events(caplog))
        assert timedelta(milliseconds=500) == request.history[-1].delay

    def test_no_wait_starts_past_the_deadline(self, run, clock):
        """After the deadline there is no wait."""
        request = Request(timeout="1s")
        clock.advance(2)
        with pytest.raises(UnambiguousTimeout):
            run(Orchestrator().maybe_retry, request, KV_LOCKED)
        assert [0.0] == clock.slept

    def test_a_lost_attempt_makes_the_timeout_ambiguous(self, run, clock):
        """Mutations that were lost once time out as ambiguous, whatever happens later."""
        request = Request(idempotent=True, read_only=False, timeout="2ms")
        request.attempt.dispatch()

        async def main():
            orchestrator = Orchestrator()
            assert await orchestrator.maybe_retry(request, LOST, OSError("lost"))
            request.attempt.dispatch()
            await orchestrator.maybe_retry(request, KV_LOCKED, Refusal("KV_LOCKED"))

        with pytest.raises(AmbiguousTimeout) as caught:
            run(main)
        assert "KV_LOCKED" == str(caught.value.__cause__)
        assert [True, False] == [attempt.is_ambiguous for attempt in caught.value.__retry__.history]

    def test_a_request_without_a_timeout_gets_one(self, run, clock):
        """Default timeouts count from the creation of the request."""
        request = Request()
        clock.advance(74.5)
        with pytest.raises(UnambiguousTimeout):
            run(Orchestrator(strategy=FixedStrategy("1s")).maybe_retry, request, KV_LOCKED)
        assert [0.5] == clock.slept

    def test_a_request_may_have_no_end(self, run, clock):
        """Without a default timeout, waits are as long as the strategy returns."""
        assert True is run(Orchestrator(strategy=FixedStrategy("10d"), timeout=None).maybe_retry, Request(), KV_LOCKED)
        assert [864_000.0] == clock.slept

    def test_a_strategy_that_waits_is_cut_by_the_deadline(self, jump):
        """Strategies are not awaited past the deadline."""

        async def strategy(request, reason):
            await SystemClock().asleep(3600)

        async def main():
            request = Request(timeout="2500ms", retry_strategy=strategy)
            with pytest.raises(UnambiguousTimeout) as caught:
                await Orchestrator().maybe_retry(request, KV_LOCKED, Refusal("KV_LOCKED"))
            return request, caught.value

        request, error = jump(main)
        assert (0, "KV_LOCKED") == (request.retry_attempts, str(error.__cause__))
        assert timedelta(seconds=2.5) <= error.__retry__.elapsed < timedelta(seconds=2.6)

    def test_a_strategy_that_answers_after_the_deadline_is_ignored(self, run, clock):
        """If the time went by without a timer, the answer of the strategy finds the deadline passed."""

        async def strategy(request, reason):
            await request.clock.asleep(3)
            return RetryAction(0)

        with pytest.raises(UnambiguousTimeout):
            run(Orchestrator(strategy=strategy).maybe_retry, Request(timeout="2500ms"), KV_LOCKED)


class TestRefusals:
    """Requests that are not retried get an error with the reason."""

    @pytest.mark.parametrize("answer", [None, RetryAction.no_retry()], ids=str)
    def test_no_retry(self, run, clock, caplog, answer):
        """None, and an action without a duration, refuse: the error of the attempt is raised, with what is known."""
        request, error = Request("upsert", id="7", endpoint="node1"), Refusal("KV_LOCKED")
        request.attempt.dispatch("node1")
        with pytest.raises(Refusal) as caught:
            run(Orchestrator(strategy=FixedStrategy(answer)).maybe_retry, request, KV_LOCKED, error)
        assert (error, [request.record.note]) == (caught.value, error.__notes__)
        assert (0, (), "node1", {}) == (
            error.__retry__.retry_attempts,
            error.__retry__.retry_reasons,
            error.__retry__.endpoint,
            error.__retry__.context,
        )
        (record,) = caplog.records
        event = RequestNotRetried(
            reason=KV_LOCKED,
            attempts=0,
            id="7",
            operation="upsert",
            endpoint="node1",
            context={},
            timeout=timedelta(seconds=75),
            cause=error,
        )
        assert (event, logging.INFO) == (record.event, record.levelno)
        assert "upsert is not retried: reason=KV_LOCKED, retries=0, id=7" == record.getMessage()[:56]

    def test_attempts_and_reasons_are_those_before(self, run, clock):
        """Errors of refused requests have the retries that were made, without the refused one."""

        async def main():
            request = Request()
            orchestrator = Orchestrator(strategy=BestEffort(BestEffort().backoff.take(2)))
            await orchestrator.maybe_retry(request, KV_LOCKED)
            await orchestrator.maybe_retry(request, RetryReason.KV_NOT_MY_VBUCKET)
            await orchestrator.maybe_retry(request, RetryReason.NODE_NOT_AVAILABLE, OSError("no node"))

        with pytest.raises(OSError, match="no node") as caught:
            run(main)
        record = caught.value.__retry__
        assert (2, (KV_LOCKED, RetryReason.KV_NOT_MY_VBUCKET), 3) == (
            record.retry_attempts,
            record.retry_reasons,
            len(record.history),
        )

    def test_without_an_error_it_is_cancelled(self, run, clock, caplog):
        """Callers without an error get one that names the reason."""
        with pytest.raises(RequestCancelled, match="get is not retried: UNKNOWN") as caught:
            run(Orchestrator().maybe_retry, Request("get"), RetryReason.UNKNOWN)
        assert ("NO_MORE_RETRIES", "UNKNOWN", [REFUSED]) == (
            caught.value.cancellation,
            caught.value.reason,
            events(caplog),
        )

    @pytest.mark.case("orchestrator/refused_retry_completes_request")
    def test_a_refusal_completes_the_request_once(self, run, clock):
        """Reads with a closed connection and a refusing strategy are completed once, with that error."""
        completed, error = [], ConnectionResetError()
        request = Request("get", idempotent=True, retry_strategy=FailFast(), on_completed=completed.append)
        request.attempt.dispatch()
        with pytest.raises(ConnectionResetError):
            run(Orchestrator().maybe_retry, request, LOST, error)
        assert ([request], False, error) == (completed, request.fail(OSError()), request._error)

    def test_an_internal_request_is_refused_quietly(self, run, clock, caplog):
        """Refusals of internal requests are logged as DEBUG."""
        with pytest.raises(RequestCancelled):
            run(Orchestrator().maybe_retry, Request(internal=True), RetryReason.UNKNOWN)
        assert [("RequestNotRetried", "DEBUG")] == events(caplog)

    @pytest.mark.parametrize("error", [None, Refusal("KV_LOCKED")], ids=str)
    def test_an_error_may_be_translated(self, run, clock, error):
        """Strategies may translate the error; the original is its cause, and both have the record."""
        action = RetryAction.no_retry(lambda real: LookupError(f"not {real}"))
        with pytest.raises(LookupError) as caught:
            run(Orchestrator(strategy=FixedStrategy(action)).maybe_retry, Request(), KV_LOCKED, error)
        cause = caught.value.__cause__
        assert (error or cause, str(caught.value), "NO_MORE_RETRIES") == (
            cause,
            f"not {cause}",
            getattr(cause, "cancellation", "NO_MORE_RETRIES"),
        )
        assert caught.value.__retry__.id == cause.__retry__.id

    @pytest.mark.parametrize("is_async", [True, False])
    def test_a_strategy_that_raises_surfaces_at_once(self, run, clock, caplog, is_async):
        """Errors of a strategy end the request without a wait, and are the cause in the event."""
        error, request = RuntimeError("bug"), Request(timeout=1)

        def plain(request, reason):
            raise error

        strategy = FixedStrategy(error) if is_async else plain
        with pytest.raises(RuntimeError) as caught:
            run(Orchestrator(strategy=strategy).maybe_retry, request, KV_LOCKED, Refusal("KV_LOCKED"))
        assert (error, [], [REFUSED], error) == (
            caught.value,
            clock.slept,
            events(caplog),
            caplog.records[0].event.cause,
        )
        assert True is request.completed

    def test_an_invalid_answer_of_a_strategy_is_an_error(self, run, clock):
        """Strategies that return a span instead of an action cause an error."""
        with pytest.raises(TypeError, match="a strategy answers a RetryAction"):
            run(Orchestrator(strategy=lambda request, reason: timedelta(0)).maybe_retry, Request(), KV_LOCKED)

    def test_a_translation_that_fails_surfaces(self, run, clock):
        """Errors of a translation are the request's error."""
        action = RetryAction.no_retry(lambda real: {}[real])
        with pytest.raises(KeyError):
            run(Orchestrator(strategy=FixedStrategy(action)).maybe_retry, Request(), KV_LOCKED, Refusal("KV_LOCKED"))


class TestMeanwhile:
    """What happens while a request waits."""

    def test_waiting_requests_do_not_block_each_other(self, jump):
        """While one request waits, a hundred others wait at the same time."""

        async def main():
            clock, orchestrator = SystemClock(), Orchestrator(strategy=FixedStrategy("1s"))
            requests = [Request() for _ in range(100)]
            await together(*[lambda each=each: orchestrator.maybe_retry(each, KV_LOCKED) for each in requests])
            return requests[0].elapsed, {request.retry_attempts for request in requests}, clock

        elapsed, attempts, _ = jump(main)
        assert (1, {1}) == (round(elapsed.total_seconds()), attempts)

    @pytest.mark.case("orchestrator/close_during_backoff")
    def test_closing_during_a_wait_is_answered_closed(self, jump, caplog):
        """Waiting requests fail as closed at once when the orchestrator is closed."""

        async def main():
            orchestrator, request = Orchestrator(strategy=FixedStrategy("300ms")), Request("get")
            ends = []

            async def wait():
                with pytest.raises(ClientClosed) as caught:
                    await orchestrator.maybe_retry(request, RetryReason.SERVICE_NOT_AVAILABLE, Refusal("busy"))
                ends.append(caught.value)

            async def close():
                await SystemClock().asleep(0.1)
                ends.append(orchestrator.in_retry)
                orchestrator.close()
                orchestrator.close()

            await together(wait, close)
            return ends, request, orchestrator

        (waiting, error), request, orchestrator = jump(main)
        assert (1, 0, True) == (waiting, orchestrator.in_retry, orchestrator.closed)
        assert (1, "SHUTDOWN", "busy", error) == (
            request.retry_attempts,
            error.cancellation,
            str(error.__cause__),
            request._error,
        )
        assert True is request.completed
        assert [SCHEDULED, REFUSED] == events(caplog)

    def test_closing_while_a_strategy_waits_is_answered_closed(self, jump):
        """After a close, strategies are not awaited any longer."""

        async def strategy(request, reason):
            await SystemClock().asleep(3600)

        async def main():
            orchestrator = Orchestrator(strategy=strategy)

            async def wait():
                with pytest.raises(ClientClosed):
                    await orchestrator.maybe_retry(Request(timeout=None), KV_LOCKED)

            async def close():
                await SystemClock().asleep(1)
                orchestrator.close()

            await together(wait, close)
            return True

        assert True is jump(main)

    @pytest.mark.case("orchestrator/shutdown_cancels")
    def test_after_closing_nothing_is_retried(self, run, clock, caplog):
        """Failures after the close are refused as closed, without asking a strategy."""
        strategy = FixedStrategy()
        orchestrator = Orchestrator(strategy=strategy)
        orchestrator.close()
        with pytest.raises(ClientClosed, match="closed while"):
            run(orchestrator.maybe_retry, Request(), KV_LOCKED)
        assert ([], [], [REFUSED]) == (strategy.reasons, clock.slept, events(caplog))

    def test_a_strategy_may_close(self, run, clock):
        """Orchestrators that are closed by their own strategy do not wait."""
        orchestrator = Orchestrator(strategy=lambda request, reason: (orchestrator.close(), RetryAction(1))[1])
        with pytest.raises(ClientClosed):
            run(orchestrator.maybe_retry, Request(), KV_LOCKED)
        assert [] == clock.slept

    def test_a_request_that_is_completed_during_its_wait_is_not_sent(self, jump):
        """Waits end at once when other code completes the request, and it is not sent again."""

        async def main():
            request = Request()
            delays = []

            async def wait():
                delays.append(await Orchestrator(strategy=FixedStrategy("1h")).maybe_retry(request, KV_LOCKED))

            async def complete():
                await SystemClock().asleep(1)
                request.succeed("from elsewhere")

            await together(wait, complete)
            return delays, request.result(), request.elapsed.total_seconds()

        delays, result, elapsed = jump(main)
        assert ([False], "from elsewhere", 1) == (delays, result, round(elapsed))

    @pytest.mark.parametrize("answer", [RetryAction(1), None, RuntimeError()], ids=["retry", "refuse", "raise"])
    def test_a_request_that_is_completed_by_its_strategy_is_left_alone(self, run, clock, caplog, answer):
        """Whatever the strategy answers then, there is nothing to do and nothing to wait for."""

        async def strategy(request, reason):
            request.succeed(7)
            if isinstance(answer, Exception):
                raise answer
            return answer

        request = Request()
        assert False is run(Orchestrator(strategy=strategy).maybe_retry, request, KV_LOCKED)
        assert (7, [], []) == (request.result(), clock.slept, events(caplog))

    def test_too_many_in_retry(self, jump, caplog):
        """Beyond the limit of waiting requests, one more is refused and the others continue."""

        async def main():
            orchestrator, refused = Orchestrator(strategy=FixedStrategy("1s"), max_in_retry=2), []

            async def wait():
                try:
                    await orchestrator.maybe_retry(Request(), KV_LOCKED, Refusal("KV_LOCKED"))
                except TooManyInRetry as error:
                    refused.append((error.cancellation, error.reason, str(error.__cause__)))

            await together(wait, wait, wait)
            return refused

        assert [("TOO_MANY_REQUESTS_IN_RETRY", "KV_LOCKED", "KV_LOCKED")] == jump(main)
        assert [REFUSED, SCHEDULED, SCHEDULED] == sorted(events(caplog))

    @pytest.mark.case("orchestrator/external_cancel_is_not_timeout")
    def test_a_cancellation_from_outside_is_no_timeout(self, jump):
        """Cancelling the task ends the request as cancelled; the cancellation passes."""
        spans = []

        async def main():
            request = Request(timeout="10s", on_completed=spans.append)
            await cancelled_after(5, lambda: Orchestrator(strategy=FixedStrategy("8s")).maybe_retry(request, KV_LOCKED))
            return request

        request = jump(main)
        assert ([request], 5) == (spans, round(request.elapsed.total_seconds()))
        with pytest.raises(RequestCancelled):
            request.result()

    def test_a_request_may_be_completed_by_another_task(self, run, clock):
        """Other tasks can end a request while the clock jumps."""

        async def main():
            request = Request()

            async def end():
                await checkpoint()
                request.cancel()

            await together(lambda: Orchestrator(strategy=FixedStrategy(0)).maybe_retry(request, KV_LOCKED), end)
            return request.completed

        assert True is run(main)
