"""``python -m benchmarks [--json] [--rounds N]``: everything, part after part, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

__all__ = ["PARTS", "main"]

PARTS = tuple(
    f"benchmarks.{part}" for part in ("inprocess", "schedule", "queue", "singles", "start", "flows", "workers")
)


def main() -> int:
    """Run all parts with the arguments of this process.

    Returns:
        The number of parts that failed.
    """
    codes = [subprocess.run([sys.executable, "-m", part, *sys.argv[1:]], check=False).returncode for part in PARTS]
    return sum(code != 0 for code in codes)


if __name__ == "__main__":
    sys.exit(main())
