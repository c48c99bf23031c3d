"""What the sums for charts cost a drain: ``python -m benchmarks.counting URL [--rounds N] [--jobs N]``.

A worker adds each ended attempt to sums in its memory, and writes them every 10 seconds. Drains with and without that
differ by less than two drains of the same kind do, so the CPU time of the additions and of a write are measured inside
of a drain, beside that of the whole. Figures are medians over the rounds. The database of the URL must be empty, and is
not used again.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterable
from unittest import mock

from redrive import App
from redrive.engine.outcome import Settlement
from redrive.runtime.counting import EVERY, Counting
from redrive.runtime.worker import Worker


class Measured:
    """The CPU seconds of a drain, of its additions, and of its writes.

    Args:
        app: an App with the task ``nothing``.
        jobs: that are drained.
    """

    def __init__(self, app: App, jobs: int) -> None:
        self.adding = self.writing = 0.0
        self.writes = 0
        app.tasks["nothing"].enqueue_many(range(jobs))
        add, write = Counting.add, Counting.write

        def measured_add(counting: Counting, moved: Iterable[Settlement]) -> None:
            """Measure an addition."""
            began = time.thread_time()
            add(counting, moved)
            self.adding += time.thread_time() - began

        async def measured_write(counting: Counting) -> None:
            """Measure a write; nothing else runs at the end of a drain."""
            began = time.process_time()
            await write(counting)
            self.writing += time.process_time() - began
            self.writes += 1

        with mock.patch.object(Counting, "add", measured_add), mock.patch.object(Counting, "write", measured_write):
            cpu, began = time.process_time(), time.perf_counter()
            asyncio.run(Worker(app, until_empty=True).run())
            self.whole, self.elapsed = time.process_time() - cpu, time.perf_counter() - began


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(prog="benchmarks.counting", description="The cost of the sums for charts.")
    parser.add_argument("url")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=4000)
    given = parser.parse_args()
    app = App(given.url)

    @app.task
    async def nothing(number: int) -> None:
        """Do nothing."""

    app.open()
    Measured(app, 500)
    found = [Measured(app, given.jobs) for _ in range(given.rounds)]
    app.close()
    whole = statistics.median(each.whole / given.jobs for each in found)
    share = statistics.median(each.adding / each.whole for each in found)
    write = statistics.median(each.writing / max(each.writes, 1) for each in found)
    # The CPU seconds that such a drain takes between two writes.
    between = statistics.median(EVERY * each.whole / each.elapsed for each in found)
    print(f"{1e6 * whole:.0f} µs of CPU a job; additions {100 * share:.2f} % of it")
    print(f"a write {1e3 * write:.1f} ms each {EVERY:.0f} s, {100 * write / between:.2f} % of the CPU in between")
    of_time = statistics.median((each.adding + write * each.elapsed / EVERY) / each.elapsed for each in found)
    of_cpu = share + write / between
    print(f"together {100 * of_cpu:.2f} % of the CPU of the worker, {100 * of_time:.2f} % of the time")


if __name__ == "__main__":
    main()
