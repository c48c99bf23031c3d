"""Retry budgets as arithmetic."""

from __future__ import annotations

from datetime import timedelta
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PolicyValueError
from redrive.policy import Failure
from redrive.policy.budget import Budget, ConcurrencyBudget, Ledger, RatioBudget, ThrottleBudget, TokenBudget

FAILURE = Failure(("builtins.OSError", "builtins.Exception"), "it failed")
THROTTLED = FAILURE._replace(reason="THROTTLED")
LATE = Failure(("builtins.TimeoutError", "builtins.OSError", "builtins.Exception"), "too late")
BUDGETS = (TokenBudget(), TokenBudget(floor=1), RatioBudget(), ConcurrencyBudget(), ThrottleBudget())


def test_a_floor_is_granted_without_tokens():
    """As many retries in flight as the floor has are free; those beside them are charged, and pay their price back."""
    ledger = TokenBudget(capacity=28, floor=1).open()
    assert [14, 14, 14, None] == [ledger.spend(0, FAILURE) for _ in range(4)]
    assert 0 == ledger.left(0)
    ledger.release(0)
    assert None is ledger.spend(0, FAILURE)
    ledger.release(0)
    ledger.release(0)
    assert 14 == ledger.spend(0, FAILURE)
    ledger.succeed(0, 14)
    assert 14 == ledger.left(0)


def test_a_floor_forgets_the_calls_of_another_process():
    """In the child of a fork no retry is in flight."""
    ledger = TokenBudget(capacity=14, floor=1).open()
    assert [14, 14, None] == [ledger.spend(0, None) for _ in range(3)]
    ledger.forget_calls()
    assert 14 == ledger.spend(0, None)
    ledger.release(0)
    ledger.release(0)
    assert 14 == ledger.spend(0, None)


@pytest.mark.parametrize(
    ("failure", "price"),
    [(FAILURE, 14), (THROTTLED, 5), (LATE, 20), (LATE._replace(types=FAILURE.types, reason="TIMEOUT"), 20), (None, 14)],
)
def test_a_token_budget_has_prices(failure, price):
    """Retries cost by their failure; a hedge costs as much as a retry."""
    assert price == TokenBudget(timeout_cost=20).open().spend(0, failure)


def test_a_throttling_exception_can_be_named():
    """Throttling errors can be named by exception type."""
    assert 1 == TokenBudget(throttles=OSError, throttle_cost=1).open().spend(0, FAILURE)


def test_success_returns_the_price_of_the_last_retry():
    """Calls that succeed return the cost of their last retry, and those without retries return the increment."""
    ledger = TokenBudget(capacity=100).open(50)
    price = ledger.spend(0, FAILURE)
    ledger.succeed(0, price)
    ledger.succeed(0, None)

    assert 51 == ledger.left(0)


@given(st.lists(st.sampled_from(["fail", "throttle", "ok", "retried ok"])))
def test_tokens_stay_within_the_bucket(events):
    """Whatever happens, there are never fewer tokens than none nor more than the capacity."""
    ledger = TokenBudget(capacity=40).open()
    for event in events:
        if event in ("fail", "throttle"):
            ledger.spend(0, FAILURE if event == "fail" else THROTTLED)
        else:
            ledger.succeed(0, None if event == "ok" else 14)
        assert 0 <= ledger.left(0) <= 40


@given(st.floats(0, 2), st.integers(0, 400))
def test_a_ratio_budget_bounds_amplification(ratio, calls):
    """At one instant an outage costs at most ``ratio`` retries a call, and the reserve."""
    ledger = RatioBudget(ratio, minimum=1, ttl=2).open()
    retries = 0
    for _ in range(calls):
        ledger.begin(5)
        while ledger.spend(5, FAILURE) is not None:
            retries += 1

    assert retries <= ratio * calls + 2 + 1e-6
    assert not calls or retries > ratio * calls + 2 - 1 - 1e-6


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=120), st.floats(0, 1))
def test_a_ratio_budget_bounds_amplification_over_time(steps, ratio):
    """Over any time, retries are at most ``ratio`` times the calls, and one reserve for each ``ttl`` begun."""
    budget = RatioBudget(ratio, minimum=0.5, ttl=4)
    ledger, now, calls, retries = budget.open(), 0.0, 0, 0
    for wait, is_call in steps:
        now += wait
        if is_call:
            ledger.begin(now)
            calls += 1
        elif ledger.spend(now, FAILURE) is not None:
            retries += 1

    slices = int(now / 0.4) + 1
    assert retries <= ratio * calls + budget.reserve * ceil(slices / 10) + 1e-6


def test_a_ratio_budget_forgets():
    """After the time to live neither calls nor retries count."""
    ledger = RatioBudget(1, minimum=0, ttl=10).open()
    ledger.begin(0)
    ledger.begin(0)
    ledger.spend(0, FAILURE)

    assert 1 == pytest.approx(ledger.left(8.9))
    assert 0 == pytest.approx(ledger.left(10))


def test_a_late_reading_counts():
    """Threads read the clock before they take the lock: an older reading is counted with the latest."""
    ledger = RatioBudget(1, minimum=0, ttl=10).open()
    ledger.begin(7)
    ledger.begin(5.5)

    assert 2 == pytest.approx(ledger.left(16.5))
    assert 0 == pytest.approx(ledger.left(17))


@given(st.integers(0, 500), st.floats(0, 1), st.integers(0, 5))
def test_a_concurrency_budget_bounds_retries_in_flight(calls, ratio, floor):
    """Retries in flight are a share of the calls in flight, one more, or the floor."""
    ledger = ConcurrencyBudget(ratio, floor=floor).open()
    for _ in range(calls):
        ledger.begin(0)
    granted = sum(ledger.spend(0, FAILURE) is not None for _ in range(2 * calls + 10))

    assert granted <= max(floor, ratio * calls + 1 + 1e-6)
    assert granted >= max(floor, ratio * calls - 1e-6)


def test_a_concurrency_budget_is_given_back():
    """Retries that have ended free a place, and calls that have ended remove their share."""
    ledger = ConcurrencyBudget(0.5, floor=0).open()
    for _ in range(4):
        ledger.begin(0)
    ledger.spend(0, FAILURE)
    assert 1 == ledger.left(0)

    ledger.release(0)
    assert 2 == ledger.left(0)

    ledger.end(0)
    ledger.end(0)
    assert 1 == ledger.left(0)


def test_a_throttle_is_on_at_half():
    """Retries are granted while more than half of the tokens are left; a refused failure takes its token too."""
    ledger = ThrottleBudget(4, ratio=1).open()
    granted = [ledger.spend(0, FAILURE) is not None for _ in range(3)]

    assert [True, False, False] == granted
    assert 1 == ledger.left(0)


def test_a_throttle_lets_hedges_by_without_a_token():
    """Hedges are granted like retries and take no token."""
    ledger = ThrottleBudget(4).open()

    assert 0 == ledger.spend(0, None)
    assert 4 == ledger.left(0)


@pytest.mark.parametrize("failure", [THROTTLED, LATE])
def test_a_throttle_may_be_free_for_some_failures(failure):
    """Failures that the target has not seen take no token, and their retries are always granted."""
    ledger = ThrottleBudget(4, free=("THROTTLED", TimeoutError)).open(1)

    assert (0, None, 0) == (ledger.spend(0, failure), ledger.spend(0, FAILURE), ledger.spend(0, failure))
    assert 0 == ledger.left(0)


@given(st.lists(st.booleans()), st.integers(1, 50), st.integers(1, 3000))
def test_a_throttle_stays_within_its_tokens(successes, tokens, thousandths):
    """There are never fewer than none nor more than all, to the thousandth."""
    budget = ThrottleBudget(tokens, ratio=thousandths / 1000)
    ledger = budget.open()
    for success in successes:
        ledger.succeed(0, None) if success else ledger.fail(0)
        assert 0 <= ledger.left(0) <= tokens

    assert thousandths / 1000 == budget.ratio


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TokenBudget(capacity=0), "capacity=0: it is a number, above 0"),
        (lambda: TokenBudget(cost=-1), "cost=-1: it is a number, zero or more"),
        (lambda: TokenBudget(increment=True), "increment=True"),
        (lambda: TokenBudget(cost=float("nan")), "cost=nan"),
        (lambda: TokenBudget(cost=float("inf")), "cost=inf"),
        (lambda: RatioBudget("0.1"), "ratio='0.1'"),
        (lambda: RatioBudget(minimum=-1), "minimum=-1"),
        (lambda: RatioBudget(ttl=0.9), "from 1 s to 60 s"),
        (lambda: RatioBudget(ttl="61s"), "ttl=.61s.: a ratio budget remembers"),
        (lambda: ConcurrencyBudget(floor=1.5), "floor=1.5: it is a whole number"),
        (lambda: ConcurrencyBudget(floor=-1), "floor=-1"),
        (lambda: ConcurrencyBudget(floor=True), "floor=True"),
        (lambda: ThrottleBudget(1001), "at most 1000"),
        (lambda: ThrottleBudget(ratio=0.0004), "at least 0.001"),
    ],
)
def test_invalid_numbers_are_refused(make, message):
    """Numbers out of their range are refused by name."""
    with pytest.raises(PolicyValueError, match=message):
        make()


@pytest.mark.parametrize("budget", BUDGETS)
def test_budgets_are_values(budget):
    """Budgets with equal numbers are equal, whatever their ledgers have counted."""
    twin = type(budget)(**budget.arguments())
    twin.open().spend(0, FAILURE)

    assert twin == budget
    assert twin != budget.with_(hold_back=True)


@pytest.mark.parametrize("budget", BUDGETS)
def test_every_ledger_accepts_all_calls(budget):
    """Every kind of budget accepts all calls of a whole call under a policy."""
    ledger = budget.open()
    ledger.begin(0)
    price = ledger.spend(0, FAILURE)
    ledger.release(0)
    ledger.succeed(0, price)
    ledger.fail(0)
    ledger.end(0)

    assert ledger.left(0) > 0


def test_a_budget_must_define_how_it_spends():
    """`Budget` and `Ledger` leave amounts and prices to each kind."""
    for ask in (Budget(hold_back=False).open, lambda: Ledger().spend(0, None), lambda: Ledger().left(0)):
        with pytest.raises(NotImplementedError):
            ask()


def test_the_reserve_of_a_ratio_budget():
    """`reserve` is the minimum times the time to live."""
    assert 100 == RatioBudget(0.2, minimum=10).reserve


def test_the_default_ratio_budget_is_a_careful_one():
    """By default a tenth of the calls and one retry a second are granted for ten seconds, at most 15 % more calls."""
    ledger = RatioBudget().open()
    calls = 200
    for _ in range(calls):
        ledger.begin(0)
    retries = sum(ledger.spend(0, FAILURE) is not None for _ in range(calls))

    assert RatioBudget(0.1, minimum=1, ttl=timedelta(seconds=10)) == RatioBudget()
    assert 1.15 == (calls + retries) / calls


def test_the_calls_in_flight_can_be_forgotten():
    """Calls and retries in flight are forgotten; balances stay."""
    counted, paid = ConcurrencyBudget(floor=1).open(), TokenBudget().open()
    for ledger in (counted, paid):
        ledger.begin(0.0)
        ledger.spend(0.0, None)
    left = paid.left(0.0)
    for ledger in (counted, paid):
        ledger.forget_calls()

    assert (1, left) == (counted.left(0.0), paid.left(0.0))
