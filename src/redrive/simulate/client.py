"""One process that calls a target: the state that its calls share, and the decision about each failure. PURE."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from redrive.policy import Failure, History, Policy, Retry, Stage
from redrive.policy.breaker import (
    NOT_COUNTED,
    Admitted,
    Ask,
    BreakerSettings,
    Dropped,
    Event,
    FailureReport,
    SuccessReport,
    initial,
    step,
)
from redrive.policy.budget import Budget, Ledger

# The instant zero of a simulation.
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class SimulatedCall(Protocol):
    """One call of a function that is retried."""

    def failed(self, failure: Failure, now: float, sample: float) -> float | None:
        """Return the seconds before the next attempt after a failure; None if the call has failed."""
        ...

    def succeeded(self, now: float) -> None:
        """Record the success of an attempt."""


class SimulatedClient(Protocol):
    """What the calls of one process share."""

    def begin(self, now: float) -> SimulatedCall | None:
        """Start a call; return None if it is refused before an attempt is sent."""
        ...

    def afford(self, now: float) -> bool:
        """Return True if the budget grants a hedge, a copy of a call."""
        ...


# Scenarios know a `SimulatedClient` and its `SimulatedCall`; they do not know which library implements them.
# `PolicyClient` is redrive: it asks the same `redrive.policy.Policy.decide` that a call in a program asks, in the same
# order of budget and breaker as `redrive.retrying.shared.Guard`, with the same ledgers and the same breaker.
# `FormulaClient` is any other library, as its documentation writes it down.
class PolicyClient:
    """Calls under a policy with the defaults of a call in process; all calls share the budget and the breaker."""

    def __init__(self, policy: Policy, budget: Budget | None = None, breaker: BreakerSettings | None = None) -> None:
        self.policy = policy
        self.ledger: Ledger = Ledger() if budget is None else budget.open()
        self.has_budget: bool = budget is not None
        self._settings = breaker
        self._breaker = None if breaker is None else initial(breaker)

    def begin(self, now: float) -> _PolicyCall | None:
        """See `SimulatedClient.begin`."""
        token = 0
        if self._settings is not None and self._breaker is not None:
            self._breaker, answer = step(self._settings, self._breaker, Ask(), now)
            if not isinstance(answer, Admitted):
                return None
            token = answer.token
        self.ledger.begin(now)
        return _PolicyCall(self, now, token)

    def afford(self, now: float) -> bool:
        """See `SimulatedClient.afford`."""
        return not self.has_budget or self.ledger.spend(now, None) is not None

    def report(self, event: Event, now: float) -> None:
        """Report the result of a call to the breaker."""
        if self._settings is not None and self._breaker is not None:
            self._breaker, _ = step(self._settings, self._breaker, event, now)


class _PolicyCall:
    """One call under a policy, as `redrive.retrying.state.CallState` makes it."""

    __slots__ = ("_client", "_history", "_price", "_token")

    def __init__(self, client: PolicyClient, now: float, token: int) -> None:
        self._client = client
        self._history = History(1, EPOCH + timedelta(0, now))
        self._price: float | None = None
        self._token = token

    def failed(self, failure: Failure, now: float, sample: float) -> float | None:
        client, at = self._client, EPOCH + timedelta(0, now)
        decision = client.policy.decide(self._history, failure, at, sample)
        refused = False
        if isinstance(decision, Retry) and decision.rule != "deadline":
            if not client.has_budget or self._granted(failure, now):
                self._history = client.policy.advance(self._history, failure, decision.delay, now=at, sample=sample)
                return decision.delay.total_seconds()
            refused = True
        passed = decision.rule in NOT_COUNTED
        if not passed and not refused:
            client.ledger.fail(now)
        report = FailureReport if not passed else SuccessReport if failure.stage is Stage.ANSWERED else Dropped
        self._end(now, report(self._token))
        return None

    def succeeded(self, now: float) -> None:
        if self._price is not None:
            self._client.ledger.release(now)
        self._client.ledger.succeed(now, self._price)
        self._price = None
        self._end(now, SuccessReport(self._token))

    def _granted(self, failure: Failure, now: float) -> bool:
        ledger = self._client.ledger
        if self._price is not None:
            ledger.release(now)
        self._price = ledger.spend(now, failure)
        return self._price is not None

    def _end(self, now: float, event: Event) -> None:
        if self._price is not None:
            self._client.ledger.release(now)
        self._client.ledger.end(now)
        self._client.report(event, now)


class FormulaClient:
    """Calls under a formula.

    Args:
        wait: seconds after so many attempts, with this sample.
        attempts: executions at most; None for no limit.
        timeout: seconds from the start after which no attempt is added, asked *after* an attempt, as tenacity's
            ``stop_after_delay`` has it, which stamina uses; None for no limit.
    """

    def __init__(
        self, wait: Callable[[int, float], float], attempts: int | None = None, timeout: float | None = None
    ) -> None:
        self.wait = wait
        self.attempts = attempts
        self.timeout = timeout

    def begin(self, now: float) -> _FormulaCall:
        """See `SimulatedClient.begin`."""
        return _FormulaCall(self, now)

    def afford(self, now: float) -> bool:  # noqa: ARG002 - there is nothing to share
        """See `SimulatedClient.afford`."""
        return True


class _FormulaCall:
    """One call under a formula."""

    __slots__ = ("_client", "_number", "_started")

    def __init__(self, client: FormulaClient, now: float) -> None:
        self._client = client
        self._number = 0
        self._started = now

    def failed(self, failure: Failure, now: float, sample: float) -> float | None:  # noqa: ARG002 - all are the same
        self._number += 1
        client = self._client
        if client.attempts is not None and self._number >= client.attempts:
            return None
        if client.timeout is not None and now - self._started >= client.timeout:
            return None
        return client.wait(self._number, sample)

    def succeeded(self, now: float) -> None:
        """See `SimulatedCall.succeeded`."""
