"""The events of crons: what became of an occurrence, told by the worker that has decided it, after the commit.

One that waits for its predecessor (`CronQueued`) is started where that one ends, and is not told again: its job tells
of itself. Occurrences that people start, by a trigger or a backfill, are in the audit log.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from redrive.observe.events import Event

__all__ = ["CronEvent", "CronMissed", "CronQueued", "CronSkipped", "CronStarted"]

_WARNING = 30  # of `logging`, which is imported by those who log


@dataclass(frozen=True, slots=True, kw_only=True)
class CronEvent(Event):
    """Something that became of an occurrence of a cron.

    Attributes:
        schedule: name of the cron.
        occurs_at: when it was due.
        late: how much later that was decided.
        job_id: the job that was made of it.
        why: what more there is to say, for people.
    """

    channel: ClassVar[str] = "redrive.schedules"
    labels: ClassVar[tuple[str, ...]] = ("schedule",)
    schedule: str
    occurs_at: datetime
    late: timedelta
    job_id: int | None
    why: str | None

    @property
    def name(self) -> str:
        """The name of the cron."""
        return self.schedule

    def __str__(self) -> str:
        made = "" if self.job_id is None else f" as job {self.job_id}"
        why = f": {self.why}" if self.why else ""
        return (
            f"the occurrence of {self.schedule} at {self.occurs_at:%Y-%m-%d %H:%M:%S} UTC is {self.outcome}{made}{why}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CronStarted(CronEvent):
    """Its job was made."""

    outcome: ClassVar[str] = "started"


@dataclass(frozen=True, slots=True, kw_only=True)
class CronQueued(CronEvent):
    """Its predecessor has not ended, and it waits for that."""

    outcome: ClassVar[str] = "queued"


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSkipped(CronEvent):
    """Its predecessor has not ended, so that it is left out."""

    level: ClassVar[int] = _WARNING
    outcome: ClassVar[str] = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class CronMissed(CronEvent):
    """Nobody was there in time, and it is left out."""

    level: ClassVar[int] = _WARNING
    outcome: ClassVar[str] = "missed"
