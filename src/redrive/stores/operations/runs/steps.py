"""Reads what is stored of claimed runs, and writes the steps of running ones. PURE.

Each row is written by one statement, which checks the lease of the run and holds it by a share lock until the commit: a
row of an earlier holder can so not appear behind the present one. The statement answers the rows that it has written.
The others are looked up once more, and there are three answers (`redrive.engine.steps.StepsAnswer`): a row with the
lease of the caller was written by a commit with a lost reply; a row of a run that another transaction has locked is
written later; and in all other cases the lease is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from redrive.engine.origin import Kind
from redrive.engine.outcome import RunChange, Transition
from redrive.engine.records import Claim
from redrive.engine.runs import (
    CHILD_SIGNAL,
    FAR,
    ChildEnd,
    EmitRecord,
    RunFlags,
    RunRecord,
    RunState,
    SignalRecord,
    StepKind,
    StepOutcome,
    StepRecord,
)
from redrive.engine.steps import StepBatch, StepsAnswer, StepsWritten, resolve
from redrive.stores.query import Query, Steps

_OF_RUN = f"{Kind.RUN}:"


class _ClaimedRun(RunRecord, frozen=True, gc=False):
    """A row of the query ``runs_claimed``."""

    has_steps: bool = False
    has_signals: bool = False
    has_waits: bool = False


class _Emitted(EmitRecord, frozen=True, gc=False):
    """A row of the query ``emits_for``."""

    run_id: int = 0


class _Ended(ChildEnd, frozen=True, gc=False):
    """A row of the query ``children_ended``."""

    run_id: int = 0


class _Asked(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``steps_asked``."""

    run_id: int
    path: str
    lease_id: int
    is_current: bool
    recorded_by: int | None
    outcome: StepOutcome | None
    at: datetime | None
    due_at: datetime | None


# ------------------------------------------------------------------------------------------------------------- reading


def states(claims: Iterable[Claim], at: datetime) -> Steps[dict[int, RunState]]:
    """Return what is stored of the runs among these claims, by their jobs."""
    ids = [each.id for each in claims if each.origin is not None and each.origin.startswith(_OF_RUN)]
    if not ids:
        return {}
    rows: Sequence[_ClaimedRun] = yield Query("runs_claimed", {"ids": ids, "child": CHILD_SIGNAL}, into=_ClaimedRun)
    with_steps = [row.job_id for row in rows if row.has_steps]
    steps = (yield from _steps_of(with_steps)) if with_steps else {}
    found = yield from arrivals(
        [row.job_id for row in rows if row.has_signals], [row.job_id for row in rows if row.has_waits]
    )
    return {
        row.job_id: RunState(row, row.flags(at), steps.get(row.job_id, ()), *found.get(row.job_id, ((), (), ())))
        for row in rows
    }


def _steps_of(ids: Sequence[int]) -> Steps[dict[int, tuple[StepRecord, ...]]]:
    rows: Sequence[StepRecord] = yield Query("steps_of", {"ids": list(ids)}, into=StepRecord)
    by_run: dict[int, list[StepRecord]] = defaultdict(list)
    for row in rows:
        by_run[row.run_id].append(row)
    return {number: tuple(each) for number, each in by_run.items()}


Arrivals = tuple[tuple[SignalRecord, ...], tuple[EmitRecord, ...], tuple[ChildEnd, ...]]


def arrivals(with_signals: Sequence[int], with_waits: Sequence[int]) -> Steps[dict[int, Arrivals]]:
    """Return what has arrived for runs: unread signals of the first ones, values and ends of children of the others."""
    signals: dict[int, list[SignalRecord]] = defaultdict(list)
    emits: dict[int, list[EmitRecord]] = defaultdict(list)
    ends: dict[int, list[ChildEnd]] = defaultdict(list)
    if with_signals:
        sent: Sequence[SignalRecord] = yield Query(
            "signals_of", {"ids": list(with_signals), "unread": True, "child": CHILD_SIGNAL}, into=SignalRecord
        )
        for signal in sent:
            signals[signal.run_id].append(signal)
    if with_waits:
        waits = {"ids": list(with_waits)}
        emitted: Sequence[_Emitted] = yield Query("emits_for", waits, into=_Emitted)
        for emit in emitted:
            emits[emit.run_id].append(emit)
        ended: Sequence[_Ended] = yield Query("children_ended", waits, into=_Ended)
        for end in ended:
            ends[end.run_id].append(end)
    return {
        number: (tuple(signals[number]), tuple(emits[number]), tuple(ends[number]))
        for number in {*with_signals, *with_waits}
    }


# ------------------------------------------------------------------------------------------------------------- writing


class RunRows(msgspec.Struct, frozen=True, gc=False):
    """The rows of a `StepBatch` at the instant of the transaction."""

    run_id: int
    lease_id: int
    steps: tuple[StepRecord, ...]
    values: bytes | None = None


def write_all(
    batches: Sequence[StepBatch], parked: Sequence[Transition], at: datetime
) -> Steps[tuple[StepsWritten, ...]]:
    """Write the rows of runs that go on and of runs that are parked, and return the answers to the first."""
    given = [_resolved(each, at) for each in batches]
    for each in parked:
        change = each.run
        if change is not None and change.arguments is None and (change.steps or change.values is not None):
            given.append(RunRows(each.job_id, each.lease_id, change.steps, change.values))
    answers = (yield from write(given, at)) if given else []
    return tuple(answers[: len(batches)])


def _resolved(batch: StepBatch, at: datetime) -> RunRows:
    rows = tuple(resolve(each, batch.run_id, batch.lease_id, at) for each in batch.steps)
    return RunRows(batch.run_id, batch.lease_id, rows, batch.values)


def write(given: Sequence[RunRows], at: datetime) -> Steps[list[StepsWritten]]:
    """Write the rows of running runs, and return the answer to each."""
    rows = [row for each in given for row in each.steps]
    flags = (yield from _put(rows)) if rows else {}
    missing = [row for row in rows if _key(row) not in flags]
    recorded = (yield from _asked(missing)) if missing else {}
    received = [row for row in rows if row.kind is StepKind.WAIT and row.ref is not None and _key(row) in flags]
    if received:
        yield Query("signals_read", many=[{"id": row.ref, "run_id": row.run_id, "path": row.path} for row in received])
    of_runs = {(run_id, lease_id): each for (run_id, _, lease_id), each in flags.items()}
    noted = [each for each in given if each.values is not None or not each.steps]
    if noted:
        of_runs |= yield from _put_values(noted, at)
    return [_answer(each, of_runs, flags, recorded) for each in given]


_Key = tuple[int, str, int]


def _key(row: StepRecord) -> _Key:
    return row.run_id, row.path, row.lease_id


def columns(row: StepRecord) -> dict[str, object]:
    """Return the columns of a row."""
    values: dict[str, object] = {name: getattr(row, name) for name in StepRecord.__struct_fields__}
    if row.error is not None:
        values["error"] = msgspec.json.encode(row.error).decode()
    if row.history is not None:
        values["history"] = msgspec.json.encode(row.history).decode()
    return values


def _put(rows: Sequence[StepRecord]) -> Steps[dict[_Key, RunFlags]]:
    """Write rows, and return those that were written, with the flags of their runs."""
    found = yield Query("steps_put", many=[columns(row) for row in rows])
    return {
        (run_id, path, lease_id): RunFlags(cancel_why, bool(paused))
        for run_id, path, lease_id, cancel_why, paused in found
    }


def _asked(missing: Sequence[StepRecord]) -> Steps[dict[_Key, _Asked]]:
    keys = [{"run_id": row.run_id, "path": row.path, "lease_id": row.lease_id} for row in missing]
    rows: Sequence[_Asked] = yield Query("steps_asked", many=keys, into=_Asked)
    return {(row.run_id, row.path, row.lease_id): row for row in rows}


def _put_values(given: Sequence[RunRows], at: datetime) -> Steps[dict[tuple[int, int], RunFlags]]:
    rows = [{"run_id": each.run_id, "lease_id": each.lease_id, "set_values": each.values, "at": at} for each in given]
    found = yield Query("run_values", many=rows)
    return {(run_id, lease_id): RunFlags(why, bool(paused)) for run_id, lease_id, why, paused in found}


def _answer(
    given: RunRows,
    of_runs: Mapping[tuple[int, int], RunFlags],
    written: Mapping[_Key, RunFlags],
    recorded: Mapping[_Key, _Asked],
) -> StepsWritten:
    kept = []
    for row in given.steps:
        if _key(row) in written:
            kept.append(row)
            continue
        there = recorded[_key(row)]
        if there.recorded_by == row.lease_id and there.outcome is not None and there.at is not None:
            kept.append(replace(row, outcome=there.outcome, at=there.at, due_at=there.due_at))
        else:
            free = there.is_current and there.recorded_by is None
            return StepsWritten(StepsAnswer.LATER if free else StepsAnswer.LOST)
    flags = of_runs.get((given.run_id, given.lease_id))
    if flags is None and not given.steps:
        return StepsWritten(StepsAnswer.LOST)
    return StepsWritten(StepsAnswer.WRITTEN, tuple(kept), flags or RunFlags())


def park(moved: Iterable[Transition], at: datetime) -> Steps[None]:
    """Write what follows for runs whose attempts were given back, after their jobs."""
    changed = [each for each in moved if each.run is not None]
    restarted = [(each.job_id, each.run) for each in changed if each.run is not None and each.run.arguments is not None]
    if restarted:
        yield from _restart(restarted)
    pruned = {each.job_id: each.run.waits for each in changed if each.run is not None and each.run.waits is not None}
    if pruned:
        # A row that no branch waits for any more would wake the run again and again.
        still_open = [f"{number}:{path}" for number, paths in pruned.items() for path in paths]
        yield Query("waits_drop", {"ids": list(pruned), "open": still_open})
    parked = [each.job_id for each in changed if each.run is not None and each.run.held is None]
    if parked:
        yield Query("runs_parked", {"ids": parked, "now": at, "far": FAR})


def _restart(restarted: Sequence[tuple[int, RunChange]]) -> Steps[None]:
    ids = [number for number, _ in restarted]
    yield Query("run_restart", many=[{"run_id": number, "set_values": change.values} for number, change in restarted])
    yield Query("run_payloads", many=[{"job_id": number, "payload": change.arguments} for number, change in restarted])
    yield Query("steps_forget", {"ids": ids})
    yield Query("signals_forget", {"ids": ids})
