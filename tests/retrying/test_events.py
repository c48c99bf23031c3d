"""The events of calls: each retry and each end after one, in every form."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from contextlib import contextmanager
from datetime import timedelta

import pytest

import redrive
from redrive import Backoff, Policy, observe
from redrive.clock import in_trio
from redrive.errors import CircuitOpen, GiveUp
from redrive.observe import CallDeferred, CallGaveUp, CallRetryScheduled, CallSucceeded
from redrive.retrying import BreakerSettings, Hedge, RatioBudget, TokenBudget, breaker, budget, isolated
from redrive.retrying.context import SYSTEM, trial, using
from tests.retrying.helpers import Busy, LoopClock, Other, Script, checkpoint

DOUBLING = Policy(on=Busy, attempts=4, deadline=None, backoff=Backoff.exponential(1), jitter="none")
AT_ONCE = DOUBLING.with_(backoff=Backoff.constant(0))


class Waits:
    """A sink that counts, for each retry it hears of, how often its manager is entered and exited.

    Attributes:
        enters: one count a retry.
        exits: the same.
    """

    def __init__(self):
        self.enters, self.exits = [], []

    def __call__(self, event):
        """Take an event; of a retry, give a manager that counts."""
        return self._count(len(self.enters)) if isinstance(event, CallRetryScheduled) else None

    @contextmanager
    def _count(self, place):
        self.enters.append(1)
        self.exits.append(0)
        try:
            yield
        finally:
            self.exits[place] += 1


# --------------------------------------------------------------------------------------------------------- the forms


def _decorated(policy, script):
    return redrive.retry(policy)(script)()


def _called(policy, script):
    return policy.call(script)


def _as_a_value(policy, script):
    return policy.outcome(script).unwrap()


def _block(policy, script):
    for attempt in policy:
        with attempt:
            attempt.result = script()
    return attempt.result


def _generator(policy, script):
    @redrive.retry(policy)
    def stream():
        yield script()

    (item,) = list(stream())
    return item


def _run(main, *args):
    return asyncio.run(main(*args))


async def _adecorated(policy, script):
    return await redrive.retry(policy)(script.as_async())()


async def _ablock(policy, script):
    async for attempt in policy:
        with attempt:
            await checkpoint()
            attempt.result = script()
    return attempt.result


async def _agenerator(policy, script):
    @redrive.retry(policy)
    async def stream():
        await checkpoint()
        yield script()

    (item,) = [item async for item in stream()]
    return item


SYNC = {
    "decorated": _decorated,
    "prepared": lambda policy, script: _decorated(policy.with_(deadline="1h"), script),
    "called": _called,
    "as a value": _as_a_value,
    "block": _block,
    "generator": _generator,
}
ASYNC = {
    "decorated": _adecorated,
    "prepared": lambda policy, script: _adecorated(policy.with_(deadline="1h"), script),
    "called": lambda policy, script: policy.acall(script.as_async()),
    "block": _ablock,
    "generator": _agenerator,
}


@pytest.fixture(params=[*SYNC, *(f"{each} under {loop}" for each in ASYNC for loop in ("asyncio", "trio"))])
def form(request, clock):
    """Makes a call under a policy, in each form and colour, on a clock that jumps."""
    name, _, loop = request.param.partition(" under ")
    if not loop:
        return SYNC[name]
    runner = _run if loop == "asyncio" else sys.modules["trio"].run
    return lambda policy, script: runner(ASYNC[name], policy, script)


def hear(form, policy, script):
    """Make a call; the events, and what it raises."""
    events = []
    with observe.only(events.append):
        try:
            form(policy, script)
        except Exception as error:  # noqa: BLE001 - whatever surfaces
            return events, error
    return events, None


# ------------------------------------------------------------------------------------------------------ what is told


@pytest.mark.case("isolation.05")
@pytest.mark.parametrize("policy", [DOUBLING, AT_ONCE], ids=["waits", "at once"])
def test_each_retry_has_one_enter_and_one_exit(form, policy):
    """Four attempts have three retries, each with one enter and one exit, and so has a second call by the same sink."""
    waits = Waits()
    with observe.only(waits), contextlib.suppress(Busy):
        form(policy, Script(Busy()))
    with observe.only(waits), contextlib.suppress(Busy):
        form(policy, Script(Busy()))

    assert ([1] * 6, [1] * 6) == (waits.enters, waits.exits)


def test_a_call_that_recovers_emits_its_retries_and_its_success(form):
    """Two failures and a success are two retries, with their delays and the waiting so far, and one success."""
    events, error = hear(form, DOUBLING, Script(Busy("no"), Busy("no"), 7))

    first, second, last = events
    assert error is None
    assert [CallRetryScheduled, CallRetryScheduled, CallSucceeded] == [type(event) for event in events]
    assert (1, timedelta(seconds=1), "backoff", timedelta(0)) == (first.attempt, first.delay, first.rule, first.waited)
    assert (2, timedelta(seconds=2), timedelta(seconds=1)) == (second.attempt, second.delay, second.waited)
    assert ("tests.retrying.helpers.Busy", "no") == (first.failure.error_type, first.failure.message)
    assert (3, timedelta(seconds=3), timedelta(seconds=3)) == (last.attempts, last.waited, last.elapsed)
    assert 1 == len({event.name for event in events})


def test_a_call_that_gives_up_emits_the_reason(form):
    """Failed calls end with an event with rule, last failure and error."""
    events, error = hear(form, DOUBLING, Script(Busy()))

    assert [CallRetryScheduled] * 3 + [CallGaveUp] == [type(event) for event in events]
    last = events[-1]
    assert (4, "attempts", "4 of 4 attempts failed") == (last.attempts, last.rule, last.why)
    assert ("tests.retrying.helpers.Busy", timedelta(seconds=7)) == (last.failure.error_type, last.waited)
    assert error is last.error
    assert error.__retry__.attempts == last.attempts


@pytest.mark.parametrize("step", [7, Other()], ids=["success", "not its business"])
def test_a_call_without_retries_emits_no_event(form, step):
    """Calls that succeed at once, or with an error that is not matched, emit no event."""
    events, _ = hear(form, DOUBLING, Script(step))

    assert [] == events


def test_an_unmatched_error_after_a_retry_emits_an_event(form):
    """Calls that were retried and fail with an unmatched error emit CallGaveUp."""
    events, _ = hear(form, AT_ONCE, Script(Busy(), Other()))

    assert ["backoff", "not_matched"] == [event.rule for event in events]


def test_a_sink_can_read_the_current_exception(form):
    """While a sink gets a failure, `sys.exception()` is that failure."""
    seen, errors = [], [Busy(1), Busy(2), Busy(3), Busy(4)]
    with observe.only(lambda event: seen.append(sys.exception())), contextlib.suppress(Busy):
        form(DOUBLING, Script(*errors))

    assert errors == seen


def test_a_sink_that_fails_changes_nothing(form, caplog):
    """Sinks that raise do not change the result."""

    def broken(event):
        raise RuntimeError("the collector is down")

    with observe.only(broken):
        assert 7 == form(DOUBLING, Script(Busy(), Busy(), 7))
        with pytest.raises(Busy):
            form(DOUBLING, Script(Busy()))

    assert 1 == len(caplog.records)


def test_a_watched_call_waits_as_long_as_another(form, clock):
    """Listeners do not change the delays."""
    policy = DOUBLING.with_(jitter="full")
    with using(sample=0.5):
        with contextlib.suppress(Busy):
            form(policy, Script(Busy()))
        unwatched = list(clock.slept)
        clock.slept.clear()
        hear(form, policy, Script(Busy()))

    assert unwatched == clock.slept


@pytest.mark.parametrize("colour", ["def", "async def"])
@pytest.mark.parametrize("last", [7, Busy()], ids=["recovers", "gives up"])
def test_a_compiled_wrapper_emits_events(colour, last):
    """Compiled wrappers emit the same events, each wait with its context manager."""
    events, waits, script = [], Waits(), Script(Busy(), Busy(), Busy(), last)
    with observe.only(events.append, waits), contextlib.suppress(Busy):
        if colour == "def":
            redrive.retry(AT_ONCE)(script)()
        else:
            _run(redrive.retry(AT_ONCE)(script.as_async()))

    end = CallSucceeded if last == 7 else CallGaveUp
    assert [CallRetryScheduled] * 3 + [end] == [type(event) for event in events]
    assert [1, 2, 3] == [event.attempt for event in events[:3]]
    assert ([1] * 3, [1] * 3, 4) == (waits.enters, waits.exits, events[-1].attempts)


def test_a_compiled_wrapper_waits_inside_the_manager(monkeypatch):
    """Compiled wrappers wait inside the context manager, also when they are interrupted."""
    order = []

    def interrupted(seconds):
        order.append("wait")
        raise KeyboardInterrupt

    @contextmanager
    def sink(event):
        order.append("enter")
        try:
            yield
        finally:
            order.append("exit")

    monkeypatch.setattr(SYSTEM, "sleep", interrupted, raising=False)
    with observe.only(sink), pytest.raises(KeyboardInterrupt):
        redrive.retry(DOUBLING)(Script(Busy()))()

    assert ["enter", "wait", "exit"] == order


# ------------------------------------------------------------------------------------------------- around the waits


def test_a_manager_is_open_while_the_call_waits(clock, monkeypatch):
    """Clocks sleep between enter and exit of the context manager."""
    order, sleep = [], clock.sleep
    monkeypatch.setattr(clock, "sleep", lambda seconds: (order.append(seconds), sleep(seconds)))

    @contextmanager
    def sink(event):
        order.append("enter")
        yield
        order.append("exit")

    with observe.only(sink):
        DOUBLING.call(Script(Busy(), Busy(), 1))

    assert ["enter", 1.0, "exit", "enter", 2.0, "exit", "enter", "exit"] == order  # the last pair is the success


@pytest.mark.parametrize("name", ["decorated", "called", "block", "generator"])
def test_a_cancelled_wait_exits_its_manager(jump, name):
    """Cancelled waits exit the context manager, and no end is emitted."""
    waits, events, outcome = Waits(), [], []

    async def call():
        try:
            await ASYNC[name](DOUBLING.with_(backoff=Backoff.constant("1h")), Script(Busy()))
        except BaseException as error:
            outcome.append(error)
            raise

    async def main():
        with observe.only(waits, events.append):
            await _cancel_after(call, 1)

    jump(main)

    assert ([1], [1]) == (waits.enters, waits.exits)
    assert [CallRetryScheduled] == [type(event) for event in events]
    assert not isinstance(outcome[0], Exception)


async def _cancel_after(work, seconds):
    if in_trio():
        with sys.modules["trio"].move_on_after(seconds):
            await work()
        return
    task = asyncio.create_task(work())
    await LoopClock().asleep(seconds)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("name", list(SYNC))
def test_an_interrupted_wait_exits_its_manager(clock, monkeypatch, name):
    """Interrupted waits exit the context manager."""

    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(clock, "sleep", interrupted)
    waits = Waits()
    with observe.only(waits), pytest.raises(KeyboardInterrupt):
        SYNC[name](DOUBLING, Script(Busy()))

    assert ([1], [1]) == (waits.enters, waits.exits)


def test_calls_at_the_same_time_share_no_manager(jump):
    """Two tasks that wait at once have a manager each, and each is exited when its own wait ends."""
    order = []

    @contextmanager
    def around(name):
        order.append(f"{name} waits")
        yield
        order.append(f"{name} goes on")

    def sink(event):
        return around(event.failure.message) if isinstance(event, CallRetryScheduled) else None

    async def call(name, seconds):
        script = Script(Busy(name), 1)
        await DOUBLING.with_(backoff=Backoff.constant(seconds)).acall(script.as_async())

    async def main():
        with observe.only(sink):
            if in_trio():
                async with sys.modules["trio"].open_nursery() as nursery:
                    nursery.start_soon(call, "long", 5)
                    nursery.start_soon(call, "short", 2)
            else:
                await asyncio.gather(call("long", 5), call("short", 2))

    jump(main)

    assert {"long waits", "short waits"} == set(order[:2])
    assert ["short goes on", "long goes on"] == order[2:]


def test_a_block_that_is_left_before_its_wait_enters_nothing(clock):
    """Loops that break after a failed attempt enter no context manager."""
    waits = Waits()
    with observe.only(waits):
        for attempt in DOUBLING:
            with attempt:
                raise Busy
            break

    assert ([], []) == (waits.enters, waits.exits)


# --------------------------------------------------------------------------------------------------------- the rules


def test_a_hint_is_a_rule(clock):
    """Delays of a hint have the rule `hint`."""
    error = Busy()
    error.retry_after = 5
    events, _ = hear(_called, DOUBLING, Script(error, 1))

    assert ("hint", timedelta(seconds=5)) == (events[0].rule, events[0].delay)


def test_a_refusing_budget_is_a_rule(clock):
    """Retries that the budget refuses end the call, at once or after their backoff."""
    with isolated():
        budget("none", RatioBudget(0, minimum=0))
        budget("later", TokenBudget(capacity=1, cost=2, hold_back=True))
        at_once, _ = hear(_called, DOUBLING.with_(budget="none"), Script(Busy()))
        later, _ = hear(_called, DOUBLING.with_(budget="later"), Script(Busy()))

    assert [(CallGaveUp, "budget", 1)] * 2 == [(type(each), each.rule, each.attempts) for each in at_once + later]
    assert [timedelta(0), timedelta(seconds=1)] == [each.waited for each in at_once + later]


def test_a_refusing_breaker_is_a_rule(clock):
    """Calls that the breaker refuses gave up after no attempt."""
    with isolated():
        breaker("down", BreakerSettings(volume_threshold=1, error_threshold=1, sleep_window="30s"))
        policy = AT_ONCE.with_(attempts=1, breaker="down")
        hear(_called, policy, Script(Busy()))
        events, error = hear(_called, policy, Script(1))

    assert isinstance(error, CircuitOpen)
    assert [("breaker", 0, None)] == [(event.rule, event.attempts, event.failure) for event in events]


def test_a_permanent_failure_gives_up_at_once(clock):
    """Permanent failures emit CallGaveUp at the first attempt."""
    events, _ = hear(_called, DOUBLING, Script(GiveUp("stolen card")))

    assert [("permanent", "stolen card")] == [(event.rule, event.why) for event in events]


@pytest.mark.parametrize(
    ("over", "expected"),
    [("give_up", CallGaveUp), ("defer", CallDeferred), ("truncate", CallGaveUp)],
)
def test_a_deadline_that_comes_first_ends_the_call(clock, over, expected):
    """Deadlines end the call by `over_deadline`; a wait up to the deadline is no retry."""
    policy = DOUBLING.with_(backoff=Backoff.constant("1m"), deadline="10s", over_deadline=over)
    events, _ = hear(_called, policy, Script(Busy()))

    assert [expected] == [type(event) for event in events]
    assert 1 == events[0].attempts


@pytest.mark.parametrize(
    "form", [_called, _block, lambda *args: _run(_ablock, *args)], ids=["called", "block", "async"]
)
def test_a_rejected_result_is_a_failure(clock, form):
    """Rejected results are retried and given up on like errors, without an error."""
    policy = DOUBLING.with_(on_result=lambda result: result == "busy")
    events, error = hear(form, policy, Script("busy"))
    recovered, _ = hear(form, policy, Script("busy", 7))

    assert error is None
    assert [CallRetryScheduled] * 3 + [CallGaveUp] == [type(event) for event in events]
    assert ("RESULT", None, "attempts") == (events[-1].failure.reason, events[-1].error, events[-1].rule)
    assert [CallRetryScheduled, CallSucceeded] == [type(event) for event in recovered]


def test_a_rejected_result_at_the_deadline_gives_up(clock):
    """Rejected results that wait until the deadline end the call."""
    policy = DOUBLING.with_(on_result=bool, deadline="500ms", over_deadline="truncate")
    events, _ = hear(_called, policy, Script(1))

    assert [("deadline", 1)] == [(event.rule, event.attempts) for event in events]


def test_only_the_layer_that_retries_emits_events(clock):
    """Of a call in a call only the outer one has news."""
    inner = redrive.retry(DOUBLING)(Script(Busy(), Busy(), 7))

    @redrive.retry(DOUBLING)
    def outer():
        return inner()

    events = []
    with observe.only(events.append):
        outer()

    assert [CallRetryScheduled, CallRetryScheduled, CallSucceeded] == [type(event) for event in events]
    assert {True} == {event.name.endswith("outer") for event in events}


def test_disabled_retries_emit_no_events(clock):
    """Under `disabled` a call is a plain call."""
    with redrive.disabled():
        events, error = hear(_called, DOUBLING, Script(Busy()))

    assert isinstance(error, Busy)
    assert [] == events


def test_a_trial_emits_retries_with_zero_delays(clock):
    """In a trial retries are emitted with delays of zero."""
    with trial(2):
        events, _ = hear(_called, DOUBLING, Script(Busy()))

    assert [CallRetryScheduled, CallGaveUp] == [type(event) for event in events]
    assert timedelta(0) == events[0].delay


# ---------------------------------------------------------------------------------------------------------- hedging


def test_a_hedged_call_ends_once(jump):
    """Hedged calls emit the retries of two copies and one end."""
    policy = AT_ONCE.with_(attempts=2, idempotent=True, hedge=Hedge("1s"))
    events = []

    async def main():
        with observe.only(events.append), contextlib.suppress(Busy):
            await policy.acall(Script(Busy()).as_async())

    jump(main)

    assert [CallRetryScheduled] * 2 + [CallGaveUp] == [type(event) for event in events]


def test_a_hedged_call_that_recovers_emits_the_attempts_of_the_winning_copy(jump):
    """Hedged calls count the attempts of the copy that succeeded."""
    events, calls = [], iter(["slow", "fails", "answers"])

    async def call():
        kind = next(calls)
        if kind == "slow":
            await LoopClock().asleep(100)
        if kind == "fails":
            raise Busy
        return kind

    async def main():
        with observe.only(events.append):
            return await DOUBLING.with_(idempotent=True, hedge=Hedge("1s")).acall(call)

    assert "answers" == jump(main)
    assert [CallRetryScheduled, CallSucceeded] == [type(event) for event in events]
    assert (2, timedelta(seconds=1), timedelta(seconds=2)) == (events[1].attempts, events[1].waited, events[1].elapsed)


def test_a_copy_that_succeeds_at_once_emits_no_event(jump):
    """Copies that succeed at their first attempt emit no event."""
    events, calls = [], iter([100, 0])

    async def call():
        await LoopClock().asleep(next(calls))
        return 1

    async def main():
        with observe.only(events.append):
            return await DOUBLING.with_(idempotent=True, hedge=Hedge("1s")).acall(call)

    assert 1 == jump(main)
    assert [] == events
