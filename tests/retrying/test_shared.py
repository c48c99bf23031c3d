"""Budgets and circuit breakers that calls share."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading

import pytest
import trio

import redrive
from redrive import Backoff, GaveUp, Policy
from redrive.clock import in_trio
from redrive.errors import CircuitOpen, GiveUp, PolicyValueError
from redrive.policy.breaker import BreakerSettings, BreakerStatus
from redrive.policy.budget import ConcurrencyBudget, RatioBudget, ThrottleBudget, TokenBudget
from redrive.retrying import Hedge, SharedBudget, breaker, budget, disabled, hedge, isolated
from redrive.retrying.context import trial, using
from tests.retrying.helpers import Busy, JumpingClock, LoopClock, Other, Script

AT_ONCE = {"on": Busy, "backoff": Backoff.constant(0)}
TRIPS_AT_TWO = BreakerSettings(volume_threshold=2, sleep_window="10s")


@pytest.fixture(autouse=True)
def _nothing_registered():
    with isolated():
        yield


def give_up(policy, script=None):
    """Call what always fails; the rule that ended it."""
    outcome = policy.outcome(script or Script(Busy()))
    assert isinstance(outcome, GaveUp)
    return outcome.rule


def block(policy, error):
    """Run a block that always raises this."""
    for attempt in policy:
        with attempt:
            raise error


# ---------------------------------------------------------------------------------------------------------- budgets


def test_a_budget_ends_the_retries(clock):
    """Budgets that refuse a retry end the call, and the note contains the reason."""
    budget("b", TokenBudget(capacity=14))
    script = Script(Busy("no"))

    with pytest.raises(Busy) as caught:
        Policy(attempts=5, budget="b", **AT_ONCE).call(script)

    assert 2 == script.calls
    assert "budget" == caught.value.__retry__.rule
    assert ["gave up after 2 attempts in 0.00 s: the retry budget 'b' is used up (Busy x2)"] == caught.value.__notes__


def test_a_key_is_shared_by_all_that_name_it(clock):
    """Two functions under one key draw on the same budget, a third one with another key does not."""
    first = budget("b", TokenBudget(capacity=28))
    budget("c", TokenBudget(capacity=28))

    assert ["attempts", "budget"] == [give_up(Policy(budget="b", **AT_ONCE)) for _ in range(2)]
    assert "attempts" == give_up(Policy(budget="c", **AT_ONCE))
    assert 0 == first.left


def test_a_policy_may_hold_the_budget_itself(clock):
    """Policies may hold the budget itself."""
    shared = SharedBudget(TokenBudget(capacity=14))

    assert "budget" == give_up(Policy(budget=shared, **AT_ONCE))
    assert 0 == shared.left


def test_success_pays_back(clock):
    """Successes after retries return the price of the last one; others pay the increment."""
    shared = budget("b", TokenBudget(capacity=100))
    policy = Policy(budget="b", **AT_ONCE)

    policy.call(Script(Busy(), Busy(), 1))
    assert 100 - 14 == shared.left

    policy.call(Script(1))
    assert 100 - 13 == shared.left


def test_an_unmatched_error_costs_no_token(clock):
    """Errors that the policy does not retry cost nothing."""
    shared = budget("b", ThrottleBudget(10))
    policy = Policy(budget="b", **AT_ONCE)
    for error in (Other(), GiveUp("for good")):
        give_up(policy, Script(error))

    assert 10 == shared.left


def test_the_last_failure_counts_for_a_throttle(clock):
    """GRPC counts every failed attempt, also the one that is not retried because the attempts are used up."""
    shared = budget("b", ThrottleBudget(10))
    give_up(Policy(attempts=3, budget="b", **AT_ONCE))

    assert 7 == shared.left


def test_results_are_retried_on_the_budget_too(clock):
    """Rejected results are charged like errors."""
    budget("b", TokenBudget(capacity=14))
    script = Script(0)

    assert 0 == Policy(on_result=lambda r: r == 0, attempts=5, backoff=Backoff.constant(0), budget="b").call(script)
    assert 2 == script.calls


def test_a_budget_is_spent_at_the_decision(clock):
    """Budgets are charged before the backoff: a refused retry raises at once."""
    budget("b", TokenBudget(capacity=14))
    give_up(Policy(on=Busy, backoff=Backoff.constant(5), budget="b", jitter="none"))

    assert [5.0] == clock.slept


def test_a_budget_can_hold_back(clock):
    """With ``hold_back`` a refused retry surfaces after its backoff, so that a polling caller cannot spin."""
    budget("b", TokenBudget(capacity=14, hold_back=True))
    script = Script(Busy())

    assert "budget" == give_up(Policy(on=Busy, backoff=Backoff.constant(5), budget="b", jitter="none"), script)
    assert [5.0, 5.0] == clock.slept
    assert 2 == script.calls


def test_a_call_in_flight_is_over_however_it_ends(clock):
    """Errors, results, cancellation and blocks that are left all give back what they held."""
    shared = budget("b", ConcurrencyBudget(1.0, floor=0))
    policy = Policy(budget="b", **AT_ONCE)
    policy.call(Script(Busy(), 1))
    give_up(policy)
    with pytest.raises(KeyboardInterrupt):
        policy.call(Script(Busy(), KeyboardInterrupt()))
    for attempt in policy:
        with attempt:
            pass
    for attempt in policy:
        if attempt.number == 2:
            break
        with attempt:
            raise Busy
    with pytest.raises(KeyboardInterrupt):
        block(policy, KeyboardInterrupt())
    del attempt
    gc.collect()

    assert 0 == shared.left  # nobody in flight, so no share of them


def test_a_cancelled_call_is_over(run):
    """Cancelled calls return their retry in flight."""
    shared = SharedBudget(ConcurrencyBudget(0, floor=1))

    async def main():
        async def stuck():
            raise BaseExceptionGroup("", [KeyboardInterrupt()])

        with pytest.raises(BaseExceptionGroup):
            await Policy(budget=shared, **AT_ONCE).acall(stuck)

    run(main)

    assert 1 == shared.left


def test_generators_share_too(clock):
    """Generators charge retries, pay at their end, and hold nothing if closed early."""
    shared = SharedBudget(TokenBudget(capacity=100))
    script = Script(Busy(), 1)

    @redrive.retry(**AT_ONCE, budget=shared)
    def items():
        yield script()

    assert [1] == list(items())
    assert 100 == shared.left

    flying = SharedBudget(ConcurrencyBudget(1.0, floor=0))
    items = redrive.retry(**AT_ONCE, budget=flying)(lambda: iter(()))
    stream = redrive.retry(**AT_ONCE, budget=flying)(_endless)()
    next(stream)
    assert 1 == flying.left
    stream.close()
    assert 0 == flying.left


def _endless():
    while True:
        yield 1


def test_async_generators_share_too(clock):
    """Async generators pay at their end, too."""
    shared = SharedBudget(TokenBudget(capacity=100))
    script = Script(Busy(), 1)

    @redrive.retry(**AT_ONCE, budget=shared)
    async def items():
        yield script()

    async def main():
        return [item async for item in items()]

    assert [1] == asyncio.run(main())
    assert 100 == shared.left


def test_blocks_share_too(clock):
    """Async blocks charge and pay, and hold nothing if their wait is cancelled."""
    shared = SharedBudget(TokenBudget(capacity=100))

    async def main():
        async for attempt in Policy(budget=shared, **AT_ONCE):
            with attempt:
                if attempt.number == 1:
                    raise Busy

    asyncio.run(main())

    assert 100 == shared.left


def test_a_wait_between_blocks_that_is_cut_off_holds_nothing(clock, monkeypatch):
    """Interrupted waits of a block return the retry in flight."""
    shared = SharedBudget(ConcurrencyBudget(0, floor=1))

    def interrupted(seconds):
        raise KeyboardInterrupt

    async def ainterrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(clock, "sleep", interrupted)
    monkeypatch.setattr(clock, "asleep", ainterrupted)
    policy = Policy(on=Busy, backoff=Backoff.constant(5), jitter="none", budget=shared)

    async def main():
        async for attempt in policy:
            with attempt:
                raise Busy

    with pytest.raises(KeyboardInterrupt):
        block(policy, Busy())
    assert 1 == shared.left
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert 1 == shared.left


def test_switched_off_retries_share_nothing(clock):
    """In ``disabled()`` nothing of a policy applies, not even that its key must be known."""
    with disabled():
        assert 1 == Policy(budget="nobody", **AT_ONCE).call(Script(1))


def test_a_scope_for_tests_spends_too(clock):
    """Trials charge the budget, too."""
    budget("b", TokenBudget(capacity=14))
    with trial(5):
        assert "budget" == give_up(Policy(budget="b", **AT_ONCE))


def test_an_override_can_name_a_budget(clock):
    """Overrides can add a budget to a function that was decorated without one."""
    budget("b", TokenBudget(capacity=14))
    policy, script = Policy(attempts=5, **AT_ONCE), Script(Busy())
    decorated = redrive.retry(policy)(script)

    with policy.override(budget="b"), pytest.raises(Busy):
        decorated()

    assert 2 == script.calls


def test_a_decorator_takes_a_budget(clock):
    """``@retry`` takes what calls share beside the other fields."""
    budget("b", TokenBudget(capacity=14))
    script = Script(Busy())

    with pytest.raises(Busy):
        redrive.retry(attempts=5, budget="b", **AT_ONCE)(script)()

    assert 2 == script.calls


def test_threads_never_overspend():
    """Twenty threads that fail at once get as many retries as the budget has, and not one more."""
    shared = budget("b", RatioBudget(0, minimum=7, ttl=1))
    policy = Policy(attempts=50, budget="b", **AT_ONCE)
    line, calls = threading.Barrier(20), []

    def work():
        line.wait()
        policy.outcome(fail)

    def fail():
        calls.append(1)
        raise Busy

    clock = JumpingClock()  # stands still, so that nothing is forgotten

    def run_one(thread_work):
        with using(clock=clock):
            thread_work()

    threads = [threading.Thread(target=run_one, args=(work,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 20 + 7 == len(calls)
    with using(clock=clock):
        assert 0 == pytest.approx(shared.left, abs=1e-6)


def test_few_of_many_failing_tasks_retry(jump):
    """Of a thousand calls that fail at once, a fifth is retried: retries count from the decision."""
    budget("b", ConcurrencyBudget(0.2))
    policy = Policy(on=Busy, attempts=2, backoff=Backoff.constant(1), jitter="none", budget="b")
    calls = []

    async def fail():
        calls.append(1)
        await _tick()
        raise Busy

    async def main():
        await _together([lambda: policy.aoutcome(fail)] * 1000)

    jump(main)

    assert 1201 == len(calls)


async def _tick():
    await LoopClock().asleep(0.01)


async def _together(works):
    if in_trio():
        async with trio.open_nursery() as nursery:
            for work in works:
                nursery.start_soon(work)
    else:
        await asyncio.gather(*(work() for work in works))


# ---------------------------------------------------------------------------------------------------- circuit breakers


def test_a_breaker_counts_calls(clock):
    """Breakers count one failure for each failed call, however many attempts it made."""
    shared = breaker("b", TRIPS_AT_TWO)
    policy = Policy(attempts=5, breaker="b", **AT_ONCE)

    assert "attempts" == give_up(policy)
    assert BreakerStatus.CLOSED is shared.circuit.status
    assert "attempts" == give_up(policy)
    assert BreakerStatus.OPEN is shared.circuit.status


def test_an_open_breaker_refuses_before_the_call(clock):
    """Open breakers refuse before the call; the error contains the time, the function and the record."""
    breaker("b", TRIPS_AT_TWO)
    policy = Policy(attempts=1, breaker="b", **AT_ONCE)
    give_up(policy)
    give_up(policy)

    with pytest.raises(
        CircuitOpen, match=r"give_up was not called: the circuit breaker 'b' is open, for 10s"
    ) as caught:
        policy.call(give_up)

    assert 10 == pytest.approx(caught.value.retry_after.total_seconds())
    assert "breaker" == caught.value.__retry__.rule
    assert 0 == caught.value.__retry__.attempts
    assert "breaker" == give_up(policy, Script(1))


def test_a_canary_closes_the_breaker(clock):
    """After its sleep the breaker lets one call through, and a success closes it."""
    shared = breaker("b", TRIPS_AT_TWO)
    policy = Policy(attempts=1, breaker="b", **AT_ONCE)
    give_up(policy)
    give_up(policy)
    clock.advance(10.1)

    assert 1 == policy.call(Script(1))
    assert BreakerStatus.CLOSED is shared.circuit.status


def test_a_call_that_recovers_is_a_success(clock):
    """Failed attempts of a call that succeeds in the end do not count."""
    shared = breaker("b", TRIPS_AT_TWO)
    for _ in range(5):
        Policy(breaker="b", **AT_ONCE).call(Script(Busy(), Busy(), 1))

    assert BreakerStatus.CLOSED is shared.circuit.status


def test_an_answer_is_no_failure_of_the_target(clock):
    """Errors that the policy does not retry count as answers."""
    shared = breaker("b", TRIPS_AT_TWO)
    for error in (Other(), GiveUp(), Other()):
        give_up(Policy(breaker="b", **AT_ONCE), Script(error))

    assert BreakerStatus.CLOSED is shared.circuit.status


def test_counted_failures_can_be_chosen(clock):
    """With ``counts`` the breaker has its own idea of failures."""
    shared = breaker("b", TRIPS_AT_TWO, counts=lambda error: isinstance(error, Other))
    policy = Policy(breaker="b", **AT_ONCE)
    give_up(policy)
    give_up(policy)
    assert BreakerStatus.CLOSED is shared.circuit.status

    give_up(policy, Script(Other()))
    give_up(policy, Script(Other()))
    assert BreakerStatus.OPEN is shared.circuit.status


def test_an_interrupted_canary_lets_the_next_one_try(clock):
    """Interrupted canaries let the next call be one."""
    breaker("b", TRIPS_AT_TWO)
    policy = Policy(attempts=1, breaker="b", **AT_ONCE)
    give_up(policy)
    give_up(policy)
    clock.advance(10.1)
    with pytest.raises(KeyboardInterrupt):
        policy.call(Script(KeyboardInterrupt()))

    assert 1 == policy.call(Script(1))


def test_a_block_asks_the_breaker_once(clock):
    """Blocks are one call, and are refused where they are entered."""
    shared = breaker("b", TRIPS_AT_TWO)
    policy = Policy(breaker="b", **AT_ONCE)
    for _ in range(2):
        with pytest.raises(Busy):
            block(policy, Busy())

    assert BreakerStatus.OPEN is shared.circuit.status
    with pytest.raises(CircuitOpen):
        block(policy, Busy())


def test_a_breaker_of_calls_has_no_probe():
    """Breakers of calls refuse the setting for probes."""
    with pytest.raises(PolicyValueError, match="probe"):
        breaker("b", BreakerSettings(canary="probe"))


# --------------------------------------------------------------------------------------------------------- registry


@pytest.mark.parametrize("field", ["budget", "breaker"])
def test_an_unknown_key_is_an_error_of_the_first_call(clock, field):
    """Unknown keys are errors of the first call, with function, field, known keys and policy."""
    script = Script(1)
    policy = Policy(attempts=9, **{field: "paiments"}, **AT_ONCE)
    decorated = redrive.retry(policy)(give_up)  # which is no error yet
    {"budget": lambda: budget("payments", RatioBudget()), "breaker": lambda: breaker("payments")}[field]()

    with pytest.raises(PolicyValueError) as caught:
        decorated(policy, script)

    assert 0 == script.calls
    for part in ("give_up", f"{field}='paiments'", "known: 'payments'", "attempts=9", f"redrive.retrying.{field}("):
        assert part in str(caught.value)


def test_numbers_are_no_shared_budget(clock):
    """Policies refuse a bare budget at once, since it would not be shared, and other objects at the first call."""
    with pytest.raises(PolicyValueError, match=r'of redrive.retrying.budget\("name", RatioBudget\(...\)\)'):
        Policy(budget=RatioBudget(), **AT_ONCE)
    with pytest.raises(
        PolicyValueError, match=r"budget=\[\] is no budget: give a key, or the result of redrive.retrying"
    ):
        Policy(budget=[], **AT_ONCE).call(Script(1))


def test_an_object_may_be_registered_twice():
    """Registering equal settings again gives what is there; others under the same key are refused."""
    assert budget("b", RatioBudget()) is budget("b", RatioBudget())
    assert breaker("b") is breaker("b", BreakerSettings())
    assert hedge("b", Hedge(1)) is hedge("b", Hedge(1))
    with pytest.raises(PolicyValueError, match=r"the budget 'b' is registered already, as RatioBudget\(ratio=0.1"):
        budget("b", RatioBudget(0.5))


@pytest.mark.parametrize(
    ("register", "args"),
    [(budget, ("", RatioBudget())), (budget, ("b", 5)), (hedge, ("b", 5)), (breaker, (5,))],
    ids=["no name", "no budget", "no hedge", "no text"],
)
def test_invalid_keys_and_limits_are_refused(register, args):
    """Keys that are no text and limits of another kind are refused."""
    with pytest.raises(PolicyValueError):
        register(*args)


def test_isolation_restores_the_registry():
    """Behind ``isolated()`` the registry is what it was."""
    outside = budget("b", RatioBudget())
    with isolated():
        assert outside is not budget("b", RatioBudget())

    assert outside is budget("b", RatioBudget())


def test_shared_limits_have_a_representation():
    """Their text has their settings and their key."""
    assert "SharedBudget(RatioBudget(" in repr(budget("b", RatioBudget()))
    assert repr(breaker("b")).endswith(", 'b')")


def test_a_plain_retry_does_not_load_what_is_shared():
    """Decorating and calling a function without a key loads neither budgets, breakers, limiters nor asyncio."""
    code = "import sys, redrive; redrive.retry('3 1s', on=OSError)(lambda: None)(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    unwanted = {
        "redrive.retrying.shared",
        "redrive.retrying.hedging",
        "redrive.retrying.limiter",
        "redrive.policy.budget",
    }
    assert set() == {*unwanted, "asyncio"} & set(loaded)


def test_a_budget_without_settings_is_one_that_recovers():
    """`budget(key)` registers a `TokenBudget()`; registering that again, written out, changes nothing."""
    with isolated():
        shared = budget("payments")

        assert TokenBudget() == shared.budget
        assert shared is budget("payments", TokenBudget())
        assert shared is budget("payments")
