"""Circuit breakers of attempts: an attempt asks the breaker of its policy, and reports to it how it has ended."""

from __future__ import annotations

from redrive.policy import Decision, Failure, GiveUp, Policy, Stage
from redrive.policy.breaker import NOT_COUNTED
from redrive.retrying.circuit_breaker import Permit
from redrive.retrying.shared import SharedBreaker, resolve


class Permission:
    """The permission to make an attempt; also that of a policy without a breaker."""

    def __init__(self, breaker: SharedBreaker | None = None, permit: Permit | None = None) -> None:
        self._breaker, self._permit = breaker, permit

    @classmethod
    def of(cls, policy: Policy | None, name: str) -> Permission:
        """Ask the breaker of a policy. Each process has breakers of its own.

        Raises:
            CircuitOpen: it refuses.
            PolicyValueError: no breaker is registered under the key of the policy.
        """
        if policy is None or policy.breaker is None:
            return cls()
        _, breaker = resolve(policy, name)
        assert breaker is not None  # the policy names one
        return cls(breaker, breaker.circuit.admit())

    def succeeded(self) -> None:
        """Report a success."""
        permit = self._take()
        if permit is not None:
            permit.succeeded()

    def failed(self, error: Exception | None, failure: Failure, decision: Decision) -> None:
        """Report a failure. One that the policy would not retry is an answer, as in `redrive.runtime.breakers`."""
        permit = self._take()
        if permit is not None and self._breaker is not None:
            counts = self._breaker.counts
            counted = not (isinstance(decision, GiveUp) and decision.rule in NOT_COUNTED)
            failed = counted if counts is None or error is None else counts(error)
            permit.report(failed=failed, answered=failure.stage is Stage.ANSWERED)

    def close(self) -> None:
        """Report that the attempt has neither succeeded nor failed, unless it has reported already."""
        permit = self._take()
        if permit is not None:
            permit.dropped()

    def _take(self) -> Permit | None:
        permit, self._permit = self._permit, None
        return permit
