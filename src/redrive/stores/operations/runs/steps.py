"""Reads what is stored of claimed runs, and writes the steps of running ones. PURE.

Each row is written by one statement, which checks the lease of the run and holds it by a share lock until the commit: a
row of an earlier holder can so not appear behind the present one. The statement answers the rows that it has written.
The others are looked up once more, and there are four answers (`redrive.engine.steps.StepsAnswer`): a row that stands
there under the lease of the caller was written by a commit with a lost reply; a row of a run with a current lease,
which another transaction has locked, is written later; the lease is lost if the run has another one, or none; and there
is a gap if a standby has taken over that lacks an earlier row of this attempt (PostgreSQL only).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from redrive.engine import runs
from redrive.engine.origin import Kind
from redrive.engine.outcome import RunChange, Settlement
from redrive.engine.records import Claim, JobRecord
from redrive.engine.steps import NewStep, StepBatch, StepEnd, StepMark, StepsAnswer, StepsWritten, decided, resolve
from redrive.stores.operations.clock import instant
from redrive.stores.query import Compound, Query, Statements, writes

GOES_ON = "that run goes on without it"
RESTARTS = "that run begins again"
TAKES_BACK = "that run takes its steps back"
ENDED = "that run has ended"


def drop_calls(ids: Sequence[int], why: str, at: datetime, open_calls: Sequence[str] = ()) -> tuple[Query, ...]:
    """Return the statements that drop the calls of runs, but for the open ones, given as job, colon and path."""
    given = {"ids": list(ids), "open": list(open_calls)}
    # The first one reads which cancellations are not requested yet.
    return (
        Query("children_notify", {**given, "name": runs.CHILD_SIGNAL, "now": at}),
        Query("calls_drop", {**given, "why": why}),
        Query("children_cancel", {**given, "why": why, "now": at}),
    )


#: Unread signals of one run that one statement reads.
UNREAD = 200

_OF_RUN = f"{Kind.RUN}:"

_MICROSECOND = timedelta(microseconds=1)


class _ClaimedRun(runs.RunRecord, frozen=True, gc=False):
    """A row of the query ``runs_claimed``."""

    has_steps: bool = False
    has_signals: bool = False
    has_waits: bool = False


class _Emitted(runs.EmitRecord, frozen=True, gc=False):
    """A row of the query ``emits_for``."""

    run_id: int = 0


class _Ended(runs.ChildEnd, frozen=True, gc=False):
    """A row of the query ``children_ended``."""

    run_id: int = 0


class _Written(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``steps_put``: a step that was written, and the flags of its run."""

    run_id: int
    path: str
    lease_id: int
    at: datetime
    cancel_why: str | None
    paused: bool

    @property
    def flags(self) -> runs.RunFlags:
        """Return what operators ask of the run."""
        return runs.RunFlags(self.cancel_why, self.paused)


class _Asked(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``steps_asked``."""

    run_id: int
    path: str
    lease_id: int
    is_current: bool
    is_anchored: bool  # False if the row before it is missing
    recorded_by: int | None
    outcome: runs.StepOutcome | None
    at: datetime | None
    due_at: datetime | None
    tries: int | None

    def has(self, row: NewStep) -> bool:
        """Return True if the lease of the caller has recorded this row."""
        if self.recorded_by != self.lease_id or self.outcome is None:
            return False
        if self.outcome is not runs.StepOutcome.WAITING:
            return True
        # The same wait or try, or a later one: the end of a wait, or of a step that failed before, is another row.
        return row.outcome is runs.StepOutcome.WAITING and (self.tries or 0) >= row.tries

    @property
    def is_locked(self) -> bool:
        """True if the row was not written only because another transaction has locked the run."""
        return self.is_current and self.outcome in (None, runs.StepOutcome.WAITING)

    @property
    def answer(self) -> StepsAnswer:
        """Return why the row was not written, if it is not there."""
        if self.is_current and not self.is_anchored:
            return StepsAnswer.GAP
        return StepsAnswer.LATER if self.is_locked else StepsAnswer.LOST


# ------------------------------------------------------------------------------------------------------------- reading


def states(jobs: Iterable[Claim | JobRecord], at: datetime) -> Statements[dict[int, runs.RunState]]:
    """Return what is stored of the runs among these jobs, by their jobs."""
    ids = [each.id for each in jobs if each.origin is not None and each.origin.startswith(_OF_RUN)]
    if not ids:
        return {}
    rows: Sequence[_ClaimedRun] = yield Query(
        "runs_claimed", {"ids": ids, "child": runs.CHILD_SIGNAL}, into=_ClaimedRun
    )
    with_steps = [row.job_id for row in rows if row.has_steps]
    steps = (yield from _steps_of(with_steps)) if with_steps else {}
    found = yield from arrivals(
        [row.job_id for row in rows if row.has_signals], [row.job_id for row in rows if row.has_waits]
    )
    return {
        row.job_id: runs.RunState(row, row.flags(at), steps.get(row.job_id, ()), *found.get(row.job_id, ((), (), ())))
        for row in rows
    }


def _steps_of(ids: Sequence[int]) -> Statements[dict[int, tuple[runs.StepRecord, ...]]]:
    rows: Sequence[runs.StepRecord] = yield Query("steps_of", {"ids": list(ids)}, into=runs.StepRecord)
    by_run: dict[int, list[runs.StepRecord]] = defaultdict(list)
    for row in rows:
        by_run[row.run_id].append(row)
    return {number: tuple(each) for number, each in by_run.items()}


Arrivals = tuple[tuple[runs.SignalRecord, ...], tuple[runs.EmitRecord, ...], tuple[runs.ChildEnd, ...]]


def arrivals(with_signals: Sequence[int], with_waits: Sequence[int]) -> Statements[dict[int, Arrivals]]:
    """Return what has arrived for runs: unread signals of the first ones, values and ends of children of the others.

    Of each run at most `UNREAD` signals are read.
    """
    signals: dict[int, list[runs.SignalRecord]] = defaultdict(list)
    emits: dict[int, list[runs.EmitRecord]] = defaultdict(list)
    ends: dict[int, list[runs.ChildEnd]] = defaultdict(list)
    if with_signals:
        for signal in (yield from unread(with_signals)):
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


def unread(run_ids: Sequence[int], name: str | None = None) -> Statements[list[runs.SignalRecord]]:
    """Return the first unread signals of runs, of one name if it is given, by number."""
    wanted = [{"run_id": number, "name": name, "child": runs.CHILD_SIGNAL, "count": UNREAD} for number in run_ids]
    rows: Sequence[runs.SignalRecord] = yield Query("signals_unread", many=wanted, into=runs.SignalRecord)
    return sorted(rows, key=attrgetter("id"))


# ------------------------------------------------------------------------------------------------------------- writing


@writes
def record(batches: Sequence[StepBatch], *, now: datetime | None = None) -> Statements[list[StepsWritten]]:
    """Write rows of running runs, each only if the lease of its run is still current, and return the answers."""
    if all(map(_is_simple, batches)):
        # One statement reads the clock, too: on PostgreSQL it is a transaction in one round trip.
        return (yield from _write(batches, now, alone=True))
    at = yield from instant(now)
    return (yield from write(batches, at))


def _is_simple(batch: StepBatch) -> bool:
    """Return True if rows need neither a decision nor another statement."""
    if batch.values is not None or not batch.steps:
        return False
    return all(isinstance(each, NewStep) and each.ref is None and each.path != runs.UNDO_MARK for each in batch.steps)


def begins_undo(parked: Settlement) -> bool:
    """Return True if the rows of a run that is parked begin its undos."""
    return parked.run is not None and any(row.path == runs.UNDO_MARK for row in parked.run.steps)


def write_parked(parked: Sequence[Settlement], at: datetime) -> Statements[frozenset[int]]:
    """Write the rows of runs that are parked, before their jobs: a parked run has no lease any more.

    Return the leases of runs with a gap, which must not be parked.
    """
    given = [
        StepBatch(each.job_id, each.lease_id, change.steps, change.values, change.before)
        for each in parked
        if (change := each.run) is not None
        and (change.steps or (change.values is not None and change.arguments is None))
    ]
    written = (yield from write_behind(given, at)) if given else ()
    return frozenset(
        batch.lease_id for batch, each in zip(given, written, strict=True) if each.answer is StepsAnswer.GAP
    )


@writes
def record_behind(batch: StepBatch, *, now: datetime | None = None) -> Statements[StepsWritten]:
    """Write rows of a running run, after the transaction that has locked it, if there is one; see `record`."""
    at = yield from instant(now)
    (written,) = yield from write_behind([batch], at)
    return written


def write_behind(batches: Sequence[StepBatch], at: datetime) -> Statements[list[StepsWritten]]:
    """Write rows of running runs, and wait for the transactions that have locked some of them."""
    written = yield from write(batches, at)
    left = [each for each, answer in zip(batches, written, strict=True) if answer.answer is StepsAnswer.LATER]
    if left:
        yield Query("jobs_lock", {"ids": sorted({each.run_id for each in left})}, into=JobRecord)
        again = iter((yield from write(left, at)))
        written = [next(again) if answer.answer is StepsAnswer.LATER else answer for answer in written]
    return written


def write(batches: Sequence[StepBatch], at: datetime) -> Statements[list[StepsWritten]]:
    """Write rows of running runs as a part of a larger operation, and return the answers."""
    decisions = [replace(each, steps=tuple(decided(end, at) for end in each.steps)) for each in batches]
    answers = yield from _write(decisions, at)
    undoing = [row.run_id for each in answers for row in each.steps if row.path == runs.UNDO_MARK]
    if undoing:
        yield Compound(drop_calls(sorted(undoing), TAKES_BACK, at))
    return answers


def _write(batches: Sequence[StepBatch], at: datetime | None, *, alone: bool = False) -> Statements[list[StepsWritten]]:
    """Write rows without failed tries, at an instant or at the statement's; ``alone`` if nothing else is written."""
    rows = [(batch, row) for batch in batches for row in batch.steps if isinstance(row, NewStep)]
    written = (yield from _put(rows, at, alone=alone)) if rows else {}
    missing = {_key(batch, row): batch.before for batch, row in rows if _key(batch, row) not in written}
    received = [
        {"id": row.ref, "run_id": batch.run_id, "path": row.path}
        for batch, row in rows
        if row.ref is not None and row.kind is runs.StepKind.WAIT and _key(batch, row) in written
    ]
    if received:
        yield Query("signals_read", many=received)
    flags = {(each.run_id, each.lease_id): each.flags for each in written.values()}
    noted = [each for each in batches if each.values is not None or not each.steps]
    if noted:
        flags |= yield from _put_values(noted, at)
        empty = [each for each in noted if not each.steps and (each.run_id, each.lease_id) not in flags]
        missing |= {_values_of(each): None for each in empty}
    recorded = (yield from _asked(missing)) if missing else {}
    return [_answer(each, flags, written, recorded) for each in batches]


_Key = tuple[int, str, int]


def _key(batch: StepBatch, row: StepEnd) -> _Key:
    return batch.run_id, row.path, batch.lease_id


def _values_of(batch: StepBatch) -> _Key:
    """Return the key of values without a row; no step has this path."""
    return batch.run_id, "", batch.lease_id


def columns(row: runs.StepRecord | NewStep) -> dict[str, Any]:
    """Return the columns of a row."""
    values = asdict(row)
    if row.error is not None:
        values["error"] = msgspec.json.encode(row.error).decode()
    if row.history is not None:
        values["history"] = msgspec.json.encode(row.history).decode()
    return values


def _put(
    rows: Sequence[tuple[StepBatch, NewStep]], at: datetime | None, *, alone: bool
) -> Statements[dict[_Key, _Written]]:
    """Write rows, and return those that were written."""
    many = [_row(batch, row, at) for batch, row in rows]
    written: Sequence[_Written] = yield Query("steps_put", many=many, into=_Written, own=alone)
    return {(each.run_id, each.path, each.lease_id): each for each in written}


def _row(batch: StepBatch, row: NewStep, at: datetime | None) -> dict[str, Any]:
    values = columns(row)
    values.update(run_id=batch.run_id, lease_id=batch.lease_id, now=values.pop("at") or at)
    values["before"], values["before_at"] = batch.before or (None, None)
    return values


def _asked(missing: Mapping[_Key, StepMark | None]) -> Statements[dict[_Key, _Asked]]:
    keys = []
    for (run_id, path, lease_id), mark in missing.items():
        before, before_at = mark or (None, None)
        key = {"run_id": run_id, "path": path, "lease_id": lease_id}
        keys.append({**key, "before": before, "before_at": before_at})
    rows: Sequence[_Asked] = yield Query("steps_asked", many=keys, into=_Asked)
    return {(row.run_id, row.path, row.lease_id): row for row in rows}


def _put_values(given: Sequence[StepBatch], at: datetime | None) -> Statements[dict[tuple[int, int], runs.RunFlags]]:
    rows = [{"run_id": each.run_id, "lease_id": each.lease_id, "set_values": each.values, "at": at} for each in given]
    found = yield Query("run_values", many=rows)
    return {(run_id, lease_id): runs.RunFlags(why, bool(paused)) for run_id, lease_id, why, paused in found}


def _answer(
    batch: StepBatch,
    flags: Mapping[tuple[int, int], runs.RunFlags],
    written: Mapping[_Key, _Written],
    recorded: Mapping[_Key, _Asked],
) -> StepsWritten:
    kept = []
    for row in batch.steps:
        key = _key(batch, row)
        now = written.get(key)
        if now is not None:
            kept.append(resolve(row, batch.run_id, batch.lease_id, now.at))
            continue
        there = recorded[key]
        assert isinstance(row, NewStep)  # failed tries are decided by then
        if not there.has(row) or there.at is None:
            return StepsWritten(there.answer)
        kept_row = resolve(row, batch.run_id, batch.lease_id, there.at)
        kept.append(replace(kept_row, outcome=there.outcome, due_at=there.due_at))
    found = flags.get((batch.run_id, batch.lease_id))
    if found is None and not batch.steps:
        return StepsWritten(recorded[_values_of(batch)].answer)
    return StepsWritten(StepsAnswer.WRITTEN, tuple(kept), found)


def park(moved: Iterable[Settlement], at: datetime) -> Statements[None]:
    """Write what follows for runs after their attempts were given back, after their jobs."""
    changed = [each for each in moved if each.run is not None]
    restarted = [(each.job_id, each.run) for each in changed if each.run is not None and each.run.arguments is not None]
    if restarted:
        yield from _restart(restarted, at)
    pruned = {each.job_id: each.run.waits for each in changed if each.run is not None and each.run.waits is not None}
    if pruned:
        # A row that no branch waits for any more would wake the run again and again.
        still_open = [f"{number}:{path}" for number, paths in pruned.items() for path in paths]
        yield Query("waits_drop", {"ids": list(pruned), "open": still_open})
        callers = [each.job_id for each in changed if each.run is not None and each.run.drops]
        if callers:
            yield Compound(drop_calls(callers, GOES_ON, at, still_open))
    parked = [each.job_id for each in changed if each.run is not None and each.run.held is None]
    if parked:
        paused = [each.job_id for each in changed if each.run is not None and each.run.paused]
        ends = {each.job_id: each.run.ends_at for each in changed if each.run is not None}
        left = [((ends[number] or runs.FAR) - at) // _MICROSECOND for number in parked]
        given = {"ids": parked, "left": left, "paused": paused, "now": at, "far": runs.FAR}
        waits = [(each.job_id, path) for each in changed for path in _recorded_waits(each.run)]
        given |= {"waiting": [number for number, _ in waits], "paths": [path for _, path in waits]}
        yield Query("runs_parked", given)


def _recorded_waits(change: RunChange | None) -> list[str]:
    """Return the open waits of a parked run whose rows are not written with its parking, but were before."""
    if change is None or change.waits is None or change.arguments is not None:
        return []
    written = {row.path for row in change.steps}
    return [path for path in change.waits if path not in written]


def _restart(restarted: Sequence[tuple[int, RunChange]], at: datetime) -> Statements[None]:
    ids = [number for number, _ in restarted]
    yield Compound(drop_calls(ids, RESTARTS, at))
    yield Query("run_restart", many=[{"run_id": number, "set_values": change.values} for number, change in restarted])
    yield Query("run_payloads", many=[{"job_id": number, "payload": change.arguments} for number, change in restarted])
    yield Query("steps_forget", {"ids": ids})
    yield Query("signals_forget", {"ids": ids})
