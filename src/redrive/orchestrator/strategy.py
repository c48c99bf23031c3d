"""The strategies that come with it: best effort, which is the default, and fail fast, which is for internal requests.

To change one case, take `BestEffort` and override it::

    class Humans(BestEffort):
        async def retry_after(self, request, reason):
            if "is_robot" in request.context:
                return None
            return await super().retry_after(request, reason)
"""

from __future__ import annotations

from datetime import timedelta

from redrive.orchestrator.action import RetryAction
from redrive.orchestrator.backoff import Calculator, RandomJitter, exponential_backoff
from redrive.orchestrator.reason import RetryReason
from redrive.orchestrator.request import Request
from redrive.policy import Backoff, Jitter
from redrive.policy.duration import parse_duration, span
from redrive.retrying.context import SCOPE
from redrive.retrying.rng import roll

__all__ = ["BestEffort", "FailFast"]


class BestEffort:
    """Retries what is idempotent or failed for a reason that allows it, until the request's time is up (RFC 0049).

    Args:
        backoff: a `redrive.policy.Backoff`, or a function from the number of retries so far to a delay; by default
            exponential from 1 to 500 ms. One that ends (``.take(5)``) ends the retrying.
        jitter: how delays are drawn: a `redrive.policy.Jitter` or its name, or a `RandomJitter`; by default not at all,
            as in the RFC.

    Raises:
        redrive.errors.PolicyError: there is no such jitter.
    """

    def __init__(self, backoff: Calculator | None = None, *, jitter: Jitter | RandomJitter | str = "none") -> None:
        self.backoff: Calculator = exponential_backoff() if backoff is None else backoff
        self.jitter = Jitter(jitter) if isinstance(jitter, str) else jitter

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.backoff!r}, jitter={self.jitter!r})"

    async def retry_after(self, request: Request, reason: RetryReason, /) -> RetryAction | None:
        """See `RetryStrategy.retry_after`."""
        if not (request.idempotent or reason.allows_non_idempotent_retry):
            return None
        delay = self.delay(request)
        return None if delay is None else RetryAction(delay)

    def delay(self, request: Request) -> timedelta | None:
        """How long to wait before the next attempt of a request; None if there is none."""
        if not isinstance(self.backoff, Backoff):
            return self._jittered(parse_duration(self.backoff(request.retry_attempts)).total_seconds())
        retry = request.retry_attempts + 1
        if self.backoff.draws:
            return span(self.backoff.draw(retry, _previous(request), _sample()))
        nominal = self.backoff.delay(retry)
        return None if nominal is None else self._jittered(nominal, self.backoff.lowest(retry))

    def _jittered(self, nominal: float, lowest: float = 0.0) -> timedelta:
        return span(self.jitter.apply(nominal, _sample(), lowest))


class FailFast:
    """Retries nothing but what is always retried. Internal: for a client's own requests that come again anyway.

    RFC 0049 leaves it out of what users are given, on purpose; see "Fail fast" in the reference.
    """

    def __repr__(self) -> str:
        return "FailFast()"

    async def retry_after(self, request: Request, reason: RetryReason, /) -> RetryAction | None:  # noqa: ARG002
        """See `RetryStrategy.retry_after`."""
        return None


def _previous(request: Request) -> float | None:
    """The last delay of a request, in seconds."""
    delays = (each.delay for each in reversed(request.history) if each.delay is not None)
    last = next(delays, None)
    return None if last is None else last.total_seconds()


def _sample() -> float:
    scope = SCOPE.get()
    return (roll if scope is None else scope.roll)()
