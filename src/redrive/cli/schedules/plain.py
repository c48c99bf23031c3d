"""Schedules for programs: the output of ``--json``."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.cli.schedules import pages
from redrive.cli.schedules.seen import Seen
from redrive.cli.screen import document
from redrive.engine.items import TrackedItem
from redrive.engine.occurrence import Occurrence
from redrive.stores.operations.refresh.read import Counts

__all__ = ["item", "schedule", "went"]


def schedule(seen: Seen) -> dict[str, object]:
    """Return a schedule as a document for JSON."""
    row = seen.row
    return {
        "name": seen.name,
        "kind": seen.kind,
        "when": pages.when(seen),
        "state": pages.state(seen),
        "in_code": seen.in_code,
        "declared_at": None if row is None else row.declared_at,
        "paused_at": seen.paused_at,
        "due_at": seen.due_at,
        "job_id": None if row is None else row.job_id,
        "queued_at": None if row is None else row.queued_at,
        "definition": document(seen.document),
    }


def item(tracked: TrackedItem) -> dict[str, object]:
    """Return an item of a refresh as a document for JSON."""
    plain: dict[str, object] = {name: getattr(tracked, name) for name in TrackedItem.__struct_fields__}
    return plain | {"payload": document(tracked.payload)}


def went(last: Sequence[Occurrence], counts: Counts | None) -> dict[str, object]:
    """Return the latest occurrence of a cron and the counts of the items of a refresh as a document for JSON."""
    return {"last": next(iter(last), None), "counts": counts}
