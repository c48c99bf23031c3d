"""The delays of RFC 0049 and of its SDKs, and the random jitter of the Java SDK.

A *calculator* gives a strategy its delays: a `redrive.policy.Backoff`, or a function from the number of retries so far
to a delay. RFC 0049 counts from zero, before the retry that is being decided; a `Backoff` counts retries from one.
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
    """Jitter around the nominal delay, as in the Java SDK: up to a fraction of it in both directions.

    `redrive.policy.Jitter` draws below a delay or above it. This one stays within the bounds of the backoff, so that
    late delays are drawn below the maximum only.

    Raises:
        PolicyValueError: the fraction is out of range, or ``maximum`` is below ``minimum``.
    """

    __slots__ = ("fraction", "maximum", "minimum")
    _fields = ("fraction", "minimum", "maximum")
    #: From 0 to 1.
    fraction: float
    #: The shortest delay. A shorter nominal delay is an error.
    minimum: timedelta
    #: The longest delay; None for no bound. A longer nominal delay is an error.
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
        """Return the largest distance from the nominal delay, in the unit of the delay."""
        return nominal * self.fraction

    def bounds(self, nominal: float, offset: float) -> tuple[float, float]:
        """Return the shortest and the longest delay that can be drawn, in seconds."""
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
        """Return the delay to wait, in seconds; see `redrive.policy.Jitter.apply`."""
        low, high = self.bounds(nominal, self.offset(nominal))
        return max(floor, low + sample * (high - low))
