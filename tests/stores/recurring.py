"""Schedules for tests: definitions with short names, and the operations on them in one line each.

The clock of a `Harness` stands at `T0`, which is noon; what these definitions make is due at half past.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from redrive.engine.frozen import freeze
from redrive.engine.items import TrackedItem, columns
from redrive.engine.occurrence import Occurrence, OccurrenceDecision
from redrive.engine.outcome import Succeeded
from redrive.engine.records import Claim, JobRecord
from redrive.engine.recurring import (
    CatchUp,
    CronDefinition,
    Definition,
    JobTemplate,
    Overlap,
    RefreshDefinition,
    ScheduleRecord,
)
from redrive.policy import Policy
from redrive.schedule import RefreshPolicy, RefreshState, Schedule
from redrive.stores.operations import crons, leases, schedules
from redrive.stores.operations.refresh import finish, items, manage, start
from redrive.stores.operations.refresh.items import MoveResult
from redrive.stores.query import Operation, Query, Statements
from tests.stores.helpers import T0, Harness, seconds

MINUTE, HOUR = seconds(60), seconds(3600)

HALF = T0 + 30 * MINUTE
"""The first occurrence of the schedules that are created here."""

HOURLY = Schedule.cron("30 * * * *")


def samples(sample: float = 0.0) -> Iterator[float]:
    """Return any number of samples."""
    return itertools.repeat(sample)


def made(task: str = "do", *, retry: str = "0", parameter: str = "", **changes: Any) -> JobTemplate:
    """Return the jobs that are created."""
    policy = Policy.parse(retry).with_(**changes) if changes else Policy.parse(retry)
    return JobTemplate(task, "default", 0, freeze(policy.durable()), parameter)


def cron(pattern: str = "30 * * * *", **changes: Any) -> CronDefinition:
    """Return a cron that occurs at half past each hour by default."""
    given: dict[str, Any] = {
        "name": "nightly",
        "tz": "UTC",
        "overlap": Overlap.SKIP,
        "catch_up": CatchUp.ONE,
        "window": HOUR,
        "job": made(),
    }
    return CronDefinition(pattern=pattern, **{**given, **changes})


def keeping(
    *, name: str = "fresh", notify: bool = True, job: JobTemplate | None = None, **policy: Any
) -> RefreshDefinition:
    """Return a refresh at half past each hour, of ten minutes, with two retries after five minutes, by default."""
    given: dict[str, Any] = {"schedule": HOURLY, "timeout": 10 * MINUTE, "delays": (5 * MINUTE, 5 * MINUTE)}
    on_disabled = made("mourn", parameter="news") if notify else None
    return RefreshDefinition(name, RefreshPolicy(**{**given, **policy}), job or made(), on_disabled)


class Clockwork:
    """The crons and refreshes of a store.

    Args:
        store: harness with its colour and instant.
        definition: the refresh that `track` uses."""

    def __init__(self, store: Harness, definition: RefreshDefinition | None = None) -> None:
        self.store = store
        self.definition = definition or keeping()
        self.name = self.definition.name

    def do(self, operation: Operation[Any]) -> Any:
        """Run an operation."""
        return self.store.do(operation)

    @property
    def now(self) -> datetime:
        """Return the present instant."""
        return self.store.now

    def until(self, instant: datetime) -> None:
        """Let time pass until an instant."""
        self.store.now = instant

    # ---------------------------------------------------------------- crons

    def declare(self, *definitions: Definition) -> None:
        """Write the definitions of the code."""
        self.do(schedules.declare(definitions, now=self.now))

    def create(self, definition: CronDefinition, *, replace: bool = False) -> ScheduleRecord:
        """Create a cron at run time."""
        return self.do(crons.create(definition, replace=replace, actor="amy", now=self.now))

    def delete(self, name: str = "nightly") -> None:
        """Delete a cron that was created at run time."""
        self.do(crons.delete(name, actor="amy", now=self.now))

    def schedule(self, name: str = "nightly") -> ScheduleRecord:
        """Return the row of a schedule."""
        return self.do(schedules.get(name))

    def fire(self, name: str = "nightly") -> tuple[Occurrence, ...]:
        """Decide on the due occurrences."""
        return self.do(crons.fire(name, now=self.now))

    def fired(self, name: str = "nightly") -> list[tuple[datetime, OccurrenceDecision]]:
        """Return the state of a schedule in short form."""
        return [(each.occurs_at, each.decision) for each in self.fire(name)]

    def follows(self, overlap: Overlap, retry: str = "0") -> Claim:
        """Let the first occurrence run, and the second one be due; settle the attempt of the first one."""
        self.declare(cron(overlap=overlap, job=made(retry=retry)))
        self.until(HALF)
        self.fire()
        first = self.store.take()
        self.until(HALF + HOUR)
        self.fire()
        return first

    def backfill(self, since: datetime, until: datetime) -> tuple[Occurrence, ...]:
        """Start the occurrences that were not started."""
        return self.do(crons.backfill("nightly", since, until, now=self.now))

    # ------------------------------------------------------------ refreshes

    def track(self, *keys: str, **how: Any) -> frozenset[str]:
        """Track items."""
        items = [manage.NewItem(key, b'{"id":1}') for key in keys]
        return self.do(manage.track(self.definition, items, samples(), now=self.now, **how))

    def item(self, key: str = "a") -> TrackedItem:
        """Return the row of an item."""
        return self.do(items.get(self.name, key))

    def state(self, key: str = "a") -> RefreshState:
        """Return the state of an item."""
        return self.item(key).state

    def running(self, key: str = "a", **how: Any) -> Claim:
        """Track an item, and claim its first attempt."""
        self.track(key, **how)
        return self.store.take()

    def start(self, budget: int = 100, sample: float = 0.0) -> tuple[MoveResult, ...]:
        """Start the due items."""
        return self.do(start.start_due(self.name, budget, samples(sample), now=self.now))

    def sweep(self, budget: int = 100) -> int:
        """Sweep the overdue items."""
        return self.do(finish.end_overdue(budget, samples(), now=self.now))

    def replan(self, budget: int = 100) -> int:
        """Reschedule the items."""
        return self.do(start.replan(self.name, budget, samples(), now=self.now))

    def trigger(self, key: str = "a") -> MoveResult:
        """Start an item now."""
        return self.do(manage.trigger(self.name, key, 0.0, now=self.now))

    def update(self, key: str = "a", **how: Any) -> MoveResult:
        """Record a manual change of an item."""
        return self.do(manage.update(self.name, key, 0.0, now=self.now, **how))

    def untrack(self, key: str = "a") -> bool:
        """Stop tracking an item."""
        return self.do(manage.untrack(self.name, key, now=self.now))

    def pause(self, key: str | None = "a") -> None:
        """Pause an item, or the refresh."""
        one = manage.pause(self.name, key, now=self.now) if key else schedules.pause(self.name, now=self.now)
        self.do(one)

    def resume(self, key: str | None = "a") -> None:
        """Resume an item, or the refresh."""
        one = manage.resume(self.name, key, 0.0, now=self.now) if key else schedules.resume(self.name, now=self.now)
        self.do(one)

    def jobs(self, task: str = "do") -> list[JobRecord]:
        """Return the jobs of a task, oldest first."""
        return [job for job in self.store.jobs() if job.task == task]

    def ask(self, *queries: Query) -> None:
        """Run statements outside of operations."""

        def steps() -> Statements[None]:
            for each in queries:
                _ = yield each

        self.do(Operation("ask", steps(), writes=True))

    def spoil_schedule(self, name: str | None = None, document: str = '{"written": "by a newer one"}') -> None:
        """Store an unreadable document with another timing for a schedule."""
        row = self.schedule(name or self.name)
        many = [
            {
                "name": row.name,
                "kind": row.kind,
                "document": document,
                "timing": "newer",
                "declared_at": self.now,
                "next_at": row.next_at,
                "created": row.created,
                "replaces": True,
            }
        ]
        self.ask(Query("schedule_put", many=many))

    def rename(self, key: str, *, job_id: int) -> None:
        """Change the job id in the row of an item."""
        item = self.item(key)
        names = columns(self.definition.policy, item.state)
        row = {"schedule": self.name, "key": key, "timing": item.timing, **names, "job_id": job_id}
        self.ask(Query("refresh_put", many=[row]))

    def settling(self, *claims: Claim) -> Operation[leases.Settled]:
        """Return the operation that settles attempts as successes."""
        return leases.settle([leases.Ending(each, Succeeded(), 0.0) for each in claims], now=self.now)

    def spoil_policy(self, key: str = "a", text: str = "Refresh whenever Jupiter is in the mood") -> None:
        """Store an invalid policy for an item."""
        self.ask(Query("refresh_change", many=[{"schedule": self.name, "key": key, "payload": b"{}", "own": text}]))
