"""The events of crons. The worker that has decided about an occurrence emits its event after the commit.

An occurrence that waits for its predecessor (`CronQueued`) emits no second event when it starts; its job emits events.
Occurrences that an operator starts, by a trigger or a backfill, are in the audit log.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import ClassVar

from redrive.observe.events import Event


class CronEvent(Event, kw_only=True):
    """An event of an occurrence of a cron."""

    channel: ClassVar[str] = "redrive.schedules"
    labels: ClassVar[tuple[str, ...]] = ("schedule",)
    #: The name of the cron.
    schedule: str
    #: The due time of the occurrence.
    occurs_at: datetime
    #: The time between the due time and the decision.
    late: timedelta
    #: The job that was created for it.
    job_id: int | None
    #: An explanation for logs.
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


class CronStarted(CronEvent, kw_only=True):
    """The job of the occurrence was created."""

    outcome: ClassVar[str] = "started"


class CronQueued(CronEvent, kw_only=True):
    """The occurrence waits for the end of its predecessor."""

    outcome: ClassVar[str] = "queued"


class CronSkipped(CronEvent, kw_only=True):
    """The occurrence is skipped, because its predecessor has not ended."""

    level: ClassVar[int] = logging.WARNING
    outcome: ClassVar[str] = "skipped"


class CronMissed(CronEvent, kw_only=True):
    """The occurrence is skipped, because no worker started it in time."""

    level: ClassVar[int] = logging.WARNING
    outcome: ClassVar[str] = "missed"
