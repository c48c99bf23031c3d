"""The registration of a worker in the database: its id, and the end of its lease."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence

from redrive import __version__
from redrive.app.app import App
from redrive.runtime import log, process
from redrive.stores.operations import queues, workers


class WorkerRegistration:
    """The row of a worker, which other workers read.

    Attributes:
        name: its host and process.
        ends_at: the end of the worker's lease, as last read by this process; an instant of the monotonic clock.
        renewed: called in the event loop after the worker has registered again.
    """

    def __init__(
        self,
        app: App,
        *,
        concurrency: int,
        queues: Sequence[str] | None = None,
        excluded: Sequence[str] | None = None,
        name: str | None = None,
        lock_id: int | None = None,
    ) -> None:
        self.id = 0
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self.excluded = None if excluded is None else tuple(excluded)
        self.queues = None if queues is None else tuple(queues)
        self.ends_at = float("-inf")
        self.renewed: Callable[[], None] = lambda: None
        self._app = app
        self._concurrency = concurrency
        self._lock_id = lock_id
        self._lease = app.terms.lease_for.total_seconds()

    async def register(self) -> None:
        """Declare the queues and the subscriptions of the app, and insert the row of the worker."""
        self._loop = asyncio.get_running_loop()
        if self._app.queues.declared:
            await self._app.store.arun(queues.declare(self._app.queues.declared, now=self._app.now()))
        await self._app.topics.adeclare()
        self.id = await self._app.store.arun(
            workers.register(
                self.name,
                concurrency=self._concurrency,
                lease_for=self._app.terms.lease_for,
                queues=self.queues,
                excluded=self.excluded,
                tasks=self._app.served(),
                process=process.present(),
                lock_id=self._lock_id,
                version=__version__,
                now=self._app.now(),
            )
        )

    async def renew(self) -> None:
        """Register again, because the database has no row of this worker any more."""
        log.warning("the database has no worker %d any more; registering again", self.id)
        await self.register()
        self.renewed()

    def renew_soon(self) -> None:
        """Register again, in the event loop. Safe to call from any thread."""
        asyncio.run_coroutine_threadsafe(self.renew(), self._loop)

    def extended(self, since: float) -> None:
        """Record that the database has extended the lease of the worker. Safe to call from any thread.

        ``since`` is the instant of the monotonic clock before the request was sent.
        """
        self.ends_at = max(self.ends_at, since + self._lease)

    async def leave(self) -> None:
        """Record that the worker has stopped; the database gives back the jobs that it still holds."""
        await self._app.store.arun(workers.leave(self.id, now=self._app.now()))
