"""Reduction of the plan of a failing simulation.

Steps are left out, many at once and then one by one, as long as the same invariant is violated. A run of a plan
is exact, so each candidate is run once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.simulation.faults import Plan
from tests.simulation.invariants import Violation

__all__ = ["shrink"]


def shrink(plan: Plan, run: Callable[[Plan], Violation | None]) -> tuple[Plan, Violation]:
    """Find a plan without superfluous steps.

    Args:
        plan: a failing plan.
        run: function that runs a plan, and returns the violated invariant.

    Returns:
        The shortest plan that was found, and its violated invariant.

    Raises:
        ValueError: the plan does not fail."""
    violation = run(plan)
    if violation is None:
        message = f"nothing to shrink: seed {plan.seed} does not fail"
        raise ValueError(message)
    before = None
    while plan != before:
        before = plan
        plan, violation = _smaller(plan, violation, run)
    return plan, violation


def _smaller(plan: Plan, violation: Violation, run: Callable[[Plan], Violation | None]) -> tuple[Plan, Violation]:
    """Leave out steps, workers and slots once. A smaller fleet may need fewer steps, so that this is repeated."""
    chunk = len(plan.steps)
    while chunk:
        start = 0
        while start < len(plan.steps):
            smaller = plan.without(set(range(start, start + chunk)))
            found = run(smaller)
            if found is not None and found.name == violation.name:
                plan, violation = smaller, found
            else:
                start += chunk
        chunk //= 2
    for smaller in (replace(plan, workers=1), replace(plan, slots=1)):
        found = run(smaller) if _fits(smaller) else None
        if found is not None and found.name == violation.name:
            plan, violation = smaller, found
    return plan, violation


def _fits(plan: Plan) -> bool:
    """Return True if each step concerns a worker that the fleet has."""
    workers = {f"w{index}" for index in range(plan.workers)}
    return all(step.target in workers for step in plan.steps if step.target.startswith("w"))
