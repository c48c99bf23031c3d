"""A background duty that has the worker begin again when the database may lack what it has written and read.

That is so if another server has taken over: a standby that replicates asynchronously lacks the last commits of the
server before it, such as claims, ends of attempts, rows of steps, and what handlers have written (ADR-0029). And if the
row of the worker is gone: others took it for dead, and its jobs are theirs, or the registration itself is lost. The
worker cannot see what else is. So it stops its attempts and feeders, registers again, and gives their leases back in
the same transaction; the jobs run again, from what is stored. Until then the store refuses what relies on the earlier
server (`redrive.stores.query.Operation.era`).

A started attempt of a task with ``idempotent=False`` goes on, because its job must not run twice. Its end counts if its
lease is current.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from redrive.app.app import App
from redrive.observe import WorkerServerReplaced, emit
from redrive.runtime import log
from redrive.runtime.attempts import Attempts
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.supervision import Duty

# The longest rest after a failure, in seconds: nothing runs until the worker has registered again.
LONGEST = 1.0


class Renewal:
    """The duty. ``replaced`` is called in the event loop when another server was met."""

    def __init__(
        self,
        app: App,
        registration: WorkerRegistration,
        attempts: Attempts,
        replaced: Callable[[], None] = lambda: None,
    ) -> None:
        self._app = app
        self._registration = registration
        self._attempts = attempts
        self._replaced = replaced
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()
        self._is_gone = False
        # The leases that the attempts had, by all tries to register until now.
        self._held: frozenset[int] = frozenset()
        self._end = app.store.on_new_era(self._wake)
        registration.gone = self._gone
        self._wake()
        self.duty: Duty = Duty("registering again", self._step, longest=LONGEST)

    def close(self) -> None:
        """Follow no further change."""
        self._end()

    def _gone(self) -> None:
        self._is_gone = True
        self._wake()

    def _wake(self) -> None:
        # Any thread may have met the server, perhaps after the end of the loop.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._asked.set)

    async def _step(self) -> float:
        await self._asked.wait()
        self._asked.clear()
        is_replaced = self._registration.era != self._app.store.era
        if not is_replaced and not self._is_gone:
            return 0.0
        try:
            await self._renew(is_replaced=is_replaced)
        except BaseException:
            self._asked.set()
            raise
        return 0.0

    async def _renew(self, *, is_replaced: bool) -> None:
        before = self._registration.id
        if is_replaced:
            self._replaced()
        else:
            log.warning("the database has no worker %d any more; registering again", before)
        held, kept = self._attempts.drop()
        self._held |= held
        await self._attempts.settler.write_again()
        known = await self._registration.renew(kept)
        self._is_gone, held, self._held = False, self._held, frozenset()
        self._attempts.claim_again.set()
        if not is_replaced:
            return
        emit(
            WorkerServerReplaced(
                worker_id=self._registration.id,
                queues=self._registration.queues,
                before=before,
                dropped=len(held - kept.keys()),
                kept=len(kept),
                starts_lost=len(held - known),
                ends_lost=len(known - held),
            )
        )
