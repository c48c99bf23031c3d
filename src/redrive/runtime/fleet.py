"""The place of a worker among the live workers with the same queues and tasks.

Any of them could do each background duty and start each job. So that the database does not answer all of them the same
question at the same time, they poll in turns: at a notification the first one polls at once and each further one `STEP`
seconds later, and at intervals the oldest polls most often. No worker depends on another one: if those before it are
full, blocked or dead, it polls a moment later. Of an idle fleet, the first `FEW` start all jobs: a worker that is not
among them, and has polled in vain, polls again after `VAIN` seconds at the earliest.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from redrive.engine.records import WorkerRecord

# Seconds between the polls of two workers at the same notification: about the time of a claim. If four workers before
# it cannot start a job, a worker still does so within 20 ms.
STEP = 0.005

# Seconds after which another worker is the first. A shorter turn would depend on how well the clocks of machines agree.
TURN = 0.02

# The workers that poll at each notification, and the seconds after a poll in vain until one of the others does.
FEW, VAIN = 4, 0.5

# Seconds within which the first ones poll. The others poll later than a notification that is yielded a second time
# (`redrive.stores.drivers.postgres.listener.AGAIN`), and do not need it.
SOON = STEP * FEW

# The longest interval of a duty, in multiples of that of the oldest worker.
SPARSE = 5


class Fleet:
    """The place of this worker, as it was when the workers were last read.

    Attributes:
        rank: the number of older workers.
        size: the number of workers, with this one.
    """

    def __init__(self) -> None:
        self.rank: int = 0
        self.size: int = 1
        self._again_at: datetime | None = None

    def see(self, own_id: int, workers: Iterable[WorkerRecord]) -> None:
        """Read the place of a worker from the list of live workers, oldest first."""
        records = list(workers)
        own = next((each for each in records if each.id == own_id), None)
        ids = [] if own is None else [each.id for each in records if _served(each) == _served(own)]
        # A worker that is registering again has no row.
        self.rank, self.size = (ids.index(own_id), len(ids)) if ids else (0, 1)

    def interval(self, seconds: float, longest: int = SPARSE) -> float:
        """Return the interval of a duty: the given one for the two oldest workers, a longer one for the others.

        ``longest`` is the longest one, in multiples of the given one.
        """
        return seconds * min(max(self.rank, 1), longest)

    @property
    def lag(self) -> float:
        """The seconds after the oldest worker at which this one does what is due at an instant."""
        return STEP * self.rank

    def polled(self, at: datetime, *, in_vain: bool) -> None:
        """Note that this worker has polled for jobs at an instant, and whether it found none."""
        self._again_at = at + timedelta(seconds=VAIN) if in_vain else None

    def delay(self, at: datetime) -> float:
        """Return the seconds after which this worker polls for what has changed at an instant."""
        place = (self.rank + int(at.timestamp() / TURN)) % self.size
        if place < FEW or self._again_at is None:
            return STEP * place
        return max(STEP * place, (self._again_at - at).total_seconds())


def _served(worker: WorkerRecord) -> tuple[frozenset[str] | None, ...]:
    # Each process writes the names in another order.
    return tuple(
        None if names is None else frozenset(names) for names in (worker.queues, worker.excluded, worker.tasks)
    )
