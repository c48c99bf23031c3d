"""What the demo says at the end: a table and one sentence. PURE, but for the printing."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from redrive.cli.demo.audit import Audit, Fate
from redrive.cli.screen import draw

__all__ = ["Rescue", "Run", "rows", "sentence", "show_report"]

_SHOWN = 5  # lost events that are named one by one; the table has their number


@dataclass(frozen=True, slots=True)
class Rescue:
    """A worker that was killed, and what it held.

    Attributes:
        worker: its name.
        jobs: the deliveries that it was running.
    """

    worker: str
    jobs: frozenset[int]


@dataclass(frozen=True, slots=True)
class Run:
    """A demonstration that has ended.

    Attributes:
        audit: what became of its events.
        left_over: how many of them an earlier run had left behind.
        broken: lines of the input that were no events.
        withheld: events that were not enqueued, because somebody pressed Ctrl-C.
        rescue: the kill, if there was one.
        interrupted: did somebody press Ctrl-C?
        trouble: what broke the run off, if something did.
        seconds: how long it took.
    """

    audit: Audit
    left_over: int = 0
    broken: int = 0
    withheld: int = 0
    rescue: Rescue | None = None
    interrupted: bool = False
    trouble: str = ""
    seconds: float = 0.0


def rows(run: Run) -> list[tuple[str, int, str]]:
    """The table: what, how many, and who says so. Rows that only matter when they are not 0 are left out at 0."""
    audit = run.audit
    table = [
        ("events in", len(audit.findings), f"{run.left_over} left by an earlier run" if run.left_over else ""),
        ("delivered", audit.count(Fate.DELIVERED), "database: succeeded; ledger: 2xx"),
        ("  at the first attempt", audit.count(Fate.DELIVERED) - audit.retried, ""),
        ("  after retries", audit.retried, ""),
        ("caught", audit.count(Fate.CAUGHT, Fate.GONE), "database; dead-letter file"),
        ("  gone (410), no retry", audit.count(Fate.GONE), "ledger: 410"),
        ("  retries exhausted", audit.count(Fate.CAUGHT), ""),
        ("lost", audit.count(Fate.LOST), ""),
        ("requests to the receiver", len(audit.requests), ""),
        ("  repeats under the same key", audit.repeats, ""),
        ("  of what it had taken before", audit.duplicates, "known by key, not taken again"),
    ]
    extra = [
        ("still queued", audit.count(Fate.UNFINISHED), "for the next run on this database"),
        ("not enqueued", run.withheld, "interrupted before their turn"),
        ("broken lines of the input", run.broken, "told above"),
        ("taken twice by the receiver", audit.taken_twice, "a defect of the receiver"),
    ]
    table += [row for row in extra if row[1]]
    if run.rescue:
        table.append((f"held by {run.rescue.worker} when killed", len(run.rescue.jobs), _rescued(run)))
    return table


def _rescued(run: Run) -> str:
    held = run.rescue.jobs if run.rescue else frozenset()
    rescued = [f for f in run.audit.findings if f.job_id in held and f.fate not in {Fate.LOST, Fate.UNFINISHED}]
    return "all ran again elsewhere" if len(rescued) == len(held) else f"{len(rescued)} ran again elsewhere"


def sentence(run: Run) -> str:
    """The result in one sentence."""
    audit = run.audit
    parts = (
        f"{audit.count(Fate.DELIVERED)} delivered, {audit.retried} of them after retries",
        f"{audit.count(Fate.CAUGHT, Fate.GONE)} caught",
        f"{audit.count(Fate.LOST)} lost",
        *(f"{number} still queued" for number in (audit.count(Fate.UNFINISHED),) if number),
    )
    seen = f"{audit.repeats} times the receiver saw a repeat under the same idempotency key"
    return f"{len(audit.findings)} events in: {', '.join(parts)}; {seen}."


def show_report(console: Console, run: Run) -> None:
    """Print table and sentence: framed in a terminal, as plain lines elsewhere."""
    if console.is_terminal:
        table = Table(title=f"Webhooks, after {run.seconds:.1f} s", title_justify="left")
        table.add_column("")
        table.add_column("number", justify="right")
        table.add_column("who says so", style="dim")
        for name, number, why in rows(run):
            table.add_row(name, str(number), why)
        console.print(table)
    else:
        width = max(len(name) for name, _, _ in rows(run))
        for name, number, why in rows(run):
            draw(console, f"{name:<{width}}  {number:>6}  {why}".rstrip())
    for finding in run.audit.lost[:_SHOWN]:
        draw(console, f"lost: job {finding.job_id}: {finding.why}")
    draw(console, sentence(run))
