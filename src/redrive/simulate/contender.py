"""The policies that a scenario compares: defaults of redrive and of two other libraries, and the textbook. PURE.

=============  ===================================================================================================
contender      policy
=============  ===================================================================================================
no retries     one attempt: the cost of a scenario by itself
redrive        ``Policy(on=...)``: 3 attempts, 100 ms doubling to 5 s under full jitter, 45 s in all, its own budget
tenacity       ``@tenacity.retry``: without end, without a wait
stamina        ``@stamina.retry(on=...)``: 10 attempts, ``min(5, 0.1 * 2 ** (n - 1) + uniform(0, 1))``, 45 s
exponential    3 attempts, 100 ms doubling to 5 s without jitter
=============  ===================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from redrive.policy import Policy
from redrive.policy.breaker import BreakerSettings
from redrive.policy.budget import OWN, Budget, TokenBudget
from redrive.policy.hedge import Hedge
from redrive.simulate.client import FormulaClient, PolicyClient, SimulatedClient


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy with a name, of redrive or of another library.

    Attributes:
        name: as it stands in tables.
        policy: redrive's; None for another library.
        budget: shared by all calls of a process.
        breaker: the same.
        hedge: when copies are sent.
        wait: the other library's formula: attempts so far and a sample give seconds.
        attempts: of the other library; None for no limit.
        timeout: of the other library, in seconds; None for none.
    """

    name: str
    policy: Policy | None = None
    budget: Budget | None = None
    breaker: BreakerSettings | None = None
    hedge: Hedge | None = None
    wait: Callable[[int, float], float] | None = None
    attempts: int | None = None
    timeout: float | None = None

    def open(self) -> SimulatedClient:
        """Return a client: one process that has made no call yet."""
        if self.policy is not None:
            return PolicyClient(self.policy, self.budget, self.breaker)
        return FormulaClient(self.wait or _no_wait, self.attempts, self.timeout)

    @property
    def yields(self) -> bool:
        """Return True if the policy leaves retries to a retrying call above it."""
        return self.policy is not None and self.policy.nested == "outer"

    # The formulas of the libraries are those that they publish; ``python -m benchmarks.quality`` compares them with the
    # installed libraries. A scenario changes a policy only where it must (`Contender.without_end`): clients that give
    # up after three attempts would not form a herd.
    def without_end(self) -> Contender:
        """Return the same delays without a limit of attempts, and without a budget."""
        if self.policy is None:
            return self if self is NONE else replace(self, attempts=None, timeout=None)
        return replace(self, policy=self.policy.with_(attempts=None, deadline="1d"), budget=None)

    def with_budget(self, budget: Budget) -> Contender:
        """Return the same policy behind a budget."""
        said = f"{type(budget).__name__}({_numbers(budget)})"
        return replace(self, name=f"{self.name} + {said}", budget=budget)

    def with_breaker(self, breaker: BreakerSettings) -> Contender:
        """Return the same policy behind a circuit breaker."""
        return replace(self, name=f"{self.name} + breaker", breaker=breaker)


def of_policy(name: str, policy: Policy) -> Contender:
    """Return a contender for a policy of redrive.

    Failures in a simulation are always those that the policy retries, so ``on`` has no effect. Simulated calls may be
    repeated: an answer that comes too late is retried unless the policy has ``idempotent=False``. A policy that names
    no budget has the default one. A budget, a breaker or a hedge that is named by a key is not registered here: a
    budget is taken as ``TokenBudget()``, a breaker as ``BreakerSettings()``, and a hedge by key is left out.

    Args:
        name: its name in tables.
        policy: in any form, with the other defaults of calls in process.
    """
    shared = {field: getattr(policy, field) for field in ("budget", "breaker", "hedge")}
    plain = policy.with_(on=Exception, on_result=None, budget=..., breaker=None, hedge=None).durable().in_process()
    budget, breaker, hedge = shared.values()
    own = None if policy.budget_given else OWN
    return Contender(
        name,
        plain,
        TokenBudget() if isinstance(budget, str) else getattr(budget, "budget", own),
        BreakerSettings() if isinstance(breaker, str) else getattr(breaker, "settings", None),
        hedge if isinstance(hedge, Hedge) else None,
    )


def exponential(initial: float, maximum: float, attempts: int | None = 3) -> Contender:
    """Return exponential backoff without jitter, in seconds; ``attempts`` is None for no limit."""
    return Contender(
        "exponential", wait=lambda number, _: min(maximum, initial * 2.0 ** (number - 1)), attempts=attempts
    )


def stamina_wait(number: int, sample: float) -> float:
    """Return stamina's delay after some attempts: the jitter is added before the cap, so late delays are the cap."""
    return min(5.0, 0.1 * 2.0 ** (number - 1) + sample)


def _no_wait(number: int, sample: float) -> float:  # noqa: ARG001 - tenacity's `wait_none`
    return 0.0


def _numbers(budget: Budget) -> str:
    kind: Any = type(budget)
    usual = kind().arguments()
    found = [(name, value) for name, value in budget.arguments().items() if value != usual[name]]
    return ", ".join(f"{name}={value}" for name, value in found)


NONE = Contender("no retries", attempts=1)
REDRIVE = of_policy("redrive", Policy(on=Exception))
#: What the default budget adds is the difference from this one.
UNLIMITED = of_policy("redrive, budget=None", Policy(on=Exception, budget=None))
#: The defaults of each library, and plain exponential backoff with redrive's numbers.
DEFAULTS = (
    REDRIVE,
    Contender("tenacity"),
    Contender("stamina", wait=stamina_wait, attempts=10, timeout=45.0),
    exponential(0.1, 5.0),
)
