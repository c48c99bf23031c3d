"""How long ended jobs are kept, and deleting those that were kept long enough. PURE.

Nothing that is unfinished is ever deleted, and nothing dead that nobody has dealt with, unless the app says for how
long such jobs are to be kept. With a job go its arguments, its result, its history and its keys: an idempotency key is
free again. A dead job goes after its catch jobs.

Several apps may share a database, each with tasks of its own. So what an app says of its tasks is written down in the
database, and whoever prunes goes by that.

There is no index of ended jobs by their age, which every job would have to pay for. A *survey* walks the ids, a stride
at a time, and reads only; where it finds something, `prune` deletes that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from redrive.stores.operations.clock import instant
from redrive.stores.query import Query, Steps, reads, writes

__all__ = ["RetentionTimes", "Survey", "declare", "forget_policy", "forget_workers", "policies", "prune", "survey"]

STRIDE = 10_000
"""Ids that one survey walks."""

BATCH = 500
"""Jobs that are deleted in one transaction."""

RETIRED_FOR = timedelta(days=1)
"""How long a policy stays after it was retired: longer than any transaction that enqueues a job is open."""


@dataclass(frozen=True, slots=True)
class RetentionTimes:
    """How long the ended jobs of a task are kept; None means for ever.

    Attributes:
        ended: those that succeeded, were cancelled, or were caught.
        dead: those that are dead and were not caught.
    """

    ended: timedelta | None
    dead: timedelta | None


@dataclass(frozen=True, slots=True)
class Survey:
    """What a survey answers.

    Attributes:
        at: its instant.
        ids: the jobs that may be deleted.
        policies: digests of the policies that jobs of this stride have.
        last_id: jobs up to this one were looked at; None when there are no more.
    """

    at: datetime
    ids: tuple[int, ...]
    policies: frozenset[str]
    last_id: int | None


@writes
def declare(keeps: Mapping[str, RetentionTimes]) -> Steps[None]:
    """Write down how long the jobs of tasks are kept.

    Args:
        keeps: by the name of the task.
    """
    rows = [{"key": f"keep:{task}", "value": _text(keep.ended)} for task, keep in keeps.items()]
    rows += [{"key": f"keep_dead:{task}", "value": _text(keep.dead)} for task, keep in keeps.items()]
    if rows:
        yield Query("meta_put", many=rows)


def _text(span: timedelta | None) -> str:
    return "" if span is None else str(span // timedelta(microseconds=1))


@reads
def survey(after_id: int, keep: RetentionTimes, *, stride: int = STRIDE, now: datetime | None = None) -> Steps[Survey]:
    """Look for jobs that were kept long enough.

    Args:
        after_id: look at jobs with a larger id.
        keep: for tasks of which nothing is written down.
        stride: how many ids.
        now: the instant, in tests.

    Returns:
        Which they are, and where to go on.
    """
    at = yield from instant(now)
    until = after_id + stride
    window = {"after_id": after_id, "until": until}
    params = {**window, "now": at, "keep": keep.ended, "keep_dead": keep.dead, "count": BATCH}
    ids = tuple(row[0] for row in (yield Query("prunable", params)))
    policies = frozenset(row[0] for row in (yield Query("policies_of", window)))
    newest = yield Query("newest")
    if len(ids) == BATCH:
        return Survey(at, ids, policies, ids[-1])
    return Survey(at, ids, policies, until if until < (newest[0][0] or 0) else None)


@writes
def prune(found: Survey) -> Steps[int]:
    """Delete jobs, and all that belongs to them.

    Args:
        found: which; one that was started again since then is left alone.

    Returns:
        How many were deleted.
    """
    gone = yield Query("prune", {"ids": list(found.ids), "at": found.at})
    return len(gone)


@reads
def policies(*, now: datetime | None = None) -> Steps[frozenset[str]]:
    """Read the digests of the policies that may be forgotten: all but those that were retired less than a day ago.

    Args:
        now: the instant, in tests.

    Returns:
        The digests.
    """
    at = yield from instant(now)
    return frozenset(row[0] for row in (yield Query("policies", {"before": at - RETIRED_FOR})))


@writes
def forget_policy(digest: str, *, now: datetime | None = None) -> Steps[None]:
    """Retire a policy that no job has, or delete it if it was retired a day ago.

    A transaction that has not ended may have inserted a job with this policy, which is not visible here. So a policy is
    deleted only after every such transaction has ended: enqueues do not use a retired policy, but insert it anew.

    The database reads every job for this, so call it seldom.

    Args:
        digest: which.
        now: the instant, in tests.
    """
    at = yield from instant(now)
    if not (yield Query("policy_forget", {"digest": digest, "before": at - RETIRED_FOR})):
        yield Query("policy_retire", {"digest": digest, "now": at})


@writes
def forget_workers(*, left_for: timedelta, now: datetime | None = None) -> Steps[None]:
    """Delete workers that left, or were presumed dead, long ago, and hold nothing.

    Args:
        left_for: how long ago.
        now: the instant, in tests.
    """
    at = yield from instant(now)
    yield Query("workers_forget", {"before": at - left_for})
