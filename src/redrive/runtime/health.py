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
    """The checks of a process with workers. Their event loop ticks; the probes may be answered in another thread.

    With workers of several apps, the process has started when one of them has, and is ready when all are.

    Args:
        workers: each with its app, by the name of the app.

    Attributes:
        ticked_at: the last tick of the event loop, an instant of the monotonic clock.
    """

    def __init__(self, workers: Mapping[str, tuple[App, Worker]]) -> None:
        self._workers = {name: (StoreHealth(app), worker) for name, (app, worker) in workers.items()}
        self.ticked_at: float = SystemClock.monotonic()

    def tick(self) -> None:
        """Record that the event loop of the worker works."""
        self.ticked_at = SystemClock.monotonic()

    async def verdict(self, probe: str) -> Verdict:
        """Return the answer to a probe of `PROBES`."""
        if probe == "livez":
            return Verdict.of(self._loop())
        if probe == "startupz":
            each = {name: {"registered": worker.registered.is_set()} for name, (_, worker) in self._workers.items()}
            return Verdict(any(checks["registered"] for checks in each.values()), named(each))
        ready = await asyncio.gather(*[_ready(*each) for each in self._workers.values()])
        return Verdict.of({**self._loop(), **named(dict(zip(self._workers, ready, strict=True)))})

    def _loop(self) -> dict[str, bool]:
        return {"loop": SystemClock.monotonic() < self.ticked_at + STALE}


async def _ready(health: StoreHealth, worker: Worker) -> dict[str, bool]:
    registered = worker.registered.is_set()
    # A worker that has not registered may not have migrated its database yet.
    store = await health.checks() if registered else _NO_ANSWER
    fresh = worker.lease_ends_at > SystemClock.monotonic()
    return {**store, "registered": registered, "lease": fresh, "serving": not worker.stopping.is_set()}


def named(checks: Mapping[str, Mapping[str, bool]]) -> dict[str, bool]:
    """Return the checks of all apps by their names; with the name of the app where there are several."""
    if len(checks) == 1:
        return {name: ok for each in checks.values() for name, ok in each.items()}
    return {f"{app} {name}": ok for app, each in checks.items() for name, ok in each.items()}
