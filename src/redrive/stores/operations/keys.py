"""Takes and releases keys, and resolves conflicts of new jobs. PURE.

A held key is a row with a unique index, so of two concurrent inserts one fails and finds the holder.
`redrive.engine.keys` decides for jobs that take their keys again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from msgspec import structs

from redrive.engine.keys import SUPERSEDED, KeyChange, key_change, superseded, superseded_note
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Settlement
from redrive.engine.records import Claim, Enqueue, KeyUntil, NewJob, OnConflict
from redrive.errors import DuplicateJob, StoreBusy
from redrive.stores.query import Query, Statements

# If a key is released between the statement that finds it taken and the one that reads its holder, it is tried again.
#
# The number of tries for a key that is taken and then has no holder.
TRIES = 5

UNIQUE = "unique"
IDEMPOTENCY = "idempotency"


class KeyRequest(msgspec.Struct, frozen=True, gc=False):
    """A key that a job needs."""

    scope: str  # where the key is unique: the name of the task, or "" for the whole app
    key: str
    job_id: int


class Holder(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``keys_find``."""

    scope: str  # where the key is unique
    key: str
    job_id: int
    task: str | None  # its task; None if the job is not inserted yet
    state: State | None
    debounced: bool  # True if each further enqueue postpones it


def find(kind: str, wanted: Sequence[KeyRequest]) -> Statements[dict[tuple[str, str], Holder]]:
    """Return the holders of keys of a kind, ``unique`` or ``idempotency``, by scope and key."""
    scopes, names = sorted({each.scope for each in wanted}), sorted({each.key for each in wanted})
    rows: Sequence[Holder] = yield Query("keys_find", {"kind": kind, "scopes": scopes, "keys": names}, into=Holder)
    return {(row.scope, row.key): row for row in rows}


def take(kind: str, wanted: Iterable[KeyRequest]) -> Statements[dict[int, Holder]]:
    """Take keys; return the holder for each job that did not get its key.

    Of two jobs in `wanted` with the same key, the one with the smaller id gets it. Raise `StoreBusy` if other
    transactions release and take a key again before it can be taken.
    """
    rest = sorted(wanted, key=lambda each: (each.scope, each.key, each.job_id))
    lost: dict[int, Holder] = {}
    for _ in range(TRIES):
        rows = [{"kind": kind, "scope": each.scope, "key": each.key, "job_id": each.job_id} for each in rest]
        won = {row[0] for row in (yield Query("keys_take", many=rows))}
        rest = [each for each in rest if each.job_id not in won]
        if not rest:
            return lost
        holders = yield from find(kind, rest)
        lost |= {each.job_id: holders[each.scope, each.key] for each in rest if (each.scope, each.key) in holders}
        rest = [each for each in rest if each.job_id not in lost]
        if not rest:
            return lost
    raise _contended(rest[0].key)


def _contended(key: str | None) -> StoreBusy:
    return StoreBusy(f"other transactions take and release the key {key!r} too often: try again")


def drop(job_ids: Sequence[int]) -> Statements[None]:
    """Release the unique keys of jobs; without ids no statement runs."""
    if job_ids:
        yield Query("keys_drop", {"job_ids": list(job_ids)})


# ------------------------------------------------------------------------------------------------------ jobs that move


def update(pairs: Sequence[tuple[Claim, Settlement]], at: datetime) -> Statements[dict[int, Settlement]]:
    """Release or take the keys of jobs after their settlements were written.

    Return the settlements of jobs that were closed because another job has their key, by lease.
    """
    moved = [
        (job, move, key_change(job.key_until, move.before, move.state)) for job, move in pairs if job.key is not None
    ]
    yield from drop([job.id for job, _, change in moved if change is KeyChange.DROP])
    wanted = [KeyRequest(job.task, job.key or "", job.id) for job, _, change in moved if change is KeyChange.TAKE]
    lost = (yield from retake(wanted, at)) if wanted else {}
    return {move.lease_id: superseded(move, job.key or "", lost[job.id]) for job, move, _ in moved if job.id in lost}


def retake(wanted: Sequence[KeyRequest], at: datetime) -> Statements[dict[int, int]]:
    """Take the keys of jobs that are ready again, close those that cannot have theirs, and return the holders."""
    lost = yield from take(UNIQUE, wanted)
    if lost:
        yield Query("supersede", many=[_closing(n, holder.key, holder.job_id, at) for n, holder in lost.items()])
    return {number: holder.job_id for number, holder in lost.items()}


def _closing(number: int, key: str, holder: int, at: datetime) -> dict[str, object]:
    return {"id": number, "reason": SUPERSEDED, "note": superseded_note(key, holder), "now": at}


# ------------------------------------------------------------------------------------------------------------ new jobs


# New jobs take their keys before they are inserted, in one statement for a whole batch and in the order of the keys, so
# that two batches cannot deadlock. Jobs without keys cost nothing here.
def take_for_new(new: dict[int, NewJob], at: datetime, *, strict: bool = True) -> Statements[dict[int, int]]:
    """Take the keys of new jobs, by their ids, before they are inserted; return the job that replaces each refused one.

    A debounced job gets the arguments of a later one in the batch with the same key. Raise `DuplicateJob` if another
    job holds a key, and the job does not accept that; if not ``strict``, each job accepts that. Raise `StoreBusy` if
    other transactions release and take a key again before it can be taken.
    """
    stands: dict[int, int] = {}
    named = [KeyRequest("", job.idempotency_key, n) for n, job in new.items() if job.idempotency_key is not None]
    if named:
        for number, holder in (yield from take(IDEMPOTENCY, named)).items():
            stands[number] = _same_task(new, number, holder) if strict else holder.job_id
    unique = [KeyRequest(job.task, job.key, n) for n, job in new.items() if job.key is not None and n not in stands]
    if unique:
        lost = yield from take(UNIQUE, unique)
        for number in sorted(lost):
            other = yield from _conflict(new, number, lost[number], at, strict=strict)
            if other is not None:
                stands[number] = other
                if new[number].idempotency_key is not None:
                    yield Query("keys_move", {"from_id": number, "to_id": other})
    return {number: _last(stands, other) for number, other in stands.items()}


def _last(stands: dict[int, int], number: int) -> int:
    """Return the job that finally replaces a job, following the chain."""
    while number in stands:
        number = stands[number]
    return number


def _same_task(new: dict[int, NewJob], number: int, holder: Holder) -> int:
    """Return the holder of an idempotency key; raise `DuplicateJob` if it is a job of another task."""
    job = new[number]
    task = holder.task or new[holder.job_id].task
    if task != job.task:
        message = (
            f"{job.task}: the idempotency key {job.idempotency_key!r} belongs to job {holder.job_id} of the task "
            f"{task}: use another key for another request"
        )
        raise DuplicateJob(message, job_id=_known(new, holder), key=job.idempotency_key or "")
    return holder.job_id


def _known(new: dict[int, NewJob], holder: Holder) -> int | None:
    return None if holder.job_id in new else holder.job_id


def _conflict(
    new: dict[int, NewJob], number: int, holder: Holder, at: datetime, *, strict: bool
) -> Statements[int | None]:
    """Return the job that replaces this one; None if this one has the key now."""
    job = new[number]
    if job.on_conflict is OnConflict.EXISTING:
        return holder.job_id
    if job.on_conflict is OnConflict.BOUNCE:
        for _ in range(TRIES):
            if (earlier := new.get(holder.job_id)) is not None:
                new[holder.job_id] = structs.replace(earlier, payload=job.payload, search=job.search)
                return holder.job_id
            if (yield from _bounce(job, holder, at)):
                return holder.job_id
            if not holder.debounced or holder.state is not State.READY:
                break
            # It has started, and may wait for a retry: the first call after the start makes a new job.
            yield Query("supersede", many=[_closing(holder.job_id, job.key or "", number, at)])
            yield from drop([holder.job_id])
            lost = yield from take(UNIQUE, [KeyRequest(job.task, job.key or "", number)])
            if not lost:
                return None
            # A concurrent call took the key first: postpone its job.
            holder = lost[number]
        else:
            raise _contended(job.key)
    if not strict:
        return holder.job_id
    raise _duplicate(new, job, holder)


def _duplicate(new: dict[int, NewJob], job: NewJob, holder: Holder) -> DuplicateJob:
    by = "another call of the same batch" if _known(new, holder) is None else f"job {holder.job_id}"
    message = f"{job.task}: the key {job.key!r} is held by {by}{_advice(job)}"
    return DuplicateJob(message, job_id=_known(new, holder), key=job.key or "")


def expected(new: dict[int, NewJob], earlier: Iterable[Enqueue]) -> Statements[dict[int, int]]:
    """Return the jobs that replace new ones if the holders of keys stay as they are; nothing is taken.

    ``earlier`` are jobs that are inserted together with these. Raise `DuplicateJob` as `take_for_new` does.
    """
    known = {**{each.id: each.job for each in earlier}, **new}
    named = [KeyRequest("", job.idempotency_key, n) for n, job in known.items() if job.idempotency_key is not None]
    unique = [KeyRequest(job.task, job.key, n) for n, job in known.items() if job.key is not None]
    requests = (yield from find(IDEMPOTENCY, named)) if named else {}
    holders = (yield from find(UNIQUE, unique)) if unique else {}
    stands: dict[int, int] = {}
    for number, job in sorted(known.items()):
        own = Holder(job.task, job.key or "", number, job.task, State.READY, job.on_conflict is OnConflict.BOUNCE)
        if job.idempotency_key is not None:
            first = requests.setdefault(("", job.idempotency_key), own)
            if first is not own:
                if number in new:
                    stands[number] = _same_task(known, number, first)
                continue
        if job.key is not None:
            holder = holders.setdefault((job.task, job.key), own)
            if holder is not own and number in new and _replaces(known, job, holder):
                stands[number] = holder.job_id
    return stands


def _replaces(known: dict[int, NewJob], job: NewJob, holder: Holder) -> bool:
    """Return True if the holder of its key replaces a job; raise `DuplicateJob` if the job does not accept that."""
    if job.on_conflict is OnConflict.EXISTING:
        return True
    if job.on_conflict is OnConflict.BOUNCE and holder.debounced:
        return holder.state is State.READY
    raise _duplicate(known, job, holder)


def _advice(job: NewJob) -> str:
    if job.on_conflict is OnConflict.BOUNCE:
        return ", which is not debounced: give debounced jobs keys of their own"
    return "; with on_conflict='existing' you would get that job"


def _bounce(job: NewJob, holder: Holder, at: datetime) -> Statements[bool]:
    """Postpone the other job and give it these arguments, if it has not started."""
    put_off = yield Query("bounce", {"id": holder.job_id, "scheduled_at": at + job.delay})
    if not put_off:
        return False
    yield Query("payload_put", {"job_id": holder.job_id, "payload": job.payload})
    if job.search is not None:
        # Those of the arguments before would find it too.
        yield Query("tags_drop", {"job_id": holder.job_id})
        if job.all_tags:
            yield Query("tag_put", many=[{"tag": tag, "job_id": holder.job_id} for tag in job.all_tags])
    return True


def held_until_start(claims: Iterable[Claim]) -> list[int]:
    """Return the ids of jobs that have just started and held their keys until then."""
    return [each.id for each in claims if each.key_until is KeyUntil.START]
