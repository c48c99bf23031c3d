"""Bulk operations: their preview, their start, their batches, their stop and their undo. PURE.

`redrive.engine.bulk` describes them. The lock of the row is the right to write a batch: the process that holds it is
the only one that works on the operation, and if it dies, its transaction and its lock end with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from redrive.engine.bulk import (
    AFTER_ERROR,
    AHEAD,
    BATCH,
    BulkAction,
    BulkOperation,
    BulkOptions,
    BulkState,
    digest,
    frozen,
)
from redrive.engine.frozen import FrozenPolicy, freeze, thaw
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.queue import Rate
from redrive.engine.records import AuditEntry, Filter, Hold, JobRecord
from redrive.errors import IllegalMove, OperationNotFound
from redrive.stores.operations.admin import BulkResult, few, selected
from redrive.stores.operations.audit import UNKNOWN, conditions, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.ending import cancel_jobs
from redrive.stores.operations.redriving import Restart, choose, put_policies, repolicies, restarted
from redrive.stores.operations.runs.endings import is_run, standing_of
from redrive.stores.query import Query, Statements, reads, wakes_if_any, writes

#: Jobs that a preview counts.
COUNTED: Final = 10_000

#: Rows of the table that a preview reads if no index finds the jobs, and rows that a batch reads.
READ: Final = 100_000
STRIDE: Final = 10_000

# How many times fewer these are if the errors or the arguments of all rows are read.
_FEWER: Final = 5

#: Jobs that a preview lists, and the tasks, queues and reasons by which it counts them.
LISTED: Final = 10


class BulkPreview(msgspec.Struct, frozen=True, gc=False):
    """The effect that a bulk operation would have.

    Attributes:
        wanted: the filter, without jobs on which the action has no effect.
        at: its instant. The operation changes no job that reaches its state later.
        bound_id: the newest job then.
        changes: jobs that would be changed.
        kept: jobs that match but would stay.
        is_whole: False if more jobs may match, because not all were read.
        by_task: the changed jobs by task; the most frequent ones.
        by_queue: likewise by queue.
        reasons: the kept jobs by reason, each with the number of the first job.
        sample: the first jobs that would be changed.
    """

    action: BulkAction
    wanted: Filter
    options: BulkOptions
    at: datetime
    bound_id: int
    changes: int
    kept: int
    is_whole: bool
    by_task: tuple[tuple[str, int], ...]
    by_queue: tuple[tuple[str, int], ...]
    reasons: tuple[tuple[int, str], ...]
    sample: tuple[JobRecord, ...]

    @property
    def matched(self) -> int | None:
        """The number of jobs that match; None if not all were read."""
        return self.changes + self.kept if self.is_whole else None


class BulkBatch(msgspec.Struct, frozen=True, gc=False):
    """The result of a batch: the operation after it, and the jobs that it has changed; false if there are none."""

    bulk: BulkOperation
    ids: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.ids)


class NextBatch(msgspec.Struct, frozen=True, gc=False):
    """The operation with the batch that is due first, and the time until it may be written."""

    id: int
    rest_for: timedelta


class _NextRow(msgspec.Struct, frozen=True, gc=False):
    id: int
    next_at: datetime


class BulkLine(msgspec.Struct, frozen=True, gc=False):
    """A line of the audit log about a bulk operation.

    Attributes:
        ids: the jobs that the batch has changed.
        kept: the jobs that stayed, with the reasons.
    """

    id: int
    at: datetime
    actor: str
    action: str
    ids: tuple[int, ...]
    kept: tuple[tuple[int, str], ...]


# ------------------------------------------------------------------------------------------------- preview and start


@reads
def preview(
    action: BulkAction,
    wanted: Filter,
    options: BulkOptions,
    *,
    bound_id: int | None = None,
    frozen_at: datetime | None = None,
    now: datetime | None = None,
) -> Statements[BulkPreview]:
    """Count the jobs that a bulk operation would change, at most `COUNTED`; `wanted` is what `scoped` has returned.

    A bound and an instant are those of an earlier preview.
    """
    at = yield from instant(now)
    at = at if frozen_at is None else min(at, frozen_at)
    ((_, last),) = yield Query("span", {"after_id": 0})
    bound = min(bound_id or last or 0, last or 0)
    within = frozen(action, replace(wanted, limit=min(wanted.most, COUNTED)), bound, at)
    until = yield from _window(action, within, READ)
    found = yield from _found(action, replace(within, before_id=until or within.before_id), options, at)
    reasons: dict[str, int] = {}
    for number, why in found.kept:
        reasons.setdefault(why, number)
    is_whole = until is None and (found.last_id is None or len(found.jobs) >= wanted.most)
    return BulkPreview(
        action=action,
        wanted=wanted,
        options=options,
        at=at,
        bound_id=bound,
        changes=len(found.jobs),
        kept=len(found.kept),
        is_whole=is_whole,
        by_task=tuple(Counter(job.task for job in found.jobs).most_common(LISTED)),
        by_queue=tuple(Counter(job.queue for job in found.jobs).most_common(LISTED)),
        reasons=tuple((number, why) for why, number in list(reasons.items())[:LISTED]),
        sample=tuple(found.jobs[:LISTED]),
    )


def _window(action: BulkAction, wanted: Filter, stride: int) -> Statements[int | None]:
    """Return the id before which to stop reading the table; None if an index finds all jobs or few rows are left."""
    is_dead = wanted.ids is None and wanted.run is None and wanted.state is State.DEAD and wanted.caught is False
    if wanted.reads_documents:
        stride //= _FEWER
        if is_dead:
            window = {"after_id": wanted.after_id, "before_id": wanted.before_id, "most": stride}
            ((count, last),) = yield Query("dead_window", window)
            return last + 1 if count == stride else None
    if is_dead or (yield from few(wanted, unfinished=action is not BulkAction.REDRIVE)) is not None:
        return None
    ((first, _),) = yield Query("span", {"after_id": wanted.after_id})
    return first + stride if first is not None and first + stride < wanted.before_id else None


class _Found(msgspec.Struct, gc=False):
    """The jobs that an action would change, and those that would stay."""

    jobs: Sequence[JobRecord]
    kept: Sequence[tuple[int, str]] = ()
    policies: Mapping[FrozenPolicy, list[int]] = {}
    last_id: int | None = None  # the last job that was read; None when no more match


def _found(action: BulkAction, wanted: Filter, options: BulkOptions, at: datetime) -> Statements[_Found]:
    if action is BulkAction.REDRIVE:
        chosen = yield from choose(wanted, most=COUNTED)
        return _Found(chosen.jobs, chosen.kept, last_id=chosen.last_id)
    read = yield from selected(wanted, unfinished=True)
    last = read[-1].id if len(read) == wanted.most else None
    # Ids follow the time of the enqueue closely, but not strictly.
    jobs = [job for job in read if job.state not in FINAL and job.enqueued_at <= at]
    if action is BulkAction.CANCEL:
        return _Found(jobs, last_id=last)
    policies, kept = repolicies(jobs, {name: freeze(thaw(text)) for name, text in options.policies.items()})
    changed = {number for numbers in policies.values() for number in numbers}
    return _Found([job for job in jobs if job.id in changed], kept, policies, last)


@writes
def start(
    found: BulkPreview, *, rate: Rate | None = None, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[BulkOperation]:
    """Start the operation of a preview; return the one that runs already if it is equal."""
    at = yield from instant(now)
    speed = None if rate is None else str(rate)
    same = digest(found.action, found.wanted, found.options, rate=speed)
    given = {"action": found.action, "rate": speed, "digest": same, "undoes": None, "matched": found.matched}
    number = yield from _insert(found, given, at, actor, last_id=found.wanted.after_id)
    if number is None:
        ((number,),) = yield Query("operation_same", {"digest": same})
    return (yield from _get(number))


def _insert(
    found: BulkPreview | BulkOperation, given: Mapping[str, object], at: datetime, actor: str, *, last_id: int
) -> Statements[int | None]:
    params = {
        **given,
        "wanted": msgspec.json.encode(found.wanted).decode(),
        "options": msgspec.json.encode(found.options).decode(),
        "actor": actor,
        "bound_id": found.bound_id,
        "frozen_at": found.at if isinstance(found, BulkPreview) else at,
        "last_id": last_id,
        "next_at": at,
    }
    rows = yield Query("operation_insert", params)
    if not rows:
        return None
    number: int = rows[0][0]
    details = {name: given[name] for name in ("rate", "undoes", "matched")}
    does = f"start_{given['action']}"
    yield from record(at, actor, does, operation=number, filter=conditions(found.wanted), **details)
    return number


def _get(number: int) -> Statements[BulkOperation]:
    rows = yield Query("operation_get", {"id": number}, into=BulkOperation)
    if not rows:
        raise OperationNotFound(f"there is no operation {number}")
    found: BulkOperation = rows[0]
    return found


@reads
def get(number: int) -> Statements[BulkOperation]:
    """Return a bulk operation; raise `OperationNotFound`."""
    return (yield from _get(number))


@reads
def select(*, before_id: int | None = None, limit: int = 100) -> Statements[tuple[BulkOperation, ...]]:
    """Return bulk operations before `before_id`, newest first."""
    return tuple((yield Query("operations_select", {"before_id": before_id, "count": limit}, into=BulkOperation)))


@reads
def lines(number: int, *, after_id: int = 0, limit: int = 100) -> Statements[tuple[BulkLine, ...]]:
    """Return the lines of the audit log about a bulk operation after `after_id`, oldest first."""
    return (yield from _lines(number, after_id, limit))


def _lines(number: int, after_id: int, limit: int) -> Statements[tuple[BulkLine, ...]]:
    params = {"operation_id": number, "after_id": after_id, "count": limit}
    entries: Sequence[AuditEntry] = yield Query("audit_of_operation", params, into=AuditEntry)
    read = ((each, msgspec.json.decode(each.details, type=_Details)) for each in entries)
    return tuple(BulkLine(each.id, each.at, each.actor, each.action, has.ids, has.kept) for each, has in read)


class _Details(msgspec.Struct, frozen=True, gc=False):
    ids: tuple[int, ...] = ()
    kept: tuple[tuple[int, str], ...] = ()


# ----------------------------------------------------------------------------------------------------------- batches


@reads
def look(*, now: datetime | None = None) -> Statements[NextBatch | None]:
    """Return the operation with the batch that is due first; None if none runs."""
    rows: Sequence[_NextRow] = yield Query("operation_next", into=_NextRow)
    if not rows:
        return None
    at = yield from instant(now)
    return NextBatch(rows[0].id, rows[0].next_at - AHEAD - at)


@wakes_if_any
def carry_out(number: int, *, now: datetime | None = None) -> Statements[BulkBatch | None]:
    """Write the next batch of a bulk operation; None if none is due, or another process writes it."""
    at = yield from instant(now)
    rows = yield Query("operation_take", {"id": number, "before": at + AHEAD}, into=BulkOperation)
    if not rows:
        return None
    bulk: BulkOperation = rows[0]
    done = yield from (_undo if bulk.action is BulkAction.UNDO else _batch)(bulk, at)
    after = bulk.advanced(at, done=len(done.ids), kept=len(done.kept), last_id=done.last_id)
    if done.ids or done.kept:
        # The entries of all batches have each job once.
        parts = {"ids": done.ids, "kept": done.kept or None, "operation": number, "why": bulk.options.why}
        yield from record(at, bulk.actor, bulk.action.value, **parts)
    names = ("id", "state", "matched", "last_id", "done", "kept", "next_at", "ended_at", "last_error")
    yield Query("operation_put", {name: getattr(after, name) for name in names})
    return BulkBatch(after, done.ids)


def _batch(bulk: BulkOperation, at: datetime) -> Statements[BulkResult]:
    """Change the jobs of the next batch."""
    wanted, action = bulk.batch, bulk.action
    until = yield from _window(action, wanted, STRIDE)
    wanted = replace(wanted, before_id=until or wanted.before_id)
    if action is BulkAction.REDRIVE:
        first_at = max(at, bulk.next_at)
        how = Restart(_mark(bulk.id), first_at, bulk.spacing, bulk.options.queue)
        done = yield from restarted(wanted, how, most=BATCH)
    else:
        found = yield from _found(action, wanted, bulk.options, bulk.frozen_at)
        if action is BulkAction.CANCEL:
            why = bulk.options.why or f"cancelled by operation {bulk.id}"
            ids: Sequence[int] = yield from cancel_jobs(found.jobs, at, why)
        else:
            ids = [job.id for job in found.jobs]
            if ids:
                yield from put_policies(found.policies, at)
        done = BulkResult(tuple(ids), tuple(found.kept), found.last_id)
    return replace(done, last_id=until - 1) if done.last_id is None and until is not None else done


def _mark(number: int) -> str:
    """Return the note of jobs that a bulk operation has started again."""
    return f"redriven by operation {number}"


# The lines of the audit log have the jobs of each batch. A job is taken back only if nothing has changed it since: one
# that was redriven has the note of the operation until it starts, and one that was cancelled has ended at the instant
# of the batch.
def _undo(bulk: BulkOperation, at: datetime) -> Statements[BulkResult]:
    """Take one batch of another bulk operation back."""
    undone = bulk.undoes or 0
    found = yield from _lines(undone, bulk.last_id, 1)
    if not found:
        return BulkResult(())
    line = found[0]
    rows: Sequence[JobRecord] = yield Query("job_locks", {"ids": list(line.ids)}, into=JobRecord)
    jobs = {job.id: job for job in rows}
    asked = yield from _asked([job.id for job in rows if is_run(job)])
    mine = [job for job in rows if _is_unchanged(job, line, _mark(undone), asked.get(job.id))]
    if line.action == BulkAction.REDRIVE:
        ids: Sequence[int] = yield from cancel_jobs(mine, at, f"undone by operation {bulk.id}")
        kept: Sequence[tuple[int, str]] = ()
    else:
        how = Restart(f"{_mark(bulk.id)}, which undoes operation {undone}", at, forgive=0, keep_due=True)
        these = Filter(ids=tuple(job.id for job in mine), limit=len(mine), oldest_first=True)
        done = yield from restarted(these, how) if mine else _nothing()
        ids, kept = done.ids, done.kept
    named = {*ids, *(number for number, _ in kept)}
    stay = [(number, _why_kept(jobs.get(number))) for number in line.ids if number not in named]
    return BulkResult(tuple(ids), (*kept, *stay), line.id)


def _nothing() -> Statements[BulkResult]:
    yield from ()
    return BulkResult(())


def _asked(runs: Sequence[int]) -> Statements[dict[int, datetime | None]]:
    """Return when the cancellation of each of these runs was requested."""
    found = (yield from standing_of(runs)) if runs else {}
    return {number: run.cancel_at for number, run in found.items()}


# A run ends after its cancellation was requested, when its steps are taken back.
def _is_unchanged(job: JobRecord, line: BulkLine, mark: str, asked_at: datetime | None) -> bool:
    if line.action == BulkAction.REDRIVE:
        return job.state is State.READY and job.hold is Hold.REDRIVE and job.note == mark
    return job.state is State.CANCELLED and line.at in (job.finished_at, asked_at)


def _why_kept(job: JobRecord | None) -> str:
    if job is None:
        return "was deleted, or is being changed by another transaction"
    return f"has been changed since: it is {job.state}"


# ----------------------------------------------------------------------------------------------------- stop and undo


@writes
def failed(number: int, error: str, *, now: datetime | None = None) -> Statements[None]:
    """Store why a batch failed, and try it again later."""
    at = yield from instant(now)
    yield Query("operation_failed", {"id": number, "error": error, "next_at": at + AFTER_ERROR})


@writes
def stop(number: int, *, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[BulkOperation]:
    """End a bulk operation; what it has done stays. Raise `OperationNotFound`, or `IllegalMove` if it does not run."""
    at = yield from instant(now)
    if not (yield from _stopped(number, at, actor)):
        found = yield from _get(number)
        raise IllegalMove(f"operation {number} is {found.state}: only one that runs can be stopped")
    return (yield from _get(number))


def _stopped(number: int, at: datetime, actor: str) -> Statements[bool]:
    if not (yield Query("operation_stop", {"id": number, "now": at})):
        return False
    yield from record(at, actor, "stop_operation", operation=number)
    return True


@writes
def undo(number: int, *, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[BulkOperation]:
    """Start a bulk operation that takes another one back, and end that one if it runs.

    Raise `OperationNotFound` or `IllegalMove`.

    The jobs that were redriven and have not started are cancelled; those that were cancelled start again, each not
    before it was due.
    """
    at = yield from instant(now)
    found = yield from _get(number)
    obstacle = found.why_not_undone()
    if obstacle is not None:
        raise IllegalMove(f"operation {number} cannot be undone: {obstacle}")
    if found.state is BulkState.RUNNING:
        yield from _stopped(number, at, actor)
        found = yield from _get(number)
    action = BulkAction.UNDO
    same = digest(action, found.wanted, found.options, undoes=number)
    given = {"action": action, "rate": None, "digest": same, "undoes": number, "matched": found.done}
    started = yield from _insert(found, given, at, actor, last_id=0)
    if started is None:
        raise IllegalMove(f"operation {number} cannot be undone: another operation takes it back already")
    return (yield from _get(started))
