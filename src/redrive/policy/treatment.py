"""The treatment of one kind of failure, and the computed answers that a policy keeps for speed."""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import NamedTuple, TypeAlias

from redrive.policy.backoff import Backoff
from redrive.policy.decision import GiveUp
from redrive.policy.duration import span

__all__ = ["NO_WAIT", "REMEMBERED", "Delay", "Memo", "Treatment", "Wait"]

# Number of retries with a kept delay; later delays are computed each time.
REMEMBERED = 64

Wait: TypeAlias = tuple[float, float]
"""The least delay and the range of the jitter above it, in seconds."""

Delay: TypeAlias = tuple[float, float, timedelta]
"""The nominal delay in seconds, the lower bound of jitter, and the nominal delay as a span."""

# An infinite wait passes every deadline, so `Policy.quick` leaves the failure to `Policy.decide`.
NO_WAIT: Wait = (inf, 0.0)


class Treatment(NamedTuple):
    """The backoff, limit and name for one kind of failure.

    A policy has one treatment for each rule and one for all other failures.
    """

    #: The value of `Retry.rule` and `GiveUp.rule`.
    name: str
    backoff: Backoff
    #: Executions; None for no limit.
    limit: int | None
    #: True if the limit is the rule's, not the policy's.
    own_limit: bool = False
    #: True if the schedule is the rule's, not the policy's.
    own_backoff: bool = False
    #: True if delays have no jitter.
    unchanged: bool = False
    #: True if jitter only makes delays longer.
    upward: bool = False
    #: Index in `History.by_rule` of the sample that the schedule keeps; None if it keeps none.
    memory: int | None = None

    def delay(self, retry: int) -> Delay | None:
        """Return the delay before a retry; None if the schedule has ended."""
        nominal = self.backoff.delay(retry)
        if nominal is None:
            return None
        # Equal numbers mean that no sample is drawn. Upward jitter is drawn even if the delay equals its floor.
        low = nominal if self.unchanged and not self.backoff.draws else self.backoff.lowest(retry)
        return nominal, -1.0 if self.upward else low, span(nominal)

    def wait(self, count: int) -> Wait:
        """Return the wait after ``count`` executions; the jitter of the policy must be full or none."""
        delay = None if self.limit is not None and count >= self.limit else self.delay(count)
        return NO_WAIT if delay is None else (delay[1], delay[0] - delay[1])

    def used_up(self, count: int) -> GiveUp:
        """Return the decision when all executions of this treatment are used."""
        if self.own_limit:
            return GiveUp(f"{count} of {self.limit} attempts failed that {self.name} allows", self.name)
        return GiveUp(f"{count} of {self.limit} attempts failed", "attempts")

    def ended(self) -> GiveUp:
        """Return the decision when the schedule has no further delay."""
        length = self.backoff.length
        return GiveUp(f"all {length} retries of the backoff are used", "backoff")


class Memo:
    """Computed answers of one policy. They change no decision and are not part of the policy's value."""

    __slots__ = ("delays", "verdicts", "waits")

    def __init__(self, treatments: tuple[Treatment, ...]) -> None:
        #: For the class names of a failure (and its reason), the index of its treatment, or -2 for none.
        self.verdicts: dict[object, int] = {}
        #: For each treatment, the delays of the first retries.
        self.delays: tuple[dict[int, Delay], ...] = tuple([{} for _ in treatments])
        #: For a class of exceptions, the wait after each number of executions; see `Policy.quick`.
        self.waits: dict[type, dict[int, Wait]] = {}
