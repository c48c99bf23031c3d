"""The schedules that do not contain other schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import copy_context
from math import log, sqrt, tanh

from redrive.errors import PolicyValueError
from redrive.policy.backoff import NEVER_MORE, Backoff, check_factor, delay_from, function_named
from redrive.policy.duration import Duration, seconds
from redrive.policy.value import freeze


def _longest(maximum: Duration | None, start: float, initial: Duration) -> float | None:
    """Return the longest delay in seconds; refuse one that is shorter than the first delay."""
    if maximum is None:
        return None
    longest = seconds(maximum)
    if longest < start:
        raise PolicyValueError(
            f"the first delay is {initial!r}, and the longest one {maximum!r}: the longest must not be shorter"
        )
    return longest


class Constant(Backoff):
    """Always the same delay."""

    kind = "constant"
    is_fixed = True
    value: float

    def __init__(self, value: Duration) -> None:
        freeze(self, "value", seconds(value))

    def delay(self, retry: int) -> float:  # noqa: ARG002 - the same for each
        """See `Backoff.delay`."""
        return self.value


class Exponential(Backoff):
    """``initial * factor ** (retry - 1)``, at most ``maximum``."""

    kind = "exponential"
    is_fixed = True
    initial: float
    maximum: float | None
    factor: float
    _full_from: float
    _top: float

    def __init__(self, initial: Duration, maximum: Duration | None = None, factor: float = 2) -> None:
        check_factor(factor)
        start = seconds(initial)
        cap = _longest(maximum, start, initial)
        top = NEVER_MORE if cap is None else min(cap, NEVER_MORE)
        # From this retry on the delay is the cap: computing the power could overflow.
        full_from = (log(top) - log(start)) / log(factor) + 2 if factor > 1 and 0 < start < top else 2.0
        freeze(self, "initial", start)
        freeze(self, "maximum", cap)
        freeze(self, "factor", float(factor))
        freeze(self, "_top", top)
        freeze(self, "_full_from", full_from if factor > 1 and start else float("inf"))

    def delay(self, retry: int) -> float:
        """See `Backoff.delay`."""
        if retry > self._full_from:
            return self._top
        try:
            return min(self._top, self.initial * self.factor ** (retry - 1))
        except OverflowError:  # the factor alone, from an initial delay near zero
            return self._top if self.initial else 0.0


class Listed(Backoff):
    """A fixed list of delays."""

    kind = "listed"
    is_fixed = True
    values: tuple[float, ...]
    end: str

    def __init__(self, values: Iterable[Duration], *, end: str = "repeat") -> None:
        if isinstance(values, str):
            raise PolicyValueError(f"listed takes a list of delays, not the text {values!r}")
        if not isinstance(values, Iterable):
            raise PolicyValueError(f"listed takes a list of delays, as in Backoff.listed([{values!r}]), not {values!r}")
        numbers = tuple(seconds(value) for value in values)
        if not numbers:
            raise PolicyValueError("a listed backoff needs at least one delay")
        if end not in ("repeat", "stop"):
            raise PolicyValueError(f"end={end!r}: after the last delay a list can 'repeat' it or 'stop'")
        freeze(self, "values", numbers)
        freeze(self, "end", end)

    def delay(self, retry: int) -> float | None:
        """See `Backoff.delay`."""
        if retry <= len(self.values):
            return self.values[retry - 1]
        return self.values[-1] if self.end == "repeat" else None

    @property
    def length(self) -> int | None:
        """See `Backoff.length`."""
        return None if self.end == "repeat" else len(self.values)


class Linear(Backoff):
    """``initial + step * (retry - 1)``, at most ``maximum``."""

    kind = "linear"
    is_fixed = True
    initial: float
    step: float
    maximum: float | None

    def __init__(self, initial: Duration, step: Duration, maximum: Duration | None = None) -> None:
        freeze(self, "initial", seconds(initial))
        freeze(self, "step", seconds(step))
        freeze(self, "maximum", _longest(maximum, self.initial, initial))

    def delay(self, retry: int) -> float:
        """See `Backoff.delay`."""
        return min(NEVER_MORE if self.maximum is None else self.maximum, self.initial + self.step * (retry - 1))


class Decorrelated(Backoff):
    """Delays drawn between ``initial`` and three times the previous delay, at most ``maximum``.

    AWS's formula ``min(maximum, uniform(initial, 3 * previous))`` piles up at the maximum. This one draws from
    ``initial`` to ``min(maximum, 3 * previous)``, which is the same until the maximum is near. The nominal delay is
    the longest one.
    """

    kind = "decorrelated"
    draws = True
    initial: float
    maximum: float
    _longest: Exponential

    def __init__(self, initial: Duration, maximum: Duration) -> None:
        freeze(self, "initial", seconds(initial))
        freeze(self, "maximum", _longest(maximum, self.initial, initial))
        freeze(self, "_longest", Exponential(min(self.initial * 3, self.maximum), self.maximum, 3))

    def delay(self, retry: int) -> float:
        """See `Backoff.delay`."""
        return self._longest.delay(retry)

    @property
    def longest(self) -> float:
        """See `Backoff.longest`."""
        return self.maximum

    def draw(self, retry: int, previous: float | None, sample: float, before: float | None = None) -> float:  # noqa: ARG002 - depends on previous
        """See `Backoff.draw`."""
        low = min(self.initial, self.maximum)
        high = min(self.maximum, 3 * max(low, low if previous is None else previous))
        return low + sample * (high - low)


class Smooth(Backoff):
    """Delays that spread the retries of many clients evenly over time: Polly's DecorrelatedJitterBackoffV2.

    The instant of a retry is drawn, not its delay. With f(t) = 2^t tanh(sqrt(4 t)), retry n comes at
    ``initial / 1.4 * f(n - 1 + u)`` after the start of the waiting, with a new u from [0, 1) for each. A delay is the
    distance to the instant of the retry before; its u is kept in `redrive.policy.History.by_rule`.

    Two differences from Polly:

    * Polly cuts delays at the maximum, where late ones pile up. Here all draws of a retry are scaled so that the
      longest is the maximum.
    * A history that was written by hand has no kept sample; then the same u is used for the retry before.
    """

    kind = "smooth"
    draws = remembers = True
    initial: float
    maximum: float | None
    _top: float

    def __init__(self, initial: Duration, maximum: Duration | None = None) -> None:
        freeze(self, "initial", seconds(initial))
        freeze(self, "maximum", _longest(maximum, self.initial, initial))
        freeze(self, "_top", NEVER_MORE if self.maximum is None else min(self.maximum, NEVER_MORE))

    @property
    def longest(self) -> float:
        """See `Backoff.longest`."""
        return self._top

    def delay(self, retry: int) -> float:
        """Return the longest delay that can be drawn."""
        return min(self._top, self._distance(retry, 1.0, 0.0))

    def draw(self, retry: int, previous: float | None, sample: float, before: float | None = None) -> float:  # noqa: ARG002 - the place before counts, not the delay
        """See `Backoff.draw`."""
        drawn = self._distance(retry, sample, sample if before is None else before)
        longest = self._distance(retry, 1.0, 0.0)
        return drawn if longest <= self._top else drawn / longest * self._top

    def _distance(self, retry: int, sample: float, before: float) -> float:
        """Return the seconds from the instant of the retry before to that of this one."""
        start = min(retry - 1, _SMOOTH_END)
        return self.initial / 1.4 * (_curve(start + sample) - _curve(start - 1 + before))


# From there on it has saturated, and 2 ** 1024 would overflow.
_SMOOTH_END = 500


def _curve(place: float) -> float:
    return 2.0**place * tanh(sqrt(4.0 * place)) if place > 0 else 0.0


class Named(Backoff):
    """A registered function; see `Backoff.register`."""

    kind = "named"
    name: str
    options: tuple[tuple[str, float], ...]
    _function: Callable[..., float]
    _draws: bool

    def __init__(self, name: str, options: Mapping[str, float] | Iterable[tuple[str, float]] = ()) -> None:
        function, draws = function_named(name)
        freeze(self, "name", name)
        freeze(self, "options", tuple(sorted(dict(options).items())))
        freeze(self, "_function", function)
        freeze(self, "_draws", draws)
        # What cannot be called must fail here, not after the first failure.
        self.delay(1)

    @property
    def draws(self) -> bool:  # type: ignore[override]  # the registration of the function decides, not the class
        """See `Backoff.draws`."""
        return self._draws

    def delay(self, retry: int) -> float:
        """See `Backoff.delay`."""
        return self._ask(retry, None, 1.0) if self._draws else self._ask(retry)

    def draw(self, retry: int, previous: float | None, sample: float, before: float | None = None) -> float:  # noqa: ARG002 - functions do not remember
        """See `Backoff.draw`."""
        return self._ask(retry, previous, sample)

    def _ask(self, retry: int, *drawing: float | None) -> float:
        """Call the function; raise PolicyValueError for a result that is not a delay."""
        try:
            # A worker calls it in the transaction that settles the attempts of several jobs.
            value = copy_context().run(self._function, retry, *drawing, **dict(self.options))
        except OverflowError:
            return NEVER_MORE
        except TypeError as error:
            called = ", ".join(f"{name}={number!r}" for name, number in self.options) or "no options"
            raise PolicyValueError(
                f"the backoff function {self.name!r} cannot be called with {called}: {error}"
            ) from error
        return delay_from(value, self.name, retry)
