"""The retry orchestrator of RFC 0049."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TypeAlias, TypeVar

from redrive.errors import CircuitOpen, ClientClosed, RequestCancelled, RequestError, TooManyInRetry
from redrive.errors.foreign import attribute, is_a
from redrive.orchestrator.attempt import Attempt
from redrive.orchestrator.decision import cap, delay_of, log_refused, log_scheduled, timed_out
from redrive.orchestrator.interrupt import Interrupted
from redrive.orchestrator.reason import RetryReason
from redrive.orchestrator.request import Request, StrategyLike
from redrive.orchestrator.strategy import BestEffort
from redrive.policy import Failure, Policy, Reason
from redrive.policy.breaker import BreakerSettings
from redrive.policy.duration import Duration, parse_duration
from redrive.retrying.cancellation import keep_cancellation
from redrive.retrying.circuit_breaker import CircuitBreaker, Permit
from redrive.retrying.context import SCOPE, Call, Job, Scope
from redrive.retrying.plan import Plan

T = TypeVar("T")

Classified: TypeAlias = Failure | Reason | str | None
"""The answer of a classifier: a reason or its name, or a failure with a stage; None for an unknown error."""


def reason_of(request: Request, error: Exception) -> Classified:  # noqa: ARG001 - other classifiers use it
    """Return the attribute ``retry_reason`` of an error; the default classifier."""
    reason: Classified = attribute(error, "retry_reason")
    return reason


class Orchestrator:
    """Retries requests as RFC 0049 describes.

    One orchestrator serves any number of requests of one event loop at once.

    Args:
        strategy: for requests without one; by default `BestEffort`. A function is allowed.
        timeout: for requests without one. None: such a request may be retried without an end.
        classify: returns the reason of an error; see `Classified`. An error without a reason is raised at once.
        breaker: settings of a circuit breaker for each endpoint; by default there is none.
        max_in_retry: the largest number of requests that wait for their next attempt; one more is refused.

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
        self.timeout: timedelta | None = None if timeout is None else parse_duration(timeout)
        self.classify = classify
        self.max_in_retry = max_in_retry
        self._settings = breaker
        self._breakers: dict[str, CircuitBreaker] = {}
        self._in_retry: set[Request] = set()
        self._closed = False

    @property
    def closed(self) -> bool:
        """True if requests are no longer retried."""
        return self._closed

    @property
    def in_retry(self) -> int:
        """The number of requests between two attempts."""
        return len(self._in_retry)

    def close(self) -> None:
        """Stop retrying. Waiting requests fail with `ClientClosed` at once; those that are sent may finish."""
        self._closed = True
        for request in tuple(self._in_retry):
            request.interrupt()

    def breaker(self, endpoint: str) -> CircuitBreaker | None:
        """Return the circuit breaker of an endpoint; None if there are none. Reset it after a reconnect."""
        if self._settings is not None and endpoint not in self._breakers:
            self._breakers[endpoint] = CircuitBreaker(self._settings)
        return self._breakers.get(endpoint)

    def begin(self, request: Request) -> Attempt:
        """Bind a new request to the default timeout and the circuit breakers, and return its present attempt."""
        # For clients that send by themselves; `run` and `maybe_retry` do this, too.
        request.bind(self._admit, self.timeout)
        return request.attempt

    def _admit(self, endpoint: str | None) -> Permit | None:
        breaker = None if endpoint is None else self.breaker(endpoint)
        return None if breaker is None else breaker.admit()

    async def run(
        self, request: Request, send: Callable[[Request, Attempt], Awaitable[T]], *, marks: bool = False
    ) -> T:
        """Send a request until it has an answer, may not be sent again, or times out.

        Args:
            request: a new one.
            send: sends it once and returns its answer. Its exceptions are classified. It is cancelled at the deadline;
                ``attempt.remaining`` is the time that is left.
            marks: True if ``send`` calls `Attempt.dispatch` itself. Otherwise an attempt counts as dispatched as soon
                as ``send`` is called, which is the careful choice: a timeout then may be ambiguous.

        Returns:
            The result of ``send``, or the result with which other code completed the request.

        Raises:
            AmbiguousTimeout: the time was up, and it is unknown whether the request took effect.
            UnambiguousTimeout: the time was up, and it did not take effect.
            ClientClosed: the orchestrator was closed.
            RequestCancelled: `Request.cancel` was called.
            TooManyInRetry: too many requests wait already.
            Exception: the last exception of ``send``, if it is not retried; an exception of the strategy.
        """
        self.begin(request)
        cancel_requests: int | None = None
        try:
            with published(request, lambda error: self._classified(request, error) is not None):
                while not request.completed:
                    try:
                        request.succeed(await self._sent(request, send, marks=marks))
                    except Exception as error:  # noqa: BLE001 - an unclassified error is raised again
                        cancel_requests = keep_cancellation(error, cancel_requests)
                        await self._after(request, error)
        except BaseException as error:
            if not request.completed:
                request.fail(error) if isinstance(error, Exception) else request.cancel()
            raise
        answer: T = request.result()
        return answer

    async def _sent(self, request: Request, send: Callable[..., Awaitable[T]], *, marks: bool) -> T:
        """Make one attempt."""
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
        """Pass an error with a reason to `maybe_retry`; raise any other."""
        if request.completed:
            return
        reason = self._reason(request, error)
        if reason is None:
            raise error
        await self.maybe_retry(request, reason, error)

    def _classified(self, request: Request, error: Exception) -> Classified:
        """Return the classification of an error; None if it ends the request."""
        if is_a(error, CircuitOpen):
            return RetryReason.CIRCUIT_BREAKER_OPEN
        # Raised by redrive: it ends the request.
        if isinstance(error, RequestError):
            return None
        answer = self.classify(request, error)
        if not isinstance(answer, Failure):
            return answer
        is_final = answer.permanent is not None or answer.candidate is False or answer.lasting is not None
        return None if is_final else answer

    def _reason(self, request: Request, error: Exception) -> Reason | None:
        answer = self._classified(request, error)
        if isinstance(answer, Failure):
            request.attempt.stand(answer.stage)
            request.attempt.hint = answer.hint
            return RetryReason.of(answer.reason)
        return RetryReason.parse(answer) if isinstance(answer, str) else answer

    async def maybe_retry(self, request: Request, reason: Reason | str, error: Exception | None = None) -> bool:
        """Decide on a failed attempt, and wait for the next one if there is one.

        Args:
            request: the failed request.
            reason: of the failure, or its name.
            error: the exception of the attempt, which is raised if it is not retried.

        Returns:
            True if the request is to be sent again, as ``request.attempt``. False if other code has completed it.

        Raises:
            RequestError: a timeout, a close or too many waiting requests, as in `run`.
            RequestCancelled: it is not retried, and ``error`` is None.
            Exception: ``error``, if it is not retried; an exception of the strategy, or its translation of ``error``.
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
        """Choose, record and wait the delay; raise the error that ends the request."""
        # Whether the request is completed is checked again after each wait: the answer may have come from elsewhere.
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
        # A hint of the server is a lower bound before the cap. The cap applies to always-retry reasons, too.
        wait = cap(max(delay, request.attempt.hint or delay), request.remaining)
        request.record_retry(reason, wait.delay)
        with log_scheduled(request, reason, wait.delay):
            await self._wait(request, wait.delay)
        if request.completed:
            return
        self._check_open(request, reason)
        # After a capped wait the request times out and is not sent again.
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
        # Closed or completed; the caller checks both.
        with suppress(Interrupted):
            await request.interrupt.run(request.clock.asleep(delay.total_seconds()))


# Only its attribute `retries` is read.
_PLAN = Plan(Policy(on=Exception), "the orchestrator")


class _EnclosingRequest:
    """A request as a `redrive.retrying.context.Call`, so that `redrive.deadline` below it returns its deadline."""

    # A policy inside the sending function makes one attempt and leaves errors that the orchestrator classifies to the
    # orchestrator, unless it has `nested="both"`. The strategy is not asked here, since that would run user code.
    plan = _PLAN
    above: tuple[Call | Job, ...] = ()
    spans_tasks = True
    frame_id = 0

    def __init__(self, request: Request, outer: Call | None, retries: Callable[[Exception], bool]) -> None:
        self.clock = request.clock
        self.outer = outer
        self.live = True
        self._request = request
        self._retries = retries

    @property
    def name(self) -> str:
        return self._request.operation

    @property
    def number(self) -> int:
        return self._request.attempt.number

    @property
    def ends(self) -> float | None:
        return self._request.ends

    def repeats(self, error: Exception | None, result: object) -> bool:  # noqa: ARG002 - requests have no result predicates
        return error is not None and self._retries(error)


@contextmanager
def published(request: Request, retries: Callable[[Exception], bool]) -> Iterator[None]:
    """Make a request the enclosing call inside a ``with`` block, and in tasks started there."""
    scope = SCOPE.get() or Scope()
    call = _EnclosingRequest(request, scope.call, retries)
    token = SCOPE.set(scope.with_(call=call))
    try:
        yield
    finally:
        call.live = False
        # The garbage collector closes coroutines in another context.
        with suppress(ValueError):
            SCOPE.reset(token)
