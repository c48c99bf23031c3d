"""Calls in process: ``python -m benchmarks.inprocess [--json]``.

The cost of a retry without waits: redrive beside its peers, a loop written by hand and no retry at all. Three attempts,
``ValueError``, no delay. All subjects run in one process, in turns, round after round; each ratio is taken within a
round, where the machine is equally busy for both, and the median of the rounds is reported.

* *success*: the call returns at once.
* *recovery*: two failures, then success. Between two attempts of a coroutine function the event loop has a turn.
* *start-up*: the time that a fresh interpreter takes to import the library, decorate a function and call it once, minus
  the time of an interpreter that does nothing. All interpreters read cached bytecode, as those of an installed package
  do.

The loop by hand knows its function, which takes no arguments. Each library is used as its documentation shows. The time
of an empty loop is measured in each round and subtracted from all figures.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import backoff
import msgspec
import stamina
import tenacity
from rich.console import Console
from rich.table import Table

import redrive

__all__ = ["InProcessReport", "RatioGoal", "main", "run"]

UNITS = {"success": "ns", "async success": "ns", "recovery": "ns", "async recovery": "ns", "start-up": "ms"}
BARE, HAND = "bare call", "loop by hand"

DECORATORS: dict[str, Callable[[Any], Any]] = {
    "redrive": redrive.retry(on=ValueError, attempts=3, backoff=redrive.Backoff.constant(0)),
    "tenacity": tenacity.retry(
        stop=tenacity.stop_after_attempt(3),
        wait=tenacity.wait_none(),
        retry=tenacity.retry_if_exception_type(ValueError),
        reraise=True,
    ),
    "stamina": stamina.retry(on=ValueError, attempts=3, timeout=None, wait_initial=0, wait_max=0, wait_jitter=0),
    "backoff": backoff.on_exception(backoff.constant, ValueError, max_tries=3, interval=0, jitter=None, logger=None),
}
STARTUP = {
    "redrive": "from redrive import retry; retry('2 100ms 2s', on=OSError)(lambda: None)()",
    "tenacity": (
        "from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter as wait; "
        "retry(stop=stop_after_attempt(3), wait=wait(0.1, 2), retry=retry_if_exception_type(OSError))(lambda: None)()"
    ),
    "stamina": "from stamina import retry; retry(on=OSError, attempts=3)(lambda: None)()",
    "backoff": "import backoff; backoff.on_exception(backoff.expo, OSError, max_tries=3)(lambda: None)()",
}


@dataclass(frozen=True, slots=True)
class RatioGoal:
    """A bound of a ratio, with the measured ratio.

    Attributes:
        what: the two figures.
        bound: the bound.
        at_least: True for a lower bound, False for an upper bound.
        ratio: the median over the rounds.
        lowest: the lowest ratio of a round.
        highest: the highest.
    """

    what: str
    bound: float
    at_least: bool
    ratio: float
    lowest: float
    highest: float

    @property
    def reached(self) -> bool:
        """True if the ratio keeps the bound."""
        return self.ratio >= self.bound if self.at_least else self.ratio <= self.bound


@dataclass(frozen=True, slots=True)
class InProcessReport:
    """The result of a run.

    Attributes:
        calls: successes in a row; a tenth as many recoveries.
        rounds: number of rounds.
        python: the version of the interpreter.
        medians: by measure and subject, in the units of `UNITS`.
        goals: the goals with the measured ratios.
    """

    calls: int
    rounds: int
    python: str
    medians: dict[str, dict[str, float]]
    goals: list[RatioGoal]


def by_hand(function: Any) -> Any:
    """Return a loop as programmers write it."""

    def loop() -> Any:
        for attempt in range(3):
            try:
                return function()
            except ValueError:
                if attempt == 2:
                    raise
        return None

    return loop


def by_hand_async(function: Any) -> Any:
    """Return the loop with ``await``."""

    async def loop() -> Any:
        for attempt in range(3):
            try:
                return await function()
            except ValueError:
                if attempt == 2:
                    raise
                # A function that fails without waiting would keep the event loop from everything else.
                await asyncio.sleep(0)
        return None

    return loop


def good() -> None:
    """Succeed."""


async def agood() -> None:
    """Succeed."""


def flaky() -> Any:
    """Return a function of which every third call succeeds."""
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        if calls % 3:
            raise ValueError("no answer")

    return call


def aflaky() -> Any:
    """Return a coroutine function of which every third call succeeds."""
    calls = 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        if calls % 3:
            raise ValueError("no answer")

    return call


def nanoseconds(function: Any, calls: int) -> float:
    """Return the time of one call, including the loop around it."""
    turns = range(calls)
    began = time.perf_counter_ns()
    for _ in turns:
        function()
    return (time.perf_counter_ns() - began) / calls


def ananoseconds(function: Any, calls: int) -> float:
    """Return the time of one awaited call, without the start of the event loop."""

    async def main() -> float:
        turns = range(calls)
        began = time.perf_counter_ns()
        for _ in turns:
            await function()
        return (time.perf_counter_ns() - began) / calls

    return asyncio.run(main())


def _empty(calls: int) -> float:
    """Return the nanoseconds of one iteration of an empty loop."""
    turns = range(calls)
    began = time.perf_counter_ns()
    for _ in turns:
        pass
    return (time.perf_counter_ns() - began) / calls


def _in_turns(measure: Any, calls: int, subjects: dict[str, Any], rounds: int) -> list[dict[str, float]]:
    """Return the figures of each round, after one round that is not counted."""
    measured = []
    for _ in range(rounds + 1):
        gc.collect()
        empty = _empty(calls)
        measured.append({name: measure(function, calls) - empty for name, function in subjects.items()})
    return measured[1:]


def _startup(rounds: int) -> list[dict[str, float]]:
    """Return the milliseconds that an interpreter takes longer than one that does nothing."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = cache
        for code in STARTUP.values():
            _interpreter(code, environment)  # writes the bytecode
        measured = []
        for _ in range(rounds):
            nothing = _interpreter("pass", environment)
            measured.append({name: _interpreter(code, environment) - nothing for name, code in STARTUP.items()})
        return measured


def _interpreter(code: str, environment: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return (time.perf_counter() - began) * 1e3


def run(calls: int, rounds: int) -> InProcessReport:
    """Measure all subjects: ``calls`` successes in a row, a tenth as many recoveries, in each of ``rounds`` rounds."""
    logging.disable()  # some peers log each retry
    decorated = DECORATORS.items()
    success = {BARE: good, HAND: by_hand(good)} | {name: each(good) for name, each in decorated}
    asuccess = {BARE: agood, HAND: by_hand_async(agood)} | {name: each(agood) for name, each in decorated}
    recovery = {HAND: by_hand(flaky())} | {name: each(flaky()) for name, each in decorated}
    arecovery = {HAND: by_hand_async(aflaky())} | {name: each(aflaky()) for name, each in decorated}
    measured = {
        "success": _in_turns(nanoseconds, calls, success, rounds),
        "async success": _in_turns(ananoseconds, calls, asuccess, rounds),
        "recovery": _in_turns(nanoseconds, calls // 10, recovery, rounds),
        "async recovery": _in_turns(ananoseconds, calls // 10, arecovery, rounds),
        "start-up": _startup(rounds),
    }
    medians = {
        measure: {name: statistics.median(each[name] for each in figures) for name in figures[0]}
        for measure, figures in measured.items()
    }
    return InProcessReport(calls, rounds, sys.version.split()[0], medians, _goals(measured))


def _goals(measured: dict[str, list[dict[str, float]]]) -> list[RatioGoal]:
    """Return the goals; docs/explanation/architecture.md has them, too."""
    goals = []
    for colour in ("", "async "):
        success, recovery = measured[f"{colour}success"], measured[f"{colour}recovery"]
        goals.append(_goal(f"{colour}success: redrive / {HAND}", success, _of_loop, at_most=1.1))
        goals.append(_goal(f"{colour}recovery: redrive / {HAND}", recovery, _of_loop, at_most=3.0))
        for peer in ("tenacity", "stamina"):
            what = f"{colour}success: {peer} adds / redrive adds"
            goals.append(_goal(what, success, partial(_added_by, peer), at_least=50.0))
    startup = measured["start-up"]
    goals.append(
        _goal("start-up: redrive / tenacity", startup, lambda each: each["redrive"] / each["tenacity"], at_most=1.0)
    )
    return goals


def _of_loop(figures: dict[str, float]) -> float:
    return figures["redrive"] / figures[HAND]


def _added_by(peer: str, figures: dict[str, float]) -> float:
    """Return the ratio of the times that a peer and redrive add to the bare call."""
    bare = figures[BARE]
    return (figures[peer] - bare) / (figures["redrive"] - bare)


def _goal(
    what: str,
    rounds: list[dict[str, float]],
    ratio: Callable[[dict[str, float]], float],
    *,
    at_most: float = 0.0,
    at_least: float = 0.0,
) -> RatioGoal:
    ratios = [ratio(each) for each in rounds]
    bound, measured = at_least or at_most, statistics.median(ratios)
    return RatioGoal(what, bound, bool(at_least), measured, min(ratios), max(ratios))


def _show(report: InProcessReport) -> None:
    console = Console(width=130)
    table = Table(title=f"in process, Python {report.python}: medians of {report.rounds} rounds")
    table.add_column("subject")
    for measure, unit in UNITS.items():
        table.add_column(f"{measure}\n{unit}", justify="right")
    for name in (BARE, HAND, *DECORATORS):
        cells = [report.medians[measure].get(name) for measure in UNITS]
        table.add_row(name, *["" if cell is None else f"{cell:,.1f}" for cell in cells])
    console.print(table)
    for goal in report.goals:
        bound = f"{'at least' if goal.at_least else 'at most'} {goal.bound:g}"
        verdict = "reached" if goal.reached else "not reached"
        rounds = f"(rounds: {goal.lowest:.3g} to {goal.highest:.3g})"
        console.print(f"{goal.what}: {goal.ratio:.3g} {rounds}, goal {bound}: {verdict}", highlight=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line; ``arguments`` are those of the process by default."""
    parser = argparse.ArgumentParser(prog="benchmarks.inprocess", description="Calls in process, side by side.")
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--calls", type=int, default=10_000)
    chosen = parser.parse_args(arguments)
    report = run(chosen.calls, chosen.rounds)
    if chosen.json:
        print(msgspec.json.encode(report).decode())
    else:
        _show(report)


if __name__ == "__main__":
    main()
