"""Jitter: random changes of delays, so that clients that failed together do not retry together.

Jitter is a field of the *policy* and is applied after the cap of the backoff. The other order, in which late delays
pile up at the cap, cannot be written.
"""

from __future__ import annotations

from math import isfinite
from typing import ClassVar

from redrive.errors import PolicyValueError
from redrive.policy.duration import Duration, seconds
from redrive.policy.value import Value, freeze

_KINDS = ("none", "full", "equal", "plus", "added")


class Jitter(Value):
    """The random change of a delay.

    Use ``Jitter.none``, ``Jitter.full``, ``Jitter.equal``, ``Jitter.plus(fraction)`` or ``Jitter.added(span)``.

    With nominal delay d, lower bound b (0 unless the backoff has a floor) and a sample u from [0, 1):

    * ``none``: d
    * ``full``: b + u (d - b)
    * ``equal``: at least half: h + u (d - h), h = max(b, d / 2)
    * ``plus(f)``: d + u f d
    * ``added(s)``: d + u s, for delays so short that a fraction of them would spread nothing

    Only the last two go above d, and only they are added to a hint. With ``within``, a d that leaves no room for
    them is lowered: no delay of the backoff is longer, and late delays are spread below it like others.

    Args:
        kind: ``none``, ``full``, ``equal``, ``plus`` or ``added``.
        fraction: for ``plus`` only, zero or more.
        span: for ``added`` only.
        within: for ``plus`` and ``added``: the longest delay, jitter included, also where the backoff has a longer
            floor; a span must fit into it. Hints are not limited. None: no limit.

    Raises:
        PolicyValueError: the kind, the fraction, the span or the limit is not valid.
    """

    kind: str
    fraction: float
    #: Seconds.
    span: float
    #: Seconds; None without a limit.
    within: float | None
    none: ClassVar[Jitter]
    full: ClassVar[Jitter]
    equal: ClassVar[Jitter]

    def __init__(self, kind: str, fraction: float = 0.0, span: Duration = 0.0, within: Duration | None = None) -> None:
        if kind not in _KINDS:
            raise PolicyValueError(f"there is no jitter {kind!r}: use none, full, equal, plus(fraction) or added(span)")
        number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
        if not number or not isfinite(fraction) or fraction < 0 or (fraction and kind != "plus"):
            raise PolicyValueError(
                f"{fraction!r} is no fraction for the jitter {kind!r}: plus takes a number, zero or more"
            )
        longest = seconds(span)
        if longest and kind != "added":
            raise PolicyValueError(f"{span!r} is no span for the jitter {kind!r}: only added takes one")
        freeze(self, "kind", kind)
        freeze(self, "fraction", float(fraction))
        freeze(self, "span", longest)
        freeze(self, "within", _limit(kind, longest, within))

    @staticmethod
    def plus(fraction: float, *, within: Duration | None = None) -> Jitter:
        """Add up to ``fraction`` of the delay; with ``within``, no delay of the backoff is longer than that."""
        return Jitter("plus", fraction, within=within)

    @staticmethod
    def added(span: Duration, *, within: Duration | None = None) -> Jitter:
        """Add up to ``span`` to the delay; with ``within``, no delay of the backoff is longer than that."""
        return Jitter("added", span=span, within=within)

    def __repr__(self) -> str:
        number = f", span={self.span!r}" if self.kind == "added" else ""
        limit = "" if self.within is None else f", within={self.within!r}"
        return f"Jitter(kind={self.kind!r}, fraction={self.fraction!r}{number}{limit})"

    @property
    def is_upward(self) -> bool:
        """True if delays only become longer, so that the jitter may be added to a hint."""
        return self.kind in ("plus", "added")

    def apply(self, nominal: float, sample: float, floor: float = 0.0) -> float:
        """Return the delay with jitter; all in seconds, ``sample`` from [0, 1), ``floor`` is the lower bound."""
        kind = self.kind
        if kind == "full":
            return floor + sample * (nominal - floor)
        if kind == "none":
            return nominal
        if kind == "equal":
            low = max(floor, nominal / 2)
            return low + sample * (nominal - low)
        longest = self.highest(nominal)
        if self.within is not None:
            nominal = min(nominal, (self.within - self.span) / (1.0 + self.fraction))
        return min(longest, nominal * (1.0 + self.fraction * sample) + sample * self.span)

    def highest(self, nominal: float) -> float:
        """Return the longest wait for a nominal delay, both in seconds."""
        longest = nominal * (1.0 + self.fraction) + self.span
        return longest if self.within is None else min(longest, self.within)

    def without_limit(self) -> Jitter:
        """Return the same jitter without ``within``, for hints, which are lower bounds."""
        return self if self.within is None else Jitter(self.kind, self.fraction, self.span)


def _limit(kind: str, span: float, within: Duration | None) -> float | None:
    """Check ``within`` and return it in seconds."""
    if within is None:
        return None
    if kind not in ("plus", "added"):
        raise PolicyValueError(f"within={within!r}: the jitter {kind!r} goes above no delay; only plus and added do")
    longest = seconds(within)
    if longest < span:
        raise PolicyValueError(f"within={within!r} is shorter than the span that is added: give the longest delay")
    return longest


Jitter.none = Jitter("none")
Jitter.full = Jitter("full")
Jitter.equal = Jitter("equal")
