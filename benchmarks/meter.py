"""Counts runs of handlers across processes, at almost no cost.

A handler of a benchmark only calls `Meter.mark`. That writes three numbers (and optionally one latency) into a small
file that the worker and the benchmark have both mapped into memory, so that reading the progress of a worker costs the
worker no time.

``time.monotonic`` is one clock for all processes of a machine.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

__all__ = ["METER", "Meter"]

METER = "REDRIVE_BENCH_METER"
"""The environment variable that tells a worker process where its meter is."""

_COUNT, _FIRST, _LAST, _HEAD = 0, 1, 2, 3
_LATENCIES = 20_000


class Meter:
    """What the handlers of one worker process have done so far.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._slots = memoryview(mmap.mmap(file.fileno(), 0)).cast("d")
        self._count = 0

    @classmethod
    def create(cls, path: Path) -> Meter:
        """Make a meter that shows nothing yet.

        Args:
            path: of the file, which is replaced.

        Returns:
            The meter.
        """
        path.write_bytes(bytes(8 * (_HEAD + _LATENCIES)))
        return cls(path)

    @classmethod
    def given(cls) -> Meter:
        """Open the meter that the environment of this worker process names."""
        return cls(Path(os.environ[METER]))

    def mark(self, sent_at: float = 0.0, *, jobs: int = 1) -> None:
        """Note that handlers ran, now.

        Args:
            sent_at: when the job was about to be enqueued, by ``time.monotonic``; 0 where latency is of no interest.
            jobs: how many ran.
        """
        slots, now = self._slots, time.monotonic()
        if self._count == 0:
            slots[_FIRST] = now
        if sent_at:
            slots[_HEAD + self._count] = now - sent_at
        self._count += jobs
        slots[_LAST] = now
        slots[_COUNT] = self._count

    @property
    def count(self) -> int:
        """Return the number of handlers that ran."""
        return int(self._slots[_COUNT])

    @property
    def first_at(self) -> float:
        """Return the time at which the first handler ran, by ``time.monotonic``."""
        return self._slots[_FIRST]

    @property
    def last_at(self) -> float:
        """Return the time at which the last handler ran."""
        return self._slots[_LAST]

    @property
    def latencies(self) -> list[float]:
        """Seconds from enqueueing to running, of the jobs that were sent with their time."""
        return [each for each in self._slots[_HEAD : _HEAD + self.count] if each]
