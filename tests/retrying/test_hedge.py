"""Hedged calls: copies race, the first answer wins."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import trio

import redrive
from redrive import Backoff, GaveUp, Ok, Policy
from redrive.clock import in_trio
from redrive.errors import CircuitOpen, GiveUp, PolicyValueError
from redrive.policy.breaker import BreakerSettings
from redrive.policy.budget import ConcurrencyBudget, TokenBudget
from redrive.retrying import Hedge, SharedBreaker, SharedBudget, disabled, hedge, isolated
from redrive.retrying.context import trial, using
from tests.retrying.helpers import Busy, JumpingLoop, LoopClock, Other

ONCE = {"on": Busy, "attempts": 1, "idempotent": True}


class DelayedServer:
    """Answers each call after its own time.

    Attributes:
        sends: when calls came in.
        cancelled: numbers of the calls that were cancelled, in order.
    """

    def __init__(self, *answers):
        self.answers = answers
        self.sends = []
        self.cancelled = []

    async def __call__(self):
        """Return the next answer: (seconds, result or exception)."""
        clock = LoopClock()
        self.sends.append(round(clock.monotonic(), 6))
        number = len(self.sends)
        seconds, answer = self.answers[number - 1]
        try:
            await clock.asleep(seconds)
        except BaseException:
            self.cancelled.append(number)
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_fast_call_is_made_once(jump):
    """Calls that answer before the delay have no copy."""
    server = DelayedServer((0.1, "a"))

    assert "a" == jump(Policy(hedge=Hedge(0.5), **ONCE).acall, server)
    assert [0] == server.sends


def test_the_first_answer_wins_and_the_loser_is_awaited(jump):
    """With the first answer the slower copy is cancelled, and has cleaned up before the call returns."""
    server = DelayedServer((9, "slow"), (0.1, "fast"))

    async def main():
        result = await Policy(hedge=Hedge(0.5), **ONCE).acall(server)
        return result, list(server.cancelled), LoopClock().monotonic()

    assert ("fast", [1], pytest.approx(0.6)) == jump(main)
    assert [0, 0.5] == server.sends


def test_a_loser_that_takes_its_time_is_waited_for(jump):
    """Losing copies are awaited however long their ``finally`` takes, and their last error is ignored."""
    ended = []

    async def slow():
        try:
            await LoopClock().asleep(9)
        finally:
            if in_trio():
                with trio.CancelScope(shield=True):
                    await trio.sleep(2)
            else:
                await LoopClock().asleep(2)
            ended.append(LoopClock().monotonic())
            raise Other

    calls = []

    async def call():
        calls.append(1)
        return await slow() if len(calls) == 1 else "fast"

    assert "fast" == jump(Policy(hedge=Hedge(1), **ONCE).acall, call)
    assert [pytest.approx(3)] == ended


def test_a_failure_starts_the_next_copy_at_once(jump):
    """Failures that the policy retries start the next copy at once; the delays continue from there."""
    server = DelayedServer((0.2, Busy()), (9, 1), (9, 2), (0.1, "last"))

    assert "last" == jump(Policy(hedge=Hedge(0.5, 4), **ONCE).acall, server)
    assert [0, 0.2, 0.7, 1.2] == server.sends


def test_an_unmatched_failure_is_the_result(jump):
    """Failures that the policy does not retry end the call."""
    server = DelayedServer((9, "slow"), (0.1, Other("no")))

    with pytest.raises(Other, match="no"):
        jump(Policy(hedge=Hedge(0.5, 4), **ONCE).acall, server)
    assert [1] == server.cancelled


def test_a_final_failure_lets_running_copies_finish(jump):
    """After `GiveUp` no further copy is started, and one that is under way may still win."""
    server = DelayedServer((1, "slow"), (0.1, GiveUp("no more")))

    assert "slow" == jump(Policy(hedge=Hedge(0.5, 4), **ONCE).acall, server)
    assert [0, 0.5] == server.sends


def test_a_hint_delays_the_next_copy(jump):
    """After a failure with a hint the next copy starts after the hint, never earlier."""
    hinted = Busy()
    hinted.hint = timedelta(seconds=3)
    server = DelayedServer((0.2, hinted), (0.1, "ok"))

    assert "ok" == jump(Policy(hedge=Hedge(0.5, 4), **ONCE).acall, server)
    assert [0, 3.2] == server.sends


def test_the_last_error_surfaces(jump):
    """After the failure of all copies, the last error is raised unchanged, with the record of its copy."""
    errors = [Busy(1), Busy(2)]
    server = DelayedServer((1, errors[0]), (0.1, errors[1]))

    with pytest.raises(Busy) as caught:
        jump(Policy(hedge=Hedge(0.5), **ONCE).acall, server)

    assert errors[0] is caught.value  # it came last: 1.0 against 0.6
    assert "attempts" == caught.value.__retry__.rule
    assert caught.value.__context__ is None


def test_each_copy_has_its_own_attempts(jump):
    """Copies are retried by the policy before they count as failed."""
    server = DelayedServer((0.1, Busy()), (0.1, Busy()), (0.1, "third"))
    policy = Policy(on=Busy, attempts=3, backoff=Backoff.constant(1), jitter="none", idempotent=True, hedge=Hedge(60))

    assert "third" == jump(policy.acall, server)
    assert [0, 1.1, 2.2] == server.sends


def test_copies_share_the_deadline(jump):
    """At the deadline all copies are cut off, and no copy is started behind it."""
    server = DelayedServer(*[(9, "slow")] * 4)
    policy = Policy(deadline=0.8, hedge=Hedge(0.5, 4), **ONCE)

    with pytest.raises(TimeoutError):
        jump(policy.acall, server)
    assert [0, 0.5] == server.sends
    assert [1, 2] == sorted(server.cancelled)


def test_no_copy_starts_after_the_deadline(jump):
    """Hints beyond the deadline start no copy."""
    hinted = Busy()
    hinted.hint = timedelta(seconds=99)
    server = DelayedServer((0.2, hinted), (0.1, "ok"))

    async def main():
        outcome = await Policy(deadline=5, hedge=Hedge(0.5, 4), **ONCE).aoutcome(server)
        return outcome.error, LoopClock().monotonic()

    assert (hinted, pytest.approx(0.2)) == jump(main)


def test_hedges_spend_the_budget(jump):
    """Further copies are started only if the budget grants them; the first call always is."""
    shared = SharedBudget(TokenBudget(capacity=14, increment=0))
    policy = Policy(hedge=Hedge(0.5, 4), budget=shared, **ONCE)
    first, second = DelayedServer((9, 1), (2, 2), (0.1, 3)), DelayedServer((9, 1), (0.1, 2))

    async def main():
        await policy.acall(first)
        left = shared.left
        shared.spend(0, None, release=False)
        await policy.acall(second)
        return left

    assert 14 == jump(main)
    assert ([0, 0.5], [2.5]) == (first.sends, second.sends)


def test_a_finished_hedge_holds_no_budget(jump):
    """After the end of a hedged call its copies hold nothing of the budget."""
    shared = SharedBudget(ConcurrencyBudget(1.0, floor=0))

    async def main():
        await Policy(hedge=Hedge(0.5, 3), budget=shared, **ONCE).acall(DelayedServer((9, 1), (9, 2), (0.1, 3)))
        return shared.left

    assert 0 == jump(main)


def test_an_open_breaker_starts_no_further_copies(jump):
    """Each copy asks the breaker; where the first is refused, nothing is called."""
    shared = SharedBreaker(BreakerSettings(volume_threshold=1))
    policy = Policy(hedge=Hedge(0.5, 4), breaker=shared, **ONCE)
    server = DelayedServer((2, "slow"), (0.1, Busy()))

    async def main():
        result = await policy.acall(server)
        shared.circuit.reset()
        await Policy(breaker=shared, **ONCE).aoutcome(DelayedServer((0, Busy())))
        return result, await policy.aoutcome(DelayedServer())

    result, refused = jump(main)
    assert "slow" == result
    assert [0, 0.5] == server.sends
    assert isinstance(refused, GaveUp)
    assert isinstance(refused.error, CircuitOpen)


def test_outcomes_have_the_record_of_the_winning_copy(jump):
    """`aoutcome` has the value and the time line of the winner."""
    outcome = jump(Policy(hedge=Hedge(0.5), **ONCE).aoutcome, DelayedServer((9, 1), (0.1, "won")))

    assert isinstance(outcome, Ok)
    assert ("won", 1) == (outcome.value, len(outcome.timeline))


def test_the_record_contains_the_other_copies(jump):
    """Beside the copy that counted, `copies` has what became of each other one: how often, when and why it ended."""
    policy = Policy(on=Busy, attempts=2, backoff=Backoff.constant(5), jitter="none", idempotent=True, hedge=Hedge(1, 4))
    # copy 1 fails at 0.5 s and waits; further copies start a second after one another, and the last one wins
    server = DelayedServer((0.5, Busy()), (9, "slow"), (9, "slow"), (0.1, "won"))

    record = jump(policy.aoutcome, server).record
    first, second, third = record.copies

    assert (1, 4, "ok") == (record.attempts, record.calls, record.rule)
    assert ["outrun"] * 3 == [copy.rule for copy in record.copies]
    assert "another copy of the call was first" == second.why
    assert ["Busy"] == [each.failure.error_type.rpartition(".")[2] for each in first.timeline]
    assert ["OUTRUN"] == [each.failure.reason for each in second.timeline]
    assert [1, 2, 3] == [round(copy.timeline[0].started_after.total_seconds(), 6) for copy in (second, third, record)]
    assert pytest.approx(2.1) == second.timeline[0].took.total_seconds()


def test_the_error_contains_the_other_copies(jump):
    """Records on the error contain those of the other copies, and the note counts them."""
    server = DelayedServer((1, Busy(1)), (0.1, Busy(2)))

    with pytest.raises(Busy) as caught:
        jump(Policy(hedge=Hedge(0.5), **ONCE).acall, server)

    (other,) = caught.value.__retry__.copies
    assert ("attempts", 2, ()) == (other.rule, caught.value.__retry__.calls, other.copies)
    assert [caught.value.__retry__.note] == caught.value.__notes__
    assert "(Busy); there were 2 copies" in caught.value.__notes__[0]


def test_a_call_without_copies_records_none(jump):
    """Without a second copy the record contains no other."""
    policy = Policy(hedge=Hedge(5), **ONCE)

    assert () == jump(policy.aoutcome, DelayedServer((0.1, 1))).record.copies
    assert () == jump(policy.aoutcome, DelayedServer((0.1, Other()))).record.copies
    assert () == jump(policy.aoutcome, DelayedServer((0.1, GiveUp("no")))).error.__retry__.copies


def test_a_delay_of_nothing_starts_all_at_once(jump):
    """Without a delay all copies start together."""
    server = DelayedServer((3, 1), (2, 2), (1, 3))

    assert 3 == jump(Policy(hedge=Hedge(0, 3), **ONCE).acall, server)
    assert [0, 0, 0] == server.sends


def test_a_cancelled_hedge_leaves_no_copy_running(jump):
    """Cancelling the call cancels and awaits all copies, and comes out as a cancellation, not as a group."""
    server = DelayedServer((9, 1), (9, 2))
    seen = []

    async def call():
        try:
            await Policy(hedge=Hedge(0.5), **ONCE).acall(server)
        except BaseException as error:
            seen.append((type(error).__name__, sorted(server.cancelled)))
            raise

    async def main():
        if in_trio():
            with trio.move_on_after(0.7):
                await call()
        else:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(call(), 0.7)

    jump(main)

    assert [(("Cancelled" if seen[0][0] == "Cancelled" else "CancelledError"), [1, 2])] == seen


def test_a_second_cancellation_leaves_no_copy_running():
    """Second cancellations do not end the wait for a losing copy's cleanup."""
    events = []

    async def stubborn():
        try:
            await LoopClock().asleep(60)
        finally:
            try:
                await LoopClock().asleep(5)
            finally:
                events.append("cleaned up")

    calls = []

    async def call():
        calls.append(1)
        return await stubborn() if len(calls) == 1 else "fast"

    async def main():
        task = asyncio.ensure_future(Policy(hedge=Hedge(1), **ONCE).acall(call))
        await LoopClock().asleep(3)  # the fast copy has won after 1 s, and the slow one is cleaning up
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        events.append("cancelled")

    with using(clock=LoopClock()), asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(main())

    assert ["cleaned up", "cancelled"] == events


def test_control_flow_of_a_copy_is_raised():
    """Control-flow exceptions of a copy end the call."""

    async def main():
        async def ends():
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await Policy(hedge=Hedge(5), **ONCE).acall(ends)

    asyncio.run(main())


def test_an_interrupt_in_a_copy_is_no_group():
    """Under trio, too, an interrupt in a copy comes out as itself."""

    async def main():
        async def interrupts():
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await Policy(hedge=Hedge(5), **ONCE).acall(interrupts)

    trio.run(main)


def test_a_retrying_call_above_does_the_retrying(jump):
    """Copies see a call above as the hedged call itself would, though they are tasks of their own."""
    calls = []

    async def fails():
        calls.append(1)
        raise Busy

    inner = redrive.retry(on=Busy, attempts=3, backoff=Backoff.constant(0), idempotent=True, hedge=Hedge(60))(fails)

    @redrive.retry(on=Busy, attempts=2, backoff=Backoff.constant(0))
    async def outermost():
        return await inner()

    async def main():
        with pytest.raises(Busy):
            await outermost()

    jump(main)

    assert 4 == len(calls)  # two attempts above, each with one copy after the first has failed


def test_no_hedges_where_retries_are_off(jump):
    """In ``disabled()`` a hedged call is a plain call, and in a scope for tests nothing is waited for."""
    policy = Policy(hedge=Hedge(0.5), **ONCE)

    async def main(scope):
        server = DelayedServer((2, "slow"), (0.1, "fast"))
        with scope:
            return await policy.acall(server), server.sends

    assert "slow" == jump(main, disabled())[0]
    assert "slow" == jump(main, trial())[0]


def test_an_override_can_take_the_hedge_away(jump):
    """Overrides can remove the hedge."""
    policy, server = Policy(hedge=Hedge(0.5), **ONCE), DelayedServer((2, "slow"))

    async def main():
        with policy.override(hedge=None):
            return await policy.acall(server)

    assert "slow" == jump(main)


def test_a_hedge_can_be_named(jump):
    """Hedges can be named; an unknown key is an error of the first call."""
    policy = Policy(hedge="reads", **ONCE)

    with isolated():
        with pytest.raises(PolicyValueError, match="hedge='reads' is not registered"):
            jump(policy.acall, DelayedServer((0, 1)))
        hedge("reads", Hedge(0.5))
        assert "fast" == jump(policy.acall, DelayedServer((9, 1), (0.1, "fast")))


def test_only_idempotent_calls_are_hedged():
    """Hedges of calls that are not idempotent are refused, with the name of the function."""
    with pytest.raises(PolicyValueError, match=r"Server.*idempotent=True"):
        redrive.retry(on=Busy, hedge=Hedge(1))(DelayedServer.__call__)


def _sync():
    """Return 1, as a plain function."""


def _items():
    yield 1


@pytest.mark.parametrize("function", [_sync, _items], ids=["function", "generator"])
def test_only_coroutine_functions_are_hedged(function):
    """On a plain function or a generator a hedge is refused when it is decorated."""
    with pytest.raises(PolicyValueError, match="hedging needs a coroutine function"):
        redrive.retry(hedge=Hedge(1), **ONCE)(function)


def test_blocks_and_plain_calls_are_not_hedged():
    """Hedges are refused for blocks and plain calls."""
    policy = Policy(hedge=Hedge(1), **ONCE)
    with pytest.raises(PolicyValueError, match="a block"):
        next(iter(policy))
    with pytest.raises(PolicyValueError, match="hedging needs"):
        policy.call(_sync)


@pytest.mark.parametrize("make", [(1, 1), (1, True), ([1], 3), ([],), (-1,)], ids=str)
def test_a_plan_without_copies_or_delays_is_refused(make):
    """Hedges need at least one copy, and a delay for each."""
    with pytest.raises(PolicyValueError):
        Hedge(*make)


def test_a_plan_can_list_its_delays():
    """Hedges may list their delays, one for each copy."""
    assert (3, (timedelta(seconds=1), timedelta(seconds=2))) == (Hedge([1, "2s"]).attempts, Hedge([1, "2s"]).after)
    assert Hedge("1s", 3) == Hedge([1, 1])
