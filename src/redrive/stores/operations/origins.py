"""What has made a job is told of its end, in the transaction that ends it (law 6). PURE."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable
from datetime import datetime

from redrive.engine.items import OriginResult
from redrive.engine.origin import Kind
from redrive.engine.transition import Transition
from redrive.stores.operations import crons, freshness
from redrive.stores.query import Query, Rows

__all__ = ["follow", "tell"]


def tell(moved: Iterable[Transition], at: datetime) -> Generator[Query, Rows, None]:
    """Tell the schedules of jobs what has become of these.

    Args:
        moved: what is written of jobs, whether or not a schedule has made them.
        at: the instant of the transaction.
    """
    reports = [each.report for each in moved if each.report is not None]
    if reports:
        yield from follow(reports, at)


def follow(reports: Iterable[OriginResult], at: datetime) -> Generator[Query, Rows, int]:
    """Tell the schedules of jobs how these have ended.

    A refresh has taken the failure of its attempt: the dead job is stamped as caught.

    Whoever ends several jobs tells of all of them at once: what is told is locked in one order then, and two that do so
    never wait for each other.

    Args:
        reports: of jobs whose ends are written.
        at: the instant of the transaction.

    Returns:
        How many things that are kept fresh have moved.
    """
    moved = 0
    by_cron: dict[str, set[int]] = defaultdict(set)
    by_refresh: dict[str, list[OriginResult]] = defaultdict(list)
    for each in reports:
        if each.origin.kind is Kind.CRON:
            by_cron[each.origin.schedule].add(each.job_id)
        else:
            by_refresh[each.origin.schedule].append(each)
    for schedule in sorted(by_refresh):
        moved += yield from freshness.follow(schedule, by_refresh[schedule], at)
        taken = [{"job_id": each.job_id, "now": at} for each in by_refresh[schedule] if each.dead]
        if taken:
            yield Query("caught", many=taken)
    if by_cron:
        yield from crons.follow(by_cron, at)
    return moved
