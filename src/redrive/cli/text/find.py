"""The result of a search as text."""

from __future__ import annotations

from redrive.cli.screen import Grid, say, utc
from redrive.cli.text.jobs import jobs
from redrive.operate.find import Found
from redrive.operate.jobs import JobList


def found(view: Found) -> None:
    """Print what a search has found, and what was not searched."""
    if view.hits:
        table = Grid("kind", "name", "id or key", "state or type", "job", "since", wide=("state or type",))
        for each in view.hits:
            table.add(each.kind, each.name, each.part, each.text or "-", each.job or "-", utc(each.at))
        table.show()
    if view.jobs:
        jobs(JobList(view.q, items=view.jobs))
    if not view.hits and not view.jobs:
        say(f"nothing has {view.q}")
    for sentence in view.unread:
        say(f"... {sentence}", err=True)
    before = view.before or view.searched_to
    if before is not None:
        does = "shows older jobs" if view.before else "searches the values of older jobs"
        say(f"... --before {before} {does}", err=True)
