"""The time that the server spends on each statement of a drain: ``python -m benchmarks.statements --binaries FOLDER``.

A new database of no-op jobs is drained by one, two and eight worker processes with default settings. The server
measures its statements with the extension ``pg_stat_statements``, which the server of the other benchmarks does not
have; so this one names the folder of an installed server, such as ``/usr/lib/postgresql/15/bin``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.measure import Sizes, fresh_subject, run_dry
from benchmarks.page import PAGE, markdown, written
from benchmarks.place import Server
from benchmarks.queue import formatted, home
from benchmarks.server import installed
from benchmarks.workers.subjects import fleet
from redrive.stores.drivers.postgres.statements import prepared

__all__ = ["StatementTime", "main", "measure"]

WORKERS = (1, 2, 8)

SHOWN = 6
"""Statements of each drain in the table: those with the most time."""

HEADINGS = ("workers", "statement", "share", "µs/job", "calls", "µs/call", "jobs/call", "WAL B/job")

_STATEMENTS = """
SELECT coalesce(json_agg(found ORDER BY found.ms DESC), '[]') FROM (
    SELECT query, calls, total_exec_time AS ms, rows, wal_bytes
    FROM pg_stat_statements JOIN pg_database AS database ON database.oid = dbid
    WHERE database.datname = 'bench' AND query NOT LIKE '%pg_stat_%'
) AS found
"""

_CONSTANT = re.compile(r"\$\d+|'(?:[^']|'')*'|-?\b\d+\b|\b(?:true|false|null)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StatementTime:
    """The time of one statement in one drain.

    Attributes:
        query: its text, with numbered parameters in place of constants.
        calls: how often it was executed.
        ms: the time of all calls in milliseconds.
        rows: the rows that it returned or changed.
        wal_bytes: bytes of the server's log.
    """

    query: str
    calls: int
    ms: float
    rows: int
    wal_bytes: int


def measure(jobs: int, workers: int, place: Path, server: Server) -> list[StatementTime]:
    """Drain a new database, and return the statements of the workers, those with the most time first.

    Args:
        jobs: how many.
        workers: how many processes.
        place: a folder on the disk that is meant.
        server: one with the extension.

    Raises:
        Stuck: a worker got nowhere.
    """
    subject, sizes = fleet("postgres", "async"), Sizes(jobs=jobs)
    with fresh_subject(subject, place, server) as here:
        subject.enqueue_many(jobs)
        subject.prepare(here)
        here.settle_down()
        server.ask("SELECT pg_stat_statements_reset()")
        run_dry(subject, sizes, here, 0.0, workers)
        return msgspec.json.decode(server.ask(_STATEMENTS), type=list[StatementTime])


def _general(text: str) -> str:
    """Return a statement without its constants, parameters and line breaks."""
    # A statement that is sent together with others begins with their parts.
    return " ".join(_CONSTANT.sub("?", text).split()).removeprefix("WITH RECURSIVE ").removeprefix("WITH ")


def _title(query: str, known: Mapping[str, str]) -> str:
    """Return the names of the query files that a statement consists of, or its beginning."""
    general = _general(query)
    found = [name for name, text in known.items() if text in general]
    whole = [name for name in found if not any(known[name] in known[other] for other in found if other != name)]
    return ", ".join(f"`{name}`" for name in sorted(whole)) or f"`{general[:40]}`"


def _rows(jobs: int, workers: int, measured: Sequence[StatementTime]) -> list[list[str]]:
    known = {name: _general(each.text) for name, each in prepared("redrive").items()}
    total = sum(each.ms for each in measured)
    rows = [
        [
            str(workers),
            _title(each.query, known),
            f"{each.ms / total:.0%}",
            formatted(each.ms * 1e3 / jobs),
            f"{each.calls:,}",
            formatted(each.ms * 1e3 / each.calls),
            formatted(jobs / each.calls),
            formatted(each.wal_bytes / jobs),
        ]
        for each in measured[:SHOWN]
    ]
    calls = sum(each.calls for each in measured)
    wal = sum(each.wal_bytes for each in measured) / jobs
    all_of_them = ["all", "100%", formatted(total * 1e3 / jobs), f"{calls:,}", "", "", formatted(wal)]
    return [*rows, [str(workers), *all_of_them]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line.

    Args:
        arguments: those of the process by default.
    """
    parser = argparse.ArgumentParser(prog="benchmarks.statements", description="Statements of a drain by their time.")
    parser.add_argument("--binaries", type=Path, required=True, help="the folder of initdb, pg_ctl and psql")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--docs", action="store_true", help="write the table into the page of the documentation")
    chosen = parser.parse_args(arguments)
    rows = []
    with home() as place, installed(place, chosen.binaries, "shared_preload_libraries=pg_stat_statements") as server:
        server.ask("CREATE EXTENSION pg_stat_statements")
        for workers in WORKERS:
            rows += _rows(chosen.jobs, workers, measure(chosen.jobs, workers, place, server))
    table = markdown(HEADINGS, rows)
    print(table)
    if chosen.docs:
        text = written(PAGE.read_text(encoding="utf-8"), "statements", "statements", table)
        PAGE.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
