"""A request under RFC 0049: what may be done with it, what has been done, and how it ended.

Two flags that are easily taken for one. ``idempotent`` says whether it may be *repeated* when nobody knows if it took
effect. ``read_only`` says whether it *changes* anything, and so whether a timeout leaves a doubt: to lock a document a
second time does no harm, and yet it is locked. Where nothing is said of ``read_only``, it is what ``idempotent`` is.

A request ends exactly once: `succeed`, `fail` and `cancel` say whether they were the first, and whoever comes later
changes nothing. Its time begins when it is made, and it is one time for all attempts; sending it again does not wind
the clock up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias

from redrive.clock import Clock
from redrive.errors import RequestCancelled, RequestError
from redrive.orchestrator.action import RetryAction
from redrive.orchestrator.attempt import Attempt
from redrive.orchestrator.interrupt import Interrupt
from redrive.orchestrator.orphans import orphans_of
from redrive.orchestrator.reason import RetryReason
from redrive.orchestrator.record import RETRIES_ATTRIBUTE, AttemptRecord, RequestRecord, Span
from redrive.policy import Reason
from redrive.policy.duration import Duration, parse_duration, span
from redrive.retrying.circuit_breaker import Permit
from redrive.retrying.context import SCOPE, SYSTEM, deadline
from redrive.retrying.rng import unique

__all__ = ["Request", "RetryStrategy", "StrategyLike"]


class RetryStrategy(Protocol):
    """Decides whether and when a request is sent again.

    Instead of an object with this method, a function of the same arguments will do.
    """

    def retry_after(
        self, request: Request, reason: RetryReason, /
    ) -> Awaitable[RetryAction | None] | RetryAction | None:
        """Decide. It may wait for something (``async def``), within the time of the request.

        Args:
            request: what has failed.
            reason: why.

        Returns:
            How long to wait, or None for no retry.
        """
        ...


StrategyLike: TypeAlias = (
    RetryStrategy | Callable[["Request", RetryReason], Awaitable[RetryAction | None] | RetryAction | None]
)
"""A strategy, or a function in place of one."""


class Request:
    """One request, and what becomes of it.

    Args:
        operation: what is asked, for people and logs.
        service: which service of the server is asked, for people and logs.
        idempotent: whether it may be repeated when nobody knows if it took effect.
        read_only: whether it changes nothing; by default the same as ``idempotent``.
        retry_strategy: its own strategy, or None for that of the orchestrator.
        timeout: for all attempts and waits together; None leaves it to the orchestrator. The deadline of a retried call
            around this code bounds it too.
        context: data of the caller, for strategies and logs. It is copied, and never None.
        id: for logs; by default one that nobody else has.
        endpoint: where it goes, if that is known before it is sent.
        internal: nobody waits for it; a refusal is not worth more than a DEBUG line.
        may_repeat_in_flight: strategies are asked even if it was lost on the way and is not idempotent. Whoever sets it
            accepts that it may take effect twice.
        span: gets the number of retries and its end.
        on_completed: called once, with the request.
        clock: tells the time and waits; by default the clock in force.

    What is given is kept under the same names, except timeout, span and on_completed.

    Attributes:
        attempt: the present attempt, or the next one.
        retry_attempts: how often it was sent again.
        completed: whether it has ended.
        interrupt: ends what is awaited for it; for the orchestrator.
        admit: asks the circuit breaker of an endpoint; for the orchestrator.

    Raises:
        redrive.errors.PolicyError: the timeout cannot be read, or is negative.
    """

    def __init__(  # noqa: PLR0913 - one parameter for each thing that can be said of a request
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
        scope = SCOPE.get()
        self.operation = operation
        self.service = service
        self.idempotent = idempotent
        self.read_only = idempotent if read_only is None else read_only
        self.retry_strategy = retry_strategy
        self.context: dict[str, Any] = dict(context or {})
        self.id = id or unique()
        self.endpoint = endpoint
        self.internal = internal
        self.may_repeat_in_flight = may_repeat_in_flight
        self.clock: Clock = clock or (SYSTEM if scope is None else scope.clock)
        self.retry_attempts = 0
        self.completed = False
        self.interrupt = Interrupt()
        self._started = self.clock.monotonic()
        self._ends: float | None = None
        self._ended: float | None = None
        self._span = span
        self._on_completed = on_completed
        self.admit: Callable[[str | None], Permit | None] = _always
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

    # ------------------------------------------------------------------------------------------------------- its time

    @property
    def remaining(self) -> float | None:
        """Seconds until its deadline, negative after it; None without one."""
        return None if self._ends is None else self._ends - self.clock.monotonic()

    @property
    def timeout(self) -> timedelta | None:
        """The time that it has in all: its own timeout or the orchestrator's, or less under a deadline around it."""
        return None if self._ends is None else span(max(0.0, self._ends - self._started))

    @property
    def deadline(self) -> datetime | None:
        """The instant until which it waits for an answer, aware; None without one."""
        left = self.remaining
        return None if left is None else self.clock.now() + timedelta(seconds=left)

    @property
    def elapsed(self) -> timedelta:
        """From when it was made to its end, or to now."""
        until = self.clock.monotonic() if self._ended is None else self._ended
        return span(max(0.0, until - self._started))

    @property
    def ends(self) -> float | None:
        """Its deadline as a reading of its clock; None without one."""
        return self._ends

    # ---------------------------------------------------------------------------------------------- what has happened

    @property
    def retry_reasons(self) -> tuple[Reason, ...]:
        """Why it was sent again: each reason once, in the order of its first appearance."""
        return tuple(self._reasons)

    @property
    def history(self) -> tuple[AttemptRecord, ...]:
        """Its attempts, the present one included, as values."""
        return tuple(attempt.record for attempt in self._attempts)

    @property
    def is_ambiguous(self) -> bool:
        """Whether it may have changed something, and nobody knows. Once true, it stays so."""
        return not self.read_only and any(attempt.is_ambiguous for attempt in self._attempts)

    @property
    def dispatched_to(self) -> str | None:
        """Where it was sent last; None if it was not."""
        return next((each.endpoint for each in reversed(self._attempts) if each.endpoint is not None), None)

    @property
    def dispatched_from(self) -> str | None:
        """The client's end of the connection that it was last sent on; None if that is not known."""
        return next((each.local_address for each in reversed(self._attempts) if each.dispatched), None)

    @property
    def dispatched_on(self) -> str | None:
        """The id of the connection that it was last sent on; None if that is not known."""
        return next((each.channel_id for each in reversed(self._attempts) if each.dispatched), None)

    @property
    def last_error(self) -> BaseException | None:
        """What the last attempt that has failed raised; None if none has."""
        return next((each.error for each in reversed(self._attempts) if each.error is not None), None)

    @property
    def record(self) -> RequestRecord:
        """All that is known of it now, as a value."""
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
        )

    def bind(self, admit: Callable[[str | None], Permit | None], timeout: timedelta | None) -> None:
        """Take what an orchestrator has for its requests.

        Args:
            admit: asks the circuit breaker of an endpoint.
            timeout: for a request that has none.
        """
        self.admit = admit
        if self._ends is None and timeout is not None:
            self._ends = self._started + timeout.total_seconds()

    def record_retry(self, reason: Reason, delay: timedelta) -> None:
        """Note that it will be sent again.

        Args:
            reason: why.
            delay: what is waited before.
        """
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

    # ----------------------------------------------------------------------------------------------------- how it ends

    def succeed(self, value: object = None) -> bool:
        """End it with a result; whether it had not ended before.

        If it had timed out or was cancelled, the answer has no receiver: it is reported as an orphan, see
        `redrive.orchestrator.ResponseOrphaned`.
        """
        if not self.completed:
            self._value = value
        self.attempt.answer()
        return self._complete(None)

    def fail(self, error: BaseException) -> bool:
        """End it with an error; whether it had not ended before. The error gets what is known as ``__retry__``."""
        if not self.completed:
            self._error = error
            self.tell(error)
        return self._complete(error)

    def cancel(self) -> bool:
        """End it because nobody wants it any more; whether it had not ended before."""
        return self.fail(RequestCancelled(f"{self.operation} was cancelled"))

    def tell(self, error: BaseException) -> None:
        """Give an error what is known, as ``__retry__`` and as a note, unless nobody asked the orchestrator about it.

        Args:
            error: what the request fails with, or what that was made of.
        """
        if self.attempt.reason is None and not self.retry_attempts and not isinstance(error, RequestError):
            return
        record, earlier = self.record, getattr(error, "__retry__", None)
        notes: list[str] = list(getattr(error, "__notes__", ()))
        if isinstance(earlier, RequestRecord):  # the same object, raised for an earlier request
            notes = [note for note in notes if note != earlier.note]
        # An exception may refuse attributes (a frozen dataclass does); this is how Python itself sets them.
        BaseException.__setattr__(error, "__retry__", record)
        BaseException.__setattr__(error, "__notes__", [*notes, record.note])

    def result(self) -> Any:
        """What it ended with.

        Returns:
            Its result.

        Raises:
            BaseException: its error.
            RuntimeError: it has not ended.
        """
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
        is_gone = isinstance(error, TimeoutError | RequestCancelled)
        orphaned = orphans_of(self.record, self.clock) if is_gone else None
        for attempt in self._attempts:
            attempt.release(orphaned)
        if self._span is not None:
            self._span.set_attribute(RETRIES_ATTRIBUTE, self.retry_attempts)
            self._span.end()
        if self._on_completed is not None:
            self._on_completed(self)
        self.interrupt()
        return True


def _always(endpoint: str | None) -> None:
    """The breaker of a request that no orchestrator knows."""
