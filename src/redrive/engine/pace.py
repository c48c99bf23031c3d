"""How many jobs a worker claims before it has a free slot for them. PURE.

A claim and a settle cost the same for one job and for several hundred. A worker of short handlers therefore claims
ahead: besides the jobs that start at once, it claims as many as it will start within `HORIZON`, by the rate at which
its attempts have ended lately. A worker of long handlers claims none ahead, because another worker may be able to start
the jobs sooner.
"""

from __future__ import annotations

import msgspec

# Seconds within which a job that is claimed ahead should start. A worker that claims and settles a few times in this
# time spends most of it in handlers, also if it is one of many; a job of a better priority waits so much longer at
# most.
HORIZON = 0.1

# The longest mean time in seconds of attempts for which jobs are claimed ahead.
SHORT = 0.05

# Seconds after which a job that has not started is given back. Only an estimate that was wrong lets one wait so long.
PATIENCE = 0.3

# Seconds to wait for further ends of attempts before they are written: at least, and of a worker with short handlers.
LINGER, LONGEST = 0.002, 0.02

# The ends that are written together, if so many come within `LONGEST`. Of fewer than `FEW` none waits for long.
GATHERED, FEW = 100, 10

# Jobs that are claimed ahead, at most. They and their arguments are in memory.
MOST = 1000

# The shortest time in seconds over which a rate is measured.
WINDOW = 0.005

# Seconds after which a rate predicts nothing about the next jobs.
STALE = 0.25


class Pace(msgspec.Struct, frozen=True, gc=False):
    """The measured pace of a worker. Instants are in seconds, of any clock that never goes back.

    Attributes:
        since: the instant at which the present window began; None before the first attempt.
        ended: the attempts that have ended in the present window.
        busy: the time in seconds for which these attempts have run, in total.
        rate: attempts that end per second.
        mean: the mean time in seconds for which an attempt runs.
    """

    since: float | None = None
    ended: int = 0
    busy: float = 0.0
    rate: float = 0.0
    mean: float = 0.0

    def after(self, ended: int, busy: float, at: float) -> Pace:
        """Return the pace after this number of attempts has ended, which have run for ``busy`` seconds in total."""
        if self.since is None or at - self.since > STALE:
            return Pace(at)
        ended, busy, elapsed = self.ended + ended, self.busy + busy, at - self.since
        if elapsed < WINDOW or not ended:
            return Pace(self.since, ended, busy, self.rate, self.mean)
        # The rate is the mean of the present window and of the past, so that a worker adapts within a few windows.
        # Handlers that have become slower count at once.
        mean = busy / ended
        return Pace(at, rate=(self.rate + ended / elapsed) / 2, mean=max(mean, (self.mean + mean) / 2))

    def ahead(self, at: float) -> int:
        """Return the number of jobs to claim ahead."""
        if self.since is None or at - self.since > STALE or self.mean > SHORT:
            return 0
        return min(MOST, int(self.rate * HORIZON))

    def linger(self, at: float) -> float:
        """Return the seconds to wait for more ends of attempts after the first one, so that a commit has many."""
        if not self.ahead(at) or self.rate * LONGEST < FEW:
            return LINGER
        return min(max(GATHERED / self.rate, LINGER), LONGEST)
