"""Batches: jobs that were enqueued together, and the job that runs when all of them have ended. PURE.

The last job waits like any other, with the reason `Hold.BATCH` and a due time that never comes. Each of the others has
an origin that names it, and a tag for as long as it has not ended. The transaction in which a job ends takes the tag
away, under the lock of the waiting job, and makes that due if no tag is left: of two jobs that end at the same time,
the second sees that the first has ended. A job that is dead and has a catch task ends with its catch job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from redrive.engine.origin import OriginResult, of_batch
from redrive.engine.records import JobRecord, NewJob
from redrive.engine.runs import FAR
from redrive.errors import ConfigurationError
from redrive.stores.operations import jobs
from redrive.stores.query import Compound, Query, Statements, wakes


def tag_of(number: int) -> str:
    """Return the tag of all jobs of a batch, by the id of the job that follows them."""
    return f"batch:{number}"


def _open_tag(number: int) -> str:
    return f"in batch {number}"


def linked(members: Sequence[NewJob], then: NewJob, number: int) -> tuple[list[NewJob], NewJob]:
    """Return the jobs of a batch, and the one that follows them under this id, as they are inserted.

    Raise `ConfigurationError` if one of them has a key, since another job could stand for it, or if the one that
    follows has a due time or an expiry, since nobody knows when the others have ended.
    """
    if any(map(jobs.is_keyed, (*members, then))):
        raise ConfigurationError("the jobs of a batch have no key and no idempotency_key: another job could hold it")
    if then.delay or then.due_at is not None or then.expires is not None:
        raise ConfigurationError(
            "the job that follows a batch is due when the others have ended: it has no delay=, at= and expires="
        )
    origin, tags = of_batch(number), (tag_of(number), _open_tag(number))
    own = [replace(each, origin=origin, tags=(*each.tags, *tags)) for each in members]
    return own, replace(then, due_at=FAR, follows=True) if members else then


@wakes
def enqueue(
    members: Sequence[NewJob], then: NewJob, *, trace: str | None = None, now: datetime | None = None
) -> Statements[jobs.EnqueueResult]:
    """Insert a batch, all or nothing; return the ids of its jobs, that of the job which follows them last.

    Raise `ConfigurationError` as `linked` does, or if a job of an ordered queue has no partition.
    """
    at, ids = yield from jobs.numbered([*members, then], now)
    own, last = linked(members, then, ids[-1])
    # The last one by statements of its own, because jobs that are alike share one row of a statement.
    groups = [each for each in ([(ids[-1], last)], [*zip(ids, own, strict=False)]) if each]
    yield Compound(tuple(each for group in groups for each in jobs.statements(group, at, trace)))
    return jobs.EnqueueResult(ids, at=at)


def finish_all(reports: Sequence[OriginResult], at: datetime) -> Statements[None]:
    """Record that jobs of batches have ended; make the jobs due that follow batches of which none is left."""
    ended: dict[int, set[int]] = defaultdict(set)
    for each in reports:
        if not each.has_catch:
            ended[int(each.origin.part)].add(each.catches or each.job_id)
    for number in sorted(ended):
        _: Sequence[JobRecord] = yield Query("job_lock", {"id": number}, into=JobRecord)
        yield Query("batch_leave", {"tag": _open_tag(number), "ids": sorted(ended[number])})
        yield _end(number, at)


def wait_again(numbers: Sequence[int], at: datetime) -> Statements[None]:
    """Let jobs that were started again wait for their batches; make those due whose batches have ended meanwhile."""
    yield Query("batch_wait", {"ids": list(numbers)})
    for number in numbers:
        yield _end(number, at)


def _end(number: int, at: datetime) -> Query:
    return Query("batch_end", {"id": number, "tag": _open_tag(number), "origin": of_batch(number), "now": at})
