"""What a strategy answers: wait so long and send the request again, or do not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from redrive.policy.duration import Duration, parse_duration
from redrive.policy.value import Value, freeze

__all__ = ["RetryAction"]


class RetryAction(Value):
    """The answer of a `RetryStrategy`. Instead of one, None says: do not retry.

    Args:
        duration: how long to wait; zero is a delay like any other. None: do not retry. (Two SDKs take zero for "no";
            then nobody can retry at once.)
        translate: makes another error of the one that is raised if the request is not retried. The error that it got
            becomes the cause of the one that it returns.

    Raises:
        redrive.errors.PolicyError: the duration cannot be read, or is negative.
    """

    __slots__ = ("duration", "translate")
    _fields = ("duration", "translate")
    duration: timedelta | None
    translate: Callable[[Exception], Exception] | None

    def __init__(self, duration: Duration | None, translate: Callable[[Exception], Exception] | None = None) -> None:
        freeze(self, "duration", None if duration is None else parse_duration(duration))
        freeze(self, "translate", translate)

    @staticmethod
    def no_retry(translate: Callable[[Exception], Exception] | None = None) -> RetryAction:
        """Do not retry; the error that is raised may be translated."""
        return RetryAction(None, translate)
