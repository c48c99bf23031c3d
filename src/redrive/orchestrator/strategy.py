"""The retry strategies: best effort (the default), fail fast (for internal requests), fail fast on terminal errors.

To change one case, override it::

    class Humans(BestEffort):
        async def retry_after(self, request, reason):
            if "is_robot" in request.context:
                return None
            return await super().retry_after(request, reason)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from datetime import timedelta

from redrive.errors import (
    AuthenticationFailure,
    CollectionNotFound,
    PolicyValueError,
    ScopeNotFound,
    TerminalFailure,
)
from redrive.orchestrator.backoff import Calculator, RandomJitter, exponential_backoff
from redrive.orchestrator.reason import RetryReason
from redrive.orchestrator.request import Request, RetryAction
from redrive.policy import Backoff, Jitter, Reason
from redrive.policy.duration import parse_duration, span
from redrive.retrying.context import SCOPE
from redrive.retrying.rng import roll


class BestEffort:
    """Retries idempotent requests, and others for reasons that allow it, until their deadline (RFC 0049).

    Args:
        backoff: a `redrive.policy.Backoff`, or a function from the number of retries so far to a delay; by default
            exponential from 1 to 500 ms. A backoff that ends (``.take(5)``) ends the retrying.
        jitter: a `redrive.policy.Jitter` or its name, or a `RandomJitter`; by default none, as in the RFC.

    Raises:
        redrive.errors.PolicyError: the jitter is unknown.
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
        """Return the delay before the next attempt of a request; None if there is none."""
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
    """A strategy for a client's internal requests that are repeated anyway: only always-retry reasons are retried."""

    # RFC 0049 does not offer it to users; see "Fail fast" in the reference.

    def __repr__(self) -> str:
        return "FailFast()"

    async def retry_after(self, request: Request, reason: RetryReason, /) -> RetryAction | None:  # noqa: ARG002
        """See `RetryStrategy.retry_after`."""
        return None


# The terminal reasons, and the errors that they become, in the order of the draft of RFC 0049's revision 16 (November
# 2025, unmerged). Best effort retries a wrong password until the timeout; the draft gives causes that do not go away
# reasons of their own.
TERMINAL: Mapping[str, type[TerminalFailure]] = {
    "AUTHENTICATION_ERROR": AuthenticationFailure,
    "TLS_ERROR": TerminalFailure,
    "BUCKET_ACCESS_ERROR": TerminalFailure,
    "SCOPE_NOT_FOUND": ScopeNotFound,
    "COLLECTION_NOT_FOUND": CollectionNotFound,
}


class FailFastOnTerminalError(BestEffort):
    """Best effort that ends on a terminal reason with an error for that reason (draft of RFC 0049's revision 16).

    Args:
        backoff: see `BestEffort`.
        errors: for each terminal reason by name, a function from the message to the error; by default `TERMINAL`. If
            several connections fail, the first in this order is used.
        nth: the terminal failure of a request that ends it, counted from 1; the ones before are retried.

    Raises:
        PolicyValueError: ``nth`` is below 1.
    """

    def __init__(
        self,
        backoff: Calculator | None = None,
        *,
        errors: Mapping[str, Callable[[str], Exception]] = TERMINAL,
        nth: int = 1,
    ) -> None:
        super().__init__(backoff)
        if nth < 1:
            message = f"nth={nth!r}: the first terminal failure is the earliest that can end a request"
            raise PolicyValueError(message)
        self.errors = errors
        self.nth = nth

    async def retry_after(self, request: Request, reason: RetryReason, /) -> RetryAction | None:
        """See `RetryStrategy.retry_after`."""
        error = self.errors.get(reason.name)
        if error is None:
            return await super().retry_after(request, reason)
        earlier = sum(each.delay is not None and _name(each.reason) in self.errors for each in request.history)
        if earlier + 1 < self.nth:
            return await super().retry_after(request, reason)
        message = f"{request.operation} is not retried: {reason.name}"
        return RetryAction.no_retry(lambda _: error(message))


def _name(reason: Reason | None) -> str:
    return "" if reason is None else reason.name


class TerminalErrors:
    """The terminal reasons of the connections that watch the cluster, and the one that a request should fail for."""

    # The draft's reasons belong to connections, but a request only fails for `NODE_NOT_AVAILABLE`. So the reason of
    # each failing connection is kept until it succeeds.

    def __init__(self, order: Mapping[str, object] = TERMINAL) -> None:
        self._order = tuple(order)
        self._failing: dict[Hashable, str] = {}

    def failed(self, connection: Hashable, reason: Reason) -> None:
        """Record that a connection could not be made or used; ignore reasons that are not terminal."""
        if reason.name in self._order:
            self._failing[connection] = reason.name

    def succeeded(self, connection: Hashable) -> None:
        """Record that a connection works or was removed."""
        self._failing.pop(connection, None)

    def reason_for(self, reason: Reason) -> RetryReason:
        """Return the first terminal reason of a failing connection; the given reason if there is none."""
        failing = set(self._failing.values())
        first = next((name for name in self._order if name in failing), None)
        return RetryReason(*reason) if first is None else RetryReason.of(first)


def _previous(request: Request) -> float | None:
    """Return the last delay of a request, in seconds."""
    delays = (each.delay for each in reversed(request.history) if each.delay is not None)
    last = next(delays, None)
    return None if last is None else last.total_seconds()


def _sample() -> float:
    scope = SCOPE.get()
    return (roll if scope is None else scope.roll)()
