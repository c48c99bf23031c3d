"""Deletes jobs that ended long enough ago, with their arguments, results, histories and keys. PURE.

Unfinished jobs are never deleted, dead jobs that were not caught only if the app sets a time for them, and a dead job
after its catch jobs. Several apps may share a database, each with tasks of its own. Each app therefore stores the times
of its tasks in the database, and every pruner uses these.

Ended jobs have no index by age, which every job would have to pay for. A *survey* reads the ids, a stride at a time;
`prune` deletes the jobs that it has found.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET, UnsetType

from redrive.engine.runs import FAR
from redrive.stores.operations.clock import instant
from redrive.stores.query import Query, Statements, reads, writes

#: The number of ids that one survey reads.
STRIDE = 10_000

#: The largest number of jobs that one transaction deletes.
BATCH = 500

#: The time between retiring and deleting a policy: longer than any transaction that enqueues a job is open.
RETIRED_FOR = timedelta(days=1)


class RetentionTimes(msgspec.Struct, frozen=True, gc=False):
    """The times for which the ended jobs of a task are kept; None means for ever.

    Attributes:
        ended: for jobs that succeeded or were caught.
        dead: for jobs that are dead and were not caught.
        cancelled: for jobs that were cancelled; unset for the time of ``ended``.
    """

    ended: timedelta | None
    dead: timedelta | None
    cancelled: timedelta | UnsetType | None = UNSET

    @property
    def by_state(self) -> dict[str, timedelta | None]:
        """The times by the prefixes of their keys in ``redrive_meta``."""
        cancelled = self.ended if isinstance(self.cancelled, UnsetType) else self.cancelled
        return {"keep": self.ended, "keep_dead": self.dead, "keep_cancelled": cancelled}


class Survey(msgspec.Struct, frozen=True, gc=False):
    """The result of a survey."""

    at: datetime  # its instant
    ids: tuple[int, ...]  # the jobs that may be deleted
    policies: frozenset[str]  # digests of the policies of the jobs in this stride
    last_id: int | None  # the last job that was read; None when there are no more
    left: int = 0  # the ids behind it, those of deleted jobs included


@writes
def declare(keeps: Mapping[str, RetentionTimes]) -> Statements[None]:
    """Store the retention times of tasks, by name."""
    rows = [
        {"key": f"{name}:{task}", "value": _text(span)}
        for task, keep in keeps.items()
        for name, span in keep.by_state.items()
    ]
    if rows:
        yield Query("meta_put", many=rows, own=True)


def _text(span: timedelta | None) -> str:
    return "" if span is None else str(span // timedelta(microseconds=1))


@reads
def survey(
    after_id: int, keep: RetentionTimes, *, stride: int = STRIDE, now: datetime | None = None
) -> Statements[Survey]:
    """Find jobs with ids larger than `after_id` that may be deleted; `keep` applies to tasks without stored times."""
    at = yield from instant(now)
    ((first, last),) = yield Query("span", {"after_id": after_id})
    if first is None:
        return Survey(at, (), frozenset(), None)
    # The stride begins at a job that exists: the ids of deleted jobs cost nothing.
    until = first - 1 + stride
    window = {"after_id": first - 1, "until": until}
    ids = tuple(row[0] for row in (yield Query("prunable", {**window, "now": at, **keep.by_state})))
    policies = frozenset(row[0] for row in (yield Query("policies_of", window)))
    return Survey(at, ids, policies, until if until < last else None, max(last - until, 0))


# Jobs have their ids in the order of their enqueues, but for moments, and none ends before its enqueue.
@reads
def is_young(found: Survey, keep: RetentionTimes, *, stride: int = STRIDE) -> Statements[bool]:
    """Return True if all jobs of a survey were enqueued too late to be deleted, and so those behind it.

    A job behind it may be older, if the clock of the database was set back, or if its id was taken long before.
    """
    ((least,),) = yield Query("keep_shortest")
    spans = [] if least is None else [timedelta(microseconds=least)]
    spans += [each for each in keep.by_state.values() if each is not None]
    if found.last_id is None or not spans:
        return True
    window = {"after_id": found.last_id - stride, "until": found.last_id}
    return not (yield Query("enqueued_before", {**window, "before": found.at - min(spans)}))


@writes
def prune(found: Survey) -> Statements[int]:
    """Delete jobs and all their rows, and return their number; a job that was started again since then stays."""
    gone = yield Query("prune", {"ids": list(found.ids), "at": found.at})
    return len(gone)


@reads
def policies(*, now: datetime | None = None) -> Statements[frozenset[str]]:
    """Return the digests of the policies that may be deleted: all but those that were retired less than a day ago."""
    at = yield from instant(now)
    return frozenset(row[0] for row in (yield Query("policies", {"before": at - RETIRED_FOR})))


# An open transaction may have inserted a job with this policy that is not visible yet. A policy is therefore deleted
# only after every such transaction has ended; an enqueue does not use a retired policy but inserts it again.
@writes
def forget_policy(digest: str, *, now: datetime | None = None) -> Statements[None]:
    """Retire a policy that no job has, or delete it if it was retired a day ago.

    The statement reads every job, so call it seldom.
    """
    at = yield from instant(now)
    if not (yield Query("policy_forget", {"digest": digest, "before": at - RETIRED_FOR})):
        yield Query("policy_retire", {"digest": digest, "now": at})


@writes
def forget_workers(*, left_for: timedelta, now: datetime | None = None) -> Statements[None]:
    """Delete workers that left or died longer ago than `left_for` and hold no lease."""
    at = yield from instant(now)
    yield Query("workers_forget", {"before": at - left_for})


@writes
def empty() -> Statements[None]:
    """Delete all jobs, schedules, tracked items, settings of queues and sums; ids are not used again."""
    from redrive.stores.operations import counters

    yield Query("catches_empty")
    yield Query("jobs_empty")
    yield Query("occurrences_empty")
    yield Query("refreshes_empty")
    yield Query("schedules_empty")
    yield Query("queues_empty")
    yield from counters.forget_before(FAR)
