"""Schedules as a person sees them: those of the code of an App and those of its database, merged, with their words.

A schedule that no worker has declared yet is listed, and so is one that only another version of the code has.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from redrive.app.app import App
from redrive.app.protocol import Procedure
from redrive.engine.commands import command
from redrive.engine.items import TrackedItem
from redrive.engine.origin import Kind
from redrive.engine.recurring import CronDefinition, Definition, RefreshDefinition, ScheduleRecord
from redrive.errors import IllegalMove, ScheduleNotFound
from redrive.policy import format_duration
from redrive.schedule import RefreshOutcome, RefreshPolicy
from redrive.stores.operations import schedules
from redrive.stores.operations.refresh.items import MoveResult

#: Names of other schedules in the error for a name that does not exist.
NAMED: Final = 20


class ScheduleView(msgspec.Struct, frozen=True):
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

    @property
    def when(self) -> str:
        """The schedule in one line."""
        if self.definition is None:
            return "declared by a newer redrive"
        if isinstance(self.definition, CronDefinition):
            jitter = self.definition.jitter
            later = f", each up to {format_duration(jitter)} later" if jitter else ""
            return f"{self.definition.pattern} in {self.definition.tz}{later}"
        return str(self.definition.policy).splitlines()[0]

    @property
    def words(self) -> str | None:
        """A cron expression in words; None for other schedules, because they consist of words."""
        if not isinstance(self.definition, CronDefinition):
            return None
        return "; ".join(each.words for each in self.definition.schedule.crons) or None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Why it may not start anything, besides a pause."""
        parts = [
            self.row is None and "no worker has declared it yet",
            not self.in_code and not self.created and "not in the code of this app",
        ]
        return tuple(each for each in parts if each)

    def remedy(self, app: str) -> str | None:
        """Return the command that ends its pause, for an App such as ``module:app``; None if it is not paused."""
        return None if self.paused_at is None else command("schedules resume", app, self.name)

    def ahead(self, now: datetime) -> Iterator[datetime]:
        """Yield the next occurrences of a cron, an overdue one included; of a paused cron as if it was resumed now."""
        if isinstance(self.definition, CronDefinition):
            yield from self.definition.schedule.since(self.due_at or now)

    def policy(self, item: TrackedItem) -> RefreshPolicy | None:
        """Return the policy of an item; None if only a newer redrive can read it.

        Raise `ScheduleError` if only a newer redrive can read a policy of the item's own.
        """
        return item.policy(self.definition) if isinstance(self.definition, RefreshDefinition) else None


def views(app: App, *, after: str = "", limit: int | None = None) -> Procedure[list[ScheduleView]]:
    """Return the schedules of the code and of the database of an app with names larger than ``after``, by name."""
    found: tuple[ScheduleRecord, ...] = yield schedules.select()
    rows = {row.name: row for row in found}
    due = {each.name: each.due_at for each in (yield schedules.status(now=app.now()))}
    names = sorted(name for name in {*rows, *app.schedules.declared} if name > after)
    return [_view(app, name, rows.get(name), due.get(name)) for name in names[:limit]]


def view(app: App, name: str) -> Procedure[ScheduleView]:
    """Return one schedule; raise `ScheduleNotFound` if neither the code nor the database has it."""
    rows: tuple[ScheduleRecord, ...] = yield schedules.select([name])
    if not rows and name not in app.schedules.declared:
        others = {each.name for each in (yield schedules.select())} | {*app.schedules.declared}
        known = ", ".join(sorted(others)[:NAMED]) + (", ..." if len(others) > NAMED else "")
        raise ScheduleNotFound(f"there is no schedule {name!r}; there are: {known or 'none at all'}")
    due = {each.name: each.due_at for each in (yield schedules.status(now=app.now()))}
    return _view(app, name, rows[0] if rows else None, due.get(name))


def _view(app: App, name: str, row: ScheduleRecord | None, due_at: datetime | None) -> ScheduleView:
    if row is not None:
        return ScheduleView(name, row.kind, row.document, row.definition, row, name in app.schedules.declared, due_at)
    definition = app.schedules.declared[name].definition
    return ScheduleView(name, definition.kind, definition.document, definition, None, in_code=True, due_at=None)


def standing(item: TrackedItem) -> str:
    """Return the state of an item in one or two words."""
    if item.disabled_until_update:
        return "given up"
    if item.job_id is not None:
        return "running"
    if item.completed:
        return "completed"
    return "fresh" if item.failing_since is None else "failing"


def demand_triggered(item: TrackedItem, moved: MoveResult) -> None:
    """Raise `IllegalMove` if an item was not triggered, because it had been given up."""
    if moved.outcome is RefreshOutcome.DISABLED:
        raise IllegalMove(
            f"{item.schedule}/{item.key} was given up ({item.disabled_reason}) until it is updated: "
            "redrive schedules update"
        )
