"""Hedging: when further copies of a call are started while the first has not answered yet.

A copy that is sent a little later may meet a faster server or connection, and the first answer is used. Copies are
load: with a delay at the 95th percentile, five calls in a hundred are copied. Only an idempotent call may be made
twice. `redrive.retrying.hedging` makes hedged calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from redrive.errors import PolicyValueError
from redrive.policy.duration import Duration, parse_duration
from redrive.policy.value import Value, freeze


class Hedge(Value):
    """The delays after which copies of a call are started: ``Policy(hedge=Hedge("200ms"), idempotent=True, ...)``.

    Args:
        after: the delay from one copy to the next; or one such delay for each copy.
        attempts: the largest number of copies, the first call included; by default 2, or one more than there are
            delays.

    Raises:
        PolicyValueError: a delay cannot be read, there would be no copy, or there are more copies than delays.
    """

    after: tuple[timedelta, ...]
    attempts: int

    def __init__(self, after: Duration | Iterable[Duration], attempts: int | None = None) -> None:
        each = [after] if isinstance(after, timedelta | int | float | str) else list(after)
        single = isinstance(after, timedelta | int | float | str)
        count = (2 if single else len(each) + 1) if attempts is None else attempts
        if isinstance(count, bool) or not isinstance(count, int) or count < 2:  # noqa: PLR2004 - the call and a copy
            raise PolicyValueError(f"attempts={attempts!r} of a hedge: 2 or more, the first call included")
        gaps = [parse_duration(gap) for gap in each]
        if single:
            gaps *= count - 1
        if len(gaps) < count - 1:
            raise PolicyValueError(f"a hedge of {count} attempts needs {count - 1} delays, not {len(gaps)}")
        freeze(self, "after", tuple(gaps[: count - 1]))
        freeze(self, "attempts", count)
