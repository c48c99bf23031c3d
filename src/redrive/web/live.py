"""Events for open pages when something has changed. One task reads for all of them, and only while a page is open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from redrive.app.app import App
from redrive.clock import SystemClock
from redrive.errors import StoreError
from redrive.operate.shared import KEPT, PULSED, Shared
from redrive.stores.operations import changes as operations
from redrive.stores.operations import queues
from redrive.stores.operations.changes import Latest
from redrive.stores.operations.queues import Depths

#: Seconds between two looks at the database.
EVERY = 2.0

#: Seconds after which a comment is sent, so that proxies keep the connection.
QUIET = 15.0

#: Seconds after which a stream ends; the browser opens it again, and is authenticated again.
LONGEST = 600.0

Signature = frozenset[tuple[str, str, int]]


class Pulse:
    """The changes of an App, as server-sent events.

    Args:
        app: the App.
        shared: the figures that open pages share.
    """

    def __init__(self, app: App, shared: Shared) -> None:
        self._app = app
        self._shared = shared
        self._clock = SystemClock()
        self._changed = asyncio.Condition()
        self._version = 0
        self._watchers = 0
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_closed(self) -> bool:
        """True after `stop`."""
        return self._closed

    async def events(self) -> AsyncIterator[str]:
        """Yield an event for each change, until the stream has lasted `LONGEST` seconds or the server stops."""
        loop = self._loop = asyncio.get_running_loop()
        ends, seen = loop.time() + LONGEST, self._version
        self._watchers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._watch(), name="redrive-pulse")
        try:
            yield "retry: 2000\n\n"
            while not self._closed and loop.time() < ends:
                if await self._wait(seen):
                    seen = self._version
                    yield "event: changed\ndata: jobs\n\n"
                else:
                    yield ": quiet\n\n"
        finally:
            self._watchers -= 1

    def stop(self) -> None:
        """End all streams, so that the server can stop. May be called by a signal handler in the thread of the loop."""
        self._closed = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(lambda: asyncio.ensure_future(self._report()))

    async def _report(self) -> None:
        async with self._changed:
            self._version += 1
            self._changed.notify_all()

    async def _wait(self, seen: int) -> bool:
        """Wait for another version than the one seen; return False after `QUIET` seconds or at the end."""
        async with self._changed:
            try:
                async with asyncio.timeout(QUIET):
                    await self._changed.wait_for(lambda: self._version != seen or self._closed)
            except TimeoutError:
                return False
        return not self._closed

    async def _watch(self) -> None:
        """Look for changes while a page is open."""
        changes = Changes()
        try:
            while self._watchers and not self._closed:
                with contextlib.suppress(StoreError):
                    if await self._look(changes):
                        await self._report()
                await self._clock.asleep(EVERY)
        finally:
            self._task = None

    async def _look(self, changes: Changes) -> bool:
        """Read the numbers of jobs and the latest changes; return True if pages are to be read anew."""
        store = self._app.store
        latest = await store.arun(operations.latest())
        found = await store.arun(queues.depths(most=PULSED, now=self._app.now()))
        if changes.have_acted(latest):
            self._shared.forget()
        self._shared.pulse(found)
        return changes.show(found, latest, self._clock.monotonic())


class Changes:
    """The changes that open pages have to show."""

    def __init__(self) -> None:
        self._before: tuple[Signature, Latest] | None = None
        self._again: float | None = None

    def have_acted(self, latest: Latest) -> bool:
        """Return True if an operator has changed something since the last look: what pages share is out of date."""
        return self._before is not None and self._before[1].audit != latest.audit

    def show(self, found: Depths, latest: Latest, at: float) -> bool:
        """Return True if pages are to be read anew: after a change, and once more when the shared figures are newer.

        A number that has reached the limit of the count may change unseen: it is read anew whenever the figures are.
        """
        now = frozenset((each.queue, each.standing, each.jobs) for each in found.queues), latest
        has_changed = self._before is not None and now != self._before
        self._before = now
        is_late = self._again is not None and self._again <= at
        if is_late:
            self._again = None
        if self._again is None and (has_changed or any(each.is_capped for each in found.queues)):
            self._again = at + KEPT
        return has_changed or is_late
