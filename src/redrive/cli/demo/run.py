"""The course of the demo: start, enqueue, watch, kill a worker midway, wait until all is done.

Everything that it knows of the deliveries it reads from the database; it never talks to the workers except by signals.

The kill: once two fifths of the events are done, the worker that runs the most is frozen with SIGSTOP, so that what it
holds cannot change while we look; if it still holds something it is killed with SIGKILL, else it goes on and the next
round tries again. Nobody tells the database. The other workers find out when the heartbeats stop, as they would if the
machine had lost power. Where there is only one worker, a new one takes its place.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

from redrive.cli.demo.database import Database
from redrive.cli.demo.processes import Child, ChildError, Children
from redrive.cli.demo.progress import Counts, Display
from redrive.cli.demo.report import Rescue
from redrive.cli.demo.signals import Interrupts
from redrive.clock import Clock

__all__ = ["Course"]

_BATCH = 25  # events enqueued in one transaction; between two of them the display is drawn and Ctrl-C is heard
_LOOK_EVERY = 0.1  # seconds
_MIDWAY = 0.4
_STALLED_AFTER = 60.0  # seconds without any change; the longest honest pause is a lease that runs out, 3 s


class Course:
    """One run of the demo.

    Args:
        database: to enqueue into and to look at.
        children: the receiver, which listens already, and the workers to come.
        display: who shows progress.
        interrupts: says whether somebody pressed Ctrl-C.
        clock: to wait by.

    Attributes:
        rescue: the kill, once there was one.
    """

    def __init__(
        self, database: Database, children: Children, display: Display, interrupts: Interrupts, clock: Clock
    ) -> None:
        self._database = database
        self._children = children
        self._display = display
        self._interrupts = interrupts
        self._clock = clock
        self._last: tuple[Counts, float] = (Counts(), clock.monotonic())
        self._known_dead: set[Child] = set()
        self.rescue: Rescue | None = None

    def run(self, events: Sequence[Any], workers: int) -> None:
        """Enqueue the events and see them through; returns early after a first Ctrl-C.

        Args:
            events: to be delivered.
            workers: processes to start.

        Raises:
            ChildError: the receiver or all workers have ended, or nothing has moved for a minute.
        """
        for _ in range(workers):
            self._start_worker()
        if self._database.left_over:
            self._display.note(f"{len(self._database.left_over)} events are left from an earlier run; they go first")
        for start in range(0, len(events), _BATCH):
            if self._interrupts.asked:
                break
            self._database.enqueue(events[start : start + _BATCH])
            self._look()
        while not self._interrupts.asked and not self._database.idle():
            counts = self._look()
            if self.rescue is None and counts.finished >= max(1, _MIDWAY * self._database.total):
                self._kill_one()
            self._clock.sleep(_LOOK_EVERY)
        self._look()

    def drain(self) -> None:
        """Let the workers finish what they run."""
        self._display.note("finishing what runs now; press Ctrl-C again to stop at once")
        self._children.stop_workers()
        self._display.show(self._database.counts(), self._database.total)

    def _start_worker(self) -> None:
        worker = self._children.start_worker()
        self._display.note(f"{worker.name} is process {worker.pid}")

    def _look(self) -> Counts:
        counts = self._database.counts()
        self._display.show(counts, self._database.total)
        if counts != self._last[0]:
            self._last = (counts, self._clock.monotonic())
        elif self._clock.monotonic() - self._last[1] > _STALLED_AFTER:
            raise self._broken(f"nothing has moved for {_STALLED_AFTER:.0f} s")
        self._check_children()
        return counts

    def _broken(self, what: str) -> ChildError:
        return ChildError(f"{what}; the log {self._children.log} ends with: {self._children.last_words()}")

    def _check_children(self) -> None:
        receiver = self._children.receiver
        if receiver is not None and not receiver.alive:
            raise self._broken(f"the receiver has ended with status {receiver.status}")
        ended = [worker for worker in self._children.workers if not worker.alive]
        if len(ended) == len(self._children.workers):
            raise self._broken(f"all workers have ended, the last with status {ended[-1].status}")
        for worker in set(ended) - self._known_dead:
            self._known_dead.add(worker)
            self._display.note(f"{worker.name} has ended by itself (status {worker.status}); the others go on")

    def _kill_one(self) -> None:
        alive = [worker for worker in self._children.workers if worker.alive]
        victim = max(alive, key=lambda worker: len(self._database.held_by(worker.pid)))
        held: frozenset[int] = frozenset()
        victim.signal(signal.SIGSTOP)
        try:
            held = self._database.held_by(victim.pid)
        finally:
            if not held:
                victim.signal(signal.SIGCONT)
        if held:
            self._bury(victim, held)

    def _bury(self, victim: Child, held: frozenset[int]) -> None:
        victim.kill()
        self._known_dead.add(victim)
        self.rescue = Rescue(victim.name, held)
        self._display.note(f"{victim.name} is killed (SIGKILL) while it runs {len(held)} deliveries")
        if not any(worker.alive for worker in self._children.workers):
            self._start_worker()
