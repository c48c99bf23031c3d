"""Schedules and refreshes: ``python -m benchmarks.schedule [--json] [--rounds N]``.

* *next*: what comes next, asked at random instants of the coming year, of a rule that starts today and of the same one
  that has started ten years ago. A ratio is taken within each round, where both met the same weather, and then the
  median. Each question is a search: a schedule that was asked before remembers its answers, and is not asked that way.
* *moves*: a start and a success, for thousands of keys that share a policy. In a *batch* all have the same present, as
  where one process starts what is due; *scattered* they have any instant of a day.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.goals import Goal, Met
from redrive.schedule import RecurrenceRule, RefreshPolicy, RefreshState, Schedule, refresh

__all__ = ["MOVES", "RULES", "ScheduleReport", "main", "run"]

RULES = (
    "FREQ=YEARLY",
    "FREQ=YEARLY;BYMONTH=1,7;BYMONTHDAY=1,15",
    "FREQ=YEARLY;BYDAY=20MO",
    "FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO",
    "FREQ=YEARLY;INTERVAL=2;BYYEARDAY=1,100,-1",
    "FREQ=MONTHLY",
    "FREQ=MONTHLY;BYMONTHDAY=1,-1",
    "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
    "FREQ=MONTHLY;INTERVAL=3;BYDAY=1MO",
    "FREQ=WEEKLY",
    "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR",
    "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=9;BYMINUTE=30",
    "FREQ=DAILY",
    "FREQ=DAILY;INTERVAL=3;BYHOUR=6,16",
    "FREQ=DAILY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=9,10,11,12,13,14,15,16;BYMINUTE=0,15,30,45",
    "FREQ=DAILY;BYMONTH=3;BYMONTHDAY=-1",
    "FREQ=DAILY;COUNT=20000",
    "FREQ=HOURLY",
    "FREQ=HOURLY;INTERVAL=5;BYDAY=MO",
    "FREQ=MINUTELY",
    "FREQ=MINUTELY;INTERVAL=7;BYHOUR=3;BYMINUTE=15",
    "FREQ=MINUTELY;INTERVAL=30;BYDAY=SA,SU",
    "FREQ=SECONDLY",
    "FREQ=SECONDLY;INTERVAL=90;BYHOUR=1;BYMINUTE=10",
    "FREQ=SECONDLY;INTERVAL=7;BYSECOND=0,30",
)
PLACE = "Europe/Kyiv"
TODAY = datetime(2026, 11, 22, 9)  # noqa: DTZ001 - naive is the wall clock
LONG_AGO = TODAY.replace(year=TODAY.year - 10)
OLD, NEW = "next, ten years", "next, today"

MOVES = {
    "twice per day": "Refresh twice per day at 6 AM and 4 PM in Europe/Kyiv; allow 1 hour; retry after 1 hour",
    "every 2 hours": "Refresh every 2 hours; allow 1 hour; retry immediately, then after 1 minute, 5 minutes",
    "by cron": 'Refresh by cron "*/5 * * * *"; allow 10 minutes; retry after 1 minute; keep retrying until it succeeds',
}
BATCH, SCATTERED = "start + success, batch", "start + success, scattered"

Figures = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class ScheduleReport:
    """What a run answers.

    Attributes:
        questions: that each rule was asked in a round; ten times as many moves.
        rounds: how often.
        medians: microseconds, by subject and figure.
        goals: what became of them.
    """

    questions: int
    rounds: int
    medians: Figures
    goals: list[Met]


def run(questions: int, rounds: int) -> ScheduleReport:
    """Measure everything.

    Args:
        questions: that each rule is asked in a round.
        rounds: how often; one more before them warms up.

    Returns:
        The report.
    """
    rules = {each: (_starting(LONG_AGO, each), _starting(TODAY, each)) for each in RULES}
    policies = {name: RefreshPolicy.parse(each) for name, each in MOVES.items()}
    measured = [_round(number, questions, rules, policies) for number in range(rounds + 1)][1:]
    medians = {
        subject: {figure: statistics.median(each[subject][figure] for each in measured) for figure in figures}
        for subject, figures in measured[0].items()
    }
    goals = [_met(Goal(OLD, NEW, at_most=3.0, of=each), measured) for each in RULES]
    goals += [_met(Goal(BATCH, at_most=25.0, of=each), measured) for each in MOVES]
    return ScheduleReport(questions, rounds, medians, goals)


def _starting(start: datetime, rule: str) -> Schedule:
    return Schedule(start=start, rules=(RecurrenceRule.parse(rule),), tz=PLACE)


def _round(
    seed: int, questions: int, rules: dict[str, tuple[Schedule, Schedule]], policies: dict[str, RefreshPolicy]
) -> Figures:
    dice = random.Random(seed)
    begin = TODAY.replace(tzinfo=UTC)
    year = [begin + timedelta(days=365) * dice.random() for _ in range(questions)]
    day = [begin + timedelta(days=1) * dice.random() for _ in range(10 * questions)]
    gc.collect()
    found = {}
    for rule, (old, new) in rules.items():
        found[rule] = {OLD: _microseconds(_finder(old), year), NEW: _microseconds(_finder(new), year)}
    for name, policy in policies.items():
        found[name] = {BATCH: _microseconds(_mover(policy), [begin] * len(day))}
        found[name] |= {SCATTERED: _microseconds(_mover(policy), day)}
    return found


def _finder(schedule: Schedule) -> Callable[[datetime], object]:
    """Return a function that finds the next occurrence."""
    return lambda at: next(schedule.since(at), None)


def _mover(policy: RefreshPolicy) -> Callable[[datetime], object]:
    """Return a function that makes a start and a success of a due key."""

    def move(now: datetime) -> object:
        started = refresh.start(policy, RefreshState(refresh_at=now), now=now, uid="u", sample=0.5)
        return refresh.success(policy, started.state, now=now, uid="u", sample=0.5)

    return move


def _microseconds(ask: Callable[[datetime], object], instants: Sequence[datetime]) -> float:
    """Of one question, the loop around it included."""
    began = time.perf_counter_ns()
    for each in instants:
        ask(each)
    return (time.perf_counter_ns() - began) / len(instants) / 1e3


def _met(goal: Goal, measured: Sequence[Figures]) -> Met:
    values = []
    for each in measured:
        figures = each[goal.of]
        values.append(figures[goal.figure] / (figures[goal.against] if goal.against else 1.0))
    return Met(goal, statistics.median(values), min(values), max(values))


def _show(report: ScheduleReport) -> None:
    console = Console(width=150)
    table = Table(title=f"medians of {report.rounds} rounds, microseconds")
    for heading in ("subject", OLD, NEW, BATCH, SCATTERED):
        table.add_column(heading, justify="left" if heading == "subject" else "right")
    for subject, figures in report.medians.items():
        cells = [f"{figures[each]:,.1f}" if each in figures else "" for each in (OLD, NEW, BATCH, SCATTERED)]
        table.add_row(subject, *cells)
    console.print(table)
    for met in report.goals:
        verdict = "reached" if met.reached else "not reached"
        rounds = f"(rounds: {met.lowest:.3g} to {met.highest:.3g})"
        console.print(f"{met.goal}: {met.value:.3g} {rounds}, {met.goal.wanted}: {verdict}", highlight=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line.

    Args:
        arguments: those of the process by default.
    """
    parser = argparse.ArgumentParser(prog="benchmarks.schedule", description="Schedules and the moves of refreshes.")
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--questions", type=int, default=200)
    chosen = parser.parse_args(arguments)
    report = run(chosen.questions, chosen.rounds)
    if chosen.json:
        print(msgspec.json.encode(report).decode())
    else:
        _show(report)


if __name__ == "__main__":
    main()
