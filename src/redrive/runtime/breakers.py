"""Circuit breakers of durable attempts: while one is open, its jobs are parked and no attempt is spent.

The breaker of a policy is asked just before the handler would run. If it is open, the job returns to its queue with the
hold ``breaker`` until the breaker admits a probe; its attempts and failures stay as they are. Without that, an outage
of a dependency would use up the retries of every job that needs it.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from redrive.app.app import App
from redrive.app.tasks.task import Task
from redrive.engine.lease import UNKNOWN_TASK_DELAY
from redrive.engine.outcome import Failed, Outcome, Released, Succeeded
from redrive.engine.records import Claim, Hold
from redrive.errors import CircuitOpen, PolicyValueError
from redrive.policy import GiveUp, History, Policy, Stage, format_duration
from redrive.policy.breaker import NOT_COUNTED
from redrive.retrying.circuit_breaker import Permit
from redrive.retrying.context import using
from redrive.retrying.shared import SharedBreaker, resolve

# A probe is an attempt like any other: its failure is one of the job's retries. So that it is not the same job each
# time, jobs with more failures come back later. Each worker has breakers of its own and sends its own probes.
_DELAY_PER_FAILURE = timedelta(milliseconds=100)
# The number of failures beyond which a parked job comes back no later.
_MAX_FAILURES = 50

# The delay of a parked job if the breaker does not give one.
_DEFAULT_DELAY = timedelta(seconds=1)


class Admission:
    """An attempt that a breaker has admitted, or that has no breaker."""

    def __init__(
        self, claim: Claim, policy: Policy, breaker: SharedBreaker | None, permit: Permit | None, app: App
    ) -> None:
        self.error: BaseException | None = None
        self.claim = claim
        self._policy = policy
        self._breaker = breaker
        self._permit = permit
        self._app = app

    def record(self, outcome: Outcome) -> None:
        """Report to the breaker how the attempt ended."""
        if self._permit is None:
            return
        with _time_of(self._app):
            match outcome:
                case Succeeded():
                    self._permit.succeeded()
                case Failed(failure):
                    answered = failure.stage is Stage.ANSWERED
                    self._permit.report(failed=self._is_failure(outcome), answered=answered)
                case _:
                    self._permit.dropped()

    def drop(self) -> None:
        """Report to the breaker that the attempt was cancelled by the worker."""
        if self._permit is not None:
            with _time_of(self._app):
                self._permit.dropped()

    # An attempt reports once how it ended. A failure that the policy would not retry is an answer of the target and
    # counts as a success, as in `redrive.retrying`, unless the breaker has its own predicate. A snooze, a suspension
    # and a cancellation count as neither.
    def _is_failure(self, failed: Failed) -> bool:
        counts = self._breaker.counts if self._breaker else None
        if counts is not None and self.error is not None:
            return counts(self.error)
        claim = self.claim
        history = History(claim.failures + 1, claim.started_at, claim.last_delay, claim.by_rule)
        try:
            decision = self._policy.decide(history, failed.failure, claim.claimed_at, 0.0)
        except Exception:  # noqa: BLE001 - a backoff function of the user; the settler reports the error
            return True
        return not (isinstance(decision, GiveUp) and decision.rule in NOT_COUNTED)


def admit(app: App, task: Task[Any, Any, Any], claim: Claim) -> Admission | Released:
    """Ask the breaker of the job's policy, if it has one. Return the admission, or the outcome that parks the job."""
    # A catch job carries the policy of its parent, but its handler does not call the same target.
    policy = task.policy if claim.catching else claim.policy
    if policy.breaker is None:
        return Admission(claim, policy, None, None, app)
    try:
        _, breaker = resolve(policy, task.name)
    except PolicyValueError as error:
        return Released(str(error), UNKNOWN_TASK_DELAY, Hold.BREAKER)
    assert breaker is not None  # the policy names one
    with _time_of(app):
        try:
            permit = breaker.circuit.admit()
        except CircuitOpen as refused:
            left = (refused.retry_after or _DEFAULT_DELAY) + min(claim.failures, _MAX_FAILURES) * _DELAY_PER_FAILURE
            why = f"the circuit breaker {breaker.key!r} is open, for {format_duration(left)} at least"
            return Released(why, left, Hold.BREAKER)
    return Admission(claim, policy, breaker, permit, app)


def _time_of(app: App) -> AbstractContextManager[None]:
    return contextlib.nullcontext() if app.clock is None else using(clock=app.clock)
