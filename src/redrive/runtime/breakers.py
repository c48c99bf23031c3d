"""Circuit breakers before durable attempts: while one is open, its jobs are parked and nothing is spent.

A policy with ``breaker=`` shares a breaker with whatever else names it, in this process: calls and durable attempts
alike. It is asked just before the handler would run. If it is open, the job goes back to its queue with the hold
``breaker`` until the breaker lets somebody try again; its attempts and failures stay as they are, and the reason stands
on the job (conformance D12: at peers, an outage of a dependency uses up the retries of every job that needs it).

An attempt reports once how it ended. What the policy would not have retried is an answer of the target and not a
failure, as in `redrive.retrying`, unless the breaker itself says what counts. A handler that asked for something else
(a snooze, an answer from outside, a cancellation) has told nothing.

The attempt that is let through to find out, one a cool-down, is an attempt like any other: if it fails, that is one of
the job's retries. So it should not be the same job each time: those that have failed more often come back later.

A breaker knows what its own process has seen: with three workers, each finds out for itself, and each sends one probe
a cool-down.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from redrive.app.app import App
from redrive.app.task import Task
from redrive.engine.lease import UNKNOWN_TASK_DELAY
from redrive.engine.outcome import Failed, Outcome, Released, Succeeded
from redrive.engine.records import Claim, Hold
from redrive.errors import CircuitOpen, PolicyValueError
from redrive.policy import GiveUp, History, Policy, format_duration
from redrive.retrying.circuit_breaker import Permit
from redrive.retrying.context import using
from redrive.retrying.shared import SharedBreaker, resolve

__all__ = ["Passage", "admit"]

_ANSWERED = ("not_matched", "permanent")
"""Why a policy gives up on a failure that is an answer."""

_STEP_BACK = timedelta(milliseconds=100)
_MOST = 50
"""For each failure, up to so many, a parked job comes back so much later than those that have none."""

_A_MOMENT = timedelta(seconds=1)
"""How long a job is parked where the breaker does not say how long it stays open."""


class Passage:
    """An attempt that may run, and what it has to report.

    Args:
        claim: the attempt.
        policy: that names the breaker.
        breaker: who let it pass; None where nobody was asked.
        permit: by which it reports.
        app: whose clock tells the time, in tests.

    Attributes:
        claim: the attempt.
        error: what the handler raised, if it did.
    """

    def __init__(
        self, claim: Claim, policy: Policy, breaker: SharedBreaker | None, permit: Permit | None, app: App
    ) -> None:
        self.error: BaseException | None = None
        self.claim = claim
        self._policy = policy
        self._breaker = breaker
        self._permit = permit
        self._app = app

    def tell(self, outcome: Outcome) -> None:
        """Report how the attempt ended.

        Args:
            outcome: how.
        """
        if self._permit is None:
            return
        with _time_of(self._app):
            match outcome:
                case Succeeded():
                    self._permit.succeeded()
                case Failed() if self._is_failure(outcome):
                    self._permit.failed()
                case Failed():
                    self._permit.succeeded()
                case _:
                    self._permit.dropped()

    def drop(self) -> None:
        """Nobody knows how it ended: the worker took the slot away."""
        if self._permit is not None:
            with _time_of(self._app):
                self._permit.dropped()

    def _is_failure(self, failed: Failed) -> bool:
        counts = self._breaker.counts if self._breaker else None
        if counts is not None and self.error is not None:
            return counts(self.error)
        claim = self.claim
        history = History(claim.failures + 1, claim.started_at, claim.last_delay, claim.by_rule)
        try:
            decision = self._policy.decide(history, failed.failure, claim.claimed_at, 0.0)
        except Exception:  # noqa: BLE001 - a backoff function of the user's; the settler reports it
            return True
        return not (isinstance(decision, GiveUp) and decision.rule in _ANSWERED)


def admit(app: App, task: Task[Any, Any, Any], claim: Claim) -> Passage | Released:
    """Ask the breaker of a job's policy, if it names one, whether its handler may run.

    Args:
        app: whose clock tells the time, in tests.
        task: of the job.
        claim: the attempt.

    Returns:
        The passage, or how the job is given back.
    """
    # A catch job carries the policy of its parent, but it does not call what its parent called.
    policy = task.policy if claim.catching else claim.policy
    if policy.breaker is None:
        return Passage(claim, policy, None, None, app)
    try:
        _, breaker = resolve(policy, task.name)
    except PolicyValueError as error:
        return Released(str(error), UNKNOWN_TASK_DELAY, Hold.BREAKER)
    assert breaker is not None  # noqa: S101 - the policy names one
    with _time_of(app):
        try:
            permit = breaker.circuit.admit()
        except CircuitOpen as refused:
            left = (refused.retry_after or _A_MOMENT) + min(claim.failures, _MOST) * _STEP_BACK
            why = f"the circuit breaker {breaker.key!r} is open, for {format_duration(left)} at least"
            return Released(why, left, Hold.BREAKER)
    return Passage(claim, policy, breaker, permit, app)


def _time_of(app: App) -> AbstractContextManager[None]:
    return contextlib.nullcontext() if app.clock is None else using(clock=app.clock)
