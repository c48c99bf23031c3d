"""The place of a worker among the live workers with the same queues and tasks.

Any of them could do each background duty and start each job. So that the database does not answer all of them the same
question at the same time, they poll in turns: at a notification the first one polls at once and each further one `STEP`
seconds later, and at intervals the oldest polls most often. No worker depends on another one: if those before it are
full, blocked or dead, it polls a moment later.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from redrive.engine.records import WorkerRecord

# Seconds between the polls of two workers at the same notification: about the time of a claim. If four workers before
# it cannot start a job, a worker still does so within 20 ms.
STEP = 0.005

# Seconds after which another worker is the first. A shorter turn would depend on how well the clocks of machines agree.
TURN = 0.02

# The longest interval of a duty, in multiples of that of the oldest worker.
SPARSE = 5


class Fleet:
    """The place of this worker, as it was when the workers were last read.

    Attributes:
        rank: the number of older workers.
        size: the number of workers, with this one.
    """

    def __init__(self) -> None:
        self.rank, self.size = 0, 1

    def see(self, own_id: int, workers: Iterable[WorkerRecord]) -> None:
        """Read the place of a worker from the list of live workers, oldest first."""
        records = list(workers)
        own = next((each for each in records if each.id == own_id), None)
        ids = [] if own is None else [each.id for each in records if _served(each) == _served(own)]
        # A worker that is registering again has no row.
        self.rank, self.size = (ids.index(own_id), len(ids)) if ids else (0, 1)

    def interval(self, seconds: float) -> float:
        """Return the interval of a duty: the given one for the two oldest workers, a longer one for the others."""
        return seconds * min(max(self.rank, 1), SPARSE)

    @property
    def lag(self) -> float:
        """The seconds after the oldest worker at which this one does what is due at an instant."""
        return STEP * self.rank

    def delay(self, at: datetime) -> float:
        """Return the seconds after which this worker polls for what has changed at an instant."""
        return STEP * ((self.rank + int(at.timestamp() / TURN)) % self.size)


def _served(worker: WorkerRecord) -> tuple[frozenset[str] | None, ...]:
    # Each process writes the names in another order.
    return tuple(
        None if names is None else frozenset(names) for names in (worker.queues, worker.excluded, worker.tasks)
    )
