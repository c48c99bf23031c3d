"""The treatment of one kind of failure: backoff, limit and name, with computed delays kept for speed."""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import TypeAlias

from redrive.policy.backoff import Backoff
from redrive.policy.decision import GiveUp
from redrive.policy.duration import span

__all__ = ["NO_WAIT", "REMEMBERED", "Track", "Wait"]

REMEMBERED = 64
"""Number of retries with a kept delay; later delays are computed each time."""

Wait: TypeAlias = tuple[float, float]
"""The least delay and the range of the jitter above it, in seconds."""

NO_WAIT: Wait = (inf, 0.0)
"""The wait before a retry that there is not: it fits before no deadline."""


class Track:
    """The backoff, limit and name of one treatment. A policy has one for each rule and one for all other failures.

    Args:
        name: the value of `Retry.rule` and `GiveUp.rule`.
        backoff: its schedule.
        limit: executions; None for no limit.
        own_limit: the limit is the rule's, not the policy's.
        own_backoff: the schedule is the rule's, not the policy's.
        fixed: delays have no jitter.
        upward: jitter only makes delays longer.
        memory: index in `History.by_rule` of the sample that the schedule keeps; None if it keeps none.
    """

    __slots__ = ("backoff", "draws", "fixed", "limit", "memory", "name", "own_backoff", "own_limit", "upward", "waits")

    def __init__(  # noqa: PLR0913 - keyword-only flags, set in one place
        self,
        name: str,
        backoff: Backoff,
        limit: int | None,
        *,
        own_limit: bool = False,
        own_backoff: bool = False,
        fixed: bool,
        upward: bool = False,
        memory: int | None = None,
    ) -> None:
        self.name = name
        self.backoff = backoff
        self.limit = limit
        self.own_limit = own_limit
        self.own_backoff = own_backoff
        self.draws = backoff.draws
        self.fixed = fixed and not backoff.draws
        self.upward = upward
        self.memory = memory
        self.waits: dict[int, tuple[float, float, timedelta]] = {}

    def look_up(self, retry: int) -> tuple[float, float, timedelta] | None:
        """Return the nominal delay before a retry in seconds, the lower bound of jitter, and the delay as a span.

        Equal numbers mean that no random draw is needed. With upward jitter the lower bound is -1, so that a delay is
        drawn even if it equals the floor.
        """
        nominal = self.backoff.delay(retry)
        if nominal is None:
            return None
        low = nominal if self.fixed else self.backoff.lowest(retry)
        wait = (nominal, -1.0 if self.upward else low, span(nominal))
        if retry <= REMEMBERED:
            self.waits[retry] = wait
        return wait

    def wait(self, count: int) -> Wait:
        """Return the wait after ``count`` executions; the jitter of the policy must be full or none."""
        if self.limit is not None and count >= self.limit:
            return NO_WAIT
        wait = self.waits.get(count) or self.look_up(count)
        return NO_WAIT if wait is None else (wait[1], wait[0] - wait[1])

    def used_up(self, count: int) -> GiveUp:
        """Return the decision when all executions of this treatment are used."""
        if self.own_limit:
            return GiveUp(f"{count} of {self.limit} attempts failed that {self.name} allows", self.name)
        return GiveUp(f"{count} of {self.limit} attempts failed", "attempts")

    def ended(self) -> GiveUp:
        """Return the decision when the schedule has no further delay."""
        length = self.backoff.length
        return GiveUp(f"all {length} retries of the backoff are used", "backoff")
