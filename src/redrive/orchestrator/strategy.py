"""The retry strategies of RFC 0049 and their delays.

The strategies are best effort (the default), fail fast (for internal requests) and fail fast on terminal errors.

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
from typing import TypeAlias

from redrive.errors import AuthenticationFailure, CollectionNotFound, PolicyValueError, ScopeNotFound, TerminalFailure
from redrive.orchestrator.reason import RetryReason
from redrive.orchestrator.request import Request, RetryAction
from redrive.policy import Backoff, Jitter, Reason
from redrive.policy.backoff import NEVER_MORE
from redrive.policy.duration import Duration, parse_duration, seconds, span
from redrive.policy.value import Value, freeze
from redrive.retrying.context import SCOPE
from redrive.retrying.rng import roll

#: A schedule of delays, or a function from the number of retries so far to a delay. Three SDKs differ from each other
#: by one in this number; it is always the count before the decision here, so that the first delay is the shortest.
Calculator: TypeAlias = Backoff | Callable[[int], Duration]

_CONTROLLED = tuple(timedelta(milliseconds=number) for number in (1, 10, 50, 100, 500, 1000))


def controlled_backoff(retry_attempts: int) -> timedelta:
    """Return the delay of an always-retry reason by retries so far: 1, 10, 50, 100, 500, then 1000 ms (RFC 0049)."""
    return _CONTROLLED[min(retry_attempts, len(_CONTROLLED) - 1)]


def exponential_backoff(minimum: Duration = "1ms", maximum: Duration | None = "500ms", factor: float = 2) -> Backoff:
    """Return delays that grow by a factor; the defaults are those of RFC 0049's best effort.

    Raises:
        PolicyValueError: ``minimum`` is zero, ``maximum`` is below it, or ``factor`` is below 1.
    """
    first = _seconds("minimum", minimum)
    # A delay of zero never grows; two SDKs take zero for "the default" instead.
    if not first:
        raise PolicyValueError(f"minimum={minimum!r}: a backoff that begins at zero never grows")
    if maximum is not None and _seconds("maximum", maximum) < first:
        raise PolicyValueError(f"maximum={maximum!r} is shorter than minimum={minimum!r}")
    return Backoff.exponential(minimum, maximum, factor)


def previous_backoff(minimum: Duration = "1ms", maximum: Duration | None = "500ms", factor: float = 2) -> Backoff:
    """Return delays that grow from the delay before (basedOnPreviousValue in the Java SDK).

    They differ from `exponential_backoff` after delays of another origin, such as those of always-retry reasons. The
    arguments and errors are the same.
    """
    # Validates the arguments.
    exponential_backoff(minimum, maximum, factor)
    top = {} if maximum is None else {"maximum": seconds(maximum)}
    return Backoff.named("from_previous", minimum=seconds(minimum), factor=factor, **top)


def _seconds(name: str, value: Duration) -> float:
    try:
        return seconds(value)
    except PolicyValueError as error:
        raise PolicyValueError(f"{name}={value!r}: {error}") from None


def _from_previous(
    retry: int,  # noqa: ARG001 - it counts from the delay before
    previous: float | None,
    sample: float,  # noqa: ARG001 - and draws nothing
    *,
    minimum: float,
    factor: float,
    maximum: float = NEVER_MORE,
) -> float:
    return minimum if previous is None else min(maximum, max(minimum, previous * factor))


Backoff.register("from_previous", _from_previous, draws=True)


class RandomJitter(Value):
    """Jitter around the nominal delay, as in the Java SDK: up to a fraction of it in both directions.

    `redrive.policy.Jitter` draws below a delay or above it. This one stays within the bounds of the backoff, so that
    late delays are drawn below the maximum only.

    Raises:
        PolicyValueError: the fraction is out of range, or ``maximum`` is below ``minimum``.
    """

    #: From 0 to 1.
    fraction: float
    #: The shortest delay. A shorter nominal delay is an error.
    minimum: timedelta
    #: The longest delay; None for no bound. A longer nominal delay is an error.
    maximum: timedelta | None

    def __init__(self, fraction: float = 0.5, minimum: Duration = 0, maximum: Duration | None = None) -> None:
        if not 0 <= fraction <= 1:
            raise PolicyValueError(f"fraction={fraction!r}: it is a number from 0 to 1")
        freeze(self, "fraction", float(fraction))
        freeze(self, "minimum", parse_duration(minimum))
        freeze(self, "maximum", None if maximum is None else parse_duration(maximum))
        if self.maximum is not None and self.maximum < self.minimum:
            raise PolicyValueError(f"maximum={maximum!r} is shorter than minimum={minimum!r}")

    def offset(self, nominal: float) -> float:
        """Return the largest distance from the nominal delay, in the unit of the delay."""
        return nominal * self.fraction

    def bounds(self, nominal: float, offset: float) -> tuple[float, float]:
        """Return the shortest and the longest delay that can be drawn, in seconds."""
        bottom = self.minimum.total_seconds()
        top = float("inf") if self.maximum is None else self.maximum.total_seconds()
        if nominal > top:
            raise PolicyValueError(f"a delay of {nominal} s is longer than the jitter's maximum of {top} s")
        if nominal < bottom:
            raise PolicyValueError(f"a delay of {nominal} s is shorter than the jitter's minimum of {bottom} s")
        return max(bottom, nominal - offset), min(top, nominal + offset)

    def apply(self, nominal: float, sample: float, floor: float = 0.0) -> float:
        """Return the delay to wait, in seconds; see `redrive.policy.Jitter.apply`."""
        low, high = self.bounds(nominal, self.offset(nominal))
        return max(floor, low + sample * (high - low))


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
        self.jitter: Jitter | RandomJitter = Jitter(jitter) if isinstance(jitter, str) else jitter

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
            raise PolicyValueError(f"nth={nth!r}: the first terminal failure is the earliest that can end a request")
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
