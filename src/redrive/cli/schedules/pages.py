"""Schedules for readers, as lines and tables, and for programs, as documents for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from redrive.app.schedule_view import ScheduleView, standing
from redrive.cli.screen import Grid, document, utc
from redrive.engine.items import TrackedItem
from redrive.engine.occurrence import Occurrence
from redrive.engine.recurring import CronDefinition
from redrive.schedule import RefreshPolicy, RefreshState
from redrive.stores.operations.refresh.items import Counts


def state(seen: ScheduleView) -> str:
    """Return whether a schedule starts anything."""
    paused = () if seen.paused_at is None else (f"paused since {utc(seen.paused_at)}",)
    return ", ".join((*seen.remarks, *paused)) or "active"


def due(seen: ScheduleView) -> str:
    """Return when its next occurrence or item is due."""
    return "-" if seen.due_at is None else utc(seen.due_at)


def headline(seen: ScheduleView) -> str:
    """Return the first line of its page."""
    return f"{seen.kind} {seen.name}: {state(seen)}"


def went(last: Sequence[Occurrence], counts: Counts | None) -> str:
    """Return the latest occurrence of a cron, or the counts of the items of a refresh."""
    if counts is None:
        return "".join(f"{utc(each.occurs_at)} {each.decision}" for each in last[:1])
    named = {"running": counts.running, "failing": counts.failing, "given up": counts.disabled}
    more = {"paused": counts.paused, "completed": counts.completed}
    parts = [f"{count} {name}" for name, count in (named | more).items() if count]
    return ", ".join([f"{counts.tracked} tracked", *parts])


def schedule(seen: ScheduleView, ahead: Sequence[datetime]) -> Iterator[str]:
    """Print the page of a schedule, without its tables."""
    yield headline(seen)
    if seen.row is not None:
        yield f"{'created at run time,' if seen.created else 'declared'} {utc(seen.row.declared_at)}"
    definition = seen.definition
    if definition is None:
        yield seen.when
        return
    if isinstance(definition, CronDefinition):
        yield f"when: {seen.when}, {seen.words}"
        yield f"overlap: {definition.overlap}, catch-up: {definition.started_late}"
    else:
        yield from ["policy:", *(f"  {line}" for line in str(definition.policy).splitlines())]
        task = definition.on_disabled
        yield f"on_disabled: {'nothing' if task is None else f'{task.task} on {task.queue}'}"
    yield f"jobs: {definition.job.described}"
    yield f"next: {due(seen)}"
    if isinstance(definition, CronDefinition):
        place = definition.schedule.place
        yield from (f"  {utc(each)}   {each.astimezone(place):%a %Y-%m-%d %H:%M:%S %Z}" for each in ahead)


def history(past: Sequence[Occurrence]) -> Grid:
    """Print a table of occurrences."""
    table = Grid("occurrence", "decided", "decision", "job", "note")
    for each in past:
        job = "" if each.job_id is None else str(each.job_id)
        table.add(utc(each.occurs_at), utc(each.decided_at), each.decision, job, each.note or "")
    return table


def items(troubled: Sequence[TrackedItem]) -> Grid:
    """Print a table of items in trouble."""
    table = Grid("key in trouble", "state", "attempts", "failing since")
    for each in troubled:
        since = "" if each.failing_since is None else utc(each.failing_since)
        table.add(each.key, _stands(each), str(each.attempts_since_success), since)
    return table


def item_headline(item: TrackedItem) -> str:
    """Return the state of an item in one line."""
    return f"{item.schedule}/{item.key}: {_stands(item)}"


def item(item: TrackedItem, policy: RefreshPolicy | None) -> Iterator[str]:
    """Print the page of an item."""
    yield item_headline(item)
    yield f"tracked {utc(item.tracked_at)}, arguments {(item.payload or b'-').decode(errors='replace')}"
    label = "of the refresh" if item.own is None else "its own"
    lines = ["declared by a newer redrive"] if policy is None else str(policy).splitlines()
    yield from [f"policy, {label}:", *(f"  {line}" for line in lines)]
    for name in RefreshState.__struct_fields__:
        value = getattr(item.state, name)
        yield f"{name}: {utc(value) if isinstance(value, datetime) else '-' if value is None else value}"


def _stands(item: TrackedItem) -> str:
    word = standing(item)
    due_at = "nothing is planned" if item.refresh_at is None else f"due {utc(item.refresh_at)}"
    paused = "paused, " if item.paused else ""
    match word:
        case "given up":
            return f"given up: {item.disabled_reason}"
        case "running":
            return f"{paused}attempt {item.attempt_no} runs as job {item.job_id}"
        case "completed":
            return word
        case _:
            return f"{paused}{word}, {due_at}"


def schedule_document(seen: ScheduleView) -> dict[str, object]:
    """Return a schedule as a document for JSON."""
    row = seen.row
    return {
        "name": seen.name,
        "kind": seen.kind,
        "when": seen.when,
        "words": seen.words,
        "state": state(seen),
        "in_code": seen.in_code,
        "created": seen.created,
        "declared_at": None if row is None else row.declared_at,
        "paused_at": seen.paused_at,
        "due_at": seen.due_at,
        "job_id": None if row is None else row.job_id,
        "queued_at": None if row is None else row.queued_at,
        "definition": document(seen.document),
    }


def item_document(tracked: TrackedItem) -> dict[str, object]:
    """Return an item of a refresh as a document for JSON."""
    fields: dict[str, object] = {name: getattr(tracked, name) for name in TrackedItem.__struct_fields__}
    return fields | {"payload": document(tracked.payload)}


def went_document(last: Sequence[Occurrence], counts: Counts | None) -> dict[str, object]:
    """Return the latest occurrence of a cron and the counts of the items of a refresh as a document for JSON."""
    return {"last": next(iter(last), None), "counts": counts}
