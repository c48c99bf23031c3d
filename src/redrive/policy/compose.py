"""Schedules made of schedules.

The operators are those of cats-retry's law suite: ``&`` is its join, ``|`` its meet, and ``>>`` is Finagle's concat.
``&`` and ``|`` are associative, commutative and idempotent, each absorbs the other and distributes over the other.
``cap`` keeps the end of a schedule, which a cap written with ``|`` would not (cats-retry issue 644).

A schedule that draws its delays (`redrive.policy.backoff_kinds.Decorrelated`) cannot be part of another, because the
laws hold for fixed delays only. Its `envelope` can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, floor
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from redrive.errors import PolicyValueError
from redrive.policy.backoff import NEVER_MORE, Backoff
from redrive.policy.duration import Duration, seconds
from redrive.policy.value import freeze

_B = TypeVar("_B", bound=Backoff)


def _part(backoff: _B) -> _B:
    if not isinstance(backoff, Backoff):
        raise PolicyValueError(f"{backoff!r} is not a Backoff; a function becomes one by Backoff.calling(function)")
    if backoff.draws:
        raise PolicyValueError(
            f"a {backoff.kind} backoff draws its delays and cannot be part of another; its .envelope can"
        )
    return backoff


class EnvelopeBackoff(Backoff):
    """The nominal delays of a schedule that draws."""

    kind = "envelope"
    of: Backoff

    def delay(self, retry: int) -> float | None:
        """See `Backoff.delay`."""
        return self.of.delay(retry)


class _Pair(Backoff):
    """Two schedules and an operator."""

    left: Backoff
    right: Backoff

    def __init__(self, left: Backoff, right: Backoff) -> None:
        freeze(self, "left", _part(left))
        freeze(self, "right", _part(right))


class _Join(_Pair):
    """A pair that ends as soon as one schedule ends."""

    _joined: ClassVar[Callable[[Any, float, float], float]]

    def delay(self, retry: int) -> float | None:
        left, right = self.left.delay(retry), self.right.delay(retry)
        return None if left is None or right is None else self._joined(left, right)

    def lowest(self, retry: int) -> float:
        return self._joined(self.left.lowest(retry), self.right.lowest(retry))

    @property
    def length(self) -> int | None:
        return _shorter(self.left.length, self.right.length)


class Longer(_Join):
    """``a & b``: ends as soon as one ends, and waits the longer delay."""

    kind = "and"

    def _joined(self, left: float, right: float) -> float:
        return max(left, right)


class Sum(_Join):
    """``a + b``: ends as soon as one ends, and waits both delays."""

    kind = "sum"

    def _joined(self, left: float, right: float) -> float:
        return min(left + right, NEVER_MORE)


class Shorter(_Pair):
    """``a | b``: ends when both have ended, and waits the shorter delay."""

    kind = "or"

    def delay(self, retry: int) -> float | None:
        """See `Backoff.delay`."""
        left, right = self.left.delay(retry), self.right.delay(retry)
        if left is None:
            return right
        return left if right is None else min(left, right)

    def lowest(self, retry: int) -> float:
        """See `Backoff.lowest`."""
        return min(self.left.lowest(retry), self.right.lowest(retry))

    @property
    def length(self) -> int | None:
        """See `Backoff.length`."""
        left, right = self.left.length, self.right.length
        return None if left is None or right is None else max(left, right)


class ThenBackoff(_Pair):
    """``a >> b``: a; when it has ended, b from its beginning."""

    kind = "then"

    def _at(self, retry: int) -> tuple[Backoff, int]:
        """Return the schedule that is followed at a retry, and the number of the retry in it."""
        length = self.left.length
        return (self.left, retry) if length is None or retry <= length else (self.right, retry - length)

    def delay(self, retry: int) -> float | None:
        """See `Backoff.delay`."""
        backoff, number = self._at(retry)
        return backoff.delay(number)

    def lowest(self, retry: int) -> float:
        """See `Backoff.lowest`."""
        backoff, number = self._at(retry)
        return backoff.lowest(number)

    @property
    def length(self) -> int | None:
        """See `Backoff.length`."""
        left, right = self.left.length, self.right.length
        return None if left is None or right is None else left + right


class _Changed(Backoff):
    """A schedule that follows another one, with a change."""

    of: Backoff

    def lowest(self, retry: int) -> float:
        return self.of.lowest(retry)

    @property
    def length(self) -> int | None:
        return self.of.length


class _Limited(_Changed):
    """A schedule with one number that limits it."""

    limit: float

    def __init__(self, of: Backoff, limit: Duration) -> None:
        freeze(self, "of", _part(of))
        freeze(self, "limit", seconds(limit))


class Cap(_Limited):
    """No delay longer than the limit."""

    kind = "cap"

    def delay(self, retry: int) -> float | None:
        """See `Backoff.delay`."""
        delay = self.of.delay(retry)
        return None if delay is None else min(delay, self.limit)

    def lowest(self, retry: int) -> float:
        """See `Backoff.lowest`."""
        return min(self.of.lowest(retry), self.limit)


class Floor(_Limited):
    """No delay shorter than the limit, jitter included."""

    kind = "floor"

    def delay(self, retry: int) -> float | None:
        """See `Backoff.delay`."""
        delay = self.of.delay(retry)
        return None if delay is None else max(delay, self.limit)

    def lowest(self, retry: int) -> float:
        """See `Backoff.lowest`."""
        return max(self.of.lowest(retry), self.limit)


class Take(_Changed):
    """At most ``n`` retries."""

    kind = "take"
    n: int

    def __init__(self, of: Backoff, n: int) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise PolicyValueError(f"take({n!r}): the number of retries is a whole number, zero or more")
        freeze(self, "of", _part(of))
        freeze(self, "n", n)

    def delay(self, retry: int) -> float | None:
        """See `Backoff.delay`."""
        return self.of.delay(retry) if retry <= self.n else None

    @property
    def length(self) -> int | None:
        """See `Backoff.length`."""
        return _shorter(self.of.length, self.n)


class _Cut(_Limited):
    """A schedule that ends after a number of retries that its nominal delays determine."""

    _length: int | None

    def __init__(self, of: Backoff, limit: Duration) -> None:
        super().__init__(of, limit)
        freeze(self, "_length", self._end())

    # Returns the number of retries; None if there is no end.
    _end: ClassVar[Callable[[Any], int | None]]

    def delay(self, retry: int) -> float | None:
        return self.of.delay(retry) if self._length is None or retry <= self._length else None

    @property
    def length(self) -> int | None:
        return self._length


class GiveUpOver(_Cut):
    """Ends at the first delay longer than the limit."""

    kind = "give_up_over"

    def _end(self) -> int | None:
        return _until_over(self.of, self.limit)


class UpTo(_Cut):
    """A schedule that ends where the sum of its nominal delays reaches a limit."""

    kind = "up_to"
    #: ``below``: the sum stays below the limit (as in cats-retry, and like a policy's deadline); ``within``: it may
    #: equal the limit (backon); ``past``: the delay that reaches the limit is still taken (Finagle).
    end: str

    def __init__(self, of: Backoff, limit: Duration, *, end: str = "below") -> None:
        if end not in _ENDS:
            raise PolicyValueError(
                f"end={end!r}: the sum of the delays can stay 'below' or 'within' the limit, or go 'past' it once"
            )
        freeze(self, "end", end)
        super().__init__(of, limit)

    def _end(self) -> int | None:
        return _until_sum(self.of, self.limit, self.end)


_ENDS = ("below", "within", "past")
#: Retries that are examined one by one. Beyond them a schedule is taken not to fall, and for sums, not to rise.
_HORIZON = 1_000


def _until_over(of: Backoff, limit: float) -> int | None:
    """Return the number of delays before the first that is longer than a limit; None if none is."""
    for retry in range(1, _HORIZON + 1):
        delay = of.delay(retry)
        if delay is None or delay > limit:
            return retry - 1
    low, high = _HORIZON, _HORIZON * 2
    while not _over(of, high, limit):
        if high > _FARTHEST:
            return of.length
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _over(of, middle, limit) else (middle, high)
    return low


_FARTHEST = 2**62


def _over(of: Backoff, retry: int, limit: float) -> bool:
    delay = of.delay(retry)
    return delay is None or delay > limit


def _until_sum(of: Backoff, limit: float, end: str) -> int | None:
    """Return the number of delays before their sum reaches a limit; None if it never does."""
    total = 0.0
    for retry in range(1, _HORIZON + 1):
        delay = of.delay(retry)
        if delay is None or (end == "past" and total >= limit):
            return retry - 1
        total += delay
        if end != "past" and (total > limit or (end == "below" and total == limit)):
            return retry - 1
    delay = of.delay(_HORIZON + 1)
    # Ended, or at no delay, which never adds up to anything.
    if not delay:
        return of.length
    fitting = min((limit - total) / delay, 1e18)
    more = {"below": ceil(fitting) - 1, "within": floor(fitting), "past": ceil(fitting)}[end]
    return _shorter(of.length, _HORIZON + max(0, more))


def _shorter(a: int | None, b: int | None) -> int | None:
    if a is None:
        return b
    return a if b is None else min(a, b)


#: The kinds of this module, which are imported at their first use.
COMPOSED: Mapping[str, type[Backoff]] = MappingProxyType(
    {cls.kind: cls for cls in (Cap, EnvelopeBackoff, Floor, GiveUpOver, Longer, Shorter, Sum, Take, ThenBackoff, UpTo)}
)
