"""What a policy must reach to be called good, each with its source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from redrive.simulate import ScenarioResult

__all__ = ["TARGETS", "Target"]

RATIO = "redrive + RatioBudget()"
FINAGLE = "redrive + RatioBudget(ratio=0.2, minimum=10)"
TOKENS = "redrive + TokenBudget()"
FULL, EQUAL, DECORRELATED = (f"redrive, 10ms 2s{kind}" for kind in ("", ", equal", ", decorrelated"))
HEDGED = 'redrive, Hedge("20ms")'


@dataclass(frozen=True, slots=True)
class Target:
    """One bound.

    Attributes:
        scenario: its name.
        contender: the contender that it applies to.
        measure: the column.
        text: the bound in words.
        most: the largest permitted figure; or, if ``at_least``, the smallest.
        at_least: the bound is a lower one.
        source: origin of the bound.
    """

    scenario: str
    contender: str
    measure: str
    text: str
    most: Callable[[ScenarioResult], float]
    source: str
    at_least: bool = False

    def met(self, finding: ScenarioResult) -> bool:
        """Return True if the mean of all seeds keeps the bound."""
        mean, bound = finding.figure(self.contender, self.measure).mean, self.most(finding)
        return mean >= bound if self.at_least else mean <= bound


def _constant(value: float) -> Callable[[ScenarioResult], float]:
    return lambda _: value


def _times(factor: float, contender: str, measure: str) -> Callable[[ScenarioResult], float]:
    return lambda finding: factor * finding.figure(contender, measure).mean


_NOISE = 1.05

TARGETS = (
    Target("contention", FULL, "calls", "797 calls, within 5 %", _constant(797 * _NOISE), "published simulation"),
    Target("contention", FULL, "calls", "that of equal jitter, within 5 %", _times(_NOISE, EQUAL, "calls"), "ours"),
    Target(
        "contention", FULL, "completion", "at most 5.0 s, within 5 %", _constant(5.025 * _NOISE), "published simulation"
    ),
    Target("outage", RATIO, "amplification", "at most 1.15", _constant(1.15), "SRE book: 1.1"),
    Target("outage", TOKENS, "amplification", "at most 1.15", _constant(1.15), "SRE book: 1.1"),
    Target("flaky", "redrive", "success at 1 %", "at least 99.9 %", _constant(99.9), "ours", at_least=True),
    Target("flaky", "redrive", "success at 10 %", "at least 99 %", _constant(99.0), "ours", at_least=True),
    Target("flaky", RATIO, "success at 10 %", "at least 99 %", _constant(99.0), "ours", at_least=True),
    Target("flaky", TOKENS, "success at 10 %", "at least 99 %", _constant(99.0), "ours", at_least=True),
    Target("stack", RATIO, "5 layers", "at most 1.2", _constant(1.2), "SRE book: one layer retries"),
    Target("stack", TOKENS, "5 layers", "at most 1.2", _constant(1.2), "SRE book: one layer retries"),
    Target("herd", "redrive", "peak / mean", "at most 1.6", _constant(1.6), "ours"),
    Target("herd", "redrive", "equal delays", "0 %", _constant(0.05), "ours"),
    Target("pushback", "redrive", "calls too early", "0", _constant(0), "RFC 9110"),
    Target("deadline", "redrive, coroutines", "longest overshoot", "0 s", _constant(0), "ours"),
    Target("deadline", "redrive, plain functions", "longest overshoot", "one attempt: 2 s", _constant(2), "ours"),
    *(
        Target("metastable", name, "recovery", "twice that of no retries", _times(2, "no retries", "recovery"), "ours")
        for name in ("redrive", RATIO, FINAGLE, TOKENS, "redrive + ThrottleBudget()", "redrive + breaker")
    ),
    Target("tail", HEDGED, "p99.9", "a tenth of redrive's", _times(0.1, "redrive", "p99.9"), "The Tail at Scale"),
    Target("tail", HEDGED, "extra calls", "at most 5 %", _constant(5), "The Tail at Scale"),
    Target("isolation", "redrive", "calls that differ", "0", _constant(0), "ours"),
)
