"""Queues as text."""

from __future__ import annotations

from datetime import timedelta

from redrive.cli.screen import Grid, say, utc
from redrive.engine.explain import span
from redrive.operate.overview import QueueLoad
from redrive.operate.queues import QueueList, QueuePage


def queues(view: QueueList) -> None:
    """Print a list of queues."""
    table = Grid("queue", "due", "oldest", "later", "running", "dead", "workers", "state", wide=("state",))
    for each in view.items:
        oldest = "-" if each.oldest_seconds is None else span(timedelta(seconds=each.oldest_seconds))
        numbers = map(str, (each.later, each.running, each.dead, each.workers))
        state = "; ".join([_state(each), *filter(None, [", ".join(each.limits)])])
        table.add(each.name, str(each.due), oldest, *numbers, state)
    table.show()


def queue(view: QueuePage) -> None:
    """Print one queue: its settings, its jobs, and the jobs that hold its places."""
    settings(view)
    load = view.load
    numbers = {"due": load.due, "later": load.later, "running": load.running, "waiting": load.waiting}
    jobs = ", ".join(f"{count} {state}" for state, count in (numbers | {"dead": load.dead}).items())
    oldest = load.oldest_seconds
    since = "" if oldest is None else f", the oldest due since {span(timedelta(seconds=oldest))}"
    workers = "1 live worker serves" if load.workers == 1 else f"{load.workers} live workers serve"
    say(f"jobs: {jobs}{since}; {workers} it")
    if view.concurrency is not None or view.per_partition is not None:
        held = view.held_by
        say(f"held: {len(held)}" + (f", by jobs {', '.join(held)}" if held else ""))


def settings(view: QueuePage) -> None:
    """Print what is set for a queue."""
    say(f"queue {view.load.name}: {_state(view.load)}; {', '.join(view.load.limits) or 'no limits'}")


def _state(each: QueueLoad) -> str:
    by = "" if each.paused_by is None else f" by {each.paused_by}"
    return "open" if each.paused_at is None else f"paused since {utc(each.paused_at)}{by}"
