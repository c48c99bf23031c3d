"""The delays of RFC 0049 and its SDKs: controlled, exponential, from the delay before; and the random jitter of one.

A *calculator* is what a strategy gets its delays from: a `redrive.policy.Backoff`, or a function from the number of
retries so far to a delay. RFC 0049 counts from zero, before the retry that is being decided; a `Backoff` counts retries
from one. Three SDKs are off by one in three different ways about this; here the count before the decision is meant
everywhere, and the first delay is the shortest.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

from redrive.errors import PolicyValueError
from redrive.policy import Backoff
from redrive.policy.backoff import NEVER_MORE
from redrive.policy.duration import Duration, parse_duration, seconds
from redrive.policy.value import Value, freeze

__all__ = ["Calculator", "RandomJitter", "controlled_backoff", "exponential_backoff", "previous_backoff"]

Calculator: TypeAlias = Backoff | Callable[[int], Duration]
"""Where delays come from."""

_CONTROLLED = tuple(timedelta(milliseconds=number) for number in (1, 10, 50, 100, 500, 1000))


def controlled_backoff(retry_attempts: int) -> timedelta:
    """The delay of a request that is always retried: 1, 10, 50, 100, 500, then 1000 ms (RFC 0049).

    Args:
        retry_attempts: retries so far.
    """
    return _CONTROLLED[min(retry_attempts, len(_CONTROLLED) - 1)]


def exponential_backoff(minimum: Duration = "1ms", maximum: Duration | None = "500ms", factor: float = 2) -> Backoff:
    """Delays that grow by a factor; the defaults are those of RFC 0049's best effort.

    Args:
        minimum: the first delay, more than zero.
        maximum: the longest, or None.
        factor: at least 1.

    Raises:
        PolicyValueError: ``minimum`` is zero, ``maximum`` is below it, or there is no such factor. (A delay that starts
            at zero never grows; two SDKs take zero for "the default" instead.)
    """
    first = _seconds("minimum", minimum)
    if not first:
        raise PolicyValueError(f"minimum={minimum!r}: a backoff that begins at zero never grows")
    if maximum is not None and _seconds("maximum", maximum) < first:
        raise PolicyValueError(f"maximum={maximum!r} is shorter than minimum={minimum!r}")
    return Backoff.exponential(minimum, maximum, factor)


def previous_backoff(minimum: Duration = "1ms", maximum: Duration | None = "500ms", factor: float = 2) -> Backoff:
    """The same, counted from the delay before, not from the number of retries (in the Java SDK: basedOnPreviousValue).

    The two differ where something else has chosen delays in between, as always-retry reasons do.

    Args:
        minimum: the first delay, more than zero.
        maximum: the longest, or None.
        factor: at least 1.

    Raises:
        PolicyValueError: as for `exponential_backoff`.
    """
    exponential_backoff(minimum, maximum, factor)  # refuses what means nothing
    top = {} if maximum is None else {"maximum": seconds(maximum)}
    return Backoff.named("from_previous", minimum=seconds(minimum), factor=factor, **top)


def _seconds(name: str, value: Duration) -> float:
    try:
        return seconds(value)
    except PolicyValueError as error:
        raise PolicyValueError(f"{name}={value!r}: {error}") from None


def _from_previous(  # noqa: PLR0913 - what a drawing function gets, and its three options
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
    """A delay in the middle of what is drawn from, as in the Java SDK: the fraction goes to both sides of it.

    `redrive.policy.Jitter` draws below a delay or above it. This one stays within the bounds of the backoff, so late
    delays are drawn from below the maximum only.

    Args:
        fraction: from 0 to 1.
        minimum: no delay is shorter. A backoff that says less is refused when it is drawn from.
        maximum: no delay is longer; None for no bound. A backoff that says more is refused when it is drawn from.

    Raises:
        PolicyValueError: there is no such fraction, or ``maximum`` is below ``minimum``.
    """

    __slots__ = ("fraction", "maximum", "minimum")
    _fields = ("fraction", "minimum", "maximum")
    fraction: float
    minimum: timedelta
    maximum: timedelta | None

    def __init__(self, fraction: float = 0.5, minimum: Duration = 0, maximum: Duration | None = None) -> None:
        if not 0 <= fraction <= 1:
            message = f"fraction={fraction!r}: it is a number from 0 to 1"
            raise PolicyValueError(message)
        freeze(self, "fraction", float(fraction))
        freeze(self, "minimum", parse_duration(minimum))
        freeze(self, "maximum", None if maximum is None else parse_duration(maximum))
        if self.maximum is not None and self.maximum < self.minimum:
            raise PolicyValueError(f"maximum={maximum!r} is shorter than minimum={minimum!r}")

    def offset(self, nominal: float) -> float:
        """How far a delay may be moved to either side, in the unit of the delay."""
        return nominal * self.fraction

    def bounds(self, nominal: float, offset: float) -> tuple[float, float]:
        """The shortest and the longest delay that can be drawn, in seconds.

        Args:
            nominal: what the backoff says, in seconds.
            offset: see `offset`, in seconds.

        Raises:
            PolicyValueError: the backoff says less than the minimum, or more than the maximum.
        """
        bottom = self.minimum.total_seconds()
        top = float("inf") if self.maximum is None else self.maximum.total_seconds()
        if nominal > top:
            message = f"a delay of {nominal} s is longer than the jitter's maximum of {top} s"
            raise PolicyValueError(message)
        if nominal < bottom:
            message = f"a delay of {nominal} s is shorter than the jitter's minimum of {bottom} s"
            raise PolicyValueError(message)
        return max(bottom, nominal - offset), min(top, nominal + offset)

    def apply(self, nominal: float, sample: float, floor: float = 0.0) -> float:
        """The delay to wait, in seconds; see `redrive.policy.Jitter.apply`."""
        low, high = self.bounds(nominal, self.offset(nominal))
        return max(floor, low + sample * (high - low))
