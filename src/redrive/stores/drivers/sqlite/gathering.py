"""Gathers what the coroutines of an event loop ask for in one turn of it: it travels together, in one transaction.

So a worker that settles what has ended and claims what is next makes one commit of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from redrive.stores.drivers.sqlite.connection_thread import ConnectionThread, WorkItem

__all__ = ["Gathering"]


class Gathering:
    """Operations on their way into the lanes, by event loop.

    Args:
        lanes: answers the lane that writes and the one that reads, or raises what the callers get.
    """

    def __init__(self, lanes: Callable[[], tuple[ConnectionThread, ConnectionThread]]) -> None:
        self._lanes = lanes
        self._gathered: dict[asyncio.AbstractEventLoop, list[WorkItem]] = {}

    def join(self, loop: asyncio.AbstractEventLoop, errand: WorkItem) -> None:
        """Let an operation travel with the others of this turn of a loop.

        Args:
            loop: the running one.
            errand: with its future.
        """
        gathered = self._gathered.setdefault(loop, [])
        gathered.append(errand)
        if len(gathered) == 1:
            loop.call_soon(self._depart, loop)

    def _depart(self, loop: asyncio.AbstractEventLoop) -> None:
        gathered = self._gathered.pop(loop)
        try:
            writer, reader = self._lanes()
            for lane, writes in ((writer, True), (reader, False)):
                if errands := [errand for errand in gathered if errand.writes is writes]:
                    lane.submit_all(errands)
        except BaseException as error:  # noqa: BLE001 - it belongs to the callers, who wait for it
            for errand in gathered:
                if not errand.future.done():
                    errand.future.set_exception(error)
