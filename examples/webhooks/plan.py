"""The behaviour of the receiver: a pure function of a seed and an event's id.

A demonstration of retries is convincing only if the failures were not chosen to suit it, and it can be
repeated only if they are the same every time. So the receiver draws no random numbers while it serves. All its
reactions to an event are drawn beforehand, from the seed and the event's id alone::

    plan_for(seed=7, event_id="evt_0042")  ->  BUSY, RESET_AFTER_BODY, then ACCEPT for ever

The n-th request *under one idempotency key* gets the n-th act. A job that runs again because its worker was killed
gets the next act like any other request: the receiver cannot detect why it is called again, as in reality.

Of 100 events about 40 are accepted at once, 53 after one to three failures, 4 are answered 410 (they are gone: a
repetition is pointless) and 3 never recover.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["RETRY_AFTER", "SLOW_FOR", "Act", "Plan", "plan_for"]

RETRY_AFTER = 1
"""Whole seconds in the ``Retry-After`` of a 503; HTTP knows no fractions here."""

SLOW_FOR = 2.5
"""Seconds before a slow answer; well past the delivery's attempt timeout of one second."""


class Act(StrEnum):
    """What the receiver does with one request."""

    ACCEPT = "accept"  # 200
    ERROR = "error"  # 500
    BUSY = "busy"  # 503 with Retry-After
    RESET_BEFORE_BODY = "reset_before_body"  # a TCP reset; the event was never seen
    RESET_AFTER_BODY = "reset_after_body"  # a TCP reset; the event was taken, and the sender cannot know
    SLOW = "slow"  # the event was taken, the answer comes too late
    GONE = "gone"  # 410: the subscriber does not exist any more


_TROUBLES = (Act.ERROR, Act.BUSY, Act.RESET_BEFORE_BODY, Act.RESET_AFTER_BODY, Act.SLOW)


@dataclass(frozen=True, slots=True)
class Plan:
    """All that will happen to one event.

    Args:
        troubles: the acts of the first requests, in order.
        ending: what every later request meets.
    """

    troubles: tuple[Act, ...]
    ending: Act

    def act(self, request: int) -> Act:
        """Return the act for the given request under one idempotency key, counted from 1."""
        return self.troubles[request - 1] if request <= len(self.troubles) else self.ending


def plan_for(seed: int, event_id: str) -> Plan:
    """Draw the plan of one event.

    Args:
        seed: of the whole demonstration.
        event_id: as the sender names the event.

    Returns:
        The same plan for the same arguments, in every process and on every machine: ``random.Random`` hashes text
        with SHA-512, not with the salted ``hash()``.
    """
    dice = random.Random(f"{seed}/{event_id}")
    fate = dice.random()
    if fate < 0.04:
        return Plan((), Act.GONE)
    if fate < 0.07:
        return Plan(_draw(dice, dice.randrange(3)), Act.ERROR)
    if fate < 0.47:
        return Plan((), Act.ACCEPT)
    return Plan(_draw(dice, 1 + dice.randrange(3)), Act.ACCEPT)


def _draw(dice: random.Random, count: int) -> tuple[Act, ...]:
    return tuple(_TROUBLES[dice.randrange(len(_TROUBLES))] for _ in range(count))
