"""The start of a worker: ``python -m benchmarks.start [--rounds N] [--json]``.

A database with one due job exists. The time counts from just before the process is started until the handler runs, by
the clock of the machine. *Asyncio* is a process that only imports asyncio, which each worker does. The modules of the
worker are compiled, as pip does it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import NOTHING
from benchmarks.meter import METER, Meter
from benchmarks.page import PAGE, markdown, written
from benchmarks.place import Server, fresh
from benchmarks.processes import running, wait
from benchmarks.queue import formatted, home, server_for
from benchmarks.subjects import subject

__all__ = ["Start", "main", "measure"]

STORES = ("sqlite", "postgres")

GOAL = 400.0
"""Milliseconds."""

HEADINGS = ("store", "median", "lowest", "highest", "of that asyncio", f"at most {GOAL:g}")


@dataclass(frozen=True, slots=True)
class Start:
    """Milliseconds until the handler of the first job runs, and until asyncio is imported."""

    first_job: float = NOTHING
    asyncio: float = NOTHING


def measure(store: str, place: Path, server: Server | None) -> Start:
    """Start a worker once.

    Args:
        store: a key of `benchmarks.subjects.SUBJECTS`.
        place: a folder on the disk that is meant.
        server: PostgreSQL, where the store needs it.

    Returns:
        The figures.

    Raises:
        Stuck: the worker got nowhere.
    """
    chosen = subject(store, "redrive")
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import asyncio"], check=True)
    imported = time.monotonic() - began
    with fresh(place, server) as here:
        chosen.create(here)
        with closing(chosen):
            chosen.enqueue(0.0)
            meter = Meter.create(here.folder / "meter")
            command, env = chosen.worker()
            began = time.monotonic()
            with running(command, {**env, METER: str(here.folder / "meter")}, here.folder / "log") as process:
                wait("the first job", lambda: meter.count > 0, process)
    return Start((meter.first_at - began) * 1e3, imported * 1e3)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line.

    Args:
        arguments: those of the process by default.
    """
    parser = argparse.ArgumentParser(prog="benchmarks.start", description="The start of a worker.")
    parser.add_argument("--json", action="store_true", help="print the rounds as JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--docs", action="store_true", help="write the table into the page of the documentation")
    chosen = parser.parse_args(arguments)
    # The modules are compiled in the first, unmeasured start, whatever the environment says.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    found: dict[str, list[Start]] = {}
    for store in STORES:
        with home() as place, server_for(store, place) as server:
            measure(store, place, server)
            found[store] = [measure(store, place, server) for _ in range(chosen.rounds)]
    if chosen.docs:
        _write(found)
    if chosen.json:
        print(
            json.dumps({store: [[each.first_job, each.asyncio] for each in rounds] for store, rounds in found.items()})
        )
    else:
        _show(found)


def _rows(found: dict[str, list[Start]]) -> list[list[str]]:
    rows = []
    for store, rounds in found.items():
        times = [each.first_job for each in rounds]
        median = statistics.median(times)
        figures = (median, min(times), max(times), statistics.median(each.asyncio for each in rounds))
        rows.append([store, *map(formatted, figures), "reached" if median <= GOAL else "not reached"])
    return rows


def _show(found: dict[str, list[Start]]) -> None:
    table = Table(title="From the start of the worker process to its first job, milliseconds")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "store" else "right")
    for row in _rows(found):
        table.add_row(*row)
    Console(width=120).print(table)


def _write(found: dict[str, list[Start]]) -> None:
    text = written(PAGE.read_text(encoding="utf-8"), "start", "start", markdown(HEADINGS, _rows(found)))
    PAGE.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
