"""The distance to PostgreSQL: ``python -m benchmarks.distance [--rtt MS ...] [--before FILE] [--json] [--docs]``.

A proxy on the loopback interface delays what it carries, and counts round trips (`benchmarks.distance.proxy`). Each
operation is measured behind it, at each distance, on a new database. The server asks for no password and no encryption,
which would take further round trips for each new connection, and does not wait for its disk. The round trips are those
of the shortest distance, where the fewest polls of a worker fall into the time of an operation.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from rich.console import Console
from rich.table import Table

from benchmarks.distance.proxy import distant
from benchmarks.distance.subjects import CONNECTIONS, ROWS, Measured, Subject
from benchmarks.page import markdown, written
from benchmarks.place import Server, fresh
from benchmarks.queue import home, server_for

__all__ = ["main", "measure"]

RTTS = (0.0, 2.0, 20.0)
"""Milliseconds."""

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "benchmarks.md"

DATABASE = "distance"


def measure(name: str, rtt: float, place: Path, server: Server) -> Measured:
    """Measure an operation at a distance.

    Args:
        name: a key of `ROWS`.
        rtt: the time of a round trip, in milliseconds.
        place: a folder on the disk that is meant.
        server: PostgreSQL.
    """
    (folder,) = parse_qs(urlsplit(server.url).query)["host"]
    with fresh(place, server, DATABASE) as here, distant(Path(folder) / ".s.PGSQL.5432", rtt / 1e3) as proxy:
        near = Subject(here.url)
        with closing(near.app.open()):
            far = Subject(f"postgresql://postgres@127.0.0.1:{proxy.port}/{DATABASE}")
            with closing(far.app):
                return ROWS[name](proxy, near, far)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line.

    Args:
        arguments: those of the process by default.
    """
    parser = argparse.ArgumentParser(prog="benchmarks.distance", description="What the distance to PostgreSQL costs.")
    parser.add_argument("--rtt", type=float, nargs="+", default=RTTS, help="times of a round trip, in milliseconds")
    parser.add_argument("--only", default="", help="measure the operations that contain this text")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON instead of a table")
    parser.add_argument("--read", type=Path, help="a file with the JSON of a run, instead of measuring")
    parser.add_argument("--before", type=Path, help="a file with the JSON of an earlier run, to be compared")
    parser.add_argument("--docs", action="store_true", help="write the table into the page of the documentation")
    chosen = parser.parse_args(arguments)
    found = _read(chosen.read) if chosen.read else _measured(chosen.only, chosen.rtt)
    if chosen.json:
        print(json.dumps(found))
        return
    headings, rows = _table(found, _read(chosen.before) if chosen.before else {}, chosen.rtt)
    table = Table(title="Round trips, and milliseconds by the time of a round trip")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == headings[0] else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=120).print(table)
    if chosen.docs:
        text = written(PAGE.read_text(encoding="utf-8"), "distance", "distance", markdown(headings, rows))
        PAGE.write_text(text, encoding="utf-8", newline="\n")


def _measured(only: str, rtts: Sequence[float]) -> dict[str, list[Measured]]:
    found = {}
    with home() as place, server_for("postgres", place) as server:
        assert server is not None
        server.ask("ALTER SYSTEM SET fsync = off")
        server.ask("SELECT pg_reload_conf()")
        for name in ROWS:
            if only in name:
                chosen = rtts[:1] if name == CONNECTIONS else rtts
                found[name] = [measure(name, rtt, place, server) for rtt in chosen]
                print(name, *found[name], file=sys.stderr)
    return found


def _read(file: Path) -> dict[str, list[Measured]]:
    figures = json.loads(file.read_text(encoding="utf-8"))
    return {name: [Measured(*each) for each in figures[name]] for name in ROWS if name in figures}


def _table(
    found: dict[str, list[Measured]], before: dict[str, list[Measured]], rtts: Sequence[float]
) -> tuple[list[str], list[list[str]]]:
    earlier = ["before", f"before, {rtts[-1]:g} ms"] if before else []
    headings = ["operation", *earlier, "round trips", *(f"{rtt:g} ms" for rtt in rtts)]
    rows = []
    for name, figures in found.items():
        known = before.get(name)
        was = ["", ""] if known is None else [_number(known[0].trips), _number(known[-1].ms)]
        times = [_number(each.ms) for each in figures] + [""] * (len(rtts) - len(figures))
        rows.append([name, *(was if before else []), _number(figures[0].trips), *times])
    return headings, rows


def _number(figure: float) -> str:
    return "" if not figure else f"{figure:.0f}" if figure >= 10 or figure == round(figure) else f"{figure:.2g}"


if __name__ == "__main__":
    main()
