"""Schedules for programs: what ``--json`` writes."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.cli.schedules import pages
from redrive.cli.schedules.seen import Seen
from redrive.cli.screen import document
from redrive.engine.items import TrackedItem
from redrive.engine.occurrence import Occurrence
from redrive.stores.operations.refresh.read import Counts

__all__ = ["schedule", "thing", "went"]


def schedule(seen: Seen) -> dict[str, object]:
    """Describe a schedule.

    Args:
        seen: which.

    Returns:
        What JSON is made of.
    """
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


def thing(tracked: TrackedItem) -> dict[str, object]:
    """Describe a thing of a refresh.

    Args:
        tracked: which.

    Returns:
        What JSON is made of.
    """
    plain: dict[str, object] = {name: getattr(tracked, name) for name in TrackedItem.__struct_fields__}
    return plain | {"payload": document(tracked.payload)}


def went(last: Sequence[Occurrence], counts: Counts | None) -> dict[str, object]:
    """Describe how it went.

    Args:
        last: the latest occurrence of a cron, if there is one.
        counts: how the things of a refresh are, if it has some.

    Returns:
        What JSON is made of.
    """
    return {"last": next(iter(last), None), "counts": counts}
