"""Schedules as both have them: the code of an app, and its database."""

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

__all__ = ["Seen", "seen", "seen_one"]


@dataclass(frozen=True, slots=True)
class Seen:
    """A schedule.

    Attributes:
        name: unique.
        kind: cron or refresh.
        document: what was declared, by a worker if there was one, as JSON.
        definition: the same, read; None where only a newer redrive can read it.
        row: what the database has; None before a worker has declared it.
        in_code: does the app have it?
        due_at: when something of it is due; None where nothing is planned, or it is paused.
    """

    name: str
    kind: Kind
    document: str
    definition: Definition | None
    row: ScheduleRecord | None
    in_code: bool
    due_at: datetime | None

    @property
    def paused_at(self) -> datetime | None:
        """Since when nothing of it is started."""
        return None if self.row is None else self.row.paused_at

    def ahead(self, now: datetime) -> Iterator[datetime]:
        """The occurrences to come, of a cron; in a pause, those that would come if it ended now.

        Args:
            now: the present instant, aware.

        Yields:
            The occurrences, in order; also one that is overdue.
        """
        if isinstance(self.definition, CronDefinition):
            yield from self.definition.schedule.since(self.due_at or now)

    def policy(self, thing: TrackedItem) -> RefreshPolicy | None:
        """What is done to keep a thing fresh.

        Args:
            thing: one of its things.

        Returns:
            The policy; None where only a newer redrive can read it.

        Raises:
            ScheduleError: the same for a policy of its own.
        """
        return thing.policy(self.definition) if isinstance(self.definition, RefreshDefinition) else None


def seen(app: App) -> list[Seen]:
    """Look at all schedules.

    Args:
        app: whose.

    Returns:
        Those of the code and those of the database, by name.
    """
    rows = {row.name: row for row in app.schedules.select()}
    due = {look.name: look.due_at for look in app.store.run(operations.status(now=app.now()))}
    return [_seen(app, name, rows.get(name), due.get(name)) for name in sorted({*rows, *app.schedules.declared})]


def seen_one(app: App, name: str) -> Seen:
    """Look at one schedule.

    Args:
        app: whose.
        name: which.

    Returns:
        It.

    Raises:
        ScheduleNotFound: neither the code nor the database has it.
    """
    found = {each.name: each for each in seen(app)}
    if name not in found:
        known = ", ".join(found) or "none at all"
        message = f"there is no schedule {name!r}; there are: {known}"
        raise ScheduleNotFound(message)
    return found[name]


def _seen(app: App, name: str, row: ScheduleRecord | None, due_at: datetime | None) -> Seen:
    if row is not None:
        return Seen(name, row.kind, row.document, row.definition, row, name in app.schedules.declared, due_at)
    definition = app.schedules.declared[name].definition
    return Seen(name, definition.kind, definition.document, definition, None, in_code=True, due_at=None)
