"""What hedging is: when further copies of a call are started while the first has not answered yet.

Slow answers are often bad luck of one server, one connection, one moment. A copy that is sent a little later meets
other luck, and the first answer wins. It costs load, so the delay should be one that few calls exceed: at the 95th
percentile five calls in a hundred are copied. Only an idempotent call may be made twice.

How it is carried out stands in `redrive.retrying.hedged_call`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from redrive.errors import PolicyValueError
from redrive.policy.duration import Duration, parse_duration
from redrive.policy.value import Value, freeze

__all__ = ["Hedge"]


class Hedge(Value):
    """When copies are started. Give it to a policy: ``Policy(hedge=Hedge("200ms"), idempotent=True, ...)``.

    Args:
        after: how long after the one before the next copy is started; or one such delay for each copy.
        attempts: copies at most, the first call included; by default 2, or one more than there are delays.

    Raises:
        PolicyValueError: a delay cannot be read, or there would be no copy at all, or more copies than delays.
    """

    __slots__ = ("after", "attempts")
    _fields = ("after", "attempts")
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
