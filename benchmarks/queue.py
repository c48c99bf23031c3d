"""Durable jobs: ``python -m benchmarks.queue --store sqlite|postgres [--deep] [--json]``.

Each subject runs in an interpreter of its own: redrive and the raw loops in this one, each peer in the virtual
environment that ``make bench-peers`` has made for it, so that the pins of one do not restrict another. A peer without
an environment is left out, and named.

Each round measures every subject once, in turns, because the speed of a shared machine varies from minute to minute.
Figures are medians over the rounds.

``--deep`` adds redrive under load: with a million jobs that wait for tomorrow, with ten million finished ones, and (on
PostgreSQL) while another session holds a snapshot open.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.goals import GOALS, Met, judge
from benchmarks.measure import Figures, Sizes
from benchmarks.page import PAGE, markdown, slower, written
from benchmarks.place import Server
from benchmarks.processes import LIMIT, answer
from benchmarks.rounds import in_turns
from benchmarks.subjects import AWAITED, DEEP, SUBJECTS

__all__ = ["PEERS", "QueueReport", "formatted", "home", "main", "python", "run", "server_for"]

PEERS = Path("build/peers")
"""Where the virtual environments of the peers are, each under the name of the subject."""

OURS = ("raw ", "redrive")
"""How the names of the subjects begin that need nothing but our own packages."""

HEADINGS = {
    "single": "single\nenq./s",
    "bulk": "bulk\nenq./s",
    "handled": "drained/s,\nhandled",
    "settled": "drained/s,\nsettled",
    "settled_by_two": "by two\nworkers",
    "cpu": "CPU\nµs/job",
    "p50": "pick-up\np50 ms",
    "p99": "pick-up\np99 ms",
    "wal": "WAL\nB/job",
    "commits": "commits\n/job",
    "dead": "dead rows\n/job",
}


@dataclass(frozen=True, slots=True)
class QueueReport:
    """What a run answers.

    Attributes:
        store: what the subjects kept their jobs in.
        sizes: how much was measured.
        medians: by the name of the subject.
        kept: what each leaves of a finished job.
        goals: what became of them.
        rounds: the figures of each round.
        missing: peers that have no environment.
        failed: the reasons of subjects that failed; they have no figures.
    """

    store: str
    sizes: Sizes
    medians: dict[str, Figures]
    kept: dict[str, str]
    goals: list[Met]
    rounds: list[dict[str, Figures]]
    missing: list[str]
    failed: dict[str, str]


def run(store: str, sizes: Sizes, rounds: int, only: Sequence[str] = (), *, deep: bool = False) -> QueueReport:
    """Measure all subjects of a store.

    Args:
        store: a key of `SUBJECTS`.
        sizes: amounts of jobs.
        rounds: number of rounds.
        only: names of subjects; all without it.
        deep: measure redrive under load, too.

    Returns:
        The report.
    """
    hidden = {AWAITED} if deep else {AWAITED, *DEEP}
    names = [name for name in SUBJECTS[store] if name not in hidden and (not only or name in only)]
    missing = [name for name in names if not python(name).exists()]
    chosen = [name for name in names if name not in missing]
    kept: dict[str, str] = {}

    def measure(name: str) -> Figures:
        figures, kept[name] = _measure(store, name, sizes, place, server)
        return figures

    with home() as place, server_for(store, place) as server:
        measured, failed = in_turns(chosen, rounds, measure)
    medians = {name: _median([figures[name] for figures in measured]) for name in chosen if name not in failed}
    return QueueReport(store, sizes, medians, kept, _judge(store, measured), measured, missing, failed)


def _judge(store: str, measured: Sequence[Mapping[str, Figures]]) -> list[Met]:
    return judge(GOALS[store], [{name: asdict(each) for name, each in figures.items()} for figures in measured])


@contextlib.contextmanager
def home() -> Iterator[Path]:
    """Make a folder for databases on the chosen disk, and delete it at the end."""
    # Not in the system's folder for temporary files: where that is memory, a sync to disk costs nothing.
    build = Path("build")
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build, prefix="bench-") as name:
        home = Path(name).absolute()
        home.chmod(0o755)
        yield home


@contextlib.contextmanager
def server_for(store: str, home: Path) -> Iterator[Server | None]:
    """Run a PostgreSQL server for the length of a ``with`` block, if the store needs one.

    Args:
        store: a key of `SUBJECTS`.
        home: a folder for its databases.
    """
    if store != "postgres":
        yield None
        return
    from benchmarks.server import server

    with server(home) as running:
        yield running


def python(name: str) -> Path:
    """Return the interpreter of a subject.

    Args:
        name: of the subject.

    Returns:
        The path; that of a peer may not exist.
    """
    return Path(sys.executable) if name.startswith(OURS) else PEERS / name / "bin" / "python"


def _measure(store: str, name: str, sizes: Sizes, home: Path, server: Server | None) -> tuple[Figures, str]:
    command = [str(python(name).absolute()), "-m", "benchmarks.single", store, name, "--home", str(home)]
    command += ["--sizes", json.dumps(asdict(sizes))]
    if server is not None:
        command += ["--server", json.dumps(asdict(server))]
    # A subject under load is filled with up to ten million jobs first.
    said = json.loads(answer(command, LIMIT * (8 if name in DEEP else 1)))
    return Figures(**said["figures"]), said["kept"]


def _median(measured: Sequence[Figures]) -> Figures:
    names = [field.name for field in fields(Figures)]
    return Figures(*[statistics.median(getattr(each, name) for each in measured) for name in names])


def _show(report: QueueReport) -> None:
    console = Console(width=170)
    table = Table(title=f"{report.store}: {report.sizes.jobs:,} no-op jobs, one worker process, synced commits")
    table.add_column("subject")
    for heading in HEADINGS.values():
        table.add_column(heading, justify="right")
    table.add_column("kept of a finished job")
    for name, figures in report.medians.items():
        cells = [formatted(getattr(figures, field)) for field in HEADINGS]
        table.add_row(name, *cells, report.kept[name])
    console.print(table)
    for met in report.goals:
        console.print(str(met))
    for name in report.missing:
        console.print(f"{name}: left out, it has no {PEERS / name}: make bench-peers")
    for name, reason in report.failed.items():
        console.print(f"{name} failed: {reason}", markup=False)


def _write(report: QueueReport) -> None:
    """Write the medians of a report into the page of the documentation."""
    titles = ["subject", *HEADINGS.values(), "kept of a finished job"]
    medians = {name: asdict(figures) for name, figures in report.medians.items()}
    rows = [
        [name, *(formatted(figures[each]) for each in HEADINGS), report.kept[name]] for name, figures in medians.items()
    ]
    about = f"{report.sizes.jobs:,} no-op jobs; medians of {len(report.rounds)} rounds."
    lines = [about, "", markdown(titles, rows), "", "Compared with redrive:", "", *slower(medians, HEADINGS)]
    text = written(PAGE.read_text(encoding="utf-8"), report.store, "queue", "\n".join(lines))
    PAGE.write_text(text, encoding="utf-8", newline="\n")


def formatted(value: float) -> str:
    """Format a figure for a table.

    Args:
        value: NaN becomes a dash.

    Returns:
        The text.
    """
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 1 else f"{value:.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line.

    Args:
        arguments: those of the process by default.
    """
    parser = argparse.ArgumentParser(prog="benchmarks.queue", description="Durable jobs, side by side.")
    parser.add_argument("--store", choices=sorted(SUBJECTS.keys() & GOALS.keys()), default="sqlite")
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--deep", action="store_true", help="redrive under load, too; takes long")
    parser.add_argument("--docs", action="store_true", help="write the table into the page of the documentation")
    parser.add_argument("--only", action="append", default=[], metavar="SUBJECT", help="may be repeated")
    chosen = parser.parse_args(arguments)
    report = run(chosen.store, Sizes(jobs=chosen.jobs), chosen.rounds, chosen.only, deep=chosen.deep)
    if chosen.docs:
        _write(report)
    if chosen.json:
        print(msgspec.json.encode(report).decode())
    else:
        _show(report)


if __name__ == "__main__":
    main()
