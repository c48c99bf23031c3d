"""What a process answers to health probes: whether it works, whether it may be given work, and whether it has started.

The liveness probe never asks the database: otherwise an outage of the database would restart all workers.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Mapping
from typing import Final

import msgspec

from redrive.app.app import App
from redrive.clock import SystemClock
from redrive.errors import SchemaTooNew, StoreError
from redrive.errors.foreign import summary
from redrive.runtime import log
from redrive.runtime.worker import Worker
from redrive.stores import migrate
from redrive.stores.operations.schema import schema

#: Seconds between two ticks of an event loop, and the age of its last tick at which it counts as blocked.
TICK: Final = 1.0
STALE: Final = 10.0

#: Seconds that the database has for its answer, and for which the answer is used again.
PATIENCE: Final = 2.0
FRESH: Final = 2.0

PROBES: Final = ("livez", "readyz", "startupz")

_NO_ANSWER: Final = {"store": False, "schema": False}


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The answer to a probe.

    Attributes:
        ok: True if all checks have passed.
        checks: whether each check has passed, by its name.
    """

    ok: bool
    checks: Mapping[str, bool]

    @classmethod
    def of(cls, checks: Mapping[str, bool]) -> Verdict:
        """Return the answer for these checks."""
        return cls(all(checks.values()), checks)


class StoreHealth:
    """Whether the database of an app answers and has a schema with which this redrive can work."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._answer: concurrent.futures.Future[dict[str, bool]] = concurrent.futures.Future()
        self._asked_at = float("-inf")
        self._answer.set_result(_NO_ANSWER)

    async def checks(self) -> dict[str, bool]:
        """Return the checks ``store`` and ``schema``.

        The database is asked by a thread, because it may not answer, and never by two threads at once.
        """
        now = SystemClock.monotonic()
        if self._answer.done() and now >= self._asked_at + FRESH:
            self._answer, self._asked_at = concurrent.futures.Future(), now
            asking = threading.Thread(target=self._ask, args=(self._answer,), name="redrive-health-store", daemon=True)
            asking.start()
        if not self._answer.done():
            await asyncio.wait([asyncio.wrap_future(self._answer)], timeout=PATIENCE)
        return self._answer.result() if self._answer.done() else _NO_ANSWER

    def _ask(self, answer: concurrent.futures.Future[dict[str, bool]]) -> None:
        try:
            store = self._app.open(migrate=False).store
            fits = store.run(schema(), timeout=PATIENCE).suits(migrate.versions(store.dialect))
            answer.set_result({"store": True, "schema": fits})
        except SchemaTooNew:
            answer.set_result({"store": True, "schema": False})
        except StoreError:
            answer.set_result(_NO_ANSWER)
        except Exception as error:  # noqa: BLE001 - a probe without an answer would wait for ever
            log.error("a health probe failed: %s", summary(error))
            answer.set_result(_NO_ANSWER)


class WorkerHealth:
    """The checks of a worker. The event loop of the worker ticks; the probes may be answered in another thread.

    Attributes:
        ticked_at: the last tick of the event loop, an instant of the monotonic clock.
    """

    def __init__(self, app: App, worker: Worker) -> None:
        self._worker = worker
        self._store = StoreHealth(app)
        self.ticked_at = SystemClock.monotonic()

    def tick(self) -> None:
        """Record that the event loop of the worker works."""
        self.ticked_at = SystemClock.monotonic()

    async def verdict(self, probe: str) -> Verdict:
        """Return the answer to a probe of `PROBES`."""
        match probe:
            case "livez":
                return Verdict.of(self._loop())
            case "startupz":
                return Verdict.of({"registered": self._worker.registered.is_set()})
            case _:
                return Verdict.of(await self._ready())

    def _loop(self) -> dict[str, bool]:
        return {"loop": SystemClock.monotonic() < self.ticked_at + STALE}

    async def _ready(self) -> dict[str, bool]:
        registered = self._worker.registered.is_set()
        # A worker that has not registered may not have migrated its database yet.
        store = await self._store.checks() if registered else _NO_ANSWER
        fresh = self._worker.lease_ends_at > SystemClock.monotonic()
        serving = not self._worker.stopping.is_set()
        return {**self._loop(), **store, "registered": registered, "lease": fresh, "serving": serving}
