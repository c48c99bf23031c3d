"""Simulation of retry policies: their effect on callers and on the called service, in virtual time. PURE.

May import: `redrive.policy`, the pure value `redrive.retrying.hedging.Hedge`, and its own seeded random numbers. Must
never: read a clock, wait, do I/O, or decide about a failure by itself.

The ten scenarios reproduce published results about retries: Amazon's contending writers, the outages and stacked layers
of Google's SRE book, Brooker's budgets, Bronson's metastable failures, Dean and Barroso's tail latency. Time is a queue
of events (`redrive.simulate.loop`), random numbers are seeded. The policy itself decides what a call does after a
failure, with the budgets and the breaker that calls in a program use (`redrive.simulate.client`)::

    from redrive import Policy
    from redrive.simulate import of_policy, run, scenario

    finding = run(scenario("outage"), [of_policy("mine", Policy(on=OSError, attempts=5))])
    finding.figure("mine", "calls per call").mean

``redrive simulate`` prints the same in a terminal, and ``python -m benchmarks.quality`` writes the figures of the
documentation.
"""

from redrive.simulate.contender import Contender, of_policy
from redrive.simulate.run import Figure, FigureRow, ScenarioResult, run, scenario
from redrive.simulate.scenarios import SCENARIOS
from redrive.simulate.scenarios.scenario import Quantity, Scenario

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
