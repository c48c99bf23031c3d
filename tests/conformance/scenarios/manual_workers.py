"""Workers that a test drives by hand: they claim, work, settle and fall silent when the test calls them.

They use the operations of a worker process, so that a test can act between a claim and its settle, where leases are
lost.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from redrive.engine.outcome import Failed, Outcome, Succeeded
from redrive.policy import Failure, parse_duration
from redrive.runtime.executor import Executor
from redrive.stores.operations import leases, workers
from redrive.stores.operations.leases import Claimed, Ending, Settled

if TYPE_CHECKING:
    from redrive.app.app import App
    from redrive.engine.outcome import Settlement
    from redrive.engine.records import Claim
    from redrive.stores.operations.workers import Pulse

__all__ = ["ManualWorker", "boom", "everything", "execute", "sweep"]


class ManualWorker:
    """A worker that the test drives by hand.

    Args:
        app: the app with the jobs.
        name: of the worker.
        lease_for: how long its leases last after each heartbeat.
    """

    def __init__(self, app: App, name: str, *, lease_for: str = "15s") -> None:
        self.app = app
        self.lease_for = parse_duration(lease_for)
        self.id = app.store.run(
            workers.register(name, concurrency=10, lease_for=self.lease_for, now=app.now()),
        )

    def look(self, count: int = 1) -> Claimed:
        """Claim jobs, and return also the time until the next claim."""
        return self.app.store.run(leases.claim(self.id, count, lease_for=self.lease_for, now=self.app.now()))

    def claim(self, count: int = 1) -> tuple[Claim, ...]:
        """Claim up to this number of jobs."""
        return self.look(count).claims

    def take(self) -> Claim:
        """Claim exactly one job."""
        (claim,) = self.claim()
        return claim

    def work(self, claim: Claim) -> Outcome:
        """Run the handler; nothing is settled yet."""
        return asyncio.run(Executor(self.app, None).run(claim))

    def settle(self, *endings: tuple[Claim, Outcome], sample: float = 0.5) -> Settled:
        """Store the outcomes of attempts, in one batch."""
        batch = [Ending(claim, outcome, sample) for claim, outcome in endings]
        return self.app.store.run(leases.settle(batch, now=self.app.now()))

    def end(self, claim: Claim, outcome: Outcome | None = None, *, sample: float = 0.5) -> Settlement:
        """Store the outcome of one attempt under a current lease; without an outcome it succeeded."""
        (moved,) = self.settle((claim, outcome or Succeeded()), sample=sample).moved
        return moved

    def beat(self) -> Pulse:
        """Send a heartbeat."""
        return self.app.store.run(workers.beat(self.id, self.lease_for, now=self.app.now()))

    def leave(self) -> list[int]:
        """Sign off."""
        return self.app.store.run(workers.leave(self.id, now=self.app.now()))


def boom(message: str = "boom") -> Failed:
    """Return an ordinary failure."""
    return Failed(Failure.of(RuntimeError(message)))


def sweep(app: App, budget: int = 100) -> tuple[Settlement, ...]:
    """Run one pass of the sweep."""
    return app.store.run(leases.sweep(budget, now=app.now()))


def execute(app: App, statement: str, **params: Any) -> list[tuple[Any, ...]]:
    """Run a statement of the test's own on the database of an app, past all operations."""
    return app.store.script(lambda cursor: cursor.execute(statement, params).fetchall())


_TABLES = ("jobs", "payloads", "results", "attempts", "workers", "sequences")


def everything(app: App) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables, to be compared with a later reading."""
    return {table: execute(app, f"SELECT * FROM redrive_{table} ORDER BY 1, 2") for table in _TABLES}  # noqa: S608
