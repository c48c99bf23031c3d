"""The audit log of operators' changes, with their actors, written in the transactions of the changes. PURE."""

from __future__ import annotations

from datetime import datetime

import msgspec

from redrive.engine.records import AuditEntry, Filter
from redrive.stores.query import Query, Statements, reads

# The default actor.
UNKNOWN = "unknown"

# The actor of changes that redrive makes by itself.
SYSTEM = "redrive"

# The action that computes times again after the clock was set back.
CLOCK_SET_BACK = "clock_set_back"


def record(at: datetime, actor: str, action: str, **details: object) -> Statements[None]:
    """Write an entry as a part of a larger operation; `action` is one word, and details that are None are left out.

    The detail ``operation`` is the bulk operation of which the change is a part.
    """
    given = {name: value for name, value in details.items() if value is not None}
    text = msgspec.json.encode(given).decode()
    part_of = {"operation_id": given.get("operation")}
    yield Query("audit_insert", {"at": at, "actor": actor, "action": action, "details": text, **part_of})


def conditions(wanted: Filter) -> dict[str, object]:
    """Return the conditions of a filter that are set, as details of an entry."""
    return wanted.conditions or ({"all": True} if wanted.all else {})


@reads
def audit(*, before_id: int | None = None, limit: int = 100) -> Statements[tuple[AuditEntry, ...]]:
    """Return entries before `before_id`, newest first."""
    return tuple((yield Query("audit_select", {"before_id": before_id, "count": limit}, into=AuditEntry)))
