"""Scopes and enclosing calls: overrides, switching off, tests, deadlines, and nested calls."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from contextlib import suppress
from datetime import timedelta

import pytest

import redrive
from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Policy, Rule
from redrive.retrying.context import SCOPE, trial
from tests.retrying.helpers import START, Busy, JumpingClock, Script, checkpoint

SECONDS = Policy(on=Busy, attempts=3, deadline=None, backoff=Backoff.constant(1), jitter="none")
AT_ONCE = Policy(on=Busy, attempts=3, backoff=Backoff.constant(0))
FORMS = {
    "direct": redrive.retry,
    "prepared": lambda policy: redrive.retry(policy.with_(deadline="1h")),
    "call": lambda policy: lambda function: lambda *args: policy.call(function, *args),
}


def in_block(policy, function):
    """Run a function as a block."""
    for attempt in policy:
        with attempt:
            function()


# ------------------------------------------------------------------------------------------------------------ overrides


def test_an_override_changes_the_calls_inside(clock):
    """Inside `override` calls under that policy have the changed fields, and outside the old ones."""
    script = Script(Busy())
    retried = redrive.retry(SECONDS)(script)
    with SECONDS.override(attempts=1), pytest.raises(Busy):
        retried()
    assert 1 == script.calls
    with pytest.raises(Busy):
        retried()
    assert 4 == script.calls


def test_an_override_reaches_every_form(clock):
    """Calls, outcomes and blocks are overridden like decorated functions."""
    script = Script(Busy())
    with SECONDS.override(attempts=2):
        SECONDS.outcome(script)
        with pytest.raises(Busy):
            in_block(SECONDS, script)

    assert 4 == script.calls


def test_an_override_is_for_its_policy_only(clock):
    """Another policy is not touched; an equal one is the same policy."""
    other, equal = Script(Busy()), Script(Busy())
    with SECONDS.override(attempts=1):
        SECONDS.with_(attempts=4).outcome(other)
        SECONDS.with_(attempts=3).outcome(equal)

    assert (4, 1) == (other.calls, equal.calls)


def test_overrides_add_up(clock):
    """Inner overrides keep the changes of outer ones, and replace the same fields."""
    script = Script(Busy())
    with SECONDS.override(attempts=2, backoff=Backoff.constant(5)), SECONDS.override(attempts=4):
        SECONDS.outcome(script)

    assert [5.0, 5.0, 5.0] == clock.slept


@pytest.mark.parametrize(("changes", "error"), [({"attempts": 0}, PolicyValueError), ({"tries": 1}, TypeError)])
def test_an_invalid_override_is_refused_at_the_with(changes, error):
    """Invalid overrides are refused at the `with`, not in an inner call."""
    with pytest.raises(error):
        SECONDS.override(**changes)


def test_an_override_of_the_deadline_is_in_force_from_the_start(clock):
    """Calls with an overridden deadline see it in their first attempt."""
    with SECONDS.override(deadline=5):
        assert 5.0 == redrive.retry(SECONDS)(redrive.deadline)().remaining


# ------------------------------------------------------------------------------------------------------- switching off


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("step", [42, Busy()], ids=["success", "failure"])
def test_disabled_calls_are_plain_calls(form, step):
    """Functions are called once where retries are disabled, without note and record."""
    script = Script(step)
    call = form(AT_ONCE)(script)
    with redrive.disabled():
        if step == 42:
            assert 42 == call()
        else:
            with pytest.raises(Busy) as caught:
                call()
            assert not hasattr(caught.value, "__notes__")
            assert not hasattr(caught.value, "__retry__")

    assert 1 == script.calls


def test_disabled_turns_all_of_a_policy_off(clock):
    """Results are not checked, and there is no deadline, where retries are disabled."""
    judged = AT_ONCE.with_(on_result=lambda _: True, deadline=5)
    with redrive.disabled():
        assert redrive.retry(judged)(redrive.deadline)() is None
        assert "ok" == judged.outcome(Script(42)).record.rule
        outcome = judged.outcome(Script(Busy()))

    assert ("disabled", 1) == (outcome.rule, outcome.record.attempts)


def test_disabled_blocks_run_once():
    """Blocks run once where retries are disabled."""
    for step in (42, Busy()):
        script = Script(step)
        with redrive.disabled(), suppress(Busy):
            in_block(AT_ONCE, script)
        assert 1 == script.calls


def test_scopes_are_of_one_task(run):
    """Scopes are in force in their task and in those started there, and in no other."""
    script = Script(Busy())
    retried = redrive.retry(AT_ONCE)(script.as_async())

    async def main():
        with redrive.disabled():
            inside = contextvars.copy_context()
        with pytest.raises(Busy):
            await retried()
        return inside

    inside = run(main)

    assert 3 == script.calls
    assert inside[SCOPE].off


def test_scopes_are_of_one_thread():
    """Scopes of one thread are not in force in another."""
    script = Script(Busy())

    def other():
        with pytest.raises(Busy):
            redrive.retry(AT_ONCE)(script)()

    with redrive.disabled():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    assert 3 == script.calls


# ------------------------------------------------------------------------------------------------------------ for tests


def test_trials_make_one_attempt_and_wait_for_nothing(clock):
    """In a scope for tests each policy makes the number of attempts that is asked for, without a wait."""
    script = Script(Busy())
    retried = redrive.retry(SECONDS.with_(rules=[Rule(on=Busy, attempts=9)]))(script)
    for attempts in (1, 5):
        script.calls = 0
        with trial(attempts), pytest.raises(Busy) as caught:
            retried()
        assert attempts == script.calls
        assert (timedelta(0),) * (attempts - 1) == caught.value.__retry__.delays

    assert [] == clock.slept


@pytest.mark.parametrize(("own", "expected"), [(2, 2), (9, 5), (None, 5)])
def test_a_capped_trial_only_lowers(clock, own, expected):
    """With `cap` a policy with fewer attempts keeps its own number."""
    script = Script(Busy())
    policy = SECONDS.with_(attempts=own, deadline="1h")
    with trial(5, cap=True):
        policy.outcome(script)

    assert expected == script.calls


def test_a_trial_does_not_wait_for_the_deadline_either(clock):
    """In a scope for tests `over_deadline="truncate"` ends at once."""
    script = Script(Busy(), clock=clock, takes=2)
    with trial(3):
        outcome = SECONDS.with_(deadline=2.5, over_deadline="truncate").outcome(script)

    assert ("deadline", 1, []) == (outcome.rule, script.calls, clock.slept)


def test_a_trial_needs_an_attempt():
    """Trials with less than one attempt are refused."""
    with pytest.raises(PolicyValueError):
        trial(0)


def test_trials_nest(clock):
    """Inner trials replace outer ones, which are restored afterwards."""
    script = Script(Busy())
    with trial(4):
        with trial(2):
            SECONDS.outcome(script)
        assert 2 == script.calls
        SECONDS.outcome(script)

    assert 6 == script.calls


# ------------------------------------------------------------------------------------------------------------ deadlines


def test_outside_of_a_call_there_is_no_deadline():
    """`deadline()` is None where nothing is retried."""
    assert redrive.deadline() is None


def test_a_call_without_a_bound_has_no_deadline():
    """`deadline()` is None below a directive, which has no deadline."""
    assert redrive.retry("5 1s", on=Busy)(redrive.deadline)() is None


def test_the_default_deadline_can_be_read_in_the_first_attempt():
    """Below a policy without a deadline of its own the first attempt reads the 45 s, at no cost of the call."""

    def helper():
        return redrive.deadline()

    found = redrive.retry(AT_ONCE)(helper)()

    assert 44 < found.remaining <= 45


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_deadline_is_read_below(form, clock):
    """Code far below a call reads what is left of its time, and the instant when it ends."""
    policy = Policy(on=Busy, attempts=3, deadline="1h", backoff=Backoff.constant(60), jitter="none")
    seen = []

    def inner():
        clock.advance(30)
        found = redrive.deadline()
        seen.append((found.remaining, found.at))
        if len(seen) < 3:
            raise Busy

    form(policy)(inner)()

    hour = START + timedelta(hours=1)
    assert [(3570.0, hour), (3480.0, hour), (3390.0, hour)] == seen


def test_a_deadline_that_has_passed_leaves_nothing(clock):
    """Deadlines in the past have zero seconds left."""

    def late():
        clock.advance(100)
        return redrive.deadline().remaining

    assert 0.0 == SECONDS.with_(deadline=5).call(late)


def test_the_earlier_deadline_wins(clock):
    """Of nested calls the outer deadline is read where it comes first, the inner one where that does."""
    for outer, inner in ((5, 60), (60, 5)):
        found = SECONDS.with_(deadline=outer).call(lambda i=inner: SECONDS.with_(deadline=i).call(redrive.deadline))
        assert 5.0 == found.remaining


def test_a_timeout_of_an_attempt_is_a_deadline(clock):
    """In sync code `attempt_timeout` is handed down: each attempt reads its own end."""
    seen = []

    def call():
        seen.append(redrive.deadline().remaining)
        clock.advance(2)
        raise Busy

    SECONDS.with_(attempt_timeout=5).outcome(call)
    SECONDS.with_(attempt_timeout=5, deadline=6).outcome(call)

    assert [5.0, 5.0, 5.0, 5.0, 3.0] == seen


def test_a_deadline_shows_itself(clock):
    """Deadlines show their instant and the remaining time in their repr."""
    assert "Deadline(at=2026-01-01T00:00:05+00:00, remaining=5.000)" == repr(
        SECONDS.with_(deadline=5).call(redrive.deadline)
    )


def test_a_deadline_is_read_in_tasks_and_threads(run):
    """Below a call with a deadline of its own, tasks and worker threads read it from the first attempt on."""

    async def look():
        return redrive.deadline()

    async def main():
        return [each.remaining for each in await in_a_task_and_a_thread(look)]

    found = run(redrive.retry(AT_ONCE.with_(deadline=60))(main))

    assert all(59 < each <= 60 for each in found)


async def in_a_task_and_a_thread(look):
    """Return the result of a coroutine function in another task, and in a worker thread."""
    import trio

    from redrive.clock import in_trio

    if in_trio():
        found = []

        async def into():
            found.append(await look())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(into)
        return [*found, await trio.to_thread.run_sync(lambda: asyncio.run(look()))]
    return [await asyncio.create_task(look()), await asyncio.to_thread(lambda: asyncio.run(look()))]


# -------------------------------------------------------------------------------------------------------------- nesting


@pytest.mark.parametrize("inner", FORMS.values(), ids=[f"inner {name}" for name in FORMS])
@pytest.mark.parametrize("outer", FORMS.values(), ids=[f"outer {name}" for name in FORMS])
def test_the_outer_call_retries(outer, inner):
    """Two layers of three attempts call the innermost function three times, not nine."""
    script = Script(Busy())
    with pytest.raises(Busy) as caught:
        outer(AT_ONCE)(inner(AT_ONCE.with_(attempts=4))(script))()

    assert 3 == script.calls
    record = caught.value.__retry__
    assert (3, "nested", 1) == (record.attempts, record.inner.rule, record.inner.attempts)
    assert [record.note] == caught.value.__notes__
    assert "left the retrying to it" in record.note


def test_the_inner_error_notes_the_outer_retry():
    """Errors of the inner call have a note that an enclosing call retries, with its name."""
    seen = []

    @redrive.retry(AT_ONCE)
    def inner():
        raise Busy

    @redrive.retry(AT_ONCE)
    def outer():
        try:
            inner()
        except Busy as error:
            seen.append(error)

    outer()

    assert 1 == len(seen)
    assert "nested" == seen[0].__retry__.rule
    assert (
        f"left the retrying to {__name__}.test_the_inner_error_notes_the_outer_retry.<locals>.outer above"
        in seen[0].__notes__[0]
    )


@pytest.mark.parametrize("layers", [3, 5])
def test_many_layers_make_as_many_calls_as_one(layers):
    """However many layers retry, the innermost function is called as often as one layer would."""
    script = Script(Busy())
    call = script
    for _ in range(layers):
        call = redrive.retry(AT_ONCE)(call)
    with pytest.raises(Busy):
        call()

    assert 3 == script.calls


def test_both_layers_retry_with_nested_both():
    """`nested="both"` multiplies the attempts."""
    script = Script(Busy())
    inner = redrive.retry(AT_ONCE.with_(nested="both"))(script)
    with pytest.raises(Busy):
        redrive.retry(AT_ONCE)(inner)()

    assert 9 == script.calls


@pytest.mark.parametrize("outer", FORMS.values(), ids=FORMS)
def test_a_layer_that_does_not_retry_is_no_layer(outer):
    """Below a policy of one attempt, and after one has ended, an inner policy retries."""
    script = Script(Busy())
    inner = redrive.retry(AT_ONCE)(script)
    with pytest.raises(Busy):
        outer(AT_ONCE.with_(attempts=1))(inner)()
    assert 3 == script.calls
    with pytest.raises(Busy):
        inner()
    assert 6 == script.calls


RULED = AT_ONCE.with_(rules=[Rule(Busy, attempts=9)])


@pytest.mark.parametrize(
    "above", [AT_ONCE.with_(attempts=1, rules=[Rule(Busy, backoff=Backoff.constant(1))]), RULED.take(0)], ids=["1", "0"]
)
def test_rules_without_a_retry_make_no_layer(above):
    """Policies without any retry leave the retrying to an inner call."""
    script = Script(Busy())
    with pytest.raises(Busy):
        redrive.retry(above)(redrive.retry(AT_ONCE)(script))()

    assert 3 == script.calls


def test_take_bounds_what_is_called(clock):
    """With two retries taken a function is called three times, however many attempts a rule has, in every form."""
    script = Script(Busy())
    for form in FORMS.values():
        with suppress(Busy):
            form(RULED.take(2))(script)()

    assert 3 * len(FORMS) == script.calls


def test_a_recursive_call_is_nested():
    """Retried functions that call themselves retry at the outermost call only."""
    calls = []

    @redrive.retry(AT_ONCE)
    def call(depth):
        calls.append(depth)
        if depth:
            call(depth - 1)
        raise Busy

    with pytest.raises(Busy):
        call(2)

    assert [2, 1, 0] * 3 == calls


def test_blocks_are_layers(run):
    """Blocks are layers like calls, sync and async, outside and inside."""
    script = Script(Busy())

    async def main():
        async for attempt in AT_ONCE:
            with attempt:
                await redrive.retry(AT_ONCE)(script.as_async())()

    with pytest.raises(Busy):
        run(main)
    assert 3 == script.calls

    with pytest.raises(Busy):
        redrive.retry(AT_ONCE)(in_block)(AT_ONCE, script)
    assert 6 == script.calls


def test_an_awaited_call_is_below(run):
    """Awaited coroutines are below the call from the first attempt on."""
    script = Script(Busy())
    inner = redrive.retry(AT_ONCE)(script.as_async())

    @redrive.retry(AT_ONCE)
    async def outer():
        await checkpoint()
        await inner()

    with pytest.raises(Busy):
        run(outer)

    assert 3 == script.calls


def in_a_task(function):
    """Return a coroutine function that runs another one in a task."""

    async def call():
        await asyncio.create_task(function())

    return call


@pytest.mark.parametrize("deadline", [None, "1h"])
def test_in_tasks_attempts_count_as_those_of_one_layer(deadline):
    """In a task an inner policy of 4 attempts makes all, and the outer one of 3 none more, whatever its deadline."""
    script = Script(Busy())
    outer = AT_ONCE if deadline is None else AT_ONCE.with_(deadline=deadline)
    inner = redrive.retry(AT_ONCE.with_(attempts=4))(script.as_async())
    with pytest.raises(Busy):
        asyncio.run(redrive.retry(outer)(in_a_task(inner))())

    assert 4 == script.calls


def test_a_task_that_outlives_its_call_is_not_below_it():
    """Tasks that outlive their call retry by themselves."""
    script = Script(Busy())
    inner = redrive.retry(AT_ONCE)(script.as_async())

    async def main():
        go = asyncio.Event()

        async def later():
            await go.wait()
            assert redrive.deadline() is None
            await inner()

        @redrive.retry(AT_ONCE.with_(deadline="1h"))
        async def outer():
            return asyncio.create_task(later())

        task = await outer()
        go.set()
        with pytest.raises(Busy):
            await task

    asyncio.run(main())

    assert 3 == script.calls


def test_calls_side_by_side_are_not_nested(run):
    """Two calls that overlap in time in one thread are not above one another."""
    scripts = [Script(Busy()), Script(Busy())]

    async def main():
        import trio

        from redrive.clock import in_trio

        async def one(script):
            with pytest.raises(Busy):
                await redrive.retry(AT_ONCE)(script.as_async())()

        if in_trio():
            async with trio.open_nursery() as nursery:
                for script in scripts:
                    nursery.start_soon(one, script)
        else:
            await asyncio.gather(*(one(script) for script in scripts))

    run(main)

    assert [3, 3] == [script.calls for script in scripts]


def test_the_scope_is_clean_after_a_call(clock):
    """Calls leave nothing in the scope, however they end."""
    before = SCOPE.get()
    SECONDS.call(Script(1))
    assert before is SCOPE.get()
    for kind in (Busy, KeyError, KeyboardInterrupt):
        with pytest.raises(kind):
            SECONDS.call(Script(kind()))
        assert before is SCOPE.get()


def test_a_coroutine_may_be_closed_in_another_context(recwarn):
    """Retried coroutines may be closed in another context than they ran in."""
    started = JumpingClock()

    async def hang():
        started.advance(1)
        await asyncio.Future()

    call = redrive.retry(AT_ONCE.with_(deadline="1h"))(hang)()

    async def main():
        await checkpoint()
        contextvars.copy_context().run(call.send, None)

    asyncio.run(main())
    call.close()

    assert (1.0, []) == (started.monotonic(), list(recwarn))
