"""One attempt of a task: it runs the function, asks the policy after a failure, and does what that decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NoReturn

from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded
from celery.exceptions import Retry as CeleryRetry

from redrive import observe
from redrive.app.tasks.failures import failed
from redrive.contrib.celery.catch import end
from redrive.contrib.celery.message import Message
from redrive.contrib.other_engines import SHORT, CatchRequest, Permission, call_hooks, decide
from redrive.engine.settle import catch_wait
from redrive.errors import Cancel, CircuitOpen, OutcomeUnknown, PolicyValueError, RedriveError, Snooze
from redrive.observe.logs import logger
from redrive.policy import Failure, GiveUp, History, Policy, Retry, Stage, format_duration, parse_duration
from redrive.policy.carried import CarriedAttempt
from redrive.policy.duration import ZERO
from redrive.policy.outcome import RetryDetails
from redrive.retrying.context import SCOPE
from redrive.retrying.rng import roll
from redrive.runtime import layers

log = logger("redrive.celery")

# The wait for a breaker that does not give one.
_PAUSE = timedelta(seconds=1)


class Attempt:
    """An attempt in a worker, or in the process of the caller (``apply``)."""

    def __init__(self, task: Any) -> None:
        self._task = task
        self._message = Message(task, task.request)
        #: None for a catch task, too, which is repeated until it succeeds.
        self._policy: Policy | None = None if self._message.is_catch else task.policy
        self._began = self._message.at
        scope = SCOPE.get()
        self._sample = roll() if scope is None else scope.roll()

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        """Run the function; return its result, or raise what tells Celery how the attempt has ended."""
        self._begin()
        permission = self._admitted()
        if self._message.is_catch:
            args = (CatchRequest.from_dict(args[0]),)
        # A retried call in the task leaves to its policy what that would retry.
        layer = layers.begin(self._task.name, self._policy, self._began)
        try:
            result = function(*args, **kwargs)
        except (CeleryRetry, Ignore, Reject):
            raise
        except Snooze as snooze:
            self._put_off(parse_duration(snooze.delay), snooze)
        except Cancel as cancel:
            raise Ignore(str(cancel)) from cancel
        except Exception as error:
            self._failed(error, permission)
            raise
        else:
            self._succeeded(result, permission)
            return result
        finally:
            layers.end(layer)
            permission.close()

    # ------------------------------------------------------------------------------------------------ before the call

    def _begin(self) -> None:
        """Wait until the attempt is due, or end the call without one."""
        message, policy = self._message, self._policy
        try:
            message.read()
        except PolicyValueError as error:
            failure = Failure((), str(error), "BAD_PAYLOAD", permanent=str(error))
            self._end(failure, GiveUp(str(error), "permanent"))
            raise
        past = message.past
        if past.due is not None and not message.is_eager:
            rest = past.due - self._began
            if rest > SHORT:
                raise message.send_again(past, rest, None)
            message.clock.sleep(max(rest, ZERO).total_seconds())
        if policy is None:
            return
        if policy.idempotent is False and self._task.acks_late and message.is_redelivered:
            why = "delivered again after its worker was lost, and the task is declared idempotent=False: not repeated"
            self._end(Failure((), why, "LOST_IN_FLIGHT", Stage.IN_FLIGHT), GiveUp(why, "not_idempotent"))
            raise OutcomeUnknown(why)
        limit = policy.deadline
        if message.is_repeated and limit is not None and self._began >= past.history.started_at + limit:
            why = f"the deadline of {format_duration(limit)} had passed before the attempt could start"
            self._end(Failure((), why, "DEADLINE"), GiveUp(why, "deadline"))
            raise RedriveError(why)

    def _admitted(self) -> Permission:
        """Ask the breaker of the policy; while it is open the message comes back later, and nothing is charged."""
        try:
            return Permission.of(self._policy, self._task.name)
        except CircuitOpen as refused:
            if self._message.is_eager:
                raise
            self._put_off(refused.retry_after or _PAUSE, refused)

    # ------------------------------------------------------------------------------------------------- after the call

    def _succeeded(self, result: object, permission: Permission) -> None:
        """Accept a result, or send the next attempt if the policy rejects it."""
        policy = self._policy
        rejected = None if policy is None else policy.classify_result(result)
        if policy is not None and rejected is not None:
            failure, decision = self._decide(policy, rejected, None)
            # A part of a combination may accept it.
            if not isinstance(decision, GiveUp) or decision.rule != "not_matched":
                permission.failed(None, failure, decision)
                self._follow(policy, failure, decision, None, result)
                raise RedriveError(f"gave up: {rejected.message} counts as a failure")
        permission.succeeded()

    def _failed(self, error: Exception, permission: Permission) -> None:
        """Send the next attempt and raise Celery's exception for that; return if the call has failed for good."""
        failure, policy = failed(error).failure, self._policy
        if isinstance(error, SoftTimeLimitExceeded):
            failure = failure._replace(reason="TIMEOUT", stage=Stage.IN_FLIGHT)
        if policy is not None:
            failure, decision = self._decide(policy, failure, error)
            permission.failed(error, failure, decision)
            self._follow(policy, failure, decision, error, None)
        elif self._message.every is not None and not self._message.is_eager:
            # As a catch job: `redrive.engine.settle`.
            history = self._message.past.history
            delay = max(catch_wait(self._message.every, history.attempts), failure.hint or ZERO)
            raise self._again(
                failure, Retry(delay, delay, "catch"), history._replace(attempts=history.attempts + 1), error
            )

    def _decide(self, policy: Policy, failure: Failure, error: Exception | None) -> tuple[Failure, Retry | GiveUp]:
        """Ask the policy. Return the failure as its classifier describes it, and the decision."""
        message, now = self._message, self._message.clock.now()
        failure, decision = decide(policy, message.past.history, failure, error, now=now, sample=self._sample)
        if isinstance(decision, GiveUp):
            return failure, decision
        return failure, message.expires_by(now + decision.delay) or decision

    def _follow(
        self, policy: Policy, failure: Failure, decision: Retry | GiveUp, error: Exception | None, value: object
    ) -> None:
        """Do what was decided: raise Celery's exception for a retry, or return after the end of the call."""
        again = None
        if isinstance(decision, GiveUp):
            self._end(failure, decision)
        else:
            now = self._message.clock.now()
            after = policy.advance(self._message.past.history, failure, decision.delay, now=now, sample=self._sample)
            again = self._again(failure, decision, after, error)
        self._call_hooks(policy, failure, decision, error, value)
        if again is not None:
            raise again

    def _again(self, failure: Failure, decision: Retry, after: History, error: Exception | None) -> CeleryRetry:
        """Emit the event, and send the message of the next attempt, which another worker may execute at once."""
        message, delay = self._message, decision.delay
        entry = CarriedAttempt.of(failure, self._began, decision.rule, delay)
        past = message.past._replace(history=after, lost=0).followed_by(entry)
        observe.emit(
            observe.TaskRetryScheduled(
                task=self._task.name,
                task_id=message.id,
                attempt=message.past.history.attempts,
                failure=failure,
                rule=decision.rule,
                delay=delay,
            )
        )
        return message.send_again(past, delay, error)

    def _put_off(self, delay: timedelta, cause: Exception) -> NoReturn:
        """Let the message come back later, without charging an attempt; give up if it expires before."""
        message = self._message
        over = message.expires_by(message.clock.now() + delay)
        if over is not None:
            self._end(Failure.of(cause), over)
            raise RedriveError(over.why) from cause
        raise message.send_again(message.past._replace(lost=0), delay, cause) from cause

    def _end(self, failure: Failure, decision: GiveUp) -> None:
        end(self._message, failure, decision, self._began)

    def _call_hooks(
        self, policy: Policy, failure: Failure, decision: Retry | GiveUp, error: Exception | None, value: object
    ) -> None:
        message, history = self._message, self._message.past.history
        details = RetryDetails(
            function=self._task.name,
            args=message.args,
            kwargs=message.kwargs,
            attempt=history.attempts,
            error=error,
            value=value,
            failure=failure,
            delay=None if isinstance(decision, GiveUp) else decision.delay,
            rule=decision.rule,
            why=decision.why if isinstance(decision, GiveUp) else "",
            elapsed=message.clock.now() - history.started_at,
        )
        call_hooks(policy, details, message.id, log)
