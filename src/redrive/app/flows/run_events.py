"""What has happened in a run: its steps, tries, waits, signals and attempts as one list by time. PURE.

The command line and the dashboard show this list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from redrive.engine.explain import span
from redrive.engine.records import AttemptRecord
from redrive.engine.runs import UNDO_MARK, SignalRecord, StepKind, StepOutcome, StepRecord, StepTry
from redrive.stores.operations.managing_runs import Timeline


class RunEventKind(StrEnum):
    """The kind of an event of a run."""

    TRY = "try"
    """A failed try of a step that was tried again."""
    STEP = "step"
    """A recorded step, or a wait."""
    ATTEMPT = "attempt"
    """An execution of the job."""
    SIGNAL = "signal"
    """A signal that was sent to the run."""


class RunEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of a run.

    Attributes:
        path: of the step; empty for what belongs to no step.
        text: what has happened, without the result.
        result: JSON; None without one.
        failed: True if something failed.
        child_id: the job of the run that the step has called.
    """

    at: datetime
    kind: RunEventKind
    path: str
    text: str
    result: bytes | None = None
    failed: bool = False
    child_id: int | None = None


def events_of(found: Timeline) -> tuple[RunEvent, ...]:
    """Return the events of a run, oldest first."""
    events = [*_of_steps(found.steps), *map(_signal, found.signals), *map(_attempt, found.attempts)]
    return tuple(sorted(events, key=_order))


# At one instant, tries come before their step, and an attempt after the steps that it has executed.
def _order(event: RunEvent) -> tuple[datetime, int]:
    return event.at, (RunEventKind.SIGNAL, RunEventKind.TRY, RunEventKind.STEP, RunEventKind.ATTEMPT).index(event.kind)


def _of_steps(rows: Sequence[StepRecord]) -> Iterator[RunEvent]:
    for row in rows:
        for number, tried in enumerate(_tries(row), 1):
            yield _try(row, tried, number)
        yield _step(row)


def _tries(row: StepRecord) -> Sequence[StepTry]:
    """Return the failed tries of a step but the one that the event of the step shows."""
    tries = () if row.history is None else row.history.tries
    return tries[:-1] if row.outcome in (StepOutcome.FAILED, StepOutcome.WAITING) else tries


def _try(row: StepRecord, tried: StepTry, number: int) -> RunEvent:
    delay = "" if tried.delay is None else f", next in {span(tried.delay)}"
    text = f"{_name(row)}: try {number} failed: {tried.error}{delay}"
    return RunEvent(tried.at, RunEventKind.TRY, row.path, text, failed=True)


def _step(row: StepRecord) -> RunEvent:
    if row.kind is StepKind.CANCEL:
        # The row of a delivery has the path of the step that it replaced behind its name.
        path = row.path.removeprefix(row.name).strip()
        text = "cancelled here" if path else "the cancellation waits for a shield or for undos"
        return RunEvent(row.at, RunEventKind.STEP, path, text)
    if row.name == UNDO_MARK:
        return RunEvent(row.at, RunEventKind.STEP, "", f"undos begin: {'' if row.error is None else row.error.message}")
    has_failed = row.outcome is StepOutcome.FAILED or (row.outcome is StepOutcome.WAITING and row.tries > 0)
    return RunEvent(
        row.at,
        RunEventKind.STEP,
        row.path,
        f"{_name(row)}: {_outcome(row)}",
        result=row.result if row.outcome is StepOutcome.OK and row.kind is not StepKind.SLEEP else None,
        failed=has_failed,
        child_id=row.ref if row.kind is StepKind.CALL else None,
    )


def _name(row: StepRecord) -> str:
    return row.name if row.kind in (StepKind.STEP, StepKind.SLEEP) else f"{row.kind} {row.name}"


def _outcome(row: StepRecord) -> str:
    """Return what became of a step."""
    due = "" if row.due_at is None else f" until {row.due_at:%Y-%m-%d %H:%M:%S} UTC"
    error = "" if row.error is None else f": {row.error}"
    match row.outcome:
        case StepOutcome.OK | StepOutcome.WAITING if row.kind is StepKind.SLEEP:
            return f"sleeps{due}"
        case StepOutcome.OK:
            return f"ok at try {row.tries}" if row.tries > 1 else "ok"
        case _ if row.is_dropped:
            return f"cancelled{error}"
        case StepOutcome.WAITING if row.tries:
            return f"try {row.tries} failed{error}; waits{due}"
        case StepOutcome.FAILED:
            return f"failed for good{error}"
        case StepOutcome.TIMED_OUT:
            return "timed out"
        case _:
            return f"{row.outcome}{due}"


def _signal(each: SignalRecord) -> RunEvent:
    key = "" if each.key is None else f" with key {each.key}"
    text = f"signal {each.name}{key} was sent, {'not read yet' if each.path is None else f'read by step {each.path}'}"
    return RunEvent(each.at, RunEventKind.SIGNAL, "", text, result=each.payload)


def _attempt(each: AttemptRecord) -> RunEvent:
    error = f": {each.error}" if each.error else ""
    text = f"attempt {each.number}: {each.outcome}{error}"
    return RunEvent(each.finished_at, RunEventKind.ATTEMPT, "", text, failed=bool(each.error))
