"""A simulated call does what a real one does."""

from __future__ import annotations

import pytest

import redrive
import redrive.simulate
from redrive import Backoff, Policy
from redrive.policy.breaker import BreakerSettings
from redrive.policy.budget import ConcurrencyBudget, RatioBudget, ThrottleBudget, TokenBudget
from redrive.retrying import breaker, budget, isolated
from redrive.retrying.context import using
from redrive.simulate.client import FormulaClient, PolicyClient
from redrive.simulate.contender import stamina_wait
from redrive.simulate.loop import DOWN
from redrive.testing import VirtualClock

POLICY = Policy(on=ConnectionError, attempts=4, backoff=Backoff.exponential("100ms", "1s"), jitter="none").in_process()
FATE = [number % 7 == 0 for number in range(2000)]
"""Which attempts succeed, in the order of all attempts."""


def really(policy: Policy, calls: int) -> list[int]:
    """Attempts of each of so many calls, one after the other, in virtual time."""
    fate, seen = iter(FATE), []

    def service():
        seen[-1] += 1
        if not next(fate):
            raise ConnectionError

    with using(clock=VirtualClock()):
        for _ in range(calls):
            seen.append(0)
            policy.outcome(service)
    return seen


def simulated(client: PolicyClient, calls: int) -> list[int]:
    """Return the attempts of the same calls, simulated."""
    fate, seen, now = iter(FATE), [], 0.0
    for _ in range(calls):
        seen.append(0)
        made = client.begin(now)
        while made is not None:
            seen[-1] += 1
            if next(fate):
                made.succeeded(now)
                break
            delay = made.failed(DOWN, now, 0.5)
            if delay is None:
                break
            now += delay
    return seen


@pytest.mark.parametrize(
    "shared",
    [
        RatioBudget(0.1, minimum=0),
        RatioBudget(0.3, minimum=1),
        TokenBudget(capacity=50),
        ThrottleBudget(),
        ConcurrencyBudget(floor=1),
    ],
    ids=repr,
)
def test_a_simulated_budget_grants_what_a_real_one_grants(shared):
    """For each kind of budget, a hundred calls make the same attempts as in a program."""
    with isolated():
        budget("target", shared)
        real = really(POLICY.with_(budget="target"), 100)

    assert real == simulated(PolicyClient(POLICY, shared), 100)
    assert set(real) > {1}


def test_a_simulated_breaker_refuses_what_a_real_one_refuses():
    """For each breaker, a hundred calls are sent or refused as in a program."""
    settings = BreakerSettings(volume_threshold=10, sleep_window="3s")
    with isolated():
        breaker("target", settings)
        real = really(POLICY.with_(breaker="target"), 100)

    assert real == simulated(PolicyClient(POLICY, None, settings), 100)
    assert 0 in real


def test_a_simulated_stack_is_called_as_often_as_a_real_one():
    """Three layers in one process make three calls of the innermost function, as in the scenario."""
    calls = 0

    @redrive.retry(Policy(on=ConnectionError))
    def leaf():
        nonlocal calls
        calls += 1
        raise ConnectionError

    @redrive.retry(Policy(on=ConnectionError))
    def middle():
        leaf()

    with using(clock=VirtualClock()):
        Policy(on=ConnectionError).outcome(middle)
    alone = redrive.simulate.run(
        redrive.simulate.scenario("stack"),
        [redrive.simulate.of_policy("it", POLICY.with_(attempts=3))],
        clients=1,
        alone=True,
    )

    assert calls == alone.figure("it", "3 layers").mean


def test_a_hedge_needs_a_grant_of_the_budget():
    """Hedges cost as much as a retry; without a budget they are free."""
    spent = PolicyClient(POLICY, RatioBudget(0, minimum=0.1))

    assert [True, False] == [spent.afford(0.0), spent.afford(0.0)]
    assert PolicyClient(POLICY).afford(0.0)
    assert FormulaClient(stamina_wait).afford(0.0)


def test_a_formula_ends_at_its_attempts():
    """Three attempts are two waits."""
    made = FormulaClient(lambda number, _: float(number), attempts=3).begin(0.0)

    assert [1.0, 2.0, None] == [made.failed(DOWN, 0.0, 0.5) for _ in range(3)]


def test_a_formula_asks_for_the_time_after_an_attempt():
    """Tenacity's `stop_after_delay` lets an attempt begin that ends too late."""
    made = FormulaClient(lambda *_: 4.0, timeout=5.0).begin(0.0)

    assert [4.0, 4.0, None] == [made.failed(DOWN, now, 0.5) for now in (0.0, 4.9, 8.9)]


def test_stamina_adds_its_jitter_before_the_maximum():
    """From the seventh attempt on all its delays are the maximum."""
    assert [0.1, 1.1] == [stamina_wait(1, 0.0), stamina_wait(1, 1.0)]
    assert [5.0, 5.0] == [stamina_wait(7, sample) for sample in (0.0, 1.0)]
