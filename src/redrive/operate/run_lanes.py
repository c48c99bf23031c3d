"""The steps of a run with their times, a lane for each: for the picture of a run, and for the table of a step. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec

from redrive.engine.lifecycle import State
from redrive.engine.records import AttemptOutcome, JobRecord
from redrive.engine.runs import UNDO_MARK, StepKind, StepOutcome, StepRecord, StepTry, is_far, parent_path
from redrive.operate.shown import Shown
from redrive.stores.operations.managing_runs import Timeline

# Records of decisions, which take no time.
_INSTANT: Final = frozenset({StepKind.GATHER, StepKind.PATCH, StepKind.VALUE, StepKind.CANCEL})

_WAITS: Final = frozenset({StepKind.WAIT, StepKind.EVENT})

_STANDINGS: Final[Mapping[StepOutcome, str]] = {
    StepOutcome.OK: "succeeded",
    StepOutcome.FAILED: "dead",
    StepOutcome.TIMED_OUT: "dead",
    StepOutcome.WAITING: "waiting",
    StepOutcome.RUNNING: "running",
    StepOutcome.DROPPED: "cancelled",
}


class LaneSpan(msgspec.Struct, frozen=True, gc=False):
    """A part of a lane.

    Attributes:
        kind: ``succeeded``, ``retried``, ``dead``, ``lost`` or ``running`` for a try; ``backoff`` for the wait after
            one; ``waits`` for a signal or an emitted value; ``sleeps``; ``child`` for a called run; ``run`` for all of
            a run.
        ended_at: None if it has not ended.
        number: of the try; 0 for others.
        error: of a failed try.
        rule: of a backoff: the rule of the policy that chose it.
    """

    kind: str
    began_at: datetime
    ended_at: datetime | None
    number: int = 0
    error: str | None = None
    rule: str | None = None


class Lane(msgspec.Struct, frozen=True, gc=False):
    """A step of a run, or the run itself.

    Attributes:
        path: of the step; empty for the run itself.
        kind: ``run``, or that of the step, such as ``step``, ``sleep``, ``wait`` or ``call``.
        depth: 0 for the run, 1 for its steps, 2 for those of a branch.
        standing: succeeded, dead, retrying, waiting, running, scheduled or cancelled.
        tries: executions of the function.
        ended_at: None if it has not ended.
        due_at: when it is tried again, or when its wait ends; None without a limit.
        job_id: of a called run.
    """

    path: str
    name: str
    kind: str
    depth: int
    standing: str
    tries: int
    began_at: datetime
    ended_at: datetime | None
    due_at: datetime | None
    job_id: str | None
    spans: tuple[LaneSpan, ...]


def lanes_of(found: Timeline, standing: str, now: datetime, shown: Shown) -> tuple[Lane, ...]:
    """Return the run and its steps in the order of the calls, without the values that are not shown.

    Args:
        found: what is stored of the run.
        standing: of the run, in one word.
        now: the present instant.
        shown: knows the values that errors must not repeat.
    """
    job = found.job
    attempts = tuple(_attempts(found, shown))
    whole = LaneSpan("run", job.enqueued_at, job.finished_at)
    run = Lane(
        "", found.run.workflow, "run", 0, standing, 0, job.enqueued_at, job.finished_at, None, str(job.id),
        (whole, *attempts),
    )  # fmt: skip
    return (run, *_steps(found, now, shown))


def _attempts(found: Timeline, shown: Shown) -> Iterator[LaneSpan]:
    """Yield the executions of the job that have failed, and the present one."""
    for each in found.attempts:
        if each.error or each.outcome is AttemptOutcome.LOST:
            has_ended = each.delay is None and found.job.state is State.DEAD
            kind = "lost" if each.outcome is AttemptOutcome.LOST else "dead" if has_ended else "retried"
            yield LaneSpan(kind, each.started_at, each.finished_at, each.number, shown.clear(each.error))
    if found.job.state is State.RUNNING and found.job.claimed_at is not None:
        yield LaneSpan("running", found.job.claimed_at, None, found.job.attempt)


def _steps(found: Timeline, now: datetime, shown: Shown) -> Iterator[Lane]:
    # The row of a wait that has ended has its end only: it began when the step before it in its branch had ended.
    ends: dict[str, datetime] = {"": _begin(found.job)}
    for row in found.steps:
        branch = row.path.rpartition(".")[0]
        before = ends.get(branch) or ends.get((parent_path(row.path) or "").rpartition(".")[0]) or ends[""]
        if row.kind in _INSTANT or row.name == UNDO_MARK:
            continue
        spans = tuple(_spans(row, min(before, row.at), now, shown))
        last = spans[-1].ended_at
        is_open = row.outcome in (StepOutcome.WAITING, StepOutcome.RUNNING) and not row.is_dropped
        ended = None if is_open or last is None else last
        ends[branch] = max(before, ended or row.at)
        yield Lane(
            path=row.path,
            name=row.name,
            kind=row.kind.value,
            depth=1 + row.path.count(".") // 2,
            standing=_standing(row, now),
            tries=row.tries,
            began_at=spans[0].began_at,
            ended_at=ended,
            due_at=None if row.due_at is None or is_far(row.due_at) else row.due_at,
            job_id=str(row.ref) if row.kind is StepKind.CALL and row.ref is not None else None,
            spans=spans,
        )


def _begin(job: JobRecord) -> datetime:
    return job.started_at or job.enqueued_at


def _standing(row: StepRecord, now: datetime) -> str:
    if row.is_dropped:
        return "cancelled"
    if row.kind is StepKind.SLEEP and row.due_at is not None and row.due_at > now:
        return "scheduled"
    return "retrying" if row.outcome is StepOutcome.WAITING and row.tries else _STANDINGS[row.outcome]


def _spans(row: StepRecord, before: datetime, now: datetime, shown: Shown) -> Iterator[LaneSpan]:
    """Yield the parts of a step: at least one."""
    is_waiting = row.outcome is StepOutcome.WAITING and not row.is_dropped
    if row.kind is StepKind.SLEEP:
        ends_at = row.due_at or row.at
        yield LaneSpan("sleeps", row.at - row.took, None if ends_at > now else ends_at)
    elif row.kind is StepKind.CALL or row.kind in _WAITS:
        error = None if row.error is None else shown.clear(str(row.error))
        kind = "child" if row.kind is StepKind.CALL else "waits"
        # Only the row of a named call, and of those beside it, has the time.
        began = row.at - row.took if is_waiting or row.took else before
        yield LaneSpan(kind, began, None if is_waiting else row.at, error=error)
    else:
        yield from _tries(row, shown)


def _tries(row: StepRecord, shown: Shown) -> Iterator[LaneSpan]:
    failed: tuple[StepTry, ...] = () if row.history is None else row.history.tries
    has_failed = row.outcome in (StepOutcome.FAILED, StepOutcome.WAITING)
    # Only the last tries are kept.
    first = row.tries - len(failed) + (1 if has_failed else 0)
    for place, each in enumerate(failed):
        is_last = place == len(failed) - 1
        kind = "dead" if is_last and row.outcome is StepOutcome.FAILED else "retried"
        yield LaneSpan(kind, each.at - each.took, each.at, first + place, shown.clear(str(each.error)))
        if each.delay is not None:
            waits_now = is_last and row.outcome is StepOutcome.WAITING
            until = None if waits_now else _next(failed, place, row)
            yield LaneSpan("backoff", each.at, until, rule=each.rule)
    if not failed or not has_failed:
        is_running = row.outcome is StepOutcome.RUNNING
        kind = "running" if is_running else _STANDINGS[row.outcome]
        error = None if row.error is None else shown.clear(str(row.error))
        began = row.at if is_running else row.at - row.took
        yield LaneSpan(kind, began, None if is_running else row.at, row.tries, error)


def _next(failed: tuple[StepTry, ...], place: int, row: StepRecord) -> datetime:
    """Return when the try after a failed one began."""
    if place + 1 < len(failed):
        return failed[place + 1].at - failed[place + 1].took
    return row.at - row.took
