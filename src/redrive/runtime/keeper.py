"""Beats for the worker, says what it has lost, and carries what its handlers say of themselves.

A beat is a write, and one every few seconds is enough. Between two beats the keeper only looks which leases are left,
twice a second: a handler whose job was cancelled is told within a second. While nothing runs it does not even look.

It has a thread of its own: a handler that keeps the event loop or the GIL busy for a minute is a healthy handler, and
must not cost the worker its leases. The other side of that coin, a worker that beats while its loop hangs for good, is
covered by the hard timeout of each attempt (`redrive.engine.lease`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

from redrive.app.app import App
from redrive.clock import SystemClock
from redrive.runtime.supervision import Supervisor
from redrive.stores.operations import attempts, workers
from redrive.stores.operations.attempts import Report

__all__ = ["Keeper"]

NAME = "the heartbeat"
"""What the log calls this duty."""

LOOK = 0.5
"""Seconds between two looks at the leases, at most."""


class Keeper:
    """Beats.

    Args:
        app: whose store, and whose lease terms.
        worker_id: who beats.
        holding: the lease ids that the worker believes it holds.
        lost: called, in the keeper's thread, with those it does not hold any more.
        forgotten: called, in the keeper's thread, when the store does not know the worker any more.
        unknown: called, in the keeper's thread, when the worker holds more than it believes.
        unsaid: takes what handlers have said of themselves and nobody has written yet.
        supervisor: records which heartbeats fail; without it, they are only logged.
    """

    def __init__(  # noqa: PLR0913 - its neighbours
        self,
        app: App,
        worker_id: Callable[[], int],
        holding: Callable[[], frozenset[int]],
        lost: Callable[[frozenset[int]], None],
        forgotten: Callable[[], None],
        *,
        unknown: Callable[[], None] = lambda: None,
        unsaid: Callable[[], Sequence[Report]] = lambda: (),
        supervisor: Supervisor | None = None,
    ) -> None:
        self._supervisor = supervisor or Supervisor(SystemClock())
        self._app = app
        self._worker_id = worker_id
        self._holding = holding
        self._lost = lost
        self._forgotten = forgotten
        self._unknown = unknown
        self._unsaid = unsaid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="redrive-keeper", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Beat no more; returns when the last beat has ended."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        every = self._app.terms.heartbeat_every.total_seconds()
        looks = max(1, math.ceil(every / LOOK))
        looked = 0
        while not self._stop.wait(every / looks):
            looked += 1
            try:
                if looked % looks:
                    self._look()
                else:
                    self._beat()
                self._report()
            except Exception as error:  # noqa: BLE001 - without heartbeats the worker loses all that it runs
                self._supervisor.failed(NAME, error)
            else:
                self._supervisor.succeeded(NAME)

    def _beat(self) -> None:
        # What was claimed after this line is no concern of this beat: it may be missing from the answer and be held.
        held_before = self._holding()
        pulse = self._app.store.run(workers.beat(self._worker_id(), self._app.terms.lease_for, now=self._app.now()))
        if not pulse.alive:
            self._forgotten()
        self._tell(held_before - pulse.leases)
        if pulse.leases - held_before - self._holding():
            self._unknown()

    def _look(self) -> None:
        held_before = self._holding()
        if held_before:
            held = self._app.store.run(workers.held(self._worker_id()))
            self._tell(held_before - held)

    def _tell(self, missing: frozenset[int]) -> None:
        if missing:
            self._lost(missing)

    def _report(self) -> None:
        reports = self._unsaid()
        if reports:
            self._app.store.run(attempts.report(reports, now=self._app.now()))
