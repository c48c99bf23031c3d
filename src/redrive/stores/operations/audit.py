"""The audit log: who did what, and when. PURE.

Whatever a person does to jobs or queues leaves a line here, written in the same transaction: so there is no action
without its line, and no line of something that did not happen. The operations are told who it is (the ``actor``); the
App says ``user@host`` unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime

import msgspec

from redrive.engine.records import AuditEntry
from redrive.engine.select import Filter
from redrive.stores.query import Query, Rows, Steps, reads

__all__ = ["NOBODY", "audit", "conditions", "record"]

NOBODY = "unknown"
"""The actor where nobody was named."""


def record(at: datetime, actor: str, action: str, **details: object) -> Generator[Query, Rows, None]:
    """Write a line, as a part of a larger operation.

    Args:
        at: the instant of the transaction.
        actor: who does it.
        action: one word.
        **details: whatever tells what was done; those that are None are left out.
    """
    told = {name: value for name, value in details.items() if value is not None}
    text = msgspec.json.encode(told).decode()
    yield Query("audit_insert", {"at": at, "actor": actor, "action": action, "details": text})


def conditions(wanted: Filter) -> dict[str, object]:
    """Write a filter as details.

    Args:
        wanted: the filter.

    Returns:
        The conditions that were given, by name.
    """
    named = ("ids", "state", "task", "queue", "hold", "reason", "error", "caught")
    given = {name: getattr(wanted, name) for name in named}
    return {name: value for name, value in given.items() if value is not None}


@reads
def audit(*, before_id: int | None = None, limit: int = 100) -> Steps[tuple[AuditEntry, ...]]:
    """Read the audit log, newest first.

    Args:
        before_id: only lines before this one; None begins with the newest.
        limit: at most so many.

    Returns:
        The lines.
    """
    return tuple((yield Query("audit_select", {"before_id": before_id, "count": limit}, into=AuditEntry)))
