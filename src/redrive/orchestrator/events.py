"""The events of requests. RFC 0049 requires them for each decision, "so it can be debugged after the fact".

They go to the logger ``redrive.orchestrator``, as text and, for programs, as ``record.event``. A retry is DEBUG: it is
what the orchestrator is for. A refusal is INFO, or DEBUG for an internal request, which has no caller. An answer that
came after its request had timed out or was cancelled, an *orphan*, is INFO: it shows what became of a request that
ended in doubt.

They are events of `redrive.observe`, and its sinks get them too. What is special is only that `redrive.observe.log`
gets them without having been added. ``event.to_dict()`` gives an event as plain data, fit for JSON.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from redrive import observe
from redrive.orchestrator.orphans import RequestEvent, about, emit, fields_of
from redrive.orchestrator.request import Request
from redrive.policy import Reason, format_duration

__all__ = ["RequestNotRetried", "RequestRetryScheduled", "RetryEvent", "log_refused", "log_scheduled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryEvent(RequestEvent):
    """What was decided about a request.

    Attributes:
        reason: why the attempt failed.
        delay: how long is waited; None for no retry.
        cause: what the attempt raised, or what else was in the way; None if nothing is known.
    """

    reason: Reason
    delay: timedelta | None = None
    cause: BaseException | None = None

    def _details(self) -> str:
        cause = "" if self.cause is None else f", cause={self.cause!r}"
        return f"reason={self.reason.name}, {about(self)}{cause}"


class RequestRetryScheduled(RetryEvent):
    """It will be sent again; ``attempts`` includes this retry."""

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
    """Emit the event of a request that will be sent again.

    Args:
        request: with this retry recorded.
        reason: why its attempt failed.
        delay: how long is waited.

    Returns:
        What sinks want to have around the wait.
    """
    return emit(
        logging.DEBUG,
        lambda: RequestRetryScheduled(
            reason=reason, delay=delay, cause=request.attempt.error, **fields_of(request.record)
        ),
    )


def log_refused(request: Request, reason: Reason, cause: BaseException | None) -> None:
    """Emit the event of a request that will not be sent again.

    Args:
        request: which; of one that has ended nothing is told.
        reason: why its attempt failed.
        cause: what the attempt raised, or what else was in the way.
    """
    if request.completed:
        return  # somebody else has ended it in the meantime, so this is no news
    level = logging.DEBUG if request.internal else logging.INFO
    with emit(level, lambda: RequestNotRetried(reason=reason, cause=cause, **fields_of(request.record))):
        """No wait follows."""
