"""Dramatiq actors under a policy: the broker and the workers stay, and the policy decides about retries.

::

    broker = RedisBroker(middleware=[PolicyRetries(), AgeLimit(), TimeLimit(), ShutdownNotifications(), Pipelines()])


    @dramatiq.actor(retry="5 1s 10m catch refund")
    def charge(invoice): ...


    @dramatiq.actor
    def refund(request: CatchRequest): ...

Nothing is decided here: an attempt is classified, `redrive.policy.Policy.decide` is asked, and the message of the next
attempt carries what the policy keeps (`redrive.policy.carried`). May import: `redrive.runtime` and below, Dramatiq (the
extra ``dramatiq``). Must never: keep state outside of the message.

Dramatiq logs an exception of a hook and goes on, and acknowledges the message; only a ``MiddlewareError`` in a hook
``before_...`` has an effect. It may also interrupt a worker's thread while the hooks ``after_process_message`` run.
Messages are therefore sent in ``before_ack`` and ``before_nack``, which nothing interrupts, and which Dramatiq repeats
after an error of the connection until it succeeds.
"""

from __future__ import annotations

import inspect
import math
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from redrive import observe
from redrive.app.tasks.failures import failed, programming_error
from redrive.contrib import extra
from redrive.contrib.other_engines import (
    SHORT,
    TEXT,
    CatchRequest,
    Permission,
    argument_of,
    call_hooks,
    decide,
    policy_of,
)
from redrive.engine.settle import catch_wait
from redrive.errors import Cancel, CircuitOpen, ConfigurationError, PolicyError, PolicyValueError, RetryAfter, Snooze
from redrive.errors.foreign import summary
from redrive.observe.logs import logger
from redrive.policy import Failure, GiveUp, History, Policy, Retry, Stage, format_duration, parse_duration
from redrive.policy.carried import Carried, CarriedAttempt
from redrive.policy.duration import ZERO
from redrive.policy.outcome import RetryDetails
from redrive.retrying.context import SCOPE, present_clock
from redrive.retrying.rng import roll
from redrive.retrying.shared import resolve
from redrive.runtime import layers

with extra("dramatiq"):
    import dramatiq
    from dramatiq.errors import ActorNotFound, BrokerConnectionError
    from dramatiq.middleware import (
        AgeLimit,
        Interrupt,
        Middleware,
        MiddlewareError,
        Retries,
        Shutdown,
        ShutdownNotifications,
        SkipMessage,
        TimeLimit,
        TimeLimitExceeded,
    )

__all__ = ["CatchRequest", "PolicyRetries"]

log = logger("redrive.dramatiq")

_CHANNEL = "redrive.dramatiq"

# Options of messages: the past of the call, and of the message of a catch actor the seconds between its attempts.
_HEADER, _CATCH = "redrive", "redrive_catch"

_LIST = "the middleware of the broker may be [PolicyRetries(), AgeLimit(), TimeLimit(), ShutdownNotifications(), ...]"

# The wait for a breaker that does not give one.
_PAUSE = timedelta(seconds=1)


class _Refused(ConfigurationError, MiddlewareError):
    """A mistake in the declaration of an actor; Dramatiq would log another error, and go on."""


class _NotSent(MiddlewareError, BrokerConnectionError):
    """The broker cannot be reached: Dramatiq asks again, and does not acknowledge the message before."""


class _CatchMessage(dramatiq.Message[Any]):
    """The message of a catch actor, whose argument is an object here and data in the broker."""

    def asdict(self) -> dict[str, Any]:
        """Return the message as data."""
        return {**super().asdict(), "args": (self.args[0].to_dict(),)}


class PolicyRetries(Middleware):
    """A middleware in the place of Dramatiq's ``Retries``: the policy of an actor decides about its retries.

    The option ``retry`` of an actor is a `redrive.Policy`, or a directive such as ``"5 1s 10m catch refund"``; an actor
    has the policy in ``actor.options["retry"]``. The options of ``Retries`` (``max_retries``, ``throws`` and their
    relatives) do not exist then, and Dramatiq refuses them.

    Args:
        retry: the policy of the actors without the option; by default they are not retried, as with ``max_retries=0``.
        hop: the longest time for which a message waits in the memory of a worker. A longer delay takes several
            messages. Below the ``consumer_timeout`` of RabbitMQ.

    Raises:
        PolicyError: the policy, or the hop, is not valid.
        ConfigurationError: an option, a middleware or a catch actor contradicts a policy; raised where the actor is
            declared, or when a worker starts.
    """

    def __init__(self, *, retry: Policy | str | None = None, hop: timedelta | float | str = "10m") -> None:
        self._default = None if retry is None else policy_of(retry, "PolicyRetries")
        self.hop: timedelta = parse_duration(hop)
        if self.hop <= SHORT:
            raise PolicyValueError(f"hop={hop!r}: a message must wait for longer than {format_duration(SHORT)}")

    @property
    def actor_options(self) -> set[str]:
        """The options of actors that this middleware reads."""
        return {"retry"}

    def policy(self, actor: dramatiq.Actor[Any, Any]) -> Policy | None:
        """Return the policy of an actor; None if it is not retried."""
        policy: Policy | None = actor.options.get("retry", self._default)
        return policy

    # --------------------------------------------------------------------------------------------------------- refusal

    def before_declare_actor(self, broker: dramatiq.Broker, actor: dramatiq.Actor[Any, Any]) -> None:
        """Replace the option ``retry`` by a policy."""
        name = f"actor {actor.actor_name}"
        self._check(broker)
        if actor.options.get("retry") is not None:
            try:
                actor.options["retry"] = policy_of(actor.options["retry"], name)
            except (PolicyError, ConfigurationError) as error:
                raise _Refused(str(error)) from error
        policy = self.policy(actor)
        if policy is None:
            return
        if any(isinstance(each, Policy) and each.on_result is not None for each in (policy, *(policy.parts or ()))):
            why = "Dramatiq hands a result on before it is looked at; raise an exception in the actor"
            raise _Refused(f"{name}: on_result has no effect: {why}")
        if policy.attempt_timeout is not None and "time_limit" not in actor.options:
            if not any(isinstance(each, TimeLimit) for each in broker.middleware):
                raise _Refused(f"{name}: attempt_timeout needs the middleware TimeLimit: add it to the broker")
            actor.options["time_limit"] = policy.attempt_timeout / timedelta(milliseconds=1)

    def before_worker_boot(self, broker: dramatiq.Broker, _worker: object) -> None:
        """Refuse what cannot work: catch actors and breakers that do not exist."""
        self._check(broker)
        for actor in broker.actors.values():
            policy = self.policy(actor)
            if policy is None:
                continue
            try:
                resolve(policy, actor.actor_name)
                if policy.catch is not None:
                    broker.get_actor(policy.catch)
            except ActorNotFound as error:
                name, catch = actor.actor_name, policy.catch
                raise _Refused(
                    f"actor {name!r} is to be caught by {catch!r}, but no actor of this broker has that name"
                ) from error
            except PolicyError as error:
                raise _Refused(f"actor {actor.actor_name}: {error}") from error

    def _check(self, broker: dramatiq.Broker) -> None:
        """Refuse other middleware beside this one, or before it."""
        names = [type(each).__name__ for each in broker.middleware]
        if any(isinstance(each, Retries) for each in broker.middleware):
            raise _Refused(
                f"Dramatiq's own middleware Retries would send each message again, too: leave it out; {_LIST}"
            )
        if sum(isinstance(each, PolicyRetries) for each in broker.middleware) > 1:
            raise _Refused(f"the broker has two middlewares PolicyRetries, and both would decide: {', '.join(names)}")
        before = broker.middleware[: broker.middleware.index(self)]
        if any(isinstance(each, TimeLimit | ShutdownNotifications) for each in before):
            why = "these interrupt an actor until their own hooks have run, and so might interrupt the decision"
            raise _Refused(f"PolicyRetries stands behind TimeLimit or ShutdownNotifications: {why}; {_LIST}")

    # -------------------------------------------------------------------------------------------------------- messages

    def before_process_message(self, broker: dramatiq.Broker, message: Any) -> None:
        """Begin an attempt, unless it is not due, or must not be made."""
        message.redrive = attempt = _Attempt(self, broker, message)
        attempt.begin()

    def after_process_message(
        self,
        broker: dramatiq.Broker,  # noqa: ARG002 - the signature of Dramatiq
        message: Any,
        *,
        result: object = None,  # noqa: ARG002
        exception: BaseException | None = None,
    ) -> None:
        """Decide about an attempt that has failed."""
        attempt: _Attempt | None = getattr(message, "redrive", None)
        if attempt is not None:
            attempt.ended(exception)
        elif exception is not None:  # another middleware failed before this one was asked
            message.fail()

    def after_skip_message(self, _broker: dramatiq.Broker, message: Any) -> None:
        """End an attempt that another middleware has ended, such as ``AgeLimit``."""
        attempt: _Attempt | None = getattr(message, "redrive", None)
        if attempt is not None:
            attempt.close()

    def before_ack(self, _broker: dramatiq.Broker, message: Any) -> None:
        """Send what follows a message, before it is acknowledged."""
        attempt: _Attempt | None = getattr(message, "redrive", None)
        if attempt is not None:
            attempt.send()

    def before_nack(self, broker: dramatiq.Broker, message: Any) -> None:
        """Send what follows a message, before it is rejected."""
        self.before_ack(broker, message)


class _Attempt:
    """The attempt that a message stands for."""

    def __init__(self, middleware: PolicyRetries, broker: dramatiq.Broker, message: Any) -> None:
        self._hop, self._broker, self._message = middleware.hop, broker, message
        self._actor = broker.get_actor(message.actor_name)
        every = message.options.get(_CATCH)
        self._every = None if every is None else timedelta(seconds=every)
        self._policy = middleware.policy(self._actor) if every is None else None
        self._clock = present_clock()
        self._began = self._clock.now()
        self._past = Carried(History(1, self._began))
        self._permission = Permission()
        self._layer: Any = None
        scope = SCOPE.get()
        self._sample = roll() if scope is None else scope.roll()
        # The messages that follow, each with the instant at which it is due.
        self._following: list[tuple[Any, datetime]] = []

    @property
    def _id(self) -> str:
        return str(self._message.message_id)

    # ------------------------------------------------------------------------------------------------ before the call

    def begin(self) -> None:
        """Wait until the attempt is due, or end the message without one."""
        message, policy = self._message, self._policy
        if _HEADER in message.options:
            self._read(message.options[_HEADER])
        if self._past.due is not None:
            rest = self._past.due - self._began
            if rest > SHORT:
                self._put_off(self._past, self._past.due)
                self._skip(f"it is due in {format_duration(rest)}")
            self._clock.sleep(max(rest, ZERO).total_seconds())
        if self._every is not None:
            data = {**message.asdict(), "args": (CatchRequest.from_dict(message.args[0]),)}
            message._message = _CatchMessage(**data)  # noqa: SLF001 - the actor gets the arguments of this one
        if policy is not None:
            self._check(policy)
            try:
                self._permission = Permission.of(policy, self._actor.actor_name)
            except CircuitOpen as refused:
                delay = refused.retry_after or _PAUSE
                self._put_off(self._past._replace(due=None), self._began + delay, refused)
                self._skip(str(refused))
        # A retried call in the actor leaves to its policy what that would retry.
        self._layer = layers.begin(self._actor.actor_name, policy, self._began)

    def _read(self, data: object) -> None:
        try:
            self._past = Carried.from_dict(data)
        except PolicyValueError as error:
            failure = Failure((), str(error), "BAD_PAYLOAD", permanent=str(error))
            self._give_up(failure, GiveUp(str(error), "permanent"))
            self._skip(str(error))

    def _check(self, policy: Policy) -> None:
        """End the call if it must not be executed again, or not any more."""
        # Of RabbitMQ; Redis does not keep it.
        if policy.idempotent is False and getattr(self._message, "redelivered", False):
            why = "delivered again after its worker was lost, and the actor is declared idempotent=False: not repeated"
            self._give_up(Failure((), why, "LOST_IN_FLIGHT", Stage.IN_FLIGHT), GiveUp(why, "not_idempotent"))
            self._skip(why)
        over = self._expires_by(self._began)
        if over is not None:
            self._give_up(Failure((), over.why, "DEADLINE"), over)
            self._skip(over.why)
        limit, past = policy.deadline, self._past.history
        if _HEADER in self._message.options and limit is not None and self._began >= past.started_at + limit:
            why = f"the deadline of {format_duration(limit)} had passed before the attempt could start"
            self._give_up(Failure((), why, "DEADLINE"), GiveUp(why, "deadline"))
            self._skip(why)

    def _skip(self, why: str) -> NoReturn:
        if not self._message.failed:
            # The middleware Results would store None, which is no result of the call.
            self._message.options["store_results"] = False
        raise SkipMessage(why)

    # ------------------------------------------------------------------------------------------------- after the call

    def ended(self, error: BaseException | None) -> None:
        """Decide what follows, once the actor has returned or raised."""
        try:
            if error is None:
                self._permission.succeeded()
            else:
                self._failed(error)
        except Exception as broken:  # noqa: BLE001 - Dramatiq would acknowledge the message
            why = f"the decision about this attempt failed: {summary(broken)}"
            self._give_up(Failure.of(broken)._replace(permanent=why), GiveUp(why, "permanent"))
        finally:
            self.close()

    def close(self) -> None:
        """End the layer, and return the permission of the breaker."""
        layer, self._layer = self._layer, None
        if layer is not None:
            layers.end(layer)
        self._permission.close()

    def _failed(self, error: BaseException) -> None:
        # An asynchronous actor that does not end in time raises another error from it.
        cause = error if isinstance(error, Interrupt) else error.__cause__
        if isinstance(cause, Shutdown):
            self._interrupted()
        elif isinstance(error, Snooze):
            self._put_off(self._past, self._clock.now() + parse_duration(error.delay), error)
        elif isinstance(error, Cancel):
            log.info("%s[%s] was cancelled: %s", self._actor.actor_name, self._id, error)
        elif self._policy is not None:
            failure = self._described(error)
            if isinstance(cause, TimeLimitExceeded):
                # No `Exception`, which the names of a policy stand for.
                types = (*failure.types, "builtins.Exception")
                failure = failure._replace(types=types, reason="TIMEOUT", stage=Stage.IN_FLIGHT)
            self._follow(self._policy, failure, error)
        elif self._every is not None:
            self._catch_again(self._every, self._described(error))
        else:
            self._message.fail()

    def _described(self, error: BaseException) -> Failure:
        if isinstance(error, dramatiq.Retry) and error.delay is not None:
            error = RetryAfter(timedelta(milliseconds=error.delay), str(error))
        failure = failed(error).failure
        if type(error) is TypeError:
            try:
                inspect.signature(self._actor.fn).bind(*self._message.args, **self._message.kwargs)
            except TypeError:
                return programming_error(failure, "the actor cannot be called with these arguments")
        return failure

    def _interrupted(self) -> None:
        """Return a message to its queue, whose actor a shutdown has interrupted; nothing is charged."""
        policy = self._policy
        if policy is not None and policy.idempotent is False:
            why = "its worker was stopped in flight, and the actor is declared idempotent=False: not repeated"
            self._give_up(Failure((), why, "LOST_IN_FLIGHT", Stage.IN_FLIGHT), GiveUp(why, "not_idempotent"))
        else:
            self._put_off(self._past, self._clock.now())

    def _follow(self, policy: Policy, failure: Failure, error: BaseException) -> None:
        """Ask the policy, and do what it decides."""
        now, history = self._clock.now(), self._past.history
        failure, decision = decide(policy, history, failure, error, now=now, sample=self._sample)
        if isinstance(decision, Retry):
            decision = self._expires_by(now + decision.delay) or decision
        self._permission.failed(error if isinstance(error, Exception) else None, failure, decision)
        delay = None if isinstance(decision, GiveUp) else decision.delay
        if isinstance(decision, GiveUp):
            self._give_up(failure, decision)
        else:
            after = policy.advance(history, failure, decision.delay, now=now, sample=self._sample)
            self._again(failure, decision, after, now)
        details = RetryDetails(
            function=self._actor.actor_name,
            args=self._message.args,
            kwargs=self._message.kwargs,
            attempt=history.attempts,
            error=error,
            value=None,
            failure=failure,
            delay=delay,
            rule=decision.rule,
            why=decision.why if isinstance(decision, GiveUp) else "",
            elapsed=now - history.started_at,
        )
        call_hooks(policy, details, self._id, log)

    def _catch_again(self, every: timedelta, failure: Failure) -> None:
        """Repeat the message of a catch actor, as a catch job: `redrive.engine.settle`."""
        history = self._past.history
        delay = max(catch_wait(every, history.attempts), failure.hint or ZERO)
        after = history._replace(attempts=history.attempts + 1)
        self._again(failure, Retry(delay, delay, "catch"), after, self._clock.now())

    def _expires_by(self, at: datetime) -> GiveUp | None:
        """Return the end of the call if its message is too old at an instant: Dramatiq would drop it."""
        found = [each for each in self._broker.middleware if isinstance(each, AgeLimit)]
        options = self._message.options.get("max_age") or self._actor.options.get("max_age")
        age = (options or found[0].max_age) if found else None
        if not age:
            return None
        last = datetime.fromtimestamp((self._message.message_timestamp + age) / 1000, UTC)
        return GiveUp(f"the message expires at {last:%Y-%m-%d %H:%M:%S}", "deadline") if at >= last else None

    # ---------------------------------------------------------------------------------------------- what is sent then

    # Events are emitted before a message is sent: another thread may make the next attempt before this one goes on.
    def _again(self, failure: Failure, decision: Retry, after: History, now: datetime) -> None:
        entry = CarriedAttempt.of(failure, self._began, decision.rule, decision.delay)
        self._add(self._past._replace(history=after).followed_by(entry), now + decision.delay)
        observe.emit(
            observe.TaskRetryScheduled(
                channel=_CHANNEL,
                task=self._actor.actor_name,
                task_id=self._id,
                attempt=self._past.history.attempts,
                failure=failure,
                rule=decision.rule,
                delay=decision.delay,
            )
        )

    def _put_off(self, past: Carried, due: datetime, cause: Exception | None = None) -> None:
        """Let the message come back later, without charging an attempt; give up if it is too old then."""
        over = self._expires_by(due)
        if over is None:
            self._add(past, due)
        else:
            self._give_up(Failure.of(cause) if cause is not None else Failure((), over.why, "DEADLINE"), over)

    def _add(self, past: Carried, due: datetime) -> None:
        """Send the message of the next attempt, which comes after a hop if the wait is longer than that."""
        # The metrics and dashboards of Dramatiq count retries by this option.
        options = {_HEADER: past._replace(due=due).to_dict(), "retries": past.history.attempts - 1}
        self._following.append((self._message.copy(options=options), due))

    def _give_up(self, failure: Failure, decision: GiveUp) -> None:
        """Send the catch actor, emit the event, and have Dramatiq reject the message."""
        self._message.fail()
        past, policy = self._past, self._policy
        past = past.followed_by(CarriedAttempt.of(failure, self._began, decision.rule))
        catch = None if policy is None else policy.catch
        if policy is not None and catch is not None:
            text = failure.message[:TEXT] or decision.why
            argument = argument_of(inspect.signature(self._actor.fn), self._message.args, self._message.kwargs)
            request = CatchRequest(self._actor.actor_name, argument, text, past.attempts, self._id)
            options: dict[str, Any] = {_CATCH: policy.catch_delay.total_seconds()}
            message = self._broker.get_actor(catch).message_with_options(args=(request.to_dict(),), **options)
            self._following.append((message.copy(message_id=f"{self._id}-catch"), self._clock.now()))
        observe.emit(
            observe.TaskGaveUp(
                channel=_CHANNEL,
                task=self._actor.actor_name,
                task_id=self._id,
                attempt=past.history.attempts,
                failure=failure,
                rule=decision.rule,
                why=decision.why,
                catch=catch,
            )
        )

    def send(self) -> None:
        """Send what follows; what was sent is not sent again.

        Raises:
            MiddlewareError: the broker cannot be reached.
        """
        while self._following:
            message, due = self._following[0]
            rest = min(due - self._clock.now(), self._hop)
            # One that is nearly due waits in its worker.
            delay = None if rest <= SHORT else math.ceil(rest / timedelta(milliseconds=1))
            try:
                self._broker.enqueue(message, delay=delay)
            except Exception as error:  # of any client library
                why = f"the message that follows {self._id} cannot be sent: {summary(error)}"
                raise _NotSent(why) from error  # type: ignore[no-untyped-call] # of Dramatiq
            del self._following[0]
