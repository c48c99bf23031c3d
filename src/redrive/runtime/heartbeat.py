"""A background thread that writes the heartbeat of the worker, finds lost leases, and writes what handlers report.

Between two heartbeats, which are writes, the thread only reads which leases are left, twice a second, so that a handler
with a cancelled job, or the step of a cancelled run, is stopped within a second. While nothing runs it reads nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import threading
from datetime import timedelta

from redrive.app.app import App
from redrive.clock import SystemClock
from redrive.runtime.attempts import Attempts
from redrive.runtime.blocked_loop import BlockedLoop
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.supervision import Supervisor
from redrive.stores.operations import attempts as handler_reports
from redrive.stores.operations import workers

# The name of this duty in the log.
NAME = "the heartbeat"

# Seconds between two reads of the leases, at most.
LOOK = 0.5

# Time before the end of the lease at which the attempts are stopped: a share of the lease, and seconds at most.
MARGIN, LONGEST_MARGIN = 0.1, 1.0

# Seconds that `Heartbeat.stop` waits for a call that is under way.
LAST_WAIT = 1.0


class LoopLag:
    """The time for which the event loop does not run, measured by a call that each heartbeat asks of it."""

    def __init__(self) -> None:
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None
        self._asked_at: float | None = None
        self._answered_at: float | None = None

    def measured(self) -> timedelta | None:
        """Return how long the last call waits, or has waited, and ask the next one; None before the first."""
        asked, answered, now = self._asked_at, self._answered_at, SystemClock.monotonic()
        if self._loop is None or (asked is not None and answered is None):
            return None if asked is None else timedelta(seconds=now - asked)
        self._asked_at, self._answered_at = now, None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._answer)
        return None if asked is None or answered is None else timedelta(seconds=answered - asked)

    def _answer(self) -> None:
        self._answered_at = SystemClock.monotonic()


class Heartbeat:
    """The thread that writes the heartbeat; without ``supervisor`` failed heartbeats are only logged."""

    def __init__(
        self, app: App, registration: WorkerRegistration, attempts: Attempts, supervisor: Supervisor | None = None
    ) -> None:
        self._app = app
        self._registration = registration
        self._attempts = attempts
        self._supervisor = supervisor or Supervisor(SystemClock())
        self._every = app.terms.heartbeat_every.total_seconds()
        self._lease = app.terms.lease_for.total_seconds()
        self._margin = min(self._lease * MARGIN, LONGEST_MARGIN)
        self._lag = LoopLag()
        self._blocked = BlockedLoop(app, attempts)
        now = SystemClock.monotonic()
        registration.extended(now)
        self._due_at = now + self._every
        self._stop = threading.Event()
        # What they log is of the app of this worker.
        run, watch = contextvars.copy_context().run, contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=[self._run], name="redrive-heartbeat", daemon=True)
        self._guard = threading.Thread(target=watch, args=[self._watch], name="redrive-lease-guard", daemon=True)

    def start(self) -> None:
        """Start the threads. The worker has just been registered."""
        self._registration.extended(SystemClock.monotonic())
        self._thread.start()
        self._guard.start()

    def stop(self) -> None:
        """Stop the threads. The answer to a heartbeat that is still under way after a moment is ignored."""
        self._stop.set()
        self._thread.join(LAST_WAIT)
        self._guard.join(LAST_WAIT)

    # The heartbeat is a thread of its own because a handler that keeps the event loop or the GIL busy for a minute is
    # healthy, and must not cost the worker its leases. A worker with an event loop that hangs for good is covered by
    # the time limit of each attempt (`redrive.engine.lease`).
    def _run(self) -> None:
        looks = max(1, math.ceil(self._every / LOOK))
        looked, opened = 0, False
        while not self._stop.wait(self._every / looks):
            looked += 1
            try:
                if not opened:
                    opened = True
                    self._open()
                if looked < looks and SystemClock.monotonic() < self._due_at:
                    self._look()
                else:
                    self._beat()
                    # Not reached by a heartbeat that has failed, so that it is soon sent again.
                    looked = 0
                self._report()
                self._attempts.ahead.give_back_from_thread(self._patience())
                self._blocked.look()
            except Exception as error:  # noqa: BLE001 - without heartbeats the worker loses all that it runs
                self._supervisor.failed(NAME, error)
            else:
                self._supervisor.succeeded(NAME)

    def _watch(self) -> None:
        """Stop the attempts shortly before the lease ends."""
        rest = self._lease - self._margin
        while True:
            woken_at = SystemClock.monotonic() + rest
            if self._stop.wait(rest):
                return
            now = SystemClock.monotonic()
            if now > woken_at + self._margin:
                # The whole process was stopped, and the lease may have ended in that time. The next heartbeat shows it.
                self._registration.extended(now + self._margin - self._lease * 2 / 3)
            rest = self._registration.ends_at - self._margin - now
            if rest <= 0:
                self._attempts.expired()
                rest = self._margin

    # A heartbeat may get no answer: its server process may be stopped, or the network may drop its packets. So each
    # call of this thread may take half of the time that is left of the lease. Then its connection is closed, and the
    # next try has another one. A second thread, which never asks the database, stops the attempts if no heartbeat was
    # answered until shortly before the end of the lease, because from then on another worker may start them.
    def _patience(self) -> float:
        """Return the seconds that a call may take, so that another connection can be tried before the lease ends."""
        left = self._registration.ends_at - SystemClock.monotonic()
        return max(left if left > 0 else self._lease, self._margin) / 2

    def _beat(self) -> None:
        # Leases that are claimed after this line may be missing from the answer although they are held.
        self._app.store.look_at_server(self._patience())
        held_before = self._attempts.held()
        began = SystemClock.monotonic()
        number, birth = self._registration.id, self._registration.birth
        operation = workers.beat(
            number, self._app.terms.lease_for, birth=birth, loop_lag_for=self._lag.measured(), now=self._app.now()
        )
        pulse = self._app.store.run(operation, timeout=self._patience())
        if self._stop.is_set():
            return
        self._due_at = began + self._every
        if pulse.alive:
            self._registration.extended(began)
        else:
            # Another process may have the id now; then the leases are not those of this worker.
            self._registration.renew_soon(number)
        self._lost(held_before - pulse.leases, number)
        self._attempts.asked(pulse.asked)
        if pulse.alive and pulse.leases - held_before - self._attempts.held():
            self._attempts.doubt()

    # On PostgreSQL the first call of this thread imports psycopg, which takes 130 ms and holds the GIL. It comes soon
    # after the start, and not at the first jobs of a worker that was idle.
    def _open(self) -> None:
        """Open the connection of this thread by a read."""
        self._app.store.run(workers.held(self._registration.id), timeout=self._patience())

    def _look(self) -> None:
        held_before = self._attempts.held()
        if held_before:
            number = self._registration.id
            pulse = self._app.store.run(workers.look(number), timeout=self._patience())
            self._lost(held_before - pulse.leases, number)
            self._attempts.asked(pulse.asked)

    def _lost(self, missing: frozenset[int], number: int) -> None:
        # Leases that are not under the id that was asked for may be under the next one.
        if missing and self._registration.has_been(number):
            self._attempts.lost(missing)

    def _report(self) -> None:
        reports = self._attempts.reports()
        if reports:
            self._app.store.run(handler_reports.report(reports, now=self._app.now()), timeout=self._patience())
