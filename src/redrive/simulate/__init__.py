"""Simulation: what a policy does to those who call and to what they call, before anybody is called.

Answers: how many calls does this policy make in an outage, among a thousand clients, on a target that is nearly full,
beside other libraries and the textbook? May import: `redrive.policy`, the pure value `redrive.policy.hedge.Hedge`,
and its own seeded dice. Must never: read a clock, wait, do I/O, or decide anything about a failure by itself.

The ten scenarios replay what the field has published about retries: Amazon's contending writers, the outages and
stacked layers of Google's SRE book, Brooker's budgets, Bronson's metastable failures, Dean and Barroso's tail. Time
is a queue of events (`redrive.simulate.loop`), luck is a seed. What a call does after a failure is asked of the policy
itself, with the ledgers and the breaker that calls in a program use (`redrive.simulate.client`)::

    from redrive import Policy
    from redrive.simulate import of_policy, run, scenario

    finding = run(scenario("outage"), [of_policy("mine", Policy(on=OSError, attempts=5))])
    finding.figure("mine", "calls per call").mean

``redrive simulate`` shows the same in a terminal, and ``python -m benchmarks.quality`` writes the figures of the
documentation.
"""

from __future__ import annotations

from redrive.simulate.contender import Contender, of_policy
from redrive.simulate.run import Figure, FigureRow, ScenarioResult, run, scenario
from redrive.simulate.scenarios import SCENARIOS, Quantity, Scenario

__all__ = [
    "SCENARIOS",
    "Contender",
    "Figure",
    "FigureRow",
    "Quantity",
    "Scenario",
    "ScenarioResult",
    "of_policy",
    "run",
    "scenario",
]
