"""Bulk operations as text."""

from __future__ import annotations

from datetime import timedelta

from redrive.cli.screen import Grid, say, say_kept, utc
from redrive.engine.explain import span
from redrive.operate.filters import parse
from redrive.operate.operations import OperationLine, OperationList, OperationPage


def operations(view: OperationList) -> None:
    """Print a list of operations."""
    if not view.items:
        say("no operation has been started")
        return
    table = Grid("id", "state", "action", "jobs", "done", "kept", "of", "rate", "who", wide=("jobs", "who"))
    for each in view.items:
        numbers = (str(each.done), str(each.kept), "many" if each.matched is None else str(each.matched))
        table.add(each.id, each.state, each.action, _means(each), *numbers, each.rate or "-", each.actor)
    table.show()


def operation(view: OperationPage) -> None:
    """Print one operation, with the jobs that stay as they are."""
    found = view.operation
    say(f"  {found.state}", head=f"operation {found.id}")
    say(f"{found.action} of {_means(found)}, started by {found.actor}")
    if found.undoes is None:
        say(f"frozen at {utc(found.frozen_at)}, at job {found.bound_id}: later ones are not changed")
    left = "" if found.left_seconds is None else f", {span(timedelta(seconds=found.left_seconds))} left"
    many = "more than were counted" if found.matched is None else str(found.matched)
    rate = "" if found.rate is None else f", at {found.rate}"
    say(f"{found.done} jobs changed, {found.kept} kept, of {many}{rate}{left}")
    if found.last_error is not None:
        say(f"the last batch failed and is tried again: {found.last_error}")
    if found.undone_by is not None:
        say(f"undone by operation {found.undone_by}")
    for each in view.batches:
        say_kept((job.id, job.why) for job in each.kept)


def _means(each: OperationLine) -> str:
    """Return the jobs that an operation means."""
    if each.undoes is not None:
        return f"operation {each.undoes}"
    return (
        ", ".join(f"{name} {value}" for name, value in parse(each.q, most=len(each.q)).conditions.items()) or "all jobs"
    )
