"""One call's side of what it shares: the permit of its breaker, and its dealings with its budget.

A `redrive.retrying.run.Run` has a guard if its policy names a budget or a breaker. The breaker is asked once, before
the first attempt, and hears once how the whole call ended. The budget is asked at each retry that the policy has
decided on, before its backoff begins.

Whatever happens to the call (it returns, it raises, it is cancelled, a block is left by ``break``), what it holds is
given back exactly once. The last net is `Guard.__del__`, for blocks that are left between two attempts.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from redrive.errors import CircuitOpen
from redrive.policy import Defer, Failure, GiveUp, format_duration
from redrive.retrying.circuit_breaker import Permit
from redrive.retrying.plan import Plan
from redrive.retrying.shared import SharedBreaker, SharedBudget, resolve

__all__ = ["Guard"]

_ANSWERED = ("disabled", "not_matched", "permanent")
"""How a call ends whose target has answered, if not to its liking: none of the policy's business."""


class Guard:
    """What one call, or one hedged copy of it, holds.

    Args:
        plan: of the call.
        name: what is called.
        monotonic: reads the call's clock.
        hedging: whether this is a further copy of a call that has begun; then `afford` must have been asked.

    Raises:
        PolicyValueError: the policy names something that is not registered.
    """

    def __init__(self, plan: Plan, name: str, monotonic: Callable[[], float], *, hedging: bool = False) -> None:
        self._begun = False
        self._budget: SharedBudget | None = None
        self._breaker: SharedBreaker | None = None
        self._budget, self._breaker = resolve(plan.policy, name)
        self._name = name
        self._monotonic = monotonic
        self._permit: Permit | None = None
        self._price: float | None = None
        self._is_first = not hedging
        self._in_flight = False  # whether a retry that the budget has granted is under way
        self._asked = False  # whether the budget has heard of the latest failure
        self._retry_after: timedelta | None = None

    @property
    def hold_back(self) -> bool:
        """Whether a refused retry surfaces only after its backoff."""
        return self._budget is not None and self._budget.budget.hold_back

    def afford(self) -> bool:
        """Ask the budget for a hedge."""
        if self._budget is None:
            return True
        self._price = self._budget.spend(self._monotonic(), None, release=False)
        self._in_flight = self._begun = self._price is not None
        return self._begun

    def admit(self) -> GiveUp | None:
        """Begin the call; asked again, as each attempt of a block does, it changes nothing.

        Returns:
            None; or why the breaker refuses, then nothing was begun.
        """
        if self._permit is None and self._breaker is not None:
            try:
                self._permit = self._breaker.circuit.admit()
            except CircuitOpen as refused:
                wait = self._retry_after = refused.retry_after
                again = "" if wait is None else f", for {format_duration(wait)} at least"
                self.drop()
                return GiveUp(f"the circuit breaker {self._breaker.key!r} is open{again}", "breaker")
        if not self._begun:
            self._begun = True
            if self._budget is not None:
                self._budget.begin(self._monotonic())
        return None

    def refusal(self, why: str) -> CircuitOpen:
        """The error of a call that was not admitted."""
        return CircuitOpen(f"{self._name} was not called: {why}", retry_after=self._retry_after)

    def retry(self, failure: Failure) -> GiveUp | None:
        """Ask for a retry that the policy has decided on.

        Args:
            failure: what it is for.

        Returns:
            None if it is granted, else why not.
        """
        if self._budget is None:
            return None
        price = self._budget.spend(self._monotonic(), failure, release=self._in_flight)
        self._in_flight = price is not None
        self._asked = price is None
        if price is None:
            return GiveUp(f"the retry budget {self._budget.key!r} is used up", "budget")
        self._price = price
        return None

    def finish(self, ended: GiveUp | Defer | None, error: BaseException | None = None) -> None:
        """The call is over.

        Args:
            ended: what ended it; None if it succeeded.
            error: what it raised, if it did.
        """
        answered = ended is None or ended.rule in _ANSWERED
        if self._permit is not None and self._breaker is not None:
            counts = self._breaker.counts
            failed = not answered if counts is None or error is None else counts(error)
            (self._permit.failed if failed else self._permit.succeeded)()
        ok = True if ended is None else None if answered or self._asked else False
        self._settle(ok=ok)

    def drop(self) -> None:
        """Nobody knows how it ended, or nobody cares; nothing if it is over already."""
        if self._permit is not None:
            self._permit.dropped()
        self._settle(ok=None)

    def _settle(self, *, ok: bool | None) -> None:
        if self._begun and self._budget is not None:
            self._begun = False
            self._budget.settle(
                self._monotonic(), ok=ok, price=self._price, release=self._in_flight, end=self._is_first
            )
            self._in_flight = False

    def __del__(self) -> None:
        # Garbage is collected anywhere, also while this thread holds the budget's lock: leave a note and no more. (A
        # canary that is lost so counts as failed after its timeout.)
        if self._begun and self._budget is not None:
            self._budget.abandoned.append((self._in_flight, self._is_first))
