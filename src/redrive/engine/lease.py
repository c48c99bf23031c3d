"""Heartbeat, lease and attempt limits. PURE.

A lease has no expiry of its own. It ends with its worker: the worker updates one row every few seconds (its heartbeat,
independent of the number of its jobs), and a worker without a heartbeat for ``lease_for`` is presumed dead with all its
attempts. A live worker loses an attempt that exceeds the ``attempt_timeout`` of its policy, or `ATTEMPT_LIMIT`, by
`GRACE`.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from redrive.errors import ConfigurationError
from redrive.policy import Policy

#: Crashes in a row after which a job is presumed to kill its workers.
POISON_LIMIT = 3

#: Time beyond the attempt timeout before a live worker loses an attempt.
GRACE = timedelta(seconds=10)

#: Time that the function of a step has to end in its thread after a time limit; an attempt must end within `GRACE`.
THREAD_GRACE = GRACE / 2

#: Time limit of an attempt if the policy has no ``attempt_timeout``.
ATTEMPT_LIMIT = timedelta(hours=1)

#: Delay of a job after a worker without its task has released it.
UNKNOWN_TASK_DELAY = timedelta(seconds=15)

#: Maximum time between two attempts to decode the arguments of a job.
UNREADABLE_LOOK = timedelta(minutes=1)

#: Time for which such a job waits for a worker with other code, as during a deployment. Then it is dead.
UNREADABLE_FOR = timedelta(minutes=15)


def limit_of(policy: Policy) -> timedelta:
    """Return the time limit of one attempt under this policy."""
    return policy.attempt_timeout or ATTEMPT_LIMIT


# A heartbeat every 5 s with a lease of 15 s tolerates two lost heartbeats, and a dead worker's jobs run again within 20
# s; other queues need from 30 s to 4 h.
#
# A wrong presumption is safe: the job gets a new lease when it is claimed again, so writes of the presumed dead worker
# are fenced off.
class LeaseTerms(msgspec.Struct, frozen=True, gc=False):
    """The heartbeat interval, and the time after the last heartbeat at which a worker is presumed dead."""

    heartbeat_every: timedelta = timedelta(seconds=5)
    lease_for: timedelta = timedelta(seconds=15)

    def __post_init__(self) -> None:
        """Refuse terms under which a healthy worker would lose its jobs."""
        if self.heartbeat_every <= timedelta(0):
            raise ConfigurationError(f"heartbeat_every must be positive, got {self.heartbeat_every}")
        if self.lease_for < 2 * self.heartbeat_every:
            raise ConfigurationError(
                f"lease_for ({self.lease_for}) must be at least twice heartbeat_every ({self.heartbeat_every}): "
                "otherwise one late heartbeat makes a healthy worker lose its jobs"
            )
