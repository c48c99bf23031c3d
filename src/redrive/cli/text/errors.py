"""Error groups as text."""

from __future__ import annotations

from redrive.cli.screen import Grid, say, utc
from redrive.engine.commands import command
from redrive.operate.errors import ErrorList, GroupPage


def groups(view: ErrorList) -> None:
    """Print a list of error groups."""
    if view.since is not None:
        say(f"failures since {utc(view.since)}")
    within = () if view.span is None else (f"in {view.span}", "gave up")
    table = Grid("group", "task", "error", "dead", *(within or ("in 24 h",)), "last (UTC)", wide=("error",))
    for each in view.items:
        error = " at ".join(part for part in (each.name, each.frame) if part)
        counts = (each.within, each.deaths_within) if within else (each.failures,)
        numbers = (f"{count or 0:,}" for count in counts)
        table.add(each.id, each.task, error, str(each.dead), *numbers, f"{each.last_at:%m-%d %H:%M}")
    table.show()


def group(view: GroupPage, app: str) -> None:
    """Print one error group, and how its dead jobs are listed and started again."""
    each = view.group
    say(f"  {each.name}", head=f"group {each.id}")
    if each.task:
        say(f"task {each.task}, reason {each.reason}{f', at {each.frame}' if each.frame else ''}")
    say(f"first {utc(each.first_at)}, last {utc(each.last_at)} (job {each.last_job})")
    say(f"last 24 hours: {each.failures:,} failures, after {each.deaths:,} of which a job gave up")
    say(f"by hour: {' '.join(map(str, each.hours))}")
    if each.muted_at is not None:
        end = "until it fails again" if each.muted_until is None else f"until {utc(each.muted_until)}"
        say(f"muted {utc(each.muted_at)}, {end}")
    say(f"dead now: {each.dead}")
    if each.dead.value:
        say(command("jobs list", app, state="dead", group=each.id, not_caught=True, not_skipped=True))
        say(command("jobs redrive", app, group=each.id, rate="100/s"))
