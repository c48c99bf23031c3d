"""Spreading retries in time, so that clients that failed together do not come back together.

Jitter is a property of the *policy*, applied to what the backoff says after its cap. There is no way to write the other
order, in which late delays pile up exactly at the cap: in peers that have it, 68 to 100 % of them did when measured.
"""

from __future__ import annotations

from math import isfinite
from typing import ClassVar, TypeAlias

from redrive.errors import PolicyValueError
from redrive.policy.duration import Duration, seconds
from redrive.policy.value import Value, freeze

__all__ = ["Jitter", "JitterLike"]

_KINDS = ("none", "full", "equal", "plus", "added")


class Jitter(Value):
    """How a delay is drawn.

    Say ``Jitter.none``, ``Jitter.full``, ``Jitter.equal``, ``Jitter.plus(fraction)`` or ``Jitter.added(span)``.

    With nominal delay d, lower bound b (0 unless the backoff has a floor) and a sample u from [0, 1):

    * ``none``: d
    * ``full``: b + u (d - b)
    * ``equal``: at least half: h + u (d - h), h = max(b, d / 2)
    * ``plus(f)``: d + u f d
    * ``added(s)``: d + u s, for delays so short that a fraction of them would spread nothing

    The last two alone go above d, and they alone are added to a hint.

    Args:
        kind: ``none``, ``full``, ``equal``, ``plus`` or ``added``.
        fraction: for ``plus`` only, zero or more.
        span: for ``added`` only.

    Attributes:
        span: in seconds.

    Raises:
        PolicyValueError: another kind, a fraction that is no such number, or a span that is no duration.
    """

    __slots__ = ("fraction", "kind", "span")
    _fields = ("kind", "fraction", "span")
    kind: str
    fraction: float
    span: float
    none: ClassVar[Jitter]
    full: ClassVar[Jitter]
    equal: ClassVar[Jitter]

    def __init__(self, kind: str, fraction: float = 0.0, span: Duration = 0.0) -> None:
        if kind not in _KINDS:
            message = f"there is no jitter {kind!r}: use none, full, equal, plus(fraction) or added(span)"
            raise PolicyValueError(message)
        number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
        if not number or not isfinite(fraction) or fraction < 0 or (fraction and kind != "plus"):
            message = f"{fraction!r} is no fraction for the jitter {kind!r}: plus takes a number, zero or more"
            raise PolicyValueError(message)
        longest = seconds(span)
        if longest and kind != "added":
            message = f"{span!r} is no span for the jitter {kind!r}: only added takes one"
            raise PolicyValueError(message)
        freeze(self, "kind", kind)
        freeze(self, "fraction", float(fraction))
        freeze(self, "span", longest)

    @staticmethod
    def plus(fraction: float) -> Jitter:
        """Up to ``fraction`` of the delay on top of it."""
        return Jitter("plus", fraction)

    @staticmethod
    def added(span: Duration) -> Jitter:
        """Up to ``span`` on top of the delay, however short that is."""
        return Jitter("added", span=span)

    def __repr__(self) -> str:
        number = f", span={self.span!r}" if self.kind == "added" else ""
        return f"Jitter(kind={self.kind!r}, fraction={self.fraction!r}{number})"

    @property
    def is_upward(self) -> bool:
        """Whether it only makes delays longer, so that it may be added to a hint."""
        return self.kind in ("plus", "added")

    def apply(self, nominal: float, sample: float, floor: float = 0.0) -> float:
        """The delay to wait, in seconds.

        Args:
            nominal: what the backoff says, in seconds.
            sample: a random number from [0, 1).
            floor: lower bound of the backoff, in seconds.
        """
        kind = self.kind
        if kind == "full":
            return floor + sample * (nominal - floor)
        if kind == "none":
            return nominal
        if kind == "equal":
            low = max(floor, nominal / 2)
            return low + sample * (nominal - low)
        return nominal * (1.0 + self.fraction * sample) + sample * self.span

    def highest(self, nominal: float) -> float:
        """The longest wait that can come out of a nominal delay, both in seconds."""
        return nominal * (1.0 + self.fraction) + self.span


Jitter.none = Jitter("none")
Jitter.full = Jitter("full")
Jitter.equal = Jitter("equal")

JitterLike: TypeAlias = Jitter | str
