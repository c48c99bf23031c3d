"""Running scenarios: seeds, guests, errors; and the time that they run in."""

from __future__ import annotations

from math import inf

import pytest

from redrive import Policy
from redrive.errors import ConfigurationError
from redrive.policy.breaker import BreakerSettings
from redrive.policy.budget import RatioBudget, TokenBudget
from redrive.retrying import Hedge
from redrive.simulate import SCENARIOS, of_policy, run, scenario
from redrive.simulate.contender import DEFAULTS, NONE
from redrive.simulate.loop import Load, Loop, quantile
from redrive.simulate.run import Figure

MINE = of_policy("mine", Policy(on=OSError, attempts=2))


def test_the_same_seed_gives_the_same_run():
    """Two runs with one seed are equal, and another seed makes another one."""
    first, again, other = (run(scenario("contention"), seeds=(seed,), clients=20) for seed in (1, 1, 2))

    assert first == again
    assert first.rows != other.rows


def test_a_figure_has_the_spread_of_its_seeds():
    """Mean, smallest and largest are over all seeds."""
    singles = [
        run(scenario("contention"), [MINE], seeds=(n,), clients=9, alone=True).rows[0].figures[0].mean for n in (1, 2)
    ]
    together = run(scenario("contention"), [MINE], seeds=(1, 2), clients=9, alone=True).rows[0].figures[0]

    assert Figure(sum(singles) / 2, min(singles), max(singles)) == together


def test_an_added_contender_is_listed_after_the_others():
    """Contenders of the scenario come first."""
    finding = run(scenario("pushback"), [MINE], clients=3)

    assert [*(each.name for each in scenario("pushback").contenders), "mine"] == [row.contender for row in finding.rows]


@pytest.mark.parametrize("each", SCENARIOS, ids=lambda each: each.name)
def test_each_scenario_measures_a_policy_with_everything(each):
    """Budget, breaker and hedge by value, one client: as many figures as measures, none below zero."""
    whole = Policy(on=OSError, idempotent=True, hedge=Hedge("20ms"), budget="b", breaker="c")
    (row,) = run(each, [of_policy("all", whole)], clients=1, alone=True).rows

    assert len(each.measures) == len(row.figures)
    assert all(figure.low >= 0 for figure in row.figures)


def test_an_unknown_scenario_is_named_with_those_that_there_are():
    """Errors for unknown scenarios list the known ones."""
    with pytest.raises(ConfigurationError, match="there is no scenario 'storm'; there are contention, outage, "):
        scenario("storm")


@pytest.mark.parametrize(("clients", "seeds"), [(0, (0,)), (100_001, (0,)), (1, ())])
def test_invalid_numbers_of_clients_and_seeds_are_refused(clients, seeds):
    """No client, too many of them, or no seed: one line."""
    with pytest.raises(ConfigurationError, match="1 to 100000 clients, and one seed or more"):
        run(scenario("herd"), clients=clients, seeds=seeds)


def test_an_unknown_figure_is_a_key_error_with_the_names():
    """Errors for a misspelt row or column list the right ones."""
    with pytest.raises(KeyError, match="the columns"):
        run(scenario("pushback"), [MINE], clients=1, alone=True).figure("mine", "calls to early")


# -------------------------------------------------------------------------------------------------------- contenders


def test_a_policy_takes_the_defaults_of_the_process():
    """Failures in a simulation are retried, whatever the policy names; the deadline is that of a call.

    Late answers are retried unless the policy declares that calls may not be repeated.
    """
    assert Policy(on=Exception, attempts=2, idempotent=True).in_process() == MINE.policy
    assert of_policy("once", Policy(idempotent=False)).policy.idempotent is False


def test_a_budget_key_means_the_defaults_of_its_kind():
    """Keys stand for the defaults, since a simulation has no registry."""
    keyed = of_policy("keyed", Policy(on=OSError, idempotent=True, budget="b", breaker="c", hedge="d"))

    assert (TokenBudget(), BreakerSettings(), None) == (keyed.budget, keyed.breaker, keyed.hedge)


def test_the_label_of_a_contender_names_its_budget():
    """Only the numbers that are not the usual ones are shown."""
    named = [MINE.with_budget(each).name for each in (RatioBudget(0.2, minimum=10), TokenBudget())]

    assert ["mine + RatioBudget(ratio=0.2, minimum=10)", "mine + TokenBudget()"] == named


def test_unlimited_retries_keep_the_delays():
    """Only the bounds go; one attempt stays one."""
    policy = MINE.without_end().policy

    assert (None, MINE.policy.backoff, MINE.policy.jitter) == (policy.attempts, policy.backoff, policy.jitter)
    assert [None, None] == [DEFAULTS[2].without_end().attempts, DEFAULTS[2].without_end().timeout]
    assert NONE is NONE.without_end()


# --------------------------------------------------------------------------------------------------------------- time


def test_events_happen_in_the_order_of_their_instants():
    """Events at one instant happen in the order in which they were scheduled."""
    loop, seen = Loop(), []
    for name, after in (("c", 2.0), ("a", 1.0), ("b", 1.0)):
        loop.after(after, lambda name=name: seen.append((name, loop.now)))
    loop.run()

    assert [("a", 1.0), ("b", 1.0), ("c", 2.0)] == seen


def test_a_run_ends_before_an_instant():
    """Later events stay for the next run."""
    loop, seen = Loop(), []
    loop.after(1.0, lambda: seen.append(1))

    assert (False, []) == (loop.run(1.0), seen)
    assert (True, [1]) == (loop.run(), seen)


def test_a_load_is_counted_by_slices():
    """Slices contain their beginning and not their end."""
    load = Load(0.5)
    for at in (0.0, 0.1, 0.5, 1.2):
        load.arrive(at)

    assert [2, 1, 1, 0] == load.counts(0, 2)
    assert (4, 4.0) == (load.total, load.peak())


def test_a_quantile_is_one_of_the_values():
    """Quantiles of 1 are the largest value."""
    assert [1, 3, inf] == [quantile([3, 1, inf], share) for share in (0.0, 0.5, 1.0)]
