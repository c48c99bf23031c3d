"""Measures one subject once, in the interpreter that has its packages; `benchmarks.queue` starts this.

It prints one line of JSON. For `benchmarks.singles` it reads amounts of jobs, one in each line, enqueues so many, and
prints how many seconds that took.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.measure import Sizes, fresh_subject, measure
from benchmarks.place import Server
from benchmarks.subjects import SUBJECTS, Subject, subject

__all__ = ["main", "take_turns"]


def take_turns(subject: Subject, home: Path, server: Server | None, database: str) -> None:
    """Enqueue as many jobs as each line of the standard input says.

    Args:
        subject: what.
        home: a folder on the disk that is meant.
        server: PostgreSQL, where the subject wants it.
        database: a name on the server.
    """
    with fresh_subject(subject, home, server, database):
        for line in sys.stdin:
            count = int(line)
            began = time.monotonic()
            for _ in range(count):
                subject.enqueue(0.0)
            print("took", time.monotonic() - began, flush=True)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.single")
    parser.add_argument("store", choices=sorted(SUBJECTS))
    parser.add_argument("subject")
    parser.add_argument("--home", type=Path, required=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--sizes", type=json.loads)
    what.add_argument("--turns", metavar="DATABASE")
    parser.add_argument("--server", type=json.loads)
    given = parser.parse_args()
    chosen = subject(given.store, given.subject)
    server = Server(**given.server) if given.server else None
    if given.turns:
        take_turns(chosen, given.home, server, given.turns)
        return
    figures = measure(chosen, Sizes(**given.sizes), given.home, server)
    print(json.dumps({"kept": chosen.kept, "figures": asdict(figures)}))


if __name__ == "__main__":
    main()
