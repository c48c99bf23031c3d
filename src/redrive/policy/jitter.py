"""Spreading retries in time, so that clients that failed together do not come back together.

Jitter is a property of the *policy*, applied to what the backoff says after its cap. There is no way to write the other
order, in which late delays pile up exactly at the cap: in peers that have it, 68 to 100 % of them did when measured.
"""

from __future__ import annotations

from math import isfinite
from typing import ClassVar, TypeAlias

from redrive.errors import PolicyValueError
from redrive.policy.value import Value, freeze

__all__ = ["Jitter", "JitterLike"]

_KINDS = ("none", "full", "equal", "plus")


class Jitter(Value):
    """How a delay is drawn: ``Jitter.none``, ``Jitter.full``, ``Jitter.equal`` or ``Jitter.plus(fraction)``.

    With nominal delay d, lower bound b (0 unless the backoff has a floor) and a sample u from [0, 1):

    * ``none``: d
    * ``full``: b + u (d - b)
    * ``equal``: at least half: h + u (d - h), h = max(b, d / 2)
    * ``plus(f)``: d + u f d; the only one that goes above d, and the only one that is added to a hint

    Args:
        kind: ``none``, ``full``, ``equal`` or ``plus``.
        fraction: for ``plus`` only, zero or more.

    Raises:
        PolicyValueError: another kind, or a fraction that is no such number.
    """

    __slots__ = ("fraction", "kind")
    _fields = ("kind", "fraction")
    kind: str
    fraction: float
    none: ClassVar[Jitter]
    full: ClassVar[Jitter]
    equal: ClassVar[Jitter]

    def __init__(self, kind: str, fraction: float = 0.0) -> None:
        if kind not in _KINDS:
            message = f"there is no jitter {kind!r}: use none, full, equal or plus(fraction)"
            raise PolicyValueError(message)
        number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
        if not number or not isfinite(fraction) or fraction < 0 or (fraction and kind != "plus"):
            message = f"{fraction!r} is no fraction for the jitter {kind!r}: plus takes a number, zero or more"
            raise PolicyValueError(message)
        freeze(self, "kind", kind)
        freeze(self, "fraction", float(fraction))

    @staticmethod
    def plus(fraction: float) -> Jitter:
        """Up to ``fraction`` of the delay on top of it."""
        return Jitter("plus", fraction)

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
        return nominal * (1.0 + self.fraction * sample)

    def highest(self, nominal: float) -> float:
        """The longest wait that can come out of a nominal delay, both in seconds."""
        return nominal * (1.0 + self.fraction)


Jitter.none = Jitter("none")
Jitter.full = Jitter("full")
Jitter.equal = Jitter("equal")

JitterLike: TypeAlias = Jitter | str
