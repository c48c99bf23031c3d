"""Jobs enqueued one by one: ``python -m benchmarks.singles --store sqlite|postgres [--rounds N] [--docs]``.

A subject keeps its interpreter, its connection and a database of its own, on one server, and all enqueue blocks of a
hundred jobs in turns. A block takes about a tenth of a second at most, so the subjects of a round have the same
conditions even where the speed of the disk varies from second to second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Self

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.goals import Met, judge, singles
from benchmarks.page import PAGE, markdown, written
from benchmarks.place import Server
from benchmarks.processes import Stuck
from benchmarks.queue import home, python, server_for
from benchmarks.rounds import in_turns
from benchmarks.subjects import AWAITED, SUBJECTS

__all__ = ["BLOCK", "SinglesReport", "main", "run"]

BLOCK = 100
"""Jobs of one turn."""

_WARM = 300

_LIMIT = 60.0
"""Seconds that a subject may take for one turn, which takes a tenth of one; the first makes its tables, too."""


class SinglesReport(msgspec.Struct, frozen=True):
    """What a run answers.

    Attributes:
        store: what the subjects kept their jobs in.
        rounds: how many.
        medians: microseconds for one job, by the name of the subject.
        goals: what became of them.
        missing: peers that have no environment.
        failed: the reasons of subjects that failed; they have no figures.
    """

    store: str
    rounds: int
    medians: dict[str, float]
    goals: list[Met]
    missing: list[str]
    failed: dict[str, str]


class _Enqueuer:
    """The process of a subject, which enqueues when it is told to."""

    def __init__(self, store: str, name: str, home: Path, database: str, server: Server | None) -> None:
        command = [str(python(name).absolute()), "-m", "benchmarks.single", store, name, "--home", str(home)]
        command += ["--turns", database]
        if server is not None:
            command += ["--server", json.dumps(asdict(server))]
        self._name = name
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def enqueue(self, count: int) -> float:
        """Enqueue jobs, and return the seconds that it took; a process that does not answer in time is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        limit = threading.Timer(_LIMIT, self._process.kill)
        limit.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                print(count, file=self._process.stdin, flush=True)
            while line := self._process.stdout.readline():
                # A peer may print other lines.
                if line.startswith("took "):
                    return float(line.removeprefix("took "))
        finally:
            late = not limit.is_alive()
            limit.cancel()
        if late:
            raise Stuck(f"it has not answered within {_LIMIT:g} s")
        raise Stuck(f"its process ended with status {self._process.wait()}; its output stands above")


def run(store: str, rounds: int, only: Sequence[str] = ()) -> SinglesReport:
    """Measure all subjects of a store.

    Args:
        store: a key of `SUBJECTS`.
        rounds: number of rounds.
        only: names of subjects; all that enqueue differently without it.

    Returns:
        The report.
    """
    names = [
        name
        for name in SUBJECTS[store]
        if (not name.startswith("redrive") or name in ("redrive", AWAITED)) and (not only or name in only)
    ]
    missing = [name for name in names if not python(name).exists()]
    with home() as place, server_for(store, place) as server, ExitStack() as stack:
        subjects = {
            name: stack.enter_context(_Enqueuer(store, name, place, f"bench_{number}", server))
            for number, name in enumerate(names)
            if name not in missing
        }
        _, cold = in_turns(list(subjects), 1, lambda name: subjects[name].enqueue(_WARM), "warm up, ")
        measured, failed = in_turns(
            [name for name in subjects if name not in cold],
            rounds,
            lambda name: {"single": BLOCK / subjects[name].enqueue(BLOCK)},
        )
    failed |= cold
    medians = {
        name: 1e6 / statistics.median(each[name]["single"] for each in measured)
        for name in subjects
        if name not in failed
    }
    return SinglesReport(store, rounds, medians, judge(singles(store), measured), missing, failed)


_HEADINGS = ("subject", "µs/enqueue", "enq./s", "of the raw limit")


def _rows(report: SinglesReport) -> list[list[str]]:
    raw = next((taken for name, taken in report.medians.items() if name.startswith("raw ")), float("nan"))
    return [
        [name, f"{taken:,.0f}", f"{1e6 / taken:,.0f}", f"{raw / taken:.2f}"] for name, taken in report.medians.items()
    ]


def _show(report: SinglesReport) -> None:
    console = Console(width=120)
    table = Table(title=f"{report.store}: jobs enqueued one by one, synced commits; medians of {report.rounds} rounds")
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading == "subject" else "right")
    for row in _rows(report):
        table.add_row(*row)
    console.print(table)
    for met in report.goals:
        console.print(str(met))
    for name in report.missing:
        console.print(f"{name}: left out, it has no environment: make bench-peers")
    for name, reason in report.failed.items():
        console.print(f"{name} failed: {reason}", markup=False)


def _write(report: SinglesReport) -> None:
    """Write the medians of a report into the page of the documentation."""
    about = f"Jobs enqueued one by one, {BLOCK} of each subject in turns; medians of {report.rounds} rounds."
    goals = [f"* {met}" for met in report.goals]
    lines = "\n".join(
        [about, "", markdown(_HEADINGS, _rows(report)), "", "Ratios of the rates in each round, medians:", "", *goals]
    )
    text = written(PAGE.read_text(encoding="utf-8"), f"singles-{report.store}", "singles", lines)
    PAGE.write_text(text, encoding="utf-8", newline="\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line.

    Args:
        arguments: those of the process by default.
    """
    parser = argparse.ArgumentParser(prog="benchmarks.singles", description="Jobs enqueued one by one, in turns.")
    parser.add_argument("--store", choices=sorted(SUBJECTS), default="sqlite")
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--docs", action="store_true", help="write the table into the page of the documentation")
    parser.add_argument("--only", action="append", default=[], metavar="SUBJECT", help="may be repeated")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.only) - SUBJECTS[chosen.store].keys():
        parser.error(
            f"{chosen.store} has no subject {', '.join(sorted(unknown))}; it has {', '.join(SUBJECTS[chosen.store])}"
        )
    report = run(chosen.store, chosen.rounds, chosen.only)
    if chosen.docs:
        _write(report)
    if chosen.json:
        print(msgspec.json.encode(report).decode())
    else:
        _show(report)


if __name__ == "__main__":
    main()
