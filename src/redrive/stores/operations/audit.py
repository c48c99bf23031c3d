"""The audit log: every change that an operator makes, with its actor and instant. PURE.

Each change that an operator makes to jobs, queues or schedules writes an entry in the same transaction. The caller
passes the ``actor``; the app uses ``user@host`` by default.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from redrive.engine.records import AuditEntry
from redrive.engine.select import Filter
from redrive.stores.query import Query, Steps, reads

# The default actor.
UNKNOWN = "unknown"

# The actor of changes that redrive makes by itself.
SYSTEM = "redrive"

# The action that computes times again after the clock was set back.
CLOCK_SET_BACK = "clock_set_back"


def record(at: datetime, actor: str, action: str, **details: object) -> Steps[None]:
    """Write an entry as a part of a larger operation; `action` is one word, and details that are None are left out."""
    given = {name: value for name, value in details.items() if value is not None}
    text = msgspec.json.encode(given).decode()
    yield Query("audit_insert", {"at": at, "actor": actor, "action": action, "details": text})


def conditions(wanted: Filter) -> dict[str, object]:
    """Return the conditions of a filter that are set, as details of an entry."""
    named = ("ids", "state", "task", "queue", "hold", "reason", "error", "caught")
    given = {name: getattr(wanted, name) for name in named}
    return {name: value for name, value in given.items() if value is not None}


@reads
def audit(*, before_id: int | None = None, limit: int = 100) -> Steps[tuple[AuditEntry, ...]]:
    """Return entries before `before_id`, newest first."""
    return tuple((yield Query("audit_select", {"before_id": before_id, "count": limit}, into=AuditEntry)))
