"""The instant of a transaction. PURE."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime

from redrive.stores.query import Query, Rows

__all__ = ["Instant", "instant"]


@dataclass(frozen=True, slots=True)
class Instant:
    """A row of the query ``clock``.

    Attributes:
        now: the instant, aware, in UTC.
    """

    now: datetime


def instant(now: datetime | None) -> Generator[Query, Rows, datetime]:
    """Ask for the instant of this transaction (law 8: the database's clock rules).

    Args:
        now: the injected instant, in tests; None in production.

    Returns:
        The instant that every statement of this transaction uses.
    """
    rows = yield Query("clock", {"now": now}, into=Instant)
    answer: Instant = rows[0]
    return answer.now
