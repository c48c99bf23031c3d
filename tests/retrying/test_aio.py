"""Awaited calls: waiting, cancellation from outside, and attempts that are cut off, under asyncio and trio."""

from __future__ import annotations

import asyncio
import sys
from functools import partial

import pytest
import trio

import redrive
from redrive.clock import SystemClock, in_trio
from redrive.policy import Backoff, Policy, Stage
from redrive.retrying.context import using
from tests.retrying.helpers import Busy, JumpingClock, JumpingLoop, Other, Script, checkpoint

SECONDS = Policy(on=(Busy, TimeoutError), attempts=3, deadline=None, backoff=Backoff.constant(1), jitter="none")
CUT = SECONDS.with_(attempt_timeout=5, idempotent=True)


def now():
    """Seconds on the loop's clock."""
    return trio.current_time() if in_trio() else asyncio.get_running_loop().time()


async def wait(seconds):
    """Wait on the loop's clock."""
    await SystemClock().asleep(seconds)


def test_the_system_clock_waits_under_both_libraries(jump):
    """`SystemClock.asleep` waits by the means of the library that runs, and never shorter than asked."""

    async def main():
        began = now()
        await SystemClock().asleep(3)
        return now() - began

    assert 3.0 <= jump(main) < 3.001


def test_waits_let_other_tasks_run(jump):
    """Waits of a retried call let other tasks run and are those of the policy."""
    times = []

    async def call():
        times.append(round(now(), 6))
        raise Busy

    async def main():
        with pytest.raises(Busy):
            await SECONDS.acall(call)
        return [each - times[0] for each in times]

    assert [0.0, 1.0, 2.0] == jump(main)


def test_trio_is_not_imported_for_nothing():
    """`in_trio` does not import trio."""
    assert in_trio() is False
    kept = sys.modules.pop("trio")
    try:
        assert in_trio() is False
        assert "trio" not in sys.modules
    finally:
        sys.modules["trio"] = kept


def test_aoutcome_is_never_raised(jump):
    """`aoutcome` gives success and failure as values."""

    async def main():
        good = await SECONDS.aoutcome(Script(Busy(), 42).as_async())
        bad = await SECONDS.aoutcome(Script(Other("o")).as_async())
        return good, bad

    good, bad = jump(main)

    assert (42, 2) == (good.value, good.record.attempts)
    assert ("o", "not_matched") == (str(bad.error), bad.rule)


def test_errors_of_a_predicate_are_raised(run):
    """Errors in `on_result` are raised by `aoutcome`, too."""

    def broken(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(SECONDS.with_(on_result=broken).aoutcome, Script(1).as_async())


def test_results_are_checked_by_on_result(jump):
    """`on_result` judges what was awaited; a wait that is truncated ends with the last result."""
    policy = SECONDS.with_(on_result=lambda value: value is None)

    async def main():
        good = await policy.acall(Script(None, None, 42).as_async())
        cut = policy.with_(deadline=0.5, over_deadline="truncate")
        bad = await cut.aoutcome(Script(None).as_async())
        return good, bad.unwrap(), bad.rule, now()

    assert (42, None, "deadline", pytest.approx(2.5)) == jump(main)


# --------------------------------------------------------------------------------------------------------- cancellation


@pytest.mark.parametrize(
    "policy",
    [
        SECONDS.with_(on=BaseException),
        SECONDS.with_(on=lambda error: not isinstance(error, ValueError)),
        SECONDS.with_(on=BaseException, attempt_timeout="1h"),
    ],
    ids=["all", "all but one", "with a timeout"],
)
def test_a_cancellation_during_an_attempt_passes(jump, policy):
    """Calls that are cancelled during an attempt end as cancelled after that attempt."""
    calls = []

    async def call():
        calls.append(1)
        await wait(60)

    async def main():
        await cancelled_after(0.05, redrive.retry(policy)(call))
        await cancelled_after(0.05, lambda: policy.acall(call))
        return now()

    assert pytest.approx(0.1) == jump(main)
    assert 2 == len(calls)


async def cancelled_after(seconds, function):
    """Run a coroutine function, cancel it after a time, and see that it ends as cancelled."""
    if in_trio():
        with trio.move_on_after(seconds) as scope:
            await function()
        assert scope.cancelled_caught
        return
    task = asyncio.ensure_future(function())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(task, seconds)
    assert task.cancelled()


@pytest.mark.parametrize("policy", [SECONDS, CUT], ids=["without a timeout", "with one"])
def test_a_cancellation_during_a_wait_passes(jump, policy):
    """Calls that are cancelled during a wait end as cancelled, without another attempt."""
    script = Script(Busy())

    async def main():
        await cancelled_after(0.5, redrive.retry(policy)(script.as_async()))
        return now()

    assert pytest.approx(0.5) == jump(main)
    assert 1 == script.calls


@pytest.mark.parametrize("kind", [asyncio.CancelledError, GeneratorExit, KeyboardInterrupt])
def test_control_flow_passes(kind):
    """Control-flow exceptions pass an awaited call at once, without a note."""
    script = Script(kind())

    async def main():
        with pytest.raises(kind) as caught:
            await redrive.retry(SECONDS.with_(on=BaseException))(script.as_async())()
        return caught.value

    assert not hasattr(asyncio.run(main()), "__notes__")
    assert 1 == script.calls


# ------------------------------------------------------------------------------------------------------------- cutting


@pytest.mark.parametrize("form", ["retry", "acall", "block"])
def test_an_attempt_that_takes_too_long_is_cut_off(jump, form):
    """`attempt_timeout` cancels an attempt; if it may be repeated, it is."""
    ended = []

    async def call():
        try:
            await wait(60 if len(ended) < 2 else 1)
        except BaseException as error:
            ended.append(type(error).__name__)
            raise
        return 42

    async def block():
        async for attempt in CUT:
            with attempt:
                return await call()
        return None

    async def main():
        function = {"retry": redrive.retry(CUT)(call), "acall": lambda: CUT.acall(call), "block": block}[form]
        return await function(), now()

    result, time = jump(main)

    assert 42 == result
    assert pytest.approx(5 + 1 + 5 + 1 + 1) == time
    assert ended in (["CancelledError"] * 2, ["Cancelled"] * 2)


def test_an_attempt_that_was_cut_off_was_in_flight(jump):
    """Cancelled attempts are in flight: they are repeated only with `idempotent=True`."""

    async def main():
        return await CUT.with_(idempotent=None).aoutcome(wait, 60)

    outcome = jump(main)

    assert ("not_idempotent", 1) == (outcome.rule, outcome.record.attempts)
    assert isinstance(outcome.error, TimeoutError)
    assert "attempt 1 of tests.retrying.test_aio.wait took longer than 5s" == str(outcome.error)
    assert (Stage.IN_FLIGHT, "TIMEOUT") == (outcome.timeline[0].failure.stage, outcome.timeline[0].failure.reason)


@pytest.mark.parametrize(("on", "rule"), [(Busy, "not_matched"), ("TIMEOUT", "attempts"), (TimeoutError, "attempts")])
def test_on_decides_about_a_cancelled_attempt(jump, on, rule):
    """Timeouts are candidates if `on` names their type or their reason."""

    async def main():
        return await CUT.with_(on=on).aoutcome(wait, 60)

    assert rule == jump(main).rule


def test_the_functions_own_timeout_error_is_its_own(jump):
    """A TimeoutError of the function is in flight, too, and has no reason of redrive: it was not cut off here."""

    async def main(**fields):
        return await CUT.with_(**fields).aoutcome(Script(TimeoutError("mine"), 42).as_async())

    once, repeated = jump(partial(main, idempotent=False)), jump(partial(main, idempotent=True))

    assert ("not_idempotent", 42) == (once.rule, repeated.value)
    assert [(Stage.IN_FLIGHT, "ERROR")] * 2 == [
        (each.timeline[0].failure.stage, each.timeline[0].failure.reason) for each in (once, repeated)
    ]


@pytest.mark.parametrize("form", ["retry", "block"])
def test_a_deadline_that_was_given_cuts_off(jump, form):
    """Deadlines of the policy cancel the running attempt."""
    policy = SECONDS.with_(deadline=10, idempotent=True, attempts=9)
    calls = []

    @redrive.retry(policy)
    async def retried():
        calls.append(1)
        await wait(3)
        raise Busy

    async def block():
        async for attempt in policy:
            with attempt:
                calls.append(1)
                await wait(3)
                raise Busy

    async def main():
        with pytest.raises(TimeoutError, match="the deadline of 10s came during attempt 3 of") as caught:
            await {"retry": retried, "block": block}[form]()
        return caught.value.__retry__, now()

    record, time = jump(main)

    assert (pytest.approx(10), 3, "deadline") == (time, len(calls), record.rule)


def test_a_cancelled_attempt_counts_its_whole_time():
    """Cancelled attempts count their whole time, also where timers and clock differ."""
    policy = SECONDS.with_(deadline=10, idempotent=True, attempts=9)
    with using(clock=JumpingClock()), asyncio.Runner(loop_factory=JumpingLoop) as runner:
        outcome = runner.run(policy.aoutcome(wait, 60))

    assert ("deadline", 1) == (outcome.rule, outcome.record.attempts)


def test_the_default_deadline_cancels_no_attempt(jump):
    """Without a given deadline no attempt is cancelled; only no retry follows."""
    policy = Policy(on=Busy, attempts=3, backoff=Backoff.constant(0))

    async def call():
        await wait(100)
        return 42

    async def main():
        return await redrive.retry(policy)(call)()

    assert 42 == jump(main)


def test_a_cancellation_from_outside_goes_before_the_timeout():
    """If a cancellation coincides with the timeout, the call ends as cancelled."""

    async def call():
        try:
            await asyncio.Future()
        finally:
            outer.cancel()  # somebody else ends the task just as it is being cut off
            await checkpoint()

    async def main():
        nonlocal outer
        outer = asyncio.ensure_future(redrive.retry(CUT)(call)())
        with pytest.raises(asyncio.CancelledError):
            await outer
        assert outer.cancelled()

    outer = None
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(main())


def test_a_task_is_not_cancelled_after_its_call(jump):
    """Calls that end in time stop their timer, and the task continues."""

    async def main():
        assert 42 == await CUT.acall(Script(42).as_async())
        await wait(60)
        if not in_trio():
            assert 0 == asyncio.current_task().cancelling()
        return 1

    assert 1 == jump(main)


def test_a_cancelled_attempt_leaves_no_cancellation_request(jump):
    """After an attempt was cut off and the call has ended, nothing in the task is being cancelled."""

    async def main():
        assert "attempts" == (await CUT.aoutcome(wait, 60)).rule
        if not in_trio():
            assert 0 == asyncio.current_task().cancelling()
        await wait(1)
        return now()

    assert pytest.approx(5 * 3 + 2 + 1) == jump(main)


def test_cancelling_an_attempt_needs_a_task():
    """Coroutines without a task get an error that a timeout cannot work there."""

    async def main():
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def by_hand():
            try:
                CUT.acall(Script(1).as_async()).send(None)
            except RuntimeError as error:
                done.set_result(str(error))

        loop.call_soon(by_hand)
        return await done

    assert "in none" in asyncio.run(main())
