"""Beats for the worker, says what it has lost, and carries what its handlers say of themselves.

A beat is a write, and one every few seconds is enough. Between two beats the keeper only looks which leases are left,
twice a second: a handler whose job was cancelled is told within a second. While nothing runs it does not even look.

It has a thread of its own: a handler that keeps the event loop or the GIL busy for a minute is a healthy handler, and
must not cost the worker its leases. The other side of that coin, a worker that beats while its loop hangs for good, is
covered by the hard timeout of each attempt (`redrive.engine.lease`).

A beat may get no answer: its server process may be stopped, or the network may drop its packets. So each call of this
thread may take half of the time that is left of the lease. Then its connection is closed, and the next try has another
one. A second thread, which never asks the database, cancels the attempts if no beat was answered until shortly before
the end of the lease, because from then on another worker may start them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

from redrive.app.app import App
from redrive.clock import SystemClock
from redrive.runtime.supervision import Supervisor
from redrive.stores.operations import attempts, workers
from redrive.stores.operations.attempts import ProgressReport

__all__ = ["Heartbeat"]

NAME = "the heartbeat"
"""What the log calls this duty."""

LOOK = 0.5
"""Seconds between two looks at the leases, at most."""

MARGIN, LONGEST_MARGIN = 0.1, 1.0
"""How long before the end of the lease the attempts are cancelled: a share of the lease, and seconds at most."""

LAST_WAIT = 1.0
"""Seconds that `Heartbeat.stop` waits for a call that is under way."""


class Heartbeat:
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
        expired: called, in a thread of the keeper, shortly before the lease ends because no beat was answered, and
            again while that lasts.
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
        unsaid: Callable[[], Sequence[ProgressReport]] = lambda: (),
        supervisor: Supervisor | None = None,
        expired: Callable[[], None] = lambda: None,
    ) -> None:
        self._supervisor = supervisor or Supervisor(SystemClock())
        self._app = app
        self._worker_id = worker_id
        self._holding = holding
        self._lost = lost
        self._forgotten = forgotten
        self._unknown = unknown
        self._unsaid = unsaid
        self._expired = expired
        self._every = app.terms.heartbeat_every.total_seconds()
        self._lease = app.terms.lease_for.total_seconds()
        self._margin = min(self._lease * MARGIN, LONGEST_MARGIN)
        now = SystemClock.monotonic()
        self._beat_at, self._ends_at = now + self._every, now + self._lease
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="redrive-keeper", daemon=True)
        self._guard = threading.Thread(target=self._watch, name="redrive-keeper-guard", daemon=True)

    def start(self) -> None:
        """Begin to beat. The worker has just been registered."""
        self.extended(SystemClock.monotonic())
        self._thread.start()
        self._guard.start()

    def stop(self) -> None:
        """Beat no more, and ignore the answer to a beat that is still under way after a moment."""
        self._stop.set()
        self._thread.join(LAST_WAIT)
        self._guard.join(LAST_WAIT)

    def extended(self, since: float) -> None:
        """Take note that the database has extended the lease of the worker; so does a claim. From any thread.

        Args:
            since: the instant of the monotonic clock before the request was sent.
        """
        self._ends_at = max(self._ends_at, since + self._lease)

    def _run(self) -> None:
        looks = max(1, math.ceil(self._every / LOOK))
        looked = 0
        while not self._stop.wait(self._every / looks):
            looked += 1
            try:
                if looked < looks and SystemClock.monotonic() < self._beat_at:
                    self._look()
                else:
                    self._beat()
                    looked = 0  # one that has failed is soon sent again
                self._report()
            except Exception as error:  # noqa: BLE001 - without heartbeats the worker loses all that it runs
                self._supervisor.failed(NAME, error)
            else:
                self._supervisor.succeeded(NAME)

    def _watch(self) -> None:
        """Have the attempts cancelled shortly before the lease ends."""
        rest = self._lease - self._margin
        while True:
            woken_at = SystemClock.monotonic() + rest
            if self._stop.wait(rest):
                return
            now = SystemClock.monotonic()
            if now > woken_at + self._margin:
                # The whole process was stopped, and the lease may have ended meanwhile. The database can tell.
                self._ends_at = max(self._ends_at, now + self._margin + self._lease / 3)
            rest = self._ends_at - self._margin - now
            if rest <= 0:
                self._expired()
                rest = self._margin

    def _patience(self) -> float:
        """Return the seconds that a call may take: so that another connection can be tried before the lease ends."""
        left = self._ends_at - SystemClock.monotonic()
        return max(left if left > 0 else self._lease, self._margin) / 2

    def _beat(self) -> None:
        # What was claimed after this line is no concern of this beat: it may be missing from the answer and be held.
        held_before = self._holding()
        began = SystemClock.monotonic()
        operation = workers.beat(self._worker_id(), self._app.terms.lease_for, now=self._app.now())
        pulse = self._app.store.run(operation, timeout=self._patience())
        if self._stop.is_set():
            return
        self._beat_at = began + self._every
        if pulse.alive:
            self.extended(began)
        else:
            self._forgotten()
        self._tell(held_before - pulse.leases)
        if pulse.leases - held_before - self._holding():
            self._unknown()

    def _look(self) -> None:
        held_before = self._holding()
        if held_before:
            held = self._app.store.run(workers.held(self._worker_id()), timeout=self._patience())
            self._tell(held_before - held)

    def _tell(self, missing: frozenset[int]) -> None:
        if missing:
            self._lost(missing)

    def _report(self) -> None:
        reports = self._unsaid()
        if reports:
            self._app.store.run(attempts.report(reports, now=self._app.now()), timeout=self._patience())
