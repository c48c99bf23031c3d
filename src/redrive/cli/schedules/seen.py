"""Schedules of the code of an app and of its database, merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from redrive.app.app import App
from redrive.engine.items import TrackedItem
from redrive.engine.origin import Kind
from redrive.engine.recurring import CronDefinition, Definition, RefreshDefinition, ScheduleRecord
from redrive.errors import ScheduleNotFound
from redrive.schedule import RefreshPolicy
from redrive.stores.operations import schedules as operations


@dataclass(frozen=True, slots=True)
class Seen:
    """A schedule."""

    name: str
    kind: Kind
    # Its declaration as JSON, by a worker if there was one.
    document: str
    # The same, parsed; None if only a newer redrive can read it.
    definition: Definition | None
    # None before a worker has declared it.
    row: ScheduleRecord | None
    in_code: bool
    # When its next occurrence or item is due; None if nothing is planned, or it is paused.
    due_at: datetime | None

    @property
    def created(self) -> bool:
        """True for a cron that was created at run time."""
        return self.row is not None and self.row.created

    @property
    def paused_at(self) -> datetime | None:
        """The instant of its pause; None if it is not paused."""
        return None if self.row is None else self.row.paused_at

    def ahead(self, now: datetime) -> Iterator[datetime]:
        """Yield the next occurrences of a cron, an overdue one included; of a paused cron as if it was resumed now."""
        if isinstance(self.definition, CronDefinition):
            yield from self.definition.schedule.since(self.due_at or now)

    def policy(self, item: TrackedItem) -> RefreshPolicy | None:
        """Return the policy of an item; None if only a newer redrive can read it.

        Raise `ScheduleError` if only a newer redrive can read a policy of the item's own.
        """
        return item.policy(self.definition) if isinstance(self.definition, RefreshDefinition) else None


def seen(app: App) -> list[Seen]:
    """Return the schedules of the code and of the database of an app, by name."""
    rows = {row.name: row for row in app.schedules.select()}
    due = {look.name: look.due_at for look in app.store.run(operations.status(now=app.now()))}
    return [_seen(app, name, rows.get(name), due.get(name)) for name in sorted({*rows, *app.schedules.declared})]


def seen_one(app: App, name: str) -> Seen:
    """Return one schedule; raise `ScheduleNotFound` if neither the code nor the database has it."""
    found = {each.name: each for each in seen(app)}
    if name not in found:
        known = ", ".join(found) or "none at all"
        raise ScheduleNotFound(f"there is no schedule {name!r}; there are: {known}")
    return found[name]


def _seen(app: App, name: str, row: ScheduleRecord | None, due_at: datetime | None) -> Seen:
    if row is not None:
        return Seen(name, row.kind, row.document, row.definition, row, name in app.schedules.declared, due_at)
    definition = app.schedules.declared[name].definition
    return Seen(name, definition.kind, definition.document, definition, None, in_code=True, due_at=None)
