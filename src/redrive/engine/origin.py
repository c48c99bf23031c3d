"""The origin of a job: an occurrence of a cron, an attempt of a refresh, or none. PURE.

The column is readable text, as in FTL: the kind, a colon, the name of the schedule, a slash, and the occurrence or the
key. Names contain no slash; keys are any text. ::

    cron:nightly/2026-03-29T03:00:00Z
    refresh:big_tables/customer-42
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec


class Kind(StrEnum):
    """The kind of a schedule."""

    CRON = "cron"
    REFRESH = "refresh"


_KINDS: Final[Mapping[str, Kind]] = {str(each): each for each in Kind}


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The origin of a job; ``part`` is the occurrence of a cron or the key of a refresh."""

    kind: Kind
    schedule: str
    part: str

    def __str__(self) -> str:
        """Return the text that is stored with the job."""
        return f"{self.kind}:{self.schedule}/{self.part}"

    @property
    def occurs_at(self) -> datetime | None:
        """Return the occurrence of a cron; None for a refresh."""
        return datetime.fromisoformat(self.part) if self.kind is Kind.CRON else None


class OriginResult(msgspec.Struct, frozen=True, gc=False):
    """The end of a job that a schedule made."""

    origin: Origin
    job_id: int
    succeeded: bool
    dead: bool = False  # True if the job is in the state ``dead`` now
    why: str | None = None
    permanent: str | None = None  # why no further attempt can succeed, as a text for end users
    retry_after: timedelta | None = None  # the delay that the other side asked for
    sample: float = 0.0  # from 0 to 1, for jitter
    at: datetime | None = None  # when the attempt ended logically; None means now
    began_at: datetime | None = None  # when a worker claimed the last attempt; None if none has


def of_cron(schedule: str, occurs_at: datetime) -> str:
    """Return the origin of the job of an occurrence."""
    instant = occurs_at.astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{Kind.CRON}:{schedule}/{instant}Z"


def of_refresh(schedule: str, key: str) -> str:
    """Return the origin of the jobs of a tracked item."""
    return f"{Kind.REFRESH}:{schedule}/{key}"


def read_origin(text: str | None) -> Origin | None:
    """Parse a stored origin; return None for None, and for a kind that this version does not know."""
    if text is None:
        return None
    kind, _, rest = text.partition(":")
    name, slash, part = rest.partition("/")
    found = _KINDS.get(kind)
    return Origin(found, name, part) if slash and found is not None else None
