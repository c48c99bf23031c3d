"""What retries do to the target: how many calls come of one, simulated through policies and budgets.

Each simulation makes every call through a policy, on a clock that jumps, and counts what arrives at the target.
"""

from __future__ import annotations

import asyncio
import contextlib
import random  # noqa: TID251 - seeded, so that a simulation is the same each time

import pytest

import redrive
from redrive import Backoff, Policy
from redrive.retrying import RatioBudget, SharedBudget, ThrottleBudget, TokenBudget
from redrive.testing import VirtualClock, using

pytestmark = pytest.mark.slow

ANY = Policy(on=ConnectionError, attempts=3, backoff=Backoff.exponential("50ms", "1s"))


class UnreliableTarget:
    """Answers with a probability, and counts.

    Attributes:
        calls: how many arrived.
        health: the part of them that succeeds.
    """

    def __init__(self, health=0.0):
        self.calls = 0
        self.health = health
        self._random = random.Random(23)

    def __call__(self):
        """Succeed, or not."""
        self.calls += 1
        if self._random.random() >= self.health:
            raise ConnectionError("connection refused")
        return "ok"


@pytest.fixture
def clock():
    """Time that jumps, in force for all calls."""
    virtual = VirtualClock()
    with using(clock=virtual):
        yield virtual


def drive(calls, clock, requests, *, gap="20ms"):
    """Let callers call in turns, one after the other; how many of their calls succeeded at once, and how many later.

    Args:
        calls: one function for each caller.
        clock: passes between calls.
        requests: calls, in all.
        gap: time between them.
    """
    first = later = 0
    for number in range(requests):
        clock.advance(gap)
        outcome = calls[number % len(calls)]()
        if isinstance(outcome, redrive.Ok):
            first += outcome.record.attempts == 1
            later += outcome.record.attempts > 1
    return first, later


def caller(policy, target):
    """Return a client that calls a target under a policy and never raises."""
    return lambda: policy.outcome(target)


# ------------------------------------------------------------------------------------------------- calls of one layer


@pytest.mark.case("budget.invariants.01")
def test_three_attempts_triple_the_load_of_an_outage(clock):
    """Without a budget 3 attempts make 3 calls of each request to a target that is down."""
    target = UnreliableTarget()
    drive([caller(ANY, target)] * 10, clock, 1000)

    assert 3.0 == target.calls / 1000


@pytest.mark.case("budget.invariants.02")
def test_a_budget_of_a_tenth_adds_a_tenth(clock):
    """With a budget of one retry for ten calls, shared by ten clients, an outage of minutes adds 10 % and no more."""
    target = UnreliableTarget()
    policy = ANY.with_(budget=SharedBudget(RatioBudget(0.1, minimum=0)))
    loads = []
    for requests in range(500, 10_001, 500):
        drive([caller(policy, target)] * 10, clock, 500)
        loads.append(target.calls / requests)

    assert max(loads) <= 1.1
    assert loads[-1] > 1.09  # and the tenth is used


# -------------------------------------------------------------------------------------------------------------- layers


def stack(layers, policy, target):
    """Return a chain of services in front of a target, each under the policy."""
    function = target
    for _ in range(layers):
        function = redrive.retry(policy)(_passing_on(function))
    return function


def _passing_on(function):
    def call():
        return function()

    return call


def astack(layers, policy, target, *, begin=lambda work: work):
    """Return the chain as coroutine functions; `begin` may start tasks of them."""

    async def last():
        return target()

    function = last
    for _ in range(layers):
        function = redrive.retry(policy)(_apassing_on(function, begin))
    return function


def _apassing_on(function, begin):
    async def call():
        return await begin(function())

    return call


def arriving(layers, policy, *, colour="def"):
    """Return the number of calls at a failing target for one call at the top."""
    target = UnreliableTarget()
    with contextlib.suppress(ConnectionError):
        if colour == "def":
            stack(layers, policy, target)()
        else:
            asyncio.run(astack(layers, policy, target)())
    return target.calls


@pytest.mark.case("budget.invariants.03")
@pytest.mark.parametrize("colour", ["def", "async def"])
def test_three_layers_of_four_attempts_multiply(clock, colour):
    """With `nested="both"` three layers make 64 calls; by default 4."""
    four = ANY.with_(attempts=4)

    assert 64 == arriving(3, four.with_(nested="both"), colour=colour)
    assert 4 == arriving(3, four, colour=colour)


@pytest.mark.case("budget.invariants.04")
@pytest.mark.parametrize("colour", ["def", "async def"])
def test_five_layers_of_three_attempts_multiply(clock, colour):
    """With `nested="both"` five layers make 243 calls; by default 3."""
    assert 243 == arriving(5, ANY.with_(nested="both"), colour=colour)
    assert 3 == arriving(5, ANY, colour=colour)


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_layers_without_anything_in_force_do_not_multiply(colour):
    """Without any scope in force, direct calls do not multiply either."""
    at_once = ANY.with_(attempts=4, backoff=Backoff.constant(0))

    assert 64 == arriving(3, at_once.with_(nested="both"), colour=colour)
    assert 4 == arriving(3, at_once, colour=colour)


def test_layers_of_tasks_do_not_multiply():
    """Three layers in tasks of their own make four attempts, as one layer does, with a deadline or without."""
    at_once = ANY.with_(attempts=4, backoff=Backoff.constant(0))
    target, bounded = UnreliableTarget(), UnreliableTarget()

    async def main(policy, target):
        with contextlib.suppress(ConnectionError):
            await astack(3, policy, target, begin=asyncio.create_task)()

    asyncio.run(main(at_once, target))
    asyncio.run(main(at_once.with_(deadline="1h"), bounded))

    assert [4, 4] == [target.calls, bounded.calls]


def test_the_longest_wait_is_that_of_one_layer(clock):
    """By default layers do not add up in time either: the call fails when its outermost layer gives up."""
    four = ANY.with_(attempts=4, backoff=Backoff.constant("1s"), jitter="none")
    arriving(3, four)

    assert 3.0 == clock.monotonic()


def test_budgets_of_layers_multiply_too(clock):
    """Three layers that all retry, each on its own budget of a tenth, add at most 1.1 x 1.1 x 1.1; by default 1.1."""

    def load(nested):
        target = UnreliableTarget()
        function = target
        for _ in range(3):
            budget = SharedBudget(RatioBudget(0.1, minimum=0))
            function = redrive.retry(ANY.with_(nested=nested, budget=budget))(_passing_on(function))
        for _ in range(2000):
            clock.advance("20ms")
            with contextlib.suppress(ConnectionError):
                function()
        return target.calls / 2000

    assert 1.1 < load("both") <= 1.1**3
    assert load("outer") <= 1.1


# ------------------------------------------------------------------------------------------------- budgets that refill

HEALTH = [1.0, 0.9, 0.0, 0.5, 0.0, 1.0, 0.7, 0.0]
"""The health of a target, minute by minute."""


def through_changing_health(clients, clock, target):
    """Let clients call a target that comes and goes; how many calls, successes at once, and successes after retries."""
    first = later = 0
    for health in HEALTH:
        target.health = health
        succeeded = drive(clients, clock, 1000, gap="60ms")
        first, later = first + succeeded[0], later + succeeded[1]
    return 1000 * len(HEALTH), first, later


@pytest.mark.case("budget.invariants.05")
def test_tokens_bound_retries(clock):
    """Buckets of 5 tokens, to which each success adds a tenth, bound the retries of 20 clients on any server."""
    target = UnreliableTarget()
    buckets = [SharedBudget(ThrottleBudget(10, ratio=0.1)) for _ in range(20)]  # it grants while more than 5 are there
    clients = [caller(ANY.with_(budget=bucket), target) for bucket in buckets]
    requests, first, later = through_changing_health(clients, clock, target)

    retries = target.calls - requests
    assert 0 < retries <= 5 * 20 + 0.1 * (first + later)


def test_tokens_of_first_attempts_bound_retries(clock):
    """Budgets with a tenth for each call, and 5 in each window, bound retries within the window."""
    target = UnreliableTarget()
    buckets = [SharedBudget(RatioBudget(0.1, minimum=0.5, ttl="10s")) for _ in range(20)]
    at_once = ANY.with_(backoff=Backoff.constant(0))
    clients = [caller(at_once.with_(budget=bucket), target) for bucket in buckets]
    drive(clients, clock, 4000, gap="2ms")

    assert 5 * 20 < target.calls - 4000 <= 5 * 20 + 0.1 * 4000


def test_tokens_that_are_returned_bound_retries(clock):
    """Budgets with returned tokens bound failed retries: 5 each, and a tenth for each success."""
    target = UnreliableTarget()
    buckets = [SharedBudget(TokenBudget(capacity=5, cost=1, throttle_cost=1, increment=0.1)) for _ in range(20)]
    clients = [caller(ANY.with_(budget=bucket), target) for bucket in buckets]
    requests, first, later = through_changing_health(clients, clock, target)

    retries = target.calls - requests
    assert later < retries <= 5 * 20 + 0.1 * first + later


def test_without_a_budget_the_same_faults_cause_many_more_retries(clock):
    """Without budgets the same clients exceed the bound many times over."""
    target = UnreliableTarget()
    requests, first, later = through_changing_health([caller(ANY, target)] * 20, clock, target)

    assert target.calls - requests > 5 * (5 * 20 + 0.1 * (first + later))


@pytest.mark.case("budget.invariants.06")
def test_a_quota_of_500_is_35_retries_in_an_outage(clock):
    """By the AWS numbers each client has 35 retries, then none, until successes have brought 14 tokens, one each."""
    target = UnreliableTarget()
    quotas = [SharedBudget(TokenBudget()) for _ in range(4)]
    clients = [caller(ANY.with_(budget=quota), target) for quota in quotas]
    drive(clients, clock, 4 * 100)

    assert 35 * 4 == target.calls - 400
    assert [10] * 4 == [quota.left for quota in quotas]

    def retries_of_an_outage():
        target.health, before = 0.0, target.calls
        drive(clients[:1], clock, 50)
        return target.calls - before - 50

    assert 0 == retries_of_an_outage()
    target.health = 1.0
    drive(clients[:1], clock, 3)
    assert (0, 13) == (retries_of_an_outage(), quotas[0].left)
    target.health = 1.0
    drive(clients[:1], clock, 1)
    assert (1, 0) == (retries_of_an_outage(), quotas[0].left)
    target.health = 1.0
    drive(clients[:1], clock, 3 * 14 + 13)
    assert (3, 13) == (retries_of_an_outage(), quotas[0].left)
