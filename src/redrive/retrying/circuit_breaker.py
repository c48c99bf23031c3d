"""Circuit breakers with a memory: `redrive.policy.breaker` for one endpoint, and the permits of its calls.

The state machine is pure; here its state is kept, under a lock, since an endpoint may be shared by threads. A permit
reports once, whatever happens: a request that is sent ten times and then times out has had ten calls with a result
each, and only the last was a timeout. (The Java SDK counts ten.)

What counts as a failure is a timeout, as in the Java and Go SDKs: an endpoint that refuses has answered. A call that
was neither answered nor timed out, because its connection broke or nobody waits for it any more, tells nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from redrive.clock import Clock
from redrive.errors import CircuitOpen
from redrive.policy.breaker import (
    Admitted,
    Answer,
    Ask,
    BreakerSettings,
    BreakerStatus,
    Dropped,
    Event,
    Failed,
    Noted,
    Probe,
    Refused,
    Reset,
    Succeeded,
    as_of,
    initial,
    step,
)
from redrive.retrying.context import SCOPE, SYSTEM

__all__ = ["CircuitBreaker", "Permit", "is_timeout"]


def is_timeout(error: BaseException) -> bool:
    """Whether an error says that no answer came in time: what counts as a failure by default."""
    return isinstance(error, TimeoutError)


class Permit:
    """One call that was admitted, or one probe that is owed. Report exactly one result; more are ignored.

    Attributes:
        is_canary: whether the breaker waits for this very call.
    """

    __slots__ = ("_breaker", "_token", "is_canary")

    def __init__(self, breaker: CircuitBreaker, token: int, *, is_canary: bool) -> None:
        self.is_canary = is_canary
        self._breaker = breaker
        self._token: int | None = token

    def succeeded(self) -> None:
        """An answer has come."""
        self._report(Succeeded)

    def failed(self) -> None:
        """None came in time."""
        self._report(Failed)

    def dropped(self) -> None:
        """Nothing can be said: it was not sent after all, or nobody waits for it any more."""
        self._report(Dropped)

    def settle(self, error: BaseException | None, *, answered: bool) -> None:
        """Report what follows from the end of a call.

        Args:
            error: what it raised, or None.
            answered: whether the other side has answered, if only by a refusal.
        """
        if error is not None and self._breaker.counts(error):
            self.failed()
        elif answered:
            self.succeeded()
        else:
            self.dropped()

    def _report(self, kind: Callable[[int], Event]) -> None:
        token, self._token = self._token, None
        if token is not None:
            self._breaker.tell(kind(token))


class CircuitBreaker:
    """The breaker of one endpoint.

    Args:
        settings: when it opens and how it recovers.
        counts: which errors are failures of the endpoint; by default timeouts.
        clock: tells the time; by default the clock in force.
    """

    def __init__(
        self,
        settings: BreakerSettings | None = None,
        *,
        counts: Callable[[BaseException], bool] = is_timeout,
        clock: Clock | None = None,
    ) -> None:
        scope = SCOPE.get()
        self.settings = settings or BreakerSettings()
        self.counts = counts
        self._clock = clock or (SYSTEM if scope is None else scope.clock)
        self._state = initial(self.settings)
        self._lock = Lock()

    @property
    def status(self) -> BreakerStatus:
        """What it does with callers now."""
        return as_of(self.settings, self._state, self._clock.monotonic()).status

    def admit(self) -> Permit:
        """Ask to send one call.

        Returns:
            The permit; report by it.

        Raises:
            CircuitOpen: not now. Its ``permit`` is one for a probe, if the client owes that.
        """
        match self._step(Ask()):
            case Admitted(token, is_canary):
                return Permit(self, token, is_canary=is_canary)
            case Probe(token):
                raise CircuitOpen(permit=Permit(self, token, is_canary=True))
            case Refused(retry_after):
                raise CircuitOpen(retry_after=retry_after)
            case Noted():  # pragma: no cover - the answer to a report, and this was a question
                raise AssertionError

    def tell(self, event: Event) -> None:
        """Hear of a result; permits call this."""
        self._step(event)

    def reset(self) -> None:
        """Begin anew, as after a reconnect. Calls that are still out do not count any more."""
        self._step(Reset())

    def _step(self, event: Event) -> Answer:
        with self._lock:
            self._state, answer = step(self.settings, self._state, event, self._clock.monotonic())
        return answer
