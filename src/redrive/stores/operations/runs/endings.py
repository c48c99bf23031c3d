"""Ends of runs without their code: after the loss of a worker, or by an operator. PURE.

A run takes its finished steps back before it ends, and only its code has the undos. So an operation that would end a
run with finished steps writes the row that lets its next pass begin with them; see `redrive.engine.undoing`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.engine.lifecycle import State
from redrive.engine.origin import Kind
from redrive.engine.outcome import Cancelled, Expired, Failed, Lost, Outcome, Settlement
from redrive.engine.records import Claim, JobRecord
from redrive.engine.runs import UNDO_MARK, StepError, StepRecord
from redrive.engine.settle import decide
from redrive.engine.steps import NewStep
from redrive.engine.undoing import (
    die_undoing,
    given_up,
    lost_undoing,
    mark_of,
    new_mark,
    not_undone,
    standing,
    undo_first,
)
from redrive.stores.operations.runs.steps import columns
from redrive.stores.query import Query, Statements

_OF_RUN = f"{Kind.RUN}:"

_ENDED = frozenset({State.DEAD, State.CANCELLED})


def is_run(job: Claim | JobRecord) -> bool:
    """Return True if a job executes a run."""
    return job.origin is not None and job.origin.startswith(_OF_RUN)


def steps_of(ids: Iterable[int]) -> Statements[dict[int, list[StepRecord]]]:
    """Return the recorded steps of runs by their jobs."""
    by_run: dict[int, list[StepRecord]] = defaultdict(list)
    rows: Sequence[StepRecord] = yield Query("steps_of", {"ids": sorted(ids)}, into=StepRecord)
    for row in rows:
        by_run[row.run_id].append(row)
    return by_run


def undo_before_end(
    ends: Sequence[tuple[Claim, Outcome, Settlement]], at: datetime
) -> Statements[list[tuple[Claim, Settlement]]]:
    """Return settlements, changed for the runs that would end and have steps to take back."""
    ids = [claim.id for claim, outcome, each in ends if each.state in _ENDED and is_run(claim) and not _undone(outcome)]
    if not ids:
        return [(claim, each) for claim, _, each in ends]
    by_run, chosen = (yield from steps_of(ids)), set(ids)
    return [
        (claim, _before_end(claim, outcome, each, by_run[claim.id], at) if claim.id in chosen else each)
        for claim, outcome, each in ends
    ]


def _undone(outcome: Outcome) -> bool:
    return isinstance(outcome, Failed | Cancelled | Expired) and outcome.undone


def _before_end(
    claim: Claim, outcome: Outcome, dead: Settlement, rows: Sequence[StepRecord], at: datetime
) -> Settlement:
    error = _error(dead, outcome)
    if mark_of(rows) is not None:
        return die_undoing(dead, rows, error)
    return undo_first(claim, dead, error, at) if standing(rows) else dead


def _error(dead: Settlement, outcome: Outcome) -> StepError:
    types = outcome.failure.types if isinstance(outcome, Failed) else ()
    if dead.state is State.CANCELLED:
        return StepError((), dead.note or "", "CANCELLED")
    return StepError(types, dead.error or dead.note or "", dead.reason or "ERROR")


# A run counts its crashes anew after each row: its steps may be many, and each may kill its worker once.
def lost(claims: Sequence[Claim], whys: Sequence[str], at: datetime) -> Statements[list[tuple[Claim, Settlement]]]:
    """Decide the ends of runs with workers that were lost."""
    by_run = (yield from steps_of(claim.id for claim in claims)) if claims else {}
    decided = []
    for claim, why in zip(claims, whys, strict=True):
        rows = by_run[claim.id]
        began = any(row.lease_id == claim.lease_id for row in rows)
        known = msgspec.structs.replace(claim, crashes=0) if began else claim
        end = Lost(why)
        settlement = decide(known, end, at, 0.0)
        if settlement.state is State.DEAD:
            error = _error(settlement, end)
            if mark_of(rows) is not None:
                settlement = lost_undoing(known, settlement, rows, error, at)
            else:
                settlement = _before_end(known, end, settlement, rows, at)
        decided.append((known, settlement))
    return decided


# ----------------------------------------------------------------------------------------------- ended by an operator


class RunStanding(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``runs_standing``.

    Attributes:
        cancel_at: when its cancellation was requested.
        has_steps: True if it has finished steps.
        undoing: True if it takes its steps back, or will do so in its next pass.
    """

    job_id: int
    cancel_at: datetime | None
    has_steps: bool
    undoing: bool


def standing_of(ids: Iterable[int]) -> Statements[dict[int, RunStanding]]:
    """Return what the end of these runs depends on, by their jobs."""
    rows: Sequence[RunStanding] = yield Query(
        "runs_standing", {"ids": sorted(ids), "mark": UNDO_MARK}, into=RunStanding
    )
    return {row.job_id: row for row in rows}


def undo_next(job: JobRecord, at: datetime, why: str) -> Statements[None]:
    """Let the next pass of a run begin with its undos, whatever its body does now."""
    yield from _put(job.id, [new_mark(StepError((), why, "CANCELLED"), at)], at)


def give_up(job: JobRecord, at: datetime, why: str) -> Statements[str]:
    """Record that the undos that are left will not be tried; return the reason of the end, with their names."""
    rows = (yield from steps_of([job.id]))[job.id]
    text = not_undone(rows)
    error = StepError((), f"the run was cancelled again before: {why}", "CANCELLED")
    yield from _put(job.id, given_up(rows, error), at)
    return f"{why}; {text}" if text else why


def _put(run_id: int, ends: Sequence[NewStep], at: datetime) -> Statements[None]:
    rows = [{**columns(each), "run_id": run_id, "now": at, "took": timedelta(0)} for each in ends]
    if rows:
        yield Query("undos_put", many=rows)
