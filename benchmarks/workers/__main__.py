"""``python -m benchmarks.workers [--rounds N] [--only PART or SUBJECT] [--json] [--docs]``."""

from __future__ import annotations

from benchmarks.flows import __main__ as command
from benchmarks.workers.parts import PARTS

if __name__ == "__main__":
    command.main(parts=PARTS, prog="benchmarks.workers", description="Concurrency, many workers and idle workers.")
