"""Crons that are created and deleted at run time. PURE.

Their rows are marked, and every worker starts them as it starts the crons of its code.
"""

from __future__ import annotations

from datetime import datetime

from redrive.engine.recurring import CronDefinition, ScheduleRecord
from redrive.errors import ScheduleError
from redrive.stores.operations.audit import UNKNOWN, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.schedules import lock, put
from redrive.stores.query import Query, Steps, writes


@writes
def create(
    cron: CronDefinition, *, replace: bool = False, actor: str = UNKNOWN, now: datetime | None = None
) -> Steps[ScheduleRecord]:
    """Write a cron, and return its row; one with the same values stays as it is.

    Raise `ScheduleError` if the code declares the name, if a cron with other values exists and is not to be replaced,
    or if all occurrences lie in the past.
    """
    at = yield from instant(now)
    changed = not (yield Query("schedule_lock", {"name": cron.name}, into=ScheduleRecord))
    if changed:
        # Another process may create it at the same time: then this one does not replace it.
        yield from _put(cron, at, replaces=False)
    row = yield from lock(cron.name)
    _check_created(row, "choose another name")
    if row.document != cron.document:
        if not replace:
            raise ScheduleError(
                f"the cron {cron.name!r} exists with other values: replace=True (--replace) changes them"
            )
        yield from _put(cron, at, replaces=True)
        row, changed = (yield from lock(cron.name)), True
    if changed:
        yield from record(at, actor, "create", schedule=cron.name)
    return row


def _put(cron: CronDefinition, at: datetime, *, replaces: bool) -> Steps[None]:
    if cron.schedule.next(at) is None:
        raise ScheduleError(f"cron {cron.name!r}: {cron.pattern!r} does not occur again: all its instants are past")
    yield from put([cron], at, replaces=replaces, created=True)


@writes
def delete(name: str, *, actor: str = UNKNOWN, now: datetime | None = None) -> Steps[None]:
    """Delete a cron that was created at run time; its jobs and its past occurrences stay.

    Raise `ScheduleNotFound` if the database has no schedule of this name, or `ScheduleError` if the code declares it.
    """
    at = yield from instant(now)
    row = yield from lock(name)
    _check_created(row, "remove it there, or pause it")
    yield Query("schedule_delete", {"name": name})
    yield from record(at, actor, "delete", schedule=name)


def _check_created(row: ScheduleRecord, otherwise: str) -> None:
    if not row.created:
        raise ScheduleError(f"the {row.kind} {row.name!r} is declared by the code of a worker: {otherwise}")
