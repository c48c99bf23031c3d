"""One line per group at the end of a run: passed, deviating, failed.

A report of pytest has its outcome and, through ``user_properties``, its group or case; no other state is kept between
the two, so the lines come out the same when tests run in several processes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.conformance.groups import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

    from tests.conformance.loading import Case
    from tests.conformance.plan import CasePlan

__all__ = ["CASE", "CaseOutcomes", "summary_lines"]

CASE = "conformance_case"
"""The name of the property with which a report names its case."""


@dataclass
class CaseOutcomes:
    """The worst outcome of each case so far, by key."""

    outcomes: dict[str, str] = field(default_factory=dict)

    def add(self, report: pytest.TestReport) -> None:
        """Take one phase of one test into account."""
        outcome = _outcome(report)
        for name, key in report.user_properties:
            if name == CASE and outcome and _WORSE[outcome] >= _WORSE[self.outcomes.get(key, "passed")]:
                self.outcomes[key] = outcome


_WORSE = {"passed": 0, "deviating": 1, "skipped": 2, "failed": 3}


def _outcome(report: pytest.TestReport) -> str | None:
    if report.failed:
        return "failed"
    if report.skipped:
        return "deviating" if hasattr(report, "wasxfail") else "skipped"
    return "passed" if report.when == "call" else None


def summary_lines(plan: CasePlan, tally: CaseOutcomes) -> Iterator[str]:
    """Write the outcomes of each group.

    Args:
        plan: the cases and their treatment.
        tally: the outcomes.

    Yields:
        A line for each group, and a last one for all.
    """
    groups: dict[str, list[Case]] = {}
    for case in plan.cases:
        groups.setdefault(case.group_name, []).append(case)
    width = max(map(len, groups), default=0)
    for name, cases in groups.items():
        yield f"{name:<{width}}  {_counts(plan, tally, cases)}"
    yield f"{f'{len(groups)} groups':<{width}}  {_counts(plan, tally, plan.cases)}"


def _counts(plan: CasePlan, tally: CaseOutcomes, cases: Iterable[Case]) -> str:
    count = Counter(_word(plan, tally, case) for case in cases)
    always = [f"{count.pop(word, 0)} {word}" for word in ("passed", "deviating", "failed")]
    return ", ".join(always + [f"{number} {word}" for word, number in sorted(count.items())])


def _word(plan: CasePlan, tally: CaseOutcomes, case: Case) -> str:
    outcome = tally.outcomes.get(case.key)
    status = plan.listing.status_of(case)
    if outcome == "passed" and plan.deviations.of(case):
        return "deviating"  # a hand-written test passes because it asserts redrive's behaviour
    if outcome:
        return outcome
    if status is Status.NOT_YET:
        group = plan.listing.group_of(case)
        if group is None:
            return "not yet (not in groups.toml)"
        entry = group.waiting_for(case)
        return f"not yet (part {entry.part})" if entry and entry.part != "later" else "not yet (later)"
    return "not in this run" if status is Status.TABLE else "hand-written, not in this run"
