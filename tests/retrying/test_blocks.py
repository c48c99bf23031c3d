"""Blocks: `for attempt in policy: with attempt: ...`, and the same with `async for`."""

from __future__ import annotations

from datetime import timedelta

import pytest

import redrive
from redrive.policy import Backoff, Policy
from tests.retrying.helpers import START, Busy, Other, Script

SECONDS = Policy(on=Busy, attempts=3, deadline=None, backoff=Backoff.constant(1), jitter="none")


def in_block(policy, function):
    """Run a function as a block, and return its result."""
    for attempt in policy:
        with attempt:
            return function()
    return "the loop ended"


async def in_ablock(policy, function):
    """Use a block with `async for`."""
    async for attempt in policy:
        with attempt:
            return await function()
    return "the loop ended"


@pytest.fixture(params=["for", "asyncio", "trio"])
def block(request):
    """Runs a script as a block, in each colour."""
    import asyncio

    import trio

    def go(policy, script):
        if request.param == "for":
            return in_block(policy, script)
        if request.param == "trio":
            return trio.run(in_ablock, policy, script.as_async())
        return asyncio.run(in_ablock(policy, script.as_async()))

    return go


def test_a_block_is_run_until_it_succeeds(block, clock):
    """Blocks that fail twice run three times, with the policy's waits between."""
    script = Script(Busy(), Busy(), 42)

    assert 42 == block(SECONDS, script)
    assert (3, [1.0, 1.0]) == (script.calls, clock.slept)


def test_the_last_error_surfaces(block, clock):
    """After the last attempt the last error is raised itself, with its note and record."""
    errors = [Busy(), Busy(), Busy()]
    with pytest.raises(Busy) as caught:
        block(SECONDS, Script(*errors))

    assert caught.value is errors[2]
    assert caught.value.__context__ is None
    assert (3, 1) == (caught.value.__retry__.attempts, len(caught.value.__notes__))
    assert "the block in tests.retrying.test_blocks.in_" in caught.value.__retry__.function


def test_another_error_passes(block, clock):
    """Errors that `on` does not name end the loop at once."""
    script = Script(Other())
    with pytest.raises(Other):
        block(SECONDS, script)

    assert 1 == script.calls


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_control_flow_passes(clock, kind):
    """Control-flow exceptions pass a block at once."""
    script = Script(kind())
    with pytest.raises(kind):
        in_block(SECONDS.with_(on=BaseException), script)

    assert 1 == script.calls


def test_an_attempt_has_its_number_and_remaining_time(clock):
    """Attempts have their number, remaining time, deadline, previous failure and the uid of the call."""
    seen = []
    for attempt in SECONDS.with_(deadline=60):
        with attempt:
            clock.advance(4)
            seen.append((attempt.number, attempt.remaining, attempt.deadline, attempt.previous))
            uids = {attempt.uid, *([] if len(seen) == 1 else uids)}  # noqa: F821 - of the turn before
            if attempt.number < 3:
                raise Busy(f"no {attempt.number}")

    end = START + timedelta(seconds=60)
    assert [(1, 56.0, end), (2, 51.0, end), (3, 46.0, end)] == [each[:3] for each in seen]
    assert [None, "no 1", "no 2"] == [each[3] and each[3].message for each in seen]
    assert 1 == len(uids)
    assert 32 == len(uids.pop())


def test_two_loops_have_two_names(clock):
    """Each loop is a call of its own, with its own name and its own count."""
    uids = []
    for _ in range(2):
        for attempt in SECONDS:
            with attempt:
                uids.append(attempt.uid)
                assert 1 == attempt.number

    assert 2 == len(set(uids))


def test_without_a_bound_nothing_is_left(clock):
    """Without a deadline an attempt has neither `remaining` nor `deadline`."""
    for attempt in SECONDS:
        with attempt:
            assert (None, None) == (attempt.remaining, attempt.deadline)


def test_a_timeout_of_an_attempt_bounds_it(clock):
    """With `attempt_timeout` each attempt has a deadline of its own; sync code is not cut off by it."""
    seen = []
    for attempt in SECONDS.with_(attempt_timeout=5):
        with attempt:
            seen.append(attempt.remaining)
            clock.advance(9)
            assert 0.0 == attempt.remaining
            if attempt.number < 3:
                raise Busy

    assert [5.0, 5.0, 5.0] == seen


def test_the_deadline_is_read_in_a_block(clock):
    """`deadline()` finds the block that it is called in, and nothing after it."""
    for attempt in SECONDS.with_(deadline=5):
        with attempt:
            assert 5.0 == redrive.deadline().remaining
    assert redrive.deadline() is None


def test_a_block_with_a_rejected_result_runs_again(clock):
    """With `on_result` a block is run again while its result is rejected."""
    results = iter([None, None, 42])
    for attempt in SECONDS.with_(on_result=lambda value: value is None):
        with attempt:
            attempt.result = next(results)

    assert (42, [1.0, 1.0]) == (attempt.result, clock.slept)


def test_a_result_that_stays_bad_ends_the_loop(clock):
    """After all attempts the loop ends with the last result, without an error."""
    for attempt in SECONDS.with_(on_result=lambda value: value is None):
        with attempt:
            attempt.result = None

    assert (3, None) == (attempt.number, attempt.result)


def test_a_truncated_wait_ends_the_loop(clock, run):
    """With `over_deadline="truncate"` the loop waits to the deadline; then the error is raised, the result stands."""
    policy = SECONDS.with_(deadline=0.5, over_deadline="truncate", on_result=lambda value: value is None)
    error = Busy()
    with pytest.raises(Busy) as caught:
        in_block(policy, Script(error))
    assert caught.value is error

    async def main():
        numbers = []
        async for attempt in policy:
            with attempt:
                numbers.append(attempt.number)
        return numbers

    assert [1] == run(main)
    for attempt in policy:
        with attempt:
            pass

    assert (1, [0.5] * 3) == (attempt.number, clock.slept)


def test_break_and_continue_are_successes(clock):
    """Leaving the block by `break` or `continue` ends the loop: nothing failed."""
    turns = 0
    for attempt in SECONDS:
        with attempt:
            turns += 1
            continue
    for attempt in SECONDS:
        with attempt:
            turns += 1
            break

    assert 2 == turns


def test_a_loop_without_with_is_refused():
    """Loops that do not enter the attempt get an error in their second iteration."""
    with pytest.raises(RuntimeError, match="with attempt"):
        for _ in SECONDS:
            pass


def test_a_loop_inside_an_unfinished_attempt_is_refused():
    """Asking for the next attempt while one is running is refused."""
    loop = iter(SECONDS)
    with next(loop), pytest.raises(RuntimeError, match="with attempt"):
        next(loop)


def test_an_attempt_is_entered_once():
    """Entering an attempt a second time is refused."""
    for attempt in SECONDS:
        with attempt:
            pass
        with pytest.raises(RuntimeError, match="entered before"), attempt:
            pass


def test_blocks_nest_in_functions_and_loops(clock):
    """Inner blocks leave the retrying to the outer one."""
    script = Script(Busy())
    with pytest.raises(Busy):
        in_block(SECONDS, lambda: in_block(SECONDS, script))

    assert 3 == script.calls


def test_a_loop_is_its_own_iterator():
    """Loops return themselves as iterators, sync and async."""
    loop = iter(SECONDS)

    assert loop is iter(loop)
    assert loop is not iter(SECONDS)
    assert (aloop := aiter(SECONDS)) is aiter(aloop)


def test_a_plain_loop_in_a_coroutine_is_refused(run):
    """A plain loop would stop the event loop during its waits, so it is refused where it stands; a function is free."""

    async def plain():
        for attempt in SECONDS:
            with attempt:
                pass

    async def generating():
        for attempt in SECONDS:
            with attempt:
                yield

    async def through():
        async for _ in generating():
            pass

    async def in_a_function():
        return in_block(SECONDS, Script(7))

    for each in (plain, through):
        with pytest.raises(RuntimeError, match="in a coroutine would stop the event loop .*: write `async for attempt"):
            run(each)
    assert 7 == run(in_a_function)
