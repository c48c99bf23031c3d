"""Protection of an overloaded target: settings and state of a `redrive.retrying.Limiter`.

`Shedding` is client-side throttling from Google's SRE book ("Handling Overload"): a client lets through about
``multiple`` times as many calls as the target accepts, and refuses the rest itself, each call with the same probability
(equation 21-1): ``max(0, (requests - multiple * accepts) / (requests + 1))``. The calls above the accepted number
detect the recovery of the target.

`Adaptive` is the adaptive mode of the AWS SDKs. The rate is unlimited until the target throttles for the first time.
Then it falls to a part (``beta``) of the measured rate, and grows again along a cubic curve, as in the congestion
control of CUBIC (RFC 9438).

State has no lock; its owner has one. Instants are seconds on one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from math import floor
from typing import Any

from redrive.errors import PolicyError, PolicyValueError
from redrive.policy.budget import SlidingCounts
from redrive.policy.classify import Classifier, On, answer_of, matches, names_of, refuse_coroutine_function
from redrive.policy.duration import ZERO, Duration, parse_duration
from redrive.policy.failure import Failure
from redrive.policy.value import NamedTuple, Value, freeze, number

__all__ = ["THROTTLES", "Adaptive", "AdaptiveRate", "Answers", "Cubic", "Shedding", "SheddingLedger"]


#: Reasons of failures by which a target asks for patience.
THROTTLES = ("THROTTLED", "RETRY_AFTER")


class Answers:
    """A filter for failures and results that signal overload."""

    __slots__ = ("named", "on_result")
    # A classifier of a policy can be used: a failure matches if the returned reason is in `THROTTLES`.
    named: tuple[str, ...] | Classifier

    def __init__(self, named: On, on_result: Callable[[Any], bool] | None, field: str) -> None:
        if on_result is not None and not callable(on_result):
            raise PolicyValueError(f"on_result={on_result!r}: it is a function that takes what is returned")
        refuse_coroutine_function(named, field)
        refuse_coroutine_function(on_result, "on_result")
        self.named = named if callable(named) and not isinstance(named, type) else names_of(named, field)
        self.on_result: Callable[[Any], bool] | None = on_result

    def has_error(self, error: BaseException) -> bool:
        """Return True if an exception matches."""
        if isinstance(self.named, tuple):
            try:
                failure = Failure.of(error)
            except PolicyError:  # a signal with an invalid delay; the code that reads the signal reports it
                return False
            return matches(frozenset(self.named), "any", failure)
        answer = answer_of(self.named(error), "a predicate", self.named)
        if isinstance(answer, Failure):
            answer = answer.reason
        return answer in THROTTLES if isinstance(answer, str) else bool(answer)

    def has_result(self, result: object) -> bool:
        """Return True if a result matches."""
        if self.on_result is None:
            return False
        return bool(answer_of(self.on_result(result), "on_result", self.on_result))


class Shedding(Value):
    """Client-side throttling for a limiter: ``Limiter(shed=Shedding())``.

    Args:
        multiple: calls that are let through for each accepted one, from 1; a larger number detects a recovery sooner
            and wastes more calls.
        window: time for which a call counts.
        refusals: failures by which the target refuses a call: exception types, their names, reasons, or a predicate.
        on_result: a predicate for results that are refusals, for targets that answer 503 and raise nothing.

    Raises:
        PolicyValueError: a value is outside of its range; the message names it.
    """

    _fields = ("multiple", "window", "refusals", "on_result")
    multiple: float
    window: timedelta
    refusals: Any
    on_result: Callable[[Any], bool] | None
    answers: Answers

    def __init__(
        self,
        multiple: float = 2,
        *,
        window: Duration = "2m",
        refusals: On = (*THROTTLES, OSError),
        on_result: Callable[[Any], bool] | None = None,
    ) -> None:
        freeze(self, "multiple", number("multiple", multiple))
        freeze(self, "window", parse_duration(window))
        freeze(self, "answers", Answers(refusals, on_result, "refusals"))
        freeze(self, "refusals", self.answers.named)
        freeze(self, "on_result", on_result)
        if self.multiple < 1:
            raise PolicyValueError(f"multiple={multiple!r}: it is at least 1")
        if self.window == ZERO:
            raise PolicyValueError(f"window={window!r}: it is longer than zero")

    def open(self) -> SheddingLedger:
        """Return an empty ledger."""
        return SheddingLedger(self)


class SheddingLedger:
    """The recent calls to a target. It has no lock; its owner has one. Instants are seconds on one monotonic clock."""

    __slots__ = ("_multiple", "_window")

    def __init__(self, shedding: Shedding) -> None:
        self._multiple = shedding.multiple
        self._window = SlidingCounts(shedding.window.total_seconds())

    def asked(self, now: float) -> None:
        """Count a call, sent or refused here."""
        self._window.add(now, first=1)

    def accepted(self, now: float) -> None:
        """Count a call that the target has accepted."""
        self._window.add(now, second=1)

    def rejection(self, now: float) -> float:
        """Return the probability with which the next call should be refused here."""
        self._window.forget(now)
        requests, accepts = self._window.first, self._window.second
        return max(0.0, (requests - self._multiple * accepts) / (requests + 1))


# Weight of the latest measurement.
_SMOOTH = 0.8
# Seconds: what is sent is measured twice a second.
_HALF = 0.5
_LEAST_RATE = 0.5
_LEAST_ROOM = 1.0
_ROUNDING = 1e-9


class Cubic(NamedTuple):
    """The curve of the rate after a refusal."""

    #: The rate at which the target refused, per second.
    most: float = 0.0
    #: The instant of the refusal.
    failed_at: float = 0.0
    #: The part of the rate that is kept after a refusal.
    beta: float = 0.7
    #: The speed of the growth.
    scale: float = 0.4

    @property
    def window(self) -> float:
        """Seconds from the refusal until the rate is back at ``most``; the AWS documents call it K."""
        return float((self.most * (1 - self.beta) / self.scale) ** (1 / 3))

    def rate(self, now: float) -> float:
        """Return the rate at an instant without further refusals."""
        return float(self.scale * (now - self.failed_at - self.window) ** 3 + self.most)

    def throttled(self, rate: float, now: float) -> Cubic:
        """Return the curve after a refusal at this rate; its ``rate(now)`` is ``beta`` times the rate."""
        return self._replace(most=rate, failed_at=now)


class Adaptive(Value):
    """A rate that adapts to the target, for a limiter: ``Limiter(rate=Adaptive())``.

    Args:
        throttles: failures by which the target signals throttling: exception types, their names, reasons, or a
            predicate (a policy's classifier can be used).
        on_result: a predicate for results that signal throttling, for clients that return an answer 429.
        cost: tokens of an attempt; as many tokens as the rate are added in a second.
        retry_cost: tokens of an attempt that is not the first of its call; by default ``cost``. With 5, as in the AWS
            SDK for Rust, a low rate serves new calls rather than repeated ones.
        beta: the part of the rate that is kept after a refusal.
        scale: the speed of the growth.

    Raises:
        PolicyValueError: a value is outside of its range; the message names it.
    """

    _fields = ("throttles", "on_result", "cost", "retry_cost", "beta", "scale")
    throttles: Any
    on_result: Callable[[Any], bool] | None
    cost: float
    retry_cost: float
    beta: float
    scale: float
    answers: Answers

    def __init__(
        self,
        throttles: On = THROTTLES,
        *,
        on_result: Callable[[Any], bool] | None = None,
        cost: float = 1,
        retry_cost: float | None = None,
        beta: float = 0.7,
        scale: float = 0.4,
    ) -> None:
        freeze(self, "answers", Answers(throttles, on_result, "throttles"))
        freeze(self, "throttles", self.answers.named)
        freeze(self, "on_result", on_result)
        freeze(self, "cost", number("cost", cost, above=0))
        freeze(self, "retry_cost", number("retry_cost", cost if retry_cost is None else retry_cost, above=0))
        freeze(self, "beta", number("beta", beta, above=0))
        freeze(self, "scale", number("scale", scale, above=0))
        if self.beta >= 1:
            raise PolicyValueError(f"beta={beta!r}: it is below 1, otherwise a refusal would change nothing")

    def open(self, now: float) -> AdaptiveRate:
        """Return a rate without measurements."""
        cubic = Cubic(beta=self.beta, scale=self.scale)
        return AdaptiveRate(now, cubic=cubic, room=max(_LEAST_ROOM, self.cost, self.retry_cost))


class AdaptiveRate:
    """A token bucket with a measured and adapted rate."""

    def __init__(
        self, now: float = 0.0, *, rate: float | None = None, cubic: Cubic | None = None, room: float = _LEAST_ROOM
    ) -> None:
        self.cubic: Cubic = (cubic or Cubic())._replace(failed_at=now)
        #: Requests per second that were sent lately.
        self.measured: float = 0.0
        #: True after the first refusal: the rate is limited.
        self.enabled: bool = rate is not None
        #: Tokens per second.
        self.rate: float = max(rate or 0.0, _LEAST_RATE) if self.enabled else 0.0
        # The least capacity of the bucket. A request for more tokens than the capacity would wait for ever.
        self._least_room = room
        self._room = max(self.rate, room)
        self._tokens = 0.0
        self._filled_at = now
        self._counted_from = _half(now)
        self._count = 0

    def acquire(self, now: float, tokens: float = 1.0) -> float:
        """Take tokens.

        Returns:
            0.0 if the call may be sent, otherwise the seconds after which to ask again. In that case no token is
            taken, so that all callers get the same answer and no wait grows because others wait.
        """
        if not self.enabled:
            return 0.0
        self._fill(now)
        if tokens <= self._tokens + _ROUNDING:
            self._tokens = max(0.0, self._tokens - tokens)
            return 0.0
        return (tokens - self._tokens) / self.rate

    def tokens(self, now: float) -> float:
        """Return the number of tokens."""
        self._fill(now)
        return self._tokens

    def report(self, now: float, *, throttled: bool) -> None:
        """Record an answer of the target; ``throttled`` if it refused the call because of its rate."""
        self._measure(now)
        if throttled:
            rate = min(self.measured, self.rate) if self.enabled else self.measured
            self.cubic = self.cubic.throttled(rate, now)
            self.enabled = True
            wanted = rate * self.cubic.beta
        else:
            wanted = self.cubic.rate(now)
        self._fill(now)
        self.rate = max(min(wanted, 2 * self.measured), _LEAST_RATE)
        self._room = max(self.rate, self._least_room)
        self._tokens = min(self._tokens, self._room)

    def _measure(self, now: float) -> None:
        self._count += 1
        half = _half(now)
        if half > self._counted_from:
            self.measured = self._count / (half - self._counted_from) * _SMOOTH + self.measured * (1 - _SMOOTH)
            self._count, self._counted_from = 0, half

    def _fill(self, now: float) -> None:
        self._tokens = min(self._room, self._tokens + max(0.0, now - self._filled_at) * self.rate)
        self._filled_at = max(now, self._filled_at)


def _half(now: float) -> float:
    return floor(now / _HALF) * _HALF
