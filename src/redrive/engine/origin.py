"""What a job is for: nothing but itself, an occurrence of a cron, or an attempt at a refresh. PURE.

The column is a text that people can read, as FTL writes its origins: the kind, a colon, the name of the schedule, a
slash, and which occurrence or which key. Names hold no slash; keys are any text. ::

    cron:nightly/2026-03-29T03:00:00Z
    refresh:big_tables/customer-42
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

import msgspec

__all__ = ["Kind", "Origin", "of_cron", "of_refresh", "read_origin"]


class Kind(StrEnum):
    """What recurs."""

    CRON = "cron"
    REFRESH = "refresh"


_KINDS = {str(each): each for each in Kind}


class Origin(msgspec.Struct, frozen=True, gc=False):
    """What a job is for.

    Attributes:
        kind: of the schedule.
        schedule: its name.
        part: of a cron the occurrence, of a refresh the key.
    """

    kind: Kind
    schedule: str
    part: str

    def __str__(self) -> str:
        """As it is written in the job."""
        return f"{self.kind}:{self.schedule}/{self.part}"

    @property
    def occurs_at(self) -> datetime | None:
        """The occurrence, of a cron."""
        return datetime.fromisoformat(self.part) if self.kind is Kind.CRON else None


def of_cron(schedule: str, occurs_at: datetime) -> str:
    """Name an occurrence.

    Args:
        schedule: name of the cron.
        occurs_at: the occurrence, aware.

    Returns:
        The origin of its job.
    """
    instant = occurs_at.astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{Kind.CRON}:{schedule}/{instant}Z"


def of_refresh(schedule: str, key: str) -> str:
    """Name what is refreshed.

    Args:
        schedule: name of the refresh.
        key: which of its things.

    Returns:
        The origin of its jobs.
    """
    return f"{Kind.REFRESH}:{schedule}/{key}"


def read_origin(text: str | None) -> Origin | None:
    """Read what a job is for.

    Args:
        text: as it is written in the job.

    Returns:
        The origin; None where a job is a task by itself, or for something that this redrive does not know.
    """
    if text is None:
        return None
    kind, _, rest = text.partition(":")
    name, slash, part = rest.partition("/")
    found = _KINDS.get(kind)
    return Origin(found, name, part) if slash and found is not None else None
