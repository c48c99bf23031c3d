"""The orchestrator: every failure of a request goes through `Orchestrator.maybe_retry`, in one order.

1.  **Already completed**: nothing is done. (Part of its result delivered: it is not sent again, whatever follows.)
2.  **Always-retry reason**: controlled backoff, from the count before this retry. It beats every strategy.
3.  **Stage guard**: what may have taken effect and is not idempotent is refused before any code of the user runs: it
    was lost in flight, or its answer proves nothing.
4.  **Strategy**: the request's, else the orchestrator's. Its waiting is cut by the deadline. One that raises surfaces.
5.  **Cap** to the deadline, also what is always retried. Before that, a hint of the server is a floor.
6.  **Record** the retry.
7.  **Log** it.
8.  **Wait**, without blocking. A close ends the wait.
9.  After a capped wait the request **times out**; it is not sent again.

After each thing that takes time, 1 is asked again: the answer may have come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import TypeAlias, TypeVar

from redrive.errors import CircuitOpen, ClientClosed, RequestCancelled, RequestError, TooManyInRetry
from redrive.orchestrator.attempt import Attempt
from redrive.orchestrator.decision import delay_of
from redrive.orchestrator.events import log_refused, log_scheduled
from redrive.orchestrator.interrupt import Interrupted
from redrive.orchestrator.reason import RetryReason
from redrive.orchestrator.request import Request, StrategyLike
from redrive.orchestrator.strategy import BestEffort
from redrive.orchestrator.timeouts import cap, timed_out
from redrive.orchestrator.under import published
from redrive.policy import Failure, Reason
from redrive.policy.breaker import BreakerSettings
from redrive.policy.duration import Duration, parse_duration
from redrive.retrying.circuit_breaker import CircuitBreaker, Permit

__all__ = ["Classified", "Orchestrator", "reason_of"]

T = TypeVar("T")

Classified: TypeAlias = Failure | Reason | str | None
"""What a classifier makes of an error: a reason or its name, or a failure with a stage; None: none of its business."""


def reason_of(request: Request, error: Exception) -> Classified:  # noqa: ARG001 - other classifiers look at it
    """The classifier that applies where none is given: what the error says of itself as ``retry_reason``.

    Args:
        request: what was sent.
        error: what sending it raised.
    """
    said: Classified = getattr(error, "retry_reason", None)
    return said


class Orchestrator:
    """Sends requests again, or fails them, as RFC 0049 says.

    One orchestrator serves any number of requests of one event loop at once.

    Args:
        strategy: for requests that bring none; by default `BestEffort`. A function in place of an object is fine.
        timeout: for requests that bring none. None: such a request may be retried for ever.
        classify: says why sending a request failed; see `Classified`. What it does not know surfaces at once.
        breaker: settings of a circuit breaker for each endpoint; by default there are none.
        max_in_retry: so many requests may wait for their next attempt at once; one more is refused.

    Raises:
        redrive.errors.PolicyError: the timeout cannot be read, or is negative.
    """

    def __init__(
        self,
        *,
        strategy: StrategyLike | None = None,
        timeout: Duration | None = "75s",
        classify: Callable[[Request, Exception], Classified] = reason_of,
        breaker: BreakerSettings | None = None,
        max_in_retry: int = 32_768,
    ) -> None:
        self.strategy: StrategyLike = BestEffort() if strategy is None else strategy
        self.timeout = None if timeout is None else parse_duration(timeout)
        self.classify = classify
        self.max_in_retry = max_in_retry
        self._settings = breaker
        self._breakers: dict[str, CircuitBreaker] = {}
        self._in_retry: set[Request] = set()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nothing is retried any more."""
        return self._closed

    @property
    def in_retry(self) -> int:
        """How many requests are between two attempts."""
        return len(self._in_retry)

    def close(self) -> None:
        """Retry nothing any more. Requests that wait are answered "closed" at once; those that are out may finish."""
        self._closed = True
        for request in tuple(self._in_retry):
            request.interrupt()

    def breaker(self, endpoint: str) -> CircuitBreaker | None:
        """The circuit breaker of an endpoint; None if there are none. Reset it when you have connected anew.

        Args:
            endpoint: as `Attempt.dispatch` gets it.
        """
        if self._settings is not None and endpoint not in self._breakers:
            self._breakers[endpoint] = CircuitBreaker(self._settings)
        return self._breakers.get(endpoint)

    def begin(self, request: Request) -> Attempt:
        """Take a request on: it gets the default timeout and the circuit breakers.

        Args:
            request: a new one; `run` and `maybe_retry` do this by themselves.

        Returns:
            Its present attempt, to be told what happens.
        """
        request.bind(self._admit, self.timeout)
        return request.attempt

    def _admit(self, endpoint: str | None) -> Permit | None:
        breaker = None if endpoint is None else self.breaker(endpoint)
        return None if breaker is None else breaker.admit()

    # -------------------------------------------------------------------------------------------------- one whole call

    async def run(
        self, request: Request, send: Callable[[Request, Attempt], Awaitable[T]], *, marks: bool = False
    ) -> T:
        """Send a request until it has an answer, may not be sent again, or its time is up.

        Args:
            request: a new one.
            send: sends it once and returns its answer. What it raises is classified. It is cut off by the deadline;
                ``attempt.remaining`` tells how long it may take.
            marks: ``send`` calls `Attempt.dispatch` itself, at the right moment. Otherwise an attempt counts as
                dispatched as soon as ``send`` is called, which is careful: what times out then may have taken effect.

        Returns:
            What ``send`` returned; or what somebody else completed the request with in the meantime.

        Raises:
            AmbiguousTimeout: the time was up, and nobody knows whether it took effect.
            UnambiguousTimeout: the time was up, and it did not.
            ClientClosed: the orchestrator was closed.
            RequestCancelled: `Request.cancel` was called.
            TooManyInRetry: too many requests wait already.
            Exception: what ``send`` raised last, if it is not retried; what a strategy raised.
        """
        self.begin(request)
        try:
            with published(request, lambda error: self._said(request, error) is not None):
                while not request.completed:
                    try:
                        request.succeed(await self._sent(request, send, marks=marks))
                    except Exception as error:  # noqa: BLE001 - what is not classified is raised again
                        await self._after(request, error)
        except BaseException as error:
            if not request.completed:
                request.fail(error) if isinstance(error, Exception) else request.cancel()
            raise
        answer: T = request.result()
        return answer

    async def _sent(self, request: Request, send: Callable[..., Awaitable[T]], *, marks: bool) -> T:
        """One attempt."""
        attempt, left = request.attempt, request.remaining
        if left is not None and left <= 0:
            raise timed_out(request)
        if not marks:
            attempt.dispatch(request.endpoint)
        try:
            return await request.interrupt.run(send(request, attempt), lambda: request.remaining)
        except Interrupted:
            raise timed_out(request) from request.last_error

    async def _after(self, request: Request, error: Exception) -> None:
        """Go through `maybe_retry` if the error is one for it, else end the request with it."""
        if request.completed:
            return
        reason = self._reason(request, error)
        if reason is None:
            raise error
        await self.maybe_retry(request, reason, error)

    def _said(self, request: Request, error: Exception) -> Classified:
        """What an error means; None: it ends the request."""
        if isinstance(error, CircuitOpen):
            return RetryReason.CIRCUIT_BREAKER_OPEN
        if isinstance(error, RequestError):  # our own: it says that this is the end
            return None
        said = self.classify(request, error)
        final = isinstance(said, Failure) and (said.permanent is not None or said.candidate is False)
        return None if final else said

    def _reason(self, request: Request, error: Exception) -> Reason | None:
        said = self._said(request, error)
        if isinstance(said, Failure):
            request.attempt.stand(said.stage)
            request.attempt.hint = said.hint
            return RetryReason.of(said.reason)
        return RetryReason.parse(said) if isinstance(said, str) else said

    # ----------------------------------------------------------------------------------------------- after one failure

    async def maybe_retry(self, request: Request, reason: Reason | str, error: Exception | None = None) -> bool:
        """Decide what becomes of a failed attempt, and wait for the next one if there is one.

        Args:
            request: what has failed.
            reason: why, as a reason or its name.
            error: what the attempt raised; it is what a refused retry raises.

        Returns:
            Whether to send it again, as ``request.attempt``. If not, somebody else has completed it, and there is
            nothing to do.

        Raises:
            AmbiguousTimeout: its time is up, and nobody knows whether it took effect.
            UnambiguousTimeout: its time is up, and it did not.
            ClientClosed: the orchestrator was closed.
            TooManyInRetry: too many requests wait already.
            RequestCancelled: it is not retried, and no ``error`` was given.
            Exception: ``error``, if it is not retried; what the strategy raised, or made of the error.
        """
        if request.completed:
            return False
        why = RetryReason.parse(reason) if isinstance(reason, str) else RetryReason(*reason)
        self.begin(request).fail(why, error)
        self._in_retry.add(request)
        try:
            await self._retry(request, why, error)
        except Exception as failure:
            if request.fail(failure):
                raise
        except BaseException:
            request.cancel()
            raise
        finally:
            self._in_retry.discard(request)
        return not request.completed

    async def _retry(self, request: Request, reason: RetryReason, error: Exception | None) -> None:
        """Steps 2 to 9; raises what ends the request."""
        self._check_open(request, reason)
        try:
            delay = await delay_of(request, reason, error, self.strategy)
        except Interrupted:
            self._check_open(request, reason)
            raise timed_out(request) from request.last_error
        if request.completed:
            return
        self._check_open(request, reason)
        if len(self._in_retry) > self.max_in_retry:
            raise self._logged(request, reason, TooManyInRetry(reason=reason.name))
        wait = cap(max(delay, request.attempt.hint or delay), request.remaining)  # a hint is a floor (law 9)
        request.record_retry(reason, wait.delay)
        with log_scheduled(request, reason, wait.delay):
            await self._wait(request, wait.delay)
        if request.completed:
            return
        self._check_open(request, reason)
        if wait.expires:
            raise timed_out(request)
        request.begin_next()

    def _check_open(self, request: Request, reason: RetryReason) -> None:
        if self._closed:
            raise self._logged(request, reason, ClientClosed(reason=reason.name))

    def _logged(self, request: Request, reason: RetryReason, refusal: RequestCancelled) -> RequestCancelled:
        log_refused(request, reason, refusal)
        refusal.__cause__ = request.last_error
        return refusal

    async def _wait(self, request: Request, delay: timedelta) -> None:
        with suppress(Interrupted):  # closed or completed: whoever has ended it knows
            await request.interrupt.run(request.clock.asleep(delay.total_seconds()))
