"""Puts instances back into their transitions when the jobs of these start again. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from redrive.engine.machine import InstanceRecord, InstanceStatus, MoveRecord, MoveStatus
from redrive.engine.origin import Kind, Origin, read_origin
from redrive.engine.records import JobRecord
from redrive.stores.operations.machines.rows import end_moves, lock, put
from redrive.stores.query import Batch, Query, Steps


def restart(jobs: Sequence[JobRecord]) -> Steps[dict[int, str]]:
    """Prepare instances for ended jobs that are about to start again; return why some must not, by their ids.

    A transition that its instance has left behind must not run again. The jobs of instances are locked before these.
    """
    origins = {job.id: origin for job in jobs if (origin := _of_machine(job)) is not None}
    if not origins:
        return {}
    rows: Sequence[JobRecord] = yield Query("job_locks", {"ids": sorted(origins)}, into=JobRecord)
    locked = {row.id: row for row in rows}
    found = yield from lock((origin.name, origin.part) for origin in origins.values())
    refused: dict[int, str] = {}
    again = []
    for number, origin in origins.items():
        job, instance = locked.get(number), found.get((origin.name, origin.part))
        where = f"the instance {origin.part!r} of machine {origin.name!r}"
        if job is None:
            refused[number] = "is locked by another transaction"
        elif instance is None:
            refused[number] = f"is a transition of {where}, which was deleted"
        elif instance.job_id != (job.parent_id or job.id):
            refused[number] = f"is a transition that {where} has left behind"
        elif instance.job_id == job.id:
            again.append(instance)
    if again:
        yield from _begin(again)
    return refused


def _of_machine(job: JobRecord) -> Origin | None:
    origin = read_origin(job.origin)
    return origin if origin is not None and origin.kind is Kind.MACHINE else None


def _begin(instances: Sequence[InstanceRecord]) -> Steps[None]:
    """Write that failed transitions run again."""
    ids = [each.job_id for each in instances]
    moves: Sequence[MoveRecord] = yield Query("moves_these", {"ids": ids}, into=MoveRecord)
    queries = [put([replace(each, status=InstanceStatus.RUNNING, error=None) for each in instances])]
    if moves:
        running = [replace(each, status=MoveStatus.RUNNING, finished_at=None, error=None) for each in moves]
        queries.append(end_moves(running))
    yield Batch(tuple(queries))
