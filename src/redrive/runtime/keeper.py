"""Beats for the worker, and says what it has lost.

It has a thread of its own: a handler that keeps the event loop or the GIL busy for a minute is a healthy handler, and
must not cost the worker its leases. The other side of that coin, a worker that beats while its loop hangs for good, is
covered by the hard timeout of each attempt (`redrive.engine.lease`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from redrive.app.app import App
from redrive.errors import StoreError
from redrive.stores.operations import workers

__all__ = ["Keeper"]

log = logging.getLogger("redrive.worker")


class Keeper:
    """Beats.

    Args:
        app: whose store, and whose lease terms.
        worker_id: who beats.
        holding: the lease ids that the worker believes it holds.
        lost: called, in the keeper's thread, with those it does not hold any more.
        forgotten: called, in the keeper's thread, when the store does not know the worker any more.
    """

    def __init__(
        self,
        app: App,
        worker_id: Callable[[], int],
        holding: Callable[[], frozenset[int]],
        lost: Callable[[frozenset[int]], None],
        forgotten: Callable[[], None],
    ) -> None:
        self._app = app
        self._worker_id = worker_id
        self._holding = holding
        self._lost = lost
        self._forgotten = forgotten
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
        while not self._stop.wait(self._app.terms.heartbeat_every.total_seconds()):
            try:
                self._beat()
            except StoreError as error:
                log.warning("the heartbeat waits: %s", error)

    def _beat(self) -> None:
        # What was claimed after this line is no concern of this beat: it may be missing from the answer and be held.
        held_before = self._holding()
        pulse = self._app.store.run(workers.beat(self._worker_id(), self._app.terms.lease_for, now=self._app.now()))
        if not pulse.alive:
            self._forgotten()
        missing = held_before - pulse.leases
        if missing:
            self._lost(missing)
