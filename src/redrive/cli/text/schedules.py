"""Schedules as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from redrive.cli.screen import Grid, say, utc
from redrive.cli.text.jobs import as_json
from redrive.operate.refreshes import ItemPage
from redrive.operate.schedules import CronPage, ItemLine, OccurrenceLine, RefreshPage, ScheduleLine, ScheduleList
from redrive.schedule.timezone import zone
from redrive.stores.operations.refresh.items import Counts

# Occurrences to come and past ones, and items in trouble, that a text shows.
AHEAD = 5
BACK = 10
TROUBLED = 20


def schedules(view: ScheduleList, counts: Mapping[str, Counts]) -> None:
    """Print a list of schedules; the counts of all items of a refresh are those of a database at hand."""
    table = Grid("name", "kind", "when", "next", "state", "last")
    for each in view.items:
        last = "" if each.last is None else f"{utc(each.last.occurs_at)} {each.last.decision}"
        went = _items(each, counts) if each.kind == "refresh" else last
        table.add(each.name, each.kind, each.when, _instant(each.due_at), _state(each), went)
    table.show()


def schedule(view: CronPage | RefreshPage, counts: Mapping[str, Counts]) -> None:
    """Print one schedule in full."""
    headline(view)
    if view.declared_at is not None:
        say(f"{'created at run time,' if view.line.created else 'declared'} {utc(view.declared_at)}")
    if view.jobs is None:
        say(view.line.when)
    else:
        for line in _cron(view) if isinstance(view, CronPage) else _refresh(view):
            say(line)
    if view.remedy is not None:
        say(f"to clear it: {view.remedy}")
    if isinstance(view, CronPage):
        _history(view.past[:BACK])
    else:
        say(f"items: {_items(view.line, counts) or 'none'}")
        _troubled(view.in_trouble[:TROUBLED])


def created(view: CronPage) -> None:
    """Print the state of a new cron in a line."""
    say(f"{view.line.kind} {view.line.name}: {_state(view.line)}, next {_instant(view.line.due_at)}")


def headline(view: CronPage | RefreshPage) -> None:
    """Print the state of a schedule in a line."""
    say(f"{view.line.kind} {view.line.name}: {_state(view.line)}")


def _state(each: ScheduleLine) -> str:
    """Return whether a schedule starts anything."""
    by = "" if each.paused_by is None else f" by {each.paused_by}"
    paused = () if each.paused_at is None else (f"paused since {utc(each.paused_at)}{by}",)
    return ", ".join((*each.remarks, *paused)) or "active"


def _instant(at: datetime | None) -> str:
    return "-" if at is None else utc(at)


def _items(each: ScheduleLine, counts: Mapping[str, Counts]) -> str:
    found = counts.get(each.name)
    if found is None:
        return "" if each.tracked is None else f"{each.tracked} tracked, {each.troubled} in trouble"
    named = {"running": found.running, "failing": found.failing, "given up": found.disabled}
    more = {"paused": found.paused, "completed": found.completed}
    parts = [f"{count} {name}" for name, count in (named | more).items() if count]
    return ", ".join([f"{found.tracked} tracked", *parts])


def _cron(view: CronPage) -> Iterator[str]:
    line = view.line
    yield f"when: {line.when}" + (f", {line.words}" if line.words else "")
    yield f"overlap: {view.overlap}, catch-up: {view.catch_up}"
    yield f"jobs: {view.jobs}"
    yield f"next: {_instant(line.due_at)}"
    place = zone(view.tz)
    for each, start in list(zip(line.next, view.starts, strict=False))[:AHEAD]:
        later = "" if start == each else f"   starts {utc(start)}"
        yield f"  {utc(each)}   {each.astimezone(place):%a %Y-%m-%d %H:%M:%S %Z}{later}"


def _refresh(view: RefreshPage) -> Iterator[str]:
    yield "policy:"
    yield from (f"  {each}" for each in view.policy)
    task = "nothing" if view.on_disabled is None else f"{view.on_disabled} on {view.on_disabled_queue}"
    yield f"on_disabled: {task}"
    yield f"jobs: {view.jobs}"
    yield f"next: {_instant(view.line.due_at)}"


def _history(past: tuple[OccurrenceLine, ...]) -> None:
    table = Grid("occurrence", "decided", "decision", "job", "note")
    for each in past:
        table.add(utc(each.occurs_at), utc(each.decided_at), each.decision, each.job or "", each.note or "")
    table.show()


def _troubled(items: tuple[ItemLine, ...]) -> None:
    table = Grid("key in trouble", "state", "attempts", "failing since")
    for each in items:
        since = "" if each.failing_since is None else utc(each.failing_since)
        table.add(each.key, _stands(each), str(each.attempts), since)
    table.show()


def item(view: ItemPage) -> None:
    """Print one item of a refresh in full."""
    item_headline(view)
    arguments = "-" if view.payload is None else as_json(view.payload)
    say(f"tracked {utc(view.tracked_at)}, arguments {arguments}")
    say(f"policy, {'its own' if view.own else 'of the refresh'}:")
    for line in view.policy or ("declared by a newer redrive",):
        say(f"  {line}")
    facts = {
        "refresh_at": view.refresh_at,
        "deadline_at": view.deadline_at,
        "attempt_no": view.attempt,
        "attempt_uid": view.job,
        "started_at": view.started_at,
        "due_at": view.due_at,
        "failing_since": view.failing_since,
        "succeeded_at": view.succeeded_at,
        "attempts_since_success": view.failed,
        "planned_at": view.planned_at,
        "disabled_until_update": view.standing == "given up",
        "disabled_reason": view.reason,
        "completed": view.completed,
        "paused": view.paused,
    }
    for name, value in facts.items():
        say(f"{name}: {utc(value) if isinstance(value, datetime) else '-' if value is None else value}")


def item_headline(view: ItemPage) -> None:
    """Print the state of an item in a line."""
    say(f"{view.refresh}/{view.key}: {_stands(view)}")


def _stands(each: ItemLine | ItemPage) -> str:
    due = "nothing is planned" if each.refresh_at is None else f"due {utc(each.refresh_at)}"
    paused = "paused, " if each.paused else ""
    match each.standing:
        case "given up":
            return f"given up: {each.reason}"
        case "running":
            return f"{paused}attempt {each.attempt} runs as job {each.job}"
        case "completed":
            return each.standing
        case _:
            return f"{paused}{each.standing}, {due}"
