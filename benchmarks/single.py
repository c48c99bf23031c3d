"""Measures one subject once, in the interpreter that has its packages; `benchmarks.queue` starts this.

It prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.measure import Sizes, measure
from benchmarks.place import Server
from benchmarks.subjects import SUBJECTS, subject

__all__ = ["main"]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.single")
    parser.add_argument("store", choices=sorted(SUBJECTS))
    parser.add_argument("subject")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--sizes", type=json.loads, required=True)
    parser.add_argument("--server", type=json.loads)
    given = parser.parse_args()
    chosen = subject(given.store, given.subject)
    figures = measure(chosen, Sizes(**given.sizes), given.home, Server(**given.server) if given.server else None)
    print(json.dumps({"kept": chosen.kept, "figures": asdict(figures)}))


if __name__ == "__main__":
    main()
