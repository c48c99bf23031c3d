"""The defects that were measured in peers, and for each of them the tests that redrive does not have it.

A defect is one line, who had it first; below it stand its tests. `test_each_defect_has_its_tests` looks whether they
exist. Versions are those that were measured; a later one may have mended it.

tenacity 9.2.1: a predicate that excludes one type (`retry_if_not_exception_type`) retries the cancellation of a task
    tests/retrying/test_aio.py::test_a_cancellation_during_an_attempt_passes
    tests/retrying/test_aio.py::test_a_cancellation_during_a_wait_passes
tenacity 9.2.1: under the same predicate KeyboardInterrupt is retried, and ends as a RetryError
    tests/retrying/test_errors.py::test_control_flow_passes
    tests/retrying/test_aio.py::test_control_flow_passes
    here::test_an_interrupt_passes
tenacity 9.2.1: four tasks that share one AsyncRetrying also share its three attempts
    tests/retrying/test_isolation.py::test_tasks_share_a_policy
    here::test_tasks_that_share_a_policy_do_not_share_attempts
tenacity 9.2.1: statistics that thread A reads are those of thread B, which has started later
    tests/retrying/test_isolation.py::test_threads_do_not_see_one_another
    here::test_the_record_is_that_of_the_own_call
tenacity 9.2.1: a decorated generator function is not retried; its error escapes from the first `next()`
    tests/retrying/test_generators.py::test_a_generator_that_has_yielded_nothing_is_retried
tenacity 9.2.1: at its cap `wait_exponential_jitter` draws one value only
    here::test_delays_spread_at_the_cap
tenacity 9.2.1: the parameters of a decorated method become `...` for type checkers
    here::test_type_checkers_check_the_parameters_of_a_method
    tests/retrying/test_decorator.py::test_methods_are_bound
stamina 26.1: a hook that is a context manager is exited 3, 2, 1 times in one call, and more in the next
    here::test_managers_around_a_wait_exit_once
    tests/observe/test_sinks.py::test_an_interrupted_wait_exits_each_manager_once
stamina 26.1: with `timeout=1` a hook that says 60 makes it sleep 60 s, and one that says NaN makes it sleep NaN
    here::test_no_wait_passes_the_deadline
    here::test_an_invalid_number_of_seconds_is_never_slept
    tests/policy/test_backoff_kinds.py::test_the_result_of_a_function_is_checked_at_once
    tests/policy/test_backoff_kinds.py::test_a_later_result_of_a_function_is_checked
stamina 26.1: at its cap it draws one value only
    here::test_delays_spread_at_the_cap
stamina 26.1: `on=BaseException` retries KeyboardInterrupt
    tests/retrying/test_errors.py::test_control_flow_passes
    tests/retrying/test_blocks.py::test_control_flow_passes
    here::test_an_interrupt_passes
backoff 2.2.1: `max_time=0.2` lets calls of 0.15 s go on to 0.47 s, because it reads the time before the call
    here::test_the_time_is_read_after_the_attempt
    tests/retrying/test_run.py::test_a_first_attempt_longer_than_the_deadline_is_the_only_one
backoff 2.2.1: told to come back after 10 s it comes after 6.4, 4.0, 1.8 s, since jitter is drawn from the hint
    here::test_no_jitter_makes_a_hint_shorter
    tests/policy/test_decider.py::test_a_retry_is_never_earlier_than_a_hint
backoff 2.2.1, redress 1.4.2, hyx 0.0.2, opnieuw 4.0, httpx-retries 0.6: nothing works under trio
    here::test_every_form_works_under_both_libraries
    tests/retrying/test_aio.py::test_waits_let_other_tasks_run
hyx 0.0.2: calls at the same time draw on one iterator of delays
    tests/retrying/test_isolation.py::test_each_call_has_its_own_delays
    here::test_calls_at_the_same_time_have_their_own_delays
opnieuw 4.0: the cause of a user's `raise X from Y` is replaced by the error of the attempt before
    tests/retrying/test_errors.py::test_raise_from_keeps_its_cause
    here::test_an_awaited_error_keeps_its_cause
httpx-retries 0.6: told to come back after an hour it comes after two minutes, its longest wait
    here::test_a_hint_that_is_too_long_is_never_cut_short
    tests/contrib/httpx/test_times.py::test_no_limit_shortens_a_hint
httpx-retries 0.6: `total_timeout` counts sleeps and not calls
    tests/retrying/test_run.py::test_the_time_of_attempts_counts_for_the_deadline
    here::test_the_time_is_read_after_the_attempt
urllib3 2.8: a hint over `retry_after_max` is cut, so that it comes early
    here::test_a_hint_that_is_too_long_is_never_cut_short
    tests/contrib/httpx/test_times.py::test_no_limit_shortens_a_hint
retryhttp 1.5: of a date more than a day away only the part of a day counts, and one form of three is read
    here::test_a_date_days_away_is_days_away
google-api-core 2.44: with less than a second left the next attempt gets the whole timeout again
    here::test_the_time_that_an_attempt_has_left_never_grows
    tests/retrying/test_context.py::test_a_deadline_that_has_passed_leaves_nothing
redress 1.4.2: 68 % of decorrelated draws are exactly the cap
    here::test_delays_spread_at_the_cap
    tests/policy/test_backoff_kinds.py::test_decorrelated_draws_do_not_pile_up_at_the_maximum
httpx-retries 0.6: 97 % of the delays before attempt 12 are exactly the cap
    here::test_delays_spread_at_the_cap
smithy-python (read, not run): the previous delay of a decorrelated backoff belongs to the strategy, so that calls mix
    tests/retrying/test_isolation.py::test_decorrelated_delays_are_independent
    here::test_the_state_of_a_schedule_belongs_to_the_call
tenacity 9.2.1, stamina 26.1, redress 1.4.2: a group of errors that are all to be retried is not retried
    here::test_a_group_of_what_is_retried_is_retried
    tests/policy/test_classify.py::test_a_group_is_classified_by_its_leaves
"""

from __future__ import annotations

import ast
import asyncio
import re
import threading
from collections.abc import AsyncIterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from math import nan
from pathlib import Path

import pytest
import trio

import redrive
from redrive import observe
from redrive.clock import in_trio
from redrive.errors import RetryAfter
from redrive.policy import Backoff, Failure, GiveUp, History, Jitter, Policy, Retry
from redrive.policy.hints import retry_after
from redrive.policy.outcome import GaveUp
from redrive.retrying.context import using
from tests.retrying.helpers import START, Busy, JumpingClock, Script, checkpoint

SECOND = timedelta(seconds=1)
AT_ONCE = Policy(on=Busy, attempts=3, backoff=Backoff.constant(0))
DOUBLING = Policy(on=Busy, attempts=4, deadline=None, backoff=Backoff.exponential(1), jitter="none")
FAILURE = Failure.of(Busy())
ROOT = Path(__file__).parents[2]


async def together(*functions):
    """Return the results of coroutine functions that run at the same time, under the running library."""
    found = {}

    async def one(place, function):
        found[place] = await function()

    if in_trio():
        async with trio.open_nursery() as nursery:
            for place, function in enumerate(functions):
                nursery.start_soon(one, place, function)
    else:
        await asyncio.gather(*(one(place, function) for place, function in enumerate(functions)))
    return [found[place] for place in range(len(functions))]


# ------------------------------------------------------------------------------------------------------- the list above


def _tests_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def _listed() -> dict[str, list[tuple[str, str]]]:
    """Return the defects of the docstring, each with the places and names of its tests."""
    defects: dict[str, list[tuple[str, str]]] = {}
    for line in (__doc__ or "").split("\n\n")[2].splitlines():
        if found := re.fullmatch(r"    (\S+)::(\w+)", line):
            place = Path(__file__).relative_to(ROOT).as_posix() if found[1] == "here" else found[1]
            defects[next(reversed(defects))].append((place, found[2]))
        else:
            defects[line] = []
    return defects


@pytest.mark.parametrize(("defect", "tests"), _listed().items(), ids=list(_listed()))
def test_each_defect_has_its_tests(defect, tests):
    """Each defect that was measured names tests, and they exist."""
    assert tests, defect
    assert [] == [f"{place}::{name}" for place, name in tests if name not in _tests_of(ROOT / place)]


def test_each_test_here_is_about_a_defect():
    """No test of this module has been forgotten in the list."""
    named = {name for tests in _listed().values() for _, name in tests}
    own = {name for name in _tests_of(Path(__file__)) if name.startswith("test_")}

    assert {"test_each_defect_has_its_tests", "test_each_test_here_is_about_a_defect"} == own - named


# ------------------------------------------------------------------------------------------------------------ isolation


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("on", [BaseException, lambda error: not isinstance(error, ValueError)], ids=["all", "not one"])
def test_an_interrupt_passes(run, kind, on):
    """Control-flow exceptions pass every awaited form after one attempt, under both libraries."""
    policy = AT_ONCE.with_(on=on)
    scripts = [Script(kind()) for _ in range(4)]

    async def main(form, script):
        with pytest.raises(kind):
            await form(script.as_async())

    for form, script in zip(_forms(policy), scripts, strict=True):
        run(main, form, script)
        assert 1 == script.calls


def _forms(policy):
    """Return the forms of an awaited call, each as a function of the called one."""

    async def block(function):
        async for attempt in policy:
            with attempt:
                return await function()
        return None

    async def outcome(function):
        return (await policy.aoutcome(function)).unwrap()

    return policy.acall, outcome, block, lambda function: redrive.retry(policy)(function)()


def test_tasks_that_share_a_policy_do_not_share_attempts(run):
    """Four tasks under one policy of three attempts that each fail twice all succeed, in every form."""
    for form in _forms(AT_ONCE):
        scripts = [Script(Busy(), Busy(), number) for number in range(4)]

        async def main(form=form, scripts=scripts):
            return await together(*(lambda script=script: form(script.as_async()) for script in scripts))

        assert [0, 1, 2, 3] == run(main)
        assert [3] * 4 == [script.calls for script in scripts]


def test_the_record_is_that_of_the_own_call():
    """Records contain the attempts of their own call, although another thread fails in the same function."""
    failed_once, other_ended = threading.Event(), threading.Event()
    attempts = {}

    @redrive.retry(AT_ONCE)
    def call(name):
        if name == "first":
            failed_once.set()
            other_ended.wait(5)
        raise Busy(name)

    def record(name):
        try:
            call(name)
        except Busy as error:
            attempts[name] = [each.failure.message for each in error.__retry__.timeline]

    first = threading.Thread(target=record, args=["first"])
    first.start()
    failed_once.wait(5)
    record("other")
    other_ended.set()
    first.join()

    assert {"first": ["first"] * 3, "other": ["other"] * 3} == attempts


def test_calls_at_the_same_time_have_their_own_delays(run):
    """Three calls at a time in one decorated function each wait 1, 2 and 4 s, under both libraries."""

    @redrive.retry(DOUBLING)
    async def call():
        await checkpoint()
        raise Busy

    async def one():
        clock = JumpingClock()
        with using(clock=clock), pytest.raises(Busy):
            await call()
        return clock.slept

    async def main():
        return await together(one, one, one)

    assert [[1.0, 2.0, 4.0]] * 3 == run(main)


@pytest.mark.parametrize("backoff", [Backoff.decorrelated(1, 1000), Backoff.smooth(1)], ids=["decorrelated", "smooth"])
def test_the_state_of_a_schedule_belongs_to_the_call(run, backoff):
    """Calls that interleave under one backoff that draws wait as each would alone, under both libraries."""
    policy = DOUBLING.with_(backoff=backoff, jitter=None, attempts=5)

    def one(sample):
        async def call():
            clock = JumpingClock()
            with using(clock=clock, sample=sample):
                await policy.aoutcome(Script(Busy()).as_async())
            return clock.slept

        return call

    async def main(*samples):
        return await together(*(one(sample) for sample in samples))

    assert [run(main, sample)[0] for sample in (0.1, 0.9)] == run(main, 0.1, 0.9)


# ---------------------------------------------------------------------------------------------------------------- waits

SPREAD = [
    (Backoff.exponential(0.1, 5), "full"),
    (Backoff.exponential(0.1, 5), "equal"),
    (Backoff.exponential(0.1, 5), Jitter.plus(0.5)),
    (Backoff.exponential(0.1, 5), Jitter.added(1)),
    (Backoff.exponential(0.1).cap(5), "full"),
    (Backoff.decorrelated(0.1, 5), None),
    (Backoff.smooth(0.1, 5), None),
]


@pytest.mark.parametrize(("backoff", "jitter"), SPREAD, ids=str)
def test_delays_spread_at_the_cap(backoff, jitter):
    """Before attempt 12 and far behind it a thousand draws are nearly as many delays, and none of them is the rule."""
    policy = Policy(attempts=100, deadline=None, backoff=backoff, jitter=jitter)

    for attempts in (11, 50):
        history = History(attempts, START, 5 * SECOND, (500_000_001,))
        drawn = [policy.decide(history, FAILURE, START, place / 1000).delay for place in range(1000)]
        assert 990 < len(set(drawn))


ASKING = {
    "a function": (Policy(on=Busy, deadline=1, backoff=Backoff.constant(60), jitter="none"), Busy),
    "the handler": (Policy(on=Busy, deadline=1, backoff=Backoff.constant(0)), lambda: RetryAfter(60)),
    "a server": (Policy(on=Busy, deadline=1, backoff=Backoff.constant(0)), lambda: _hinted(60)),
    "a classifier": (
        Policy(on=lambda error: Failure.of(error)._replace(hint=60 * SECOND), deadline=1, backoff=Backoff.constant(0)),
        Busy,
    ),
}


def _hinted(value):
    error = Busy()
    error.retry_after = value
    return error


@pytest.mark.parametrize("asker", ASKING)
def test_no_wait_passes_the_deadline(run, clock, asker):
    """No wait passes the deadline, whatever its origin: one attempt, no sleep."""
    policy, error = ASKING[asker]
    script = Script(error())

    assert "deadline" == policy.outcome(script).rule
    assert "deadline" == run(policy.aoutcome, script.as_async()).rule
    assert ([], 2) == (clock.slept, script.calls)


def test_an_invalid_number_of_seconds_is_never_slept(clock):
    """Hints that are no number are ignored, and backoff functions without a number raise an error."""
    Backoff.register("peers: later nan", lambda retry: 1.0 if retry < 2 else nan)
    broken = DOUBLING.with_(backoff=Backoff.named("peers: later nan"))

    assert isinstance(DOUBLING.with_(attempts=2).outcome(Script(_hinted(nan))), GaveUp)
    with pytest.raises(redrive.errors.PolicyValueError, match="gave nan"):
        broken.call(Script(Busy()))
    assert [1.0, 1.0] == clock.slept


@contextmanager
def _around(left, event):
    yield
    left.append((event.name, event.attempt))


@pytest.mark.parametrize("form", ["def", "asyncio", "trio"])
def test_managers_around_a_wait_exit_once(clock, form):
    """Sinks enter and exit once for each of three waits, also in a second call."""
    left = []
    script = Script(Busy())

    def sink(event):
        return _around(left, event) if isinstance(event, observe.CallRetryScheduled) else None

    def call():
        if form == "def":
            return DOUBLING.outcome(script)
        run = trio.run if form == "trio" else lambda main, *args: asyncio.run(main(*args))
        return run(DOUBLING.aoutcome, script.as_async())

    with observe.only(sink):
        call()
        assert [1, 2, 3] == [attempt for _, attempt in left]
        call()
    assert [1, 2, 3, 1, 2, 3] == [attempt for _, attempt in left]


# ----------------------------------------------------------------------------------------------------------------- time


def test_the_time_is_read_after_the_attempt(run, clock):
    """Of attempts of 0.15 s under a deadline of 0.2 s a second one is begun and no third, which a peer began."""
    policy = Policy(on=Busy, attempts=9, deadline=0.2, backoff=Backoff.constant(0))
    script = Script(Busy(), clock=clock, takes=0.15)

    assert "deadline" == policy.outcome(script).rule
    assert (2, pytest.approx(0.3)) == (script.calls, clock.monotonic())

    again = Script(Busy(), clock=clock, takes=0.15)
    assert "deadline" == run(policy.aoutcome, again.as_async()).rule
    assert 2 == again.calls


def test_the_time_that_an_attempt_has_left_never_grows(run, clock):
    """Under a deadline of 10 s an attempt at 0, 5, 9.5 and 14.5 s has 10, 5, 0.5 and 0 s left."""
    seen = []

    def look():
        left = redrive.deadline().remaining
        seen.append(left)
        return left

    def call():
        for seconds in (5, 4.5, 5, 0):
            look()
            clock.advance(seconds)

    async def acall():
        await checkpoint()
        call()

    policy = Policy(on=Busy, attempts=9, deadline=10)
    policy.call(call)
    assert pytest.approx([10, 5, 0.5, 0]) == seen
    seen.clear()
    run(policy.acall, acall)
    assert pytest.approx([10, 5, 0.5, 0]) == seen


# ---------------------------------------------------------------------------------------------------------------- hints

HTTP = Policy(on=Busy, attempts=9, deadline=None, backoff=Backoff.exponential(1, 60))


@pytest.mark.parametrize("sample", [0.0, 0.25, 0.999])
@pytest.mark.parametrize("jitter", ["none", "full", "equal", Jitter.plus(0.5), Jitter.added(3)], ids=str)
def test_no_jitter_makes_a_hint_shorter(jitter, sample):
    """Jitter never makes a wait shorter than a hint."""
    parsed = retry_after("10", now=START)
    failure = FAILURE._replace(hint=parsed.delay)

    for attempts in range(1, 9):
        decision = HTTP.with_(jitter=jitter).decide(History(attempts, START), failure, START, sample)
        assert isinstance(decision, Retry)
        assert 10 * SECOND <= decision.delay


@pytest.mark.parametrize(
    ("limits", "rule"),
    [({"max_hint": 120}, "hint"), ({"deadline": 120}, "deadline"), ({"max_hint": 120, "deadline": 7200}, "hint")],
    ids=str,
)
def test_a_hint_that_is_too_long_is_never_cut_short(limits, rule):
    """Hints above `max_hint` end the call; the wait is not cut."""
    failure = FAILURE._replace(hint=retry_after("3600", now=START).delay)
    decision = HTTP.with_(**limits).decide(History(1, START), failure, START, 0.5)
    patient = HTTP.cap(120).decide(History(1, START), failure, START, 0.5)

    assert isinstance(decision, GiveUp)
    assert rule == decision.rule
    assert 3600 * SECOND <= patient.delay


@pytest.mark.parametrize(
    "text",
    ["Sun, 04 Jan 2026 01:00:00 GMT", "Sunday, 04-Jan-26 01:00:00 GMT", "Sun Jan  4 01:00:00 2026"],
    ids=["IMF-fixdate", "RFC 850", "asctime"],
)
def test_a_date_days_away_is_days_away(text):
    """Dates three days and an hour ahead, in each form of HTTP, are waited for that long."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    parsed = retry_after(text, now=now).delay
    decision = HTTP.decide(History(1, now), FAILURE._replace(hint=parsed), now, 0.5)

    assert timedelta(days=3, hours=1) == parsed == decision.delay


# --------------------------------------------------------------------------------------------------------------- errors


def test_an_awaited_error_keeps_its_cause(run):
    """`raise X from Y` in a coroutine function surfaces with Y as its cause, under both libraries and in every form."""
    cause = KeyError("y")

    async def call():
        await checkpoint()
        raise Busy from cause

    async def main(form):
        with pytest.raises(Busy) as caught:
            await form(call)
        return caught.value.__cause__

    assert [cause] * 4 == [run(main, form) for form in _forms(AT_ONCE)]


def test_a_group_of_what_is_retried_is_retried(run):
    """Groups with only named leaves are retried and finally raised as groups."""
    policy = AT_ONCE.with_(on=ValueError)
    last = ExceptionGroup("three", [ValueError("c")])
    script = Script(
        ExceptionGroup("one", [ValueError("a")]), ExceptionGroup("two", [ExceptionGroup("", [ValueError("b")])]), last
    )
    mixed = Script(ExceptionGroup("", [ValueError(), TypeError()]))

    outcome = policy.outcome(script)
    assert (last, 3) == (outcome.error, script.calls)
    assert "not_matched" == policy.outcome(mixed).rule

    attempts = []

    async def fails_in_a_nursery():
        attempts.append(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_fails)

    async def fails_in_a_task_group():
        attempts.append(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(_fails())

    async def main():
        return await policy.aoutcome(fails_in_a_nursery if in_trio() else fails_in_a_task_group)

    assert isinstance(run(main).error, ExceptionGroup)
    assert 3 == len(attempts)


async def _fails():
    await checkpoint()
    raise ValueError


# --------------------------------------------------------------------------------------------------------------- types


def test_type_checkers_check_the_parameters_of_a_method():
    """Wrong calls of a decorated method are errors for mypy and pyright, as the typical uses check.

    The comment that suppresses the error is itself an error if it is unused, so that `make check` would fail."""
    uses = (ROOT / "tests" / "typing" / "retry_api.py").read_text(encoding="utf-8").splitlines()

    assert "Client().get(1)  # type: ignore[arg-type]" in uses
    assert 'assert_type(Client().get("1"), float)' in uses


# ---------------------------------------------------------------------------------------------------------------- trio


def test_every_form_works_under_both_libraries(run, clock):
    """Decorated functions and methods, verbs, blocks and generators fail twice, wait twice and succeed."""
    two_waits = DOUBLING.with_(attempts=3)

    def script():
        return Script(Busy(), Busy(), "done").as_async()

    class Service:
        fetch = script()

        @redrive.retry(two_waits)
        async def method(self):
            return await Service.fetch()

    failures = [Busy(), Busy()]

    @redrive.retry(two_waits)
    async def items() -> AsyncIterator[str]:
        await checkpoint()
        if failures:
            raise failures.pop()
        yield "done"

    async def first():
        return [item async for item in items()]

    calls = [*(lambda form=form: form(script()) for form in _forms(two_waits)), Service().method]

    assert ["done"] * 5 == [run(call) for call in calls]
    assert ["done"] == run(first)
    assert [1.0, 2.0] * 6 == clock.slept
