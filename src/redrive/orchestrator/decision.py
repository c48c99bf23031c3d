"""How long a failed request waits before it is sent again, or why it is not: steps 2 to 4 of the orchestrator."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from redrive.errors import RequestCancelled
from redrive.orchestrator.action import RetryAction
from redrive.orchestrator.backoff import controlled_backoff
from redrive.orchestrator.events import log_refused
from redrive.orchestrator.interrupt import Interrupted
from redrive.orchestrator.reason import RetryReason
from redrive.orchestrator.request import Request, StrategyLike
from redrive.retrying.context import SCOPE

__all__ = ["delay_of"]


async def delay_of(
    request: Request,
    reason: RetryReason,
    error: Exception | None,
    default: StrategyLike,
) -> timedelta:
    """Decide about one failure.

    Args:
        request: what has failed.
        reason: why.
        error: what the attempt raised, if anything.
        default: the strategy of a request that has none.

    Returns:
        How long to wait, not yet capped.

    Raises:
        Interrupted: the strategy's waiting was ended.
        RequestCancelled: it is not sent again, and no ``error`` was given.
        Exception: ``error``, if it is not sent again; what the strategy raised, or made of the error.
    """
    scope = SCOPE.get()
    if request.attempt.delivered or (scope is not None and scope.off):
        raise _refused(request, reason, error)
    if reason.always_retry:
        return controlled_backoff(request.retry_attempts)
    if _is_lost(request):
        raise _refused(request, reason, error)
    action = await _asked(request, reason, default if request.retry_strategy is None else request.retry_strategy)
    if action is None or action.duration is None:
        raise _refused(request, reason, error, action)
    return action.duration


def _is_lost(request: Request) -> bool:
    """Return True if it may have taken effect and may not be repeated: no strategy is asked then."""
    return request.attempt.is_ambiguous and not (request.idempotent or request.may_repeat_in_flight)


async def _asked(request: Request, reason: RetryReason, strategy: StrategyLike) -> RetryAction | None:
    """The answer of a strategy, which is an object or a function, and waits or does not."""
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


def _refused(
    request: Request, reason: RetryReason, error: Exception | None, action: RetryAction | None = None
) -> Exception:
    """The error of a request that is not sent again: its own, as far as there is one."""
    log_refused(request, reason, error)
    real = error
    if real is None:
        message = f"{request.operation} is not retried: {reason.name}"
        real = RequestCancelled(message, cancellation="NO_MORE_RETRIES", reason=reason.name)
    if action is None or action.translate is None:
        return real
    request.tell(real)
    translated = action.translate(real)
    translated.__cause__ = real
    return translated
