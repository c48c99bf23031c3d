"""The decision on a failed request: its delay, the cap to its deadline, and its errors."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, NamedTuple

from redrive import observe
from redrive.errors import AmbiguousTimeout, RequestCancelled, UnambiguousTimeout
from redrive.orchestrator.events import RequestNotRetried, RequestRetryScheduled, emit, fields_of
from redrive.orchestrator.interrupt import Interrupted
from redrive.orchestrator.reason import RetryReason
from redrive.orchestrator.request import Request, RetryAction, StrategyLike
from redrive.orchestrator.strategy import controlled_backoff
from redrive.policy import Reason, format_duration
from redrive.policy.duration import Duration, parse_duration, span
from redrive.retrying.context import SCOPE


async def delay_of(request: Request, reason: RetryReason, error: Exception | None, default: StrategyLike) -> timedelta:
    """Return the delay before the next attempt, not yet capped to the deadline.

    A request that is not retried raises ``error``, its translation by the strategy, or `RequestCancelled`.
    """
    scope = SCOPE.get()
    # After a part of the result has reached the caller the request is not sent again, for any reason.
    if request.attempt.delivered or (scope is not None and scope.off):
        raise _refusal(request, reason, error)
    # Always-retry reasons: controlled backoff by the count before this retry, without the strategy.
    if reason.always_retry:
        return controlled_backoff(request.retry_attempts)
    # The stage is checked before any user code runs, so that no strategy repeats a mutation by mistake.
    if _is_lost(request):
        raise _refusal(request, reason, error)
    action = await _ask(request, reason, default if request.retry_strategy is None else request.retry_strategy)
    if action is None or action.duration is None:
        raise _refusal(request, reason, error, action)
    return action.duration


def _is_lost(request: Request) -> bool:
    """Return True if it may have taken effect and may not be repeated; the strategy is not asked then."""
    return request.attempt.is_ambiguous and not (request.idempotent or request.may_repeat_in_flight)


async def _ask(request: Request, reason: RetryReason, strategy: StrategyLike) -> RetryAction | None:
    """Return the answer of a strategy: an object or a function, with or without ``await``."""
    given: Any = strategy
    ask = getattr(given, "retry_after", given)
    try:
        answer = ask(request, reason)
        if hasattr(answer, "__await__"):
            answer = await request.interrupt.run(answer, lambda: request.remaining)
        return _checked(answer, strategy)
    except Interrupted:
        raise
    except Exception as error:
        log_refused(request, reason, error)
        raise


def _checked(answer: object, strategy: object) -> RetryAction | None:
    if answer is None or isinstance(answer, RetryAction):
        return answer
    raise TypeError(f"{strategy!r} answered {answer!r}: a strategy answers a RetryAction, or None for no retry")


def _refusal(
    request: Request, reason: RetryReason, error: Exception | None, action: RetryAction | None = None
) -> Exception:
    """Return the error of a request that is not retried: its own, if there is one."""
    log_refused(request, reason, error)
    original = error
    if original is None:
        message = f"{request.operation} is not retried: {reason.name}"
        original = RequestCancelled(message, cancellation="NO_MORE_RETRIES", reason=reason.name)
    if action is None or action.translate is None:
        return original
    request.attach_record(original)
    translated = action.translate(original)
    translated.__cause__ = original
    return translated


def log_scheduled(request: Request, reason: Reason, delay: timedelta) -> observe.Wait:
    """Emit the event of a retry that is recorded already; return the context managers of observers for the wait."""
    return emit(
        logging.DEBUG,
        lambda: RequestRetryScheduled(
            reason=reason,
            reasons=request.retry_reasons,
            delay=delay,
            cause=request.attempt.error,
            **fields_of(request.record),
        ),
    )


def log_refused(request: Request, reason: Reason, cause: BaseException | None) -> None:
    """Emit the event of a request that is not retried, unless it has been completed by other code."""
    if request.completed:
        # Other code has ended it.
        return
    level = logging.DEBUG if request.internal else logging.INFO
    with emit(level, lambda: RequestNotRetried(reason=reason, cause=cause, **fields_of(request.record))):
        # No wait follows.
        pass


_FLOOR = timedelta(milliseconds=1500)


class WaitDecision(NamedTuple):
    """A delay under a deadline."""

    delay: timedelta
    #: True if the deadline is at its end, so that the request is not sent again.
    expires: bool


def cap(delay: timedelta, remaining: float | None) -> WaitDecision:
    """Return a delay cut to the remaining seconds, which are negative after the deadline and None without one."""
    # A wait never passes the deadline: a longer one is cut, and then the request times out without being sent again.
    # (After the deadline, two SDKs wait the whole delay, and two send the request after a cut wait.)
    if remaining is None:
        return WaitDecision(delay, expires=False)
    left = span(max(0.0, remaining))
    return WaitDecision(min(delay, left), expires=delay >= left)


def timed_out(request: Request) -> AmbiguousTimeout | UnambiguousTimeout:
    """Return the timeout error of a request, with its last exception as the cause."""
    start = f"{request.operation} timed out after {format_duration(_rounded(request.elapsed))}, {_retries(request)}"
    error: AmbiguousTimeout | UnambiguousTimeout
    # Ambiguous if the request can change data and some attempt was sent without a definite answer (RFC 0058). Later
    # attempts do not alter that: an upsert that was lost once and then refused may have taken effect the first time.
    if request.is_ambiguous:
        error = AmbiguousTimeout(f"{start}; it is unknown whether it took effect")
    else:
        error = UnambiguousTimeout(f"{start}; it {'changes nothing' if request.read_only else 'did not take effect'}")
    error.__cause__ = request.last_error
    return error


def _rounded(elapsed: timedelta) -> timedelta:
    return timedelta(milliseconds=round(elapsed.total_seconds() * 1000))


def _retries(request: Request) -> str:
    if not request.retry_attempts:
        return "without a retry"
    times = f"{request.retry_attempts} retr{'y' if request.retry_attempts == 1 else 'ies'}"
    return f"after {times} ({', '.join(reason.name for reason in request.retry_reasons)})"


def server_timeout(timeout: Duration) -> timedelta:
    """Return the timeout to send to the server: 90 % of the remaining time, and not less than 1.5 s (as the C++ SDK).

    The rest is for the response: a server that gives up in time can report whether a durable write took effect.
    """
    return max(parse_duration(timeout) * 9 // 10, _FLOOR)
