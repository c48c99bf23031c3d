"""The audit log of operators' changes, with their actors, written in the transactions of the changes. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from redrive.engine.records import NEWEST, AuditEntry, Filter
from redrive.stores.query import Query, Statements, reads

# The default actor.
UNKNOWN = "unknown"

# The actor of changes that redrive makes by itself.
SYSTEM = "redrive"

# The action on the settings of a queue; others have a queue as the one to which jobs go.
QUEUE = "queue"

# The actions on a run, and on those that it has called.
OF_A_RUN = frozenset({"cancel_run"})

# The details that name a thing, by its kind.
_THINGS = (
    ("schedule", ("schedule",)),
    ("machine", ("machine", "key")),
    ("machine", ("machine",)),
    ("topic", ("topic", "subscription")),
    ("topic", ("topic",)),
    ("group", ("group",)),
)

# The longest name of a thing, in UTF-8: an entry of an index of PostgreSQL has at most 2704 bytes.
LONGEST = 2_500

# The action that computes times again after the clock was set back.
CLOCK_SET_BACK = "clock_set_back"


def record(at: datetime, actor: str, action: str, **details: object) -> Statements[None]:
    """Write an entry as a part of a larger operation; `action` is one word, and details that are None are left out.

    The detail ``operation`` is the bulk operation of which the change is a part.
    """
    given = {name: value for name, value in details.items() if value is not None}
    text = msgspec.json.encode(given).decode()
    part_of = {"operation_id": given.get("operation"), "about": about(action, given)}
    yield Query("audit_insert", {"at": at, "actor": actor, "action": action, "details": text, **part_of})


def about(action: str, details: Mapping[str, Any]) -> str | None:
    """Return the one thing that a change is about, such as ``queue:mail``; None for several, and for the whole."""
    if action == QUEUE:
        return _named("queue", details["queue"])
    for kind, names in _THINGS:
        if all(name in details for name in names):
            return _named(kind, *(details[name] for name in names))
    ids = details.get("ids", ())
    # The runs that a run has called were started later.
    if len(ids) == 1 or (ids and action in OF_A_RUN):
        return f"job:{ids[0]}"
    return _chosen(details.get("filter", {}))


def _chosen(conditions: Mapping[str, Any]) -> str | None:
    """Return the one thing whose jobs a bulk operation changes."""
    ids = conditions.get("ids", ())
    if len(ids) == 1:
        return f"job:{ids[0]}"
    return next((_named(kind, conditions[kind]) for kind in ("queue", "schedule", "group") if kind in conditions), None)


def _named(kind: str, *names: str) -> str | None:
    text = f"{kind}:{'/'.join(names)}"
    return text if len(text.encode()) <= LONGEST else None


def conditions(wanted: Filter) -> dict[str, object]:
    """Return the conditions of a filter that are set, as details of an entry."""
    return wanted.conditions or ({"all": True} if wanted.all else {})


@reads
def audit(
    *, before_id: int | None = None, about: str | None = None, limit: int = 100
) -> Statements[tuple[AuditEntry, ...]]:
    """Return entries before `before_id`, newest first; about one thing if it is given."""
    if about is not None:
        params = {"about": about, "before_id": NEWEST if before_id is None else before_id, "count": limit}
        return tuple((yield Query("audit_about", params, into=AuditEntry)))
    return tuple((yield Query("audit_select", {"before_id": before_id, "count": limit}, into=AuditEntry)))
