"""What is told of each decision: RFC 0049 requires it, "so it can be debugged after the fact".

Two events go to the logger ``redrive.orchestrator``, as text and, for programs, as ``record.event``. A retry is DEBUG:
it is what the orchestrator is for. A refusal is INFO, or DEBUG for an internal request, for which nobody waits.

They are events of `redrive.observe`, and its sinks hear them too. What is special is only that `redrive.observe.log`
hears them without having been added.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from redrive import observe
from redrive.observe.audience import AUDIENCE
from redrive.policy import Reason, format_duration
from redrive.retrying.orchestrator.request import Request

__all__ = ["RequestNotRetried", "RequestRetryScheduled", "RetryEvent", "log_refused", "log_scheduled"]

log = logging.getLogger("redrive.orchestrator")


@dataclass(frozen=True, slots=True)
class RetryEvent(observe.Event):
    """What was decided about a request.

    Attributes:
        reason: why the attempt failed.
        delay: how long is waited; None for no retry.
        attempts: retries so far, this one included.
        id: of the request.
        operation: what was asked.
        endpoint: where it was sent last; None if it was not.
        context: what the caller has given to it.
        cause: what the attempt raised, or what else was in the way; None if nothing is known.
    """

    reason: Reason
    delay: timedelta | None
    attempts: int
    id: str
    operation: str
    endpoint: str | None
    context: Mapping[str, Any]
    cause: BaseException | None

    channel = "redrive.orchestrator"

    @property
    def name(self) -> str:
        """The operation."""
        return self.operation

    def _details(self) -> str:
        cause = "" if self.cause is None else f", cause={self.cause!r}"
        return (
            f"reason={self.reason.name}, retries={self.attempts}, id={self.id}, endpoint={self.endpoint}, "
            f"context={dict(self.context)}{cause}"
        )


class RequestRetryScheduled(RetryEvent):
    """It will be sent again."""

    __slots__ = ()
    level = logging.DEBUG

    def __str__(self) -> str:
        return f"{self.operation} is retried in {format_duration(self.delay or timedelta(0))}: {self._details()}"


class RequestNotRetried(RetryEvent):
    """It will not."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.operation} is not retried: {self._details()}"


def log_scheduled(request: Request, reason: Reason, delay: timedelta) -> observe.Wait:
    """Tell that a request will be sent again.

    Args:
        request: with this retry recorded.
        reason: why its attempt failed.
        delay: how long is waited.

    Returns:
        What sinks want to have around the wait.
    """
    return _log(logging.DEBUG, RequestRetryScheduled, request, reason, delay, request.attempt.error)


def log_refused(request: Request, reason: Reason, cause: BaseException | None) -> None:
    """Tell that a request will not be sent again.

    Args:
        request: which; of one that has ended nothing is told.
        reason: why its attempt failed.
        cause: what the attempt raised, or what else was in the way.
    """
    if request.completed:
        return  # somebody else has ended it in the meantime, so this is no news
    level = logging.DEBUG if request.internal else logging.INFO
    with _log(level, RequestNotRetried, request, reason, None, cause):
        """No wait follows."""


def _log(  # noqa: PLR0913, PLR0917 - what an event is made of
    level: int,
    kind: type[RetryEvent],
    request: Request,
    reason: Reason,
    delay: timedelta | None,
    cause: BaseException | None,
) -> observe.Wait:
    is_logged = log.isEnabledFor(level)
    if not is_logged and not AUDIENCE:
        return observe.Wait()
    event = kind(
        reason,
        delay,
        request.retry_attempts,
        request.id,
        request.operation,
        request.dispatched_to,
        dict(request.context),
        cause,
    )
    if is_logged:
        observe.log(event, level=level)
    return observe.around(event, but=observe.log)
