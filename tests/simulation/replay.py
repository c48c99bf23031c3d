"""Runs seeds from the command line, and shrinks those that fail.

``python -m tests.simulation.replay 17`` replays seed 17 of the default profile and prints all that happens.
``python -m tests.simulation.replay 0 --until 500 --profile clocks`` runs 500 seeds and prints which of them fail.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.simulation.database import template
from tests.simulation.faults import PROFILES, Plan, make
from tests.simulation.fleet import simulate
from tests.simulation.invariants import Violation
from tests.simulation.shrink import shrink

__all__ = ["explain", "memory_folder"]


def memory_folder() -> str | None:
    """Return a folder in memory, where the system has one: stores in files are small, and many."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - the folder is made by tempfile


def explain(plan: Plan, image: bytes, folder: Path) -> str:
    """Shrink a plan that fails, and write what is left, with the command that replays it.

    Args:
        plan: fails.
        image: the empty database.
        folder: for stores in files.

    Returns:
        A few lines.
    """

    def run(candidate: Plan) -> Violation | None:
        return simulate(candidate, image, folder).violation

    smallest, violation = shrink(plan, run)
    command = f"python -m tests.simulation.replay {plan.seed} --profile {plan.profile}"
    return f"{violation}\n{smallest}\nreplay: {command}"


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--until", type=int, help="run all seeds from the first up to this one")
    parser.add_argument("--profile", choices=PROFILES, default="default")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=memory_folder()) as name:
        folder = Path(name)
        image = template(folder)
        if chosen.until is None:
            report = simulate(make(chosen.seed, chosen.profile), image, folder, verbose=True)
            print(report.violation or f"all invariants hold; trace {report.trace}")
        failed = 0
        for seed in range(chosen.seed, chosen.until or chosen.seed + 1):
            plan = make(seed, chosen.profile)
            violation = simulate(plan, image, folder).violation
            if violation is not None:
                failed += 1
                print(explain(plan, image, folder) if chosen.until is None else f"seed {seed}: {violation}")
        print(f"{failed} failed")


if __name__ == "__main__":
    main()
