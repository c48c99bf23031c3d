"""How long a worker is believed. PURE.

A lease has no clock of its own. It dies with its worker: the worker writes one row every few seconds (its heartbeat,
whatever the number of jobs it runs), and a worker whose row has run out is presumed dead with all that it held. A
second rule covers the worker that beats but hangs: an attempt that has outlived the ``attempt_timeout`` of its policy,
or `ATTEMPT_LIMIT` where that names none,
by more than `GRACE` is taken away even from a living worker.

Being presumed dead is harmless to the truth. The sweep gives the job a new lease when it is claimed again, so whatever
the silent worker still writes, when it wakes, is fenced off and changes nothing.

Numbers: a heartbeat every 5 s and a lease of 15 s survive two lost beats and let a dead worker's jobs run again within
20 s (`spec/engine.md`); peers need from 30 s to 4 h.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from redrive.errors import ConfigurationError
from redrive.policy import Policy

__all__ = [
    "ATTEMPT_LIMIT",
    "GRACE",
    "POISON_LIMIT",
    "UNKNOWN_TASK_DELAY",
    "UNREADABLE_FOR",
    "UNREADABLE_LOOK",
    "LeaseTerms",
    "limit_of",
]

POISON_LIMIT = 3
"""Crashes in a row after which a job is presumed to kill its workers (`spec/engine.md`)."""

GRACE = timedelta(seconds=10)
"""Added to the attempt timeout before a living worker loses an attempt."""

ATTEMPT_LIMIT = timedelta(hours=1)
"""How long an attempt of a job may take whose policy has no ``attempt_timeout``."""

UNKNOWN_TASK_DELAY = timedelta(seconds=15)
"""How long a job waits after a worker gave it back because it has no such task."""

UNREADABLE_LOOK = timedelta(minutes=1)
"""The longest time between two attempts to read the arguments of a job that the code could not read."""

UNREADABLE_FOR = timedelta(minutes=15)
"""How long such a job waits for a worker with other code, because a deploy may be in progress. Then it is dead."""


def limit_of(policy: Policy) -> timedelta:
    """Return how long one attempt of a job with this policy may take. There is always a limit."""
    return policy.attempt_timeout or ATTEMPT_LIMIT


class LeaseTerms(msgspec.Struct, frozen=True, gc=False):
    """How often a worker beats and how long it is believed.

    Attributes:
        heartbeat_every: time between two heartbeats.
        lease_for: time after the last heartbeat at which the worker is presumed dead.
    """

    heartbeat_every: timedelta = timedelta(seconds=5)
    lease_for: timedelta = timedelta(seconds=15)

    def __post_init__(self) -> None:
        """Refuse terms under which a healthy worker would lose its jobs."""
        if self.heartbeat_every <= timedelta(0):
            message = f"heartbeat_every must be positive, got {self.heartbeat_every}"
            raise ConfigurationError(message)
        if self.lease_for < 2 * self.heartbeat_every:
            message = (
                f"lease_for ({self.lease_for}) must be at least twice heartbeat_every ({self.heartbeat_every}): "
                "otherwise one late heartbeat makes a healthy worker lose its jobs"
            )
            raise ConfigurationError(message)
