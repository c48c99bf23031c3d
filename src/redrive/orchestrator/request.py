"""A request under RFC 0049, and the interface of retry strategies.

Two flags are often confused. ``idempotent``: the request may be *repeated* when it is unknown if it took effect.
``read_only``: it *changes* nothing, so that a timeout is unambiguous. Locking a document twice does no harm, and yet it
is locked. By default ``read_only`` has the value of ``idempotent``.

A request ends exactly once: `Request.succeed`, `Request.fail` and `Request.cancel` return True if they ended it; later
calls change nothing. Its time begins when it is created and is one time for all attempts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias

from redrive.clock import Clock
from redrive.errors import AmbiguousTimeout, RequestCancelled, RequestError, UnambiguousTimeout
from redrive.errors.foreign import attribute, is_a, notes_of, set_attribute
from redrive.orchestrator.attempt import Attempt
from redrive.orchestrator.events import RETRIES_ATTRIBUTE, RequestAttemptRecord, RequestRecord, Span, orphans_of
from redrive.orchestrator.interrupt import Interrupt
from redrive.orchestrator.reason import RetryReason
from redrive.policy import Reason
from redrive.policy.duration import Duration, parse_duration, span
from redrive.policy.value import Value, freeze
from redrive.retrying.circuit_breaker import Permit
from redrive.retrying.context import deadline, present_clock
from redrive.retrying.rng import unique


class RetryAction(Value):
    """The answer of a `RetryStrategy`. None in its place means no retry.

    Raises:
        redrive.errors.PolicyError: the duration cannot be read, or is negative.
    """

    #: The delay; zero retries at once. None: do not retry. (Two SDKs take zero for "no", and so cannot retry at once.)
    duration: timedelta | None
    #: Returns another error than the one that is raised if the request is not retried. The original becomes its cause.
    translate: Callable[[Exception], Exception] | None

    def __init__(self, duration: Duration | None, translate: Callable[[Exception], Exception] | None = None) -> None:
        freeze(self, "duration", None if duration is None else parse_duration(duration))
        freeze(self, "translate", translate)

    @staticmethod
    def no_retry(translate: Callable[[Exception], Exception] | None = None) -> RetryAction:
        """Return the answer "do not retry"; the error that is raised may be translated."""
        return RetryAction(None, translate)


class RetryStrategy(Protocol):
    """The decision on whether and when a request is sent again; a function with the same arguments can replace it."""

    def retry_after(
        self, request: Request, reason: RetryReason, /
    ) -> Awaitable[RetryAction | None] | RetryAction | None:
        """Return the delay, or None for no retry. It may be ``async`` and wait, within the time of the request."""
        ...


StrategyLike: TypeAlias = (
    RetryStrategy | Callable[["Request", RetryReason], Awaitable[RetryAction | None] | RetryAction | None]
)
"""A strategy, or a function in place of one."""


class Request:
    """One request.

    Args:
        operation: the operation, for messages and logs.
        service: the service of the server, for messages and logs.
        idempotent: True if it may be repeated when it is unknown whether it took effect.
        read_only: True if it changes nothing; by default the same as ``idempotent``.
        retry_strategy: its own strategy; None for that of the orchestrator.
        timeout: for all attempts and waits together; None for that of the orchestrator. The deadline of an enclosing
            retried call limits it, too.
        context: data of the caller, for strategies and logs; copied.
        id: for logs; by default a random one.
        endpoint: where it goes, if that is known before it is sent.
        internal: True if no caller waits for it; a refusal is then logged as DEBUG.
        may_repeat_in_flight: True to ask strategies also if it was lost in flight and is not idempotent. It may then
            take effect twice.
        span: gets the number of retries, and is ended.
        on_completed: called once, with the request.
        clock: reads the time and waits; by default the clock in force.

    The arguments are attributes of the same names, except timeout, span and on_completed.

    Raises:
        redrive.errors.PolicyError: the timeout cannot be read, or is negative.
    """

    #: The present attempt, or the next one.
    attempt: Attempt
    # Ends the present wait; for the orchestrator.
    interrupt: Interrupt
    # Asks the circuit breaker of an endpoint; for the orchestrator.
    admit: Callable[[str | None], Permit | None]

    def __init__(
        self,
        operation: str = "request",
        *,
        service: str | None = None,
        idempotent: bool = False,
        read_only: bool | None = None,
        retry_strategy: StrategyLike | None = None,
        timeout: Duration | None = None,
        context: Mapping[str, Any] | None = None,
        id: str | None = None,
        endpoint: str | None = None,
        internal: bool = False,
        may_repeat_in_flight: bool = False,
        span: Span | None = None,
        on_completed: Callable[[Request], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.operation = operation
        self.service = service
        self.idempotent = idempotent
        self.read_only: bool = idempotent if read_only is None else read_only
        self.retry_strategy = retry_strategy
        self.context: dict[str, Any] = dict(context or {})
        self.id: str = id or unique()
        self.endpoint = endpoint
        self.internal = internal
        self.may_repeat_in_flight = may_repeat_in_flight
        self.clock: Clock = clock or present_clock()
        self.retry_attempts: int = 0
        self.completed: bool = False
        self.interrupt = Interrupt()
        self._started = self.clock.monotonic()
        self._ends: float | None = None
        self._ended: float | None = None
        self._span = span
        self._on_completed = on_completed
        self.admit = _admit_always
        self._reasons: dict[Reason, None] = {}
        self._value: Any = None
        self._error: BaseException | None = None
        self._attempts: list[Attempt] = []
        self.attempt = self._next()
        if timeout is not None:
            self._ends = self._started + parse_duration(timeout).total_seconds()
        around = deadline()
        if around is not None:
            ends = self._started + around.remaining
            self._ends = ends if self._ends is None else min(ends, self._ends)

    def __repr__(self) -> str:
        state = "completed" if self.completed else f"attempt {self.attempt.number}"
        return f"<Request {self.operation} {self.id}: {state}>"

    @property
    def remaining(self) -> float | None:
        """Seconds until its deadline, negative after it; None without one."""
        return None if self._ends is None else self._ends - self.clock.monotonic()

    @property
    def timeout(self) -> timedelta | None:
        """The time for the whole request: its own timeout, the orchestrator's, or less under an enclosing deadline."""
        return None if self._ends is None else span(max(0.0, self._ends - self._started))

    @property
    def deadline(self) -> datetime | None:
        """The deadline, aware; None without one."""
        left = self.remaining
        return None if left is None else self.clock.now() + timedelta(seconds=left)

    @property
    def elapsed(self) -> timedelta:
        """The time from its creation to its end, or until now."""
        until = self.clock.monotonic() if self._ended is None else self._ended
        return span(max(0.0, until - self._started))

    @property
    def ends(self) -> float | None:
        """The deadline as a reading of its clock; None without one."""
        return self._ends

    @property
    def retry_reasons(self) -> tuple[Reason, ...]:
        """The reasons of its retries, each once, in the order of first appearance."""
        return tuple(self._reasons)

    @property
    def history(self) -> tuple[RequestAttemptRecord, ...]:
        """Its attempts as values, the present one included."""
        return tuple(attempt.record for attempt in self._attempts)

    @property
    def is_ambiguous(self) -> bool:
        """True if it is unknown whether it changed data. It does not become False again."""
        return not self.read_only and any(attempt.is_ambiguous for attempt in self._attempts)

    @property
    def dispatched_to(self) -> str | None:
        """The last endpoint; None if it was not sent."""
        return next((each.endpoint for each in reversed(self._attempts) if each.endpoint is not None), None)

    @property
    def dispatched_from(self) -> str | None:
        """The client's end of its last connection; None if unknown."""
        return next((each.local_address for each in reversed(self._attempts) if each.dispatched), None)

    @property
    def dispatched_on(self) -> str | None:
        """The id of its last connection; None if unknown."""
        return next((each.channel_id for each in reversed(self._attempts) if each.dispatched), None)

    @property
    def last_error(self) -> BaseException | None:
        """The exception of the last failed attempt; None if there is none."""
        return next((each.error for each in reversed(self._attempts) if each.error is not None), None)

    @property
    def record(self) -> RequestRecord:
        """The present state as a value."""
        return RequestRecord(
            self.id,
            self.operation,
            self.retry_attempts,
            self.retry_reasons,
            self.history,
            self.dispatched_to,
            self.is_ambiguous,
            dict(self.context),
            self.elapsed,
            self.timeout,
            self.idempotent,
            self.service,
            self.dispatched_from,
            self.dispatched_on,
            self.completed,
            self.cancellation,
        )

    @property
    def cancellation(self) -> str | None:
        """The reason why it ended without an answer; see `redrive.orchestrator.RequestRecord`."""
        match self._error:
            case RequestCancelled(cancellation=why):
                return why
            case AmbiguousTimeout() | UnambiguousTimeout():
                return "TIMEOUT"
            case _:
                return None

    def bind(self, admit: Callable[[str | None], Permit | None], timeout: timedelta | None) -> None:
        """Set the breakers and the default timeout of an orchestrator."""
        self.admit = admit
        if self._ends is None and timeout is not None:
            self._ends = self._started + timeout.total_seconds()

    def record_retry(self, reason: Reason, delay: timedelta) -> None:
        """Record a retry with its reason and its delay."""
        self.attempt.reason, self.attempt.delay = reason, delay
        self.retry_attempts += 1
        self._reasons[reason] = None

    def begin_next(self) -> Attempt:
        """Begin the attempt after the one that has failed."""
        self.attempt = self._next()
        return self.attempt

    def _next(self) -> Attempt:
        attempt = Attempt(len(self._attempts) + 1, self)
        self._attempts.append(attempt)
        return attempt

    def succeed(self, value: object = None) -> bool:
        """End it with a result; return True if it had not ended before.

        If it had timed out or was cancelled, the answer is reported as `redrive.orchestrator.ResponseOrphaned`.
        """
        if not self.completed:
            self._value = value
        self.attempt.answer()
        return self._complete(None)

    def fail(self, error: BaseException) -> bool:
        """End it with an error, which gets its record as ``__retry__``; return True if it had not ended before."""
        if not self.completed:
            self._error = error
        return self._complete(error)

    def cancel(self) -> bool:
        """End it without a result; return True if it had not ended before."""
        return self.fail(RequestCancelled(f"{self.operation} was cancelled"))

    def attach_record(self, error: BaseException) -> None:
        """Attach the record to an error, as ``__retry__`` and as a note, after a decision of the orchestrator."""
        if self.attempt.reason is None and not self.retry_attempts and not isinstance(error, RequestError):
            return
        record, earlier, notes = self.record, attribute(error, "__retry__"), notes_of(error)
        # The same object, raised for an earlier request.
        if isinstance(earlier, RequestRecord):
            notes = [note for note in notes if note != earlier.note]
        set_attribute(error, "__retry__", record)
        set_attribute(error, "__notes__", [*notes, record.note])

    def result(self) -> Any:
        """Return the result, or raise the error; raise RuntimeError if the request has not ended."""
        if not self.completed:
            raise RuntimeError(f"{self!r} has no result yet")
        if self._error is not None:
            raise self._error
        return self._value

    def _complete(self, error: BaseException | None) -> bool:
        if self.completed:
            return False
        self.completed = True
        self._ended = self.clock.monotonic()
        self.attempt.finish(error)
        if error is not None:
            self.attach_record(error)
        is_abandoned = is_a(error, (TimeoutError, RequestCancelled))
        orphaned = orphans_of(self.record, self.clock) if is_abandoned else None
        for attempt in self._attempts:
            attempt.release(orphaned)
        if self._span is not None:
            self._span.set_attribute(RETRIES_ATTRIBUTE, self.retry_attempts)
            self._span.end()
        if self._on_completed is not None:
            self._on_completed(self)
        self.interrupt()
        return True


def _admit_always(endpoint: str | None) -> None:
    """Admit a request that no orchestrator has bound."""
