"""The registration of a worker in the database: its id, the identity of its process, and the end of its lease."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from msgspec import structs
from msgspec.structs import replace

from redrive.app.app import App
from redrive.engine.records import Process
from redrive.runtime import rng
from redrive.stores.operations import queues, workers
from redrive.stores.operations.workers import Registrant
from redrive.version import __version__

# The last ids of a worker before its present one, under which a server that takes over may have leases of it.
EARLIER = 8

_PROC = Path("/proc")
# States of a process that has ended and has not been reaped by its parent.
_DEAD = "ZX"


class WorkerRegistration:
    """The row of a worker, which other workers read.

    Attributes:
        name: its host and process.
        ends_at: the end of the worker's lease, as last read by this process; an instant of the monotonic clock.
        era: that of the store in which the worker has registered; None before. What it writes relies on that.
        gone: called in any thread when the database has no row of the worker any more.
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
        lease_for: timedelta | None = None,
        build: str | None = None,
    ) -> None:
        self.id: int = 0
        self.name: str = name or f"{socket.gethostname()}:{os.getpid()}"
        self.excluded: tuple[str, ...] | None = None if excluded is None else tuple(excluded)
        self.queues: tuple[str, ...] | None = None if queues is None else tuple(queues)
        self.ends_at: float = float("-inf")
        self.era: int | None = None
        self.gone: Callable[[], None] = lambda: None
        self.renewed: Callable[[], None] = lambda: None
        self._process = present()
        self._earlier: deque[int] = deque(maxlen=EARLIER)
        self._renewing = asyncio.Lock()
        self._app = app
        self._concurrency = concurrency
        self._lock_id = lock_id
        self._build = build
        self._lease_for = lease_for or app.terms.lease_for

    async def register(self) -> None:
        """Declare the queues and the subscriptions of the app, and insert the row of the worker."""
        era = await self._declare()
        given = structs.asdict(self._registrant())
        self.id = await self._app.store.arun(
            replace(workers.register(given.pop("name"), **given, now=self._app.now()), era=era)
        )
        self.era = era

    async def _declare(self) -> int:
        """Declare the queues and the subscriptions of the app, and return the era in which that began."""
        era = self._app.store.era
        if self._app.queues.declared:
            await self._app.store.arun(queues.declare(self._app.queues.declared, now=self._app.now()))
        await self._app.topics.adeclare()
        return era

    def _registrant(self) -> Registrant:
        return Registrant(
            self.name,
            concurrency=self._concurrency,
            lease_for=self._lease_for,
            queues=self.queues,
            excluded=self.excluded,
            tasks=self._app.served(),
            process=self._process,
            lock_id=self._lock_id,
            version=__version__,
            build=self._build,
        )

    @property
    def birth(self) -> str | None:
        """The birth of the process, which identifies the worker with its id."""
        return self._process.birth

    async def renew(self, kept: Mapping[int, int]) -> frozenset[int]:
        """Register again under another id; give back all leases but those of the jobs that are kept, by their leases.

        Return the leases that the database has.
        """
        async with self._renewing:
            era, given = await self._declare(), self._registrant()
            salt = rng.salt(workers.SALT_BITS)
            ids = (*self._earlier, self.id)
            renewal = workers.renew(ids, given, kept, salt=salt, now=self._app.now())
            renewed = await self._app.store.arun(replace(renewal, era=era))
            self._earlier.append(self.id)
            self.id, self.era = renewed.id, era
        self.renewed()
        return renewed.leases

    def has_been(self, number: int) -> bool:
        """Return True if the worker had this id until now. Safe to call from any thread."""
        # The lock first: it is held until the new id is known.
        return not self._renewing.locked() and self.id == number

    def renew_soon(self, number: int) -> None:
        """Have the worker register again: the database has no row with this id. Safe to call from any thread."""
        if self.has_been(number):
            self.gone()

    def extended(self, since: float) -> None:
        """Record that the database has extended the lease of the worker. Safe to call from any thread.

        ``since`` is the instant of the monotonic clock before the request was sent.
        """
        self.ends_at = max(self.ends_at, since + self._lease_for.total_seconds())

    async def leave(self) -> None:
        """Record that the worker has stopped; the database gives back the jobs that it still holds."""
        await self._app.store.arun(workers.leave(self.id, birth=self.birth, now=self._app.now()))


# A process number is used again, it means another process in another container, and hosts share names. So a process is
# also identified by its *birth*: the boot id of the machine, the namespace of process numbers and the start time. Its
# number is comparable only if the first two are equal to ours. Only Linux has all three; elsewhere no process counts as
# gone, and a dead worker is found by its lease.
def present() -> Process:
    """Return the host, the number and the birth of this process."""
    place, begun = _place(), _begun(os.getpid())
    birth = None if place is None or begun is None else f"{place} {begun[1]}"
    return Process(socket.gethostname(), os.getpid(), birth)


def is_gone(process: Process) -> bool:
    """Return True if this process is certainly not running any more, False also if that cannot be known."""
    place, _, moment = (process.birth or "").rpartition(" ")
    if not place or place != _place():
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        # It exists and belongs to another user.
        pass
    begun = _begun(process.pid)
    return begun is not None and (begun[0] in _DEAD or begun[1] != moment)


def _place() -> str | None:
    """Return the boot id of this machine and the namespace of process numbers of this process."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return None


def _begun(pid: int) -> tuple[str, str] | None:
    """Return the state of a process and its start in ticks since the boot; see ``man proc``, under ``stat``."""
    try:
        # The second field is the name in brackets, which may contain anything.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], fields[19]
