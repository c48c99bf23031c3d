"""A circuit breaker with its state: `redrive.policy.breaker` for one endpoint, and the permits of its calls.

The transitions are pure; the state is kept here under a lock. Each permit reports exactly one result: a request that is
sent ten times and then times out has ten calls with one result each, of which only the last is a timeout. (The Java SDK
of Couchbase counts ten.)

By default only timeouts are failures, as in the Java and Go SDKs: an endpoint that refuses has answered. A call that
was neither answered nor timed out, for example because its connection broke, has no result.
"""

from __future__ import annotations

from collections.abc import Callable

from redrive.clock import Clock
from redrive.errors import CircuitOpen
from redrive.errors.foreign import is_a
from redrive.forks import ForkSafeLock
from redrive.policy.breaker import (
    Admitted,
    Answer,
    Ask,
    BreakerSettings,
    BreakerStatus,
    Dropped,
    Event,
    FailureReport,
    Noted,
    Probe,
    Refused,
    Reset,
    SuccessReport,
    as_of,
    initial,
    step,
)
from redrive.retrying.context import present_clock


def is_timeout(error: BaseException) -> bool:
    """Return True if an error is a timeout, the default failure of a breaker."""
    return is_a(error, TimeoutError)


class Permit:
    """The permit of one call or one probe. Report exactly one result; further ones are ignored."""

    __slots__ = ("_breaker", "_token", "is_canary")

    def __init__(self, breaker: CircuitBreaker, token: int, *, is_canary: bool) -> None:
        #: True if the result of this call closes or opens the breaker.
        self.is_canary: bool = is_canary
        self._breaker = breaker
        self._token: int | None = token

    def succeeded(self) -> None:
        """Report an answer."""
        self._report(SuccessReport)

    def failed(self) -> None:
        """Report that no answer came in time."""
        self._report(FailureReport)

    def dropped(self) -> None:
        """Report that there is no result: the call was not sent, or was abandoned."""
        self._report(Dropped)

    def settle(self, error: BaseException | None, *, answered: bool) -> None:
        """Report the end of a call; ``answered`` if the other side has answered, also by a refusal."""
        self.report(failed=error is not None and self._breaker.counts(error), answered=answered)

    def report(self, *, failed: bool, answered: bool) -> None:
        """Report a failure of the other side, otherwise its answer, otherwise that there is no result."""
        if failed:
            self.failed()
        elif answered:
            self.succeeded()
        else:
            self.dropped()

    def _report(self, kind: Callable[[int], Event]) -> None:
        token, self._token = self._token, None
        if token is not None:
            self._breaker.record(kind(token))


class CircuitBreaker:
    """The circuit breaker of one endpoint.

    Args:
        settings: when it opens and how it recovers.
        counts: returns True for errors that are failures of the endpoint; by default timeouts.
        clock: reads the time; by default the clock in force.
    """

    def __init__(
        self,
        settings: BreakerSettings | None = None,
        *,
        counts: Callable[[BaseException], bool] = is_timeout,
        clock: Clock | None = None,
    ) -> None:
        self.settings: BreakerSettings = settings or BreakerSettings()
        self.counts = counts
        self._clock = clock or present_clock()
        self._state = initial(self.settings)
        self._lock = ForkSafeLock()

    @property
    def status(self) -> BreakerStatus:
        """The present state."""
        return as_of(self.settings, self._state, self._clock.monotonic()).status

    def admit(self) -> Permit:
        """Return the permit to send one call.

        Raises:
            CircuitOpen: the breaker refuses. Its ``permit`` is one for a probe, if the client has to send one.
        """
        match self._step(Ask()):
            case Admitted(token, is_canary):
                return Permit(self, token, is_canary=is_canary)
            case Probe(token):
                raise CircuitOpen(permit=Permit(self, token, is_canary=True))
            case Refused(retry_after):
                raise CircuitOpen(retry_after=retry_after)
            case Noted():  # pragma: no cover - the answer to a report only
                raise AssertionError

    def record(self, event: Event) -> None:
        """Record a result; permits call this."""
        self._step(event)

    def reset(self) -> None:
        """Close the breaker, as after a reconnect. Results of earlier calls are ignored."""
        self._step(Reset())

    def _step(self, event: Event) -> Answer:
        with self._lock:
            self._state, answer = step(self.settings, self._state, event, self._clock.monotonic())
        return answer
