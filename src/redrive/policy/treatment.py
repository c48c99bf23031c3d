"""How one kind of failure is treated, prepared for speed.

A policy has one track for each rule and one for everything else. A track remembers the nominal delays that it has been
asked for, so that a decision costs a look-up instead of a power, a comparison and a ``timedelta``.
"""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import TypeAlias

from redrive.policy.backoff import Backoff
from redrive.policy.decision import GiveUp
from redrive.policy.duration import span

__all__ = ["NO_WAIT", "REMEMBERED", "Track", "Wait"]

REMEMBERED = 64
"""Retries whose delay is remembered; later ones are computed each time, which who has waited so long can afford."""

Wait: TypeAlias = tuple[float, float]
"""What a delay is at least, and what luck may add to it, in seconds."""

NO_WAIT: Wait = (inf, 0.0)
"""The wait before a retry that there is not: it fits before no deadline."""


class Track:
    """Backoff, limit and name of one treatment.

    Args:
        name: what `Retry.rule` and `GiveUp.rule` say.
        backoff: its schedule.
        limit: executions; None for no limit.
        own_limit: the limit is the rule's, not the policy's.
        own_backoff: the schedule is the rule's, not the policy's.
        fixed: delays are waited as they are, without jitter.
        upward: jitter is only added, so that there is always something to draw.
        memory: which number of `History.by_rule` keeps what the schedule remembers; None if it does not.
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
        """The nominal delay before a retry in seconds, the lower bound of jitter, and the nominal delay as a span.

        Where the first two are equal there is nothing to draw; jitter that is added has no lower bound but the delay
        itself, and is drawn also where a floor has come up to it: then the second is below every delay.
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
        """What follows so many executions, where delays are drawn with full jitter or none."""
        if self.limit is not None and count >= self.limit:
            return NO_WAIT
        wait = self.waits.get(count) or self.look_up(count)
        return NO_WAIT if wait is None else (wait[1], wait[0] - wait[1])

    def used_up(self, count: int) -> GiveUp:
        """The decision when all executions of this track are used."""
        if self.own_limit:
            return GiveUp(f"{count} of {self.limit} attempts failed that {self.name} allows", self.name)
        return GiveUp(f"{count} of {self.limit} attempts failed", "attempts")

    def ended(self) -> GiveUp:
        """The decision when the schedule has no further delay."""
        length = self.backoff.length
        return GiveUp(f"all {length} retries of the backoff are used", "backoff")
